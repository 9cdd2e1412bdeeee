"""Names of tools compared: two spellings that a reader takes for the same tool are the same tool.

A list that forbids `email.send` is worth nothing if `Email.Send` passes it.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache


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
