"""The payload codecs: compression, and encryption with AES-256-GCM that is bound to the payload's workflow."""

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
"""The prefix of the metadata member `encoding` of compressed payloads; the dictionary's number follows."""

MAX_DECODED_BYTES = 64 * 1024 * 1024
"""The maximum size of a decompressed payload; Temporal limits payloads to 2 MiB."""

_JSON = b"json/plain"
_MIN_BYTES = 256
_LEVEL = 4  # measured on batons of 4 KB: level 3 gives 5 % more bytes, level 6 1 % fewer for twice the time
_CURRENT = b"1"
_FILES = {b"1": "dictionary-1.txt"}


class CompressionCodec(PayloadCodec):
    """Zstandard with a shared dictionary for JSON payloads of 256 bytes or more."""

    def __init__(self) -> None:
        # Created once, because it holds the dictionary's tables; it is thread-safe.
        self._compressor = zstd.ZstdCompressor(level=_LEVEL, zstd_dict=load_dictionary("baton.codec", _FILES[_CURRENT]))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Compress JSON payloads that become at least a tenth smaller."""
        return [self._encode(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return ``payloads`` as they were before `encode`; those of other encodings pass through."""
        return [self._decode(payload) for payload in payloads]

    def _encode(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != _JSON or len(payload.data) < _MIN_BYTES:
            return payload
        # One call makes a whole frame and resets the compressor.
        data = self._compressor.compress(payload.data, zstd.ZstdCompressor.FLUSH_FRAME)
        encoded = _replace_data(payload, PREFIX + _CURRENT, data)
        return encoded if encoded.ByteSize() * 10 <= payload.ByteSize() * 9 else payload

    def _decode(self, payload: Payload) -> Payload:
        encoding = payload.metadata.get("encoding", b"")
        if not encoding.startswith(PREFIX):
            return payload
        number = encoding.removeprefix(PREFIX)
        if number not in _FILES:
            raise NewerPayloadError(
                f"a payload of encoding {encoding!r} needs the dictionary {number!r}, but this version "
                f"has {sorted(_FILES)}: upgrade temporal-baton to the version that wrote it, or later"
            )
        try:
            plain = _decompress(payload.data, load_dictionary("baton.codec", _FILES[number]))
        except zstd.ZstdError as error:
            raise PayloadError(
                f"a payload of encoding {encoding.decode()!r} is damaged ({len(payload.data)} bytes): {error}"
            ) from error
        return _replace_data(payload, _JSON, plain)


def _replace_data(payload: Payload, encoding: bytes, data: bytes) -> Payload:
    """Return a copy of ``payload`` with other data; its other metadata stay."""
    if len(payload.metadata) == 1 and not payload.external_payloads:  # the usual case, without the cost of copying
        return Payload(metadata={"encoding": encoding}, data=data)
    metadata = {**payload.metadata, "encoding": encoding}
    return Payload(metadata=metadata, data=data, external_payloads=payload.external_payloads)


def _decompress(data: bytes, dictionary: zstd.ZstdDict) -> bytes:
    """Decompress a single frame, with limited memory."""
    decompressor = zstd.ZstdDecompressor(zstd_dict=dictionary)
    plain = decompressor.decompress(data, max_length=MAX_DECODED_BYTES + 1)
    if len(plain) > MAX_DECODED_BYTES:
        raise PayloadError(
            f"a compressed payload (encoding {PREFIX.decode()}…) of {len(data)} bytes decompresses to more than "
            f"{MAX_DECODED_BYTES}; payloads of that size belong in the artifact store"
        )
    if not decompressor.eof or decompressor.unused_data:
        raise zstd.ZstdError("expected exactly one complete frame")
    return plain


ENCODING = b"aes-gcm"
"""The metadata member `encoding` of encrypted payloads."""

KEY_ID = "encryption-key-id"
"""The metadata member with the key's id in clear; the tag covers it."""

SWITCH = "BATON_ENCRYPT"
"""The environment variable that enables encryption in workers, clients and codec servers."""

_ON, _OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")
_NONCE_BYTES = 12
_OWNER_BYTES = 16
_TAG_BYTES = 16
# The first byte of the data: whether the hash of the owner follows.
_UNBOUND, _BOUND = b"\x00", b"\x01"
# The default namespace of the SDK's Replayer, whose payloads come from another namespace.
_REPLAYED = "ReplayNamespace"
# The suffix that Temporal adds to a schedule's workflow id; the schedule's own payloads are bound to the id without it.
_SCHEDULED = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


class MissingKeyError(PayloadError):
    """The key of an encrypted payload is missing; the payload becomes readable when the key is added.

    Add it to the key file.
    """


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """AES-256-GCM for all payloads; decoding passes unencrypted ones through."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._owners: tuple[bytes, ...] = ()

    def with_context(self, context: SerializationContext) -> Self:
        """Return the codec for the payloads of a workflow, or of a standalone activity."""
        owners = _owner_hashes(context)
        if owners == self._owners:
            return self
        bound_codec = type(self)(self._keyring)
        bound_codec._owners = owners
        return bound_codec

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads; encrypted ones stay unchanged."""
        return [self.encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return ``payloads`` as they were before `encode`; those of other encodings pass through."""
        return [self.decrypt(payload) for payload in payloads]

    def encrypt(self, payload: Payload) -> Payload:
        """Encrypt one payload."""
        if is_encrypted(payload):
            return payload
        key = self._keyring.current(Purpose.ENCRYPT)
        nonce = urandom(_NONCE_BYTES)
        header = _BOUND + self._owners[0] if self._owners else _UNBOUND
        ciphertext = key.cipher.encrypt(
            nonce, payload.SerializeToString(deterministic=True), _associated_data(key, header)
        )
        metadata = {"encoding": ENCODING, KEY_ID: key.id.encode()}
        return Payload(metadata=metadata, data=header + nonce + ciphertext, external_payloads=payload.external_payloads)

    def decrypt(self, payload: Payload) -> Payload:
        """Decrypt one payload; unencrypted ones stay unchanged."""
        if not is_encrypted(payload):
            return payload
        header, nonce, ciphertext = self._split(payload.data)
        try:
            key = self._keyring.find(Purpose.ENCRYPT, payload.metadata.get(KEY_ID, b"").decode("ascii", "replace"))
        except UnknownKeyError as error:
            raise MissingKeyError(
                f"a payload is encrypted, but {error}; runs that need it resume when the key is added"
            ) from error
        try:
            return Payload.FromString(key.cipher.decrypt(nonce, ciphertext, _associated_data(key, header)))
        except (InvalidTag, DecodeError) as error:
            size = len(payload.data)
            raise PayloadError(f"a payload of {size} bytes, encrypted with the key {key.id!r}, was changed") from error

    def _split(self, data: bytes) -> tuple[bytes, bytes, bytes]:
        """Return the header with the owner, the nonce and the ciphertext."""
        kind = data[:1]
        if kind not in (_UNBOUND, _BOUND):
            raise NewerPayloadError(
                f"an encrypted payload has the unknown format {kind.hex()!r}: upgrade temporal-baton to the version "
                "that wrote it, or later"
            )
        size = 1 if kind == _UNBOUND else 1 + _OWNER_BYTES
        if len(data) < size + _NONCE_BYTES + _TAG_BYTES:
            raise PayloadError(f"an encrypted payload of {len(data)} bytes is truncated")
        header = data[:size]
        if kind == _BOUND and self._owners and header[1:] not in self._owners:
            raise PayloadError("an encrypted payload belongs to another workflow than the one it was found in")
        return header, data[size : size + _NONCE_BYTES], data[size + _NONCE_BYTES :]


def is_encrypted(payload: Payload) -> bool:
    """Return whether a payload is encrypted."""
    return bool(payload.metadata.get("encoding") == ENCODING)


def is_encryption_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether `BATON_ENCRYPT` is on."""
    value = environment.get(SWITCH, "").strip().lower()
    if value not in _ON + _OFF:
        raise KeyringError(f"{SWITCH} is {value!r}; expected true or false")
    return value in _ON


def _owner_hashes(context: SerializationContext) -> tuple[bytes, ...]:
    """Return the hashes of the owners in a context: the one to write, then others to accept in reading."""
    if not isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
        return ()
    if context.namespace == _REPLAYED:
        return ()
    # A workflow and its activities read each other's payloads, so both bind to the workflow.
    kind, owner = "workflow", context.workflow_id
    if not owner and isinstance(context, ActivitySerializationContext):
        kind, owner = "activity", context.activity_id
    if not owner:
        return ()
    owners = [_hash_owner(kind, context.namespace, owner)]
    scheduled = _SCHEDULED.search(owner)
    if scheduled:
        owners.append(_hash_owner(kind, context.namespace, owner[: scheduled.start()]))
    return tuple(owners)


def _hash_owner(kind: str, namespace: str, name: str) -> bytes:
    return hashlib.sha256("\0".join((kind, namespace, name)).encode()).digest()[:_OWNER_BYTES]


def _associated_data(key: Key, header: bytes) -> bytes:
    """Return the associated data of AES-GCM; only the last part can contain the separator."""
    return b"\0".join((b"baton/payload/v1", ENCODING, key.id.encode(), header))
