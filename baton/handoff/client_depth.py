"""How many handoffs wait for a person, told again and again: the depth of the dead-letter queue (S3-8.1-e).

No single run knows it, and a worker that is restarted replays its runs in silence; the service knows. So every
worker asks it, and each tells the same number.
"""

import asyncio
import logging
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from baton.handoff.client_inbox import WAITING_RUNS
from baton.telemetry.workflow_metrics import Metrics

EVERY = timedelta(seconds=15)
"""How often it is asked: as often as Prometheus reads a worker."""

_log = logging.getLogger(__name__)


async def dead_letter_depth(client: Client) -> int:
    """Return how many open runs wait for a person because a handoff was not accepted.

    The service indexes a change within a second or so. It needs Baton's search attributes.

    Raises:
        temporalio.service.RPCError: The service cannot be reached, or lacks the search attributes.
    """
    return (await client.count_workflows(WAITING_RUNS)).count


async def watch_dead_letters(client: Client, metrics: Metrics, every: timedelta = EVERY) -> None:
    """Tell the depth again and again, until the task is cancelled.

    A service that cannot answer leaves the last number standing, and is asked again; the log says so once.

    Args:
        client: Asks the service.
        metrics: Whom to tell.
        every: How long to wait between two questions.
    """
    failing = False
    while True:
        try:
            metrics.dead_letters(await dead_letter_depth(client))
            failing = False
        except RPCError as error:
            if not failing:
                _log.warning("the number of dead letters is not known, and will be asked for again: %s", error)
            failing = True
        await asyncio.sleep(every.total_seconds())
