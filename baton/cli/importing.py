"""`baton import`: the session of another tool, as events that a run starts from."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from baton.cli.session import Session, command
from baton.codec.secrets import mask_values
from baton.protocol import SessionEvent, TranscriptError, import_session
from baton.wire.text import describe_faults, quantity


@command
async def import_(
    session: Session,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The other tool's messages or transcript.", show_default=False),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="openai, pydantic-ai, claude-code or codex; detected by default.",
        ),
    ] = None,
    newest: Annotated[int | None, typer.Option("--newest", metavar="N", min=1, help="Keep only the newest N.")] = None,
    max_age: Annotated[
        int | None,
        typer.Option(
            "--max-age",
            metavar="MINUTES",
            min=0,
            help="How old its tools' results may be; by default what the pipeline's contracts allow.",
        ),
    ] = None,
) -> None:
    """Print another tool's session as events that a run starts from.

    Reads messages of OpenAI and Pydantic AI, transcripts of Claude Code and rollouts of Codex. Save the output, and
    start with it: `baton run PIPELINE --session EVENTS`. In the contracts of that run everything from it is unverified,
    and users' prohibitions hold. Keys and passwords are masked. Messages without a time have that of the file.
    """
    try:
        data = file.read_bytes()
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {str(file)!r}: {error.strerror}", param_hint="FILE") from error
    try:
        events = import_session(data, format, at=at, newest=newest, max_age_minutes=max_age, mask=mask_values)
    except TranscriptError as error:
        raise typer.BadParameter(f"{str(file)!r}: {error}", param_hint="FILE") from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from error
    session.write_json(events)
    if session.out.is_terminal:
        session.note(
            f"{quantity(len(events), 'event')} of {events[0].agent}; save them, and give them to `baton run --session`"
        )


def read_session(file: str) -> list[dict[str, Any]]:
    """Return the events in a file, or from standard input for ``-``, with secrets masked as in a stage's session."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        masked = mask_values(json.loads(text))  # the history keeps them for good
        events = [SessionEvent.from_json_object(event).to_json_object() for event in masked]
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file!r}: {error.strerror}", param_hint="--session") from error
    except ValidationError as error:
        reason = describe_faults(error)
    except (ValueError, TypeError, RecursionError):
        reason = "it is not a list of JSON objects"
    else:
        return events
    raise typer.BadParameter(
        f"{file!r} has no session events: {reason}; of a transcript, `baton import FILE > events.json` writes them",
        param_hint="--session",
    ) from None
