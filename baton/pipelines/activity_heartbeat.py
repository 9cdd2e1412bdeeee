"""Signs of life of an activity that takes its time: without them the server cannot know that its worker died."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta

from temporalio import activity


def still_alive() -> None:
    """Send a heartbeat that keeps what an earlier run said in its last one; for an activity that has said nothing."""
    activity.heartbeat(*activity.info().heartbeat_details)


@contextlib.contextmanager
def heartbeats(timeout: timedelta | None, send: Callable[[], None] = still_alive) -> Iterator[None]:
    """Send a heartbeat four times within the timeout while the block runs."""
    if timeout is None or not activity.in_activity():
        yield
        return
    loop = asyncio.get_running_loop()
    pause = timeout.total_seconds() / 4

    timer: asyncio.TimerHandle | None = None

    def beat() -> None:
        nonlocal timer
        send()
        timer = loop.call_later(pause, beat)

    # A timer and not a task: most stages end before the first heartbeat, and a task costs as much as they do.
    timer = loop.call_later(pause, beat)
    try:
        yield
    finally:
        timer.cancel()
