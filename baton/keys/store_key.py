"""One key: a secret with a name, one purpose, and by that one algorithm."""

import hashlib
import hmac
import string
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from secrets import token_bytes, token_hex
from typing import NoReturn, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from baton.errors import BatonError
from baton.keys.store_public import PublicKey

SECRET_BYTES = 32
"""How long a new secret is, and how long any must be at least: 256 bits."""

MARK_BYTES = 4
"""How long a key's mark is."""

LONGEST_ID = 80
"""How many characters a key's id may have."""

_ID_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.")
_FEWEST_DIFFERENT = 12  # 32 random bytes have fewer different ones less often than once in 10**18 keys


class KeyringError(BatonError):
    """Keys are missing, weak, open to others, or not written as they should be; the text says what to do."""


class UnknownKeyError(KeyringError):
    """There is no key of that id for that purpose. It may come back, so what needs it is worth trying again."""


class Purpose(StrEnum):
    """What a key is for, and by that, with which algorithm."""

    SEAL = "seal"
    """Seals handoffs with HMAC-SHA256: who can verify can also seal."""
    SIGN = "sign"
    """Signs handoffs and the ledger's heads with Ed25519: others verify with the public key."""
    ENCRYPT = "encrypt"
    """Encrypts payloads with AES-256-GCM."""
    WRAP = "wrap"
    """Wraps the keys of the vault's subjects (AES key wrap, RFC 3394)."""
    INDEX = "index"
    """Makes the pseudonyms of the subject index with HMAC-SHA256."""


_ANY_LENGTH = frozenset({Purpose.SEAL, Purpose.INDEX})


@dataclass(frozen=True)
class Key:
    """One secret with its name and its purpose; never shown with the secret.

    Attributes:
        id: Names the key, also in what it made.
        purpose: What it is for.
        secret: At least 32 bytes; exactly 32 but for the two HMACs, which take longer ones.
        created_at: Since when it exists.
        retired_at: Since when it makes nothing new; None while it may.
    """

    id: str
    purpose: Purpose
    secret: bytes = field(repr=False)
    created_at: datetime
    retired_at: datetime | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= LONGEST_ID or not set(self.id) <= _ID_CHARACTERS:
            raise KeyringError(
                f"a key is named {self.id[:LONGEST_ID]!r}; a name has 1 to {LONGEST_ID} letters, digits, '-', '_', '.'"
            )
        size = len(self.secret)
        if size < SECRET_BYTES or (size > SECRET_BYTES and self.purpose not in _ANY_LENGTH):
            wanted = "at least" if self.purpose in _ANY_LENGTH else "exactly"
            raise KeyringError(
                f"the secret of key {self.id!r} has {size} bytes, and a key to {self.purpose.value} has {wanted} "
                f"{SECRET_BYTES}; make one with `baton keys new`"
            )
        if len(set(self.secret)) < _FEWEST_DIFFERENT:
            raise KeyringError(f"the secret of key {self.id!r} is not random; make one with `baton keys new`")
        for name, at in (("created_at", self.created_at), ("retired_at", self.retired_at)):
            if at is not None and at.tzinfo is None:
                raise KeyringError(f"{name} of key {self.id!r} has no offset from UTC; write it with a Z at its end")

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, as into a cache or to another process: the secret would be written down."""
        raise TypeError(
            f"the key {self.id!r} is not pickled, for its secret would be in it; have its reader open a keyring"
        )

    @classmethod
    def generate(cls, purpose: Purpose, at: datetime) -> Self:
        """Return a new random key; its id tells its purpose and the day it was made."""
        return cls(f"{purpose.value}-{at:%Y%m%d}-{token_hex(3)}", purpose, token_bytes(SECRET_BYTES), at)

    @cached_property
    def mark(self) -> bytes:
        """Four bytes by which a short text of ours names the key; two keys may have the same ones."""
        return hashlib.sha256(b"baton/key-mark/v1\0" + self.id.encode()).digest()[:MARK_BYTES]

    @cached_property
    def mac(self) -> hmac.HMAC:
        """An HMAC-SHA256 under the key that has taken nothing yet; take a copy."""
        return hmac.new(self.secret, digestmod="sha256")

    @cached_property
    def cipher(self) -> AESGCM:
        """The key as one that encrypts and decrypts."""
        if self.purpose is not Purpose.ENCRYPT:
            raise KeyringError(f"the key {self.id!r} is there to {self.purpose.value}, not to encrypt")
        return AESGCM(self.secret)

    @cached_property
    def private(self) -> Ed25519PrivateKey:
        """The key as one that signs."""
        if self.purpose is not Purpose.SIGN:
            raise KeyringError(f"the key {self.id!r} is there to {self.purpose.value}, not to sign")
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> PublicKey:
        """What others verify with."""
        raw = self.private.public_key().public_bytes_raw()
        return PublicKey(self.id, raw, self.created_at, self.retired_at)
