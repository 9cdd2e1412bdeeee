"""Versions of agents, and the ranges of them that a sender asks for.

Versions follow semver.org, ranges the syntax that npm made common: `>=1.5.0`, `^1.4`, `~2.1.0`, `1.x`,
`>=1.2 <3`, `1.0 - 1.9`, alternatives by `||`. A comma between two comparisons means the same as a blank.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from semantic_version import NpmSpec, Version

_NUMBER = "(0|[1-9][0-9]{0,8})"
_PART = "(0|[1-9][0-9]{0,8}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_PRERELEASE = rf"(-{_PART}(\.{_PART})*)"
_BUILD = r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)"
_BARE = rf"{_NUMBER}(\.{_NUMBER}(\.{_NUMBER}{_PRERELEASE}?|\.[xX*])?|\.[xX*](\.[xX*])?)?"
_ANY = r"((>=|=) *)?[xX*](\.[xX*]){0,2}"
_BLOCK = rf"({_ANY}|((>=|<=|>|<|=|\^|~) *)?{_BARE})"
_GROUP = rf"({_BARE} - {_BARE}|{_BLOCK}(( *, *| +){_BLOCK})*)"

VERSION = rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}{_PRERELEASE}?{_BUILD}?$"
"""The pattern of a version, for JSON Schema and Python alike."""
RANGE = rf"^{_GROUP}( *\|\| *{_GROUP})*$"
"""The pattern of a range of versions, for JSON Schema and Python alike."""
LONGEST = 200
"""How many characters a version or a range may have."""

_version, _range = re.compile(VERSION), re.compile(RANGE)
_BLANKS_AFTER_SIGN = re.compile(r"([<>=^~]) +")


@lru_cache(maxsize=1024)
def satisfies(version: str, wanted: str) -> bool:
    """Return whether a version lies in a range."""
    return _parsed_version(version) in _parsed_range(wanted)


def nearest(wanted: str, versions: Iterable[str]) -> str | None:
    """Return the version that comes closest to a range that none of them lies in; what an error can suggest."""
    _parsed_range(wanted)
    known = sorted(versions, key=_parsed_version)
    if not known:
        return None
    number = re.search(r"[0-9]+(\.[0-9]+)*", wanted)
    first = [int(part) for part in number[0].split(".")] if number else [0]
    floor = Version(".".join(str(part) for part in [*first, 0, 0][:3]))
    below = [version for version in known if _parsed_version(version) < floor]
    return below[-1] if below else known[0]


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return versions in order of their precedence, the newest first."""
    return sorted(versions, key=_parsed_version, reverse=True)


@lru_cache(maxsize=1024)
def _parsed_version(text: str) -> Version:
    if len(text) > LONGEST or not _version.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a version; write it as 1.6.0 or 2.0.0-rc.1 (semver.org)")
    return Version(text)


@lru_cache(maxsize=1024)
def _parsed_range(text: str) -> NpmSpec:
    if len(text) > LONGEST or not _range.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a range of versions; write it as >=1.5.0, ^1.4 or >=1.2 <3")
    return NpmSpec(" ".join(_BLANKS_AFTER_SIGN.sub(r"\1", text.replace(",", " ")).split()))
