"""One call of the command: its options, its consoles, its client."""

import asyncio
import getpass
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig

from baton.artifacts.store import open_store
from baton.cli.exits import ExitCode
from baton.cli.options import GlobalOptions
from baton.cli.output import json_text, make_console, plain
from baton.client import Connection, connect
from baton.codec.encryption import encryption_wanted
from baton.errors import ServerError
from baton.handoff.pending import name_refusal
from baton.keys.store_keyring import Keyring
from baton.pipelines.activity_context import WorkerParts
from baton.plugin import BatonPlugin

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
