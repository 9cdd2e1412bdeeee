"""Rules of the house that no single module can keep: what is committed, what is shipped, what an import costs."""

import ast
import itertools
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import baton
from conftest import SYSTEM, is_system
from tools import floors

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Written backwards, so that this file names none of them.
INDEX_HOSTS = tuple(backwards[::-1] for backwards in ("gro.ipyp", "gro.detsohnohtyp", "gro.sjmpn", "gro.naibed"))
PERSONAL_PATH = re.compile(r"(?<![\w.*}])/(?:(?:home|Users)/\w|roo[t]/|wor[k]/)|[A-Z]:\\Users\\")

HEAVY = ("cryptography", "opentelemetry", "sqlalchemy", "sqlite3", "obstore", "splintr", "jsonschema_rs")
EXTRA_PACKAGES = (
    *("agents", "bandit", "copier", "genai_prices", "identify", "langgraph", "mcp", "obstore", "psycopg"),
    *("opentelemetry", "pydantic_ai", "splintr", "unidiff", "yaml"),
)
TERMINAL_AND_WEB = ("typer", "rich", "starlette", "uvicorn")


def committed(*below: str) -> list[Path]:
    """Return the files that git holds, or would take with the next ``git add``."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *below],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def lines_that_match(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Return ``file:line`` for every line of the files in which the pattern is found."""
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a Python file, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    fresh = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert fresh.returncode == 0, fresh.stderr
    return set(fresh.stdout.split())


def pins(name: str) -> dict[str, Requirement]:
    """Return the pinned requirements of a file in requirements/, by name."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    matches = [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"\w", line)]
    return {canonicalize_name(requirement.name): requirement for requirement in matches}


def version_of(pin: Requirement) -> Version:
    """Return the one version that a ``name==version`` line allows."""
    (specifier,) = pin.specifier
    return Version(specifier.version)


def group(name: str) -> list[Requirement]:
    """Return the requirements of a dependency group, those of the groups it includes among them."""
    matches: list[Requirement] = []
    for item in PROJECT["dependency-groups"][name]:
        matches += group(item["include-group"]) if isinstance(item, dict) else [Requirement(item)]
    return matches


class TestCommittedFiles:
    """What may stand in the repository."""

    def test_no_file_names_a_package_index(self) -> None:
        """Where a machine downloads from is its own affair: no committed file ties it to a host."""
        hosts = re.compile("|".join(map(re.escape, INDEX_HOSTS)))

        assert lines_that_match(hosts, committed()) == []

    def test_no_file_holds_a_path_of_somebodys_machine(self) -> None:
        """A path in a home folder works on one machine only; recorded examples under tests/data may have one."""
        data = ROOT / "tests" / "data"

        assert lines_that_match(PERSONAL_PATH, [path for path in committed() if data not in path.parents]) == []

    def test_no_python_file_is_too_long_to_read(self) -> None:
        """A file holds one idea in at most 600 lines, and a function in at most 80."""
        python = committed("*.py")
        long_files = [f"{p.relative_to(ROOT)}" for p in python if p.read_bytes().count(b"\n") > 600]
        long_functions = [
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            for path in python
            for node in functions(path)
            if (node.end_lineno or node.lineno) - node.lineno >= 80
        ]

        assert (long_files, long_functions) == ([], [])

    def test_no_module_turns_its_annotations_into_strings(self) -> None:
        """Temporal compares the annotations of a workflow's methods, so a string in one module is another type."""
        future = re.compile(r"^from __future__ import")

        assert lines_that_match(future, committed("*.py")) == []


def without_encoding(path: Path) -> Iterator[str]:
    """Yield where a file reads or writes text in the encoding of the machine; ruff sees less of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            members = {keyword.arg for keyword in node.keywords}
            is_text = (name == "read_text" and not node.args) or (name == "write_text" and len(node.args) == 1)
            if (is_text or ("text" in members and name in ("run", "Popen"))) and "encoding" not in members:
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


class TestPlatforms:
    """Requirements of Windows and macOS that can be checked on Linux."""

    def test_no_text_depends_on_the_machines_encoding(self) -> None:
        """On Windows a file that is read or written without saying UTF-8 is in another encoding."""
        shipped = committed(
            "baton/*.py", "activities/*.py", "workflows/*.py", "examples/*.py", "benchmarks/*.py", "*.py"
        )

        assert [place for path in shipped if TESTS not in path.parents for place in without_encoding(path)] == []


class TestPins:
    """requirements/*.txt, which `make pins` writes."""

    def test_the_pins_satisfy_the_project_file(self) -> None:
        """Whoever changes a dependency runs `make pins`, so that set-up installs what pyproject.toml asks for."""
        project = PROJECT["project"]
        direct = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
        pinned = {**pins("dev.txt"), **pins("uv.txt")}
        requirements = [*map(Requirement, direct), *group("dev"), *group("setup")]
        stale = [
            str(requirement)
            for requirement in requirements
            if canonicalize_name(requirement.name) != project["name"]  # an extra that includes others
            if (pin := pinned.get(canonicalize_name(requirement.name))) is None
            or not requirement.specifier.contains(version_of(pin))
        ]

        assert stale == [], "run make pins"

    def test_the_image_runs_the_versions_that_the_tests_ran(self) -> None:
        """The worker image takes a part of the development pins and no other version of anything."""
        image, tested = pins("run.txt"), pins("dev.txt")

        assert {name: version_of(pin) for name, pin in image.items()} == {
            name: version_of(tested[name]) for name in image if name in tested
        }

    @pytest.mark.parametrize("name", ["dev.txt", "run.txt", "uv.txt"])
    def test_every_pin_is_held_by_a_hash(self, name: str) -> None:
        """A download that is not byte for byte the tested one is refused, whichever index it comes from."""
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        entries = re.split(r"(?m)^(?=\w)", text)[1:]

        assert len(entries) > 0
        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel that the project's own build backend makes of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    # The backend looks for its program on PATH.
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    build = [sys.executable, "-c", "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])", str(folder)]
    result = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


class TestWheel:
    """What `pip install temporal-baton` puts on a team's machine."""

    def test_it_holds_the_library_and_nothing_else(self, wheel: zipfile.ZipFile) -> None:
        """It takes no other name in site-packages; the shipped pipelines are below `baton`, as in the checkout."""
        files = {name for name in wheel.namelist() if not name.endswith("/")}
        version = PROJECT["project"]["version"]
        library = {name for name in files if not name.startswith(f"temporal_baton-{version}.dist-info/")}

        shipped = {
            f"baton/shipped/{path.relative_to(ROOT).as_posix()}"
            for path in committed("workflows", "activities", "worker.py")
        }
        shipped |= {f"baton/new/{path.relative_to(ROOT).as_posix()}" for path in committed("examples")}
        assert library == {path.relative_to(ROOT).as_posix() for path in committed("baton")} | shipped

    def test_it_is_typed_and_starts_the_command(self, wheel: zipfile.ZipFile) -> None:
        """Type checkers of its users read its annotations, and `baton` is on their path."""
        (entry_points,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))

        assert "baton/py.typed" in wheel.namelist()
        assert "baton = baton.__main__:main" in wheel.read(entry_points).decode()


class TestImport:
    """What an import costs, and what must never come with it."""

    def test_the_front_door_loads_no_key_disk_socket_or_server(self) -> None:
        """`import baton` stays pure, so that a workflow, a notebook and a small service can all afford it."""
        assert loaded_by("import baton") & {*HEAVY, *TERMINAL_AND_WEB, "temporalio"} == set()

    def test_the_door_of_services_loads_a_name_on_its_first_use(self) -> None:
        """A command that needs one reader of it does not pay for the others."""
        assert loaded_by("import baton.client") & {*HEAVY, *TERMINAL_AND_WEB, "temporalio", "pydantic"} == set()

    def test_workflow_code_loads_no_disk_terminal_or_web_server(self) -> None:
        """`from baton import Pipeline` brings Temporal's workflow API and the rules, and no I/O library."""
        assert (
            loaded_by("from baton import Pipeline, HandoffTerms, ContractTerms, Exchange")
            & {*HEAVY, *TERMINAL_AND_WEB} - {"opentelemetry"}
            == set()
        )

    def test_a_command_that_reads_a_run_loads_no_worker(self) -> None:
        """Each call pays for what it imports: the ledger's database and the SDK's worker are not needed."""
        code = "import sys, baton.cli.show; print(*[name for name in sys.argv[1:] if name in sys.modules])"
        unwanted = [
            "temporalio.worker",
            "baton.plugin",
            "baton.contract.records",
            "baton.handoff.store_gate",
            "sqlite3",
        ]
        fresh = subprocess.run(
            [sys.executable, "-c", code, *unwanted], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert fresh.stdout.split() == []

    def test_a_service_needs_nothing_that_only_the_command_needs(self) -> None:
        """Without typer and rich workers and clients load; the command and `baton.run` say what to install."""
        absent = "import sys; sys.modules['typer'] = sys.modules['rich'] = None\n"
        names = "[getattr(baton, name) for name in baton.__all__ if name != 'run']"
        loaded_by(f"{absent}import baton, baton.client, baton.worker, baton.plugin\n{names}")
        [command, run] = [
            subprocess.run([sys.executable, "-c", absent + code], cwd=ROOT, capture_output=True, text=True, check=False)
            for code in ("import runpy; runpy.run_module('baton', run_name='__main__')", "import baton; baton.run")
        ]

        assert (command.returncode, command.stderr.count("\n")) == (1, 1), command.stderr
        assert "temporal-baton[cli]" in command.stderr
        assert "temporal-baton[cli]" in run.stderr

    def test_a_reader_of_the_readme_needs_no_other_extra_than_it_names(self) -> None:
        """Without the packages of the other extras the front doors and the commands for the first pipeline load."""
        code = textwrap.dedent("""
            import importlib, sys

            absent = set(sys.argv[1:])
            class Absent:
                def find_spec(name, path=None, target=None):
                    if name.partition(".")[0] in absent:
                        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            sys.meta_path.insert(0, Absent)

            import baton, baton.client, baton.testing
            from baton.cli.app import COMMANDS
            with_extras = {"new", "HandoffTools", "handoff_server"}
            for door in (baton, baton.client, baton.testing):
                for name in {*door.__all__} - with_extras:
                    getattr(door, name)
            for module in {listed.module for listed in COMMANDS} - with_extras:
                importlib.import_module(f"baton.cli.{module}")
        """)
        fresh = subprocess.run(
            [sys.executable, "-c", code, *EXTRA_PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert fresh.returncode == 0, fresh.stderr

    def test_the_front_door_offers_what_type_checkers_see(self) -> None:
        """Each public name is loaded from the module that the type checker reads it from."""
        tree = ast.parse((ROOT / "baton" / "__init__.py").read_text(encoding="utf-8"))
        imported = {
            alias.name: node.module
            for block in ast.walk(tree)
            if isinstance(block, ast.If)
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

        assert imported == baton._HOME
        assert {name for name in imported if not hasattr(baton, name)} == set()


def ruff(code: str, filename: str) -> subprocess.CompletedProcess[str]:
    """Check code with the project's own rules, as if it stood in the named file."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    return subprocess.run(
        [*command, "--stdin-filename", filename, "-"],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )


class TestReplaySafety:
    """Code that a workflow replays may read no clock, draw no random number and look at no environment."""

    CALLS = (
        pytest.param("import uuid\n\nuuid.uuid4()\n", id="a random id"),
        pytest.param("from uuid import uuid4\n\nuuid4()\n", id="a random id, imported by name"),
        pytest.param("from datetime import UTC, datetime\n\ndatetime.now(UTC)\n", id="the time of day"),
        pytest.param("import time\n\ntime.time()\n", id="seconds since the epoch"),
        pytest.param("import time\n\ntime.monotonic()\n", id="a stop watch"),
        pytest.param("import random\n\nrandom.random()\n", id="a random number"),
        pytest.param("import secrets\n\nsecrets.token_hex()\n", id="a secret"),
        pytest.param("import os\n\nos.environ.get('X')\n", id="the environment"),
        pytest.param("import os\n\nos.urandom(8)\n", id="random bytes"),
        pytest.param("from temporalio import workflow\n\nworkflow.patched('x')\n", id="a patch asked for anywhere"),
    )

    @pytest.mark.parametrize("code", CALLS)
    @pytest.mark.parametrize("place", ["baton/core/x.py", "baton/pipelines/workflow_x.py", "workflows/x.py"])
    def test_lint_refuses_it_where_workflows_run(self, code: str, place: str) -> None:
        """The sandbox cannot guard a module that is passed through it, so lint does, before anything runs."""
        checked = ruff(code, place)

        assert checked.returncode == 1
        assert "banned-api" in checked.stdout

    @pytest.mark.parametrize("code", CALLS)
    @pytest.mark.parametrize("place", ["baton/ledger/store_x.py", "activities/x.py", "worker.py", "tests/x.py"])
    def test_lint_allows_it_everywhere_else(self, code: str, place: str) -> None:
        """Activities, keys and disks need a clock: there the same call passes."""
        assert "banned-api" not in ruff(code, place).stdout


class TestFloors:
    """Which room may know which."""

    def test_the_contract_lists_every_room(self) -> None:
        """A room that is left out could know any other, and an ignored import is a way around the rule."""
        rooms = {
            path.stem
            for path in (ROOT / "baton").iterdir()
            if path.stem not in ("__init__", "__main__", "py", "__pycache__") and path.suffix in ("", ".py")
        }
        contracts = PROJECT["tool"]["importlinter"]["contracts"]

        assert {room for layer in floors.layers() for room in layer} == rooms
        assert not any(contract.get("ignore_imports") for contract in contracts)

    def test_the_faces_import_public_modules_and_few_rooms(self) -> None:
        """What one face can do, the other and a service can too; a room is open to them for a reason that is given."""
        [contract] = [item for item in PROJECT["tool"]["importlinter"]["contracts"] if item["type"] == "faces"]
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        reasons = re.findall(r'^  "(baton\.\w+)",? +# \S', text, re.MULTILINE)

        assert set(contract["public"]) <= {*PUBLIC}
        assert reasons == contract["rooms"]
        assert len(reasons) <= MAX_ROOMS_OF_FACES

    def test_no_face_and_no_reader_sends_a_query(self) -> None:
        """A query waits for a worker; what people see and decide about is in histories and memos."""
        queries = re.compile(r"\bQUERY_|\.query\(\"")

        assert lines_that_match(queries, committed("baton/cli/*.py", "baton/console/*.py", "baton/runs/*.py")) == []

    def test_the_picture_is_the_contract(self) -> None:
        """Whoever reads the architecture sees what is checked; `python tools/floors.py` draws it."""
        page = floors.PAGE.read_text(encoding="utf-8")

        assert floors.picture() in floors.drawn(page) == page


PUBLIC = (
    "baton",
    "baton.agents",
    "baton.client",
    "baton.client.faces",
    "baton.lab",
    "baton.protocol",
    "baton.testing",
    "baton.errors",
    "baton.plugin",
    "baton.worker",
    "baton.local",
)
MAX_INTERNAL_NAMES = 320
MAX_ROOMS_OF_FACES = 6
# Folders of tests that are about a room of another name.
ROOM_OF = {"kit": "testing", "ledger_postgres": "ledger"}


def internal_names(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that a file of the tests imports from inside another room than its own."""
    folder = path.relative_to(TESTS).parts[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("baton."):
            room = node.module.split(".")[1]
            if node.module not in PUBLIC and room not in (folder, ROOM_OF.get(folder)):
                yield from ((node.module, alias.name) for alias in node.names)


class TestInternalNames:
    """What of the library's inside its tests hold in place."""

    def test_no_more_of_them_are_imported_from_other_rooms(self) -> None:
        """What `tests/<room>` does not know of its own room it imports from a public module; lower the figure."""
        names = {name for path in committed("tests/*.py") for name in internal_names(path)}

        assert len(names) <= MAX_INTERNAL_NAMES


def collected(*arguments: str) -> tuple[set[str], set[str]]:
    """Return the files whose tests pytest collects, and the top-level modules that this loads."""
    code = "import sys, pytest; pytest.main(sys.argv[1:]); print(*sys.modules, sep='\\n%')"
    command = [sys.executable, "-c", code, "--collect-only", "-qq", "-p", "no:xdist", *arguments]
    words = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = set(re.findall(r"(?m)^([\w/]+\.py): \d+$", words))
    return files, {line.partition(".")[0].removeprefix("%") for line in words.splitlines() if line.startswith("%")}


class TestGoals:
    """Which tests are whose, and what it costs to find them."""

    def test_each_file_is_run_by_one_of_the_two_goals(self) -> None:
        """A goal leaves the other's files out before it imports them; without a goal all are run."""
        every, _ = collected("tests/devserver", "tests/storm")
        system, loaded = collected("-m", "system", "tests/devserver", "tests/storm")
        others, _ = collected("-m", "not system", "tests/devserver", "tests/storm")

        assert "tests.devserver.test_ports" not in loaded
        assert "tests/storm/test_storm.py" in system
        assert system | others == every
        assert system.isdisjoint(others)

    def test_what_needs_a_browser_a_database_or_a_storm_is_not_in_make_test(self) -> None:
        """Each listed file exists, and no other one loads Playwright, the database's fixtures or the storms."""
        needs = re.compile(r"^\s*(from|import) (playwright|tests\.ledger_postgres|tests\.storm)\b")
        found = [Path(line.rpartition(":")[0]) for line in lines_that_match(needs, committed("tests/*.py"))]

        assert [name for name in SYSTEM if not (ROOT / name).exists()] == []
        assert [path for path in found if not is_system(ROOT / path)] == []

    def test_finding_the_examples_loads_no_framework(self) -> None:
        """A module without an example is not imported to look for one; most adapters have none."""
        files, loaded = collected("baton", "--ignore=baton/agents/langgraph.py")

        assert "baton/agents/answers.py" in files
        assert loaded & {"agents", "langchain_core", "mcp", "openai", "psycopg", "pydantic_ai"} == set()


class TestRelease:
    """What a release says of itself."""

    def test_the_changelog_opens_with_the_version(self) -> None:
        """Nothing is released without a sentence about it."""
        headings = re.findall(r"(?m)^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

        assert headings[0] == PROJECT["project"]["version"]

    def test_the_oldest_python_is_the_same_everywhere(self) -> None:
        """The wheel, its classifiers and ruff agree on the oldest Python, and no version is left out."""
        named = [re.search(r":: 3\.(\d+)$", line) for line in PROJECT["project"]["classifiers"]]
        minors = [int(match[1]) for match in named if match]

        assert minors == list(range(minors[0], minors[-1] + 1))
        assert PROJECT["project"]["requires-python"] == f">=3.{minors[0]}"
        assert PROJECT["tool"]["ruff"]["target-version"] == f"py3{minors[0]}"
