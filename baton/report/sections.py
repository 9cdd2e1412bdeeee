"""The outline of a Markdown text, and the sections, labelled lines and lists in it.

Text is taken from the source lines, never from a rendering, so that marks survive. Not read as Markdown are what can
hide or swallow the lines behind it: HTML, link definitions, and underlined headings.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from markdown_it import MarkdownIt
from markdown_it.token import Token

from baton.report.records import Readiness, ReportFinding, Severity, Status
from baton.report.rendering import cells, means_nothing, path_entry, unescape, without_code_span

MOST_NESTING = 40
"""How deep lists and quotes may be nested; the lines behind what is deeper would not be read."""

_MARKER = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])")
_KINDS = {
    "heading_open": "heading",
    "hr": "rule",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}

_MARKDOWN = MarkdownIt("commonmark", {"maxNesting": MOST_NESTING}).enable("table")
_MARKDOWN.disable(["html_block", "reference", "lheading", "inline"])


class NestedTooDeepError(ValueError):
    """A text is nested deeper than `MOST_NESTING`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: nested deeper than {MOST_NESTING} levels; make it flatter")
        self.line = line


@dataclass(frozen=True)
class Item:
    """One item of a list."""

    start: int
    end: int
    nested: tuple["Item", ...] = ()


@dataclass(frozen=True)
class Block:
    """One block at the top level."""

    kind: str
    start: int
    end: int
    items: tuple[Item, ...] = ()
    content: str = ""


def outline(lines: Sequence[str]) -> list[Block]:
    """Return the blocks of a text in order."""
    tokens = _MARKDOWN.parse("\n".join(lines))
    blocks = []
    for index, token in enumerate(tokens):
        if token.level >= MOST_NESTING - 2:
            raise NestedTooDeepError((token.map or [0])[0] + 1)
        if token.level or token.nesting < 0 or token.map is None:
            continue
        kind = _KINDS.get(token.type, "text")
        items = tuple(_items(tokens, index)) if kind == "list" else ()
        blocks.append(Block(kind, *_without_blank_end(lines, token.map), items, token.content))
    return blocks


def item_lines(lines: Sequence[str], item: Item, *, nested: bool = True) -> list[str]:
    """Return the lines of an item without its marker and indentation, with or without the lists in it."""
    marker = _MARKER.match(lines[item.start])
    width = marker.end() if marker else 0
    first = lines[item.start][width:]
    blanks = len(first) - len(first.lstrip(" \t"))
    offset = _columns(lines[item.start][:width]) + (blanks if 1 <= blanks <= 4 else 1)
    inner = set() if nested else {number for one in item.nested for number in range(one.start, one.end)}
    rest = [_dedented(lines[number], offset) for number in range(item.start + 1, item.end) if number not in inner]
    return [first.strip(" \t") if item.start not in inner else "", *rest]


def _items(tokens: Sequence[Token], opening: int) -> Iterator[Item]:
    """Yield the items of the list that a token opens."""
    level = tokens[opening].level
    at, begin = opening + 1, opening
    while tokens[at].level > level:
        token = tokens[at]
        if token.level == level + 1 and token.type == "list_item_open":
            begin = at
        elif token.level == level + 1 and token.type == "list_item_close":
            start, end = tokens[begin].map or (0, 0)
            lists = (
                n for n in range(begin, at) if tokens[n].level == level + 2 and tokens[n].type.endswith("list_open")
            )
            yield Item(start, end, tuple(one for n in lists for one in _items(tokens, n)))
        at += 1


def _without_blank_end(lines: Sequence[str], place: Sequence[int]) -> tuple[int, int]:
    """Return a range of lines without the blank ones at its end."""
    start, end = place
    while end > start + 1 and not lines[end - 1].strip(" \t"):
        end -= 1
    return start, end


def _columns(text: str) -> int:
    """Return how many columns a text takes; a tab goes to the next multiple of four."""
    return len(text.expandtabs(4))


def _dedented(line: str, columns: int) -> str:
    """Return a line without so many columns of blanks before it, or as many as there are."""
    taken, at = 0, 0
    while at < len(line) and taken < columns and line[at] in " \t":
        taken += 1 if line[at] == " " else 4 - taken % 4
        at += 1
    return line[at:]


_BOX = re.compile(r"\[([ xX])\](?:[ \t]+|$)")
_LABEL = re.compile(
    r"(?:(\*\*|__)(?i:(decision|rationale|alternatives(?: considered)?))(?::\1|\1[ \t]*(?::|[—–-](?=[ \t])))"
    r"|(?i:(decision|rationale|alternatives(?: considered)?)):)[ \t]*"
)
_COLUMNS = {
    "file": "file", "files": "file", "path": "file", "lines": "lines", "line": "lines", "why it matters": "reason",
    "why": "reason", "reason": "reason", "notes": "reason",
}  # fmt: skip


@dataclass
class Reading:
    """The lines that are being read, and what was found wrong or odd so far."""

    lines: Sequence[str]
    first: int = 1
    findings: list[ReportFinding] = field(default_factory=list)

    def error(self, member: str, text: str, at: int | None = None) -> None:
        """Note what keeps the report from being taken; ``at`` is an index into the lines."""
        self._note(Severity.ERROR, member, text, at)

    def warn(self, member: str, text: str, at: int | None = None) -> None:
        """Note what is odd."""
        self._note(Severity.WARNING, member, text, at)

    def _note(self, severity: Severity, member: str, text: str, at: int | None) -> None:
        line = None if at is None else at + self.first
        self.findings.append(ReportFinding(severity=severity, member=member, text=text, line=line))


@dataclass
class Section:
    """A heading and the blocks up to the next one."""

    title: str
    at: int
    blocks: list[Block]


@dataclass(frozen=True)
class _Entry:
    """One entry of a section that is a list: its lines, where it is, and the list items in it."""

    text: str
    at: int
    item: Item | None = None


def read_items(reading: Reading, section: Section, member: str) -> list[str]:
    """Return the entries of a section that is a list; "None" is an empty one."""
    return [unescape(entry.text) for entry in _entries(reading, section, member)]


def read_boxes(reading: Reading, section: Section) -> tuple[list[str], list[str]]:
    """Return the entries of a section of boxes: those that are open or have no box, and those that are checked."""
    open_ones: list[str] = []
    settled: list[str] = []
    for entry in _entries(reading, section, "blockers", boxes=True):
        box = _BOX.match(entry.text)
        text = unescape(entry.text[box.end() :] if box else entry.text)
        (settled if box and box[1] != " " else open_ones).append(text)
    return open_ones, settled


def read_decisions(reading: Reading, section: Section) -> list[dict[str, str]]:
    """Return the decisions of a section, with the reasons nested below each, or following it."""
    found: list[dict[str, str]] = []
    for entry in _entries(reading, section, "context.decisions", nested=False):
        member, (label, said) = "decision", _labelled(unescape(entry.text))
        if label in ("rationale", "alternatives") and found and label not in found[-1]:
            member = label
            found[-1][label] = said
        else:
            found.append({"decision": said})
        for one in entry.item.nested if entry.item else ():
            source = unescape(_text(item_lines(reading.lines, one)))
            label, said = _labelled(source)
            if member == "decision" and label in ("rationale", "alternatives") and label not in found[-1]:
                found[-1][label] = said
            else:
                found[-1][member] = f"{found[-1][member]}\n{source}".lstrip("\n")
    return found


def read_files(reading: Reading, section: Section) -> list[dict[str, str]]:
    """Return the files of a table, or of a list in its place."""
    member = "context.relevantFiles"
    found: list[dict[str, str]] = []
    for block in section.blocks:
        if block.kind == "table":
            found += _rows(reading, block, member)
    rest = Section(section.title, section.at, [block for block in section.blocks if block.kind != "table"])
    for entry in _entries(reading, rest, member):
        reading.warn(member, "a row of the table File | Lines | Why It Matters is expected here", entry.at)
        where = path_entry(unescape(entry.text))
        found.append({"file": where.path, "lines": where.lines, "reason": where.remark})
    return found


def _rows(reading: Reading, table: Block, member: str) -> Iterator[dict[str, str]]:
    """Yield the files of a table, by the names of its columns."""
    names = [_COLUMNS.get(name.casefold().strip("*_ "), "") for name in cells(reading.lines[table.start])]
    order = names if "file" in names else ["file", "lines", "reason"]
    for number in range(table.start + 2, table.end):
        found = cells(reading.lines[number])
        row = {name: text for name, text in zip(order, found, strict=False) if name}
        if any(text for name, text in zip_longest(order, found) if not name):
            reading.warn(member, "a cell of a column that the format does not have was not read", number)
        if row.get("file"):
            yield {**row, "file": without_code_span(row["file"])}
        elif any(row.values()):
            reading.warn(member, "a row that names no file was not read", number)


def read_script(reading: Reading, section: Section) -> str:
    """Return the commands of a section with their comments; prose becomes a comment."""
    member, parts = "verificationCommands", []
    for block in section.blocks:
        if block.kind == "code":
            parts.append(block.content.rstrip("\n"))
            continue
        for entry in _entries(reading, Section(section.title, section.at, [block]), member):
            reading.warn(member, "a fence of commands is expected here", entry.at)
            command = without_code_span(entry.text)
            parts += [command] if command != entry.text else map(_command, entry.text.split("\n"))
    return "\n".join(parts)


def _command(line: str) -> str:
    """Return the command in a line that is one code span, and any other line as a comment."""
    command = without_code_span(line.strip(" \t"))
    return command if command != line.strip(" \t") else f"# {line}"


def read_text(reading: Reading, section: Section) -> str:
    """Return everything below a heading as it stands there."""
    blocks = [block for block in section.blocks if block.kind != "rule"]
    lines = reading.lines[blocks[0].start : blocks[-1].end] if blocks else []
    return unescape(_text(lines))


def _entries(
    reading: Reading, section: Section, member: str, *, boxes: bool = False, nested: bool = True
) -> list[_Entry]:
    """Return the entries of a section: the items of its lists, and every other block as one more."""
    found = []
    for entry in _raw_entries(reading, section, nested):
        if not (entry.text.strip() and (not boxes or _BOX.sub("", entry.text, count=1).strip())):
            reading.warn(member, "an empty entry was left out", entry.at)
        else:
            found.append(entry)
    if len(found) == 1:
        box = _BOX.match(found[0].text) if boxes else None
        text = found[0].text[box.end() :] if box else found[0].text
        if means_nothing(text):
            if text.strip("*_`. ").casefold() not in ("none", "n/a"):
                reading.warn(member, "the remark behind None was not kept", found[0].at)
            return []
    for entry in found:
        if entry.item is None:
            reading.warn(member, "an item of a list is expected here; it was read as one", entry.at)
    return found


def _raw_entries(reading: Reading, section: Section, nested: bool) -> Iterator[_Entry]:
    """Yield the entries of a section, empty ones included."""
    for block in section.blocks:
        if block.kind == "list":
            for item in block.items:
                yield _Entry(_text(item_lines(reading.lines, item, nested=nested)), item.start, item)
        elif block.kind != "rule":
            yield _Entry(_text(reading.lines[block.start : block.end]), block.start)


def _labelled(text: str) -> tuple[str, str]:
    """Return the label of a part of a decision, without "considered", and what is behind it."""
    match = _LABEL.match(text)
    if not match:
        return "", text
    return (match[2] or match[3]).casefold().removesuffix(" considered"), text[match.end() :]


def _text(lines: Sequence[str]) -> str:
    """Return lines as one text without blanks around it."""
    return "\n".join(lines).strip(" \t\n")


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
    """Return the values of the lines that begin with one of the labels, by label in lower case."""
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
            last = ""  # and what continues an unknown label belongs to no value
            reading.warn("", "text that belongs to no member was not read", number)
    return found


def _is_bold_label(line: str) -> bool:
    """Return whether a line begins with a label in bold, so that it continues nothing above it."""
    match = _LABELLED.fullmatch(line)
    return match is not None and bool(match[1])


def label_of(line: str) -> tuple[str, str]:
    """Return the label that a line begins with, in lower case, and what is behind it; two empty texts if none."""
    match = _LABELLED.fullmatch(line)
    return ((match[2] or match[3]).casefold().strip(), match[4].strip(" \t")) if match else ("", "")


def read_status(reading: Reading, line: LabelledLine) -> Status | None:
    """Return the status that a line has; there are four and no other."""
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
