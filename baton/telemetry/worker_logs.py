"""A worker's log: repeated warnings are logged once a minute, and a blocked event loop is reported.

A stage is a coroutine on its worker's event loop. A stage that blocks it (`time.sleep`, a synchronous client, a long
computation) stops every other stage and all heartbeats, while the SDK's core keeps polling: the server sees a healthy
worker. A watchdog thread logs the stack of the blocked loop.
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
"""A repeated warning is logged again after this time, with the number of suppressed ones."""
MAX_KINDS = 1_000
"""The maximum number of remembered kinds of warnings."""


class RepeatFilter(logging.Filter):
    """Passes each kind of warning or error once a minute and counts the others."""

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
        if len(self._seen) >= MAX_KINDS:
            self._seen.clear()
        self._seen[kind] = now, 0
        if left_out:
            record.msg = f"{record.getMessage()} [{left_out:,} more in the last {now - since:.0f} s]"
            record.args = ()
        return True


def limit_repeated_logs() -> None:
    """Filter the root logger's handlers; call it once, after they are set up."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())


TICK_SECONDS = 1.0
BLOCKED_TICKS = 10
"""After this many ticks without a heartbeat the event loop counts as blocked. Ticks instead of a clock, because a clock
continues while the machine sleeps."""
MAX_FRAMES = 30
"""The maximum number of logged stack frames."""

_log = logging.getLogger("baton.worker")


@contextmanager
def event_loop_watchdog() -> Iterator[None]:
    """Log the stack of the running event loop once each time it is blocked for ten seconds."""
    alive, stopped = threading.Event(), threading.Event()
    beat = asyncio.get_running_loop().create_task(_beat(alive))
    thread = threading.Thread(
        target=_watch, args=(threading.get_ident(), alive, stopped), name="baton-watchdog", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        beat.cancel()
        stopped.set()


async def _beat(alive: threading.Event) -> None:
    """Signal at each tick that the loop runs."""
    while True:
        alive.set()
        await asyncio.sleep(TICK_SECONDS)


def _watch(loop_thread: int, alive: threading.Event, stopped: threading.Event) -> None:
    """Count the ticks without a signal, in a separate thread."""
    missed = 0
    while not stopped.wait(TICK_SECONDS):
        missed = 0 if alive.is_set() else missed + 1
        alive.clear()
        if missed == BLOCKED_TICKS:
            _log.warning(
                "the event loop has been blocked for %d s: no stage of this worker runs or sends a heartbeat. Move "
                "blocking code into a thread: await asyncio.to_thread(...). Stack, most recent call last:\n%s",
                missed * TICK_SECONDS,
                _format_stack(loop_thread),
            )


def _format_stack(thread: int) -> str:
    """Return the stack of a thread, one call per line.

    `faulthandler` is not used, because it reads running threads without the lock and may crash the process.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "  the thread has ended"
    calls = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=MAX_FRAMES, lookup_lines=False)
    return "\n".join(f"  {call.filename}:{call.lineno} {call.name}" for call in reversed(calls))
