"""Exporting records to an evidence bundle: of some tasks, or the whole ledger."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from baton.ledger.chain import ChainHead, ChainReport, HeadSigner, HeadVerifier, Verdict
from baton.ledger.errors import LedgerError
from baton.ledger.evidence import BUNDLE, Manifest, index_digest, index_line, pack, record_lines
from baton.ledger.proof import LedgerReport, LedgerWalk, verify_chain
from baton.ledger.records import AuditRecord
from baton.ledger.store_bundles import BundleWriter
from baton.ledger.store_checkpoints import Checkpoints
from baton.ledger.store_reader import Reader


@dataclass(frozen=True)
class Exporter:
    """Writes bundles of one ledger.

    Attributes:
        reader: Reads its records.
        checkpoints: Its checkpoints.
        name: Its name.
        signer: Who vouches for a bundle as a whole, or None.
        clock: Gives the time.
    """

    reader: Reader
    checkpoints: Checkpoints
    name: str
    signer: HeadSigner | None
    clock: Callable[[], datetime]

    async def tasks(
        self, path: Path, task_ids: Sequence[str], keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the whole chains of some tasks, with the proofs that they stand in the newest checkpoint."""
        records: list[AuditRecord] = []
        heads = []
        for task_id in dict.fromkeys(task_ids):
            chain = await self.reader.task(task_id)
            if not chain:
                raise LedgerError(f"the ledger {self.name!r} has no records of task {task_id!r}; check the id")
            _refuse_invalid(verify_chain(chain, ledger=self.name, task_id=task_id, verifier=verifier))
            heads.append(ChainHead.of(chain[-1]))
            records += chain
        records.sort(key=lambda record: record.position)
        newest = (await self.checkpoints.all())[-1:]
        proofs = await self.checkpoints.inclusions(records, newest[0]) if newest else []
        manifest = self._manifest(
            [index_line(one.hash, one.position, one.signature) for one in records],
            heads=heads,
            keys=keys,
            checkpoints=newest,
            proofs=proofs,
        )
        await asyncio.to_thread(_write, path, manifest, self.signer, records)
        return manifest

    async def everything(
        self, path: Path, keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the whole ledger, with its newest checkpoint."""
        end = await self.reader.end()
        claimed, damaged = await self.checkpoints.all_there_are()
        walk = LedgerWalk(self.name, verifier=verifier, claimed=claimed, reasons=damaged)
        manifest = self._manifest(
            await self.reader.index_lines(end), keys=keys, checkpoints=(await self.checkpoints.all())[-1:]
        )
        with BundleWriter(path) as bundle:
            bundle.write(pack(manifest, [], self.signer))
            async for page in self.reader.pages(end):
                await asyncio.to_thread(bundle.write, [record_lines(record) for record in page])
                await asyncio.to_thread(walk.feed_all, page)
            _refuse_invalid(walk.finish())
        return manifest

    def _manifest(self, lines: Sequence[bytes], *, keys: Sequence[Mapping[str, Any]], **about: Any) -> Manifest:
        return Manifest(
            format=BUNDLE,
            ledger=self.name,
            created_at=self.clock(),
            records=len(lines),
            index=index_digest(lines),
            keys=tuple(dict(key) for key in keys),
            **about,
        )


def _refuse_invalid(report: ChainReport | LedgerReport) -> None:
    """Make sure that no bundle vouches for records that verification calls invalid."""
    if report.verdict is not Verdict.INVALID:
        return
    flawed = [report] if isinstance(report, ChainReport) else report.flawed
    found = [] if isinstance(report, ChainReport) else [*report.reasons]
    found += [f"record {one.sequence} of task {one.task_id!r}: {one.reason}" for one in flawed]
    raise LedgerError(f"what is invalid is not exported as evidence: {'; '.join(found[:5])}")


def _write(path: Path, manifest: Manifest, signer: HeadSigner | None, records: Sequence[AuditRecord]) -> None:
    with BundleWriter(path) as bundle:
        bundle.write(pack(manifest, records, signer))
