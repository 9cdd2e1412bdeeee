"""Renders a report as Markdown, escaped so that parsing it returns the same report."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from baton.report.records import TITLE, HandoffReport, RelevantFile, ReportDecision

# An empty list: "None", with or without a remark.
_EMPTY = r"[*_`]{0,3}(?i:none|n/a)[*_`]{0,3}[ \t]*(?:$|[.(:;,—–-])"
# Markdown syntax at the start of a line, after any number of backslashes.
_SYNTAX = re.compile(
    rf"""^[ \t]*+(?:
        [0-9]{{1,9}}(?=\\*+[.)](?:[ \t]|$))                       # a numbered item; the backslash goes after the number
      | (?=\\*+(?:
            [#>|<=] | ``` | ~~~ | [-+*](?:[ \t]|$) | --        # heading, quote, table, HTML, fence, item, rule
          | (?:[-_*][ \t]*){{3,}}$                               # rule
          | [-:][-:|\ \t]*$                                    # second line of a table
          | \[[^\]\n]*\]:                                      # link definition
          | (?i:(?:\*\*|__)?(?:handoff\ confidence|ready\ for\ next\ phase))  # the footer of a report
          | {_EMPTY}                                           # an empty list
        ))
    )""",
    re.VERBOSE | re.MULTILINE,
)
_ESCAPED = re.compile(_SYNTAX.pattern + r"\\", re.VERBOSE | re.MULTILINE)
_EMPTY_ITEM = re.compile(_EMPTY, re.VERBOSE)
_TICKS = re.compile("`+")
_PIPE = re.compile(r"(?<!\\)(\\*)\|")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)", re.DOTALL)


def escape(text: str) -> str:
    """Escape Markdown syntax at the start of lines."""
    return _SYNTAX.sub(lambda match: f"{match[0]}\\", text)


def unescape(text: str) -> str:
    """Reverse `escape`."""
    return _ESCAPED.sub(lambda match: match[0][:-1], text)


def is_empty_item(text: str) -> bool:
    """Return whether an item means an empty list, such as "None (exploration only)"."""
    return "\n" not in text and _EMPTY_ITEM.match(text) is not None


def to_code_span(text: str) -> str:
    """Return a text as a code span; it may contain backticks."""
    ticks = "`" * (longest_backtick_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def strip_code_span(text: str) -> str:
    """Return the content of a code span; any other text is returned unchanged."""
    match = _CODE_SPAN.fullmatch(text)
    if not match or match[1] in _TICKS.findall(match[2]):  # two spans
        return text
    content = match[2]
    padded = content.startswith(" ") and content.endswith(" ") and content.strip(" ")
    return content[1:-1] if padded else content


def longest_backtick_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max((len(run) for run in _TICKS.findall(text)), default=0)


def escape_cell(text: str) -> str:
    """Escape pipes, and the backslashes before them, for a table's cell."""
    return _PIPE.sub(lambda match: match[1] * 2 + r"\|", text)


def split_cells(row: str) -> list[str]:
    """Return the cells of a table's row."""
    contents, current, end = [], "", 0
    for match in _PIPE.finditer(row):
        slashes = len(match[1])
        current += row[end : match.start()] + "\\" * (slashes // 2)
        end = match.end()
        if slashes % 2:
            current += "|"
        else:
            contents.append(current.strip(" \t"))
            current = ""
    contents.append((current + row[end:]).strip(" \t"))
    first = 1 if row.lstrip(" \t").startswith("|") else 0
    last = -1 if len(contents) > 1 and not contents[-1] else None
    return contents[first:last]


_LINES = re.compile(r"(.+?):(L?[0-9]+(?:[-–]L?[0-9]+)?(?:, ?[0-9]+(?:[-–][0-9]+)?)*)")
_SPAN_FIRST = re.compile(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)")
# The lookbehind makes long runs of blanks take linear time.
_SEPARATOR = re.compile(r"(?<![ \t])(?:[ \t]+[-—–][ \t]+|[ \t]*[—–][ \t]*)|:[ \t]+")


@dataclass(frozen=True)
class PathEntry:
    """A path, its lines and a remark."""

    path: str
    lines: str
    remark: str


def parse_path_entry(text: str) -> PathEntry:
    """Parse an entry such as "`src/auth.ts:50-75` - new flow"."""
    span = _SPAN_FIRST.match(text)
    if span:
        path, rest = strip_code_span(span[0]), text[span.end() :]
        remark = rest.strip().lstrip("-—–:").strip()
    else:
        separator = _SEPARATOR.search(text)
        path = text[: separator.start()] if separator else text
        remark = text[separator.end() :].strip() if separator else ""
    numbered = _LINES.fullmatch(path.strip())
    return PathEntry(numbered[1], numbered[2], remark) if numbered else PathEntry(path.strip(), "", remark)


_NEXT_LINE = re.compile(r"\n(?!\n)")
NOTE = "Note: "
"""The prefix of a note's heading, which keeps it distinct from the format's sections."""

FORMAT = """\
## Agent Handoff Report

**From:** [agent-name]
**To:** [target-agent or parent]
**Task:** [brief description]
**Status:** [completed|partial|blocked|failed]
**Confidence:** [0-100]

---

### Summary
<2-3 sentences describing what was accomplished>

### Findings

#### Key Discoveries
1. [Discovery with file:line reference]

#### Artifacts Created
- `path/to/file.ts` - [description]

#### Artifacts Modified
- `path/to/file.ts:50-75` - [what changed]

### Context for Next Agent

#### Relevant Files
| File | Lines | Why It Matters |
|------|-------|----------------|
| `src/path/file.ts` | 1-50 | [reason] |

#### Patterns Identified
- [Pattern]: Found in [location]

#### Decisions Made
- **Decision**: [what was decided]
  - **Rationale**: [why]
  - **Alternatives Considered**: [what else was possible]

### Blockers / Open Questions

- [ ] [Blocker or question requiring human input]

### Recommendations for Next Agent

1. [Specific action to take]

### Verification Commands

```bash
# How to verify this work
[command 1]
```

---

**Handoff Confidence:** [0-100]
**Ready for Next Phase:** [Yes|No|With caveats]
"""
"""The format, for the prompt of an agent that answers in it (`output_style: agent-handoff`)."""


def render_report(report: HandoffReport) -> str:
    """Return a report as Markdown."""
    return _join_blocks(report, ["---", *_list_sections(report)], _footer(report))


def render_for_agent(report: HandoffReport) -> str:
    """Return a report as Markdown for the next agent's prompt: readiness and advice first, and what was found last.

    A prompt without room for all of it shows its beginning.
    """
    return _join_blocks(report, [_footer(report), "---", *_list_sections(report, advice_first=True)], "")


def _join_blocks(report: HandoffReport, sections: Sequence[str], footer: str) -> str:
    head = [
        f"## {TITLE}",
        f"**From:** {report.sender}\n**To:** {report.receiver}\n**Task:** {report.task}\n"
        f"**Status:** {report.status.value}\n**Confidence:** {report.confidence}",
    ]
    return "\n\n".join([*head, *sections, *(["---", footer] if footer else [])]) + "\n"


def _footer(report: HandoffReport) -> str:
    return f"**Handoff Confidence:** {report.handoff_confidence}\n**Ready for Next Phase:** {report.readiness.value}"


def _list_sections(report: HandoffReport, *, advice_first: bool = False) -> list[str]:
    """Return the sections in the format's order, or in that of their use to the next agent."""
    findings, context = report.findings, report.context
    found = [
        "### Findings",
        f"#### Key Discoveries\n{_render_numbered(findings.discoveries)}",
        f"#### Artifacts Created\n{_render_bullets(findings.artifacts_created)}",
        f"#### Artifacts Modified\n{_render_bullets(findings.artifacts_modified)}",
    ]
    needed = [
        "### Context for Next Agent",
        f"#### Relevant Files\n{_render_table(context.relevant_files)}",
        f"#### Patterns Identified\n{_render_bullets(context.patterns)}",
        f"#### Decisions Made\n{_render_decisions(context.decisions)}",
    ]
    advice = [
        "### Blockers / Open Questions",
        _render_boxes(report.blockers, report.resolved_blockers),
        "### Recommendations for Next Agent",
        _render_numbered(report.recommendations),
        "### Verification Commands",
        _render_fence(report.verification_script),
    ]
    notes = [text for note in report.notes for text in (f"### {NOTE}{note.heading}", _render_bullets(note.items))]
    ordered = [*advice, *needed, *found] if advice_first else [*found, *needed, *advice]
    return [f"### Summary\n{escape(report.summary)}", *ordered, *notes]


def _render_items(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list from markers and texts, with the later lines of each text indented."""
    rows = []
    for marker, text in pairs:
        indent = " " * len(marker.removesuffix("[ ] ").removesuffix("[x] "))
        rows.append(marker + _NEXT_LINE.sub(f"\n{indent}", escape(text)))
    return "\n".join(rows) or "- None"


def _render_bullets(texts: Iterable[str]) -> str:
    return _render_items(("- ", text) for text in texts)


def _render_numbered(texts: Iterable[str]) -> str:
    return _render_items((f"{number}. ", text) for number, text in enumerate(texts, 1))


def _render_boxes(open_items: Sequence[str], resolved: Sequence[str]) -> str:
    """Return a list of open boxes, then of checked ones."""
    return _render_items([*(("- [ ] ", text) for text in open_items), *(("- [x] ", text) for text in resolved)])


def _render_table(files: Sequence[RelevantFile]) -> str:
    if not files:
        return "- None"
    cells = [(to_code_span(file.file), file.lines, file.reason) for file in files]
    rows = [f"| {' | '.join(map(escape_cell, row))} |" for row in cells]
    return "\n".join(["| File | Lines | Why It Matters |", "|------|-------|----------------|", *rows])


def _render_decisions(decisions: Sequence[ReportDecision]) -> str:
    """Return the decisions, each with its rationale and alternatives below it."""
    rows = []
    for decision in decisions:
        rows.append(_render_items([("- ", f"**Decision**: {decision.decision}")]))
        parts = (("Rationale", decision.rationale), ("Alternatives Considered", decision.alternatives))
        rows += [_render_items([("  - ", f"**{label}**: {text}")]) for label, text in parts if text]
    return "\n".join(rows) or "- None"


def _render_fence(script: str) -> str:
    """Return a script in a fence longer than any in the script."""
    if not script:
        return "- None"
    ticks = "`" * max(3, longest_backtick_run(script) + 1)
    return f"{ticks}bash\n{script}\n{ticks}"
