"""A search for what must not be there: a marker, in every spelling that a careless layer would give it."""

import base64
import html
import json
from collections.abc import Mapping
from urllib.parse import quote

from baton.testing.surfaces import Surfaces

SHORTEST = 8
"""How many characters a marker must have at least; a shorter one is found by chance."""

Searched = Surfaces | str | bytes


def assert_not_seen(marker: str, *where: Searched) -> None:
    """Assert that a marker is on none of the surfaces, in no spelling.

    It is searched for as it is, in any case, JSON-escaped, HTML-escaped, percent-encoded, in UTF-16, in hexadecimal,
    and in base64 wherever it may begin. It is not found inside what is encrypted, compressed or split: give decoded
    surfaces, as `surfaces_of` does.

    Args:
        marker: A text that stands nowhere by chance, of 8 characters or more.
        where: What is searched: surfaces, or texts.

    Raises:
        AssertionError: It is there; the message has each place. Or there is nothing to search, which proves nothing.
        ValueError: The marker is too short.

    Example:
        >>> assert_not_seen("canary-7f3a", "## Baton: all is well")
        >>> assert_not_seen("canary-7f3a", "CANARY-7F3A")
        Traceback (most recent call last):
        ...
        AssertionError: the marker 'canary-7f3a' was seen in 1 of 1 places:
        - text 1, as it is
    """
    pieces = _pieces(where)
    if not any(pieces.values()):
        raise AssertionError(f"there is nothing to search for {marker!r}, which proves nothing")
    seen = sightings(marker, *where)
    if seen:
        listed = "\n".join(f"- {name}, {spelling}" for name, spelling in seen)
        raise AssertionError(f"the marker {marker!r} was seen in {len(seen)} of {len(pieces)} places:\n{listed}")


def assert_seen(marker: str, *where: Searched) -> None:
    """Assert that a marker is there: the control that shows that a search would have found it.

    Args:
        marker: As for `assert_not_seen`.
        where: What is searched.

    Raises:
        AssertionError: It is nowhere.
        ValueError: The marker is too short.

    Example:
        >>> assert_seen("canary-7f3a", b'{"said": "canary-7f3a"}')
    """
    if not sightings(marker, *where):
        raise AssertionError(f"the marker {marker!r} was not seen in any of {len(_pieces(where))} places")


def sightings(marker: str, *where: Searched) -> list[tuple[str, str]]:
    """Return where a marker is: the name of each piece, and in which spelling, the first that was found.

    Raises:
        ValueError: The marker is too short.

    Example:
        >>> sightings("canary-7f3a", base64.b64encode(b"see canary-7f3a!"))
        [('text 1', 'in base64')]
    """
    if len(marker) < SHORTEST:
        raise ValueError(f"the marker {marker!r} has {len(marker)} characters; it needs {SHORTEST} or more")
    spellings = _spellings(marker)
    found = []
    for name, content in _pieces(where).items():
        lowered = content.lower()
        for spelling, (any_case, exact) in spellings.items():
            if any(one in lowered for one in any_case) or any(one in content for one in exact):
                found.append((name, spelling))
                break
    return found


def _pieces(where: tuple[Searched, ...]) -> Mapping[str, bytes]:
    """Return what is searched, by name."""
    pieces: dict[str, bytes] = {}
    for number, one in enumerate(where, 1):
        if isinstance(one, Surfaces):
            pieces |= one.pieces
        else:
            pieces[f"text {number}"] = one.encode() if isinstance(one, str) else one
    return pieces


def _spellings(marker: str) -> dict[str, tuple[set[bytes], set[bytes]]]:
    """Return the spellings of a marker: those to be found in text in lower case, and those to be found as they are."""
    raw = marker.encode()
    cases = (marker, marker.lower(), marker.upper())  # bytes know the case of ASCII only
    escapes = (json.dumps, lambda text: json.dumps(text, ensure_ascii=False), html.escape, lambda text: quote(text, ""))
    escaped = {escape(one).strip('"') for escape in escapes for one in cases}
    encoded = {raw, *(marker.encode(name) for name in ("utf-16-le", "utf-16-be"))}
    return {
        "as it is": ({one.encode().lower() for one in cases}, set()),
        "escaped": ({one.encode().lower() for one in escaped}, set()),
        "in UTF-16": (set(), encoded - {raw}),
        "in hexadecimal": ({raw.hex().encode()}, set()),
        "in base64": (set(), {one for text in encoded for one in _in_base64(text)}),
    }


def _in_base64(text: bytes) -> set[bytes]:
    """Return what a text is in base64, beginning at any byte of three: the characters that it alone decides on."""
    found = set()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + text)
        first = (before * 8 + 5) // 6
        last = (before + len(text)) * 8 // 6
        standard = whole[first:last]
        found |= {standard, standard.translate(bytes.maketrans(b"+/", b"-_"))}
    return found
