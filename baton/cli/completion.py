"""What the shell completes: runs and stages, from the server, quickly or not at all."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import typer

from baton.cli.options import GlobalOptions
from baton.cli.session import Session
from baton.client import read_run
from baton.runs.client_list import RunFilter, list_runs

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
