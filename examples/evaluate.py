"""Evaluate a prompt change on recorded runs: what would the new instructions have answered?

The history of a run has the inputs of its stages. The new stage is called with each of them as a plain function:
no server is needed, nothing is written, and the runs stay unchanged.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from temporalio.client import Client

from baton import Baton, Stage, StageContext
from baton.client import read_run


@dataclass(frozen=True)
class Comparison:
    """The recorded answer of a run, and the new one."""

    run_id: str
    recorded: object
    new: object


async def compare(
    client: Client, run_ids: list[str], stage: Stage[StageContext[Baton], object]
) -> AsyncIterator[Comparison]:
    """Run a changed stage on the recorded inputs of runs, and yield its answer beside the recorded one."""
    for run_id in run_ids:
        run = await read_run(client, run_id)
        outputs = {result.stage: result.output for _, result in run.accepted}
        for stage_input in run.inputs:
            name = stage_input.stage
            if name == stage.spec.name and name in outputs:
                baton = Baton.from_json_object(stage_input.baton)
                context = StageContext.for_test(baton, stage=name, params=stage_input.params, inputs=stage_input.inputs)
                result = await stage(context)
                yield Comparison(run_id, outputs[name], getattr(result, "output", result))


async def share_better(
    comparisons: AsyncIterator[Comparison], score: Callable[[object], float]
) -> tuple[float, list[Comparison]]:
    """Return the share of new answers that score at least as well as the recorded ones, and the worse ones."""
    cases = [comparison async for comparison in comparisons]
    worse = [case for case in cases if score(case.new) < score(case.recorded)]
    return (1 - len(worse) / len(cases) if cases else 0.0), worse
