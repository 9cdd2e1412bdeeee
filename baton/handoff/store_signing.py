"""Sealing handoffs as they leave, and opening them where they arrive, before anything else looks at them.

A seal is HMAC-SHA256, or an Ed25519 signature, over the canonical form (RFC 8785) of the whole message but for its
member `signature`; which key made it, `keyId`, is inside. The key's purpose decides on the algorithm; the name of
the algorithm in the message must agree, and can never choose.
"""

import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import rfc8785
from rfc8785 import CanonicalizationError

from baton.errors import MalformedMessageError
from baton.handoff.sealed import ED25519, HMAC_SHA256, KEY_ID, SIGNATURE, SealError, VerifiedHandoff
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import RETIRED_GRACE, Key, PublicKey, PublicKeys, Purpose, UnknownKeyError
from baton.ledger.chain import from_base64url, to_base64url
from baton.wire.json_values import canonical_json, loads_strict

_NAMES = {Purpose.SEAL: HMAC_SHA256, Purpose.SIGN: ED25519}
_PURPOSES = {name: purpose for purpose, name in _NAMES.items()}


def seal(message: Mapping[str, Any], keyring: Keyring) -> bytes:
    """Return the sealed bytes of a message, with `keyId` and `signature` set; what it had of these is replaced."""
    key = keyring.current(keyring.seal_with)
    try:
        body = rfc8785.dumps(_body(message, key.id))
    except (CanonicalizationError, RecursionError) as error:
        raise SealError(f"the message cannot be sealed: {error}") from error
    return _sealed(body, key)


def seal_json(raw: bytes, keyring: Keyring) -> bytes:
    """Return the sealed bytes of a message that is JSON text already; several times faster than `seal`."""
    key = keyring.current(keyring.seal_with)
    return _sealed(canonical_json(_body(_read(raw, "the message cannot be sealed"), key.id)), key)


def open_sealed(raw: bytes, keys: Keyring | PublicKeys) -> VerifiedHandoff:
    """Return a message whose seal holds.

    It does not check the schema, the age, the audience, nor whether the message came before.

    Args:
        raw: The message as it was received.
        keys: All keys, or the public ones: those open what was sealed with Ed25519 only.

    Raises:
        SealError: It is not sealed, not with a key of ours, or not as it is now; or it is dated more than a day
            after its key was retired.
    """
    message = _read(raw, "the seal cannot be verified: the message")
    signature, key_id = message.get(SIGNATURE), message.get(KEY_ID)
    if signature is None:
        raise SealError("it is not sealed: it has no member 'signature'")
    name, _, _ = signature.partition(":") if isinstance(signature, str) else ("", "", "")
    purpose = _PURPOSES.get(name)
    if purpose is None:
        raise SealError(f"its signature is none of {', '.join(f'{one}:…' for one in _PURPOSES)}")
    if not isinstance(key_id, str):
        raise SealError("it does not say which key sealed it: it has no member 'keyId' that is a string")
    key = _find(keys, purpose, key_id)
    if key is None:
        raise SealError(_unknown(keys, purpose, key_id))
    body = canonical_json({member: value for member, value in message.items() if member != SIGNATURE})
    if not _holds(key, body, signature):
        raise SealError(
            f"its seal does not hold: key {key_id!r} did not seal this message as it is now, so it was changed on "
            "the way or sealed by somebody else"
        )
    return _opened(raw, message, key)


def _opened(raw: bytes, message: dict[str, Any], key: Key | PublicKey) -> VerifiedHandoff:
    """Return the verified message, unless it claims to be written after its key was retired."""
    if key.retired_at is not None:
        written = message.get("timestamp")
        try:
            late = not isinstance(written, str) or datetime.fromisoformat(written) > key.retired_at + RETIRED_GRACE
        except (ValueError, TypeError):  # no time, or one without its offset
            late = True
        if late:
            raise SealError(
                f"it was sealed with the key {key.id!r}, which was retired at {key.retired_at.isoformat()}, and is "
                f"not dated before that, nor within {RETIRED_GRACE} after it"
            )
    algorithm = ED25519 if isinstance(key, PublicKey) else _NAMES[key.purpose]
    return VerifiedHandoff(raw, message, key.id, algorithm)


def _body(message: Mapping[str, Any], key_id: str) -> dict[str, Any]:
    """Return what is sealed."""
    body = {**message, KEY_ID: key_id}
    body.pop(SIGNATURE, None)
    return body


def _sealed(body: bytes, key: Key) -> bytes:
    """Return a canonical body with its signature as the last member."""
    return b"".join((body[:-1], b',"signature":"', _signature(key, body).encode(), b'"}'))


def _signature(key: Key, body: bytes) -> str:
    """Return the member `signature` over a body."""
    if key.purpose is Purpose.SEAL:
        mac = key.mac.copy()
        mac.update(body)
        return f"{HMAC_SHA256}:{mac.hexdigest()}"
    return f"{ED25519}:{to_base64url(key.private.sign(body))}"


def _holds(key: Key | PublicKey, body: bytes, signature: str) -> bool:
    """Return whether the key made this signature over the body; takes equally long wherever they differ."""
    if isinstance(key, Key):
        if key.purpose is Purpose.SEAL:
            return hmac.compare_digest(_signature(key, body).encode(), signature.encode())
        key = key.public
    name, _, text = signature.partition(":")
    try:
        return name == ED25519 and key.verifies(body, from_base64url(text))
    except ValueError:
        return False


def _find(keys: Keyring | PublicKeys, purpose: Purpose, key_id: str) -> Key | PublicKey | None:
    """Return the key of that id if it is there for that purpose."""
    if isinstance(keys, PublicKeys):
        return keys.get(key_id) if purpose is Purpose.SIGN else None
    try:
        return keys.find(purpose, key_id)
    except UnknownKeyError:
        return None


def _unknown(keys: Keyring | PublicKeys, purpose: Purpose, key_id: str) -> str:
    if isinstance(keys, PublicKeys) and purpose is Purpose.SEAL:
        return "it is sealed with a shared secret (hmac-sha256), which public keys cannot verify"
    return f"it says that the key {key_id[:80]!r} sealed it, and there is no such key to {purpose.value}"


def _read(raw: bytes, failed: str) -> dict[str, Any]:
    """Return the object that strict JSON reads."""
    try:
        message = loads_strict(raw)
    except MalformedMessageError as error:
        raise SealError(f"{failed} is refused: {error}") from error
    if not isinstance(message, dict):
        raise SealError(f"{failed} is refused: it is a {type(message).__name__}, not an object")
    return message
