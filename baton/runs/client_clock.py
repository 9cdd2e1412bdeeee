"""This machine's clock, compared with the Temporal server's, which the times of all runs come from."""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from weakref import WeakKeyDictionary

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, PollActivityTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from baton.core.verdict import TOLERANCE
from baton.errors import BatonError
from baton.wire.store_clock import now_utc

CHECK_INTERVAL = timedelta(minutes=1)
"""How often a worker compares its clock with the server's."""

_QUEUE = "baton.clock"
_TIMEOUT = timedelta(seconds=5)
_PAUSE = 0.02
_READER_TIMEOUT = 1.0  # seconds that reading a run waits for the server's time
_log = logging.getLogger(__name__)


class ClockError(BatonError):
    """This machine's clock differs from the server's by more than is tolerated: good handoffs would be refused.

    Synchronise it.
    """


async def clock_skew(client: Client) -> timedelta | None:
    """Return how far this machine's clock is ahead of the server's at least; negative if it is behind.

    The server tells its time only where it notes a poll, so this polls a task queue that has no tasks.

    Returns:
        The difference; zero if the time of the calls explains it, None if the server does not tell.

    Raises:
        temporalio.service.RPCError: The server cannot be asked.
    """
    queue, identity, service = TaskQueue(name=_QUEUE), f"clock-{uuid4()}", client.workflow_service
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=queue, task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    )
    poll = PollActivityTaskQueueRequest(namespace=client.namespace, task_queue=queue, identity=identity)
    before = now_utc()
    polling = asyncio.create_task(service.poll_activity_task_queue(poll, timeout=_TIMEOUT))
    try:
        while not polling.done():
            pollers = (await service.describe_task_queue(request, timeout=_TIMEOUT)).pollers
            for poller in pollers:
                if poller.identity == identity:
                    noted = poller.last_access_time
                    server_time = datetime.fromtimestamp(noted.seconds + noted.nanos / 1e9, UTC)
                    return _difference(before, now_utc(), server_time)
            await asyncio.sleep(_PAUSE)
        return None
    finally:
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError, RPCError):
            await polling


async def measured_skew(client: Client) -> timedelta:
    """Return how far this machine's clock is ahead of the server's, measured at most once a minute.

    It is zero where the server does not tell its time.
    """
    measurement = _measurements.setdefault(client, _Measurement())
    async with measurement.lock:
        if time.monotonic() - measurement.at > CHECK_INTERVAL.total_seconds():
            measurement.skew = timedelta(0)
            with contextlib.suppress(RPCError, TimeoutError):
                async with asyncio.timeout(_READER_TIMEOUT):
                    measurement.skew = await clock_skew(client) or timedelta(0)
            measurement.at = time.monotonic()
    return measurement.skew


async def server_now(client: Client) -> datetime:
    """Return the server's time, which the times of runs are compared with."""
    return now_utc() - await measured_skew(client)


@dataclass
class _Measurement:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at: float = float("-inf")
    skew: timedelta = timedelta(0)


_measurements: WeakKeyDictionary[Client, _Measurement] = WeakKeyDictionary()


def _difference(before: datetime, after: datetime, server_time: datetime) -> timedelta:
    if server_time < before:
        return before - server_time
    return min(after - server_time, timedelta(0))


def clock_fault(skew: timedelta | None, tolerance: timedelta = TOLERANCE) -> str | None:
    """Return what is wrong with a clock that is off by more than that, or None."""
    if skew is None or abs(skew) <= tolerance:
        return None
    where = "ahead of" if skew > timedelta(0) else "behind"
    return (
        f"this machine's clock is {timedelta(seconds=round(abs(skew).total_seconds()))} {where} the server's, and "
        f"clocks may differ by {tolerance}; have a time service set it"
    )


async def check_clock(client: Client, tolerance: timedelta = TOLERANCE) -> None:
    """Raise `ClockError` if this machine's clock is off; do nothing if the server does not tell its time."""
    try:
        skew = await clock_skew(client)
    except RPCError as error:
        _log.info("the clock is not compared with the server's: %s", error)
        return
    if fault := clock_fault(skew, tolerance):
        raise ClockError(fault)


async def watch_clock(client: Client, tolerance: timedelta = TOLERANCE) -> None:
    """Check the clock each minute, until the task is cancelled or the clock is off; see `check_clock`."""
    while True:
        await asyncio.sleep(CHECK_INTERVAL.total_seconds())
        await check_clock(client, tolerance)
