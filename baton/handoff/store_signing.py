"""Sealing handoffs when they leave, and opening them before any other code reads them.

A seal is HMAC-SHA256 or an Ed25519 signature over the canonical form (RFC 8785) of the message without its member
`signature`; `keyId` names the key, `namespace` the Temporal namespace, and both are covered. The key's purpose decides
the algorithm; the name of the algorithm in the message must agree with it, and never chooses it.
"""

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import rfc8785
from rfc8785 import CanonicalizationError

from baton.core.past import SealCheck
from baton.errors import MalformedMessageError
from baton.handoff.sealed import (
    ED25519,
    HMAC_SHA256,
    KEY_ID,
    NAMESPACE,
    SIGNATURE,
    SealError,
    UnknownSealKeyError,
    VerifiedHandoff,
)
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import RETIRED_GRACE, Key, PublicKey, PublicKeys, Purpose, UnknownKeyError
from baton.wire.base64url import from_base64url, to_base64url
from baton.wire.json_values import canonical_json, loads_strict

_ALGORITHMS = {Purpose.SEAL: HMAC_SHA256, Purpose.SIGN: ED25519}
_PURPOSES = {name: purpose for purpose, name in _ALGORITHMS.items()}


def seal(
    message: Mapping[str, Any], keyring: Keyring, namespace: str | None = None, *, purpose: Purpose | None = None
) -> bytes:
    """Return the sealed bytes of a message for a namespace; an existing `keyId` and `signature` are replaced.

    With `Purpose.SIGN` others can verify it, whatever the keyring seals handoffs with.
    """
    key = keyring.current(purpose or keyring.seal_with)
    try:
        body = rfc8785.dumps(_signed_body(message, key.id, namespace))
    except (CanonicalizationError, RecursionError) as error:
        raise SealError(f"the message cannot be sealed: {error}") from error
    return _append_signature(body, key)


def seal_json(raw: bytes, keyring: Keyring, namespace: str | None = None) -> bytes:
    """Return the sealed bytes of a message that is already JSON text; several times faster than `seal`."""
    key = keyring.current(keyring.seal_with)
    message = _read_object(raw, "the message cannot be sealed")
    return _append_signature(canonical_json(_signed_body(message, key.id, namespace)), key)


def seal_past(data: bytes, keyring: Keyring) -> bytes:
    """Return the seal of an input with a past: a sealed record of its digest and the time."""
    members = {_PAST: _digest(data), "timestamp": datetime.now(UTC).isoformat()}
    return seal(members, keyring)


def check_past(data: bytes, seal: bytes, keyring: Keyring) -> SealCheck:
    """Verify the seal of an input with a past; it never raises."""
    try:
        opened = open_sealed(seal, keyring).message
    except UnknownSealKeyError as error:
        return SealCheck(fault=str(error), unknown_key=True)
    except SealError as error:
        return SealCheck(fault=str(error))
    if opened.get(_PAST) != _digest(data):
        return SealCheck(fault="it was changed after it was sealed")
    return SealCheck(at=datetime.fromisoformat(opened["timestamp"]))


_PAST = "past"  # no handoff has such a member, so neither can stand for the other


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def open_sealed(raw: bytes, keys: Keyring | PublicKeys, namespace: str | None = None) -> VerifiedHandoff:
    """Return a message whose seal holds.

    It does not check the schema, the age, the audience, nor whether the message was received before.

    Args:
        raw: The message as received.
        keys: All keys, or the public ones, which open Ed25519 seals only.
        namespace: The Temporal namespace where it arrived, if it must have been sealed for that one.

    Raises:
        SealError: The message is not sealed, its key is unknown, its seal does not hold, it is dated more than a day
            after its key was retired, or it was not sealed for the namespace.
    """
    message = _read_object(raw, "the seal cannot be verified: the message")
    signature, key_id = message.get(SIGNATURE), message.get(KEY_ID)
    if signature is None:
        raise SealError("it is not sealed: it has no member 'signature'")
    algorithm, _, _ = signature.partition(":") if isinstance(signature, str) else ("", "", "")
    purpose = _PURPOSES.get(algorithm)
    if purpose is None:
        raise SealError(f"its signature is none of {', '.join(f'{name}:…' for name in _PURPOSES)}")
    if not isinstance(key_id, str):
        raise SealError("it does not say which key sealed it: it has no member 'keyId' that is a string")
    key = _find_key(keys, purpose, key_id)
    if key is None:
        raise UnknownSealKeyError(_unknown_key_text(keys, purpose, key_id))
    body = canonical_json({member: value for member, value in message.items() if member != SIGNATURE})
    if not _verify(key, body, signature):
        raise SealError(
            f"its seal does not hold: key {key_id!r} did not seal this message as it is now, so it was changed on "
            "the way or sealed by somebody else"
        )
    if namespace is not None and message.get(NAMESPACE) != namespace:
        raise SealError(f"it was not sealed for the namespace {namespace!r}, where it arrived, so it is a replay")
    return _check_retirement(raw, message, key)


def _check_retirement(raw: bytes, message: dict[str, Any], key: Key | PublicKey) -> VerifiedHandoff:
    """Return the verified message; raise if it is dated after its key was retired."""
    if key.retired_at is not None:
        written = message.get("timestamp")
        try:
            late = not isinstance(written, str) or datetime.fromisoformat(written) > key.retired_at + RETIRED_GRACE
        except (ValueError, TypeError):  # not a time, or without an offset
            late = True
        if late:
            raise SealError(
                f"it was sealed with the key {key.id!r}, which was retired at {key.retired_at.isoformat()}, and is "
                f"not dated before that, nor within {RETIRED_GRACE} after it"
            )
    algorithm = ED25519 if isinstance(key, PublicKey) else _ALGORITHMS[key.purpose]
    return VerifiedHandoff(raw, message, key.id, algorithm)


def _signed_body(message: Mapping[str, Any], key_id: str, namespace: str | None) -> dict[str, Any]:
    body = {**message, KEY_ID: key_id} | ({} if namespace is None else {NAMESPACE: namespace})
    body.pop(SIGNATURE, None)
    return body


def _append_signature(body: bytes, key: Key) -> bytes:
    """Return a canonical body with `signature` as its last member."""
    return b"".join((body[:-1], b',"signature":"', _sign(key, body).encode(), b'"}'))


def _sign(key: Key, body: bytes) -> str:
    if key.purpose is Purpose.SEAL:
        mac = key.mac.copy()
        mac.update(body)
        return f"{HMAC_SHA256}:{mac.hexdigest()}"
    return f"{ED25519}:{to_base64url(key.private.sign(body))}"


def _verify(key: Key | PublicKey, body: bytes, signature: str) -> bool:
    """Return whether the key made this signature over the body, in constant time for an HMAC."""
    if isinstance(key, Key):
        if key.purpose is Purpose.SEAL:
            return hmac.compare_digest(_sign(key, body).encode(), signature.encode())
        key = key.public
    algorithm, _, text = signature.partition(":")
    try:
        return algorithm == ED25519 and key.verifies(body, from_base64url(text))
    except ValueError:
        return False


def _find_key(keys: Keyring | PublicKeys, purpose: Purpose, key_id: str) -> Key | PublicKey | None:
    if isinstance(keys, PublicKeys):
        return keys.get(key_id) if purpose is Purpose.SIGN else None
    try:
        return keys.find(purpose, key_id)
    except UnknownKeyError:
        return None


def _unknown_key_text(keys: Keyring | PublicKeys, purpose: Purpose, key_id: str) -> str:
    if isinstance(keys, PublicKeys) and purpose is Purpose.SEAL:
        return "it is sealed with a shared secret (hmac-sha256), which public keys cannot verify"
    if isinstance(keys, PublicKeys):
        return f"the key {key_id[:80]!r} signed it, and it is not among the trusted public keys; add the signer's"
    return f"it says that the key {key_id[:80]!r} sealed it, and there is no such key to {purpose.value}"


def _read_object(raw: bytes, failure: str) -> dict[str, Any]:
    """Return the JSON object in ``raw``."""
    try:
        message = loads_strict(raw)
    except MalformedMessageError as error:
        raise SealError(f"{failure} is refused: {error}") from error
    if not isinstance(message, dict):
        raise SealError(f"{failure} is refused: it is a {type(message).__name__}, not an object")
    return message
