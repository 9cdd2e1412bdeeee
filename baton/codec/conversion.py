"""The data converter: pydantic JSON, sealed, compressed, encrypted, with large payloads outside the history."""

import asyncio
import copy
import dataclasses
import logging
import zlib
from collections.abc import Sequence
from typing import Any, Self

from google.protobuf.message import DecodeError
from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    ExternalStorage,
    SerializationContext,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverSelectContext,
    StorageDriverStoreContext,
    WithSerializationContext,
)
from temporalio.exceptions import ApplicationError, FailureError

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.codec.encryption import CompressionCodec, EncryptionCodec, MissingKeyError, is_encrypted
from baton.codec.failures import BoundedFailureConverter, EncodedFailureConverter
from baton.core.past import SealCheck
from baton.errors import ArtifactCorruptError, ArtifactError, NewerPayloadError, PayloadError, PayloadTooLargeError
from baton.handoff.sealed import SealedAction, SealError, UnverifiedHandoff
from baton.handoff.store_signing import check_past, open_sealed, seal_json, seal_past
from baton.keys.store_keyring import Keyring, KeySource
from baton.wire.json_values import count_containers
from baton.wire.text import describe_faults

DRIVER = "baton-artifacts"
"""The driver's name in every stored reference; it must never change."""

_CLAIM = "sha256"


WORKERS_ABOVE_BYTES = 8 * 1024
"""A worker stores encoded payloads from this size in the artifact store: compressed, 16 KiB of text or more.

So histories stay small even if agents hand over long texts.
"""
CLIENTS_ABOVE_BYTES = 256 * 1024
"""A client does so only from this size, because the workers may have another store."""


def external_storage(store: ArtifactStore) -> ExternalStorage:
    """Return the external storage of a data converter for large payloads."""
    driver = ArtifactDriver(store)
    return ExternalStorage(drivers=[driver], driver_selector=driver.select, payload_size_threshold=WORKERS_ABOVE_BYTES)


def use_worker_threshold(converter: DataConverter) -> None:
    """Set the workers' threshold for external storage on a converter."""
    for driver in converter.external_storage.drivers if converter.external_storage else ():
        if isinstance(driver, ArtifactDriver):
            driver.above = WORKERS_ABOVE_BYTES


class ArtifactDriver(StorageDriver):
    """Temporal's storage driver for an artifact store: a payload from ``above`` bytes on is stored under its hash."""

    def __init__(self, store: ArtifactStore, above: int = CLIENTS_ABOVE_BYTES) -> None:
        self.above = above
        self._store = store

    def name(self) -> str:
        """Return `"baton-artifacts"`."""
        return DRIVER

    def select(self, context: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        """Return this driver for a payload to store outside the history."""
        return self if payload.ByteSize() >= self.above else None

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store each payload, and return its SHA-256 as the claim."""
        serialized = [payload.SerializeToString(deterministic=True) for payload in payloads]
        if activity.in_activity():  # wait for the store, because its work is done; a client gets the error at once
            hashes = await asyncio.gather(*(put_when_possible(self._store, data) for data in serialized))
        else:
            hashes = await asyncio.gather(*(self._store.put(data) for data in serialized))
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
                f"a reference of driver {DRIVER!r} has the members {sorted(claim.claim_data)}, but not {_CLAIM!r}; "
                "this driver did not write it"
            )
        data = await self._store.get(sha256)
        try:
            return Payload.FromString(data)
        except DecodeError as error:
            raise ArtifactCorruptError(
                f"artifact {sha256!r} is intact but not a payload; the reference names the wrong artifact"
            ) from error


RECORD = "baton-record"
"""The metadata member that marks a payload as a handoff."""
UNSEALED = b"handoff"
"""Its value from the converter: the codec must seal it."""
SEALED = b"sealed-handoff"
"""Its value after sealing, and for a forwarded handoff, which is never sealed again."""
UNSEALED_ACTION, SEALED_ACTION = b"action", b"sealed-action"
"""The same two values for an outside agent's action."""
UNSEALED_PAST, SEALED_PAST = b"past", b"sealed-past"
"""The same two values for the input of a run that has a past."""
SEAL = "baton-seal"
"""The metadata member with the seal of a past; the data stay as they are, for readers in other languages."""
SEAL_CHECK = "baton-seal-check"
"""The metadata member with what came of verifying that seal, from codec to converter."""
FAULT = "baton-fault"
"""The metadata member with the fault of an action's seal, from codec to converter; empty if it is valid."""

MAX_CONTAINERS = 100_000
"""The maximum number of objects and lists in a payload; more could exceed the time of a workflow task."""
MAX_INLINE_BYTES = 2 * 1024 * 1024 - 64 * 1024
"""The maximum size of a payload without an artifact store: the server accepts 2 MiB including the envelope."""


class _JsonConverter(PydanticJSONPlainPayloadConverter):
    """Pydantic JSON that detects handoffs by a class attribute, because the sandbox has its own copies of classes."""

    def to_payload(self, value: Any) -> Payload | None:
        """Return the payload of a value, marked if it is a handoff."""
        sealed = getattr(type(value), "__baton_sealed__", None)
        if sealed is None:
            payload = super().to_payload(value)
            if payload is not None and getattr(type(value), "__baton_start__", False) and value.has_past:
                payload.metadata[RECORD] = UNSEALED_PAST
            return payload
        if sealed:  # unset members stay absent, because null would change the message
            data = value.__pydantic_serializer__.to_json(value, exclude_unset=True)
            record = UNSEALED_ACTION if getattr(type(value), "__baton_action__", False) else UNSEALED
        else:
            data, record = value.raw, SEALED
        return Payload(metadata={"encoding": _JSON, RECORD: record}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Return the value of a payload; of a handoff its unverified bytes, regardless of the hint."""
        if payload.metadata.get(RECORD) == SEALED_ACTION:
            fault = payload.metadata.get(FAULT)
            return SealedAction(payload.data, None if fault is None else fault.decode())
        is_past = payload.metadata.get(RECORD) in (UNSEALED_PAST, SEALED_PAST)
        if type_hint is UnverifiedHandoff or (RECORD in payload.metadata and not is_past):
            return UnverifiedHandoff(payload.data)
        value = super().from_payload(payload, type_hint)
        check = payload.metadata.get(SEAL_CHECK) if payload.metadata.get(RECORD) == SEALED_PAST else None
        if check is not None and getattr(type(value), "__baton_start__", False):
            return value.with_seal(SealCheck.model_validate_json(check))
        return value


_SEALED_AS = {UNSEALED: SEALED, UNSEALED_ACTION: SEALED_ACTION}
_JSON = b"json/plain"
_CONVERTERS = {**PydanticPayloadConverter().converters, _JSON: _JsonConverter()}


class BatonPayloadConverter(CompositePayloadConverter):
    """Pydantic JSON, with errors that name the expected type and never quote the payload."""

    def __init__(self) -> None:
        self.converters = _CONVERTERS

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Convert payloads to values of these types."""
        for payload in payloads:
            _check_bounds(payload.data)
        try:
            return super().from_payloads(payloads, type_hints)
        except FailureError:
            raise
        except ValidationError as error:
            raise _invalid_payload(f"expected {error.title}: {describe_faults(error, 'value')}") from None
        except Exception as error:
            encodings = sorted(
                {payload.metadata.get("encoding", b"").decode("utf-8", "replace") for payload in payloads}
            )
            raise _invalid_payload(f"cannot read a payload with encoding {', '.join(encodings)}: {error}") from error


class InlinePayloadConverter(BatonPayloadConverter):
    """The converter without an artifact store: payloads too large for the server raise an error."""

    _compresses = True

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Convert values to payloads."""
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            size = len(payload.data)
            if size > MAX_INLINE_BYTES and self._compresses:
                size = len(zlib.compress(payload.data, 1))
            if size > MAX_INLINE_BYTES:
                raise PayloadTooLargeError(type(value).__name__, size, MAX_INLINE_BYTES)
        return payloads


class _UncompressedPayloadConverter(InlinePayloadConverter):
    _compresses = False


def data_converter(
    store: ArtifactStore | None = None,
    *,
    compress: bool = True,
    keyring: Keyring | KeySource | None = None,
    encrypt: bool = False,
) -> DataConverter:
    """Return the data converter of clients, workers and replayers."""
    keys = keyring if isinstance(keyring, KeySource) else KeySource(keyring)
    if encrypt and not keys.has_keys:
        raise ValueError("encrypt needs a keyring, for example keyring=Keyring.from_environment(os.environ)")
    inline = InlinePayloadConverter if compress else _UncompressedPayloadConverter
    codec = (_EncryptingCodec if encrypt else _Codec)(compress=compress, keys=keys)
    return _DataConverter(
        payload_converter_class=BatonPayloadConverter if store is not None else inline,
        payload_codec=codec,
        failure_converter_class=EncodedFailureConverter if encrypt else BoundedFailureConverter,
        external_storage=None if store is None else external_storage(store),
    )


def in_namespace(converter: DataConverter, namespace: str) -> DataConverter:
    """Return the converter of a client: what it seals names the client's namespace. Other converters are kept."""
    if not isinstance(converter, _DataConverter):
        return converter
    clone, codec = copy.copy(converter), copy.copy(converter.payload_codec)
    assert isinstance(codec, _Codec)  # noqa: S101 - `data_converter` made it
    codec.namespace = namespace
    object.__setattr__(clone, "payload_codec", codec)
    return clone


def warn_of_clear_text(converter: DataConverter) -> None:
    """Make an encrypting worker's converter warn of payloads in clear."""
    codec = converter.payload_codec
    if isinstance(codec, _EncryptingCodec) and codec.clear_text is None:
        codec.clear_text = ClearText()


def can_seal(converter: DataConverter) -> bool:
    """Return whether this is Baton's converter, with keys that seal what it writes."""
    codec = converter.payload_codec
    return isinstance(codec, _Codec) and codec.has_keys


def binds_workflow(converter: DataConverter) -> bool:
    """Return whether this is Baton's converter with encryption, which binds payloads to their workflow only."""
    return isinstance(converter, _DataConverter) and isinstance(converter.payload_codec, _EncryptingCodec)


@dataclasses.dataclass(frozen=True)
class _DataConverter(DataConverter):
    """A converter that uses the context only if it encrypts."""

    def with_context(self, context: SerializationContext) -> Self:
        codec = self.payload_codec
        if not isinstance(codec, _EncryptingCodec):
            return self
        clone = copy.copy(self)
        object.__setattr__(clone, "payload_codec", codec.with_context(context))
        return clone


class _Codec(CompressionCodec):
    """Seals and optionally compresses payloads, and decodes them."""

    namespace: str | None = None
    """The namespace for which it seals; None outside a client."""
    _encryption: EncryptionCodec | None = None
    _owner: SerializationContext | None = None

    def __init__(self, *, compress: bool, keys: KeySource) -> None:
        super().__init__()
        self._compress = compress
        self._keys = keys

    @property
    def has_keys(self) -> bool:
        """Whether there are keys now."""
        return self._keys.find() is not None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encode payloads for storage."""
        return [self._store(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode payloads; damaged ones are returned unchanged."""
        return [self._check_seal(self._read(payload)) for payload in payloads]

    def _store(self, payload: Payload) -> Payload:
        if payload.metadata.get(RECORD) in _SEALED_AS and (keyring := self._keys.find()) is not None:
            payload = _seal(payload, keyring, self.namespace)
        if payload.metadata.get(RECORD) == UNSEALED_PAST and (keyring := self._keys.find()) is not None:
            metadata = {**payload.metadata, RECORD: SEALED_PAST, SEAL: seal_past(payload.data, keyring)}
            payload = Payload(metadata=metadata, data=payload.data, external_payloads=payload.external_payloads)
        return self._encode(payload) if self._compress else payload

    def _read(self, payload: Payload) -> Payload:
        try:
            if not is_encrypted(payload):
                return self._decode(payload)
            keyring = self._keys.find()
            if keyring is None:
                raise MissingKeyError(
                    "a payload is encrypted, but there is no keyring: set BATON_KEYS, or pass BatonPlugin(keyring=…) "
                    "in a program"
                )
            return self._decode(self._get_encryption(keyring).decrypt(payload))
        except (NewerPayloadError, MissingKeyError):
            raise
        except PayloadError:
            return payload

    def _get_encryption(self, keyring: Keyring) -> EncryptionCodec:
        """Return the encryption codec with this codec's context."""
        if self._encryption is None:
            unbound = EncryptionCodec(keyring)
            self._encryption = unbound if self._owner is None else unbound.with_context(self._owner)
        return self._encryption

    def _check_seal(self, payload: Payload) -> Payload:
        """Verify the seal of an action or a past, and put the result into the metadata."""
        if payload.metadata.get(RECORD) == SEALED_PAST:
            return self._check_past(payload)
        if payload.metadata.get(RECORD) != SEALED_ACTION:
            return payload
        metadata = {name: value for name, value in payload.metadata.items() if name != FAULT}
        keyring = self._keys.find()
        if keyring is not None:
            try:
                open_sealed(payload.data, keyring, self.namespace)
                metadata[FAULT] = b""
            except SealError as error:
                metadata[FAULT] = str(error).encode()
        return Payload(metadata=metadata, data=payload.data, external_payloads=payload.external_payloads)

    def _check_past(self, payload: Payload) -> Payload:
        keyring = self._keys.find()
        if keyring is None:
            check = SealCheck(fault="there is no keyring to verify it", unknown_key=True)
        else:
            check = check_past(payload.data, payload.metadata.get(SEAL, b""), keyring)
        metadata = {**payload.metadata, SEAL_CHECK: check.model_dump_json().encode()}
        return Payload(metadata=metadata, data=payload.data, external_payloads=payload.external_payloads)


class _EncryptingCodec(_Codec, WithSerializationContext):
    """The codec with encryption; the SDK passes the context of each payload."""

    clear_text: "ClearText | None" = None

    def with_context(self, context: SerializationContext) -> Self:
        """Return the codec for the payloads of a workflow."""
        bound = copy.copy(self)
        bound._encryption = None if self._encryption is None else self._encryption.with_context(context)
        bound._owner = context
        return bound

    def _read(self, payload: Payload) -> Payload:
        if self.clear_text is not None and not is_encrypted(payload):
            self.clear_text.warn(self._owner)
        return super()._read(payload)

    def _store(self, payload: Payload) -> Payload:
        return self._get_encryption(self._keys.require()).encrypt(super()._store(payload))


def _seal(payload: Payload, keyring: Keyring, namespace: str | None) -> Payload:
    """Return a handoff's payload, sealed; unchanged if it is not strict JSON."""
    try:
        data = seal_json(payload.data, keyring, namespace)
    except SealError:
        return payload
    sealed_as = _SEALED_AS[payload.metadata[RECORD]]
    return Payload(
        metadata={**payload.metadata, RECORD: sealed_as}, data=data, external_payloads=payload.external_payloads
    )


def _check_bounds(data: bytes) -> None:
    """Reject a payload that would take too long to parse."""
    count = count_containers(data, MAX_CONTAINERS)
    if count > MAX_CONTAINERS:
        raise _invalid_payload(
            f"a payload with {count:,} objects and lists; the maximum is {MAX_CONTAINERS:,}: put content into an "
            "artifact"
        )


def _invalid_payload(message: str) -> ApplicationError:
    """Return the failure for an unreadable payload."""
    return ApplicationError(message, type="InvalidPayload", non_retryable=True)


MAX_REMEMBERED = 10_000
"""The number of workflows for which a warning is remembered."""

log = logging.getLogger("baton.worker")


class ClearText:
    """Warns of payloads in clear, once for each workflow."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}

    def warn(self, owner: SerializationContext | None) -> None:
        """Warn of a payload of this owner."""
        workflow_id: str | None = getattr(owner, "workflow_id", None)
        if workflow_id is None or workflow_id in self._warned:
            return
        self._warned[workflow_id] = None
        if len(self._warned) > MAX_REMEMBERED:
            del self._warned[next(iter(self._warned))]
        log.warning(
            "the workflow %r has payloads in clear, though this worker encrypts: their sender does not, or they are"
            " older than the encryption. Set BATON_ENCRYPT=true and the keys wherever runs are started, signalled or"
            " decided; in a program, pass BatonPlugin(keyring=…, encrypt=True)",
            workflow_id,
        )
