"""How values become payloads: pydantic JSON, sealed, compressed, encrypted, large ones outside the history."""

import asyncio
import copy
import dataclasses
import itertools
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
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
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
from baton.errors import ArtifactCorruptError, ArtifactError, NewerPayloadError, PayloadError, PayloadTooLargeError
from baton.handoff.sealed import SealedAction, SealError, UnverifiedHandoff
from baton.handoff.store_signing import open_sealed, seal_json
from baton.keys.store_keyring import Keyring, KeySource
from baton.wire.json_values import count_containers
from baton.wire.text import describe_faults

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


RECORD = "baton-record"
"""The metadata member by which a payload says that it is a handoff."""
TO_SEAL = b"handoff"
"""Its value as the converter writes it: one to be sealed as it leaves."""
SEALED = b"sealed-handoff"
"""Its value afterwards, and that of a received one that is passed on as it came: never sealed again."""
MOVE_TO_SEAL, SEALED_MOVE = b"move", b"sealed-move"
"""The same two of a move of an agent outside."""
FAULT = "baton-fault"
"""The metadata member by which the codec tells the converter why a move's seal does not hold; empty if it does."""

MOST_CONTAINERS = 100_000
"""A payload with more objects and lists is not read: it would hold up a workflow for longer than a task may take."""
LARGEST_INLINE = 2 * 1024 * 1024 - 64 * 1024
"""The most bytes of a payload without an artifact store: the server takes 2 MiB, with what goes around it."""


class _JsonConverter(PydanticJSONPlainPayloadConverter):
    """Pydantic JSON that knows handoffs by an attribute of their class, for the sandbox may have its own copy of it."""

    def to_payload(self, value: Any) -> Payload | None:
        """Return the payload of a value; a handoff's is marked."""
        sealed = getattr(type(value), "__baton_sealed__", None)
        if sealed is None:
            return super().to_payload(value)
        if sealed:  # absent members stay absent: a null would be another message
            data = value.__pydantic_serializer__.to_json(value, exclude_unset=True)
            record = MOVE_TO_SEAL if getattr(type(value), "__baton_move__", False) else TO_SEAL
        else:
            data, record = value.raw, SEALED
        return Payload(metadata={"encoding": _JSON, RECORD: record}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Return the value of a payload; a handoff's are its bytes, unverified, whatever the hint."""
        if payload.metadata.get(RECORD) == SEALED_MOVE:
            fault = payload.metadata.get(FAULT)
            return SealedAction(payload.data, None if fault is None else fault.decode())
        if type_hint is UnverifiedHandoff or RECORD in payload.metadata:
            return UnverifiedHandoff(payload.data)
        return super().from_payload(payload, type_hint)


_SEALED_AS = {TO_SEAL: SEALED, MOVE_TO_SEAL: SEALED_MOVE}
_JSON = b"json/plain"
_CONVERTERS = {**PydanticPayloadConverter().converters, _JSON: _JsonConverter()}


class BatonPayloadConverter(CompositePayloadConverter):
    """Pydantic JSON, with errors that say what was expected and never show the payload."""

    def __init__(self) -> None:
        self.converters = _CONVERTERS

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Convert payloads to values of the types asked for."""
        for payload, hint in itertools.zip_longest(payloads, (type_hints or ())[: len(payloads)]):
            _check_bounds(payload.data, hint)
        try:
            return super().from_payloads(payloads, type_hints)
        except FailureError:
            raise
        except ValidationError as error:
            raise _invalid(f"this is no {error.title}: {describe_faults(error, 'value')}") from None
        except Exception as error:
            encodings = sorted(
                {payload.metadata.get("encoding", b"").decode("utf-8", "replace") for payload in payloads}
            )
            raise _invalid(f"cannot read a payload with encoding {', '.join(encodings)}: {error}") from error


class InlinePayloadConverter(BatonPayloadConverter):
    """The same without an artifact store: what is too large for the server fails the step that sends it."""

    _compresses = True

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Convert values to payloads."""
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            size = len(payload.data)
            if size > LARGEST_INLINE and self._compresses:
                size = len(zlib.compress(payload.data, 1))
            if size > LARGEST_INLINE:
                raise PayloadTooLargeError(type(value).__name__, size, LARGEST_INLINE)
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
        raise ValueError("encrypt needs a keyring, for example keyring=Keyring.find_out(os.environ)")
    inline = InlinePayloadConverter if compress else _UncompressedPayloadConverter
    codec = (_EncryptingCodec if encrypt else _Codec)(compress=compress, keys=keys)
    return _DataConverter(
        payload_converter_class=BatonPayloadConverter if store is not None else inline,
        payload_codec=codec,
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes if encrypt else DefaultFailureConverter,
        external_storage=None if store is None else external_storage(store),
    )


def tell_of_clear_text(converter: DataConverter) -> None:
    """Have payloads that reach this converter in clear be told of, if it encrypts: for workers."""
    codec = converter.payload_codec
    if isinstance(codec, _EncryptingCodec) and codec.clear_text is None:
        codec.clear_text = ClearText()


def binds_to_workflow(converter: DataConverter) -> bool:
    """Return whether the converter is one of these and encrypts: then it wants to know a payload's workflow only."""
    return isinstance(converter, _DataConverter) and isinstance(converter.payload_codec, _EncryptingCodec)


@dataclasses.dataclass(frozen=True)
class _DataConverter(DataConverter):
    """A converter that binds a context only if it encrypts."""

    def with_context(self, context: SerializationContext) -> Self:
        codec = self.payload_codec
        if not isinstance(codec, _EncryptingCodec):
            return self
        clone = copy.copy(self)
        object.__setattr__(clone, "payload_codec", codec.with_context(context))
        return clone


class _Codec(CompressionCodec):
    """Seals and compresses if asked to, and decodes what it can."""

    _encryption: EncryptionCodec | None = None
    _owner: SerializationContext | None = None

    def __init__(self, *, compress: bool, keys: KeySource) -> None:
        super().__init__()
        self._compress = compress
        self._keys = keys

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads as they are stored."""
        return [self._stored(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the payloads, decoded but for those that are damaged."""
        return [self._looked_at(self._read(payload)) for payload in payloads]

    def _stored(self, payload: Payload) -> Payload:
        if payload.metadata.get(RECORD) in _SEALED_AS and (keyring := self._keys.at_hand()) is not None:
            payload = _sealed(payload, keyring)
        return self._encode(payload) if self._compress else payload

    def _read(self, payload: Payload) -> Payload:
        try:
            if not is_encrypted(payload):
                return self._decode(payload)
            keyring = self._keys.at_hand()
            if keyring is None:
                raise MissingKeyError(
                    "a payload is encrypted, and there is no keyring: name it by BATON_KEYS; a program may give "
                    "BatonPlugin(keyring=…)"
                )
            return self._decode(self._encrypts(keyring).decrypt(payload))
        except (NewerPayloadError, MissingKeyError):
            raise
        except PayloadError:
            return payload

    def _encrypts(self, keyring: Keyring) -> EncryptionCodec:
        """Return what encrypts and decrypts, bound to what this codec is bound to."""
        if self._encryption is None:
            unbound = EncryptionCodec(keyring)
            self._encryption = unbound if self._owner is None else unbound.with_context(self._owner)
        return self._encryption

    def _looked_at(self, payload: Payload) -> Payload:
        """Return a payload, with what is wrong with its seal in the metadata if it is a move's."""
        if payload.metadata.get(RECORD) != SEALED_MOVE:
            return payload
        metadata = {name: value for name, value in payload.metadata.items() if name != FAULT}
        keyring = self._keys.at_hand()
        if keyring is not None:
            try:
                open_sealed(payload.data, keyring)
                metadata[FAULT] = b""
            except SealError as error:
                metadata[FAULT] = str(error).encode()
        return Payload(metadata=metadata, data=payload.data, external_payloads=payload.external_payloads)


class _EncryptingCodec(_Codec, WithSerializationContext):
    """The same, encrypting what it stores; the SDK tells it what each payload belongs to."""

    clear_text: "ClearText | None" = None

    def with_context(self, context: SerializationContext) -> Self:
        """Return the codec for what belongs to a workflow."""
        bound = copy.copy(self)
        bound._encryption = None if self._encryption is None else self._encryption.with_context(context)
        bound._owner = context
        return bound

    def _read(self, payload: Payload) -> Payload:
        if self.clear_text is not None and not is_encrypted(payload):
            self.clear_text.tell(self._owner)
        return super()._read(payload)

    def _stored(self, payload: Payload) -> Payload:
        return self._encrypts(self._keys.needed()).encrypt(super()._stored(payload))


def _sealed(payload: Payload, keyring: Keyring) -> Payload:
    """Return a handoff's payload, sealed; unchanged if it is not strict JSON."""
    try:
        data = seal_json(payload.data, keyring)
    except SealError:
        return payload
    sealed_as = _SEALED_AS[payload.metadata[RECORD]]
    return Payload(
        metadata={**payload.metadata, RECORD: sealed_as}, data=data, external_payloads=payload.external_payloads
    )


def _check_bounds(data: bytes, hint: Any) -> None:
    """Refuse a payload that would take its reader too long, before it is parsed."""
    most = getattr(hint, "__baton_most_bytes__", None)
    if most is not None and len(data) > most:
        raise _invalid(f"a {hint.__name__} of {len(data):,} bytes; at most {most:,} are read")
    count = count_containers(data, MOST_CONTAINERS)
    if count > MOST_CONTAINERS:
        raise _invalid(
            f"a payload with {count:,} objects and lists; at most {MOST_CONTAINERS:,} are read: put content into an "
            "artifact"
        )


def _invalid(message: str) -> ApplicationError:
    """Return the failure for an unreadable payload."""
    return ApplicationError(message, type="InvalidPayload", non_retryable=True)


MOST_TOLD = 10_000
"""Of so many workflows it is remembered that they were told of."""

log = logging.getLogger("baton.worker")


class ClearText:
    """Warns of payloads in clear, once for each workflow."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def tell(self, owner: SerializationContext | None) -> None:
        """Warn of a payload."""
        workflow_id: str | None = getattr(owner, "workflow_id", None)
        if workflow_id is None or workflow_id in self._told:
            return
        self._told[workflow_id] = None
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        log.warning(
            "the workflow %r has payloads in clear, though this worker encrypts: who sent them does not, unless they"
            " are from before encryption was switched on. Set BATON_ENCRYPT=true, and the keys, wherever runs are"
            " started, signalled or decided; a program says BatonPlugin(keyring=…, encrypt=True)",
            workflow_id,
        )
