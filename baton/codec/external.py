"""Payloads too large for a history, kept in the artifact store instead."""

import asyncio
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverSelectContext,
    StorageDriverStoreContext,
)

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.errors import ArtifactCorruptError, ArtifactError

DRIVER = "baton-artifacts"
"""The driver's name in every reference that a history holds; it can never change."""

_CLAIM = "sha256"


WORKERS_ABOVE_BYTES = 8 * 1024
"""What a worker writes goes to the artifact store above this size, as it is stored: compressed, 16 KiB of text or more.

So the history of a pipeline stays small, however long the texts are that its agents hand on.
"""
CLIENTS_ABOVE_BYTES = 256 * 1024
"""What a client sends goes there above this size only: the workers may have another store than it has."""


def external_storage(store: ArtifactStore) -> ExternalStorage:
    """Return what a data converter needs to keep large payloads in ``store``."""
    driver = ArtifactDriver(store)
    return ExternalStorage(drivers=[driver], driver_selector=driver.select, payload_size_threshold=WORKERS_ABOVE_BYTES)


def serves_workers(converter: DataConverter) -> None:
    """Have a worker's converter keep payloads outside from the workers' size on."""
    for driver in converter.external_storage.drivers if converter.external_storage else ():
        if isinstance(driver, ArtifactDriver):
            driver.above = WORKERS_ABOVE_BYTES


class ArtifactDriver(StorageDriver):
    """Temporal's storage driver over an artifact store: a payload is stored under its own hash.

    Attributes:
        above: From how many bytes on a payload is kept outside the history.
    """

    def __init__(self, store: ArtifactStore, above: int = CLIENTS_ABOVE_BYTES) -> None:
        self.above = above
        self._store = store

    def name(self) -> str:
        """Return `"baton-artifacts"`."""
        return DRIVER

    def select(self, context: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        """Return this driver for a payload that is to be kept outside the history."""
        return self if payload.ByteSize() >= self.above else None

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Put each payload into the store and return a claim, its SHA-256, for each."""
        kept = [payload.SerializeToString(deterministic=True) for payload in payloads]
        if activity.in_activity():  # whose work is done; elsewhere the caller gets the error at once
            hashes = await asyncio.gather(*(put_when_possible(self._store, data) for data in kept))
        else:
            hashes = await asyncio.gather(*(self._store.put(data) for data in kept))
        return [StorageDriverClaim({_CLAIM: sha256}) for sha256 in hashes]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Return the payload of each claim."""
        return list(await asyncio.gather(*(self._retrieve(claim) for claim in claims)))

    async def _retrieve(self, claim: StorageDriverClaim) -> Payload:
        sha256 = claim.claim_data.get(_CLAIM)
        if sha256 is None:
            raise ArtifactError(
                f"a reference of driver {DRIVER!r} has no member {_CLAIM!r}, only "
                f"{sorted(claim.claim_data)}; it was not written by this driver"
            )
        data = await self._store.get(sha256)
        try:
            return Payload.FromString(data)
        except DecodeError as error:
            raise ArtifactCorruptError(
                f"artifact {sha256!r} is whole but no payload; the reference names the wrong artifact"
            ) from error
