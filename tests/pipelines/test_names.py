"""Names that the server refuses: it rejects the workflow task again and again, or ends the run."""

from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import read_run
from tests.pipelines.mishaps import Named
from tests.support import assert_reads_back, failure, names, start

LONGEST = "\N{GRINNING FACE}" * 200
"""The longest name of a step, in characters of which each takes the most bytes."""


@pytest.mark.parametrize("what", ["sleep", "approval", "child", "child's goal"])
async def test_the_longest_name_is_accepted(client: Client, worker: Worker, what: str) -> None:
    """The search attribute of the current step has at most 2,048 bytes, and a timer's summary 400."""
    handle = await start(worker, Named.run, what=what, name=LONGEST)

    await handle.result()
    [step] = names(await assert_reads_back(client, handle))
    assert step in (LONGEST, "Delegate")


@pytest.mark.parametrize("name", ["step", LONGEST], ids=["a short step", "a long step"])
async def test_a_child_of_the_longest_id_has_an_id_of_its_own(client: Client, worker: Worker, name: str) -> None:
    """The server takes 1,000 bytes, and a child is named after its parent and its step."""
    handle = await start(worker, Named.run, id=f"{uuid4()}{'x' * 1_000}"[:1_000], what="child", name=name)

    await handle.result()
    [(child_id, *_)] = (await read_run(client, handle.id)).children
    assert len(child_id.encode()) <= 1_000
    assert ".step1." in child_id
    assert (await read_run(client, child_id)).result is not None


@pytest.mark.parametrize("what", ["stage's queue", "branch's queue", "child's queue", "child's type"])
@pytest.mark.parametrize(
    ("name", "times"), [("q", 1_001), ("/_sys/q", 1), ("half", 1)], ids=["too long", "reserved", "half a character"]
)
async def test_a_name_that_the_server_refuses_fails_the_run(worker: Worker, what: str, name: str, times: int) -> None:
    """With what is allowed, instead of a run that hangs."""
    handle = await start(worker, Named.run, what=what, name=name, times=times)

    assert "needs 1 to 1,000 bytes" in await failure(handle)


@pytest.mark.parametrize("what", ["sleep", "approval", "child"])
async def test_half_a_character_fails_the_run(worker: Worker, what: Any) -> None:
    """No name with it can be stored."""
    handle = await start(worker, Named.run, what=what, name="half")

    assert "needs a name of 1 to 200 characters, not only blanks, without half" in await failure(handle)
