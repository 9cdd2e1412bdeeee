"""An agent outside that asks again: whoever has lost the answer is told what became of the work."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.core.messages import PipelineStatus
from baton.errors import PipelineError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.client_external import HandoffRef, OutsideAgents
from baton.exchange.client_http import serve_outside
from baton.exchange.external import QUERY_OUTSIDE, OutsideHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOutside, HandsOutsideAndGoesOn
from tests.exchange.test_outside_service import TOKENS, at, call, listed, waiting
from tests.handoff.handoff_stages import extract
from tests.support import start, until


@pytest.fixture(scope="module")
async def exchange(sealing: Client) -> AsyncIterator[Worker]:
    """Return a worker that knows the pipelines of these tests."""
    async with pipeline_worker(sealing, [HandsOutside, HandsOutsideAndGoesOn], [*EXCHANGE_ACTIVITIES, extract]) as it:
        yield it


@pytest.fixture(scope="module")
async def url(sealing: Client, safeguards: Safeguards) -> AsyncIterator[str]:
    async with (
        safeguards.shared().open() as guarded,
        serve_outside(OutsideAgents(sealing, guarded.gate), TOKENS) as it,
    ):
        yield it


async def test_a_hostile_patch_is_refused_and_a_good_one_is_taken_then(exchange: Worker, url: str) -> None:
    """340,000 entries are refused by the service, and 20,000 too; neither reaches the pipeline's code."""
    handle = await waiting(exchange)
    row = await listed(url, handle)
    ann: dict[str, Any] = {"holder": "ann"}
    await call(at(url, row, "claim"), ann)
    await call(at(url, row, "accept"), ann)

    for count, refusal in ((340_000, 400), (20_000, 409)):
        body = b'{"holder":"ann","patch":{"artifacts":[' + b",".join([b"{}"] * count) + b"]}}"
        status, answer = await call(at(url, row, "patch"), raw=body)
        assert (status, f"{count:,}"[:3] in answer["error"]) == (refusal, True)
    status, _ = await call(at(url, row, "patch"), {**ann, "patch": {"decision_log": ["Fine"]}})
    assert status == 200
    assert (await handle.result()).baton["decision_log"] == ["Fine"]


async def test_an_agent_that_lost_the_answer_asks_again(exchange: Worker, url: str) -> None:
    """Its work was taken, and the pipeline has ended since: a refusal would tell it that the work was in vain."""
    handle = await waiting(exchange)
    row = await listed(url, handle)
    ann: dict[str, Any] = {"holder": "ann"}
    await call(at(url, row, "claim"), ann)
    await call(at(url, row, "accept"), ann)
    first = await call(at(url, row, "patch"), {**ann, "patch": {"decision_log": ["Fine"]}})
    await handle.result()

    again = await call(at(url, row, "patch"), {**ann, "patch": {"decision_log": ["Fine"]}})
    assert again == first
    for body, verb in (({"patch": {}}, "patch"), ({**ann, "reason": "no"}, "reject"), (ann, "claim")):
        status, answer = await call(at(url, row, verb), body)
        assert (status, answer["error"]) == (409, f"handoff {row['handoff_id']!r} is done: patch by 'ann'")
    assert (await handle.result()).baton["decision_log"] == ["Fine"]


@pytest.mark.parametrize("pipeline", [HandsOutside, HandsOutsideAndGoesOn])
async def test_an_agent_asks_again_while_its_work_is_still_being_taken(
    sealing: Client, exchange: Worker, safeguards: Safeguards, pipeline: Any
) -> None:
    """The handoff was open when it asked and is done by now: it is answered as before, and other work is not taken."""
    handle = await start(exchange, pipeline.run)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    async with safeguards.shared().open() as guarded:
        agents = OutsideAgents(sealing, guarded.gate)
        [waits] = await handle.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
        found = HandoffRef(handle.id, waits)
        await agents.accept(found, "reviewer")
        first = await agents.return_report(found, "reviewer", "fine")
        await until(handle, lambda now: now.status is not PipelineStatus.WAITING)

        assert (await agents.return_report(found, "reviewer", "fine")).handoff.end == first.handoff.end
        with pytest.raises(PipelineError, match="has already returned another report"):
            await agents.return_report(found, "reviewer", "not fine")
        with pytest.raises(PipelineError, match="is done: report by 'reviewer'"):
            await agents.reject(found, "reviewer", "no")


async def test_who_was_not_answered_when_the_service_ended_is_told_to_try_again(
    sealing: Client, safeguards: Safeguards
) -> None:
    """In the words of every other answer: it was an internal error, of which no agent knows what to make."""
    head = f"POST /handoffs/x/claim?workflow=y HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKENS['reviewer']}\r\n"
    async with safeguards.shared().open() as guarded:
        async with serve_outside(OutsideAgents(sealing, guarded.gate), TOKENS) as url:
            host, port = url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")  # the call is under way
        answer = await reader.read()
        writer.close()

    assert b"HTTP/1.1 503 " in answer
    assert b'{"error":"the service was stopped; try again"}' in answer


async def test_other_work_than_was_returned_first_is_refused(exchange: Worker, url: str) -> None:
    """An agent that asks again with another patch is not told that this one was taken: before and after the end."""
    handle = await waiting(exchange)
    row = await listed(url, handle)
    await call(at(url, row, "accept"), {"holder": "ann"})
    both: list[Any] = [{"holder": "ann", "patch": {"decision_log": [word]}} for word in ("Fine", "Not at all")]
    first, second = await asyncio.gather(*(call(at(url, row, "patch"), one) for one in both))
    [taken] = (await handle.result()).baton["decision_log"]

    assert sorted([first[0], second[0]]) == [200, 409]
    for one in both:
        status, answer = await call(at(url, row, "patch"), one)
        if one["patch"]["decision_log"] == [taken]:
            assert status == 200
        else:
            assert status == 409
            assert answer["error"].endswith("'ann' has already returned another patch")


async def test_a_pipeline_that_continues_as_new_still_knows_what_was_returned(
    exchange: Worker, safeguards: Safeguards, url: str
) -> None:
    """As one that has ended does: who lost the answer is told that the work was taken."""
    ann: dict[str, Any] = {"holder": "ann", "patch": {"decision_log": ["Fine"]}}
    handle = await start(exchange, HandsOutsideAndGoesOn.run)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    row = await listed(url, handle)
    await call(at(url, row, "accept"), {"holder": "ann"})
    first = await call(at(url, row, "patch"), ann)
    await handle.result()

    newest = exchange.client.get_workflow_handle(handle.id)
    assert (await newest.describe()).run_id != handle.first_execution_run_id
    assert await call(at(url, row, "patch"), ann) == first
    await assert_replays(newest, [HandsOutsideAndGoesOn], plugin=BatonPlugin(safeguards=safeguards))
