"""`baton.run` of a pipeline that waits for an approval: at a real terminal, without one, and beside other commands."""

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from baton.devserver import DevServer
from tests.acceptance.operating import PROGRAM
from tests.support.terminal import PATIENCE_SECONDS, Screen, on_a_terminal

SCRIPT = """
import asyncio
import sys
from datetime import timedelta

from pydantic import BaseModel

import baton
from baton import Baton, BatonPatch, Pipeline, StageResult, pipeline, stage


class Payment(BaseModel):
    amount: int
    note: str


@stage
async def write(baton: Baton) -> StageResult:
    return StageResult(baton_patch=BatonPatch(decision_log=["Written"]), output="Batons travel.")


@stage
async def ticks(baton: Baton) -> StageResult:
    await asyncio.sleep(0.05)
    return StageResult(output="tick")


async def work(p: Pipeline) -> str:
    ticked = 0
    while ticked < 5:
        await p.stage(ticks)
        ticked += 1
    return "worked"


@pipeline
async def article(p: Pipeline) -> object:
    drafted = await p.stage(write)
    asking = p.approve(
        "editor", within=timedelta(minutes=5), asks="Publish this?", shows={"draft": drafted}, answer=Payment
    )
    decided, worked = await asyncio.gather(asking, work(p))
    return [decided.data, decided.why, worked]


if __name__ == "__main__":
    def run():
        print("RESULT", baton.run(article, goal="Write").output)

    async def in_a_notebook():
        run()

    asyncio.run(in_a_notebook()) if "notebook" in sys.argv else run()
"""


@pytest.fixture
def environment(server: DevServer, tmp_path: Path) -> dict[str, str]:
    """Return the environment of the script and the commands."""
    (tmp_path / "article.py").write_text(SCRIPT)
    return {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "TERM": "dumb",
        "TEMPORAL_ADDRESS": server.address,
        "BATON_USER": "ann",
    }


def the_script(folder: Path, environment: dict[str, str], *words: str) -> AbstractAsyncContextManager[Screen]:
    """Run the script on a terminal."""
    return on_a_terminal(sys.executable, "article.py", *words, folder=folder, environment=environment)


async def command(folder: Path, environment: dict[str, str], *words: str) -> None:
    """Run a command while the script runs."""
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM), *words, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def test_a_person_sees_fills_in_and_decides_where_the_pipeline_runs(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The run continues meanwhile; earlier input does not answer the question; invalid input is asked for again."""
    async with the_script(tmp_path, environment) as screen:
        await screen.until("begins")
        screen.type("y\n")
        output = await screen.until("[y/n, Ctrl-D leaves it open]: ")
        assert "│ Batons travel." in output
        assert "│ Publish this?" in output
        screen.type("maybe\n")
        await screen.until("[y/n, Ctrl-D leaves it open]: ")
        for answers in (("y", "much", "rent", "fair"), ("y", "40", "rent", "fair")):
            for question, answer in zip(("", "amount (integer): ", "note (string): ", "why: "), answers, strict=True):
                await screen.until(question)
                screen.type(f"{answer}\n")
            if answers[1] == "much":
                await screen.until("the answer does not fit: amount")
                await screen.until("[y/n, Ctrl-D leaves it open]: ")
        await screen.until("approved editor by ann")
        await screen.until("RESULT [{'amount': 40, 'note': 'rent'}, 'fair', 'worked']")
        assert await screen.code() == 0


async def test_a_no_denies(environment: dict[str, str], tmp_path: Path) -> None:
    """The run fails unless its code handles the denial."""
    async with the_script(tmp_path, environment) as screen:
        await screen.until("leaves it open]: ")
        screen.type("n\n")
        await screen.until("why: ")
        screen.type("dull\n")
        await screen.until("denied editor by ann")
        await screen.until("'editor' was denied by ann: dull")
        assert await screen.code() == 1


async def run_of(screen: Screen) -> str:
    """Return the script's run, once it waits for a decision."""
    return (await screen.until(" --why")).rpartition("baton approve ")[2].partition(" ")[0]


DECIDE = ("--yes", "--why", "fair", "--set", "amount=40", "--set", "note=rent")


async def test_a_decision_made_elsewhere_ends_the_question(environment: dict[str, str], tmp_path: Path) -> None:
    """Also if a part of the answer was typed."""
    async with the_script(tmp_path, environment) as screen:
        run = await run_of(screen)
        await screen.until("leaves it open]: ")
        screen.type("y\n")
        await screen.until("amount (integer): ")
        await command(tmp_path, environment, "approve", run, *DECIDE)
        await screen.until("decided elsewhere")
        await screen.until("RESULT")
        assert await screen.code() == 0


async def test_a_question_may_be_left_open(environment: dict[str, str], tmp_path: Path) -> None:
    """By Ctrl-D; the command to decide later is printed."""
    async with the_script(tmp_path, environment) as screen:
        run = await run_of(screen)
        await screen.until("leaves it open]: ")
        screen.type("\x04")
        await screen.until(f"left open; decide later: baton approve {run} editor")
        await command(tmp_path, environment, "approve", run, *DECIDE)
        await screen.until("RESULT")
        assert await screen.code() == 0


async def test_in_a_notebook_the_command_is_named_and_nobody_is_asked(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """If an event loop already runs, even with a terminal."""
    async with the_script(tmp_path, environment, "notebook") as screen:
        await command(tmp_path, environment, "approve", await run_of(screen), *DECIDE)
        await screen.until("RESULT")
        assert "[y/n" not in screen.written
        assert await screen.code() == 0


async def test_without_a_terminal_the_command_is_named_and_the_run_waits(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """As in a pipe or in CI."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "article.py"),
        cwd=tmp_path,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while b"baton approve " not in (line := await process.stderr.readline()):
            assert line, "it ended without saying so"
        run = line.decode().rpartition("baton approve ")[2].partition(" ")[0]
        await command(tmp_path, environment, "approve", run, *DECIDE)
        output, _ = await process.communicate()

    assert output.decode().startswith("RESULT [{'amount': 40")
