"""Function pipelines and their stages in one module."""

from baton import Baton, BatonPatch, Pipeline, Retries, pipeline, stage


@stage
async def gather(baton: Baton) -> BatonPatch:
    """Decide something."""
    return BatonPatch(decision_log=["found three facts"])


@stage
async def compose(baton: Baton) -> BatonPatch:
    """Change the state."""
    return BatonPatch(current_state=[f"written about {baton.goal}"])


@stage(retries=Retries(attempts=1))
async def fail(baton: Baton) -> BatonPatch:
    """Fail."""
    raise ValueError("no facts")


@pipeline
async def failing(p: Pipeline) -> None:
    """Fail in its only stage."""
    await p.stage(fail)


@pipeline
async def article(p: Pipeline) -> str:
    """Write an article."""
    await p.stage(gather)
    await p.stage(compose)
    return "done"


@pipeline(name="renamed", protected=["goal"])
async def under_terms(p: Pipeline) -> None:
    """Return nothing, under another name."""
    await p.stage(gather)


@pipeline
async def parent(p: Pipeline) -> object:
    """Run another function pipeline as a child, and return a result of its own."""
    await p.child(article, goal=p.baton.goal)
    return p.result({"done": True})
