"""Names of tools compared: two spellings that a reader takes for the same tool are the same tool.

A list that forbids `email.send` is worth nothing if `Email.Send` passes it, nor if it can match no tool at all.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_PATTERN = re.compile(r"[*?\[\]{}|^$]")


@lru_cache(maxsize=4096)
def tool_key(name: str) -> str:
    """Return what a tool's name is compared by: without case, outer blanks and compatibility forms.

    Example:
        >>> tool_key(" Email.Send"), tool_key("ｅmail.send") == tool_key("email.send")
        ('email.send', True)
    """
    return unicodedata.normalize("NFKC", name).strip().casefold()


def tool_keys(names: Iterable[str]) -> frozenset[str]:
    """Return the keys of several names.

    Example:
        >>> sorted(tool_keys(["policy.search", "Policy.Search ", "crm.read"]))
        ['crm.read', 'policy.search']
    """
    return frozenset(map(tool_key, names))


def tool_set(names: Iterable[str], what: str, known: Iterable[str] = ()) -> frozenset[str]:
    """Return names of tools as a set, after checking that each can be the name of a tool.

    Args:
        names: The names.
        what: What lists them, for the message: `"forbidden"`.
        known: Tools that are known to exist; a name that is almost one of them is a typing mistake.

    Raises:
        TypeError: It is one string, or not every entry is one.
        ValueError: A name is blank, a pattern, or a misspelling of a known tool.

    Example:
        >>> sorted(tool_set(["email.send", "git.push"], "forbidden"))
        ['email.send', 'git.push']
        >>> tool_set(["git.*"], "forbidden")
        Traceback (most recent call last):
        ValueError: forbidden: 'git.*' is a pattern; tools are listed by name: name each of them
        >>> tool_set(["emial.send"], "forbidden", known=["email.send"])
        Traceback (most recent call last):
        ValueError: forbidden: there is no tool 'emial.send'; did you mean 'email.send'?
    """
    if isinstance(names, str):
        raise TypeError(f"{what}={names!r} is one string; write {what}=frozenset({{{names!r}}})")
    found = frozenset(names)
    keys = tool_keys(known)
    for name in sorted(found, key=str):
        if not isinstance(name, str):
            raise TypeError(f"{what}: {name!r} is not the name of a tool; expected a string")
        if not name.strip():
            raise ValueError(f"{what}: {name!r} is blank; write the name of a tool")
        if _PATTERN.search(name):
            raise ValueError(f"{what}: {name!r} is a pattern; tools are listed by name: name each of them")
        near = difflib.get_close_matches(tool_key(name), keys, n=1, cutoff=0.9)
        if near and tool_key(name) not in keys:
            raise ValueError(f"{what}: there is no tool {name!r}; did you mean {near[0]!r}?")
    return found
