"""Versions of agents, as semver.org writes them, and ranges of versions in npm's syntax.

A range is `>=1.5.0`, `^1.4`, `~2.1.0`, `1.x`, `>=1.2 <3`, `1.0 - 1.9`, or alternatives by `||`. A comma between two
comparisons is the same as a blank. Both patterns are published in JSON Schemas.
"""

import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

_NUMBER = "(0|[1-9][0-9]{0,8})"
_PART = "(0|[1-9][0-9]{0,8}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_PRERELEASE = rf"(-{_PART}(\.{_PART})*)"
_BUILD = r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)"
_BARE = rf"{_NUMBER}(\.{_NUMBER}(\.{_NUMBER}{_PRERELEASE}?|\.[xX*])?|\.[xX*](\.[xX*])?)?"
_ANY = r"((>=|=) *)?[xX*](\.[xX*]){0,2}"
_BLOCK = rf"({_ANY}|((>=|<=|>|<|=|\^|~) *)?{_BARE})"
_GROUP = rf"({_BARE} - {_BARE}|{_BLOCK}(( *, *| +){_BLOCK})*)"

VERSION = rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}{_PRERELEASE}?{_BUILD}?$"
"""The pattern of a version, for JSON Schema and Python."""
RANGE = rf"^{_GROUP}( *\|\| *{_GROUP})*$"
"""The pattern of a version range, for JSON Schema and Python."""
MAX_LENGTH = 200
"""The most characters of a version or a range."""

_version, _range = re.compile(VERSION), re.compile(RANGE)
_comparison = re.compile(r"(>=|<=|>|<|=|\^|~|) *([0-9xX*][0-9A-Za-z.*-]*)")


class _Version(NamedTuple):
    """A version, in the order of precedence; builds do not count."""

    major: int
    minor: int
    patch: int
    is_release: bool
    prerelease: tuple[tuple[bool, int, str], ...]


_Bound = tuple[Callable[[_Version, _Version], bool], _Version]


@lru_cache(maxsize=1024)
def satisfies(version: str, version_range: str) -> bool:
    """Return whether a version lies in a range; a prerelease only if the range names one of the same release."""
    parsed = _parse_version(version)
    return any(_fits(parsed, bounds) for bounds in _parse_range(version_range))


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return versions sorted by precedence, newest first."""
    return sorted(versions, key=_parse_version, reverse=True)


def _fits(version: _Version, bounds: list[_Bound]) -> bool:
    named = any(not bound.is_release and bound[:3] == version[:3] for _, bound in bounds)
    return (version.is_release or named) and all(compare(version, bound) for compare, bound in bounds)


@lru_cache(maxsize=1024)
def _parse_version(text: str) -> _Version:
    if len(text) > MAX_LENGTH or not _version.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a version; write it as 1.6.0 or 2.0.0-rc.1 (semver.org)")
    return _to_version(text.partition("+")[0])


def _to_version(text: str) -> _Version:
    """Return the version that a text names, with zeros for the numbers that are missing or may be any."""
    numbers, _, prerelease = text.partition("-")
    parts = [part for part in prerelease.split(".") if part]
    key = tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)
    return _of(_fixed(numbers))._replace(is_release=not parts, prerelease=key)


def _of(numbers: list[int]) -> _Version:
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return _Version(major, minor, patch, is_release=True, prerelease=())


def _fixed(text: str) -> list[int]:
    """Return the numbers that a text gives: one for `1.x`."""
    return [int(number) for number in text.partition("-")[0].split(".") if number.isdecimal()]


@lru_cache(maxsize=1024)
def _parse_range(text: str) -> list[list[_Bound]]:
    """Return the alternatives of a range."""
    if len(text) > MAX_LENGTH or not _range.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a range of versions; write it as >=1.5.0, ^1.4 or >=1.2 <3")
    return [_parse_group(group) for group in text.split("||")]


def _parse_group(group: str) -> list[_Bound]:
    low, hyphen, high = group.partition(" - ")
    comparisons = [(">=", low.strip()), ("<=", high.strip())] if hyphen else _comparison.findall(group)
    return [bound for sign, text in comparisons for bound in _bounds(sign, text)]


def _bounds(sign: str, text: str) -> list[_Bound]:
    """Return what one comparison asks of a version."""
    fixed, version = _fixed(text), _to_version(text)
    is_whole = len(fixed) == 3
    if not fixed:
        return [(operator.ge, version)]
    match sign:
        case "^":
            place = next((place for place, number in enumerate(fixed) if number), len(fixed) - 1)
            return [(operator.ge, version), (operator.lt, _after(fixed[: place + 1]))]
        case "~":
            return [(operator.ge, version), (operator.lt, _after(fixed[:2]))]
        case ">=":
            return [(operator.ge, version)]
        case ">":
            return [(operator.gt, version) if is_whole else (operator.ge, _after(fixed)._replace(is_release=True))]
        case "<":
            return [(operator.lt, version if is_whole else _first_of(version))]
        case "<=":
            return [(operator.le, version) if is_whole else (operator.lt, _after(fixed))]
        case _:
            return [(operator.eq, version)] if is_whole else [(operator.ge, version), (operator.lt, _after(fixed))]


def _after(numbers: list[int]) -> _Version:
    """Return a bound above all versions that begin with these numbers, and below the prereleases of the next."""
    return _first_of(_of([*numbers[:-1], numbers[-1] + 1]))


def _first_of(version: _Version) -> _Version:
    """Return a bound below all prereleases of a version."""
    return version._replace(is_release=False, prerelease=())
