"""Checks of `baton doctor` on what a deployment keeps: the artifact store, keys and the ledger."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from temporalio.client import Client

from baton import MemoryArtifactStore
from baton.cli.ledger_sources import Keys, find_witness, ledger_name, ledger_place
from baton.cli.session import KEYS_FOLDER
from baton.client import ChainHead, Connection, Ledger, LedgerError, LedgerOptions, RunFilter, list_runs, read_run
from baton.client.faces import (
    AnchorFile,
    ArtifactStore,
    LedgerContinuityError,
    LedgerKeysError,
    LocalArtifactStore,
)
from baton.client.faces import CheckMark as Mark
from baton.client.faces import CheckResult as Finding
from baton.errors import ArtifactError, BatonError, HistoryError
from baton.keys.claims import HeadSigner
from baton.keys.store_keyring import Keyring, KeyringError, Purpose, is_production
from baton.wire.text import quantity
from baton.worker import Settings

_PROBE_BYTES = 1_000_000
_PROBE = b"baton doctor\n"
_MIN_FREE_BYTES = 100_000_000
_MAX_READ_RUNS = 5
FILE_RECORDS_PER_S, _RATED_RECORDS = 500.0, 10_000
"""How many records a second a ledger in a file should take at most, over so many (docs/capacity.md)."""
FILE_BYTES = 25_000_000_000
"""Where a ledger in a file ends: one process verifies it for about an hour."""


async def check_store(location: str, open_store: Callable[[str], ArtifactStore]) -> Finding:
    """Check that the artifact store takes and returns bytes. A probe of a few bytes stays in it."""
    try:
        store = open_store(location)
        if isinstance(store, LocalArtifactStore) and (problem := write_problem(store.root)):
            remedy = "free some space; stages that write artifacts wait, and fail after an hour"
            return Finding("artifact store", Mark.FAIL, problem, remedy)
        digest = await store.put(_PROBE)
        intact = await store.get(digest) == _PROBE
    except (ArtifactError, ValueError, OSError) as error:
        return Finding("artifact store", Mark.FAIL, str(error), "--artifacts or BATON_ARTIFACTS names another store")
    if not intact:
        return Finding("artifact store", Mark.FAIL, f"{location} returned other bytes", "do not use this store")
    if isinstance(store, MemoryArtifactStore):
        return Finding("artifact store", Mark.WARN, "in memory", "it ends with its process; name a folder or a bucket")
    return Finding("artifact store", Mark.OK, f"{location} can be written and read")


def write_problem(folder: Path) -> str | None:
    """Write a megabyte into a folder, or its closest existing parent, and return why that failed, or None."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing, prefix=".baton-doctor-") as file:
            file.write(os.urandom(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"nothing can be written in {existing}: {error.strerror}"
    return None


def check_keys(environment: Mapping[str, str]) -> Finding:
    """Check that a worker started here has a current key for each purpose."""
    try:
        if not (is_production(environment) or Keyring.is_configured(environment, KEYS_FOLDER)):
            return Finding("keys", Mark.OK, f"none yet; a worker with safeguards creates them in {KEYS_FOLDER}")
        keyring = Keyring.from_environment(environment, KEYS_FOLDER)
        for purpose in Purpose:
            keyring.current(purpose)
    except KeyringError as error:
        return Finding("keys", Mark.FAIL, str(error))
    if keyring.is_development:
        return Finding("keys", Mark.OK, "those of a developer's machine; BATON_ENV=production refuses them")
    return Finding("keys", Mark.OK, "a current key for each purpose")


MIN_LOG_DAYS = 183
"""Six months: how long logs of high-risk AI systems are kept at least (Regulation (EU) 2024/1689, Articles 19, 26)."""


def check_retention(settings: Settings) -> Finding:
    """Check that what the deployment keeps itself lasts as long as `BATON_LOG_DAYS` says."""
    check, days = "log retention", settings.log_days
    if not days:
        return Finding(check, Mark.OK, "no term is set; the ledger is kept for good")
    if not settings.seals:
        remedy = "remove BATON_SAFEGUARDS=off"
        return Finding(check, Mark.WARN, f"BATON_LOG_DAYS is {days}, and without safeguards nothing is logged", remedy)
    if settings.transcripts is None:
        found = f"BATON_LOG_DAYS is {days}, and BATON_TRANSCRIPT_DAYS=0 keeps no transcripts"
        return Finding(check, Mark.WARN, found, "unset BATON_TRANSCRIPT_DAYS; docs/eu-ai-act.md")
    if days < MIN_LOG_DAYS:
        found = f"BATON_LOG_DAYS is {days}; the EU AI Act asks for six months"
        return Finding(check, Mark.WARN, found, f"BATON_LOG_DAYS={MIN_LOG_DAYS}; docs/eu-ai-act.md")
    return Finding(check, Mark.OK, f"transcripts for {settings.transcripts.days} days; the ledger for good")


async def check_ledger(connection: Connection | None = None) -> Finding:
    """Check that the environment's ledger is writable and of this release."""
    place = ledger_place(None, connection)
    witness = find_witness(None, connection) if isinstance(place, Path) else None
    if isinstance(place, Path) and (finding := _check_ledger_file(place, witness)):
        return finding
    try:
        options = LedgerOptions(name=ledger_name(None, connection), signer=_signer(), create=False)
        async with Ledger(place, options) as ledger:
            if isinstance(place, str):
                await ledger.check_writable()
            await ledger.compare(AnchorFile(witness) if witness else None)
            if isinstance(place, Path) and (outgrown := check_growth(place, await ledger.rate(_RATED_RECORDS))):
                return outgrown
            return Finding("ledger", Mark.OK, f"{ledger.where} can be opened")
    except LedgerContinuityError as error:
        return Finding("ledger", Mark.FAIL, str(error), "see `baton audit verify --all`; no worker starts beside it")
    except LedgerKeysError as error:
        return Finding("ledger", Mark.FAIL, str(error), "set BATON_KEYS to the keyring that the other workers have")
    except (LedgerError, ValueError) as error:
        return Finding("ledger", Mark.FAIL, str(error), "runs wait until it can be written; BATON_LEDGER names it")


async def check_ledger_records(client: Client, connection: Connection | None = None) -> Finding:
    """Check that the ledger still has the records that the newest recorded run has receipts for."""
    check, place = "ledger records", ledger_place(None, connection)
    async for summary in list_runs(client, RunFilter(children=True), limit=_MAX_READ_RUNS):
        workflow_id = summary.workflow_id
        try:
            run = await read_run(client, workflow_id, summary.run_id)
        except HistoryError:
            continue
        if not run.anchors or run.task_id is None:
            continue
        last = ChainHead.from_anchor(ledger_name(None, connection), run.task_id, run.anchors[-1])
        remedy = "restore the ledger from its backup, or name the workers' one with BATON_LEDGER"
        if isinstance(place, Path) and not place.exists():
            mark = Mark.FAIL if os.environ.get("BATON_LEDGER") else Mark.WARN
            found = f"{place} does not exist, but {workflow_id!r} is on record: it was deleted, or is elsewhere"
            return Finding(check, mark, found, remedy)
        try:
            async with Ledger(place, LedgerOptions(name=ledger_name(None, connection), create=False)) as ledger:
                head = await ledger.head(run.task_id)
        except (LedgerError, ValueError):
            return Finding(check, Mark.WARN, "not checked: the ledger cannot be opened")
        number = head.sequence if head else 0
        if number < last.sequence:
            found = f"of {workflow_id!r} it has {number} of at least {quantity(last.sequence, 'record')}"
            return Finding(check, Mark.FAIL, found, remedy)
        return Finding(check, Mark.OK, f"those of {workflow_id!r} are present")
    return Finding(check, Mark.OK, "no run here is on record")


def check_growth(file: Path, rate: float | None) -> Finding | None:
    """Return a finding if a ledger has outgrown its file, by its size or by the rate of its newest records."""
    remedy = "record the runs of new workers in Postgres, and keep this ledger to read: docs/capacity.md"
    size = file.stat().st_size
    if size > FILE_BYTES:
        found = f"{file} has {size / 1e9:,.0f} GB; a file ends at {FILE_BYTES / 1e9:,.0f} GB"
        return Finding("ledger", Mark.WARN, found, remedy)
    if rate is not None and rate > FILE_RECORDS_PER_S:
        found = f"the newest {_RATED_RECORDS:,} records of {file} came at {rate:,.0f} a second; a file ends at "
        return Finding("ledger", Mark.WARN, f"{found}{FILE_RECORDS_PER_S:,.0f}", remedy)
    return None


def _signer() -> HeadSigner | None:
    """Return the signer of a worker started here. `check_keys` reports unusable keys."""
    with contextlib.suppress(BatonError):
        return Keys.of(None).signer
    return None


def _check_ledger_file(file: Path, witness: Path | None) -> Finding | None:
    """Return a finding if the ledger's file is missing, read-only or short of space."""
    if not file.exists():
        if witness is not None and any(checkpoint.size for checkpoint in AnchorFile(witness).checkpoints()):
            remedy = (
                f"restore it with all of its files, or name it with BATON_LEDGER; else put {witness} away as evidence"
            )
            found = f"{file} does not exist, but its witness {witness} has a checkpoint: it was deleted"
            return Finding("ledger", Mark.FAIL, found, remedy)
        return Finding("ledger", Mark.OK, f"none yet; a worker with safeguards creates {file}")
    if read_only := next((path for path in (file, file.parent) if not os.access(path, os.W_OK)), None):
        remedy = "make it writable for the workers' user: workers write the ledger's file and files beside it"
        return Finding("ledger", Mark.FAIL, f"{read_only} cannot be written by this user", remedy)
    remedy = "free some space, or move old records with `baton audit archive`; runs wait until the ledger is writable"
    if problem := write_problem(file.parent):
        return Finding("ledger", Mark.FAIL, problem, remedy)
    free = shutil.disk_usage(file.parent).free
    if free >= _MIN_FREE_BYTES:
        return None
    return Finding("ledger", Mark.WARN, f"{file} has {free // 1_000_000} MB left to grow", remedy)
