"""Says where a worker's event loop is blocked, by `faulthandler`.

A stage is a coroutine on its worker's event loop. One that blocks it (`time.sleep`, a synchronous client, a long
computation) holds up every other stage and all heartbeats, while the SDK's core keeps polling: the service sees a
healthy worker.
"""

import asyncio
import faulthandler
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
