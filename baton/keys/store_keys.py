"""Secret keys, each with one purpose and so one algorithm; public keys for verifiers; and the file of deciders.

The file of public keys is a JWK Set (RFC 7517, RFC 8037). Two additional members say from when and until when each key
signed.
"""

import hmac
import json
import os
import string
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Annotated, Any, Literal, NoReturn, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from baton.core.people import GROUP_PREFIX, normalize_name
from baton.core.questions import Answer
from baton.errors import BatonError
from baton.keys.claims import Claim, SignatureCheck
from baton.wire.base64url import from_base64url, to_base64url
from baton.wire.records import Record, Timestamp
from baton.wire.text import describe_faults

SECRET_BYTES = 32
"""The length of a new secret, and the minimum length of any: 256 bits."""

MAX_ID_LENGTH = 80
"""The maximum length of a key's id."""

_ID_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.")
_MIN_DISTINCT_BYTES = 12  # 32 random bytes have fewer distinct values with a probability below 10**-18


class KeyringError(BatonError):
    """Keys are missing, weak, readable by others or malformed. The text says what to do."""


class UnknownKeyError(KeyringError):
    """There is no key with this id and purpose. It can be added later, so a retry can succeed."""


class Purpose(StrEnum):
    """The purpose of a key, which determines its algorithm."""

    SEAL = "seal"
    """Seals handoffs with HMAC-SHA256: anyone who can verify can also seal."""
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
    """A secret of 32 bytes, at least 32 for HMACs; its `repr` hides it. Retired, it only verifies and decrypts."""

    id: str
    purpose: Purpose
    secret: bytes = field(repr=False)
    created_at: datetime
    retired_at: datetime | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= MAX_ID_LENGTH or not set(self.id) <= _ID_CHARACTERS:
            raise KeyringError(
                f"the key id {self.id[:MAX_ID_LENGTH]!r} is invalid; expected 1 to {MAX_ID_LENGTH} letters, digits, "
                "'-', '_' or '.'"
            )
        size = len(self.secret)
        if size < SECRET_BYTES or (size > SECRET_BYTES and self.purpose not in _ANY_LENGTH):
            expected = "at least" if self.purpose in _ANY_LENGTH else "exactly"
            raise KeyringError(
                f"the secret of key {self.id!r} has {size} bytes, but a key to {self.purpose.value} needs {expected} "
                f"{SECRET_BYTES}; make one with `baton keys new`"
            )
        if len(set(self.secret)) < _MIN_DISTINCT_BYTES:
            raise KeyringError(f"the secret of key {self.id!r} is not random; make one with `baton keys new`")
        for name, at in (("created_at", self.created_at), ("retired_at", self.retired_at)):
            if at is not None and at.tzinfo is None:
                raise KeyringError(f"{name} of key {self.id!r} has no UTC offset; write it with a Z at the end")

    def __reduce__(self) -> NoReturn:
        """Refuse pickling, which would write the secret to a cache or another process."""
        raise TypeError(f"the key {self.id!r} cannot be pickled, because it holds a secret; open the keyring instead")

    @classmethod
    def generate(cls, purpose: Purpose, at: datetime) -> Self:
        """Return a new random key; its id contains its purpose and date."""
        return cls(f"{purpose.value}-{at:%Y%m%d}-{token_hex(3)}", purpose, token_bytes(SECRET_BYTES), at)

    @cached_property
    def mac(self) -> hmac.HMAC:
        """A fresh HMAC-SHA256 with the key; copy it before use."""
        return hmac.new(self.secret, digestmod="sha256")

    @cached_property
    def cipher(self) -> AESGCM:
        """The AES-GCM cipher of an encryption key."""
        if self.purpose is not Purpose.ENCRYPT:
            raise KeyringError(f"the key {self.id!r} is to {self.purpose.value}, not to encrypt")
        return AESGCM(self.secret)

    @cached_property
    def private(self) -> Ed25519PrivateKey:
        """The private half of a signing key."""
        if self.purpose is not Purpose.SIGN:
            raise KeyringError(f"the key {self.id!r} is to {self.purpose.value}, not to sign")
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> "PublicKey":
        """The public half of a signing key."""
        raw = self.private.public_key().public_bytes_raw()
        return PublicKey(self.id, raw, self.created_at, self.retired_at)


RETIRED_GRACE = timedelta(days=1)
"""How long after its retirement a key's seals and signatures stay valid, because workers reload keys one by one."""

_SLICE_SIZE = 256
"""How many signatures a thread verifies in one task."""


_FROM_TEXT = BeforeValidator(lambda value: from_base64url(value) if isinstance(value, str) else value)
Base64Url = Annotated[bytes, _FROM_TEXT]
"""Bytes, encoded as base64url without padding."""
PublicBytes = Annotated[bytes, Field(min_length=32, max_length=32), _FROM_TEXT]
"""The bytes of an Ed25519 public key, encoded likewise."""


class PublicKeysError(BatonError):
    """Public keys are malformed. The text says what to do."""


@dataclass(frozen=True)
class PublicKey:
    """The public half of an Ed25519 key."""

    id: str
    raw: bytes
    created_at: datetime
    retired_at: datetime | None = None

    @cached_property
    def _verifier(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)

    def verifies(self, statement: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is this key's signature over ``statement``; any bytes are accepted."""
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
        """Parse a JWK."""
        if "d" in jwk:
            raise PublicKeysError(f"the key {jwk.get('kid')!r} includes its private half; never share that")
        try:
            members = _Jwk.model_validate(dict(jwk))
        except ValidationError as error:
            raise PublicKeysError(
                f"the key {jwk.get('kid')!r} is not an Ed25519 key of `baton keys public`: {describe_faults(error)}"
            ) from error
        return cls(members.kid, members.x, members.created_at, members.retired_at)


class _Jwk(BaseModel):
    """A public key as a JWK; other members are ignored."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel)

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    kid: str
    x: PublicBytes
    created_at: Timestamp
    retired_at: Timestamp | None = None


class PublicKeys:
    """The public keys of a deployment, including retired ones; a `HeadVerifier`."""

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        all_keys = list(keys)
        self._keys = {key.id: key for key in all_keys}
        if len(self._keys) != len(all_keys):
            raise PublicKeysError("two public keys have the same id, so signatures would be ambiguous")

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key_id: str) -> PublicKey | None:
        """Return the key with this id, or None."""
        return self._keys.get(key_id)

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        """Check each signature, in order; many are verified in parallel threads."""
        if len(claims) <= _SLICE_SIZE:
            return [self._check(claim) for claim in claims]
        slices = [claims[start : start + _SLICE_SIZE] for start in range(0, len(claims), _SLICE_SIZE)]
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # OpenSSL releases the interpreter's lock
            return [check for checks in threads.map(self.check, slices) for check in checks]

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
        """Return the keys as a JWK Set."""
        return json.dumps({"keys": [key.to_jwk() for key in self._keys.values()]}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse a JWK Set."""
        try:
            jwks = [dict(jwk) for jwk in json.loads(text)["keys"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise PublicKeysError(
                "this is not a JWK Set: expected {'keys': […]} as `baton keys public` writes it"
            ) from error
        return cls(PublicKey.from_jwk(jwk) for jwk in jwks)


_MAX_BYTES = 1024 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)


class _Decider(Record):
    """A person's public key in the format of `decider_entry`."""

    name: str
    id: str
    key: PublicBytes


class _DecidersFile(Record):
    """The TOML file of deciders."""

    decider: list[_Decider] = Field(default_factory=list)
    groups: dict[str, list[str]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Deciders:
    """The people who may decide: their public keys, and their groups."""

    keys: Mapping[str, tuple[str, PublicKey]]
    groups: Mapping[str, frozenset[str]]

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a file of deciders."""
        try:
            data = path.read_bytes()
            if len(data) > _MAX_BYTES:
                raise KeyringError(f"the file of deciders {str(path)!r} is larger than {_MAX_BYTES:,} bytes")
            content = _DecidersFile.model_validate(tomllib.loads(data.decode()))
        except OSError as error:
            raise KeyringError(f"cannot read the file of deciders {str(path)!r}: {error.strerror}") from error
        except (ValidationError, ValueError, RecursionError) as error:
            problem = describe_faults(error) if isinstance(error, ValidationError) else f"it is not TOML: {error}"
            raise KeyringError(
                f"the file of deciders {str(path)!r} is malformed: {problem}; expected entries as printed by "
                "`baton keys decider`, and [groups] such as leads = ['ann', 'bob']"
            ) from error
        keys = {entry.id: (entry.name, PublicKey(entry.id, entry.key, _EPOCH)) for entry in content.decider}
        if len(keys) < len(content.decider):
            raise KeyringError(f"in the file of deciders {str(path)!r} two keys have the same id")
        return cls(keys, {name: frozenset(map(normalize_name, people)) for name, people in content.groups.items()})

    def refusal(self, answer: Answer, title: str, allowed: list[str], *, proof: bool) -> str | None:
        """Return why a person may not decide, or None.

        It checks that the person is ``allowed``, and that the signature over the whole answer is by their key. It
        does not check what the decision is about. Without ``proof`` it accepts an unsigned answer.
        """
        name = answer.who
        if answer.signature is not None or proof:
            owner, key = self.keys.get(answer.key or "", (None, None))
            if key is None:
                return f"the key {(answer.key or '')[:80]!r} is not in the workers' file of deciders"
            if owner is None or normalize_name(owner) != normalize_name(name):
                return f"the key {key.id!r} belongs to {owner}, but the decision claims to be by {name!r}"
            try:
                signature = from_base64url(answer.signature or "")
                valid = key.verifies(answer.statement, signature)
            except ValueError:  # not base64url, or an answer without a canonical form
                valid = False
            if not valid:
                return f"the signature over this decision is not by {owner}'s key {key.id!r}"
        groups = [entry.removeprefix(GROUP_PREFIX) for entry in allowed if entry.startswith(GROUP_PREFIX)]
        if unknown := [group for group in groups if group not in self.groups]:
            return f"the workers' file of deciders has no group {unknown[0]!r}"
        if allowed and not any(self._matches(name, entry) for entry in allowed):
            return f"{name!r} may not decide about {title!r}; {', '.join(allowed)} may"
        return None

    def _matches(self, name: str, entry: str) -> bool:
        if entry.startswith(GROUP_PREFIX):
            return normalize_name(name) in self.groups[entry.removeprefix(GROUP_PREFIX)]
        return normalize_name(name) == normalize_name(entry)


def decider_entry(name: str, key: PublicKey) -> str:
    """Return the entry for a person's public key in the file of deciders."""
    text = json.dumps(name, ensure_ascii=False)
    return f'[[decider]]\nname = {text}\nid = "{key.id}"\nkey = "{to_base64url(key.raw)}"\n'
