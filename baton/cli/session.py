"""One call of a command: its options, consoles and client, the event loop, and errors as one line and an exit code."""

import asyncio
import getpass
import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import typer
from rich.console import Console, RenderableType
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import open_store
from baton.cli.options import (
    AddressOption,
    ArtifactsOption,
    ConfigOption,
    ExitCode,
    GlobalOptions,
    JsonOption,
    NamespaceOption,
    ProfileOption,
)
from baton.cli.output import json_text, make_console, plain
from baton.client import Connection, connect
from baton.codec.encryption import encryption_wanted
from baton.errors import BatonError, ServerError
from baton.handoff.pending import name_refusal
from baton.keys.store_keyring import Keyring
from baton.pipelines.activity_context import WorkerParts
from baton.plugin import BatonPlugin
from baton.wire.json_values import holds_half

_CONNECT_SECONDS = 10.0
KEYS_FOLDER = Path(".baton")
"""Where this machine keeps its own keys."""


@dataclass(frozen=True)
class Session:
    """What a command is handed: where it reads its options, and where it writes.

    Attributes:
        options: The options that every command takes.
        out: The output.
        err: What is said beside it.
    """

    options: GlobalOptions
    out: Console = field(default_factory=make_console)
    err: Console = field(default_factory=lambda: make_console(error=True))

    @property
    def json(self) -> bool:
        """Whether the output is JSON."""
        return self.options.json

    @property
    def connection(self) -> Connection:
        """Where to connect to."""
        one = self.options
        return Connection(one.address, one.namespace, one.profile, one.config)

    @property
    def parts(self) -> WorkerParts:
        """What the data converter needs to read what workers wrote."""
        try:
            return WorkerParts(artifacts=open_store(self.options.store))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--artifacts") from error

    @cached_property
    def keyring(self) -> Keyring | None:
        """The keys that decrypt what workers wrote, if there are any: those of the environment, or this machine's."""
        wanted = encryption_wanted(os.environ) or Keyring.is_at_hand(os.environ, KEYS_FOLDER)
        return Keyring.find_out(os.environ, KEYS_FOLDER) if wanted else None

    @cached_property
    def runtime(self) -> Runtime:
        """The SDK's runtime, silent: its core would write warnings to the output."""
        return Runtime(telemetry=TelemetryConfig(logging=None))

    async def client(self, *, searchable: bool = True) -> Client:
        """Return a connected client."""
        encrypt = encryption_wanted(os.environ)
        plugin = BatonPlugin(self.parts, searchable=searchable, keyring=self.keyring, encrypt=encrypt)
        identity = f"{user()}@{socket.gethostname()} (baton)"
        with self.progress("connecting"):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await connect(self.connection, plugins=[plugin], identity=identity, runtime=self.runtime)
            except TimeoutError:
                where = self.connection.settings()["target_host"]
                raise ServerError(
                    f"{where} does not answer within {_CONNECT_SECONDS:.0f} s; check the address, the network and TLS"
                ) from None

    @contextmanager
    def progress(self, doing: str) -> Iterator[None]:
        """Show what is under way, on a terminal only."""
        if self.json or not self.err.is_terminal:
            yield
            return
        with self.err.status(f"{doing} …", spinner="dots"):
            yield

    def show(self, *rows: RenderableType) -> None:
        """Write rows to the output; in a file or a pipe no line ends in blanks."""
        if self.out.is_terminal:
            self.out.print(*rows, sep="\n", crop=False)
            return
        with self.out.capture() as written:
            self.out.print(*rows, sep="\n", crop=False)
        self.write("".join(f"{line.rstrip()}\n" for line in written.get().splitlines()))

    def write_json(self, value: Any) -> None:
        """Write one JSON document to the output."""
        self.write(json_text(value) + "\n")

    def write_json_lines(self, values: Iterable[Any]) -> None:
        """Write each value on a line of its own, all of them in one piece."""
        self.write("".join(json_text(value, lines=True) + "\n" for value in values))

    def write(self, text: str) -> None:
        """Write ``text`` to the output as it is."""
        self.out.file.write(text)
        self.out.file.flush()

    def note(self, text: str) -> None:
        """Say something beside the output, for example a warning."""
        self.say(text, "yellow")

    def say(self, text: str, style: str) -> None:
        """Write a text beside the output; in a file or a pipe it stays on one line."""
        self.err.print(plain(text, style), soft_wrap=not self.err.is_terminal)

    def confirm(self, question: str, *, yes: bool, otherwise: str = "nothing was decided") -> None:
        """Return only if a person confirms what a command is about to do."""
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and self.err.is_terminal):
            where = "with --json nobody is asked" if self.json else "there is no terminal to ask on"
            raise typer.BadParameter(f"{where}, so {otherwise}; confirm with --yes", param_hint="--yes")
        if not self._ask(question):
            self.note(otherwise)
            raise typer.Exit(ExitCode.NO)

    def _ask(self, question: str) -> bool:
        """Return a person's answer; no answer is a no."""
        loops_own = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return typer.confirm(question, err=True)
        except typer.Abort as end:  # Ctrl-C, or the end of the input
            self.err.print()  # whatever is said next does not stand behind the question
            if isinstance(end.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            return False
        finally:
            signal.signal(signal.SIGINT, loops_own)


def user() -> str:
    """Return who this is, for the histories: BATON_USER, or the operating system's user."""
    named = os.environ.get("BATON_USER")
    if named:
        return named
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a user that has no name
        return "unknown"


def who_is(who: str | None) -> str:
    """Return under what name a person does something: the one that they gave, or that of `user`."""
    name = who or user()
    if unnamed := name_refusal(name):
        raise typer.BadParameter(unnamed, param_hint="--who")
    return name


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
