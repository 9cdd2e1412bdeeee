"""Markdown read back into a handoff report: strict about what a report says, tolerant about how it is written.

Sections may be missing or in another order, headings on another level, labels with dashes, line ends CRLF. A value
is never guessed: a status or a confidence that is not one is an error, with its line, and so is what appears twice.
Markdown is parsed with a library, so this module belongs into activities and clients, not into workflow code.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from baton.report.records import (
    ABOVE,
    SECTIONS,
    TITLE,
    HandoffReport,
    ReportError,
    ReportFinding,
    Severity,
    plain,
)
from baton.report.rendering import NOTE
from baton.report.rules import lint_report
from baton.report.sections import (
    FOOTER,
    HEADER,
    Block,
    LabelledLine,
    NestedTooDeepError,
    Reading,
    Section,
    label_of,
    labelled_lines,
    outline,
    read_boxes,
    read_decisions,
    read_files,
    read_items,
    read_percent,
    read_readiness,
    read_script,
    read_status,
    read_text,
)
from baton.wire.text import list_faults

LONGEST = 256 * 1024
"""So many characters a report has at most; what is larger belongs into an artifact."""
MOST_LINES, MOST_MARKS = 5_000, 1_000
"""So many lines a report has at most, and so many headings, list items, quotes and columns of tables."""

_BREAK = re.compile(r"\r\n|\r|\n")
_HEADING = re.compile(r"[ \t]*#{1,6}(?:[ \t]+|$)")
_MARKS = re.compile(r"(?:[ \t]*(?:>|(?:[-*+]|[0-9]{1,9}[.)])(?=[ \t]|$)))+|[ \t]*#{1,6}(?=[ \t]|$)")
_MARK = re.compile(r"[-*+>.)]|#+")
_FENCE = re.compile(r"([ ]{0,3})(`{3,}|~{3,})[ \t]*(.*)")


@dataclass(frozen=True)
class ParsedReport:
    """A report, and what was odd about its text."""

    report: HandoffReport
    warnings: list[ReportFinding]


def parse_report(text: str) -> ParsedReport:
    """Return the report that a Markdown text holds."""
    reading = Reading(_BREAK.split(text.removeprefix("\ufeff")))
    if found := _excess(text, reading.lines):
        reading.error("", f"the report has {found}; put what is large in artifacts")
        raise ReportError(reading.findings)
    try:
        reading, blocks, title = _found(reading)
    except NestedTooDeepError as error:
        reading.error("", f"lists or quotes are nested too deep: {error}", error.line - 1)
        raise ReportError(reading.findings) from None
    members = _members(reading, blocks, title)
    report = _made(reading, members)
    errors = sorted((one for one in reading.findings if one.severity is Severity.ERROR), key=_place)
    if errors or report is None:
        raise ReportError(errors)
    return ParsedReport(report, sorted(reading.findings, key=_place))


def _excess(text: str, lines: Sequence[str]) -> str:
    """Return in what a text is larger than a report may be; empty if it is not."""
    if len(text) > LONGEST:
        return f"{len(text):,} characters; at most {LONGEST:,} are read"
    if len(lines) > MOST_LINES:
        return f"{len(lines):,} lines; at most {MOST_LINES:,} are read"
    marks = sum(len(_MARK.findall(found[0])) for found in map(_MARKS.match, lines) if found)
    marks = max(marks, text.count("|") // 10)
    if marks > MOST_MARKS:
        return f"{marks:,} headings, list items, quotes and columns; at most {MOST_MARKS:,} are read"
    return ""


def _place(finding: ReportFinding) -> int:
    """Return where a finding stands; what has no line comes last."""
    return finding.line or 2**31


def _found(reading: Reading, *, fenced: bool = False) -> tuple[Reading, list[Block], int]:
    """Return the reading and the blocks that hold the report, and the line of its title, or -1."""
    blocks = outline(reading.lines)
    titles = [block for block in blocks if plain(_heading(reading, block)) == TITLE.casefold()]
    for second in titles[1:]:
        reading.error("", "a second report begins here; send one at a time", second.start)
    if titles:
        return _below(reading, blocks, titles[0].start)
    for block in () if fenced else blocks:
        lines = _BREAK.split(block.content) if block.kind == "code" else ()
        if any(_HEADING.match(line) and TITLE in line for line in lines):
            inner = Reading(_fenced(reading.lines, block), reading.first + block.start + 1, reading.findings)
            inner.warn("", "the report stands in a fence; send it as it is", 0)
            return _found(inner, fenced=True)
    reading.warn("", f"the title '## {TITLE}' is missing", 0)
    return reading, blocks, -1


def _below(reading: Reading, blocks: list[Block], title: int) -> tuple[Reading, list[Block], int]:
    """Return the reading, the blocks below a title, and the title's line."""
    if any(line.strip() for line in reading.lines[:title]):
        reading.warn("", f"text before the title, line {title + reading.first}, was not read", 0)
    return reading, [block for block in blocks if block.start > title], title


def _fenced(lines: Sequence[str], block: Block) -> list[str]:
    """Return the lines in a fence, those behind a fence inside of it included."""
    opening = _FENCE.fullmatch(lines[block.start])
    if opening is None:
        return _BREAK.split(block.content)
    indent = re.compile(f" {{0,{len(opening[1])}}}")
    found: list[str] = []
    depth = 0
    for line in lines[block.start + 1 :]:
        found.append(indent.sub("", line, count=1))
        fence = _FENCE.fullmatch(line)
        if fence and fence[2].startswith(opening[2]):
            depth += 1 if fence[3] else -1
        if depth < 0:
            return found[:-1]
    return found


def _heading(reading: Reading, block: Block) -> str:
    """Return the text of a heading; nothing of any other block."""
    return _HEADING.sub("", reading.lines[block.start], count=1).strip(" \t") if block.kind == "heading" else ""


def _members(reading: Reading, blocks: list[Block], title: int) -> dict[str, Any]:
    """Return the members of the report as its JSON has them; what is missing or wrong is noted."""
    sections: list[Section] = []
    for block in blocks:
        if block.kind == "heading":
            sections.append(Section(_heading(reading, block), block.start, []))
        elif sections:
            sections[-1].blocks.append(block)
    end = sections[0].at if sections else len(reading.lines)
    header = labelled_lines(reading, range(title + 1, end), HEADER)
    for name in HEADER:
        if name not in header:
            reading.error(name, f"is missing; write '**{name.capitalize()}:** …' below the title", max(title, 0))
    footer = _take_footer(reading, sections[-1]) if sections else {}
    members = _labelled_members(reading, header, footer)
    _read_sections(reading, sections, members)
    if "summary" not in members:
        reading.error("summary", "is missing; write '### Summary' and two or three sentences", max(title, 0))
    return members


def _labelled_members(
    reading: Reading, header: dict[str, LabelledLine], footer: dict[str, LabelledLine]
) -> dict[str, Any]:
    """Return the members that stand at the head and the foot of a report."""
    members: dict[str, Any] = {name: header[name].value for name in ("from", "to", "task") if name in header}
    members["notes"] = []
    if "status" in header:
        members["status"] = read_status(reading, header["status"])
    if "confidence" in header:
        members["confidence"] = read_percent(reading, "confidence", header["confidence"])
    if "handoff confidence" in footer:
        members["handoffConfidence"] = read_percent(reading, "handoffConfidence", footer["handoff confidence"])
    if "ready for next phase" not in footer:
        reading.warn("readiness", "'**Ready for Next Phase:**' is missing; taken as No")
        return members
    members["readiness"], remark = read_readiness(reading, footer["ready for next phase"])
    if remark:
        members["notes"].append({"heading": "Ready for Next Phase", "items": [remark]})
    return members


def _take_footer(reading: Reading, last: Section) -> dict[str, LabelledLine]:
    """Take the footer out of the last section, and return its lines."""

    def is_footer(number: int) -> bool:
        return label_of(reading.lines[number].strip(" \t"))[0] in FOOTER

    prose = [(at, one) for at, one in enumerate(last.blocks) if one.kind in ("text", "list")]
    at, block = next(((at, one) for at, one in prose if any(map(is_footer, range(one.start, one.end)))), (0, None))
    if block is None:
        return {}
    begin = next(filter(is_footer, range(block.start, block.end)))
    tail = range(begin, last.blocks[-1].end)
    last.blocks[at:] = [Block("text", block.start, begin)] if begin > block.start else []
    return labelled_lines(reading, tail, FOOTER)


def _read_sections(reading: Reading, sections: list[Section], members: dict[str, Any]) -> None:
    """Read every section into the members of the report."""
    findings = members.setdefault("findings", {})
    context = members.setdefault("context", {})
    for section in sections:
        title = section.title
        match SECTIONS.get(plain(title)):
            case "summary" if "summary" in members:
                reading.error("summary", "appears twice; write it once", section.at)
            case "summary":
                if text := read_text(reading, section):
                    members["summary"] = text
            case "context.decisions":
                context.setdefault("decisions", []).extend(read_decisions(reading, section))
            case "context.relevantFiles":
                context.setdefault("relevantFiles", []).extend(read_files(reading, section))
            case "context.patterns":
                context.setdefault("patterns", []).extend(read_items(reading, section, "context.patterns"))
            case "blockers":
                open_ones, settled = read_boxes(reading, section)
                members.setdefault("blockers", []).extend(open_ones)
                members.setdefault("resolvedBlockers", []).extend(settled)
            case "recommendations":
                members.setdefault("recommendations", []).extend(read_items(reading, section, "recommendations"))
            case "verificationCommands":
                scripts = [members.get("verificationScript", ""), read_script(reading, section)]
                members["verificationScript"] = "\n".join(filter(None, scripts))
            case str(member):
                findings.setdefault(member.partition(".")[2], []).extend(read_items(reading, section, member))
            case None if section.blocks or plain(title) != ABOVE:
                heading = title.removeprefix(NOTE) or "Untitled"
                if not title.startswith(NOTE):
                    reading.warn("notes", "the format has no section of this name; it was kept as a note", section.at)
                members["notes"].append({"heading": heading, "items": read_items(reading, section, "notes")})


def _made(reading: Reading, members: dict[str, Any]) -> HandoffReport | None:
    """Return the report that the members make, with what its consistency gives to note; None if it is none."""
    if any(one.severity is Severity.ERROR for one in reading.findings):
        return None
    try:
        report = HandoffReport.from_json_object(members)
    except ValidationError as error:
        for fault in list_faults(error):
            reading.error(".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, "))
        return None
    reading.findings += lint_report(report)
    return report
