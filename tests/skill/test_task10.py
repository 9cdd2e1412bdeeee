"""Task 10: a test suite that passes, and notices each of a few mistakes."""

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

GIVEN = Path(__file__).parent / "given"
MISTAKES = {
    "the agent is not given the items": ('inputs={"items": items}', "inputs={}"),
    "the limit is a dollar too low": ("LIMIT = 500", "LIMIT = 499"),
    "the limit is a dollar too high": ("LIMIT = 500", "LIMIT = 501"),
    "one person is enough": ("needs=2", "needs=1"),
    "nobody reads the form": ("decided.answer_as(Booking).cost_centre", '"general" if decided else ""'),
    "one item is paid": ("sum(item", "max(item"),
    "a denied claim is paid": ('else "denied"}', 'else "denied"} | await paid_anyway(p, amount)'),
    "silence is a yes": ("needs=2", "needs=2, default=True"),
    "there is one day to decide": ("days=3", "days=1"),
}
PAID_ANYWAY = '''

async def paid_anyway(p: Pipeline, amount: int) -> dict[str, Any]:
    """Pay what was denied."""
    await p.stage(pay, params={"amount": amount, "cost_centre": "general"})
    return {}
'''
LENT_SERVER = '''
import os
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def baton_server():
    """Lend the suites the server of this session: each would start its own."""
    return SimpleNamespace(address=os.environ["LENT_SERVER"])
'''


def make_folder(folder: Path, suite: Path, mistake: str | None) -> None:
    """Put the suite beside the team's code, with a mistake or without."""
    folder.mkdir()
    for file in (*GIVEN.glob("*.py"), *suite.glob("*.py"), *suite.glob("*.ini")):
        shutil.copy(file, folder)
    code = (GIVEN / "expenses.py").read_text(encoding="utf-8")
    if mistake is not None:
        before, after = MISTAKES[mistake]
        assert code.count(before) == 1
        code = code.replace(before, after) + PAID_ANYWAY
    (folder / "expenses.py").write_text(code, encoding="utf-8")
    lent = folder / "conftest.py"
    lent.write_text((lent.read_text(encoding="utf-8") if lent.exists() else "") + LENT_SERVER, encoding="utf-8")


async def run_suite(answers: Path, folder: Path, server: Any, mistake: str | None) -> tuple[int, str]:
    """Run the suite; return pytest's exit code and what it printed."""
    make_folder(folder, answers / "task10", mistake)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin"),
        cwd=folder,
        env={**os.environ, "LENT_SERVER": server.address, "PYTEST_ADDOPTS": ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


async def test_the_suite_passes(answers: Path, tmp_path: Path, baton_server: Any) -> None:
    code, printed = await run_suite(answers, tmp_path / "right", baton_server, None)
    assert code == pytest.ExitCode.OK, printed


@pytest.mark.timeout(1_800)  # a suite may wait for what a mistake keeps from coming
async def test_the_suite_notices_mistakes(answers: Path, tmp_path: Path, baton_server: Any) -> None:
    two_at_once = asyncio.Semaphore(2)

    async def notices(number: int, mistake: str) -> bool:
        async with two_at_once:
            code, printed = await run_suite(answers, tmp_path / f"wrong-{number}", baton_server, mistake)
        assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), printed
        return code == pytest.ExitCode.TESTS_FAILED

    noticed = await asyncio.gather(*(notices(number, mistake) for number, mistake in enumerate(MISTAKES)))
    assert [mistake for mistake, is_noticed in zip(MISTAKES, noticed, strict=True) if not is_noticed] == []
