"""What people name on the command line, and what the shell completes: a run, a stage, files of JSON."""

import asyncio
import json
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from baton.cli.options import GlobalOptions
from baton.cli.session import Session
from baton.client import read_run
from baton.handoff.errors import MalformedMessageError
from baton.runs.client_list import RunFilter, list_runs
from baton.wire.json_values import loads_strict
from baton.wire.money import amount_of

_PATIENCE_SECONDS = 1.5
_MOST = 50

Completions = list[tuple[str, str]]


def complete_run(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the runs whose workflow id begins like this, each with its pipeline and status."""
    return _quickly(_runs(_session(ctx), incomplete))


def complete_stage(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the stages of the run that was named before."""
    # While an option still lacks its value, the line is not parsed yet.
    named = ctx.params.get("run") or next((word for word in ctx.args if not word.startswith("-")), None)
    return _quickly(_stages(_session(ctx), named)) if isinstance(named, str) else []


async def _runs(session: Session, incomplete: str) -> Completions:
    runs = await list_runs(await session.client(), RunFilter(every=True, id_prefix=incomplete or None), _MOST)
    return [(one.workflow_id, f"{one.pipeline} {one.status}") for one in runs]


async def _stages(session: Session, workflow_id: str) -> Completions:
    run = await read_run(await session.client(), workflow_id)
    return [(step.name, f"step {step.seq}, {step.status.value}") for step in run.steps]


def _session(ctx: typer.Context) -> Session:
    """Return a session with the options that stand on the line so far; no callback has run yet."""
    said: dict[str, Any] = {}
    for one in (ctx.parent, ctx):
        for name in ("address", "namespace", "profile", "config", "artifacts"):
            value = one.params.get(name) if one else None
            said |= {name: value} if value else {}
    return Session(GlobalOptions(json=True, **said))


def _quickly(work: Coroutine[Any, Any, Completions]) -> Completions:
    """Return what the work finds in time; nothing where it fails, because a shell has no place for errors."""

    async def in_time() -> Completions:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await work

    try:
        return asyncio.run(in_time())
    except Exception:  # whatever it is, the operator's own command will say it better
        return []


_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A workflow id, for its newest run; WORKFLOW_ID/RUN_ID for one of its runs.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
OptionalRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="A workflow id, for its newest run; WORKFLOW_ID/RUN_ID for one of its runs. Not with --all.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every run that the other options select, after one question.")]
PipelineOption = Annotated[
    str | None, typer.Option("--pipeline", metavar="NAME", help="With --all: only runs of this pipeline.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many runs are read at most.")]
STAGE_HELP = "its number, its name, or NAME:2 for the second of that name"
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="STAGE", help=f"After this stage: {STAGE_HELP}.", autocompletion=complete_stage),
]
WhyOption = Annotated[str, typer.Option("--why", help="The reason, for the history.", show_default=False)]
WhoOption = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Who you are. [BATON_USER, or your user name]")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
PatchOption = Annotated[
    Path | None,
    typer.Option(
        "--patch", metavar="FILE", exists=True, dir_okay=False, readable=True, help="A patch of the baton, as JSON."
    ),
]


@dataclass(frozen=True)
class Target:
    """A run that a person named.

    Attributes:
        workflow_id: The workflow.
        run_id: One of its runs, or None for the newest.
    """

    workflow_id: str
    run_id: str | None = None

    @classmethod
    def of(cls, text: str) -> "Target":
        """Return what ``text`` names; a workflow id may itself have slashes."""
        workflow_id, slash, run_id = text.rpartition("/")
        return cls(workflow_id, run_id) if slash and _RUN_ID.fullmatch(run_id) else cls(text)

    def __str__(self) -> str:
        """Return the target as people write it."""
        return f"{self.workflow_id}/{self.run_id}" if self.run_id else self.workflow_id


def json_object(file: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        data = file.read_bytes()
        value = loads_strict(data.decode(json.detect_encoding(data)))
    except (OSError, ValueError, MalformedMessageError) as error:
        raise typer.BadParameter(f"{str(file)!r} is no JSON file: {error}", param_hint=what) from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise typer.BadParameter(f"{str(file)!r} holds a {kind}; it must hold a JSON object", param_hint=what)
    return value


def one_or_all(run: str | None, every: bool) -> "Target | None":
    """Return the run that is named, or None for all that are selected."""
    if every is (run is not None):
        raise typer.BadParameter("name one RUN, or give --all and what selects the runs", param_hint="RUN")
    return None if run is None else Target.of(run)


def micro_usd_of(given: str, option: str) -> int:
    """Return an amount of US dollars in millionths."""
    try:
        return amount_of(given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
