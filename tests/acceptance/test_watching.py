"""`baton watch` of a stage that streams, as people call it, on a real server: each piece while the stage works."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from baton.devserver import DevServer
from tests.acceptance.operating import Operator
from tests.pipelines.test_streaming import TOKENS, Pace, begun, speaking, worker_of
from tests.support import Handle
from tests.support.terminal import PATIENCE_SECONDS

SAID = "".join(TOKENS[:2])  # then the stage waits until the test lets it continue


@pytest.fixture
def operator(server: DevServer, tmp_path: Path) -> Operator:
    return Operator(tmp_path, {"TEMPORAL_ADDRESS": server.address})


@pytest.fixture
def pace() -> Pace:
    return Pace(waits_after=(1,))


@pytest.fixture
async def run(client: Client, pace: Pace, request: pytest.FixtureRequest) -> AsyncIterator[Handle]:
    """Yield a run whose stage has streamed two words and waits."""
    queue = request.node.name
    async with worker_of(client, queue, speaking(pace, TOKENS)):
        handle = await begun(client, queue)
        yield handle
        pace.may_go_on.set()
        await handle.result()  # so that what still watches it ends


async def lines(process: asyncio.subprocess.Process, until: Callable[[str], bool] | None = None) -> list[str]:
    """Return the output lines of a process, to its end or until they meet a condition."""
    assert process.stdout is not None
    written: list[str] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for line in process.stdout:
            written.append(line.decode())
            if until is not None and until("".join(written)):
                break
    return written


def text_of(written: str) -> str:
    """Return the stage's text from JSON lines."""
    news: list[dict[str, Any]] = [json.loads(line) for line in written.splitlines()]
    return "".join(piece["text"] for piece in news if piece["what"] == "text")


async def test_json_streams_each_piece_and_resumes_after_a_cursor(operator: Operator, run: Handle, pace: Pace) -> None:
    """A program that reads half of the stream, and later the rest from its last cursor, gets everything once."""
    async with operator.started("watch", run.id, "--json") as watching:
        first = await lines(watching, until=lambda written: text_of(written) == SAID)
    cursor = json.loads(first[-1])["cursor"]
    pace.may_go_on.set()
    async with operator.started("watch", run.id, "--json", "--from", cursor) as watching:
        rest = await lines(watching)

    assert text_of("".join(first)) + text_of("".join(rest)) == "".join(TOKENS)


async def test_a_pipe_gets_a_line_for_each_piece(operator: Operator, run: Handle, pace: Pace) -> None:
    """While the stage works, and to the end."""
    async with operator.started("watch", run.id) as watching:
        first = await lines(watching, until=lambda written: TOKENS[1].strip() in written)
        pace.may_go_on.set()
        rest = await lines(watching)

    assert "1 speak: done" not in "".join(first)
    assert "It travels from stage to stage." in " ".join("".join(rest).split())
    assert "1 speak: done" in "".join(rest)


async def test_a_terminal_shows_the_text_while_the_stage_works(operator: Operator, run: Handle) -> None:
    """The page has the text so far, before the stage ends."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, screen = await operator.terminated_on_a_terminal("watch", run.id, once=SAID.strip())

    assert TOKENS[2].strip() not in screen
