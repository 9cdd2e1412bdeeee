"""Handoffs as bytes, before and after their seal was verified: of different types, so that no code mistakes them.

An `UnverifiedHandoff` holds bytes that anybody may have written. Only `baton.handoff.store_signing.open_sealed` makes
a `VerifiedHandoff`, and it does not survive a trip: as a payload it is bytes again, which read back as unverified.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic_core import CoreSchema, core_schema

from baton.errors import HandoffError

HMAC_SHA256 = "hmac-sha256"
"""The algorithm of a seal that everybody who can verify it could have made."""
ED25519 = "ed25519"
"""The algorithm of a seal that is verified with a public key."""

SIGNATURE = "signature"
KEY_ID = "keyId"


class SealError(HandoffError):
    """A message is not sealed, or its seal does not hold; the text is the finding of a SIGNATURE_INVALID verdict.

    It never quotes the message, and it does not tell what the right signature would be.
    """


class _NotFromJson:
    """What pydantic never makes out of JSON that happens to have its fields."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.is_instance_schema(cls)


@dataclass(frozen=True, slots=True)
class UnverifiedHandoff(_NotFromJson):
    """A handoff as it was received: nothing is known of it, not even that it is JSON.

    Attributes:
        raw: The message, byte for byte.
    """

    raw: bytes

    __baton_sealed__: ClassVar[bool] = False  # as a payload it travels as it is, and is never sealed on the way

    def __repr__(self) -> str:
        return f"UnverifiedHandoff({len(self.raw)} bytes)"


@dataclass(frozen=True, slots=True, repr=False)
class SealedAction(UnverifiedHandoff):
    """A move of an agent outside as it was received, and what the worker that received it found of its seal.

    Attributes:
        raw: The move, byte for byte.
        fault: Why its seal does not hold; empty if it does, None where the worker has no key to tell.
    """

    fault: str | None


@dataclass(frozen=True, slots=True)
class VerifiedHandoff(_NotFromJson):
    """A handoff whose seal holds: the holder of a key wrote exactly these bytes.

    Attributes:
        raw: The message, byte for byte.
        message: What strict JSON reads in these bytes, the signature among its members.
        key_id: The key that sealed it.
        algorithm: `"hmac-sha256"` or `"ed25519"`.
    """

    raw: bytes
    message: Mapping[str, Any] = field(repr=False)
    key_id: str
    algorithm: str

    __baton_sealed__: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"VerifiedHandoff({len(self.raw)} bytes, key {self.key_id!r}, {self.algorithm})"
