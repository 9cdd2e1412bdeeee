"""The pipelines and stages of the tests about a handoff's content."""

from datetime import timedelta

from baton import Baton, BatonPatch, ContinueAfter, ContractTerms, Pipeline, StageContext, pipeline, stage


@stage(task="Read the contract")
async def read(baton: Baton) -> BatonPatch:
    """Read."""
    return BatonPatch(current_state=["Read"])


@stage(whole=["clause"])
async def weigh(context: StageContext[Baton]) -> BatonPatch:
    """Weigh what it was given."""
    return BatonPatch(current_state=["Weighed"])


@stage
async def check(baton: Baton) -> BatonPatch:
    """Check, which no plan names."""
    return BatonPatch(current_state=["Checked"])


@pipeline(
    plan=[read, (weigh, "Weigh each clause"), "release manager", ("weigh", "Weigh again"), "archive"],
    continue_after=ContinueAfter(events=1),
)
async def planned(p: Pipeline) -> None:
    """Follow a plan, with a step outside of it, and continue as new on the way."""
    await p.stage(read)
    given = {"style": "plain", "clause": "The supplier is liable without limit. " * 10, "limits": {"eur": [1, 2, 3]}}
    await p.stage(weigh, inputs=given)
    await p.sleep(timedelta(seconds=1.5))
    await p.stage(check)
    await p.stage(weigh)


@pipeline(plan=[read, ("page", "Weigh every page"), "archive"], contracts=ContractTerms())
async def paged(p: Pipeline) -> None:
    """Weigh three pages, and check one by another name."""
    await p.stage(read)
    await p.map(weigh, ["one", "two", "three"], name="page")
    await p.stage(check, name="check the pages")
