"""What a worker checks of a decision before it counts: whose signature it bears, and who belongs to which group."""

import asyncio

from temporalio import activity

from baton.keys.store_keys import Deciders, KeyringError
from baton.pipelines.activity_context import current_parts
from baton.pipelines.approvals import CHECK_DECISION, DecisionCheck


@activity.defn(name=CHECK_DECISION)
async def check_decision(check: DecisionCheck) -> str:
    """Return why a person may not decide; "" if they may. The file is read each time, so that changes count at once."""
    path = current_parts().deciders
    if path is None:
        return (
            f"approval {check.decision.approval!r} needs the workers' file of deciders, and this worker has none: set "
            "BATON_DECIDERS, or WorkerParts(deciders=…)"
        )
    try:
        deciders = await asyncio.to_thread(Deciders.from_file, path)
    except KeyringError as error:
        return str(error)
    return deciders.refusal(check.decision, check.who, proof=check.proof) or ""
