"""A step that a pipeline's code calls and never awaits does not run; the run may not complete as if nothing were."""

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from baton.testing import assert_replays
from tests.support import start
from tests.temporal.mishaps import NeverAwaits, NeverHandsOn

CALLS = {
    "stage": "Pipeline.stage(review)",
    "fan_out": "Pipeline.fan_out(check, document)",
    "approve": "Pipeline.approve('release manager')",
    "sleep": "Pipeline.sleep(",
    "child": "Pipeline.child('Linear', 'Do the first half')",
    "run": "Compensations.run()",
}
HANDOFFS = {
    "hand_off": "Exchange.hand_off(Receiver(workflow_id='nobody', agent='risk'",
    "receive": "Exchange.receive(ReceiverRequirements(",
    "to all": "hand_off_to_all([Receiver(workflow_id='nobody'",
    "outside": "Outside.hand_off('reviewer', 'Review')",
    "send": "Streams.send(Receiver(workflow_id='nobody'",
    "receive a stream": "Streams.receive(ReceiverRequirements(",
}


@pytest.mark.parametrize("which", CALLS)
async def test_the_run_fails_and_names_the_call(worker: Worker, which: str) -> None:
    """Each kind of step; and what the run did replays."""
    handle = await start(worker, NeverAwaits.run, which=which)

    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()
    said = str(raised.value.cause)
    assert f"called {CALLS[which]}" in said
    assert "write `await`" in said
    await assert_replays(handle, [NeverAwaits])


@pytest.mark.parametrize("which", HANDOFFS)
async def test_a_handoff_is_a_step_as_well(worker: Worker, which: str) -> None:
    """The task would have stayed where it was, and the run would have said that all was done."""
    handle = await start(worker, NeverHandsOn.run, which=which)

    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()
    said = str(raised.value.cause)
    assert f"called {HANDOFFS[which]}" in said
    assert len(said) < 400, "a call of nine receivers is cut"


async def test_a_task_that_was_given_up_before_it_began_is_in_order(worker: Worker) -> None:
    """As those of a group are, of which one fails at once."""
    handle = await start(worker, NeverAwaits.run, which="given up")

    assert (await handle.result()).steps == 1
