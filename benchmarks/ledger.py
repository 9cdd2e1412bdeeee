"""How fast the ledger is: a task among a million records, appending, and verifying as a third party does."""

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from baton.keys.store_keys import PublicKey, PublicKeys
from baton.ledger.chain import Verdict
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import verify_bundle
from benchmarks.compare import Effort
from benchmarks.ledger_samples import BEGAN, RECORDS_PER_TASK, Signer, canonical_messages, entry, fill
from benchmarks.report import Findings
from benchmarks.rig import Rig

RECORDS = 1_000_000
"""The ledger that a task is looked up in: about 2.6 GB."""
_TRACES = 2_000
_APPENDS = 4_000
_VERIFIED = 40_000
_FEW = 2_000  # where quick is asked for


async def trace(rig: Rig, effort: Effort) -> Findings:
    """Measure `Ledger.trace`: a task's four records among a million, found, decompressed, verified by public key."""
    records = _FEW if effort.quick else RECORDS
    with _folder() as folder:
        signer, keys = _keys()
        began = time.perf_counter()
        tasks = await fill(folder / "ledger.db", signer, records)
        made = time.perf_counter() - began
        milliseconds = []
        async with Ledger(folder / "ledger.db", LedgerOptions(create=False)) as ledger:
            for task_id in random.Random(1).choices(tasks, k=min(_TRACES, records)):
                began = time.perf_counter()
                found = await ledger.trace(task_id, verifier=keys)
                milliseconds.append((time.perf_counter() - began) * 1_000)
                assert found.report.signed_through == RECORDS_PER_TASK
                assert len(found.records) == RECORDS_PER_TASK
    p99 = statistics.quantiles(milliseconds, n=100)[98]
    findings = Findings(f"A task's trace, of {records:,} records made in {made:.0f} s", ("", "ms"))
    for what, told in (("p50", statistics.median(milliseconds)), ("p99", p99), ("longest", max(milliseconds))):
        findings.rows.append((what, f"{told:.2f}"))
    findings.values["trace_ms_1m"] = p99
    return findings


async def appends(rig: Rig, effort: Effort) -> Findings:
    """Measure `Ledger.append`: each record signed, and on the disk before its appender goes on."""
    records = 200 if effort.quick else _APPENDS
    findings = Findings("Appending to the ledger", ("appenders", "records/s", "CPU µs a record"))
    for appenders in (1, 16):
        told = [await _append(records, appenders) for _ in range(1 if effort.quick else 3)]
        per_second, cpu = (statistics.median(column) for column in zip(*told, strict=True))
        findings.rows.append((str(appenders), f"{per_second:.0f}", f"{cpu * 1e6:.0f}"))
        findings.values["ledger_append_per_s"] = per_second
    return findings


async def verification(rig: Rig, effort: Effort) -> Findings:
    """Measure how many records a core verifies in a second, as an auditor does and as the ledger itself does.

    The auditor has a bundle of the whole ledger, the public key and the signed checkpoint that was kept outside: every
    message and every header is hashed, every chain followed, the tree over records and signatures compared with the
    signed root. Without a checkpoint every signature is verified as well, on all processors.
    """
    records = _FEW if effort.quick else _VERIFIED
    rounds = 1 if effort.quick else 5
    with _folder() as folder:
        signer, keys = _keys()
        bare, bundle = folder / "bare.zst", folder / "evidence.zst"
        await fill(folder / "ledger.db", signer, records)
        async with Ledger(folder / "ledger.db", LedgerOptions(signer=signer)) as ledger:
            await ledger.export(bare)
            kept = await ledger.checkpoint()
            await ledger.export(bundle)
            live = []
            for _ in range(rounds):
                began = time.process_time()
                report = await ledger.verify_all(verifier=keys)
                live.append(records / (time.process_time() - began))
                assert report.checkpointed_through == records
        offline = []
        for _ in range(rounds):
            began = time.process_time()
            found = verify_bundle(bundle, verifier=keys, checkpoints=[kept])
            offline.append(records / (time.process_time() - began))
            assert found
            assert found.checkpointed_through == records
        began = time.perf_counter()
        assert verify_bundle(bare, verifier=keys).verdict is Verdict.UNANCHORED
        signatures = records / (time.perf_counter() - began)
    findings = Findings("Verifying, on one core", ("what", "records/s"))
    for what, told in (("a bundle, offline", offline), ("the ledger in place", live)):
        findings.rows.append((what, f"{statistics.median(told):,.0f}"))
    findings.rows.append((f"a bundle without a checkpoint, {os.cpu_count()} cores", f"{signatures:,.0f}"))
    findings.values["ledger_signatures_per_s"] = signatures
    findings.values["ledger_verify_per_s"] = statistics.median(offline)
    return findings


async def _append(records: int, appenders: int) -> tuple[float, float]:
    """Return how many records a second were appended, and the seconds of processor time that each took."""
    messages = canonical_messages()
    with _folder() as folder:
        async with Ledger(folder / "ledger.db", LedgerOptions(signer=_keys()[0])) as ledger:
            await ledger.append(entry("the first one opens the file", 0, messages[0]))
            waiting = [
                entry(f"task-{at // RECORDS_PER_TASK:06}", at % RECORDS_PER_TASK, messages[at % len(messages)])
                for at in range(records)
            ]

            async def append() -> None:
                while waiting:
                    await ledger.append(waiting.pop())

            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(append() for _ in range(appenders)))
            return records / (time.perf_counter() - began), (time.process_time() - cpu) / records


def _keys() -> tuple[Signer, PublicKeys]:
    """Return a new key, and its public half."""
    signer = Signer(os.urandom(32))
    public = Ed25519PrivateKey.from_private_bytes(signer.secret).public_key().public_bytes_raw()
    return signer, PublicKeys([PublicKey(signer.key_id, public, BEGAN)])


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="baton-bench-ledger-") as folder:
        yield Path(folder)
