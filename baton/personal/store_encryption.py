"""The vault's cryptography: random keys, wrapped for storage, and values bound to the place they were made for.

A subject's key is random and never derived: what can be derived again cannot be erased. It is stored wrapped (AES
key wrap, RFC 3394) under a key that is derived from the keyring's WRAP key *for that one place*, because key wrap
itself binds nothing: a wrapped key that is copied to another subject does not open there. Values are encrypted with
AES-256-GCM; subject, task, field, key and generation are authenticated with them (`security.md` §3.3).
"""

import base64
import json
import secrets
from dataclasses import dataclass
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from baton.keys.store_keyring import Key
from baton.personal.records import (
    PADDING,
    VERSION,
    DataKeyMissingError,
    ForeignCiphertextError,
    SealedField,
    VaultError,
)
from baton.wire.canonical import pae
from baton.wire.json_values import loads_strict

KEY_BYTES, WRAPPED_BYTES = 32, 40
MOST_ENCRYPTIONS = 2**32
"""How many values one key may encrypt with random nonces (NIST SP 800-38D §8.3)."""
MOST_BYTES = 2**31 - 17
"""How long one artifact may be: what the library encrypts in one piece."""

_WRAP, _VALUE = "baton/vault-wrap/v1", "baton/vault-value/v1"
_MAGIC = b"baton-sealed-1\n"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_LONGEST_HEAD = 1_000


@dataclass(frozen=True)
class KeyPlace:
    """The key and its subject, which everything that the key encrypts is bound to.

    Attributes:
        subject: The pseudonym.
        kid: The key's name, random.
        generation: 1 for the subject's first key.
    """

    subject: str
    kid: str
    generation: int


@dataclass(frozen=True)
class Context:
    """Where a value belongs.

    Attributes:
        task_id: The task.
        kind: `"field"` of a payload, or `"artifact"`.
        name: The field's or artifact's name.
    """

    task_id: str
    kind: str
    name: str


def new_kid() -> str:
    """Return a name for a new key."""
    return f"dk-{secrets.token_hex(8)}"


def new_key() -> bytes:
    """Return a new random key of 256 bits."""
    return secrets.token_bytes(KEY_BYTES)


def wrap(data_key: bytes, place: KeyPlace, wrapping: Key) -> bytes:
    """Return a subject's key as it is stored: 40 bytes."""
    return aes_key_wrap(_key_for(place, wrapping), data_key)


def unwrap(wrapped: bytes, place: KeyPlace, wrapping: Key) -> bytes:
    """Return a subject's key."""
    try:
        return aes_key_unwrap(_key_for(place, wrapping), wrapped)
    except InvalidUnwrap:
        raise DataKeyMissingError(
            f"the key {place.kid!r} of {place.subject!r} does not unwrap with {wrapping.id!r}: the vault's file is "
            "damaged or the keyring is another one; restore them, then try again"
        ) from None


def seal_value(value: Any, key: bytes, place: KeyPlace, context: Context) -> SealedField:
    """Return a JSON value, encrypted; its length shows only in steps of 32 bytes."""
    plain = rfc8785.dumps(value)
    plain = plain.ljust(-(-len(plain) // PADDING) * PADDING)  # blanks after a JSON text mean nothing
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, plain, _bound(place, context))
    return SealedField(kid=place.kid, n=_text(nonce), ct=_text(sealed))


def open_value(field: SealedField, key: bytes, place: KeyPlace, context: Context) -> Any:
    """Return the value of an encrypted field."""
    plain = _decrypted(key, base64.b64decode(field.n), base64.b64decode(field.ct), place, context)
    return loads_strict(plain)


def seal_data(data: bytes, key: bytes, place: KeyPlace, context: Context) -> bytes:
    """Return the bytes of an artifact, encrypted, with a head that says under which key."""
    if len(data) > MOST_BYTES:
        raise VaultError(f"{context.name!r} has {len(data)} bytes; at most {MOST_BYTES} are sealed in one piece")
    nonce = secrets.token_bytes(_NONCE_BYTES)
    head = rfc8785.dumps({"kid": place.kid, "subject": place.subject, "v": VERSION})
    return b"".join((_MAGIC, head, b"\n", nonce, AESGCM(key).encrypt(nonce, data, _bound(place, context))))


def read_head(sealed: bytes) -> tuple[str, str, int]:
    """Return the pseudonym and the key's name from sealed bytes, and where their ciphertext begins."""
    end = sealed.find(b"\n", len(_MAGIC), _LONGEST_HEAD)
    try:
        if not sealed.startswith(_MAGIC) or end < 0 or len(sealed) < end + 1 + _NONCE_BYTES + _TAG_BYTES:
            raise ValueError
        head = json.loads(sealed[len(_MAGIC) : end])
        subject, kid = head["subject"], head["kid"]
        if head["v"] != VERSION or not (isinstance(subject, str) and isinstance(kid, str)):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ForeignCiphertextError("these bytes are not a sealed artifact: they are cut, or never were one") from None
    return subject, kid, end + 1


def open_data(sealed: bytes, key: bytes, place: KeyPlace, context: Context) -> bytes:
    """Return the bytes of a sealed artifact."""
    *_, at = read_head(sealed)
    rest = memoryview(sealed)[at:]
    return _decrypted(key, bytes(rest[:_NONCE_BYTES]), rest[_NONCE_BYTES:], place, context)


def _decrypted(key: bytes, nonce: bytes, sealed: bytes | memoryview, place: KeyPlace, context: Context) -> bytes:
    try:
        return AESGCM(key).decrypt(nonce, sealed, _bound(place, context))
    except InvalidTag:
        raise ForeignCiphertextError(
            f"the {context.kind} {context.name!r} of {place.subject!r} does not belong here: it was changed, or moved "
            f"from another subject, task or {context.kind} than of task {context.task_id!r}"
        ) from None


def _bound(place: KeyPlace, context: Context) -> bytes:
    """Return what is authenticated with a value."""
    members: dict[str, Any] = {
        "generation": place.generation,
        "kid": place.kid,
        "kind": context.kind,
        "name": context.name,
        "subject": place.subject,
        "task": context.task_id,
        "v": VERSION,
    }
    return pae(_VALUE, rfc8785.dumps(members))


def _key_for(place: KeyPlace, wrapping: Key) -> bytes:
    """Return the wrapping key for one place."""
    members: dict[str, Any] = {"generation": place.generation, "kid": place.kid, "subject": place.subject}
    info = pae(_WRAP, rfc8785.dumps(members))
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(wrapping.secret)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
