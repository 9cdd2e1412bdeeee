"""The stages of the test kit's own tests; they stand apart because a worker runs them outside the sandbox."""

import logging
from datetime import UTC, datetime, timedelta

from baton import Baton, BatonPatch, StageContext, stage

IDEA = "canary-4f1c: what if we skipped the check?"
"""An idea that must not reach anybody but who had it."""
SECRET = "canary-93bc: the customer may leave."
"""A fact that is marked as not to be handed on."""
STALE = "canary-51aa: the customer paid 15 USD."
"""A fact that is hours old."""
FACT = "The customer pays 20 USD, as the canary-8d2e says."
"""What was found out, and is handed on."""

_log = logging.getLogger(__name__)


@stage(tools=["crm.lookup"])
async def research(context: StageContext[Baton]) -> BatonPatch:
    """Find facts, of which one may cross, and have an idea that is dropped."""
    call = context.session.tool_call("crm.lookup", {"customer": "c-1"})
    context.session.tool_result("crm.lookup", FACT, call_id=call)
    context.session.tool_result("crm.lookup", SECRET, call_id=call, exclude=True)
    hours_ago = datetime.now(UTC) - timedelta(hours=3)
    context.session.tool_result("crm.lookup", STALE, call_id=call, retrieved_at=hours_ago)
    context.session.brainstorm(IDEA)
    _log.info("looked up %s", "c-1")
    return BatonPatch(current_state=["Researched"])


@stage
async def decide(context: StageContext[Baton]) -> BatonPatch:
    """Decide by what was found; the tests have a script in its place."""
    return BatonPatch(decision_log=[f"Kept the price, after {len(context.prompt)} characters"])
