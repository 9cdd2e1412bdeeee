"""A worker's log: a warning that repeats is written once a minute, and a blocked event loop is reported.

A stage is a coroutine on its worker's event loop. One that blocks it (`time.sleep`, a synchronous client, a long
computation) holds up every other stage and all heartbeats, while the SDK's core keeps polling: the service sees a
healthy worker. `faulthandler` says where.
"""

import asyncio
import faulthandler
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PAUSE_SECONDS = 60.0
"""A warning that repeats is logged again after so many seconds, with the number of those left out."""
MOST_KINDS = 1_000
"""So many kinds of warnings are remembered."""


class RepeatFilter(logging.Filter):
    """Passes a warning or an error once a minute; others of its kind are counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.levelno < logging.WARNING:
            return True
        error = record.exc_info[0] if record.exc_info else None
        kind = record.name, record.levelno, str(record.msg).partition(" (")[0], error.__name__ if error else ""
        now = self._clock()
        since, left_out = self._seen.get(kind, (-PAUSE_SECONDS, 0))
        if now - since < PAUSE_SECONDS:
            self._seen[kind] = since, left_out + 1
            return False
        if len(self._seen) >= MOST_KINDS:
            self._seen.clear()
        self._seen[kind] = now, 0
        if left_out:
            record.msg = f"{record.getMessage()} [{left_out:,} more in the last {now - since:.0f} s]"
            record.args = ()
        return True


def limit_repeated_logs() -> None:
    """Limit what the root logger's handlers write; a program calls it once, after it has set them up."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())


BLOCKED_AFTER = 10.0
"""After so many seconds a blocked event loop is reported."""

_log = logging.getLogger("baton.worker")


@contextmanager
def event_loop_watchdog() -> Iterator[None]:
    """Write all stacks to stderr when the running event loop is blocked, and log it once the loop runs again."""
    task = asyncio.get_running_loop().create_task(_rearm())
    try:
        yield
    finally:
        task.cancel()
        faulthandler.cancel_dump_traceback_later()  # another worker on this loop arms it again within a second


async def _rearm() -> None:
    """Put the dump off once a second, as long as the loop runs."""
    loop = asyncio.get_running_loop()
    while True:
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(BLOCKED_AFTER, file=sys.__stderr__)
        began = loop.time()
        await asyncio.sleep(1)
        if (blocked := loop.time() - began) > BLOCKED_AFTER:
            _log.warning(
                "the event loop was blocked for %d s: no stage of this worker ran, and none sent a heartbeat. The "
                "stacks are on stderr; move what blocks into a thread: await asyncio.to_thread(...)",
                blocked,
            )
