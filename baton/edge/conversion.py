"""How values become payloads: pydantic JSON, compressed, large ones outside the history.

A payload that cannot be read is an error with a name. In a workflow it fails the run: by default Temporal
would try the workflow task again for ever.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter, StorageDriverStoreContext
from temporalio.exceptions import ApplicationError, FailureError

from baton.edge.artifacts import ArtifactStore
from baton.edge.compression import CompressionCodec
from baton.edge.external import external_storage
from baton.protocol.errors import NewerPayloadError, PayloadError

EXTERNAL_ABOVE_BYTES = 256 * 1024
"""Payloads above this size go to the artifact store instead of into the history."""


_PYDANTIC = PydanticPayloadConverter().converters


class BatonPayloadConverter(CompositePayloadConverter):
    """Pydantic JSON, with errors that say what was expected and never show the payload.

    The SDK makes a converter for every task of a workflow; all of them share their parts, and with them what
    pydantic has compiled.
    """

    def __init__(self) -> None:
        self.converters = _PYDANTIC

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Convert payloads to values of the types asked for.

        Raises:
            ApplicationError: A payload is not what its reader expects; of type `InvalidPayload`, not retried.
        """
        try:
            return super().from_payloads(payloads, type_hints)
        except FailureError:
            raise
        except ValidationError as error:
            rows = error.errors(include_url=False, include_context=False, include_input=False)
            faults = "; ".join(f"{'.'.join(map(str, row['loc'])) or 'value'}: {row['msg']}" for row in rows)
            raise _invalid(f"this is no {error.title}: {faults}") from None
        except Exception as error:
            encodings = sorted({payload.metadata.get("encoding", b"").decode() for payload in payloads})
            raise _invalid(f"cannot read a payload with encoding {', '.join(encodings)}: {error}") from error


def data_converter(store: ArtifactStore | None = None, *, compress: bool = True) -> DataConverter:
    """Return the data converter of clients, workers and replayers.

    Args:
        store: Where payloads over 256 KiB go; without one they stay in the history, up to Temporal's 2 MiB.
        compress: Compress payloads of some size; those written before are read either way.

    Returns:
        A converter for `Client.connect` or `Replayer`; `BatonPlugin` sets it by itself.
    """
    return _DataConverter(
        payload_converter_class=BatonPayloadConverter,
        payload_codec=_Codec(compress=compress),
        external_storage=None if store is None else external_storage(store, EXTERNAL_ABOVE_BYTES),
    )


@dataclasses.dataclass(frozen=True)
class _DataConverter(DataConverter):
    """A converter whose external storage does not care what a payload belongs to.

    The SDK binds the owner into a copy of the converter for each payload; ours would be the same as before.
    """

    def _with_store_context(self, store_ctx: StorageDriverStoreContext) -> DataConverter:
        return self


class _Codec(CompressionCodec):
    """Compresses if asked to, and decodes what it can.

    What is damaged passes, for the converter to refuse where it is read: an error in here would keep a pipeline
    that was sent one such signal from ever working again. What a newer Baton wrote is an error in here, so that
    a run waits until its workers are upgraded.
    """

    def __init__(self, *, compress: bool) -> None:
        super().__init__()
        self._compress = compress

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads, compressed if that was asked for."""
        return await super().encode(payloads) if self._compress else list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads, decoded but for those that are damaged.

        Raises:
            NewerPayloadError: A payload was written by a newer Baton.
        """
        decoded: list[Payload] = []
        for payload in payloads:
            try:
                decoded += await super().decode([payload])
            except NewerPayloadError:
                raise
            except PayloadError:
                decoded.append(payload)
        return decoded


def _invalid(message: str) -> ApplicationError:
    """Return the failure for an unreadable payload."""
    return ApplicationError(message, type="InvalidPayload", non_retryable=True)
