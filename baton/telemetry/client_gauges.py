"""How many runs wait for a person, and how many are suspended: reported again and again by every worker.

No single run knows it, and a worker that restarts replays its runs in silence; the service knows. So every worker
asks it, and each reports the same number.
"""

import asyncio
import logging
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from baton.handoff.client_inbox import WAITING_RUNS
from baton.runs.client_list import SUSPENDED, RunFilter
from baton.telemetry.metrics import Metrics

EVERY = timedelta(seconds=15)
"""How often it is asked: as often as Prometheus reads a worker."""
SUSPENDED_RUNS = RunFilter(status=SUSPENDED, children=True).query()
"""The open runs that the workers' code cannot continue, in the server's query language."""

_log = logging.getLogger(__name__)


async def dead_letter_depth(client: Client) -> int:
    """Return how many open runs wait for a person because a handoff was not accepted."""
    return (await client.count_workflows(WAITING_RUNS)).count


async def suspended_runs(client: Client) -> int:
    """Return how many open runs are suspended because the workers' code fails."""
    return (await client.count_workflows(SUSPENDED_RUNS)).count


async def watch_runs(client: Client, metrics: Metrics, every: timedelta = EVERY) -> None:
    """Report both numbers again and again, until the task is cancelled."""
    failing = False
    while True:
        try:
            metrics.dead_letters(await dead_letter_depth(client))
            metrics.suspended_runs(await suspended_runs(client))
            failing = False
        except RPCError as error:
            if not failing:
                _log.warning("the number of runs that wait is not known, and will be asked for again: %s", error)
            failing = True
        await asyncio.sleep(every.total_seconds())
