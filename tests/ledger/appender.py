"""A process that appends to a ledger, for tests that start and kill it.

python -m tests.ledger.appender PATH WHO TASKS RECORDS [MOST_BYTES]

It appends RECORDS events to each of TASKS tasks, ten at a time, and prints the head of each one as soon as the
ledger has acknowledged it. With MOST_BYTES, no file may grow beyond that, as on a full disk.
"""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from baton.ledger.records import LedgerUnavailableError
from baton.ledger.store import Ledger, LedgerOptions
from tests.ledger.material import entry


async def main(path: Path, writer: str, tasks: int, records: int) -> None:
    """Append entries, and print a line for each record."""
    async with Ledger(path, LedgerOptions()) as ledger:
        queue = [(f"task-{task}", number) for number in range(records) for task in range(tasks)]

        async def work() -> None:
            while queue:
                task_id, number = queue.pop(0)
                event = entry(number, task_id=task_id, event_id=f"{writer}-{number}", message={"text": "x" * 500})
                try:
                    head = await ledger.append(event)
                except LedgerUnavailableError as error:
                    print("refused", task_id, event.event_id, str(error).replace("\n", " "), flush=True)
                    return
                print("acknowledged", task_id, event.event_id, head.anchor, flush=True)

        await asyncio.gather(*(work() for _ in range(10)))


if __name__ == "__main__":
    if len(sys.argv) > 5:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[5]), int(sys.argv[5])))
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    sys.stdout.flush()
    os._exit(0)
