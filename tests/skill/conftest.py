"""Ten pipelines as a team would order them, each with tests that whoever writes it does not see.

`tests/skill/tasks` has the orders. The tests run the files in `tests/skill/solutions`, or with `--answers FOLDER` those
that somebody else wrote: `FOLDER/task01` has the files of the first order. `tests/skill/given` is what orders say that
the team has.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GIVEN = HERE / "given"

collect_ignore = ["solutions", "given"]

Load = Callable[..., Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--answers`."""
    parser.addoption("--answers", type=Path, default=HERE / "solutions", help="a folder with a folder for each task")


@pytest.fixture
def answers(request: pytest.FixtureRequest) -> Path:
    """Return the folder of all tasks' files; whole runs of the tests do not know the option."""
    folder: Path = request.config.getoption("--answers", HERE / "solutions")
    return folder.resolve()


@pytest.fixture
def load(answers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Return what imports a task's file as a worker would: with its folder, and what is given, on the path.

    Without a folder it imports what is given. The files stay importable until the test ends, for the sandbox.
    """
    before = set(sys.modules)

    def load(name: str, folder: str | None = None) -> Any:
        monkeypatch.syspath_prepend(GIVEN if folder is None else answers / folder)
        if folder is not None:
            sys.modules.pop(name, None)  # the file before the change
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(GIVEN)
    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith((str(GIVEN), str(answers))):
            del sys.modules[name]


@pytest.fixture
def script(load: Load) -> Any:
    """Return the script of the team's model; each answer has to be used."""
    script = load("team_model").SCRIPT
    yield script
    assert script.answers == []
