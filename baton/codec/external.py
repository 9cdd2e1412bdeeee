"""Payloads too large for a history, kept in the artifact store instead."""

import asyncio
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.errors import ArtifactCorruptError, ArtifactError

DRIVER = "baton-artifacts"
"""The driver's name in every reference that a history holds; it can never change."""

_CLAIM = "sha256"


def external_storage(store: ArtifactStore, threshold_bytes: int = 256 * 1024) -> ExternalStorage:
    """Return what a data converter needs to keep large payloads in ``store``."""
    return ExternalStorage(drivers=[ArtifactDriver(store)], payload_size_threshold=threshold_bytes)


class ArtifactDriver(StorageDriver):
    """Temporal's storage driver over an artifact store: a payload is stored under its own hash."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    def name(self) -> str:
        """Return `"baton-artifacts"`."""
        return DRIVER

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
