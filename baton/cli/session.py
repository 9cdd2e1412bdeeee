"""One call of a command: options, consoles, client, arguments, and errors as one line and an exit code."""

import asyncio
import getpass
import inspect
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from rich.console import Console, RenderableType
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from baton import Keyring, open_store
from baton.cli.options import ExitCode, GlobalOptions, expand_option_groups
from baton.cli.output import json_text, make_console, plain
from baton.client import ClientPlugin, Connection, connect
from baton.client.faces import UNREACHABLE_STATUSES, ArtifactStore, name_refusal
from baton.codec.encryption import is_encryption_enabled
from baton.errors import BatonError, MalformedMessageError, ServerError, UnreadableRunError
from baton.wire.json_values import has_lone_surrogate, loads_strict
from baton.wire.money import parse_amount

_CONNECT_SECONDS = 10.0
STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What ends a command that serves."""
KEYS_FOLDER = Path(".baton")
"""The folder of this machine's own keys."""


@dataclass(frozen=True)
class Session:
    """The options and consoles of one command call."""

    options: GlobalOptions
    out: Console = field(default_factory=make_console)
    err: Console = field(default_factory=lambda: make_console(error=True))

    @property
    def json(self) -> bool:
        """Whether the output is JSON."""
        return self.options.json

    @property
    def connection(self) -> Connection:
        """The Temporal server to connect to."""
        options = self.options
        return Connection(options.address, options.namespace, options.profile, options.config)

    @property
    def artifacts(self) -> ArtifactStore:
        """The workers' artifact store, which also holds large payloads."""
        try:
            return open_store(self.options.store)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--artifacts") from error

    @cached_property
    def keyring(self) -> Keyring | None:
        """The keys that decrypt the workers' payloads, from the environment or this machine's folder."""
        needed = is_encryption_enabled(os.environ) or Keyring.is_configured(os.environ, KEYS_FOLDER)
        return Keyring.from_environment(os.environ, KEYS_FOLDER) if needed else None

    @cached_property
    def runtime(self) -> Runtime:
        """The SDK's runtime without logging, which would write to the output."""
        return Runtime(telemetry=TelemetryConfig(logging=None))

    async def client(self, *, searchable: bool = True) -> Client:
        """Return a connected client."""
        encrypt = is_encryption_enabled(os.environ)
        plugin = ClientPlugin(self.artifacts, searchable=searchable, keys=self.keyring, encrypt=encrypt)
        identity = f"{current_user()}@{socket.gethostname()} (baton)"
        with self.progress("connecting"):
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await connect(self.connection, plugins=[plugin], identity=identity, runtime=self.runtime)
            except TimeoutError:
                host = self.connection.settings()["target_host"]
                raise ServerError(
                    f"{host} did not answer within {_CONNECT_SECONDS:.0f} s; check the address, the network and TLS"
                ) from None

    @contextmanager
    def progress(self, activity: str) -> Iterator[None]:
        """Show a spinner while the context is open, on a terminal only."""
        if self.json or not self.err.is_terminal:
            yield
            return
        with self.err.status(f"{activity} …", spinner="dots"):
            yield

    def show(self, *rows: RenderableType) -> None:
        """Write rows to the output, without trailing blanks in a file or a pipe."""
        if self.out.is_terminal:
            self.out.print(*rows, sep="\n", crop=False)
            return
        with self.out.capture() as capture:
            self.out.print(*rows, sep="\n", crop=False)
        self.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))

    def write_json(self, value: Any) -> None:
        """Write one JSON document to the output."""
        self.write(json_text(value) + "\n")

    def write_json_lines(self, values: Iterable[Any]) -> None:
        """Write each value on its own line, all in one write."""
        self.write("".join(json_text(value, lines=True) + "\n" for value in values))

    def write(self, text: str) -> None:
        """Write ``text`` to the output unchanged."""
        self.out.file.write(text)
        self.out.file.flush()

    def note(self, text: str) -> None:
        """Write a warning or hint to stderr."""
        self.say(text, "yellow")

    def say(self, text: str, style: str) -> None:
        """Write a text to stderr, on one line in a file or a pipe."""
        self.err.print(plain(text, style), soft_wrap=not self.err.is_terminal)

    def confirm(self, question: str, *, yes: bool, otherwise: str = "nothing was decided") -> None:
        """Return if the person confirms; otherwise exit."""
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and self.err.is_terminal):
            reason = "--json does not ask" if self.json else "there is no terminal to ask on"
            raise typer.BadParameter(f"{reason}, so {otherwise}; confirm with --yes", param_hint="--yes")
        if not self._ask(question):
            self.note(otherwise)
            raise typer.Exit(ExitCode.FAILURE)

    def _ask(self, question: str) -> bool:
        loop_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return typer.confirm(question, err=True)
        except typer.Abort as end:  # Ctrl-C, or the end of the input
            self.err.print()  # end the line of the question
            if isinstance(end.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            return False
        finally:
            signal.signal(signal.SIGINT, loop_handler)


def current_user() -> str:
    """Return the user's name for histories: BATON_USER, or the operating system's user."""
    if name := os.environ.get("BATON_USER"):
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return "unknown"


def resolve_user(who: str | None) -> str:
    """Return the name from --who, or the current user's."""
    name = who or current_user()
    if refusal := name_refusal(name):
        raise typer.BadParameter(refusal, param_hint="--who")
    return name


P = ParamSpec("P")

_NONDETERMINISM = "TMPRL1100"  # Temporal's code for a nondeterminism error


def command(function: Callable[Concatenate[Session, P], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn an async function, whose first parameter is the session, into a typer command."""
    expanded = expand_option_groups(function)

    def run(ctx: typer.Context, overrides: GlobalOptions, **arguments: Any) -> None:
        options = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
        _check_encoding(ctx, arguments)
        session = Session(options.merge(overrides))
        _run(session, expanded(session=session, **arguments))

    own = inspect.signature(run).parameters
    command_parameters = [item for item in inspect.signature(expanded).parameters.values() if item.name != "session"]
    parameters = [own["ctx"], *command_parameters, own["overrides"].replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    parameters.sort(key=lambda parameter: parameter.kind)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    copied = ("__module__", "__name__", "__qualname__", "__doc__")
    return update_wrapper(expand_option_groups(run), function, assigned=copied)


def _check_encoding(ctx: typer.Context, arguments: Mapping[str, Any]) -> None:
    """Refuse text that is not UTF-8, since it can be neither sent nor shown. Paths may have any bytes."""
    for parameter in ctx.command.params:
        value = arguments.get(parameter.name or "")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and has_lone_surrogate(text):
                message = "it is not UTF-8; check the encoding of your terminal"
                raise typer.BadParameter(message, param_hint=parameter.opts[0])


def _run(session: Session, coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(coroutine)
    except Exception as error:
        description = describe_error(error)
        if description is None:
            raise
        code, message = description
        session.say(f"baton: {message}", "red")
        raise typer.Exit(code) from None


def describe_error(error: Exception) -> tuple[ExitCode, str] | None:
    """Return the exit code and the message for an expected error, or None for a bug."""
    if isinstance(error, ServerError):
        return ExitCode.UNREACHABLE, str(error)
    if isinstance(error, UnreadableRunError):
        return ExitCode.UNREADABLE, str(error)
    if isinstance(error, BatonError):
        return ExitCode.FAILURE, str(error)
    if isinstance(error, WorkflowAlreadyStartedError):
        return (
            ExitCode.FAILURE,
            f"run {error.workflow_id!r} is open already; watch it, or choose another --id",
        )
    if isinstance(error, WorkflowQueryFailedError) and _NONDETERMINISM in str(error):
        remedy = "start a worker whose code fits, then try again (`baton replay` checks whether it does)"
        return ExitCode.FAILURE, f"the worker's code does not fit the run: {error}; {remedy}"
    if isinstance(error, WorkflowQueryFailedError | WorkflowQueryRejectedError):
        return ExitCode.FAILURE, f"the run cannot be queried: {error}"
    if isinstance(error, RPCError):
        return _describe_rpc_error(error)
    return None


def _describe_rpc_error(error: RPCError) -> tuple[ExitCode, str]:
    message = error.message.rstrip(".")
    if error.status is RPCStatusCode.NOT_FOUND:
        if message.startswith("Namespace"):
            return ExitCode.UNREACHABLE, f"{message}; name another with --namespace, or create it"
        if message.startswith("workflow not found"):
            return ExitCode.FAILURE, f"there is no such run: {message}; `baton list` lists the runs"
        return ExitCode.FAILURE, message
    if error.status in UNREACHABLE_STATUSES:
        return ExitCode.UNREACHABLE, f"the server cannot be used ({error.status.name.lower()}): {message}"
    return ExitCode.FAILURE, f"the server refused the call ({error.status.name.lower()}): {message}"


_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A workflow id, for its newest run; WORKFLOW_ID/RUN_ID for one of its runs.",
        show_default=False,
    ),
]
OptionalRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="A workflow id, for its newest run; WORKFLOW_ID/RUN_ID for one of its runs. Not with --all.",
        show_default=False,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every run that the other options select, after one question.")]
PipelineOption = Annotated[
    str | None, typer.Option("--pipeline", metavar="NAME", help="With --all: only runs of this pipeline.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="The maximum number of runs to read.")]
STAGE_HELP = "its number, its name, or NAME:2 for the second of that name"
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="STAGE", help=f"After this stage: {STAGE_HELP}."),
]
WhyOption = Annotated[str, typer.Option("--why", help="The reason, recorded in the history.", show_default=False)]
WhoOption = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Your name. [BATON_USER, or your user name]")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
PatchOption = Annotated[
    str | None,
    typer.Option(
        "--patch",
        metavar="JSON|@FILE",
        help='New values of the baton\'s fields, such as \'{"work_scope": ["src"]}\', or a file with them. A list '
        "replaces the old one; entries of decision_log are added.",
    ),
]


@dataclass(frozen=True)
class Target:
    """A run as named on the command line."""

    workflow_id: str
    run_id: str | None = None

    @classmethod
    def of(cls, text: str) -> "Target":
        """Parse ``WORKFLOW_ID`` or ``WORKFLOW_ID/RUN_ID``. A workflow id may contain slashes."""
        workflow_id, slash, run_id = text.rpartition("/")
        return cls(workflow_id, run_id) if slash and _RUN_ID.fullmatch(run_id) else cls(text)

    def __str__(self) -> str:
        """Return the target as written on the command line."""
        return f"{self.workflow_id}/{self.run_id}" if self.run_id else self.workflow_id


def parse_json_object(text: str, option: str) -> dict[str, Any]:
    """Parse an option's JSON object, or that of the file in ``@FILE``."""
    excerpt = text[:80]
    try:
        data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        value = loads_strict(data.decode(json.detect_encoding(data)))
    except OSError as error:
        raise typer.BadParameter(f"{excerpt!r} cannot be read: {error.strerror}", param_hint=option) from error
    except (ValueError, MalformedMessageError) as error:
        hint = "" if text.startswith(("@", "{")) else "; to name a file, write @FILE"
        raise typer.BadParameter(f"{excerpt!r} is not JSON: {error}{hint}", param_hint=option) from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise typer.BadParameter(f"{excerpt!r} holds a {kind}; expected a JSON object", param_hint=option)
    return value


def parse_selection(run: str | None, every: bool) -> Target | None:
    """Return the run that was named, or None for --all."""
    if every is (run is not None):
        raise typer.BadParameter("name one RUN, or give --all with options that select runs", param_hint="RUN")
    return None if run is None else Target.of(run)


def parse_usd(text: str, option: str) -> int:
    """Return an amount of US dollars in millionths."""
    try:
        return parse_amount(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
