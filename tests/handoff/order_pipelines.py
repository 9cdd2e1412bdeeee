"""Two companies: one whose pipeline orders a score, and one whose pipeline scores."""

from baton import Baton, BatonPatch, ContractTerms, Pipeline, StageContext, StageResult, pipeline, stage
from baton.contract.records import ToolDeniedError

SECRET = "sk-proj-0123456789abcdefghij"
THOUGHT = "What if we leave out the appendix?"


@stage(tools=["crm.lookup"], personal_data=["email"])
async def scope(context: StageContext[Baton]) -> StageResult:
    """Find out what is to be scored; a key and a thought come up on the way."""
    found = await context.tools.call("crm.lookup", lambda: "The contract runs until 2031")
    context.session.brainstorm(THOUGHT)
    await context.personal.write("customer-7", {"email": "jane@example.org"})
    patch = BatonPatch(current_state=[f"Scoped: {found}"], constraints=[f"Use {SECRET}"], work_scope=["annex"])
    return StageResult(baton_patch=patch, output={"internal": "margin 40%"})


@stage(tools=["crm.lookup", "score.compute"], forbids=["email.send"])
async def score(context: StageContext[Baton]) -> StageResult:
    """Stand in for the other company, and so have the handoff made that is exported."""
    return StageResult(output={"by": "ourselves"})


@pipeline(contracts=ContractTerms(granted=frozenset({"crm.lookup", "score.compute"})))
async def orders_score(p: Pipeline) -> None:
    scoped = await p.stage(scope)
    await p.stage(score, inputs={"deal": "The deal", "scope": scoped.output}, params={"margin": "40%"})


@stage(tools=["score.compute", "email.send"])
async def compute(context: StageContext[Baton]) -> StageResult:
    """Say what arrived, and try a tool that the order's contract forbids."""
    denied = []
    for tool in ("score.compute", "email.send"):
        try:
            await context.tools.call(tool, lambda: "done")
        except ToolDeniedError:
            denied.append(tool)
    given = {"inputs": context.given.inputs, "baton": context.given.baton, "prompt": context.prompt}
    return StageResult(output={"denied": denied, "given": given})


@pipeline
async def risk_scoring(p: Pipeline) -> object:
    return (await p.stage(compute, inputs=p.inputs)).output


@pipeline
async def other_pipeline(p: Pipeline) -> object:
    return "nothing"
