"""One key, with one purpose and by that one algorithm; and the public keys, which verifiers need and nothing else.

The file of public keys is a JWK Set (RFC 7517, RFC 8037), which other tools read too; two members of our own say since
when and until when each key signed.
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

from baton.core.messages import Decision
from baton.errors import BatonError
from baton.ledger.chain import Claim, SignatureCheck, from_base64url, to_base64url
from baton.pipelines.approvals import GROUP_PREFIX, normalize_name
from baton.wire.records import Record, Timestamp
from baton.wire.text import describe_faults

SECRET_BYTES = 32
"""How long a new secret is, and how long any must be at least: 256 bits."""

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
    def public(self) -> "PublicKey":
        """What others verify with."""
        raw = self.private.public_key().public_bytes_raw()
        return PublicKey(self.id, raw, self.created_at, self.retired_at)


RETIRED_GRACE = timedelta(days=1)
"""How long after a key was retired what it seals and signs may still be dated: workers take up a new key one by one."""

_SLICE = 256
"""How many signatures a thread verifies at a time."""


_FROM_TEXT = BeforeValidator(lambda value: from_base64url(value) if isinstance(value, str) else value)
Base64Url = Annotated[bytes, _FROM_TEXT]
"""Bytes that are written as base64url without padding."""
PublicBytes = Annotated[bytes, Field(min_length=32, max_length=32), _FROM_TEXT]
"""The bytes of an Ed25519 public key, written likewise."""


class PublicKeysError(BatonError):
    """What should be public keys is something else; the text says what to do."""


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
            found = _Jwk.model_validate(dict(jwk))
        except ValidationError as error:
            raise PublicKeysError(
                f"the key {jwk.get('kid')!r} is not an Ed25519 key of `baton keys public`: {describe_faults(error)}"
            ) from error
        return cls(found.kid, found.x, found.created_at, found.retired_at)


class _Jwk(BaseModel):
    """A public key as a JWK; other members are its readers' own."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel)

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    kid: str
    x: PublicBytes
    created_at: Timestamp
    retired_at: Timestamp | None = None


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


_MOST_BYTES = 1024 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)


class _Decider(Record):
    """A person's public key, as `decider_entry` writes it."""

    name: str
    id: str
    key: PublicBytes


class _DecidersFile(Record):
    """A file of deciders, as it is written."""

    decider: list[_Decider] = Field(default_factory=list)
    groups: dict[str, list[str]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Deciders:
    """The people who may decide, as a file says."""

    keys: Mapping[str, tuple[str, PublicKey]]
    groups: Mapping[str, frozenset[str]]

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return what a file of deciders says."""
        try:
            data = path.read_bytes()
            if len(data) > _MOST_BYTES:
                raise KeyringError(f"the file of deciders {str(path)!r} has more than {_MOST_BYTES:,} bytes")
            found = _DecidersFile.model_validate(tomllib.loads(data.decode()))
        except OSError as error:
            raise KeyringError(f"cannot read the file of deciders {str(path)!r}: {error.strerror}") from error
        except (ValidationError, ValueError, RecursionError) as error:
            why = describe_faults(error) if isinstance(error, ValidationError) else f"it is not TOML: {error}"
            raise KeyringError(
                f"the file of deciders {str(path)!r} is not as it should be: {why}. It has entries as "
                "`baton keys decider` prints them, and [groups] such as: leads = ['ann', 'bob']"
            ) from error
        keys = {one.id: (one.name, PublicKey(one.id, one.key, _EPOCH)) for one in found.decider}
        if len(keys) < len(found.decider):
            raise KeyringError(f"in the file of deciders {str(path)!r} two keys have one id")
        return cls(keys, {name: frozenset(map(normalize_name, people)) for name, people in found.groups.items()})

    def refusal(self, decision: Decision, who: list[str], *, proof: bool) -> str | None:
        """Return why a person may not decide, or None.

        It checks that the signature over the whole decision is of a key of that person, and that the person is one of
        those who may decide. It does not check what the decision is about, and without ``proof`` not who sent it.
        """
        name = decision.who
        if decision.signature is not None or proof:
            owner, key = self.keys.get(decision.key or "", (None, None))
            if key is None:
                return f"the key {(decision.key or '')[:80]!r} is not in the workers' file of deciders"
            if owner is None or normalize_name(owner) != normalize_name(name):
                return f"the key {key.id!r} is that of {owner}, and the decision says it is of {name!r}"
            try:
                signature = from_base64url(decision.signature or "")
                is_theirs = key.verifies(decision.statement, signature)
            except ValueError:  # not base64url, or an answer that has no canonical form
                is_theirs = False
            if not is_theirs:
                return f"the signature is not that of {owner}'s key {key.id!r} over this decision"
        groups = [name.removeprefix(GROUP_PREFIX) for name in who if name.startswith(GROUP_PREFIX)]
        if unknown := [group for group in groups if group not in self.groups]:
            return f"the workers' file of deciders has no group {unknown[0]!r}"
        if who and not any(self._is_of(name, one) for one in who):
            return f"{name!r} may not decide about {decision.approval!r}; {', '.join(who)} may"
        return None

    def _is_of(self, name: str, entry: str) -> bool:
        if entry.startswith(GROUP_PREFIX):
            return normalize_name(name) in self.groups[entry.removeprefix(GROUP_PREFIX)]
        return normalize_name(name) == normalize_name(entry)


def decider_entry(name: str, key: PublicKey) -> str:
    """Return the entry of a person's public key in the file of deciders."""
    text = json.dumps(name, ensure_ascii=False)
    return f'[[decider]]\nname = {text}\nid = "{key.id}"\nkey = "{to_base64url(key.raw)}"\n'
