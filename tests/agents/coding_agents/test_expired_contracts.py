"""What becomes of a contract that expires while its handoff waits for an agent outside."""

import dataclasses
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from baton import PipelineStatus
from baton.core.messages import PipelineInput
from baton.errors import PipelineError
from baton.exchange.external import QUERY_OUTSIDE, OutsideHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.outside.client_tools import AcceptedWork
from baton.testing import assert_replays
from baton.wire.json_values import loads_strict
from tests.contract.contract_pipelines import ReviewedOutside
from tests.support import Handle, overview, until

LATER = timedelta(minutes=40)
"""More than a contract lasts."""


@pytest.fixture
def late(agents: OutsideAgents) -> OutsideAgents:
    """Return what agents outside may do, by a clock that is ahead by `LATER`."""
    gate = dataclasses.replace(agents.gate, clock=lambda: datetime.now(UTC) + LATER)
    return dataclasses.replace(agents, gate=gate)


async def handed_out(exchange: Worker, *, growing: bool = False) -> tuple[TimeSkipper, Handle]:
    """Return a pipeline that has handed a review to an agent outside, and what moves its clock."""
    handle = await exchange.client.start_workflow(
        ReviewedOutside.run,
        PipelineInput(goal="Review", params={"hours": 5, "growing": growing}),
        id=f"reviewed-{uuid4()}",
        task_queue=exchange.task_queue,
        execution_timeout=timedelta(days=1),
    )
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    return TimeSkipper(exchange.client), handle


async def only(handle: Handle) -> HandoffRef:
    """Return the handoff that waits in a pipeline, asked for at the pipeline itself."""
    [one] = await handle.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
    return HandoffRef(handle.id, one)


class TestExpiry:
    async def test_a_contract_that_expired_while_it_waited_is_compiled_anew(
        self, exchange: Worker, late: OutsideAgents, safeguards: Safeguards
    ) -> None:
        """C-36, X-7: the agent that claims it reads and accepts a fresh contract, as another attempt on record."""
        skipper, handle = await handed_out(exchange)
        found = await only(handle)
        before = loads_strict(await late.read(found))
        await skipper.fast_forward(handle, LATER)

        claimed = await late.claim(found, "reviewer", holder="ann")
        assert claimed.handoff.digest != found.handoff.digest
        after = loads_strict(await late.read(claimed))
        assert (before["step"]["attempt"], after["step"]["attempt"]) == (1, 2)
        assert after["step"]["contract"]["createdAt"] > before["step"]["contract"]["createdAt"]
        assert after["expiresAt"] == before["expiresAt"]

        with pytest.raises(PipelineError, match="now has another message"):
            await late.accept(found, "reviewer", holder="ann")
        assert (await late.accept(claimed, "reviewer", holder="ann")).verdict
        await late.return_patch(claimed, "reviewer", {"decision_log": ["Fine"]}, holder="ann")
        result = await handle.result()

        assert result.baton["decision_log"][-1] == "Fine"
        assert any("outside had expired" in note for note in (await overview(handle)).notes)
        async with Ledger(safeguards.ledger) as ledger:
            trace = await ledger.trace(before["taskId"])
        mine = [one.fields for one in trace.records if one.fields.event_id.startswith(found.handoff.handoff_id)]
        assert [(one.attempt, one.status) for one in mine] == [(2, "ACCEPTED")]
        await assert_replays(handle, [ReviewedOutside])

    async def test_a_claim_is_refused_where_no_valid_contract_can_be_made(
        self, exchange: Worker, late: OutsideAgents
    ) -> None:
        """C-36: nobody works under the old one; the refusal says what is wrong, and the handoff waits on as it was."""
        skipper, handle = await handed_out(exchange, growing=True)
        found = await only(handle)
        await skipper.fast_forward(handle, LATER)

        with pytest.raises(PipelineError, match=r"has expired: the contract for 'reviewer' is not valid.*tokens"):
            await late.claim(found, "reviewer", holder="ann")
        assert (await only(handle)).handoff == found.handoff
        await assert_replays(handle, [ReviewedOutside])
        await handle.terminate()

    async def test_who_accepted_in_time_works_on_under_what_was_accepted(
        self, exchange: Worker, agents: OutsideAgents, late: OutsideAgents
    ) -> None:
        """C-36: expiry is asked before the work begins; a renewed claim changes nothing, one that ran out does."""
        skipper, handle = await handed_out(exchange)
        found = await agents.claim(await only(handle), "reviewer", holder="ann", lease=timedelta(hours=2))
        assert (await agents.accept(found, "reviewer", holder="ann")).verdict
        await skipper.fast_forward(handle, LATER)

        renewed = await late.claim(found, "reviewer", holder="ann")
        assert renewed.handoff.accepted
        assert renewed.handoff.digest == found.handoff.digest
        handed = AcceptedWork.of(loads_strict(await late.read(renewed)))
        assert handed.check_contract("reviewer", late.gate.clock()) is handed

        await skipper.fast_forward(handle, timedelta(hours=2))
        again = await late.claim(found, "reviewer", holder="ann")
        assert not again.handoff.accepted
        assert again.handoff.digest != found.handoff.digest
        await handle.terminate()

    async def test_what_only_the_receivers_clock_calls_expired_needs_input(
        self, exchange: Worker, late: OutsideAgents
    ) -> None:
        """C-36: nobody works under it all the same, and the pipeline's code learns what it can do."""
        _, handle = await handed_out(exchange)
        found = await late.claim(await only(handle), "reviewer", holder="ann")

        receipt = await late.accept(found, "reviewer", holder="ann")
        result = await handle.result()

        assert not receipt.verdict
        assert result.output["answer"]["answer"] == "needs_input"
        assert "compile it again" in result.output["answer"]["unmet"][0]
