"""The lines with a label at the head and the foot of a report: who, to whom, what, how far, how sure, ready or not."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from baton.report.records import Readiness, Status
from baton.report.sections import Reading

HEADER = ("from", "to", "task", "status", "confidence")
FOOTER = ("handoff confidence", "ready for next phase")

_LABELLED = re.compile(
    r"""[ \t]*(?:[-*+][ \t]+)?(?:
        (\*\*|__)([A-Za-z][A-Za-z ]*?)(?::\1|\1[ \t]*(?::|[—–-](?=[ \t])))     # **From:** x, **From**: x, **From** — x
      | ([A-Za-z][A-Za-z ]*?):                                                # From: x
    )[ \t]*(.*)""",
    re.VERBOSE,
)
_MARKS = "*_` \t"
_PERCENT = re.compile(r"0|[1-9][0-9]?|100")
_READY = re.compile(
    r"(?i:(yes[*_ \t,;:.(—–-]*(?:but )?with caveats|with caveats|yes|no))\)?[*_`]*[ \t]*"
    r"(?:$|(?:[.(:;,—–]|-(?=[ \t]))[ \t]*(.*))",
    re.DOTALL,
)
_LONGEST_SHOWN = 40


@dataclass(frozen=True)
class LabelledLine:
    """A value with a label, in the lines that it takes, and the line it begins on."""

    parts: list[str]
    at: int

    @property
    def value(self) -> str:
        """The value on one line."""
        return " ".join(self.parts)


def labelled_lines(reading: Reading, numbers: Iterable[int], names: Sequence[str]) -> dict[str, LabelledLine]:
    """Return the values of the lines that begin with one of the labels, by label in lower case.

    A line directly below a value goes on with it, unless it has a bold label of its own. What else stands there is
    warned about; a label that appears twice is an error, because the second one may come from somebody else.
    """
    found: dict[str, LabelledLine] = {}
    last = ""
    for number in numbers:
        line = reading.lines[number].strip(" \t")
        name, value = label_of(line)
        if name in names and name in found:
            reading.error(name, f"appears twice, first on line {found[name].at + reading.first}; write it once", number)
        elif name in names:
            found[name] = LabelledLine([value], number)
            last = name
        elif not line or re.fullmatch(r"(?:[-_*][ \t]*){3,}", line):
            last = ""
        elif last and not _is_bold_label(line):
            found[last].parts.append(line)
        else:
            last = ""  # and what goes on below a label that the format does not have is none's either
            reading.warn("", "text that belongs to no member was not read", number)
    return found


def _is_bold_label(line: str) -> bool:
    """Return whether a line begins with a label in bold, so that it goes on with nothing above it."""
    match = _LABELLED.fullmatch(line)
    return match is not None and bool(match[1])


def label_of(line: str) -> tuple[str, str]:
    """Return the label that a line begins with, in lower case, and what is behind it; two empty texts if none.

    Example:
        >>> label_of("**From:** planner"), label_of("**Status** — partial"), label_of("planner")
        (('from', 'planner'), ('status', 'partial'), ('', ''))
    """
    match = _LABELLED.fullmatch(line)
    return ((match[2] or match[3]).casefold().strip(), match[4].strip(" \t")) if match else ("", "")


def read_status(reading: Reading, line: LabelledLine) -> Status | None:
    """Return the status that a line has; there are four and no other (S4-status-e)."""
    word = line.value.strip(_MARKS).casefold()
    if word in list(Status):
        return Status(word)
    reading.error("status", f"is {_shown(line.value)}; write completed, partial, blocked or failed", line.at)
    return None


def read_percent(reading: Reading, member: str, line: LabelledLine) -> int | None:
    """Return the whole number from 0 to 100 that a line has; no other spelling of it is taken."""
    word = line.value.strip(_MARKS)
    if _PERCENT.fullmatch(word):
        return int(word)
    reading.error(member, f"is {_shown(line.value)}; write a whole number from 0 to 100, without a sign", line.at)
    return None


def read_readiness(reading: Reading, line: LabelledLine) -> tuple[Readiness | None, str]:
    """Return the answer that a line has, and the remark behind it."""
    match = _READY.fullmatch(line.value.lstrip(_MARKS))
    if not match:
        reading.error("readiness", f"is {_shown(line.value)}; write Yes, No or With caveats", line.at)
        return None, ""
    word = match[1].casefold()
    answer = Readiness.WITH_CAVEATS if "caveats" in word else Readiness(word.capitalize())
    remark = (match[2] or "").strip(_MARKS)
    return answer, remark.removesuffix(")") if "(" not in remark else remark


def _shown(value: str) -> str:
    """Return a value that was found, quoted and not too long."""
    return repr(value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]}…")
