"""Canonical JSON (RFC 8785), and the digests and signatures' inputs that are made over it."""

import hashlib
from typing import Any, Protocol, TypeVar

import rfc8785
from pydantic_core import PydanticSerializationError, to_json


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the canonical JSON (RFC 8785) of ``value``.

    Two values with the same members in another order have the same digest.

    Example:
        >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
        True
    """
    return "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()


_EXACT = 2**53  # whole numbers below it are exact doubles, and written as they are
_LEAST = 1e-3  # fractions from here on are written without an exponent
_FOUR_BYTES = bytes(range(0xF0, 0x100))


class _OddError(Exception):
    """A value that the two writers may write as different bytes."""


def canonical_json(value: dict[str, Any] | list[Any]) -> bytes:
    r"""Return the canonical form (RFC 8785) of an object or a list.

    Example:
        >>> canonical_json({"b": [1e-05, "é"], "a": 0.08})
        b'{"a":0.08,"b":[0.00001,"\xc3\xa9"]}'
    """
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
    """Return ``body`` bound to a purpose: the pre-authentication encoding of DSSE v1.

    Example:
        >>> pae("http://example.com/HelloWorld", b"hello world")
        b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
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
    """Return a hasher after it has taken ``data``.

    Example:
        >>> fed(hashlib.sha256(), b"x" * 5_000).digest() == hashlib.sha256(b"x" * 5_000).digest()
        True
    """
    if len(data) <= _PIECE or len(data) >= _LONG:
        hasher.update(data)
    else:
        for at in range(0, len(data), _PIECE):
            hasher.update(data[at : at + _PIECE])
    return hasher


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 of a message.

    Example:
        >>> digest_of(sha256(b"abc"))
        'sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
    """
    return fed(hashlib.sha256(), data).digest()


def digest_of(hashed: bytes) -> str:
    """Return a SHA-256 as the documents spell it: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashed.hex()


def hash_of(digest: str) -> bytes:
    """Return the 32 bytes that a digest spells; no bytes if it spells none.

    Example:
        >>> hash_of(digest_of(sha256(b"abc"))) == sha256(b"abc"), hash_of("sha256:ba78")
        (True, b'')
    """
    algorithm, _, digits = digest.partition(":")
    return bytes.fromhex(digits) if algorithm == "sha256" and len(digits) == 64 else b""
