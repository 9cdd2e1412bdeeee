"""An outside agent that repeats an action after a lost answer gets the same answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineStatus
from baton.errors import PipelineError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.external import QUERY_OUTSIDE, OutsideHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOutside, HandsOutsideAndGoesOn
from tests.handoff.handoff_stages import extract
from tests.support import Handle, start, until

ANN: dict[str, Any] = {"holder": "ann"}
FINE = {"decision_log": ["Fine"]}


@pytest.fixture(scope="module")
async def exchange(sealing: Client) -> AsyncIterator[Worker]:
    """Return a worker that knows the pipelines of these tests."""
    async with pipeline_worker(
        sealing, [HandsOutside, HandsOutsideAndGoesOn], [*EXCHANGE_ACTIVITIES, extract]
    ) as worker:
        yield worker


async def accepted(exchange: Worker, agents: OutsideAgents, pipeline: Any = HandsOutside) -> tuple[Handle, HandoffRef]:
    """Start a pipeline, and accept its handoff as Ann."""
    handle = await start(exchange, pipeline.run)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    [waits] = await handle.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
    ref = HandoffRef(handle.id, waits)
    await agents.accept(ref, "reviewer", **ANN)
    return handle, ref


async def test_a_hostile_patch_is_refused_and_a_good_one_accepted(exchange: Worker, agents: OutsideAgents) -> None:
    """Neither 340,000 entries nor 20,000 reach the pipeline's code."""
    handle, ref = await accepted(exchange, agents)

    for count in (340_000, 20_000):
        with pytest.raises(PipelineError, match=f"{count:,}"[:3]):
            await agents.return_patch(ref, "reviewer", {"artifacts": [{} for _ in range(count)]}, **ANN)
    await agents.return_patch(ref, "reviewer", FINE, **ANN)
    assert (await handle.result()).baton["decision_log"] == ["Fine"]


async def test_an_agent_that_lost_the_answer_asks_again(exchange: Worker, agents: OutsideAgents) -> None:
    """Its work was accepted and the pipeline has ended; a refusal would suggest that the work was lost."""
    handle, ref = await accepted(exchange, agents)
    first = await agents.return_patch(ref, "reviewer", FINE, **ANN)
    await handle.result()

    assert await agents.return_patch(ref, "reviewer", FINE, **ANN) == first
    ref = await agents.find(handle.id, "reviewer", ref.handoff.handoff_id)
    done = f"handoff {ref.handoff.handoff_id!r} is done: patch by 'ann'"
    for action in (
        agents.return_patch(ref, "reviewer", {}),
        agents.reject(ref, "reviewer", "no", **ANN),
        agents.claim(ref, "reviewer", **ANN),
    ):
        with pytest.raises(PipelineError) as refused:
            await action
        assert str(refused.value) == done
    assert (await handle.result()).baton["decision_log"] == ["Fine"]


@pytest.mark.parametrize("pipeline", [HandsOutside, HandsOutsideAndGoesOn])
async def test_an_agent_asks_again_while_its_work_is_still_being_taken(
    exchange: Worker, agents: OutsideAgents, pipeline: Any
) -> None:
    """The handoff is done meanwhile: the repeat gets the same answer, and other work is refused."""
    handle, ref = await accepted(exchange, agents, pipeline)
    first = await agents.return_report(ref, "reviewer", "fine", **ANN)
    await until(handle, lambda now: now.status is not PipelineStatus.WAITING)

    assert (await agents.return_report(ref, "reviewer", "fine", **ANN)).handoff.end == first.handoff.end
    with pytest.raises(PipelineError, match="has already returned another report"):
        await agents.return_report(ref, "reviewer", "not fine", **ANN)
    with pytest.raises(PipelineError, match="is done: report by 'ann'"):
        await agents.reject(ref, "reviewer", "no", **ANN)


async def test_different_work_after_the_first_is_refused(exchange: Worker, agents: OutsideAgents) -> None:
    """A repeat with another patch must not look accepted, before and after the end."""
    handle, ref = await accepted(exchange, agents)
    patches = [{"decision_log": [word]} for word in ("Fine", "Not at all")]

    def sent(patch: Any) -> Any:
        return agents.return_patch(ref, "reviewer", patch, **ANN)

    for _ in range(2):
        answers = await asyncio.gather(*map(sent, patches), return_exceptions=True)
        [refused] = [answer for answer in answers if isinstance(answer, PipelineError)]
        [entry] = (await handle.result()).baton["decision_log"]
        assert entry == patches[1 - answers.index(refused)]["decision_log"][0]
    assert str(refused).endswith("'ann' has already returned another patch")


async def test_a_pipeline_that_continues_as_new_still_knows_what_was_returned(
    exchange: Worker, agents: OutsideAgents, safeguards: Safeguards
) -> None:
    """A repeat after a lost answer gets the same answer."""
    handle, ref = await accepted(exchange, agents, HandsOutsideAndGoesOn)
    first = await agents.return_patch(ref, "reviewer", FINE, **ANN)
    await handle.result()

    newest = exchange.client.get_workflow_handle(handle.id)
    assert (await newest.describe()).run_id != handle.first_execution_run_id
    assert await agents.return_patch(ref, "reviewer", FINE, **ANN) == first
    await assert_replays(newest, [HandsOutsideAndGoesOn], plugin=BatonPlugin(safeguards=safeguards))
