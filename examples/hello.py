"""The smallest pipeline, in one file: `python examples/hello.py`."""

import baton
from baton import Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage


@stage(writes=["current_state", "decision_log"])
async def plan(context: StageContext[Baton]) -> StageResult:
    """Decide how to greet; the next stage reads the decision in the baton."""
    guest = str(context.params["guest"])
    patch = BatonPatch(current_state=[f"{guest} is expected"], decision_log=["Greet formally: it is a first visit"])
    return StageResult(baton_patch=patch, output={"guest": guest})


@stage(writes=["current_state"])
async def greet(context: StageContext[Baton]) -> StageResult:
    """Greet as the decision says."""
    formal = any("formally" in decision for decision in context.baton.decision_log)
    greeting = f"{'Good morning' if formal else 'Hi'}, {context.params['guest']}."
    return StageResult(baton_patch=BatonPatch(current_state=["The guest was greeted"]), output=greeting)


@pipeline
async def hello(p: Pipeline) -> object:
    """Plan, then greet."""
    await p.stage(plan)
    greeted = await p.stage(greet)
    return greeted.output


if __name__ == "__main__":
    result = baton.run(hello, goal="Greet a guest", params={"guest": "Ada"})
    print(result.output)
