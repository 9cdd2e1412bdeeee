"""Verification of a whole ledger at scale: with several processes, and on from where the last one ended.

What was verified is a file that this account signs. Whoever edits it, or puts a checkpoint of the ledger in its place,
makes it useless: the next verification refuses it, and only the account's own key makes another.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from baton.artifacts.store import ArtifactStore, sync_folder
from baton.keys.claims import HeadSigner, SignatureCheck
from baton.ledger.chain import condense
from baton.ledger.proof import Verified
from baton.ledger.records import AuditRecord, LedgerError
from baton.ledger.store_reader import PAGE_SIZE, ColdTier, Reader
from baton.ledger.store_schema import open_database

_PAGES_AHEAD = 2  # for each process


class VerifiedFile:
    """How far a ledger was verified, in a file outside it.

    Args:
        path: The file.
        signer: The key of the account that verifies: the deployment's, or one of its own.
    """

    def __init__(self, path: Path, signer: HeadSigner) -> None:
        self.path = path
        self._signer = signer

    def read(self, ledger: str) -> Verified | None:
        """Return how far the ledger was verified; None before the first time.

        Raises:
            LedgerError: The file cannot be read, was changed, or is about another ledger.
        """
        try:
            verified = Verified.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._refused("it cannot be read") from error
        if (check := verified.check(self._signer)) is not SignatureCheck.GOOD:
            raise self._refused(f"its signature, by the key {verified.key_id!r}, does not count: {check.value}")
        if verified.ledger != ledger:
            raise self._refused(f"it is about the ledger {verified.ledger!r}, not {ledger!r}")
        return verified

    def keep(self, verified: Verified) -> None:
        """Sign how far the ledger was verified, and keep it durably in place of what was there."""
        temporary = self.path.with_name(f".new-{self.path.name}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(verified.signed(self._signer).model_dump_json(exclude_none=True).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise LedgerError(f"cannot write {str(self.path)!r}: {error.strerror or error}") from error

    def _refused(self, reason: str) -> LedgerError:
        return LedgerError(
            f"{str(self.path)!r} does not say how far the ledger was verified: {reason}; verify it from the start with "
            "`baton audit verify --all --state FILE`, which replaces it"
        )


async def checked_pages(
    where: str | Path, artifacts: ArtifactStore | None, reader: Reader, *, after: int, through: int, processes: int
) -> AsyncIterator[list[AuditRecord]]:
    """Yield the records between two positions in pages; with several processes they come condensed."""
    if processes <= 1:
        async for page in reader.pages(through, after):
            yield page
        return
    loop = asyncio.get_running_loop()
    with _pool(processes) as pool:
        pages: deque[asyncio.Future[list[AuditRecord]]] = deque()
        while after < through or pages:
            while after < through and len(pages) < processes * _PAGES_AHEAD:
                last = await reader.bound(after, through)
                pages.append(loop.run_in_executor(pool, _read_page, where, artifacts, after, last))
                after = last
            yield await pages.popleft()


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(processes, get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _read_page(where: str | Path, artifacts: ArtifactStore | None, after: int, through: int) -> list[AuditRecord]:
    """Read a page, and check each record on its own; runs in a process of its own."""

    async def read() -> list[AuditRecord]:
        database = open_database(where, create=False)
        try:
            return await Reader(database, ColdTier(artifacts)).page(after, through, PAGE_SIZE)
        finally:
            await database.close()

    return [condense(record) for record in asyncio.run(read())]
