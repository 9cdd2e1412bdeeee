"""Keeping personal data out of the ledger, which forgets nothing: commitments instead of values.

A record is hashed for ever, so what may have to be erased never enters it in clear. In its place stands a
**commitment**, an HMAC under a random salt that is kept elsewhere: who has salt and value can prove what
was recorded; without the salt no one can test a guess, which a bare hash of an e-mail address would allow.
Erasing the salt (or the key of a ciphertext) changes no byte of any record (EAAPL-MAG006 §12.3).
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import rfc8785

from baton.wire.canonical import digest_of, pae

PERSONAL_DATA = "/personalDataPayload"
"""Where a handoff message carries personal data (§12.3)."""
FEWEST_SALT_BYTES = 16

_COMMITMENT = "baton/commitment/v1"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class RedactionPolicy:
    """Which members of a message hold personal data.

    Attributes:
        fields: JSON pointers (RFC 6901); a `*` stands for every member or item. An object that one leads to
            is redacted member by member, so that each can have a data subject of its own.
        is_sealed: Whether a value is ciphertext of the vault and may stay as it is; by default nothing is.
    """

    fields: frozenset[str] = frozenset({PERSONAL_DATA})
    is_sealed: Callable[[Any], bool] = lambda value: False


@dataclass(frozen=True)
class Opening:
    """What opens a commitment; it goes to the vault, under the data subject's key, and never into the ledger.

    Attributes:
        pointer: Where in the message the value was.
        salt: The random salt.
        value: The value.
    """

    pointer: str
    salt: bytes
    value: Any


@dataclass(frozen=True)
class Redaction:
    """A message that may be recorded, and what was taken out of it."""

    message: dict[str, Any]
    openings: tuple[Opening, ...]


def redact(message: dict[str, Any], policy: RedactionPolicy, salt: Callable[[str], bytes]) -> Redaction:
    """Return ``message`` with a commitment in place of each value that the policy names."""
    copy = _copied(message)
    openings = []
    for holder, name, pointer in list(_targets(copy, policy)):
        opening = Opening(pointer, salt(pointer), holder[name])
        holder[name] = {"commitment": commitment(opening)}
        openings.append(opening)
    return Redaction(copy, tuple(openings))


def in_clear(message: dict[str, Any], policy: RedactionPolicy) -> list[str]:
    """Return the pointers at which a message still holds personal data in clear; it must not be recorded then."""
    return [pointer for _, _, pointer in _targets(message, policy)]


def commitment(opening: Opening) -> str:
    """Return the commitment to a value at its place."""
    if len(opening.salt) < FEWEST_SALT_BYTES:
        raise ValueError(f"a salt of {len(opening.salt)} bytes can be guessed: take {FEWEST_SALT_BYTES} random ones")
    value = rfc8785.dumps({"at": opening.pointer, "value": opening.value})
    return digest_of(hmac.digest(opening.salt, pae(_COMMITMENT, value), hashlib.sha256))


def opens(recorded: Any, opening: Opening) -> bool:
    """Return whether ``opening`` is what stood in a message in place of the ``recorded`` commitment."""
    return is_commitment(recorded) and hmac.compare_digest(recorded["commitment"], commitment(opening))


def is_commitment(value: Any) -> bool:
    """Return whether a value is a commitment and nothing else."""
    return (
        isinstance(value, dict) and value.keys() == {"commitment"} and bool(_DIGEST.fullmatch(str(value["commitment"])))
    )


def _targets(message: Any, policy: RedactionPolicy) -> Iterator[tuple[Any, Any, str]]:
    """Yield the holder, the name in it, and the pointer of each value that is still in clear."""
    for field in sorted(policy.fields):
        for holder, name, pointer in _at(message, field.split("/")[1:], ""):
            value = holder[name]
            if isinstance(value, dict) and not _is_safe(value, policy):
                inner = [(value, member, f"{pointer}/{_escaped(member)}") for member in value]
            else:
                inner = [(holder, name, pointer)]
            yield from (found for found in inner if not _is_safe(found[0][found[1]], policy))


def _at(holder: Any, path: list[str], pointer: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield every place that a pointer leads to."""
    if not path:
        return
    head, *rest = path
    if isinstance(holder, dict):
        wanted = head.replace("~1", "/").replace("~0", "~")
        names: list[Any] = list(holder) if head == "*" else [wanted] if wanted in holder else []
    elif isinstance(holder, list):
        names = [place for place in range(len(holder)) if head in ("*", str(place))]
    else:
        return
    for name in names:
        here = f"{pointer}/{_escaped(str(name))}"
        if rest:
            yield from _at(holder[name], rest, here)
        else:
            yield holder, name, here


def _is_safe(value: Any, policy: RedactionPolicy) -> bool:
    """Return whether a value tells nothing about anybody."""
    return value in (None, {}, []) or is_commitment(value) or policy.is_sealed(value)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _copied(value: Any) -> Any:
    """Return a deep copy of JSON."""
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
