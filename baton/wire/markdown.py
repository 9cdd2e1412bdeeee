"""Text of agents on a page that renders Markdown: tags, links and images in it are shown and not live."""

import re

_LIVE = re.compile(r"(?<!\\)((?:\\\\)*)([<\[\]@])")  # an even number of backslashes leaves what follows as it is
_BARE_LINK = re.compile(r":(?=//)|\bwww(?=\.)", re.IGNORECASE)


def inert(text: str) -> str:
    r"""Return ``text``, which may be Markdown, without anything that a reader's browser would load or follow.

    The Temporal UI shows entities as they are written, so a backslash is used, which is not shown. Emphasis, lists
    and headings stay.

    Args:
        text: The text.

    Example:
        >>> print(inert("see [the plan](https://evil.example) and <img src=x>"))
        see \[the plan\](https:\//evil.example) and \<img src=x>
    """
    return _BARE_LINK.sub(lambda found: found[0] + "\\", _LIVE.sub(r"\1\\\2", text))
