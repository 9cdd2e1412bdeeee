"""The payload codecs: one compresses, one encrypts with AES-256-GCM, bound to the payload's workflow."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from os import urandom
from typing import Self

from cryptography.exceptions import InvalidTag
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from baton.errors import NewerPayloadError, PayloadError
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import Key, KeyringError, Purpose, UnknownKeyError
from baton.wire.zstandard import load_dictionary, zstd

PREFIX = b"binary/zstd-"
"""How the metadata member `encoding` of a payload that this codec wrote begins; the dictionary's number follows."""

MAX_DECODED_BYTES = 64 * 1024 * 1024
"""A payload that would grow beyond this is refused: no honest one does, since Temporal takes 2 MiB."""

_JSON = b"json/plain"
_MIN_BYTES = 256
_LEVEL = 4  # measured on batons of 4 KB: level 3 gives 5 % more bytes, level 6 1 % fewer for twice the time
_CURRENT = b"1"
_FILES = {b"1": "dictionary-1.txt"}


class CompressionCodec(PayloadCodec):
    """Zstandard with a shared dictionary for JSON payloads of 256 bytes or more."""

    def __init__(self) -> None:
        # Made once: it holds the dictionary's tables. Each of its methods is safe among threads.
        self._compressor = zstd.ZstdCompressor(level=_LEVEL, zstd_dict=load_dictionary("baton.codec", _FILES[_CURRENT]))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return ``payloads``, each compressed if it is JSON and that makes it a tenth smaller."""
        return [self._encode(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return ``payloads`` as they were before `encode`; those of other encodings pass through."""
        return [self._decode(payload) for payload in payloads]

    def _encode(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != _JSON or len(payload.data) < _MIN_BYTES:
            return payload
        # One call for a whole frame: the compressor is back at its start when it returns.
        data = self._compressor.compress(payload.data, zstd.ZstdCompressor.FLUSH_FRAME)
        encoded = _with(payload, PREFIX + _CURRENT, data)
        return encoded if encoded.ByteSize() * 10 <= payload.ByteSize() * 9 else payload

    def _decode(self, payload: Payload) -> Payload:
        encoding = payload.metadata.get("encoding", b"")
        if not encoding.startswith(PREFIX):
            return payload
        number = encoding.removeprefix(PREFIX)
        if number not in _FILES:
            raise NewerPayloadError(
                f"a payload of encoding {encoding!r} needs the dictionary {number!r}, and this version "
                f"has {sorted(_FILES)}: upgrade temporal-baton to the version that wrote it, or later"
            )
        try:
            plain = _decompress(payload.data, load_dictionary("baton.codec", _FILES[number]))
        except zstd.ZstdError as error:
            raise PayloadError(
                f"a payload of encoding {encoding.decode()!r} is damaged ({len(payload.data)} bytes): {error}"
            ) from error
        return _with(payload, _JSON, plain)


def _with(payload: Payload, encoding: bytes, data: bytes) -> Payload:
    """Return a copy of ``payload`` with other data; its further metadata stay, readable."""
    if len(payload.metadata) == 1 and not payload.external_payloads:  # most have no further ones, and copying costs
        return Payload(metadata={"encoding": encoding}, data=data)
    metadata = {**payload.metadata, "encoding": encoding}
    return Payload(metadata=metadata, data=data, external_payloads=payload.external_payloads)


def _decompress(data: bytes, words: zstd.ZstdDict) -> bytes:
    """Return what the single frame ``data`` holds, never taking much more memory than the limit."""
    decompressor = zstd.ZstdDecompressor(zstd_dict=words)
    plain = decompressor.decompress(data, max_length=MAX_DECODED_BYTES + 1)
    if len(plain) > MAX_DECODED_BYTES:
        raise PayloadError(
            f"a compressed payload (encoding {PREFIX.decode()}…) would grow from {len(data)} bytes to more than "
            f"{MAX_DECODED_BYTES}; payloads of that size belong in the artifact store"
        )
    if not decompressor.eof or decompressor.unused_data:
        raise zstd.ZstdError("expected exactly one complete frame")
    return plain


ENCODING = b"aes-gcm"
"""The metadata member `encoding` of every payload that this codec writes."""

KEY_ID = "encryption-key-id"
"""The metadata member that names the key, in clear; the tag covers the name."""

SWITCH = "BATON_ENCRYPT"
"""The environment variable that switches encryption on, for workers, clients and codec servers alike."""

_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")
_NONCE_BYTES = 12
_OWNER_BYTES = 16
_TAG_BYTES = 16
# The first byte of the data: what follows it, and what the payload is bound to.
_UNBOUND, _BOUND = b"\x00", b"\x01"
# The namespace of the SDK's Replayer unless it is given one: what it reads was written elsewhere.
_REPLAYED = "ReplayNamespace"
# What Temporal appends to the workflow id of a schedule; the schedule's own payloads know the id without it.
_SCHEDULED = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


class MissingKeyError(PayloadError):
    """A payload is encrypted with a key that is not there; it can be read once the key is back."""


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """AES-256-GCM for payloads of every kind; those that are not encrypted pass when decoding."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._owners: tuple[bytes, ...] = ()

    def with_context(self, context: SerializationContext) -> Self:
        """Return the codec for what belongs to a workflow, or to an activity without one."""
        owners = _owners(context)
        if owners == self._owners:
            return self
        bound = type(self)(self._keyring)
        bound._owners = owners
        return bound

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return ``payloads``, each encrypted; those that are already stay as they are."""
        return [self.encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return ``payloads`` as they were before `encode`; those of other encodings pass through."""
        return [self.decrypt(payload) for payload in payloads]

    def encrypt(self, payload: Payload) -> Payload:
        """Return one payload, encrypted; see `encode`."""
        if is_encrypted(payload):
            return payload
        key = self._keyring.current(Purpose.ENCRYPT)
        nonce = urandom(_NONCE_BYTES)
        header = _BOUND + self._owners[0] if self._owners else _UNBOUND
        sealed = key.cipher.encrypt(nonce, payload.SerializeToString(deterministic=True), _associated(key, header))
        metadata = {"encoding": ENCODING, KEY_ID: key.id.encode()}
        return Payload(metadata=metadata, data=header + nonce + sealed, external_payloads=payload.external_payloads)

    def decrypt(self, payload: Payload) -> Payload:
        """Return one payload as it was; see `decode`."""
        if not is_encrypted(payload):
            return payload
        header, nonce, sealed = self._split(payload.data)
        try:
            key = self._keyring.find(Purpose.ENCRYPT, payload.metadata.get(KEY_ID, b"").decode("ascii", "replace"))
        except UnknownKeyError as error:
            raise MissingKeyError(
                f"a payload is encrypted, and {error}; what waits for it resumes once the key is back"
            ) from error
        try:
            return Payload.FromString(key.cipher.decrypt(nonce, sealed, _associated(key, header)))
        except (InvalidTag, DecodeError) as error:
            size = len(payload.data)
            raise PayloadError(f"a payload of {size} bytes, encrypted with the key {key.id!r}, was changed") from error

    def _split(self, data: bytes) -> tuple[bytes, bytes, bytes]:
        """Return what a payload is bound to, the nonce and the ciphertext."""
        kind = data[:1]
        if kind not in (_UNBOUND, _BOUND):
            raise NewerPayloadError(
                f"an encrypted payload is of the form {kind.hex()!r}, which this version does not know: upgrade "
                "temporal-baton to the version that wrote it, or later"
            )
        size = 1 if kind == _UNBOUND else 1 + _OWNER_BYTES
        if len(data) < size + _NONCE_BYTES + _TAG_BYTES:
            raise PayloadError(f"an encrypted payload has {len(data)} bytes: it was cut off")
        header = data[:size]
        if kind == _BOUND and self._owners and header[1:] not in self._owners:
            raise PayloadError("an encrypted payload belongs to another workflow than the one that it was found in")
        return header, data[size : size + _NONCE_BYTES], data[size + _NONCE_BYTES :]


def is_encrypted(payload: Payload) -> bool:
    """Return whether a payload is one that this codec wrote."""
    return bool(payload.metadata.get("encoding") == ENCODING)


def encryption_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether `BATON_ENCRYPT` is on."""
    value = environment.get(SWITCH, "").strip().lower()
    if value not in _YES + _NO:
        raise KeyringError(f"{SWITCH} is {value!r}; expected true or false")
    return value in _YES


def _owners(context: SerializationContext) -> tuple[bytes, ...]:
    """Return what payloads in a context are bound to: first what to write, then what else may be read."""
    if not isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
        return ()
    if context.namespace == _REPLAYED:
        return ()
    # An activity's payloads are its workflow's: what one of them wrote, the other reads.
    kind, owner = "workflow", context.workflow_id
    if not owner and isinstance(context, ActivitySerializationContext):
        kind, owner = "activity", context.activity_id
    if not owner:
        return ()
    owners = [_owner(kind, context.namespace, owner)]
    scheduled = _SCHEDULED.search(owner)
    if scheduled:
        owners.append(_owner(kind, context.namespace, owner[: scheduled.start()]))
    return tuple(owners)


def _owner(kind: str, namespace: str, name: str) -> bytes:
    return hashlib.sha256("\0".join((kind, namespace, name)).encode()).digest()[:_OWNER_BYTES]


def _associated(key: Key, header: bytes) -> bytes:
    """Return what the tag covers besides the ciphertext; each part of it ends where only it can end."""
    return b"\0".join((b"baton/payload/v1", ENCODING, key.id.encode(), header))
