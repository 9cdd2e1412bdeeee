"""What becomes of a contract that expires while its handoff waits for an agent outside."""

import dataclasses
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from baton.activity.safeguards import Safeguards
from baton.client.outside import OutsideAgents
from baton.edge.ledger import Ledger
from baton.integrations.mcp_reading import HandedOver
from baton.protocol.errors import PipelineError
from baton.protocol.messages import PipelineInput, PipelineStatus
from baton.protocol.strict_json import loads_strict
from baton.testing import assert_replays
from tests.support import Handle, overview, until
from tests.temporal.contract_pipelines import ReviewedOutside

LATER = timedelta(minutes=40)
"""More than a contract lasts."""


@pytest.fixture
def late(agents: OutsideAgents) -> OutsideAgents:
    """Return what agents outside may do, by a clock that is ahead by `LATER`."""
    gate = dataclasses.replace(agents.gate, clock=lambda: datetime.now(UTC) + LATER)
    return dataclasses.replace(agents, gate=gate)


async def handed_out(exchange: Worker) -> tuple[TimeSkipper, Handle]:
    """Return a pipeline that has handed a review to an agent outside, and what moves its clock."""
    handle = await exchange.client.start_workflow(
        ReviewedOutside.run,
        PipelineInput(goal="Review", params={"hours": 5}),
        id=f"reviewed-{uuid4()}",
        task_queue=exchange.task_queue,
        execution_timeout=timedelta(days=1),
    )
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    return TimeSkipper(exchange.client), handle


async def only(agents: OutsideAgents, handle: Handle) -> str:
    """Return the id of the handoff that waits in a pipeline."""
    return next(one.handoff.handoff_id for one in await agents.list_open("reviewer") if one.workflow_id == handle.id)


class TestExpiry:
    """`Outside`, when an agent comes late."""

    async def test_a_contract_that_expired_while_it_waited_is_compiled_anew(
        self, exchange: Worker, agents: OutsideAgents, late: OutsideAgents, safeguards: Safeguards
    ) -> None:
        """C-36, X-7: the agent that claims it reads and accepts a fresh contract, as another attempt on record."""
        skipper, handle = await handed_out(exchange)
        found = await late.find(handle.id, "reviewer", await only(agents, handle))
        before = loads_strict(await late.read(found))
        await skipper.fast_forward(handle, LATER)

        claimed = await late.claim(found, "reviewer", holder="ann")
        assert claimed.handoff.digest != found.handoff.digest
        after = loads_strict(await late.read(claimed))
        assert (before["step"]["attempt"], after["step"]["attempt"]) == (1, 2)
        assert after["step"]["contract"]["createdAt"] > before["step"]["contract"]["createdAt"]
        assert after["expiresAt"][:16] == before["expiresAt"][:16]

        with pytest.raises(PipelineError, match="another message by now"):
            await late.accept(found, "reviewer", holder="ann")
        assert (await late.accept(claimed, "reviewer", holder="ann")).verdict
        await late.return_patch(claimed, "reviewer", {"decision_log": ["Fine"]}, holder="ann")
        result = await handle.result()

        assert result.baton["decision_log"][-1] == "Fine"
        assert any("outside had expired; it is compiled anew" in note for note in (await overview(handle)).notes)
        async with Ledger(safeguards.ledger) as ledger:
            trace = await ledger.trace(before["taskId"])
        mine = [one.fields for one in trace.records if one.fields.event_id.startswith(found.handoff.handoff_id)]
        assert [(one.attempt, one.status) for one in mine] == [(2, "ACCEPTED")]
        await assert_replays(handle, [ReviewedOutside])

    async def test_who_accepted_in_time_works_on_under_what_was_accepted(
        self, exchange: Worker, agents: OutsideAgents, late: OutsideAgents
    ) -> None:
        """C-36: expiry is asked before the work begins; a renewed claim changes nothing, one that ran out does."""
        skipper, handle = await handed_out(exchange)
        found = await agents.find(handle.id, "reviewer", await only(agents, handle))
        found = await agents.claim(found, "reviewer", holder="ann", lease=timedelta(hours=2))
        assert (await agents.accept(found, "reviewer", holder="ann")).verdict
        await skipper.fast_forward(handle, LATER)

        renewed = await late.claim(found, "reviewer", holder="ann")
        assert renewed.handoff.accepted
        assert renewed.handoff.digest == found.handoff.digest
        handed = HandedOver.of(loads_strict(await late.read(renewed)))
        assert handed.checked("reviewer", late.gate.clock()) is handed

        await skipper.fast_forward(handle, timedelta(hours=2))
        again = await late.claim(found, "reviewer", holder="ann")
        assert not again.handoff.accepted
        assert again.handoff.digest != found.handoff.digest
        await handle.terminate()
