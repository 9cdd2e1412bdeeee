"""Roll a run back after a wrong turn, and fork another that tries a variant."""

from temporalio.client import Client

from baton import Baton, BatonPatch, Pipeline, StageContext, pipeline, stage
from baton.client import fork, read_run, roll_back


@stage
async def choose(context: StageContext[Baton]) -> BatonPatch:
    """Choose a database that the constraints allow."""
    allowed = [constraint.removeprefix("Allowed: ") for constraint in context.baton.constraints]
    return BatonPatch(decision_log=[f"Use {allowed[0] if allowed else 'the one we know'}"])


@stage
async def migrate(baton: Baton) -> BatonPatch:
    """Write the migration."""
    return BatonPatch(current_state=[f"The migration is written. {baton.decision_log[-1]}"])


@pipeline
async def migration(p: Pipeline) -> object:
    """Choose, then migrate."""
    await p.stage(choose)
    await p.stage(migrate)
    return p.baton.current_state


async def go_back(client: Client, run: str) -> None:
    """Roll a run back to just before `migrate`; it continues from there, even if it had ended."""
    await roll_back(client, run, "migrate", by="ann", why="the migration was wrong")


async def try_variant(client: Client, run: str, database: str) -> object:
    """Start another run from just before `choose`, with a constraint; the original stays unchanged."""
    patch = {"constraints": [f"Allowed: {database}"]}
    variant = await fork(client, run, "choose", by="ann", why=f"compare {database}", patch=patch)
    await variant.result()
    return (await read_run(client, variant.id)).baton.current_state
