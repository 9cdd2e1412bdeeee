"""What stands in the sections of a report: lists, boxes, decisions, the table of files, and commands.

Agents drift from the format, so each reader takes what means the same: a paragraph where an item belongs, bullets in
place of a table, labels with a dash, boxes that are missing. What is not as the format has it is warned about.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from baton.report.errors import ReportFinding, Severity
from baton.report.escaping import cells, means_nothing, unescape, without_code_span
from baton.report.outline import Block, Item, item_lines
from baton.report.paths import path_entry

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
    """The lines that are being read, and what was found wrong or odd so far.

    Attributes:
        lines: The lines of the report, without line breaks.
        first: The number of the first of them in the text that was received.
        findings: What was found.
    """

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
    """A heading and the blocks up to the next one.

    Attributes:
        title: The heading's text.
        at: The heading's line.
        blocks: What is below it.
    """

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
    """Return the entries of a section that is a list; "None" is an empty one (C-27)."""
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
        text = unescape(entry.text)
        member = "decision"
        for part in [text] if entry.item else _by_label(text):
            label, said = _labelled(part)
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


def _by_label(text: str) -> list[str]:
    """Return the parts of a paragraph, each of which begins with a label of a decision, but for the first one."""
    parts: list[str] = []
    for line in text.split("\n"):
        if parts and not _labelled(line)[0]:
            parts[-1] += f"\n{line}"
        else:
            parts.append(line)
    return parts


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
