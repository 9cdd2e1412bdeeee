"""Public keys: all that somebody needs who verifies what a deployment signed, and holds none of its secrets.

Their file is a JWK Set (RFC 7517, RFC 8037), which other tools read too; two members of our own say since when and
until when each key signed.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from baton.errors import BatonError
from baton.ledger.chain import Claim, SignatureCheck, from_base64url, to_base64url

RETIRED_GRACE = timedelta(days=1)
"""How long after a key was retired what it seals and signs may still be dated: workers take up a new key one by one."""

_PUBLIC_BYTES = 32
_SLICE = 256
"""How many signatures a thread verifies at a time."""


class PublicKeysError(BatonError):
    """What should be public keys is something else; the text says what to do."""


@dataclass(frozen=True)
class PublicKey:
    """The public half of an Ed25519 key.

    Attributes:
        id: Names the key in what it signed.
        raw: Its 32 bytes.
        created_at: Since when it exists.
        retired_at: Since when it signs nothing new; None while it may.
    """

    id: str
    raw: bytes
    created_at: datetime
    retired_at: datetime | None = None

    @cached_property
    def _verifier(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)

    def verifies(self, statement: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` was made over ``statement`` with this key; any bytes may be asked about."""
        try:
            self._verifier.verify(signature, statement)
        except InvalidSignature:
            return False
        return True

    def to_jwk(self) -> dict[str, Any]:
        """Return the key as a JWK."""
        jwk = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id}
        jwk |= {"x": to_base64url(self.raw), "createdAt": self.created_at.isoformat()}
        return jwk if self.retired_at is None else jwk | {"retiredAt": self.retired_at.isoformat()}

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any]) -> Self:
        """Return the key that a JWK describes."""
        if "d" in jwk:
            raise PublicKeysError(f"the key {jwk.get('kid')!r} comes with its private half; keep that to yourself")
        try:
            if (jwk["kty"], jwk["crv"]) != ("OKP", "Ed25519"):
                raise PublicKeysError(f"the key {jwk.get('kid')!r} is not an Ed25519 key")
            retired = jwk.get("retiredAt")
            key = cls(
                str(jwk["kid"]),
                from_base64url(jwk["x"]),
                _aware(jwk["createdAt"]),
                None if retired is None else _aware(retired),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PublicKeysError(
                "a public key needs kty, crv, kid, x and createdAt, as `baton keys public` writes them; "
                f"found {sorted(jwk)}"
            ) from error
        if len(key.raw) != _PUBLIC_BYTES:
            raise PublicKeysError(f"the key {key.id!r} has {len(key.raw)} bytes; an Ed25519 key has {_PUBLIC_BYTES}")
        return key


class PublicKeys:
    """The public keys of a deployment, the retired ones among them; a `HeadVerifier`."""

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        given = list(keys)
        self._keys = {key.id: key for key in given}
        if len(self._keys) != len(given):
            raise PublicKeysError("two public keys have one id; which of them signed could not be told")

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key_id: str) -> PublicKey | None:
        """Return the key of that id, or None."""
        return self._keys.get(key_id)

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        """Return what each signature is worth, in order; many are verified in threads, one for each processor."""
        if len(claims) <= _SLICE:
            return [self._check(claim) for claim in claims]
        slices = [claims[at : at + _SLICE] for at in range(0, len(claims), _SLICE)]
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # OpenSSL verifies without the interpreter's lock
            return [check for some in threads.map(self.check, slices) for check in some]

    def _check(self, claim: Claim) -> SignatureCheck:
        key = self._keys.get(claim.key_id)
        if key is None:
            return SignatureCheck.UNKNOWN_KEY
        if not key.verifies(claim.statement, claim.signature):
            return SignatureCheck.BAD
        if key.retired_at is not None and claim.at > key.retired_at + RETIRED_GRACE:
            return SignatureCheck.RETIRED_KEY
        return SignatureCheck.GOOD

    def to_json(self) -> str:
        """Return the keys as the text of a JWK Set."""
        return json.dumps({"keys": [key.to_jwk() for key in self._keys.values()]}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the keys of a JWK Set."""
        try:
            members = json.loads(text)["keys"]
            jwks = [dict(one) for one in members]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise PublicKeysError(
                "this is not a JWK Set: expected {'keys': […]} as `baton keys public` writes it"
            ) from error
        return cls(PublicKey.from_jwk(one) for one in jwks)


def _aware(text: str) -> datetime:
    """Return a time that has its offset from UTC."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without its offset from UTC")
    return at
