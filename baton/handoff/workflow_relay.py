"""The relay of a pipeline in its workflow: whether there is one, and the ids of its handoffs."""

import hashlib
import re
from uuid import UUID

from temporalio import workflow

from baton.core.messages import PipelineInput
from baton.errors import PipelineError
from baton.handoff.relay import HandoffTerms, Relay
from baton.wire.money import MICRO_PER_USD, MOST_USD, usd
from baton.wire.names import SEALS

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def relay_for(start: PipelineInput, task_id: str, terms: HandoffTerms) -> Relay | None:
    """Return what makes the handoffs of a pipeline, or None where its worker does not seal what leaves it."""
    if SEALS not in workflow.extern_functions():
        return None
    if not _UUID4.fullmatch(task_id):
        raise PipelineError(
            f"task_id {task_id!r} is not a random UUID (version 4, lower case), which handoffs need; leave it out to "
            "have one made"
        )
    if start.budget is not None and start.budget.ceiling_micro_usd > MOST_USD * MICRO_PER_USD:
        raise PipelineError(
            f"the budget is {usd(start.budget.ceiling_micro_usd)} USD, and handoffs carry {MOST_USD} USD at most; "
            "leave it out to have none"
        )
    relay = Relay(workflow.info().workflow_type, task_id, nth_id(0), terms, start.traceparent, start.follows)
    relay.personal_data = dict(start.personal_data)
    return relay


def nth_id(number: int) -> str:
    """Return the run's n-th id for a handoff, a random UUID."""
    hashed = hashlib.sha256(f"baton handoff {workflow.random_seed()} {number}".encode()).digest()
    return str(UUID(bytes=hashed[:16], version=4))
