"""What a signed head of the ledger claims, and who signs and checks it."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol


class SignatureCheck(StrEnum):
    """The result of checking a signature against a keyring; only `GOOD` is valid."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN_KEY = "unknown key"
    RETIRED_KEY = "key retired before the record"


class Claim(NamedTuple):
    """A signature to check: the key, the signed bytes, and the time of signing."""

    key_id: str
    statement: bytes
    signature: bytes
    at: datetime


class HeadVerifier(Protocol):
    """The public keys that verify heads and checkpoints, including retired keys."""

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        """Check each signature, in order."""


class HeadSigner(HeadVerifier, Protocol):
    """A private key that signs heads and checkpoints with Ed25519, and the public keys of its keyring."""

    @property
    def key_id(self) -> str:
        """The id of the public key for verifiers."""

    def sign(self, statement: bytes) -> bytes:
        """Return the signature over ``statement``."""
