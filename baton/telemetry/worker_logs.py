"""A worker's log: a warning that repeats is written once a minute, and a blocked event loop is reported.

A stage is a coroutine on its worker's event loop. One that blocks it (`time.sleep`, a synchronous client, a long
computation) holds up every other stage and all heartbeats, while the SDK's core keeps polling: the service sees a
healthy worker. A thread beside the loop logs where it stands.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
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


TICK_SECONDS = 1.0
BLOCKED_TICKS = 10
"""After so many ticks without a sign of life the event loop counts as blocked. Ticks, and no clock: while the whole
machine sleeps, nothing ticks."""
MOST_FRAMES = 30
"""So many of the innermost calls are logged."""

_log = logging.getLogger("baton.worker")


@contextmanager
def event_loop_watchdog() -> Iterator[None]:
    """Log where the running event loop stands when it is blocked for ten seconds, once each time."""
    alive, ended = threading.Event(), threading.Event()
    beat = asyncio.get_running_loop().create_task(_beat(alive))
    thread = threading.Thread(
        target=_watch, args=(threading.get_ident(), alive, ended), name="baton-watchdog", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        beat.cancel()
        ended.set()


async def _beat(alive: threading.Event) -> None:
    """Show once a tick that the loop runs."""
    while True:
        alive.set()
        await asyncio.sleep(TICK_SECONDS)


def _watch(loop_thread: int, alive: threading.Event, ended: threading.Event) -> None:
    """Count the ticks without a sign of life, in a thread of its own."""
    missed = 0
    while not ended.wait(TICK_SECONDS):
        missed = 0 if alive.is_set() else missed + 1
        alive.clear()
        if missed == BLOCKED_TICKS:
            _log.warning(
                "the event loop has been blocked for %d s: no stage of this worker runs, and none sends a heartbeat. "
                "Move what blocks into a thread: await asyncio.to_thread(...). It stands here, innermost last:\n%s",
                missed * TICK_SECONDS,
                _stack(loop_thread),
            )


def _stack(thread: int) -> str:
    """Return a thread's calls, a line each.

    Not by `faulthandler`, which reads running threads without the lock and may so crash the process.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "  the thread has ended"
    calls = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=MOST_FRAMES, lookup_lines=False)
    return "\n".join(f"  {call.filename}:{call.lineno} {call.name}" for call in reversed(calls))
