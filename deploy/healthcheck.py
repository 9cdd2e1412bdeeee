"""Tells the container engine whether this container's worker takes work: exit code 0 if it does, 1 if not.

A worker process can run and yet do nothing: its service is out of reach, its namespace or key is wrong, it listens to
another task queue. So the question goes to the service: which workers asked the task queue for work lately, and is one
of them on this host? Uses the connection of worker.py (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_PROFILE`, …)
and its `BATON_TASK_QUEUE`.
"""

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime, timedelta

from baton.runs.client_connection import DEFAULT_TASK_QUEUE, connect
from baton.runs.client_waiting import describe_queue

TASK_QUEUE = os.environ.get("BATON_TASK_QUEUE", DEFAULT_TASK_QUEUE)
RECENT = timedelta(minutes=3)
"""A waiting worker asks again about once a minute."""
PATIENCE = timedelta(seconds=20)
"""How long the service may take to answer."""


async def finding() -> str | None:
    """Return what is wrong with this host's worker, or None if it takes work."""
    client = await connect()
    answer = await describe_queue(client, TASK_QUEUE)
    host = socket.gethostname()
    asked = [
        poller.last_access_time.ToDatetime(tzinfo=UTC)
        for poller in answer.pollers
        if poller.identity.endswith(f"@{host}")
    ]
    if not asked:
        return f"no worker on {host!r} asks the task queue {TASK_QUEUE!r} of namespace {client.namespace!r} for work"
    silence = datetime.now(UTC) - max(asked)
    if silence > RECENT:
        return f"the worker on {host!r} has not asked for work for {silence.total_seconds():.0f} s"
    return None


def main() -> int:
    """Print what is wrong, if anything is, and return the exit code."""
    try:
        wrong = asyncio.run(asyncio.wait_for(finding(), PATIENCE.total_seconds()))
    except Exception as error:  # whatever keeps the question from being answered is the answer
        wrong = f"could not ask the service: {error or type(error).__name__}"
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # temporalio's client can abort while the interpreter ends, after all work is done
