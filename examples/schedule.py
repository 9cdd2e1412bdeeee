"""A schedule: Temporal starts a pipeline every morning. `python examples/schedule.py` creates it.

The same from the command line: baton schedule digest --cron "0 7 * * *" --goal "What happened yesterday".
"""

from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec

from baton import Baton, BatonPatch, BatonPlugin, Pipeline, PipelineInput, pipeline, stage
from baton.client import connect, run_and_leave


@stage
async def collect(baton: Baton) -> BatonPatch:
    """Collect the news."""
    return BatonPatch(current_state=["Two releases, no incident"])


@pipeline
async def digest(p: Pipeline) -> object:
    """Summarise what happened."""
    await p.stage(collect)
    return p.baton.current_state


async def create_schedule(client: Client) -> None:
    """Schedule the pipeline for seven every morning."""
    start = PipelineInput(goal="What happened yesterday")
    action = ScheduleActionStartWorkflow("digest", start, id="digest", task_queue="baton")
    at_seven = ScheduleSpec(cron_expressions=["0 7 * * *"], time_zone_name="Europe/Berlin")
    await client.create_schedule("digest", Schedule(action=action, spec=at_seven))


async def main() -> None:
    """Create the schedule on the configured server."""
    await create_schedule(await connect(plugins=[BatonPlugin()]))


if __name__ == "__main__":
    run_and_leave(main())
