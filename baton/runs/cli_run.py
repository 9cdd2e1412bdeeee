"""`baton run`, `baton fork` and `baton schedule`: start runs, now or on a schedule."""

import difflib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import typer
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json
from rich.text import Text
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleListActionStartWorkflow,
    ScheduleListDescription,
    ScheduleSpec,
    WorkflowHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from baton.budget.records import Budget
from baton.cli.doctor import check_routing
from baton.cli.options import OptionGroup
from baton.cli.output import Command, format_age, make_table, plain
from baton.cli.session import (
    STAGE_HELP,
    PatchOption,
    RunArgument,
    Session,
    Target,
    WhoOption,
    command,
    parse_json_object,
    parse_usd,
    resolve_user,
)
from baton.client import fork as fork_run
from baton.core.baton import AnyBaton, Baton
from baton.core.messages import PipelineInput
from baton.errors import BatonError
from baton.runs.cli_watch import follow_to_the_end
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_follow import wait_for_first_answer
from baton.runs.client_record import RunStatus
from baton.runs.client_standing import suspension_sentence
from baton.runs.client_waiting import has_pollers
from baton.wire.text import describe_faults

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Follow it to its end.")]
IdOption = Annotated[str | None, typer.Option("--id", metavar="ID", help="The new workflow id; made up by default.")]


@dataclass(frozen=True)
class StartOptions(OptionGroup):
    """The options of a new run's input."""

    goal: Annotated[str | None, typer.Option("--goal", "-g", help="The objective, in one sentence.")] = None
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="KEY=JSON", help="A parameter; what is not JSON is taken as text."),
    ] = None
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=TEXT|@FILE", help="A text that its agents work on, or a file with it."),
    ] = None
    baton: Annotated[
        str | None,
        typer.Option("--baton", metavar="JSON|@FILE", help="Members of the first baton, or a file with them."),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="AMOUNT", help="What the run may cost in US dollars, such as 0.50."),
    ] = None
    task_queue: Annotated[
        str,
        typer.Option("--task-queue", metavar="NAME", envvar="BATON_TASK_QUEUE", help="Where its workers listen."),
    ] = DEFAULT_TASK_QUEUE

    def pipeline_input(self) -> PipelineInput:
        """Return the run's input."""
        members = parse_json_object(self.baton, "--baton") if self.baton else {}
        goal = self.goal or members.pop("goal", None)
        params = _parse_pairs(self.param or [], "--param", "KEY=JSON")
        inputs = _parse_pairs(self.input or [], "--input", "NAME=TEXT or NAME=@FILE")
        start = _make_input(
            goal,
            members,
            {name: _parse_json_or_text(text) for name, text in params.items()},
            {name: _read_text(Path(text[1:])) if text.startswith("@") else text for name, text in inputs.items()},
        )
        if self.budget is None:
            return start
        return start.model_copy(update={"budget": Budget(initial_micro_usd=parse_usd(self.budget, "--budget"))})


@command
async def run(
    session: Session,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The workflow's type.", show_default=False)],
    options: StartOptions,
    id: IdOption = None,
    task_id: Annotated[
        UUID | None, typer.Option(metavar="UUID", help="The task it belongs to, a random UUID; a new one by default.")
    ] = None,
    watch: WatchOption = False,
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Start a server and a worker for this run alone: that of an installed package, or ./worker.py.",
        ),
    ] = False,
) -> None:
    """Start a pipeline.

    The goal may also be in --baton. The pipeline's code is not needed here; a worker of the task queue has it.
    With --here no server or worker has to run: the pipeline is from an installed package, such as code_review, or
    from the folder's worker.py; the run is followed to its end, and the server and its worker end with it.
    """
    start, task_queue = options.pipeline_input(), options.task_queue
    if task_id is not None:
        if task_id.version != 4:
            raise typer.BadParameter("handoffs need a random UUID (version 4)", param_hint="--task-id")
        start = start.model_copy(update={"task_id": str(task_id)})
    workflow_id = id or f"{slug(pipeline)}-{uuid4().hex[:8]}"
    if here:
        # Imported here because it loads the embedded server.
        async with import_module("baton.cli.supervision").local_server(session, pipeline, task_queue) as local_session:
            client = await local_session.client()
            handle = await _start(local_session, client, pipeline, start, workflow_id, task_queue)
            await _report(local_session, client, handle, pipeline, watch=True)
        return
    client = await session.client()
    with session.progress("starting"):
        handle = await _start(session, client, pipeline, start, workflow_id, task_queue)
        has_worker = await has_pollers(client, task_queue)
        unrouted = await check_routing(client, task_queue)
        may_answer = has_worker and not unrouted and not watch  # a watcher sees the failure
        first = await wait_for_first_answer(client, handle.id, handle.first_execution_run_id) if may_answer else None
    if not has_worker:
        session.note(f"no worker polls the task queue {task_queue!r}; the run begins once one does")
    elif unrouted:
        session.note(f"{unrouted.found}, so the run does not begin; what helps:")
        session.note(unrouted.remedy or "")
    elif first and first.suspended:
        end = f"temporal workflow terminate --workflow-id {shlex.quote(handle.id)}"
        session.note(f"the run does not begin. {suspension_sentence(first.suspended)} If it never will, end it: {end}")
    await _report(session, client, handle, pipeline, watch=watch)
    if first and first.status is RunStatus.FAILED:
        raise BatonError(f"it failed at once: {first.failure}{_misspelt_hint(start.baton)}")


@command
async def fork(
    session: Session,
    run: RunArgument,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="STAGE",
            help=f"The first stage to execute again: {STAGE_HELP}.",
            show_default=False,
        ),
    ],
    patch: PatchOption = None,
    id: IdOption = None,
    why: Annotated[str, typer.Option("--why", help="The reason, for the history.")] = "",
    who: WhoOption = None,
    task_queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where its workers listen; as the old run's by default.")
    ] = None,
    watch: WatchOption = False,
) -> None:
    """Start a new run that keeps everything before a stage.

    The stages before are not executed again. A patch changes the baton right before the stage. The old run is
    not changed.
    """
    target, by = Target.of(run), resolve_user(who)
    patch_members = parse_json_object(patch, "--patch") if patch else None
    client = await session.client()
    with session.progress("forking"):
        handle = await fork_run(
            client,
            target.workflow_id,
            at,
            by=by,
            why=why,
            patch=patch_members,
            new_id=id,
            task_queue=task_queue,
            run_id=target.run_id,
        )
    await _report(session, client, handle, f"fork of {target}", watch=watch)


async def _start(
    session: Session, client: Client, pipeline: str, start: PipelineInput, workflow_id: str, task_queue: str
) -> WorkflowHandle[Any, Any]:
    """Start the run, without search attributes if the namespace lacks them."""
    try:
        return await client.start_workflow(pipeline, start, id=workflow_id, task_queue=task_queue)
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT or "Baton" not in error.message:
            raise
    session.note("the namespace lacks Baton's search attributes; `baton doctor --fix` adds them for the runs to come")
    plain_client = await session.client(searchable=False)
    return await plain_client.start_workflow(pipeline, start, id=workflow_id, task_queue=task_queue)


async def _report(
    session: Session, client: Client, handle: WorkflowHandle[Any, Any], what: str, *, watch: bool
) -> None:
    run_id = handle.first_execution_run_id or handle.result_run_id
    if session.json:
        json_row = {"workflow_id": handle.id, "run_id": run_id}
        session.write_json_lines([json_row]) if watch else session.write_json(json_row)
    elif watch:
        session.err.print(plain(f"started {handle.id}", "dim"))
    else:
        session.show(Text.assemble("started ", plain(what), " as ", plain(handle.id, "bold cyan")))
        session.show(Command(f"baton watch {shlex.quote(handle.id)}"))
    if watch:
        await follow_to_the_end(session, client, Target(handle.id, run_id))


def _make_input(goal: Any, members: dict[str, Any], params: dict[str, Any], inputs: dict[str, str]) -> PipelineInput:
    if not isinstance(goal, str) or not goal.strip():
        raise typer.BadParameter(f"give the goal, with --goal or as `goal` in --baton{_misspelt_hint(members)}")
    try:
        start = PipelineInput(goal=goal, baton=members, params=params, inputs=inputs)
        start.first_baton(AnyBaton)
        to_json(start)
    except PydanticSerializationError:  # only JSON in --param can have surrogates
        raise typer.BadParameter(
            "a text holds half a surrogate pair; write whole characters", param_hint="--param"
        ) from None
    except ValidationError as error:
        if all(fault["loc"][:1] == ("params",) for fault in error.errors()):
            raise typer.BadParameter(describe_faults(error), param_hint="--param") from error
        if all(fault["loc"][:1] == ("inputs",) for fault in error.errors()):
            raise typer.BadParameter(describe_faults(error), param_hint="--input") from error
        raise typer.BadParameter(f"that is not a baton: {describe_faults(error)}", param_hint="--baton") from error
    return start


def _misspelt_hint(members: Mapping[str, Any]) -> str:
    """Return a hint for members that look like misspelt fields of `Baton`; a pipeline's own fields are unknown here."""
    fields = Baton.model_fields
    matches = {name: difflib.get_close_matches(name, fields, n=1) for name in members if name not in fields}
    return "".join(f"; --baton has {name!r}: did you mean {match[0]!r}?" for name, match in matches.items() if match)


def _parse_pairs(pairs: list[str], option: str, form: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name or name in values:
            raise typer.BadParameter(f"{pair[:80]!r}: write each once, as {form}", param_hint=option)
        values[name] = text
    return values


def _parse_json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {str(file)!r}: {error.strerror}", param_hint="--input") from error
    except UnicodeDecodeError:
        raise typer.BadParameter(
            f"{str(file)!r} is not text in UTF-8; let a stage write it as an artifact", param_hint="--input"
        ) from None


def slug(pipeline: str) -> str:
    """Return a pipeline's name as the prefix of a workflow id."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", pipeline)
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-").lower() or "run"


_CRON = "cron"  # in the schedule's memo: the server stores only the calendar it computes from it


@command
async def add(
    session: Session,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The workflow's type.", show_default=False)],
    cron: Annotated[
        list[str],
        typer.Option("--cron", metavar="CRON", help="When, as five fields: `0 7 * * 1-5`. May be given several times."),
    ],
    options: StartOptions,
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="Whose clock, such as Europe/Berlin.")] = "UTC",
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The schedule's id; the pipeline's name by default.")
    ] = None,
) -> None:
    """Start a pipeline on a schedule.

    Each run is a separate task, with the schedule's id and the time as its workflow id. While a run is open, the next
    one does not begin. Temporal keeps the schedule: of Baton, only a worker has to run.
    """
    start = options.pipeline_input()
    client = await session.client()
    name = id or slug(pipeline)
    with session.progress("making the schedule"):
        spec = ScheduleSpec(cron_expressions=cron, time_zone_name=timezone)
        await _create_schedule(client, name, pipeline, start, spec, options.task_queue)
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
    rows = [await _schedule_row(schedule) async for schedule in await client.list_schedules()]
    if session.json:
        session.write_json(rows)
        return
    if not rows:
        session.note("no schedule; `baton schedule PIPELINE --cron … --goal …` makes one")
        return
    table = make_table("schedule", "pipeline", "cron", "next", "last run")
    for row in rows:
        next_run = "paused" if row["paused"] else _local_time(row["next"])
        table.add_row(
            plain(row["schedule"], "bold"), plain(row["pipeline"]), plain(row["cron"]), next_run, _last_run_cell(row)
        )
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
        raise BatonError(f"there is no schedule {schedule!r}; `baton schedule list` shows the schedules") from error
    if session.json:
        session.write_json({"deleted": schedule})
    else:
        session.show(plain(f"deleted {schedule}"))


async def _create_schedule(
    client: Client, name: str, pipeline: str, start: PipelineInput, spec: ScheduleSpec, task_queue: str
) -> None:
    action = ScheduleActionStartWorkflow(pipeline, start, id=name, task_queue=task_queue)
    try:
        memo = {_CRON: ", ".join(spec.cron_expressions)}
        await client.create_schedule(name, Schedule(action=action, spec=spec), memo=memo)
    except ScheduleAlreadyRunningError as error:
        raise BatonError(
            f"schedule {name!r} already exists; delete it first (`baton schedule delete`), or choose another --id"
        ) from error
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "schedule spec" in error.message.lower():
            raise typer.BadParameter(error.message, param_hint="--cron") from error
        raise


async def _schedule_row(schedule: ScheduleListDescription) -> dict[str, Any]:
    action = schedule.schedule.action if schedule.schedule else None
    recent = schedule.info.recent_actions if schedule.info else []
    last = recent[-1] if recent else None
    return {
        "schedule": schedule.id,
        "pipeline": action.workflow if isinstance(action, ScheduleListActionStartWorkflow) else None,
        "cron": (await schedule.memo()).get(_CRON),
        "paused": bool(schedule.schedule and schedule.schedule.state.paused),
        "next": next(iter(schedule.info.next_action_times), None) if schedule.info else None,
        "last": getattr(last.action, "workflow_id", None) if last else None,
        "last_at": last.started_at if last else None,
    }


def _local_time(at: datetime | None) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}" if at else ""


def _last_run_cell(row: dict[str, Any]) -> Text:
    if row["last"] is None:
        return Text("none yet", style="dim")
    return Text.assemble(plain(row["last"]), "  ", format_age(row["last_at"], datetime.now(UTC)))
