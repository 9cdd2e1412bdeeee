"""One call of a command: its options, consoles and client, what people name, errors as one line and an exit code."""

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

from baton.artifacts.store import open_store
from baton.cli.options import ExitCode, GlobalOptions, with_groups
from baton.cli.output import json_text, make_console, plain
from baton.client import Connection, connect
from baton.codec.encryption import encryption_wanted
from baton.errors import BatonError, MalformedMessageError, ServerError
from baton.handoff.pending import name_refusal
from baton.keys.store_keyring import Keyring
from baton.pipelines.activity_context import WorkerParts
from baton.plugin import BatonPlugin
from baton.wire.json_values import has_lone_surrogate, loads_strict
from baton.wire.money import parse_amount

_CONNECT_SECONDS = 10.0
KEYS_FOLDER = Path(".baton")
"""Where this machine keeps its own keys."""


@dataclass(frozen=True)
class Session:
    """What a command is handed: where it reads its options, and where it writes."""

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
        identity = f"{current_user()}@{socket.gethostname()} (baton)"
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
            raise typer.Exit(ExitCode.FAILURE)

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


def current_user() -> str:
    """Return who this is, for the histories: BATON_USER, or the operating system's user."""
    named = os.environ.get("BATON_USER")
    if named:
        return named
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a user that has no name
        return "unknown"


def resolve_user(who: str | None) -> str:
    """Return under what name a person does something: the one that they gave, or that of `user`."""
    name = who or current_user()
    if unnamed := name_refusal(name):
        raise typer.BadParameter(unnamed, param_hint="--who")
    return name


P = ParamSpec("P")

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
    grouped = with_groups(function)

    def run(ctx: typer.Context, later: GlobalOptions, **given: Any) -> None:
        earlier = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
        _refuse_half_characters(ctx, given)
        session = Session(earlier.overridden(later))
        _run(session, grouped(session=session, **given))

    taken = inspect.signature(run).parameters
    own = [one for one in inspect.signature(grouped).parameters.values() if one.name != "session"]
    parameters = [taken["ctx"], *own, taken["later"].replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    parameters.sort(key=lambda one: one.kind)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return update_wrapper(with_groups(run), function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))


def _refuse_half_characters(ctx: typer.Context, given: Mapping[str, Any]) -> None:
    """Refuse a text that is not UTF-8: it could be sent nowhere, nor shown. Paths may be of any bytes."""
    for named in ctx.command.params:
        value = given.get(named.name or "")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and has_lone_surrogate(text):
                why = "it is not UTF-8; is your terminal set to another encoding?"
                raise typer.BadParameter(why, param_hint=named.opts[0])


def _run(session: Session, work: Coroutine[Any, Any, None]) -> None:
    """Run the command's coroutine."""
    try:
        asyncio.run(work)
    except Exception as error:
        verdict = describe_error(error)
        if verdict is None:
            raise
        code, message = verdict
        session.say(f"baton: {message}", "red")
        raise typer.Exit(code) from None


def describe_error(error: Exception) -> tuple[ExitCode, str] | None:
    """Return the exit code and the line for what a command raised."""
    if isinstance(error, ServerError):
        return ExitCode.UNREACHABLE, str(error)
    if isinstance(error, BatonError):
        return ExitCode.FAILURE, str(error)
    if isinstance(error, WorkflowAlreadyStartedError):
        return (
            ExitCode.FAILURE,
            f"run {error.workflow_id!r} is open already; watch it, or choose another --id",
        )
    if isinstance(error, WorkflowQueryFailedError) and _NONDETERMINISM in str(error):
        remedy = "start a worker whose code fits, then try again (`baton replay` tells whether code does)"
        return ExitCode.FAILURE, f"the worker's code does not fit the run: {error}; {remedy}"
    if isinstance(error, WorkflowQueryFailedError | WorkflowQueryRejectedError):
        return ExitCode.FAILURE, f"the run cannot be asked: {error}"
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
            return ExitCode.FAILURE, f"there is no such run: {message}; `baton list` shows those there are"
        return ExitCode.FAILURE, message
    if error.status in _OUT_OF_REACH:
        return ExitCode.UNREACHABLE, f"the server cannot be used ({error.status.name.lower()}): {message}"
    return ExitCode.FAILURE, f"the server refused ({error.status.name.lower()}): {message}"


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
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many runs are read at most.")]
STAGE_HELP = "its number, its name, or NAME:2 for the second of that name"
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="STAGE", help=f"After this stage: {STAGE_HELP}."),
]
WhyOption = Annotated[str, typer.Option("--why", help="The reason, for the history.", show_default=False)]
WhoOption = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Who you are. [BATON_USER, or your user name]")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
PatchOption = Annotated[
    str | None, typer.Option("--patch", metavar="JSON|@FILE", help="A patch of the baton, or a file with it.")
]


@dataclass(frozen=True)
class Target:
    """A run that a person named."""

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


def parse_json_object(given: str, option: str) -> dict[str, Any]:
    """Return the JSON object that an option gives: written out, or in a file that is named after an @."""
    named = given[:80]
    try:
        data = Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()
        value = loads_strict(data.decode(json.detect_encoding(data)))
    except OSError as error:
        raise typer.BadParameter(f"{named!r} cannot be read: {error.strerror}", param_hint=option) from error
    except (ValueError, MalformedMessageError) as error:
        hint = "" if given.startswith(("@", "{")) else "; to name a file, write @FILE"
        raise typer.BadParameter(f"{named!r} is not JSON: {error}{hint}", param_hint=option) from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise typer.BadParameter(f"{named!r} holds a {kind}; it must hold a JSON object", param_hint=option)
    return value


def parse_selection(run: str | None, every: bool) -> "Target | None":
    """Return the run that is named, or None for all that are selected."""
    if every is (run is not None):
        raise typer.BadParameter("name one RUN, or give --all and what selects the runs", param_hint="RUN")
    return None if run is None else Target.of(run)


def parse_usd(given: str, option: str) -> int:
    """Return an amount of US dollars in millionths."""
    try:
        return parse_amount(given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
