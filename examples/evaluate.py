"""Evaluation of a prompt change over recorded runs: what would the new instructions have answered?

The inputs of a stage are in the history of its runs. The new stage is called with each of them, as a plain function:
no server works, nothing is written, and the runs stay as they are.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from temporalio.client import Client

from baton import Baton, Stage, StageContext
from baton.client import read_run


@dataclass(frozen=True)
class Compared:
    """One recorded case: what the run has, and what the new stage says."""

    run: str
    before: object
    after: object


async def compare(
    client: Client, runs: list[str], stage: Stage[StageContext[Baton], object]
) -> AsyncIterator[Compared]:
    """Yield what a changed stage answers to what it was given in recorded runs."""
    for run in runs:
        record = await read_run(client, run)
        before = {returned.stage: returned.output for _, returned in record.accepted}
        for given in record.inputs:
            if given.stage == stage.spec.name and given.stage in before:
                baton = Baton.from_json_object(given.baton)
                context = StageContext.for_test(baton, stage=given.stage, params=given.params, inputs=given.inputs)
                answered = await stage(context)
                yield Compared(run, before[given.stage], getattr(answered, "output", answered))


async def share_better(
    cases: AsyncIterator[Compared], score: Callable[[object], float]
) -> tuple[float, list[Compared]]:
    """Return in which share of the cases the new answer scores at least as well, and the cases where it does not."""
    all_cases = [one async for one in cases]
    worse = [one for one in all_cases if score(one.after) < score(one.before)]
    return (1 - len(worse) / len(all_cases) if all_cases else 0.0), worse
