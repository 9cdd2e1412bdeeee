"""`baton schedule`: pipelines that Temporal starts by the clock."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleListActionStartWorkflow,
    ScheduleListDescription,
    ScheduleSpec,
)
from temporalio.service import RPCError, RPCStatusCode

from baton.cli.output import Command, ago, make_table, plain
from baton.cli.session import Session, command
from baton.core.messages import PipelineInput
from baton.errors import BatonError
from baton.runs.cli_run import (
    BatonOption,
    BudgetOption,
    GoalOption,
    InputOption,
    ParamOption,
    QueueOption,
    slug,
    start_of,
)
from baton.runs.client_connection import DEFAULT_TASK_QUEUE

_CRON = "cron"  # in the schedule's memo: the server keeps only the calendar that it made of it


@command
async def add(  # noqa: PLR0913 - each is an option of the command
    session: Session,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The workflow's type.", show_default=False)],
    cron: Annotated[
        list[str],
        typer.Option("--cron", metavar="CRON", help="When, as five fields: `0 7 * * 1-5`. May be given several times."),
    ],
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="Whose clock, such as Europe/Berlin.")] = "UTC",
    goal: GoalOption = None,
    param: ParamOption = None,
    input: InputOption = None,
    baton: BatonOption = None,
    budget: BudgetOption = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The schedule's id; the pipeline's name by default.")
    ] = None,
    task_queue: QueueOption = DEFAULT_TASK_QUEUE,
) -> None:
    """Start a pipeline by the clock.

    Each run is a task of its own, with the schedule's id and its time as its workflow id. While a run is open, no
    other one begins. Temporal keeps the schedule: nothing of Baton needs to run for it but a worker.
    """
    start = start_of(goal, param, input, baton, budget)
    client = await session.client()
    name = id or slug(pipeline)
    with session.progress("making the schedule"):
        await _create(
            client, name, pipeline, start, ScheduleSpec(cron_expressions=cron, time_zone_name=timezone), task_queue
        )
        next_times = (await client.get_schedule_handle(name).describe()).info.next_action_times
    if session.json:
        session.write_json({"schedule": name, "next": next_times[0].isoformat() if next_times else None})
        return
    first = f"{next_times[0].astimezone():%Y-%m-%d %H:%M %Z}" if next_times else "never"
    session.show(Text.assemble("schedule ", plain(name, "bold cyan"), f", first run {first}"))
    session.show(Command("baton schedule list"))


@command
async def list_(session: Session) -> None:
    """List the schedules, with their next and last runs."""
    client = await session.client()
    rows = [await _row(one) async for one in await client.list_schedules()]
    if session.json:
        session.write_json(rows)
        return
    if not rows:
        session.note("no schedule; `baton schedule PIPELINE --cron … --goal …` makes one")
        return
    table = make_table("schedule", "pipeline", "cron", "next", "last run")
    for row in rows:
        next_run = "paused" if row["paused"] else _time(row["next"])
        table.add_row(plain(row["schedule"], "bold"), plain(row["pipeline"]), plain(row["cron"]), next_run, _last(row))
    session.show(table)


@command
async def delete(
    session: Session, schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", show_default=False)]
) -> None:
    """Delete a schedule; its runs stay, and those that are open continue."""
    client = await session.client()
    try:
        await client.get_schedule_handle(schedule).delete()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise BatonError(f"there is no schedule {schedule!r}; `baton schedule list` shows those there are") from error
    if session.json:
        session.write_json({"deleted": schedule})
    else:
        session.show(plain(f"deleted {schedule}"))


async def _create(
    client: Client, name: str, pipeline: str, start: PipelineInput, spec: ScheduleSpec, task_queue: str
) -> None:
    """Make the schedule."""
    action = ScheduleActionStartWorkflow(pipeline, start, id=name, task_queue=task_queue)
    try:
        memo = {_CRON: ", ".join(spec.cron_expressions)}
        await client.create_schedule(name, Schedule(action=action, spec=spec), memo=memo)
    except ScheduleAlreadyRunningError as error:
        told = (
            f"there is a schedule {name!r} already; delete it first (`baton schedule delete`), or choose another --id"
        )
        raise BatonError(told) from error
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "schedule spec" in error.message.lower():
            raise typer.BadParameter(error.message, param_hint="--cron") from error
        raise


async def _row(one: ScheduleListDescription) -> dict[str, Any]:
    """Return what is shown of a schedule."""
    action = one.schedule.action if one.schedule else None
    recent = one.info.recent_actions if one.info else []
    last = recent[-1] if recent else None
    return {
        "schedule": one.id,
        "pipeline": action.workflow if isinstance(action, ScheduleListActionStartWorkflow) else None,
        "cron": (await one.memo()).get(_CRON),
        "paused": bool(one.schedule and one.schedule.state.paused),
        "next": next(iter(one.info.next_action_times), None) if one.info else None,
        "last": getattr(last.action, "workflow_id", None) if last else None,
        "last_at": last.started_at if last else None,
    }


def _time(at: datetime | None) -> str:
    """Return a time on this machine's clock."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}" if at else ""


def _last(row: dict[str, Any]) -> Text:
    """Return the last run and how long ago it began."""
    if row["last"] is None:
        return Text("none yet", style="dim")
    return Text.assemble(plain(row["last"]), "  ", ago(row["last_at"], datetime.now(UTC)))
