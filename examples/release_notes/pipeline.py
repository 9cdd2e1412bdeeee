"""Two agents under contracts, and an approval.

baton dev examples/release_notes
baton run release_notes --goal "Notes for 1.2" --id notes
baton approve notes --why "Read them"
"""

from datetime import timedelta

from temporalio import workflow

from baton import ApprovalDeniedError, ContractTerms, Pipeline, pipeline

with workflow.unsafe.imports_passed_through():
    from release_notes.agents import review, write


@pipeline(contracts=ContractTerms())
async def release_notes(p: Pipeline) -> dict[str, object]:
    """Write, review, and ask an editor; silence for a day means no."""
    await p.stage(write)
    await p.stage(review)
    try:
        await p.approve("editor", within=timedelta(days=1), asks=f"Publish: {p.baton.current_state[0]}?")
    except ApprovalDeniedError as denied:
        return {"published": False, "why": str(denied)}
    return {"published": True, "notes": p.baton.current_state}
