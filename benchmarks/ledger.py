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
from benchmarks.ledger_samples import RECORDED_AT, RECORDS_PER_TASK, Signer, canonical_messages, entry, fill
from benchmarks.report import Findings
from benchmarks.rig import Rig

RECORDS = 1_000_000
"""The ledger that a task is looked up in: about 2.6 GB."""
_TRACES = 2_000
_APPENDS = 4_000
_VERIFIED = 40_000
_QUICK_RECORDS = 2_000  # where quick is asked for


async def trace(rig: Rig, effort: Effort) -> Findings:
    """Measure `Ledger.trace`: a task's four records among a million, found, decompressed, verified by public key."""
    records = _QUICK_RECORDS if effort.quick else RECORDS
    with _temporary_folder() as folder:
        signer, keys = make_keys()
        started = time.perf_counter()
        tasks = await fill(folder / "ledger.db", signer, records)
        fill_seconds = time.perf_counter() - started
        milliseconds = []
        async with Ledger(folder / "ledger.db", LedgerOptions(create=False)) as ledger:
            for task_id in random.Random(1).choices(tasks, k=min(_TRACES, records)):
                started = time.perf_counter()
                trace_result = await ledger.trace(task_id, verifier=keys)
                milliseconds.append((time.perf_counter() - started) * 1_000)
                assert trace_result.report.signed_through == RECORDS_PER_TASK
                assert len(trace_result.records) == RECORDS_PER_TASK
    p99 = statistics.quantiles(milliseconds, n=100)[98]
    findings = Findings(f"A task's trace, of {records:,} records made in {fill_seconds:.0f} s", ("", "ms"))
    for label, value in (("p50", statistics.median(milliseconds)), ("p99", p99), ("longest", max(milliseconds))):
        findings.rows.append((label, f"{value:.2f}"))
    findings.values["trace_ms_1m"] = p99
    return findings


async def appends(rig: Rig, effort: Effort) -> Findings:
    """Measure `Ledger.append`: each record signed, and on the disk before its appender goes on."""
    records = 200 if effort.quick else _APPENDS
    findings = Findings("Appending to the ledger", ("appenders", "records/s", "CPU µs a record"))
    for appenders in (1, 16):
        results = [await _measure_appends(records, appenders) for _ in range(1 if effort.quick else 3)]
        per_second, cpu = (statistics.median(column) for column in zip(*results, strict=True))
        findings.rows.append((str(appenders), f"{per_second:.0f}", f"{cpu * 1e6:.0f}"))
        findings.values["ledger_append_per_s"] = per_second
    return findings


async def append_size(rig: Rig, effort: Effort) -> Findings:
    """Measure the bytes that one appender hands to the system for a record, on Linux; log and table count both."""
    records = 200 if effort.quick else _APPENDS
    before = _written()
    await _measure_appends(records, 1)
    findings = Findings("What an append writes", ("", "bytes"))
    findings.values["append_bytes"] = (_written() - before) / records
    findings.rows.append(("a record of 5.5 KB, compressed", f"{findings.values['append_bytes']:,.0f}"))
    return findings


def _written() -> int:
    """Return the bytes that this process has written so far; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["wchar"])


async def verification(rig: Rig, effort: Effort) -> Findings:
    """Measure how many records a core verifies in a second, as an auditor does and as the ledger itself does.

    The auditor has a bundle of the whole ledger, the public key and the signed checkpoint that was kept outside: every
    message and every header is hashed, every chain followed, the hash over records and signatures compared with the
    signed one. Without a checkpoint every signature is verified as well, on all processors.
    """
    records = _QUICK_RECORDS if effort.quick else _VERIFIED
    rounds = 1 if effort.quick else 5
    with _temporary_folder() as folder:
        signer, keys = make_keys()
        bare, bundle = folder / "bare.zst", folder / "evidence.zst"
        await fill(folder / "ledger.db", signer, records)
        async with Ledger(folder / "ledger.db", LedgerOptions(signer=signer)) as ledger:
            await ledger.export(bare)
            checkpoint = await ledger.checkpoint()
            await ledger.export(bundle)
            live = []
            for _ in range(rounds):
                started = time.process_time()
                report = await ledger.verify_all(verifier=keys)
                live.append(records / (time.process_time() - started))
                assert report.checkpointed_through == records
        offline = []
        for _ in range(rounds):
            started = time.process_time()
            result = verify_bundle(bundle, verifier=keys, checkpoints=[checkpoint])
            offline.append(records / (time.process_time() - started))
            assert result
            assert result.checkpointed_through == records
        started = time.perf_counter()
        assert verify_bundle(bare, verifier=keys).verdict is Verdict.UNANCHORED
        signatures = records / (time.perf_counter() - started)
    findings = Findings("Verifying, on one core", ("what", "records/s"))
    for label, rates in (("a bundle, offline", offline), ("the ledger in place", live)):
        findings.rows.append((label, f"{statistics.median(rates):,.0f}"))
    findings.rows.append((f"a bundle without a checkpoint, {os.cpu_count()} cores", f"{signatures:,.0f}"))
    findings.values["ledger_signatures_per_s"] = signatures
    findings.values["ledger_verify_per_s"] = statistics.median(offline)
    return findings


async def _measure_appends(records: int, appenders: int) -> tuple[float, float]:
    """Return how many records a second were appended, and the seconds of processor time that each took."""
    messages = canonical_messages()
    with _temporary_folder() as folder:
        async with Ledger(folder / "ledger.db", LedgerOptions(signer=make_keys()[0])) as ledger:
            await ledger.append(entry("the first one opens the file", 0, messages[0]))
            entries = [
                entry(
                    f"task-{number // RECORDS_PER_TASK:06}", number % RECORDS_PER_TASK, messages[number % len(messages)]
                )
                for number in range(records)
            ]

            async def append() -> None:
                while entries:
                    await ledger.append(entries.pop())

            started, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(append() for _ in range(appenders)))
            return records / (time.perf_counter() - started), (time.process_time() - cpu) / records


def make_keys() -> tuple[Signer, PublicKeys]:
    """Return a new key, and its public half."""
    signer = Signer(os.urandom(32))
    public = Ed25519PrivateKey.from_private_bytes(signer.secret).public_key().public_bytes_raw()
    return signer, PublicKeys([PublicKey(signer.key_id, public, RECORDED_AT)])


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="baton-bench-ledger-") as folder:
        yield Path(folder)
