"""What people name on the command line: a run, a stage, files of JSON."""

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer

from baton.cli.completion import complete_run, complete_stage
from baton.handoff.errors import MalformedMessageError
from baton.wire.json_values import loads_strict
from baton.wire.money import MICRO_PER_USD, MOST_USD, micro_usd

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
        amount = Decimal(given.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 1 <= amount * MICRO_PER_USD <= MOST_USD * MICRO_PER_USD:
        raise typer.BadParameter(f"{given!r} is not an amount above zero, such as 5.00", param_hint=option)
    return micro_usd(amount)
