"""Roll-backs of pipelines that exchange handoffs with others: what the others sent is neither lost nor done twice."""

from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import roll_back
from baton.core.messages import PipelineResult
from tests.support import Handle, approve, failure, overview, start, until
from tests.temporal.exchange_pipelines import ExchangesBeside, HandsOff, Receives, StreamsIn, StreamsOut
from tests.temporal.test_exchange import fresh, output

GIVES = {"hand on": "accepted", "stream": "accepted", "receive": "legal", "receive a stream": [1, 2, 3]}


async def waits(handle: Handle, title: str) -> None:
    """Wait until an approval is open."""
    await until(handle, lambda now: any(one.name == title for one in now.waiting_for))


async def left(client: Client, worker: Worker, does: str) -> tuple[Handle, Handle]:
    """Return a run whose exchange has ended and whose approval was denied behind that, and the other pipeline."""
    id, other = fresh("one"), fresh("other")
    handle = await start(worker, ExchangesBeside.run, id=id, does=does, to=other, seconds=6)
    await approve(client, handle, "begin")
    await waits(handle, "later")
    theirs: dict[str, tuple[Any, dict[str, Any]]] = {
        "hand on": (Receives.run, {}),
        "stream": (StreamsIn.run, {}),
        "receive": (HandsOff.run, {"to": id, "agent": "legal"}),
        "receive a stream": (StreamsOut.run, {"to": id, "count": 3}),
    }
    run, params = theirs[does]
    if does == "receive a stream":
        params["agent"] = "legal"
    peer = await start(worker, run, id=other, **params)
    await peer.result()
    await until(handle, lambda now: [one.name for one in now.waiting_for] == ["later"])
    await approve(client, handle, "later", yes=False)
    await failure(handle)
    return handle, peer


@pytest.mark.parametrize("does", ["hand on", "stream", "receive", "receive a stream"])
async def test_what_another_pipeline_sent_behind_the_point_still_counts(
    sealing: Client, exchange: Worker, does: str
) -> None:
    """The other one has ended, so nobody sends it again: answers, handoffs and chunks are brought to the new run."""
    handle, _ = await left(sealing, exchange, does)

    done = await roll_back(sealing, handle.id, "later", by="ann", why="again")
    again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
    await waits(again, "later")
    await approve(sealing, again, "later")
    told = await output(again)
    assert (told["answer"] if does in ("hand on", "stream") else told) == GIVES[does]


@pytest.mark.parametrize("does", ["receive", "receive a stream"])
async def test_what_was_received_is_received_again(sealing: Client, exchange: Worker, does: str) -> None:
    """Its sender got an answer, and does not send it again."""
    handle, _ = await left(sealing, exchange, does)

    done = await roll_back(sealing, handle.id, "begin", by="ann", why="again")
    again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
    await waits(again, "begin")
    await approve(sealing, again, "begin")
    await waits(again, "later")
    await approve(sealing, again, "later")
    assert await output(again) == GIVES[does]
    assert (await overview(again)).notes[0].startswith("rolled back to before 'begin'")
