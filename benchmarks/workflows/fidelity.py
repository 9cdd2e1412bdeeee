"""A chain of five agents in which nothing is passed on by hand: as a pipeline is by default, and without contracts."""

from typing import Any

from temporalio import workflow

from baton import Pipeline, pipeline

with workflow.unsafe.imports_passed_through():
    from benchmarks.chains import CHAINS


@pipeline
async def passes_on(p: Pipeline) -> None:
    """Run the agents of a chain one after the other; parameter: `chain`."""
    await _run(p)


@pipeline(contracts=False)
async def passes_on_without_contracts(p: Pipeline) -> None:
    """Do the same, and let no agent see a contract."""
    await _run(p)


async def _run(p: Pipeline) -> None:
    stages: Any = CHAINS[str(p.params["chain"])]
    for stage in stages:
        await p.stage(stage)
