"""Canonical JSON (RFC 8785), and the digests and signatures' inputs that are made over it."""

import hashlib
from typing import Any, Protocol, TypeVar

import rfc8785
from pydantic_core import PydanticSerializationError, to_json


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the canonical JSON (RFC 8785) of ``value``."""
    return "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()


_EXACT = 2**53  # whole numbers below it are exact doubles, and written as they are
_LEAST = 1e-3  # fractions from here on are written without an exponent
_FOUR_BYTES = bytes(range(0xF0, 0x100))


class _OddError(Exception):
    """A value that the two writers may write as different bytes."""


def canonical_json(value: dict[str, Any] | list[Any]) -> bytes:
    """Return the canonical form (RFC 8785) of an object or a list."""
    try:
        data = to_json(_in_order(value))
    except (_OddError, TypeError, PydanticSerializationError):
        return rfc8785.dumps(value)
    return data if len(data.translate(None, _FOUR_BYTES)) == len(data) else rfc8785.dumps(value)


def _in_order(value: Any) -> Any:
    """Return a value with its names in order, and its whole doubles as integers."""
    kind = type(value)
    if kind is dict:
        names = sorted(value)  # which refuses texts among other kinds of names
        if names and type(names[0]) is not str:
            raise _OddError
        # Most are texts, which are not worth a call.
        return {name: inner if type(inner := value[name]) is str else _in_order(inner) for name in names}
    if kind is list:
        return [inner if type(inner) is str else _in_order(inner) for inner in value]
    if kind is float:
        if value.is_integer() and -_EXACT < value < _EXACT:
            return int(value)
        if not _LEAST <= abs(value) < _EXACT:
            raise _OddError
    elif kind is int:
        if not -_EXACT < value < _EXACT:
            raise _OddError
    elif kind is not str and kind is not bool and value is not None:
        raise _OddError
    return value


def pae(purpose: str, body: bytes) -> bytes:
    """Return ``body`` bound to a purpose: the pre-authentication encoding of DSSE v1."""
    name = purpose.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(body), body)


_PIECE = 2_047
_LONG = 64 * 1024  # from here on others had better run meanwhile


class Hasher(Protocol):
    """What `hashlib` and `hmac` make."""

    def update(self, data: bytes, /) -> None:
        """Take more data."""


HasherT = TypeVar("HasherT", bound=Hasher)


def fed(hasher: HasherT, data: bytes) -> HasherT:
    """Return a hasher after it has taken ``data``."""
    if len(data) <= _PIECE or len(data) >= _LONG:
        hasher.update(data)
    else:
        for at in range(0, len(data), _PIECE):
            hasher.update(data[at : at + _PIECE])
    return hasher


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 of a message."""
    return fed(hashlib.sha256(), data).digest()


def digest_of(hashed: bytes) -> str:
    """Return a SHA-256 as the documents spell it: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashed.hex()


def hash_of(digest: str) -> bytes:
    """Return the 32 bytes that a digest spells; no bytes if it spells none."""
    algorithm, _, digits = digest.partition(":")
    return bytes.fromhex(digits) if algorithm == "sha256" and len(digits) == 64 else b""
