"""Where `baton audit` looks: the ledger, the keys that prove it, and what was kept outside of it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from baton.cli.session import KEYS_FOLDER, Session, Target
from baton.client import read_run
from baton.errors import BatonError, HistoryError, ServerError
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys
from baton.ledger.chain import ChainHead, HeadSigner
from baton.ledger.proof import Checkpoint
from baton.ledger.records import LedgerError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile
from baton.ledger.store_schema import is_url
from baton.runs.client_executions import describe
from baton.runs.client_list import ListedRun, RunFilter, label_of, list_runs
from baton.wire.names import ATTRIBUTE_TASK
from baton.wire.text import quantity

DEFAULT_LEDGER = ".baton/ledger.db"
"""Where worker.py keeps the ledger, too, unless told otherwise."""
DEFAULT_NAME = LedgerOptions().name
DEFAULT_WITNESS = ".baton/witness.jsonl"
"""Where `baton dev` has its worker keep checkpoints."""

_PANEL = "Ledger"
_MOST_RUNS = 100_000
_AT_ONCE = 8  # histories that are read at a time

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
class Anchors:
    """What was kept outside the ledger: it shows what is missing at its end."""

    heads: tuple[ChainHead, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()

    @classmethod
    def of(cls, file: Path | None) -> "Anchors":
        """Return what an anchor file holds; nothing without one."""
        if file is None:
            return cls()
        kept = AnchorFile(file)
        return cls(tuple(kept.heads()), tuple(kept.checkpoints()))

    def with_heads(self, heads: Iterable[ChainHead]) -> "Anchors":
        """Return these and more heads."""
        return replace(self, heads=(*self.heads, *heads))

    def knows(self, task_id: str) -> bool:
        """Return whether a head of this task was kept: the ledger must have it then."""
        return any(head.task_id == task_id for head in self.heads)


@dataclass(frozen=True)
class Keys:
    """The keys at hand."""

    public: PublicKeys | None = None
    signer: HeadSigner | None = None

    @classmethod
    def of(cls, file: Path | None, environment: Mapping[str, str] = os.environ) -> "Keys":
        """Return the public keys of a file, or else those of this machine's keyring; none is made for it."""
        if file is not None:
            try:
                return cls(PublicKeys.from_json(file.read_bytes()))
            except BatonError as error:
                raise LedgerError(f"{str(file)!r}: {error}") from error
        if not Keyring.is_at_hand(environment, KEYS_FOLDER):
            return cls()
        ring = Keyring.find_out(environment, KEYS_FOLDER)
        public = ring.public()
        return cls(public, ring.signer()) if len(public) else cls()

    @property
    def as_jwks(self) -> list[dict[str, Any]]:
        """The public keys as a bundle carries them."""
        return list(json.loads(self.public.to_json())["keys"]) if self.public else []


@asynccontextmanager
async def opened(
    session: Session, ledger: str | None, name: str | None, *, signer: HeadSigner | None = None, create: bool = False
) -> AsyncIterator[Ledger]:
    """Open the ledger that the options and the environment name."""
    options = LedgerOptions(name=ledger_name(name), signer=signer, artifacts=session.parts.artifacts, create=create)
    try:
        found = Ledger(ledger_place(ledger), options)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ledger") from error
    async with found as open_now:
        yield open_now


def bundle_of(named: str) -> Path | None:
    """Return the file that is meant, or None where a name is a task's or a run's."""
    path = Path(named)
    if path.is_file():
        return path
    if path.suffix == ".zst":
        raise LedgerError(f"there is no bundle {named!r}; `baton audit export` writes one")
    return None


def ledger_place(ledger: str | None) -> Path | str:
    """Return where the ledger is, a file or a URL: the option, the environment variable, or the default."""
    where = ledger or os.environ.get("BATON_LEDGER") or DEFAULT_LEDGER
    return where if is_url(where) else Path(where)


def ledger_name(name: str | None) -> str:
    """Return the name of the ledger: the option, the environment variable, or the default."""
    return name or os.environ.get("BATON_LEDGER_NAME") or DEFAULT_NAME


async def task_of(session: Session, ledger: Ledger, named: str) -> str:
    """Return the task that is meant by a task id or by the workflow id of a run."""
    if await ledger.head(named) is not None:
        return named
    unknown = f"the ledger at {ledger.where!r} has no records of task {named!r}"
    try:
        task_id = await _task_of_run(await session.client(), Target.of(named))
    except (BatonError, RPCError) as error:
        why = "no server answers that could know a run of this name" if isinstance(error, ServerError) else str(error)
        raise LedgerError(f"{unknown}; {why}") from error
    if task_id is None or await ledger.head(task_id) is None:
        raise LedgerError(f"{unknown}, and none of the run {named!r}; check the id, and --ledger")
    return task_id


def witness_of(anchors: Path | None) -> Path | None:
    """Return the anchor file: the option, the environment variable, or the default if that file exists."""
    if anchors is not None:
        return anchors
    named = os.environ.get("BATON_WITNESS")
    file = Path(named or DEFAULT_WITNESS)
    return file if named or file.exists() else None


async def heads_of_runs(session: Session, ledger: str, task_id: str | None = None) -> list[ChainHead]:
    """Return the heads in the histories of all runs that the server still has, or of those of one task."""
    try:
        client = await session.client()
        runs = await list_runs(client, RunFilter(task=task_id, children=True), _MOST_RUNS)
        with session.progress(f"reading the histories of {quantity(len(runs), 'run')}"):
            many = asyncio.Semaphore(_AT_ONCE)
            found = await asyncio.gather(*(_heads_of(client, run, ledger, many) for run in runs))
    except (BatonError, RPCError) as error:
        why = "no server answers" if isinstance(error, ServerError) else str(error)
        session.note(f"{why}, so nothing was compared with the heads in the histories of runs")
        return []
    if len(runs) == _MOST_RUNS:
        session.note(f"only the heads in the histories of the newest {_MOST_RUNS:,} runs were compared")
    if unread := found.count(None):
        session.note(f"{quantity(unread, 'run')} could not be read, and the heads in their histories were not compared")
    return [head for heads in found for head in heads or ()]


async def _heads_of(client: Client, run: ListedRun, ledger: str, many: asyncio.Semaphore) -> list[ChainHead] | None:
    async with many:
        try:
            record = await read_run(client, run.workflow_id, run.run_id)
            task_id = record.task_id or run.task_id
            return heads_of(ledger, task_id, record.anchors) if task_id is not None else []
        except HistoryError:  # not a pipeline, or deleted meanwhile
            return []
        except BatonError:  # encrypted with keys that are not here, or with anchors that are none
            return None


async def heads_of_run(session: Session, run: str, ledger: str) -> tuple[str, list[ChainHead]]:
    """Return the task of a run, and the heads that the gates of its stages left in its history."""
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
        task_id = record.task_id or await _labelled(client, target)
    if task_id is None:
        raise LedgerError(f"the run {run!r} does not tell its task; verify the task with --anchors instead")
    return task_id, heads_of(ledger, task_id, record.anchors)


def heads_of(ledger: str, task_id: str, anchors: Iterable[str]) -> list[ChainHead]:
    """Return the heads that the anchors of one task stand for."""
    try:
        return [ChainHead.from_anchor(ledger, task_id, anchor) for anchor in anchors]
    except ValueError as error:
        raise LedgerError(
            f"what was kept of task {task_id!r} is not an anchor of a chain: N:sha256:… is expected"
        ) from error


async def _task_of_run(client: Client, target: Target) -> str | None:
    """Return the task of a run: by its label, or, where a client without Baton gave it none, by its history."""
    task_id = await _labelled(client, target)
    if task_id is not None:
        return task_id
    try:
        return (await read_run(client, target.workflow_id, target.run_id)).task_id
    except HistoryError:  # no pipeline
        return None


async def _labelled(client: Client, target: Target) -> str | None:
    """Return the task that a run is labelled with, if the server indexes that."""
    return label_of(await describe(client, target.workflow_id, target.run_id), ATTRIBUTE_TASK)
