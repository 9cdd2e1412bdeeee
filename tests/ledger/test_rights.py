"""Ledgers in read-only files and folders, and closed ledgers."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from baton.cli import storage_checks as guard_checks
from baton.client.faces import CheckMark as Mark
from baton.ledger.chain import Verdict
from baton.ledger.records import LedgerError, LedgerUnavailableError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import Connection, SqliteDatabase
from tests.ledger.material import KEY, KEYS, TASK, entry

AUDITOR = LedgerOptions(create=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that everybody can read, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        allow(path, 0o755)
        yield path
        allow(path, 0o700)


def allow(path: Path, mode: int) -> None:
    """Set the mode of a file or folder."""
    path.chmod(mode)


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@contextmanager
def somebody() -> Iterator[None]:
    """Become a user other than root, to whom modes apply."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


async def written(folder: Path) -> Path:
    """Return a world-readable ledger with one record in a read-only folder."""
    path = folder / "ledger.db"
    allow(folder, 0o755)
    async with Ledger(path, LedgerOptions(signer=KEY)) as ledger:
        await ledger.append(entry(0))
    allow(path, 0o444)
    allow(folder, 0o555)
    return path


async def test_a_ledger_in_a_read_only_folder_is_readable(folder: Path) -> None:
    """An auditor's copy can be on a read-only medium, or in another user's folder."""
    path = await written(folder)
    with somebody():
        async with Ledger(path, AUDITOR) as ledger:
            report = await ledger.verify(TASK, verifier=KEYS)
            whole = await ledger.verify_all(verifier=KEYS)

    assert (report.verdict, whole.verdict) == (Verdict.UNANCHORED, Verdict.UNANCHORED)
    assert [file.name for file in files(folder)] == ["ledger.db"]


async def test_a_write_during_an_immutable_read_is_an_error(folder: Path) -> None:
    """Without its log SQLite does not detect another writer, and could mix pages of two states."""
    path = await written(folder)

    def meanwhile(connection: Connection) -> int:
        os.utime(path, ns=(1, 1))
        return len(connection.rows("SELECT 1 FROM handoff_audit"))

    database = SqliteDatabase(path, create=False)
    allow(path, 0o644)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    with somebody():
        assert len(await database.read(lambda connection: connection.rows("SELECT 1 FROM handoff_audit"))) == 1
        with pytest.raises(LedgerUnavailableError, match="was written during reading"):
            await database.read(meanwhile)
    await database.close()


async def test_a_ledger_in_use_needs_its_log_files(folder: Path) -> None:
    """Records in the log are read too; without the log's index the error has the remedy."""
    path = folder / "ledger.db"
    async with Ledger(path) as worker:
        allow(path, 0o644)
        await worker.append(entry(0))
        for file in files(folder):
            allow(file, 0o644)
        allow(folder, 0o555)
        with somebody():
            async with Ledger(path, AUDITOR) as ledger:
                assert len((await ledger.trace(TASK)).records) == 1
        allow(folder, 0o755)
        for name in ("ledger.db", "ledger.db-wal"):
            (folder / f"copy-{name}").write_bytes((folder / name).read_bytes())
        allow(folder, 0o555)
        with somebody(), pytest.raises(LedgerUnavailableError, match=r"-wal and -shm .*`\.backup` of sqlite3"):
            async with Ledger(folder / "copy-ledger.db", AUDITOR):
                pass
        allow(folder, 0o755)


@pytest.mark.parametrize("folders", [0o555, 0o777])
async def test_a_worker_does_not_start_with_a_read_only_ledger(folder: Path, folders: int) -> None:
    """It would accept stages, and fail each of them without a record."""
    path = await written(folder)
    allow(folder, folders)
    with somebody(), pytest.raises(LedgerUnavailableError, match="needs the right to write the file and its folder"):
        async with Ledger(path):
            pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


@pytest.mark.parametrize(("files", "folders"), [(0o666, 0o555), (0o444, 0o777)])
async def test_doctor_reports_a_read_only_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: int, folders: int
) -> None:
    """A readable ledger can be read-only."""
    path = await written(folder)
    allow(path, files)
    allow(folder, folders)
    monkeypatch.setenv("BATON_LEDGER", str(path))
    with somebody():
        findings = await guard_checks.check_ledger()

    assert (findings.mark, "cannot be written by this user" in findings.found) == (Mark.FAIL, True)


async def test_a_wrong_name_is_reported_for_a_read_only_ledger(folder: Path) -> None:
    """The error names the ledger's name, not the missing right to write."""
    path = await written(folder)
    with somebody(), pytest.raises(LedgerError, match="is named 'baton', not 'other'"):
        async with Ledger(path, LedgerOptions(name="other", create=False)):
            pass


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda ledger: ledger.append(entry(9)), id="append"),
        pytest.param(lambda ledger: ledger.append_all([entry(8), entry(9)]), id="append several"),
        pytest.param(lambda ledger: ledger.trace(TASK), id="read"),
    ],
)
async def test_a_closed_ledger_is_an_error(tmp_path: Path, use: Callable[[Ledger], Any]) -> None:
    """The error names the ledger and the remedy."""
    async with Ledger(tmp_path / "ledger.db") as ledger:
        await ledger.append(entry(0))
        await ledger.append(entry(1))

    with pytest.raises(LedgerUnavailableError, match=r"ledger\.db' is closed"):
        await use(ledger)
