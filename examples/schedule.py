"""A schedule: a pipeline that Temporal starts every morning. `python examples/schedule.py` makes it.

The same from the command line: baton schedule digest --cron "0 7 * * *" --goal "What happened yesterday".
"""

from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec

from baton import Baton, BatonPatch, BatonPlugin, Pipeline, PipelineInput, pipeline, stage
from baton.client import connect, run_and_leave


@stage
async def collect(baton: Baton) -> BatonPatch:
    """Collect what there is to tell."""
    return BatonPatch(current_state=["Two releases, no incident"])


@pipeline
async def digest(p: Pipeline) -> object:
    """Tell what happened."""
    await p.stage(collect)
    return p.baton.current_state


async def make(client: Client) -> None:
    """Start the pipeline at seven, every morning."""
    start = PipelineInput(goal="What happened yesterday")
    action = ScheduleActionStartWorkflow("digest", start, id="digest", task_queue="baton")
    at_seven = ScheduleSpec(cron_expressions=["0 7 * * *"], time_zone_name="Europe/Berlin")
    await client.create_schedule("digest", Schedule(action=action, spec=at_seven))


async def main() -> None:
    """Make the schedule on the server that the environment names."""
    await make(await connect(plugins=[BatonPlugin()]))


if __name__ == "__main__":
    run_and_leave(main())
