"""The inputs of `baton audit`: the ledger, the keys, and the anchors outside the ledger."""

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.service import RPCError

from baton import Safeguards
from baton.cli.options import OptionGroup
from baton.cli.session import KEYS_FOLDER, Session, Target
from baton.client import ChainHead, Checkpoint, Connection, Ledger, LedgerError, LedgerOptions, read_run
from baton.client.faces import (
    NAMESPACE_MARK,
    AnchorFile,
    VerifiedFile,
    find_task_id,
    in_namespace,
    is_ledger_url,
    parse_anchors,
)
from baton.client.faces import read_heads as read_recorded_heads
from baton.errors import BatonError, ServerError, UnreadableRunError
from baton.keys.claims import HeadSigner
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys
from baton.wire.text import quantity

DEFAULT_LEDGER = ".baton/ledger.db"
"""The default ledger, of worker.py too."""
DEFAULT_NAME = LedgerOptions().name
DEFAULT_WITNESS = ".baton/witness.jsonl"
"""The witness file of the worker of `baton dev`."""
DEFAULT_STATE = ".baton/verified.json"
"""How far `baton audit verify --new` verified the ledger."""

_PANEL = "Ledger"
_MAX_NAMED_RUNS = 5

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="PATH|URL",
        help=f"The ledger: a file or postgresql://… [BATON_LEDGER, {DEFAULT_LEDGER}]",
        rich_help_panel=_PANEL,
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--ledger-name",
        metavar="NAME",
        help=f"Its name, which every record carries. [BATON_LEDGER_NAME, {DEFAULT_NAME}]",
        rich_help_panel=_PANEL,
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="The public keys, a JWK Set; by default those of this machine's keyring, if it has one.",
        rich_help_panel=_PANEL,
    ),
]
AnchorsOption = Annotated[
    Path | None,
    typer.Option(
        "--anchors",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Heads and checkpoints that were kept outside the ledger; a worker's witness file by default. "
        f"[BATON_WITNESS, {DEFAULT_WITNESS}]",
        rich_help_panel=_PANEL,
    ),
]


RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="WORKFLOW_ID",
        help="Cross-check with the heads that this run's history holds.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class WholeOptions(OptionGroup):
    """The options of a whole ledger's verification."""

    everything: Annotated[bool, typer.Option("--all", help="The whole ledger, every chain of it.")] = False
    new: Annotated[
        bool, typer.Option("--new", help="What was added since the last verification, which --state remembers.")
    ] = False
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            dir_okay=False,
            help=f"How far the ledger was verified, signed by this account's keyring. With --new: {DEFAULT_STATE}.",
        ),
    ] = None
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="How many processes read and check a whole ledger.")
    ] = 1

    def verified_file(self) -> VerifiedFile | None:
        """Return the file that says how far the ledger was verified, with the key of this account."""
        if self.state is None and not self.new:
            return None
        signer = Keys.of(None).signer
        if signer is None:
            raise LedgerError(
                "how far a ledger was verified is signed, and this account has no keyring: make it one of its own with "
                "`baton keys new` and name it with BATON_KEYS (with --keys for the ledger's public keys), or use --all"
            )
        return VerifiedFile(self.state or Path(DEFAULT_STATE), signer)


@dataclass(frozen=True)
class Anchors:
    """Heads and checkpoints from outside the ledger, which show what is missing at its end."""

    heads: tuple[ChainHead, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    malformed: tuple[str, ...] = ()  # workflow ids of runs whose histories could not be read for heads

    @classmethod
    def of(cls, file: Path | None) -> "Anchors":
        """Read an anchor file; without a file there are none."""
        if file is None:
            return cls()
        anchors = AnchorFile(file)
        return cls(tuple(anchors.heads()), tuple(anchors.checkpoints()))

    def with_heads(self, heads: Iterable[ChainHead]) -> "Anchors":
        """Return the anchors with more heads."""
        return replace(self, heads=(*self.heads, *heads))

    def with_runs(self, runs: "Anchors") -> "Anchors":
        """Return the anchors with those in the histories of runs."""
        return replace(self, heads=(*self.heads, *runs.heads), malformed=(*self.malformed, *runs.malformed))

    def has_task(self, task_id: str) -> bool:
        """Return whether there is a head of this task, which the ledger must have then."""
        return any(head.task_id == task_id for head in self.heads)


@dataclass(frozen=True)
class Keys:
    """The public keys, and the signer, if any."""

    public: PublicKeys | None = None
    signer: HeadSigner | None = None

    @classmethod
    def of(cls, file: Path | None, environment: Mapping[str, str] = os.environ) -> "Keys":
        """Return the public keys of a file, or of this machine's keyring, if it exists."""
        if file is not None:
            try:
                return cls(PublicKeys.from_json(file.read_bytes()))
            except BatonError as error:
                raise LedgerError(f"{str(file)!r}: {error}") from error
        if not Keyring.is_configured(environment, KEYS_FOLDER):
            return cls()
        keyring = Keyring.from_environment(environment, KEYS_FOLDER)
        public = keyring.public()
        return cls(public, keyring.signer()) if len(public) else cls()

    @property
    def as_jwks(self) -> list[dict[str, Any]]:
        """The public keys for a bundle."""
        return list(json.loads(self.public.to_json())["keys"]) if self.public else []


@asynccontextmanager
async def open_ledger(
    session: Session, ledger: str | None, name: str | None, *, signer: HeadSigner | None = None, create: bool = False
) -> AsyncIterator[Ledger]:
    """Open the ledger that the options and the environment name."""
    options = LedgerOptions(
        name=ledger_name(name, session.connection), signer=signer, artifacts=session.artifacts, create=create
    )
    try:
        opening = Ledger(ledger_place(ledger, session.connection), options)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ledger") from error
    async with opening as opened:
        yield opened


def make_safeguards(session: Session, ledger: str | None, name: str | None) -> Safeguards:
    """Return the safeguards of a command that signs and records as the workers do."""
    if session.keyring is None:
        raise BatonError("there are no keys here to sign with; name the workers' keys with BATON_KEYS")
    return Safeguards(
        session.keyring,
        ledger_place(ledger, session.connection),
        name=ledger_name(name, session.connection),
        artifacts=session.artifacts,
    )


def find_bundle(name: str) -> Path | None:
    """Return the bundle, or None if this is the name of a task or run."""
    path = Path(name)
    if path.is_file():
        return path
    if path.suffix == ".zst":
        raise LedgerError(f"there is no bundle {name!r}; `baton audit export` writes one")
    return None


def _in_namespace(setting: str, connection: Connection | None) -> str:
    """Return a setting with the name of the connection's namespace, if it asks for it."""
    if NAMESPACE_MARK not in setting:
        return setting
    try:
        return in_namespace(setting, (connection or Connection()).settings()["namespace"])
    except ValueError as error:
        raise LedgerError(str(error)) from error


def ledger_place(ledger: str | None, connection: Connection | None = None) -> Path | str:
    """Return the ledger's path or URL: the option, the environment variable, or the default."""
    where = _in_namespace(ledger or os.environ.get("BATON_LEDGER") or DEFAULT_LEDGER, connection)
    return where if is_ledger_url(where) else Path(where)


def ledger_name(name: str | None, connection: Connection | None = None) -> str:
    """Return the name of the ledger: the option, the environment variable, or the default."""
    return _in_namespace(name or os.environ.get("BATON_LEDGER_NAME") or DEFAULT_NAME, connection)


async def find_task(session: Session, ledger: Ledger, name: str) -> str:
    """Return the task with this id, or of the run with this workflow id."""
    if await ledger.head(name) is not None:
        return name
    problem = f"the ledger at {ledger.where!r} has no records of task {name!r}"
    try:
        task_id = await find_task_id(await session.client(), Target.of(name).workflow_id, Target.of(name).run_id)
    except (BatonError, RPCError) as error:
        reason = "no server answers, so it cannot be looked up as a run" if isinstance(error, ServerError) else error
        raise LedgerError(f"{problem}; {reason}") from error
    if task_id is None or await ledger.head(task_id) is None:
        raise LedgerError(f"{problem} and none of a run {name!r}; check the id, and --ledger")
    return task_id


def find_witness(anchors: Path | None, connection: Connection | None = None) -> Path | None:
    """Return the anchor file: the option, the environment variable, or the default if that file exists."""
    if anchors is not None:
        return anchors
    configured = os.environ.get("BATON_WITNESS")
    file = Path(_in_namespace(configured or DEFAULT_WITNESS, connection))
    return file if configured or file.exists() else None


async def read_heads(session: Session, ledger: str, task_id: str | None = None) -> Anchors:
    """Return the heads in the histories of all runs, or of one task's runs; note what was not compared."""
    try:
        client = await session.client()
        with session.progress("reading the histories of runs"):
            found = await read_recorded_heads(client, ledger, task_id)
    except (BatonError, RPCError) as error:
        reason = "no server answers" if isinstance(error, ServerError) else str(error)
        session.note(f"{reason}, so the heads in the histories of runs were not compared")
        return Anchors()
    if found.is_partial:
        session.note(f"only the heads in the histories of the newest {found.runs:,} runs were compared")
    for workflow_id, why in found.unread[:_MAX_NAMED_RUNS]:
        session.note(f"the heads in the history of run {workflow_id!r} were not compared: {why}")
    if found.unread[_MAX_NAMED_RUNS:]:
        session.note(f"and those of {quantity(len(found.unread) - _MAX_NAMED_RUNS, 'run')} more")
    malformed = tuple(workflow_id for workflow_id, why in found.unread if isinstance(why, UnreadableRunError))
    return Anchors(found.heads, malformed=malformed)


async def read_run_heads(session: Session, run: str, ledger: str) -> tuple[str, list[ChainHead]]:
    """Return the task of a run, and the heads in its history."""
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
        task_id = record.task_id or await find_task_id(client, target.workflow_id, target.run_id)
    if task_id is None:
        raise LedgerError(f"the run {run!r} has no task id; verify the task with --anchors instead")
    return task_id, parse_anchors(ledger, task_id, record.anchors)
