"""What the vault's tests are made of: rotated keyrings, marked values, and a look into every file."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from baton.keys.store_keyring import Key, Keyring, Purpose

TASK = "5f0c1a52-7a3c-4a29-9c31-3a8f0b7a2b11"
SUBJECT = "customer-4711"
MARKER = "jane.marker@example.org"
NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


def rotated(keyring: Keyring, purpose: Purpose, *, keep: bool = True) -> Keyring:
    """Return a keyring with a new key of a purpose, and the old one retired or gone."""
    old = [replace(key, retired_at=key.retired_at or NOW) for key in keyring.all_keys(purpose)] if keep else []
    others = [key for key in keyring.all_keys() if key.purpose is not purpose]
    return Keyring([*others, *old, Key.generate(purpose, NOW)])


def everything_in(folder: Path) -> bytes:
    """Return the bytes of all files in a folder, journals included."""
    return b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def found_in(folder: Path, needles: Iterable[bytes]) -> int:
    """Return how many of the needles are in any file of a folder."""
    hay = everything_in(folder)
    return sum(needle in hay for needle in needles)
