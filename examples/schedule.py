"""A schedule: Temporal starts a pipeline every morning. `python examples/schedule.py` creates it."""

from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec

from baton import BatonPlugin, PipelineInput
from baton.client import connect, run_and_exit


async def create_schedule(client: Client | None = None) -> None:
    """Schedule the pipeline of hello.py for seven every morning, by default on the configured server."""
    client = client or await connect(plugins=[BatonPlugin()])
    start = PipelineInput(goal="Greet a guest", params={"guest": "Ada"})
    action = ScheduleActionStartWorkflow("hello", start, id="hello", task_queue="baton")
    at_seven = ScheduleSpec(cron_expressions=["0 7 * * *"], time_zone_name="Europe/Berlin")
    await client.create_schedule("hello", Schedule(action=action, spec=at_seven))


if __name__ == "__main__":
    run_and_exit(create_schedule())
