"""What a receiver answers to messages that are put before it, in order: genuine ones, changed ones, and replays."""

from typing import Any

from baton.handoff.activity_receive import requirements
from baton.handoff.receipts import Receipt
from baton.handoff.routing import ReceiverRequirements
from baton.handoff.store_safeguards import Safeguards
from baton.pipelines.activity_stage import Stage


async def answers(
    safeguards: Safeguards,
    receiver: Stage[Any, Any] | ReceiverRequirements,
    *messages: bytes,
    task_id: str | None = None,
) -> list[Receipt]:
    """Return what a receiver's gate answers to messages, each on record before the next is looked at.

    It is the gate that workers have: seal, age, schema, completeness, safety, budget. That a handoff is for a stage
    of this very workflow is checked by the running stage, and not here.

    Args:
        safeguards: Keys, ledger and policy. Give a ledger of its own, or the answers go into the worker's.
        receiver: The stage that receives, or what a receiver requires.
        messages: The messages as bytes; the same twice is a replay.
        task_id: The task as the receiver knows it; a message of another one is refused.

    Returns:
        The receipts, in order: `verdict` is true for an acceptance, and has the reason of a rejection; `anchor` is
        the head of the chain that the answer is on, the same for a message that was answered before.

    Example:
        ```python
        first, again, forgery = await answers(safeguards, review, raw, raw, forged(raw))
        assert first.verdict and again.anchor == first.anchor and not forgery.verdict
        ```
    """
    required = requirements(receiver.spec) if isinstance(receiver, Stage) else receiver
    async with safeguards.opened() as guarded:
        return [(await guarded.gate.accept(raw, required, task_id=task_id))[0] for raw in messages]
