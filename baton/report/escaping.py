r"""What keeps an author's text apart from the report's own Markdown, and takes it away again.

No line of a text can open a block: what would be a heading, list, quote, rule, fence, table or HTML gets a
backslash, which Markdown does not show, and so do lines that the report's reader would take for its own. A line that
has such a backslash already gets one more, so that nothing is lost: `unescape(escape(text)) == text`.
"""

import re

from baton.report.titles import BOLD

# What models write for an empty list: "None", with or without a remark; "No blockers."; "No files were modified".
_EMPTY = r"""[*_`]{0,3}(?i:
    (?:none|n/a)[*_`]{0,3}[ \t]*(?:$|[.(:;,—–-])
  | no\ (?:open\ |new\ )?(?:blockers|questions|files|artifacts)(?:\ (?:or|and)\ (?:open\ )?questions)?
    (?:\ (?:were\ )?(?:identified|created|modified|changed))?[.!]?[*_`]{0,3}[ \t]*$
)"""
# A word or sign that means something at the beginning of a line, behind any number of backslashes.
_MEANS_SOMETHING = re.compile(
    rf"""^[ \t]*(?:
        [0-9]{{1,9}}(?=\\*[.)](?:[ \t]|$))                       # a numbered item; the backslash goes behind the number
      | (?=\\*(?:
            [#>|<=] | ``` | ~~~ | [-+*](?:[ \t]|$) | --        # heading, quote, table, HTML, fence, item, rule
          | (?:[-_*][ \t]*){{3,}}$                               # rule
          | [-:][-:|\ \t]*$                                    # second line of a table
          | \[[^\]\n]*\]:                                      # link definition
          | (?i:(?:\*\*|__)?(?:handoff\ confidence|ready\ for\ next\ phase))  # what stands below a report
          | {BOLD}                                             # what stands for a heading
          | {_EMPTY}                                           # an empty list
        ))
    )""",
    re.VERBOSE | re.MULTILINE,
)
_ESCAPED = re.compile(_MEANS_SOMETHING.pattern + r"\\", re.VERBOSE | re.MULTILINE)
_NOTHING = re.compile(_EMPTY, re.VERBOSE)
_TICKS = re.compile("`+")
_PIPE = re.compile(r"(?<!\\)(\\*)\|")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)", re.DOTALL)


def escape(text: str) -> str:
    r"""Return a text whose lines open no block of Markdown.

    Example:
        >>> print(escape("# not a heading\n1. no item"))
        \# not a heading
        1\. no item
    """
    return _MEANS_SOMETHING.sub(lambda match: f"{match[0]}\\", text)


def unescape(text: str) -> str:
    """Return the text that `escape` was given; one without such backslashes comes back unchanged."""
    return _ESCAPED.sub(lambda match: match[0][:-1], text)


def means_nothing(text: str) -> bool:
    """Return whether an item says that a list is empty: "None (exploration only)", or "No blockers." (C-27).

    Example:
        >>> means_nothing("None (exploration only)"), means_nothing("No files were created.")
        (True, True)
        >>> means_nothing("None of the tests ran"), means_nothing("No files of that name were found")
        (False, False)
    """
    return "\n" not in text and _NOTHING.match(text) is not None


def code_span(text: str) -> str:
    """Return a text as a code span, however many backticks are in it.

    Example:
        >>> print(code_span("a`b"))
        ``a`b``
    """
    ticks = "`" * (longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def without_code_span(text: str) -> str:
    """Return what is in a code span; a text that is not just one comes back as it is.

    Example:
        >>> without_code_span("`make test`"), without_code_span("`a.py` and `b.py`")
        ('make test', '`a.py` and `b.py`')
    """
    match = _CODE_SPAN.fullmatch(text)
    if not match or match[1] in _TICKS.findall(match[2]):  # two spans, and something between them
        return text
    inner = match[2]
    padded = inner.startswith(" ") and inner.endswith(" ") and inner.strip(" ")
    return inner[1:-1] if padded else inner


def longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max((len(run) for run in _TICKS.findall(text)), default=0)


def cell(text: str) -> str:
    r"""Return a line as the content of a table's cell: a pipe, and the backslashes before it, are escaped.

    Example:
        >>> print(cell("a | b"))
        a \| b
    """
    return _PIPE.sub(lambda match: match[1] * 2 + r"\|", text)


def cells(row: str) -> list[str]:
    r"""Return the contents of a table's row.

    Example:
        >>> cells(r"| `a \| b` | 1-5 | |")
        ['`a | b`', '1-5', '']
    """
    found, current, end = [], "", 0
    for match in _PIPE.finditer(row):
        slashes = len(match[1])
        current += row[end : match.start()] + "\\" * (slashes // 2)
        end = match.end()
        if slashes % 2:
            current += "|"
        else:
            found.append(current.strip(" \t"))
            current = ""
    found.append((current + row[end:]).strip(" \t"))
    first = 1 if row.lstrip(" \t").startswith("|") else 0
    last = -1 if len(found) > 1 and not found[-1] else None
    return found[first:last]
