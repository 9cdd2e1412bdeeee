"""Payloads that no history could hold, through a real server."""

import dataclasses
import random
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import (
    DataConverter,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from baton.artifacts.store import ArtifactStore, LocalArtifactStore, MemoryArtifactStore
from baton.codec.conversion import DRIVER, ArtifactDriver, external_storage
from baton.codec.encryption import CompressionCodec
from baton.devserver import DevServer
from baton.errors import ArtifactCorruptError, ArtifactError, ArtifactNotFoundError

LARGE = 6 * 1024 * 1024
THRESHOLD = 256 * 1024


@activity.defn
async def produce(size: int) -> str:
    """Return a text of ``size`` characters that hardly compresses, the same one each time."""
    return random.Random(size).randbytes(size // 2).hex()


@activity.defn
async def measure(text: str) -> int:
    """Return the length of what arrived."""
    return len(text)


@workflow.defn
class Carry:
    """Carries a large text from one activity to the next and returns its length."""

    @workflow.run
    async def run(self, size: int) -> int:
        limit = timedelta(seconds=60)
        text = await workflow.execute_activity(produce, size, start_to_close_timeout=limit)
        return await workflow.execute_activity(measure, text, start_to_close_timeout=limit)


def _converter(store: ArtifactStore) -> DataConverter:
    return dataclasses.replace(
        DataConverter.default, payload_codec=CompressionCodec(), external_storage=external_storage(store)
    )


async def _carry(server: DevServer, store: ArtifactStore, size: int) -> tuple[int, WorkflowHistory]:
    client = await Client.connect(server.address, data_converter=_converter(store))
    queue = str(uuid.uuid4())
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Carry],
        activities=[produce, measure],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        handle = await client.start_workflow(Carry.run, size, id=queue, task_queue=queue)
        return await handle.result(), await handle.fetch_history()


class TestExternalStorage:
    async def test_a_result_above_temporals_limit_passes(self, server: DevServer, tmp_path: Path) -> None:
        """Six megabytes arrive whole, the history stays small, and it replays from the store's files alone."""
        size, history = await _carry(server, LocalArtifactStore(tmp_path), LARGE)
        assert size == LARGE
        assert sum(event.ByteSize() for event in history.events) < 8 * 1024
        replayer = Replayer(
            workflows=[Carry],
            data_converter=_converter(LocalArtifactStore(tmp_path)),
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        await replayer.replay_workflow(WorkflowHistory.from_json(history.workflow_id, history.to_json()))

    async def test_the_same_payload_is_stored_once(self, server: DevServer) -> None:
        """A result that goes on to the next stage is the same artifact: content decides its address."""
        store = _Counting()
        await _carry(server, store, LARGE)
        assert len(store.hashes) >= 2
        assert len(set(store.hashes)) == 1

    async def test_small_payloads_stay_in_the_history(self, server: DevServer) -> None:
        """Below the threshold nothing is stored."""
        store = _Counting()
        size, _ = await _carry(server, store, THRESHOLD // 4)
        assert (size, store.hashes) == (THRESHOLD // 4, [])


class _Counting(MemoryArtifactStore):
    """A store in memory that remembers what it was asked to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.hashes: list[str] = []

    async def put(self, data: bytes) -> str:
        self.hashes.append(await super().put(data))
        return self.hashes[-1]


class TestArtifactDriver:
    async def test_payloads_come_back_in_order(self) -> None:
        """Several payloads of one call keep their places, metadata included."""
        driver = ArtifactDriver(MemoryArtifactStore())
        payloads = [Payload(metadata={"encoding": b"json/plain", "n": b"1"}, data=bytes([n])) for n in range(5)]
        claims = await driver.store(StorageDriverStoreContext(), payloads)
        assert await driver.retrieve(StorageDriverRetrieveContext(), claims) == payloads
        assert await driver.retrieve(StorageDriverRetrieveContext(), claims[::-1]) == payloads[::-1]

    def test_its_name_never_changes(self) -> None:
        """Histories name the driver that has their payloads."""
        assert ArtifactDriver(MemoryArtifactStore()).name() == DRIVER == "baton-artifacts"

    @pytest.mark.parametrize(
        ("claim", "error"),
        [
            pytest.param({"sha256": "0" * 64}, ArtifactNotFoundError, id="nothing there"),
            pytest.param({"path": "x"}, ArtifactError, id="another driver's claim"),
        ],
    )
    async def test_a_claim_that_leads_nowhere_is_an_error(self, claim: dict[str, str], error: type[Exception]) -> None:
        """A reader without the right store learns that."""
        driver = ArtifactDriver(MemoryArtifactStore())
        with pytest.raises(error):
            await driver.retrieve(StorageDriverRetrieveContext(), [StorageDriverClaim(claim)])

    async def test_an_artifact_that_is_not_a_payload_is_an_error(self) -> None:
        """A reference to some other artifact is not decoded to rubbish."""
        store = MemoryArtifactStore()
        sha256 = await store.put(b"\xff\xff\xff")
        with pytest.raises(ArtifactCorruptError, match="not a payload"):
            await ArtifactDriver(store).retrieve(
                StorageDriverRetrieveContext(), [StorageDriverClaim({"sha256": sha256})]
            )
