"""An outside agent that repeats an action after a lost answer gets the same answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineStatus
from baton.client import serve_outside
from baton.errors import PipelineError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.external import QUERY_OUTSIDE, OutsideHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOutside, HandsOutsideAndGoesOn
from tests.exchange.test_outside_service import TOKENS, at, call, listed, waiting
from tests.handoff.handoff_stages import extract
from tests.support import start, until


@pytest.fixture(scope="module")
async def exchange(sealing: Client) -> AsyncIterator[Worker]:
    """Return a worker that knows the pipelines of these tests."""
    async with pipeline_worker(
        sealing, [HandsOutside, HandsOutsideAndGoesOn], [*EXCHANGE_ACTIVITIES, extract]
    ) as worker:
        yield worker


@pytest.fixture(scope="module")
async def url(sealing: Client, safeguards: Safeguards) -> AsyncIterator[str]:
    async with (
        safeguards.shared().open() as guarded,
        serve_outside(OutsideAgents(sealing, guarded.gate), TOKENS) as url,
    ):
        yield url


async def test_a_hostile_patch_is_refused_and_a_good_one_accepted(exchange: Worker, url: str) -> None:
    """The service refuses 340,000 entries, and 20,000 as well; neither reaches the pipeline's code."""
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
    """Its work was accepted and the pipeline has ended; a refusal would suggest that the work was lost."""
    handle = await waiting(exchange)
    row = await listed(url, handle)
    ann: dict[str, Any] = {"holder": "ann"}
    await call(at(url, row, "claim"), ann)
    await call(at(url, row, "accept"), ann)
    first = await call(at(url, row, "patch"), {**ann, "patch": {"decision_log": ["Fine"]}})
    await handle.result()

    repeated = await call(at(url, row, "patch"), {**ann, "patch": {"decision_log": ["Fine"]}})
    assert repeated == first
    for body, verb in (({"patch": {}}, "patch"), ({**ann, "reason": "no"}, "reject"), (ann, "claim")):
        status, answer = await call(at(url, row, verb), body)
        assert (status, answer["error"]) == (409, f"handoff {row['handoff_id']!r} is done: patch by 'ann'")
    assert (await handle.result()).baton["decision_log"] == ["Fine"]


@pytest.mark.parametrize("pipeline", [HandsOutside, HandsOutsideAndGoesOn])
async def test_an_agent_asks_again_while_its_work_is_still_being_taken(
    sealing: Client, exchange: Worker, safeguards: Safeguards, pipeline: Any
) -> None:
    """The handoff is done meanwhile: the repeat gets the same answer, and other work is refused."""
    handle = await start(exchange, pipeline.run)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    async with safeguards.shared().open() as guarded:
        agents = OutsideAgents(sealing, guarded.gate)
        [waits] = await handle.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
        ref = HandoffRef(handle.id, waits)
        await agents.accept(ref, "reviewer")
        first = await agents.return_report(ref, "reviewer", "fine")
        await until(handle, lambda now: now.status is not PipelineStatus.WAITING)

        assert (await agents.return_report(ref, "reviewer", "fine")).handoff.end == first.handoff.end
        with pytest.raises(PipelineError, match="has already returned another report"):
            await agents.return_report(ref, "reviewer", "not fine")
        with pytest.raises(PipelineError, match="is done: report by 'reviewer'"):
            await agents.reject(ref, "reviewer", "no")


async def test_a_call_cut_off_by_the_end_of_the_service_can_be_repeated(
    sealing: Client, safeguards: Safeguards
) -> None:
    """The answer is like every other one, not an internal error."""
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


async def test_different_work_after_the_first_is_refused(exchange: Worker, url: str) -> None:
    """A repeat with another patch must not look accepted, before and after the end."""
    handle = await waiting(exchange)
    row = await listed(url, handle)
    await call(at(url, row, "accept"), {"holder": "ann"})
    both: list[Any] = [{"holder": "ann", "patch": {"decision_log": [word]}} for word in ("Fine", "Not at all")]
    first, second = await asyncio.gather(*(call(at(url, row, "patch"), body) for body in both))
    [entry] = (await handle.result()).baton["decision_log"]

    assert sorted([first[0], second[0]]) == [200, 409]
    for item in both:
        status, answer = await call(at(url, row, "patch"), item)
        if item["patch"]["decision_log"] == [entry]:
            assert status == 200
        else:
            assert status == 409
            assert answer["error"].endswith("'ann' has already returned another patch")


async def test_a_pipeline_that_continues_as_new_still_knows_what_was_returned(
    exchange: Worker, safeguards: Safeguards, url: str
) -> None:
    """A repeat after a lost answer gets the same answer."""
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
