"""A thread that notices when a worker's event loop stands still, and says where.

A stage is a coroutine on its worker's event loop. One that waits without giving the loop back (`time.sleep`, a client
that blocks, a long computation) holds up every other stage of the worker, and all their heartbeats, while the SDK's
core goes on to ask the service for tasks: seen from there, the worker is well.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PATIENCE = 10
"""So many seconds an event loop may stand still before it is said."""

_FRAMES = 6  # of the stack, from where it stands upwards

log = logging.getLogger("baton.worker")


@dataclass
class _Watch:
    """The watch of a loop, and how many blocks share it."""

    blocks: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


_watches: dict[asyncio.AbstractEventLoop, _Watch] = {}


@contextmanager
def watched_loop() -> Iterator[None]:
    """Warn, inside the `with` block, when the event loop stands still for `PATIENCE` seconds, and when it goes on.

    Seconds are counted by a thread that waits for each of them, so that a process or a machine that was paused is not
    taken for a loop that is. Several workers on one loop share the thread, and all is said once.

    Raises:
        RuntimeError: No event loop is running.

    Example:
        >>> async def work():
        ...     with watched_loop():
        ...         await asyncio.sleep(0)
        >>> asyncio.run(work())
    """
    loop = asyncio.get_running_loop()
    watch = _watches.setdefault(loop, _Watch())
    watch.blocks += 1
    if watch.blocks == 1:
        given = (loop, threading.get_ident(), watch.ended)
        threading.Thread(target=_look, args=given, name="baton-loop-watch", daemon=True).start()
    try:
        yield
    finally:
        watch.blocks -= 1
        if not watch.blocks:
            del _watches[loop]
            watch.ended.set()


def _look(loop: asyncio.AbstractEventLoop, thread: int, ended: threading.Event) -> None:
    """Ask the loop each second for a sign of life, until told to end."""
    alive, still = threading.Event(), 0
    alive.set()
    while not ended.wait(1):
        if not alive.is_set():
            still += 1
            if still == PATIENCE:
                _warn(thread, still)
            continue
        if still >= PATIENCE:
            log.warning("the event loop goes on, after %d s", still)
        still = 0
        alive.clear()
        try:
            loop.call_soon_threadsafe(alive.set)
        except RuntimeError:  # it is closed
            return


def _warn(thread: int, seconds: int) -> None:
    """Say that the loop stands still, and where."""
    frame = sys._current_frames().get(thread)
    where = "".join(traceback.format_stack(frame, limit=_FRAMES)) if frame else "(its thread is gone)"
    log.warning(
        "the event loop has stood still for %d s: no stage of this worker goes on, and none sends a heartbeat. What"
        " waits or computes for long belongs in a thread: await asyncio.to_thread(...). It stands here:\n%s",
        seconds,
        where.rstrip(),
    )
