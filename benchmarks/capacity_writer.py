"""A process that appends to a ledger: `python -m benchmarks.capacity_writer WHERE SECRET NAME RECORDS`.

It prints `ready` once the ledger is open, appends after a line on its input, and prints the seconds and the processor
seconds that this took.
"""

import asyncio
import sys
import time
from pathlib import Path

from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import is_ledger_url
from benchmarks.ledger_samples import RECORDS_PER_TASK, Signer, canonical_messages, entry

APPENDERS = 16
"""Handoffs that a worker records at the same time."""


async def append(where: str, secret: bytes, name: str, records: int) -> tuple[float, float]:
    """Append records of tasks of its own, and return the seconds and the processor seconds."""
    messages = canonical_messages()
    entries = [
        entry(f"{name}-{number // RECORDS_PER_TASK:06}", number % RECORDS_PER_TASK, messages[number % len(messages)])
        for number in reversed(range(records))
    ]
    async with Ledger(where if is_ledger_url(where) else Path(where), LedgerOptions(signer=Signer(secret))) as ledger:
        await ledger.append(entry(f"{name} opens it", 0, messages[0]))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def append_some() -> None:
            while entries:
                await ledger.append(entries.pop())

        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(append_some() for _ in range(APPENDERS)))
        return time.perf_counter() - started, time.process_time() - cpu


if __name__ == "__main__":
    seconds, used = asyncio.run(append(sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    print(seconds, used, flush=True)
