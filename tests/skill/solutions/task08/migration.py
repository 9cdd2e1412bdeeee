"""Research by children, reviews at once."""

from typing import Any

from baton import Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage


@stage
async def look_up(context: StageContext[Baton]) -> StageResult:
    """Find out about one topic."""
    topic = context.input("topic", str)
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Do as {topic} does"]), output=f"Notes on {topic}")


@stage
async def security(context: StageContext[Baton]) -> StageResult:
    """Ask who has the keys."""
    asked = BatonPatch(open_questions=["Who has the keys?", "Who decides?"])
    return StageResult(baton_patch=asked, output=len(context.input("findings", list[str])))


@stage
async def cost(context: StageContext[Baton]) -> StageResult:
    """Ask who pays."""
    asked = BatonPatch(open_questions=["Who pays?", "Who decides?"])
    return StageResult(baton_patch=asked, output=len(context.input("findings", list[str])))


@pipeline
async def research(p: Pipeline) -> object:
    """Look one topic up."""
    return (await p.stage(look_up, inputs=p.inputs)).output


@pipeline
async def migrate(p: Pipeline) -> object:
    """Research each topic, then review all of it."""
    findings = []
    topics: Any = p.params["topics"]
    for topic in topics:
        found = await p.child(research, f"Find out about {topic}", name=f"research {topic}", inputs={"topic": topic})
        findings.append(found.output)
    reviews = await p.fan_out(security, cost, inputs={"findings": findings})
    return {"findings": findings, "reviews": [review.output for review in reviews]}
