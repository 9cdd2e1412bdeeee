"""The names of a report's sections, as headings and as the bold lines that agents write in place of headings."""

import re

TITLE = "Agent Handoff Report"
_DISCOVERIES = "findings.discoveries"
SECTIONS = {
    "findings": _DISCOVERIES,  # a heading over others; what stands directly below it is what was found
    "summary": "summary",
    **dict.fromkeys(("key discoveries", "discoveries", "key findings"), _DISCOVERIES),
    **dict.fromkeys(("artifacts created", "files created"), "findings.artifactsCreated"),
    **dict.fromkeys(("artifacts modified", "files modified"), "findings.artifactsModified"),
    **dict.fromkeys(("relevant files", "key files"), "context.relevantFiles"),
    **dict.fromkeys(("patterns identified", "patterns"), "context.patterns"),
    **dict.fromkeys(("decisions made", "decisions", "key decisions"), "context.decisions"),
    **dict.fromkeys(
        ("blockers open questions", "blockers and open questions", "blockers", "open questions"), "blockers"
    ),
    **dict.fromkeys(("recommendations for next agent", "recommendations", "next steps"), "recommendations"),
    **dict.fromkeys(("verification commands", "verification", "how to verify"), "verificationCommands"),
}
"""The member of a report by the name of its section, as `plain` writes it."""
ABOVE = "context for next agent"
"""A heading over others, with nothing of its own below it."""

_NAMES = "|".join(name.replace(" ", r"[^\w\n]{1,5}") for name in (TITLE.casefold(), ABOVE, *SECTIONS))
BOLD = rf"(?:\*\*|__)(?:[^\w\n]|[0-9]){{0,12}}(?i:{_NAMES})[ \t]*:?(?:\*\*|__)[ \t]*:?[ \t]*$"
"""A line that is the name of a section in bold, as a regular expression without blanks: it may be verbose."""
_BOLD_LINE = re.compile(rf"[ \t]*{BOLD}")


def plain(title: str) -> str:
    """Return a heading in lower case, without marks and numbers.

    Example:
        >>> plain("2. **Blockers / Open Questions:**")
        'blockers open questions'
    """
    return " ".join(re.sub("[^a-z]+", " ", title.casefold()).split())


def bold_title(line: str) -> str:
    """Return the text of a line that is the name of a section in bold, and of any other line nothing.

    Example:
        >>> bold_title("**2. Key Discoveries:**"), bold_title("**Important**"), bold_title("**Summary** of it")
        ('2. Key Discoveries', '', '')
    """
    return line.strip(" \t*_:") if _BOLD_LINE.match(line) else ""
