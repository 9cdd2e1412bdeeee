"""Hashing messages without giving way to other threads, and how hashes are spelled.

The standard library lets other threads run while it hashes 2,048 bytes or more. A handoff is hashed in a few
microseconds, and getting the interpreter's lock back takes longer than that where workflow code wants it as well.
"""

import hashlib
from typing import Protocol, TypeVar

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
