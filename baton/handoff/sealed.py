"""Handoffs as bytes, before and after their seal was verified: two types, so that code cannot confuse them.

An `UnverifiedHandoff` holds bytes that anybody may have written. Only `baton.handoff.store_signing.open_sealed` makes
a `VerifiedHandoff`; as a payload it becomes bytes again, which are read back as unverified.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic_core import CoreSchema, core_schema

from baton.errors import HandoffError

HMAC_SHA256 = "hmac-sha256"
"""The algorithm of a seal with a shared secret: everybody who can verify it can make it."""
ED25519 = "ed25519"
"""The algorithm of a seal that a public key verifies."""

SIGNATURE = "signature"
KEY_ID = "keyId"
NAMESPACE = "namespace"
"""The member that names the Temporal namespace for which a message was sealed."""


class SealError(HandoffError):
    """A message is not sealed, or its seal does not hold; the text is the finding of a SIGNATURE_INVALID verdict.

    It never quotes the message, nor says what the right signature would be.
    """


class UnknownSealKeyError(SealError):
    """A seal names a key that is not known here; another worker may have it. Put the key back."""


class _NotFromJson:
    """A type that pydantic never builds from JSON with its fields."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.is_instance_schema(cls)


@dataclass(frozen=True, slots=True)
class UnverifiedHandoff(_NotFromJson):
    """A handoff as received; it may not even be JSON.

    Attributes:
        raw: The message, byte for byte.
    """

    raw: bytes

    __baton_sealed__: ClassVar[bool] = False  # as a payload it is sent unchanged, never sealed again

    def __repr__(self) -> str:
        return f"UnverifiedHandoff({len(self.raw)} bytes)"


@dataclass(frozen=True, slots=True, repr=False)
class SealedAction(UnverifiedHandoff):
    """An outside agent's action as received, and whether its seal holds.

    Attributes:
        raw: The action, byte for byte.
        fault: Why its seal does not hold; empty if it does, None if the worker has no key to verify it.
    """

    fault: str | None


@dataclass(frozen=True, slots=True)
class VerifiedHandoff(_NotFromJson):
    """A handoff whose seal holds: the holder of a key wrote exactly these bytes.

    Attributes:
        raw: The message, byte for byte.
        message: The bytes parsed as strict JSON, with the signature.
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
