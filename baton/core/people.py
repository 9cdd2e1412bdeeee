"""Names of people and groups, and the reasons that they give."""

import unicodedata
from collections.abc import Sequence

from baton.wire.text import is_visible

GROUP_PREFIX = "group:"
"""The prefix of a group's name in `who`."""
REQUESTER = "run:requester"
"""In `who`, the person for whom the run works."""


def normalize_name(name: str) -> str:
    """Return a name for comparison; case, width and blanks are ignored."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def resolve_requester(who: Sequence[str], requester: str | None) -> list[str]:
    """Return the names of deciders with the requester's own in place of `REQUESTER`.

    Raises:
        ValueError: `REQUESTER` decides, and the run has no requester, or one that is no person.
    """
    meant = [normalize_name(name) == REQUESTER for name in who]  # as names are compared, so that nobody can be it
    if not any(meant):
        return [*who]
    if requester is None:
        raise ValueError(f"who names {REQUESTER!r}, and the run has no requester: start it with one")
    if refusal := requester_refusal(requester):
        raise ValueError(f"who names {REQUESTER!r}: {refusal}")
    return [requester if is_meant else name for name, is_meant in zip(who, meant, strict=True)]


def requester_refusal(id: str) -> str | None:
    """Return why a requester's name is invalid, or None."""
    if normalize_name(id) == REQUESTER:
        return f"{id!r} stands for the requester; give the person's name"
    return name_refusal(id)


MAX_REASON_LENGTH = 10_000
"""The maximum length of a reason, in characters; a run keeps it to its end."""


_MAX_NAME_LENGTH, _MAX_QUOTE_LENGTH = 200, 60


def reason_refusal(why: str) -> str | None:
    """Return why a person's reason is invalid, or None."""
    if len(why) <= MAX_REASON_LENGTH:
        return None
    return f"the reason has {len(why):,} characters, and {MAX_REASON_LENGTH:,} is the most; shorten it"


def name_refusal(who: str) -> str | None:
    """Return why a person's name is invalid, or None; terminals, logs and records show it to others."""
    if len(who) > _MAX_NAME_LENGTH:
        return f"a person's name is recorded: give {_MAX_NAME_LENGTH} characters at most; found {len(who):,}"
    if normalize_name(who).startswith(GROUP_PREFIX):
        return f"{who[:_MAX_QUOTE_LENGTH]!a} is the name of a group, and a person decides; give the person's name"
    if is_visible(who) and who.strip():
        return None
    advice = "give it in one line, without control characters" if who.strip() else "give one"
    return f"a person's name is recorded: {advice}; found {who[:_MAX_QUOTE_LENGTH]!a}"
