"""Parses a handoff report from Markdown: strict about values, tolerant about layout.

Sections may be missing or in another order, headings on another level, labels with dashes, line ends CRLF. Values are
never guessed: an invalid status or confidence is an error, with its line, and so is a repeated one. Markdown is parsed
with a library, so use this module in activities and clients, not in workflow code.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from baton.report.records import (
    GROUP_TITLE,
    MAX_CHARACTERS,
    MAX_LINES,
    SECTIONS,
    TITLE,
    HandoffReport,
    ReportError,
    ReportFinding,
    Severity,
    normalize_title,
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
    outline,
    read_boxes,
    read_decisions,
    read_files,
    read_items,
    read_label,
    read_labelled_lines,
    read_percent,
    read_readiness,
    read_script,
    read_status,
    read_text,
)
from baton.wire.text import list_faults

MAX_MARKS = 1_000
"""The maximum number of headings, list items, quotes and table columns together."""

_BREAK = re.compile(r"\r\n|\r|\n")
_HEADING = re.compile(r"[ \t]*#{1,6}(?:[ \t]+|$)")
_MARKS = re.compile(r"(?:[ \t]*(?:>|(?:[-*+]|[0-9]{1,9}[.)])(?=[ \t]|$)))+|[ \t]*#{1,6}(?=[ \t]|$)")
_MARK = re.compile(r"[-*+>.)]|#+")
_FENCE = re.compile(r"([ ]{0,3})(`{3,}|~{3,})[ \t]*(.*)")


@dataclass(frozen=True)
class ParsedReport:
    """A report, and warnings about its text."""

    report: HandoffReport
    warnings: list[ReportFinding]


def parse_report(text: str) -> ParsedReport:
    """Parse a report; raise `ReportError` if the text is not one, or contradicts itself."""
    reading = Reading(_BREAK.split(text.removeprefix("\ufeff")))
    if excess := _find_excess(text, reading.lines):
        reading.error("", f"the report has {excess}; put large content in artifacts")
        raise ReportError(reading.findings)
    try:
        reading, blocks, title = _find_report(reading)
    except NestedTooDeepError as error:
        reading.error("", f"lists or quotes are nested too deep: {error}", error.line - 1)
        raise ReportError(reading.findings) from None
    members = _read_members(reading, blocks, title)
    report = _build_report(reading, members)
    errors = sorted((finding for finding in reading.findings if finding.severity is Severity.ERROR), key=_line_key)
    if errors or report is None:
        raise ReportError(errors)
    return ParsedReport(report, sorted(reading.findings, key=_line_key))


def _find_excess(text: str, lines: Sequence[str]) -> str:
    """Return which limit a text exceeds, or an empty string."""
    if len(text) > MAX_CHARACTERS:
        return f"{len(text):,} characters; the maximum is {MAX_CHARACTERS:,}"
    if len(lines) > MAX_LINES:
        return f"{len(lines):,} lines; the maximum is {MAX_LINES:,}"
    marks = sum(len(_MARK.findall(match[0])) for match in map(_MARKS.match, lines) if match)
    marks = max(marks, text.count("|") // 10)
    if marks > MAX_MARKS:
        return f"{marks:,} headings, list items, quotes and columns; the maximum is {MAX_MARKS:,}"
    return ""


def _line_key(finding: ReportFinding) -> int:
    """Return the sort key of a finding; findings without a line come last."""
    return finding.line or 2**31


def _find_report(reading: Reading, *, fenced: bool = False) -> tuple[Reading, list[Block], int]:
    """Return the lines and blocks of the report, and the line of its title, or -1."""
    blocks = outline(reading.lines)
    titles = [block for block in blocks if normalize_title(_read_heading(reading, block)) == TITLE.casefold()]
    for extra in titles[1:]:
        reading.error("", "a second report starts here; send one at a time", extra.start)
    if titles:
        return _split_at_title(reading, blocks, titles[0].start)
    for block in () if fenced else blocks:
        lines = _BREAK.split(block.content) if block.kind == "code" else ()
        if any(_HEADING.match(line) and TITLE in line for line in lines):
            inner = Reading(_read_fenced(reading.lines, block), reading.first + block.start + 1, reading.findings)
            inner.warn("", "the report is in a code fence; send it without one", 0)
            return _find_report(inner, fenced=True)
    reading.warn("", f"the title '## {TITLE}' is missing", 0)
    return reading, blocks, -1


def _split_at_title(reading: Reading, blocks: list[Block], title: int) -> tuple[Reading, list[Block], int]:
    if any(line.strip() for line in reading.lines[:title]):
        reading.warn("", f"text before the title on line {title + reading.first} was ignored", 0)
    return reading, [block for block in blocks if block.start > title], title


def _read_fenced(lines: Sequence[str], block: Block) -> list[str]:
    """Return the lines in a fence, including nested fences and the lines after them."""
    opening = _FENCE.fullmatch(lines[block.start])
    if opening is None:
        return _BREAK.split(block.content)
    indent = re.compile(f" {{0,{len(opening[1])}}}")
    fenced_lines: list[str] = []
    depth = 0
    for line in lines[block.start + 1 :]:
        fenced_lines.append(indent.sub("", line, count=1))
        fence = _FENCE.fullmatch(line)
        if fence and fence[2].startswith(opening[2]):
            depth += 1 if fence[3] else -1
        if depth < 0:
            return fenced_lines[:-1]
    return fenced_lines


def _read_heading(reading: Reading, block: Block) -> str:
    """Return the text of a heading; empty for other blocks."""
    return _HEADING.sub("", reading.lines[block.start], count=1).strip(" \t") if block.kind == "heading" else ""


def _read_members(reading: Reading, blocks: list[Block], title: int) -> dict[str, Any]:
    """Return the report's JSON members, and add findings for missing and invalid ones."""
    sections: list[Section] = []
    for block in blocks:
        if block.kind == "heading":
            sections.append(Section(_read_heading(reading, block), block.start, []))
        elif sections:
            sections[-1].blocks.append(block)
    end = sections[0].at if sections else len(reading.lines)
    header = read_labelled_lines(reading, range(title + 1, end), HEADER)
    for name in HEADER:
        if name not in header:
            reading.error(name, f"is missing; write '**{name.capitalize()}:** …' below the title", max(title, 0))
    footer = _take_footer(reading, sections[-1]) if sections else {}
    members = _read_labelled(reading, header, footer)
    _read_sections(reading, sections, members)
    if "summary" not in members:
        reading.error("summary", "is missing; write '### Summary' and two or three sentences", max(title, 0))
    return members


def _read_labelled(
    reading: Reading, header: dict[str, LabelledLine], footer: dict[str, LabelledLine]
) -> dict[str, Any]:
    """Return the members in the header and the footer of a report."""
    members: dict[str, Any] = {name: header[name].value for name in ("from", "to", "task") if name in header}
    members["notes"] = []
    if "status" in header:
        members["status"] = read_status(reading, header["status"])
    if "confidence" in header:
        members["confidence"] = read_percent(reading, "confidence", header["confidence"])
    if "handoff confidence" in footer:
        members["handoffConfidence"] = read_percent(reading, "handoffConfidence", footer["handoff confidence"])
    if "ready for next phase" not in footer:
        reading.warn("readiness", "'**Ready for Next Phase:**' is missing; No is assumed")
        return members
    members["readiness"], remark = read_readiness(reading, footer["ready for next phase"])
    if remark:
        members["notes"].append({"heading": "Ready for Next Phase", "items": [remark]})
    return members


def _take_footer(reading: Reading, last: Section) -> dict[str, LabelledLine]:
    """Remove the footer from the last section, and return its lines."""

    def is_footer(number: int) -> bool:
        return read_label(reading.lines[number].strip(" \t"))[0] in FOOTER

    for index, block in enumerate(last.blocks):
        if block.kind not in ("text", "list"):
            continue
        start = next(filter(is_footer, range(block.start, block.end)), None)
        if start is not None:
            tail = range(start, last.blocks[-1].end)
            last.blocks[index:] = [Block("text", block.start, start)] if start > block.start else []
            return read_labelled_lines(reading, tail, FOOTER)
    return {}


def _read_sections(reading: Reading, sections: list[Section], members: dict[str, Any]) -> None:
    """Read every section into the members of the report."""
    findings = members.setdefault("findings", {})
    context = members.setdefault("context", {})
    for section in sections:
        title = section.title
        match SECTIONS.get(normalize_title(title)):
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
                open_blockers, resolved_blockers = read_boxes(reading, section)
                members.setdefault("blockers", []).extend(open_blockers)
                members.setdefault("resolvedBlockers", []).extend(resolved_blockers)
            case "recommendations":
                members.setdefault("recommendations", []).extend(read_items(reading, section, "recommendations"))
            case "verificationCommands":
                scripts = [members.get("verificationScript", ""), read_script(reading, section)]
                members["verificationScript"] = "\n".join(filter(None, scripts))
            case str(member):
                findings.setdefault(member.partition(".")[2], []).extend(read_items(reading, section, member))
            case None if section.blocks or normalize_title(title) != GROUP_TITLE:
                heading = title.removeprefix(NOTE) or "Untitled"
                if not title.startswith(NOTE):
                    reading.warn("notes", "the format has no section of this name; it became a note", section.at)
                members["notes"].append({"heading": heading, "items": read_items(reading, section, "notes")})


def _build_report(reading: Reading, members: dict[str, Any]) -> HandoffReport | None:
    """Return the report, and add its consistency findings; None if there are errors."""
    if any(finding.severity is Severity.ERROR for finding in reading.findings):
        return None
    try:
        report = HandoffReport.from_json_object(members)
    except ValidationError as error:
        for detail in list_faults(error):
            reading.error(".".join(map(str, detail["loc"])), detail["msg"].removeprefix("Value error, "))
        return None
    reading.findings += lint_report(report)
    return report
