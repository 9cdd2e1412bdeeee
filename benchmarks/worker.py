"""A worker process: `python -m benchmarks.worker ROLE SETTINGS ADDRESS QUEUE FOLDER`; SIGTERM ends it.

A worker shares nothing with the process that measures, as in production.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

from temporalio.client import Client, GrpcCompression
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from baton import WorkerParts
from baton.artifacts.store import open_store
from baton.compression.store_tokens import best_counter
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.plugin import BatonPlugin
from benchmarks import raw, stages
from benchmarks.settings import SETTINGS, collect_as
from benchmarks.timing import TimedPlugin
from benchmarks.workflows.asks import Asks
from benchmarks.workflows.delivery import Delivery
from benchmarks.workflows.exchange import HandsOff, Receives
from benchmarks.workflows.first import FirstStage
from benchmarks.workflows.long import LongContracts, LongDecisions, LongDelivery
from benchmarks.workflows.raw import RawDelivery

_FOUR = [stages.plan, stages.implement, stages.review, stages.release]
_PROTOCOL: dict[str, Any] = {
    "workflows": [Delivery, HandsOff, Receives],
    "activities": [*_FOUR, *EXCHANGE_ACTIVITIES],
}

ROLES: dict[str, dict[str, Any]] = {
    "baton": {
        "workflows": [Delivery, LongDelivery, FirstStage, Asks],
        "activities": [
            *_FOUR,
            stages.work,
            stages.look_at_clock,
        ],
    },
    "protocol": _PROTOCOL,
    "encrypted": _PROTOCOL,
    "long": {"workflows": [LongDecisions, LongContracts], "activities": [stages.decide, stages.look_up]},
    "raw": {
        "workflows": [RawDelivery],
        "activities": [raw.raw_plan, raw.raw_implement, raw.raw_review, raw.raw_release],
    },
}
"""What a worker serves, by role."""


def ledger_of(folder: Path, role: str) -> Path:
    """Return the file of the ledger that the workers of ``role`` write."""
    return folder / f"{role}-ledger.db"


async def connect(role: str, address: str, folder: Path) -> Client:
    """Return a client as the workers and services of ``role`` have it.

    Args:
        role: `"baton"`, with the parts that the shipped worker wires; `"long"`, which times its workflow tasks;
            `"protocol"`, with safeguards beside them, or
            `"encrypted"`, with encryption as well; or `"raw"`, with Temporal's own pydantic converter.
        address: Where the server is.
        folder: Where artifacts, keys and ledgers are kept.
    """
    if role == "raw":
        # On one machine `BatonPlugin` leaves gzip out; the workflow by hand is measured with the same settings.
        return await Client.connect(
            address, data_converter=pydantic_data_converter, grpc_compression=GrpcCompression.NONE
        )
    _, counter = best_counter()
    parts = WorkerParts(artifacts=open_store(str(folder / "artifacts")), counter=counter)
    safeguards: Safeguards | Literal["off"] = "off"
    if role == "long":
        timed = TimedPlugin(parts, safeguards="off")
        timed.folder = folder
        return await Client.connect(address, plugins=[timed])
    if role != "baton":
        keyring = Keyring.development(folder)
        safeguards = Safeguards(keyring, ledger_of(folder, role), encrypt=role == "encrypted")
    return await Client.connect(address, plugins=[BatonPlugin(parts, safeguards=safeguards)])


async def serve(role: str, settings: str, address: str, queue: str, folder: Path) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await connect(role, address, folder)
    async with Worker(client, task_queue=queue, **ROLES[role], **SETTINGS[settings]):
        await stop.wait()


def main() -> None:
    """Run the worker that the command line names, and end the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("settings", choices=SETTINGS)
    parser.add_argument("address")
    parser.add_argument("queue")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    collect_as(options.settings)
    asyncio.run(serve(options.role, options.settings, options.address, options.queue, options.folder))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the SDK's threads may otherwise end the process with SIGABRT


if __name__ == "__main__":
    main()
