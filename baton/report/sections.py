"""The outline of a Markdown text, and its sections, labelled lines and lists.

Text comes from the source lines, never from a rendering, so that marks survive. HTML, link definitions and underlined
headings are not parsed as Markdown, because they can hide the lines after them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from markdown_it import MarkdownIt
from markdown_it.token import Token

from baton.report.records import Readiness, ReportFinding, Severity, Status
from baton.report.rendering import is_empty_item, parse_path_entry, split_cells, strip_code_span, unescape

MAX_NESTING = 40
"""The maximum nesting of lists and quotes; the parser would skip lines after deeper ones."""

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

_MARKDOWN = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable("table")
_MARKDOWN.disable(["html_block", "reference", "lheading", "inline"])


class NestedTooDeepError(ValueError):
    """A text is nested deeper than `MAX_NESTING`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: nested deeper than {MAX_NESTING} levels; make it flatter")
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
    """Return the top-level blocks of a text in order."""
    tokens = _MARKDOWN.parse("\n".join(lines))
    blocks = []
    for index, token in enumerate(tokens):
        if token.level >= MAX_NESTING - 2:
            raise NestedTooDeepError((token.map or [0])[0] + 1)
        if token.level or token.nesting < 0 or token.map is None:
            continue
        kind = _KINDS.get(token.type, "text")
        items = tuple(_read_list(tokens, index)) if kind == "list" else ()
        blocks.append(Block(kind, *_trim_end(lines, token.map), items, token.content))
    return blocks


def item_lines(lines: Sequence[str], item: Item, *, nested: bool = True) -> list[str]:
    """Return the lines of an item without its marker and indentation, with or without nested lists."""
    marker = _MARKER.match(lines[item.start])
    width = marker.end() if marker else 0
    first = lines[item.start][width:]
    blanks = len(first) - len(first.lstrip(" \t"))
    offset = _count_columns(lines[item.start][:width]) + (blanks if 1 <= blanks <= 4 else 1)
    skipped = set() if nested else {number for child in item.nested for number in range(child.start, child.end)}
    rest = [_dedent(lines[number], offset) for number in range(item.start + 1, item.end) if number not in skipped]
    return [first.strip(" \t") if item.start not in skipped else "", *rest]


def _read_list(tokens: Sequence[Token], opening: int) -> Iterator[Item]:
    """Yield the items of the list at an opening token."""
    level = tokens[opening].level
    index, opening_index = opening + 1, opening
    while tokens[index].level > level:
        token = tokens[index]
        if token.level == level + 1 and token.type == "list_item_open":
            opening_index = index
        elif token.level == level + 1 and token.type == "list_item_close":
            start, end = tokens[opening_index].map or (0, 0)
            lists = (
                child
                for child in range(opening_index, index)
                if tokens[child].level == level + 2 and tokens[child].type.endswith("list_open")
            )
            yield Item(start, end, tuple(item for child in lists for item in _read_list(tokens, child)))
        index += 1


def _trim_end(lines: Sequence[str], span: Sequence[int]) -> tuple[int, int]:
    """Return a range of lines without blank lines at its end."""
    start, end = span
    while end > start + 1 and not lines[end - 1].strip(" \t"):
        end -= 1
    return start, end


def _count_columns(text: str) -> int:
    return len(text.expandtabs(4))


def _dedent(line: str, columns: int) -> str:
    """Remove at most ``columns`` columns of blanks from the start of a line."""
    removed, index = 0, 0
    while index < len(line) and removed < columns and line[index] in " \t":
        removed += 1 if line[index] == " " else 4 - removed % 4
        index += 1
    return line[index:]


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
    """The lines of a text, and the findings so far; ``first`` is the number of the first line."""

    lines: Sequence[str]
    first: int = 1
    findings: list[ReportFinding] = field(default_factory=list)

    def error(self, member: str, text: str, at: int | None = None) -> None:
        """Add an error; ``at`` is an index into the lines."""
        self._note(Severity.ERROR, member, text, at)

    def warn(self, member: str, text: str, at: int | None = None) -> None:
        """Add a warning."""
        self._note(Severity.WARNING, member, text, at)

    def _note(self, severity: Severity, member: str, text: str, at: int | None) -> None:
        line = None if at is None else at + self.first
        self.findings.append(ReportFinding(severity=severity, member=member, text=text, line=line))


@dataclass
class Section:
    """A heading and the blocks below it."""

    title: str
    at: int
    blocks: list[Block]


@dataclass(frozen=True)
class _Entry:
    """An entry of a section, its line, and its list item, if it is one."""

    text: str
    at: int
    item: Item | None = None


def read_items(reading: Reading, section: Section, member: str) -> list[str]:
    """Return the entries of a section; "None" means none."""
    return [unescape(entry.text) for entry in _list_entries(reading, section, member)]


def read_boxes(reading: Reading, section: Section) -> tuple[list[str], list[str]]:
    """Return the entries without a checked box, and those with one."""
    open_items: list[str] = []
    resolved: list[str] = []
    for entry in _list_entries(reading, section, "blockers", boxes=True):
        box = _BOX.match(entry.text)
        text = unescape(entry.text[box.end() :] if box else entry.text)
        (resolved if box and box[1] != " " else open_items).append(text)
    return open_items, resolved


def read_decisions(reading: Reading, section: Section) -> list[dict[str, str]]:
    """Return the decisions of a section, with the rationale and alternatives nested below or following each."""
    decisions: list[dict[str, str]] = []
    for entry in _list_entries(reading, section, "context.decisions", nested=False):
        member, (label, value) = "decision", _split_label(unescape(entry.text))
        if label in ("rationale", "alternatives") and decisions and label not in decisions[-1]:
            member = label
            decisions[-1][label] = value
        else:
            decisions.append({"decision": value})
        for child in entry.item.nested if entry.item else ():
            source = unescape(_join(item_lines(reading.lines, child)))
            label, value = _split_label(source)
            if member == "decision" and label in ("rationale", "alternatives") and label not in decisions[-1]:
                decisions[-1][label] = value
            else:
                decisions[-1][member] = f"{decisions[-1][member]}\n{source}".lstrip("\n")
    return decisions


def read_files(reading: Reading, section: Section) -> list[dict[str, str]]:
    """Return the files of a table, or of a list instead."""
    member = "context.relevantFiles"
    files: list[dict[str, str]] = []
    for block in section.blocks:
        if block.kind == "table":
            files += _read_rows(reading, block, member)
    rest = Section(section.title, section.at, [block for block in section.blocks if block.kind != "table"])
    for entry in _list_entries(reading, rest, member):
        reading.warn(member, "a row of the table File | Lines | Why It Matters is expected here", entry.at)
        location = parse_path_entry(unescape(entry.text))
        files.append({"file": location.path, "lines": location.lines, "reason": location.remark})
    return files


def _read_rows(reading: Reading, table: Block, member: str) -> Iterator[dict[str, str]]:
    """Yield the files of a table by column."""
    names = [_COLUMNS.get(name.casefold().strip("*_ "), "") for name in split_cells(reading.lines[table.start])]
    order = names if "file" in names else ["file", "lines", "reason"]
    for number in range(table.start + 2, table.end):
        contents = split_cells(reading.lines[number])
        row = {name: text for name, text in zip(order, contents, strict=False) if name}
        if any(text for name, text in zip_longest(order, contents) if not name):
            reading.warn(member, "a cell in an unknown column was ignored", number)
        if row.get("file"):
            yield {**row, "file": strip_code_span(row["file"])}
        elif any(row.values()):
            reading.warn(member, "a row without a file was ignored", number)


def read_script(reading: Reading, section: Section) -> str:
    """Return the commands of a section with their comments; prose becomes comments."""
    member, parts = "verificationCommands", []
    for block in section.blocks:
        if block.kind == "code":
            parts.append(block.content.rstrip("\n"))
            continue
        for entry in _list_entries(reading, Section(section.title, section.at, [block]), member):
            reading.warn(member, "a fence of commands is expected here", entry.at)
            command = strip_code_span(entry.text)
            parts += [command] if command != entry.text else map(_to_command, entry.text.split("\n"))
    return "\n".join(parts)


def _to_command(line: str) -> str:
    """Return the content of a line that is one code span, or any other line as a comment."""
    command = strip_code_span(line.strip(" \t"))
    return command if command != line.strip(" \t") else f"# {line}"


def read_text(reading: Reading, section: Section) -> str:
    """Return the source text below a heading."""
    blocks = [block for block in section.blocks if block.kind != "rule"]
    lines = reading.lines[blocks[0].start : blocks[-1].end] if blocks else []
    return unescape(_join(lines))


def _list_entries(
    reading: Reading, section: Section, member: str, *, boxes: bool = False, nested: bool = True
) -> list[_Entry]:
    """Return the non-empty entries of a section: the items of its lists, and every other block as one entry."""
    kept_entries = []
    for entry in _read_entries(reading, section, nested):
        if not (entry.text.strip() and (not boxes or _BOX.sub("", entry.text, count=1).strip())):
            reading.warn(member, "an empty entry was dropped", entry.at)
        else:
            kept_entries.append(entry)
    if len(kept_entries) == 1:
        box = _BOX.match(kept_entries[0].text) if boxes else None
        text = kept_entries[0].text[box.end() :] if box else kept_entries[0].text
        if is_empty_item(text):
            if text.strip("*_`. ").casefold() not in ("none", "n/a"):
                reading.warn(member, "the remark after None was dropped", kept_entries[0].at)
            return []
    for entry in kept_entries:
        if entry.item is None:
            reading.warn(member, "an item of a list is expected here; it was read as one", entry.at)
    return kept_entries


def _read_entries(reading: Reading, section: Section, nested: bool) -> Iterator[_Entry]:
    """Yield the entries of a section, including empty ones."""
    for block in section.blocks:
        if block.kind == "list":
            for item in block.items:
                yield _Entry(_join(item_lines(reading.lines, item, nested=nested)), item.start, item)
        elif block.kind != "rule":
            yield _Entry(_join(reading.lines[block.start : block.end]), block.start)


def _split_label(text: str) -> tuple[str, str]:
    """Return the label of a part of a decision, without "considered", and its value."""
    match = _LABEL.match(text)
    if not match:
        return "", text
    return (match[2] or match[3]).casefold().removesuffix(" considered"), text[match.end() :]


def _join(lines: Sequence[str]) -> str:
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
_MAX_QUOTE_LENGTH = 40


@dataclass(frozen=True)
class LabelledLine:
    """A labelled value of one or more lines, and its first line."""

    parts: list[str]
    at: int

    @property
    def value(self) -> str:
        """The value on one line."""
        return " ".join(self.parts)


def read_labelled_lines(reading: Reading, numbers: Iterable[int], names: Sequence[str]) -> dict[str, LabelledLine]:
    """Return the values of labelled lines by label in lower case."""
    labelled: dict[str, LabelledLine] = {}
    last = ""
    for number in numbers:
        line = reading.lines[number].strip(" \t")
        name, value = read_label(line)
        if name in names and name in labelled:
            reading.error(
                name, f"appears twice, first on line {labelled[name].at + reading.first}; write it once", number
            )
        elif name in names:
            labelled[name] = LabelledLine([value], number)
            last = name
        elif not line or re.fullmatch(r"(?:[-_*][ \t]*){3,}", line):
            last = ""
        elif last and not _is_bold_label(line):
            labelled[last].parts.append(line)
        else:
            last = ""  # continuation lines of an unknown label are ignored too
            reading.warn("", "text without a known label was ignored", number)
    return labelled


def _is_bold_label(line: str) -> bool:
    """Return whether a line starts with a bold label, so it does not continue the value above."""
    match = _LABELLED.fullmatch(line)
    return match is not None and bool(match[1])


def read_label(line: str) -> tuple[str, str]:
    """Return a line's label in lower case and its value; both are empty without a label."""
    match = _LABELLED.fullmatch(line)
    return ((match[2] or match[3]).casefold().strip(), match[4].strip(" \t")) if match else ("", "")


def read_status(reading: Reading, line: LabelledLine) -> Status | None:
    """Return the status on a line."""
    word = line.value.strip(_MARKS).casefold()
    if word in list(Status):
        return Status(word)
    reading.error("status", f"is {_quote(line.value)}; write completed, partial, blocked or failed", line.at)
    return None


def read_percent(reading: Reading, member: str, line: LabelledLine) -> int | None:
    """Return the whole number from 0 to 100 on a line; no other notation is accepted."""
    word = line.value.strip(_MARKS)
    if _PERCENT.fullmatch(word):
        return int(word)
    reading.error(member, f"is {_quote(line.value)}; write a whole number from 0 to 100, without a sign", line.at)
    return None


def read_readiness(reading: Reading, line: LabelledLine) -> tuple[Readiness | None, str]:
    """Return the answer on a line, and the remark after it."""
    match = _READY.fullmatch(line.value.lstrip(_MARKS))
    if not match:
        reading.error("readiness", f"is {_quote(line.value)}; write Yes, No or With caveats", line.at)
        return None, ""
    word = match[1].casefold()
    answer = Readiness.WITH_CAVEATS if "caveats" in word else Readiness(word.capitalize())
    remark = (match[2] or "").strip(_MARKS)
    return answer, remark.removesuffix(")") if "(" not in remark else remark


def _quote(value: str) -> str:
    """Quote a value, shortened."""
    return repr(value if len(value) <= _MAX_QUOTE_LENGTH else f"{value[:_MAX_QUOTE_LENGTH]}…")
