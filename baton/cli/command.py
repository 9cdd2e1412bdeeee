"""From a command's function to what typer calls: options, the event loop, and errors as one line and a code."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import typer
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.cli.exits import ExitCode
from baton.cli.options import (
    AddressOption,
    ArtifactsOption,
    ConfigOption,
    GlobalOptions,
    JsonOption,
    NamespaceOption,
    ProfileOption,
)
from baton.cli.session import Session
from baton.errors import BatonError, ServerError
from baton.wire.json_values import holds_half

P = ParamSpec("P")

_COMMON: dict[str, tuple[Any, Any]] = {
    "json": (JsonOption, False),
    "address": (AddressOption, None),
    "namespace": (NamespaceOption, None),
    "profile": (ProfileOption, None),
    "config": (ConfigOption, None),
    "artifacts": (ArtifactsOption, None),
}
_NONDETERMINISM = "TMPRL1100"  # by which Temporal says that code does not fit a history
_OUT_OF_REACH = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.PERMISSION_DENIED,
)


def command(function: Callable[Concatenate[Session, P], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of an async function that takes a session first and its own options after that."""

    @wraps(function)
    def run(ctx: typer.Context, **given: Any) -> None:
        later = GlobalOptions(**{name: given.pop(name) for name in _COMMON})
        earlier = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
        _refuse_half_characters(ctx, given)
        session = Session(earlier.overridden(later))
        _run(session, function(session, **given))  # type: ignore[call-arg]

    own = list(inspect.signature(function).parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _COMMON.items()
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *own, *common]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _refuse_half_characters(ctx: typer.Context, given: Mapping[str, Any]) -> None:
    """Refuse a text that is not UTF-8: it could be sent nowhere, nor shown. Paths may be of any bytes."""
    for named in ctx.command.params:
        value = given.get(named.name or "")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and holds_half(text):
                why = "it is not UTF-8; is your terminal set to another encoding?"
                raise typer.BadParameter(why, param_hint=named.opts[0])


def _run(session: Session, work: Coroutine[Any, Any, None]) -> None:
    """Run the command's coroutine."""
    try:
        asyncio.run(work)
    except Exception as error:
        verdict = verdict_on(error)
        if verdict is None:
            raise
        code, message = verdict
        session.say(f"baton: {message}", "red")
        raise typer.Exit(code) from None


def verdict_on(error: Exception) -> tuple[ExitCode, str] | None:
    """Return the exit code and the line for what a command raised."""
    if isinstance(error, ServerError):
        return ExitCode.UNREACHABLE, str(error)
    if isinstance(error, BatonError):
        return ExitCode.NO, str(error)
    if isinstance(error, WorkflowAlreadyStartedError):
        return ExitCode.NO, f"a run with the id {error.workflow_id!r} is open already; watch it, or choose another --id"
    if isinstance(error, WorkflowQueryFailedError) and _NONDETERMINISM in str(error):
        remedy = "start a worker whose code fits, then try again (`baton replay` tells whether code does)"
        return ExitCode.NO, f"the worker's code does not fit the run: {error}; {remedy}"
    if isinstance(error, WorkflowQueryFailedError | WorkflowQueryRejectedError):
        return ExitCode.NO, f"the run cannot be asked: {error}"
    if isinstance(error, RPCError):
        return _verdict_on_call(error)
    return None


def _verdict_on_call(error: RPCError) -> tuple[ExitCode, str]:
    """Return the exit code and the line for a call that the server did not answer as hoped."""
    message = error.message.rstrip(".")
    if error.status is RPCStatusCode.NOT_FOUND:
        if message.startswith("Namespace"):
            return ExitCode.UNREACHABLE, f"{message}; name another with --namespace, or create it"
        if message.startswith("workflow not found"):
            return ExitCode.NO, f"there is no such run: {message}; `baton list` shows those there are"
        return ExitCode.NO, message
    if error.status in _OUT_OF_REACH:
        return ExitCode.UNREACHABLE, f"the server cannot be used ({error.status.name.lower()}): {message}"
    return ExitCode.NO, f"the server refused ({error.status.name.lower()}): {message}"
