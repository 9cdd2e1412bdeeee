"""A report written as Markdown, with whatever an agent wrote escaped; reading it back gives the same report."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from baton.report.records import TITLE, HandoffReport, RelevantFile, ReportDecision

# What stands for an empty list: "None", with or without a remark.
_EMPTY = r"[*_`]{0,3}(?i:none|n/a)[*_`]{0,3}[ \t]*(?:$|[.(:;,—–-])"
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
    """Return a text whose lines open no block of Markdown."""
    return _MEANS_SOMETHING.sub(lambda match: f"{match[0]}\\", text)


def unescape(text: str) -> str:
    """Return the text that `escape` was given; one without such backslashes comes back unchanged."""
    return _ESCAPED.sub(lambda match: match[0][:-1], text)


def means_nothing(text: str) -> bool:
    """Return whether an item says that a list is empty: "None (exploration only)", or "No blockers."."""
    return "\n" not in text and _NOTHING.match(text) is not None


def code_span(text: str) -> str:
    """Return a text as a code span, however many backticks are in it."""
    ticks = "`" * (longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def without_code_span(text: str) -> str:
    """Return what is in a code span; a text that is not just one comes back as it is."""
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
    """Return a line as the content of a table's cell: a pipe, and the backslashes before it, are escaped."""
    return _PIPE.sub(lambda match: match[1] * 2 + r"\|", text)


def cells(row: str) -> list[str]:
    """Return the contents of a table's row."""
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


_LINES = re.compile(r"(.+?):(L?[0-9]+(?:[-–]L?[0-9]+)?(?:, ?[0-9]+(?:[-–][0-9]+)?)*)")
_SPAN_FIRST = re.compile(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)")
# It begins where blanks begin, so that a long run of them costs one look at each.
_SEPARATOR = re.compile(r"(?<![ \t])(?:[ \t]+[-—–][ \t]+|[ \t]*[—–][ \t]*)|:[ \t]+")


@dataclass(frozen=True)
class PathEntry:
    """What an entry says."""

    path: str
    lines: str
    remark: str


def path_entry(text: str) -> PathEntry:
    """Return what an entry such as "`src/auth.ts:50-75` - new flow" says; a hyphen or a dash separates."""
    span = _SPAN_FIRST.match(text)
    if span:
        path, rest = without_code_span(span[0]), text[span.end() :]
        remark = rest.strip().lstrip("-—–:").strip()
    else:
        separator = _SEPARATOR.search(text)
        path = text[: separator.start()] if separator else text
        remark = text[separator.end() :].strip() if separator else ""
    numbered = _LINES.fullmatch(path.strip())
    return PathEntry(numbered[1], numbered[2], remark) if numbered else PathEntry(path.strip(), "", remark)


_NEXT_LINE = re.compile(r"\n(?!\n)")
NOTE = "Note: "
"""Before the heading of a section that the format does not have, so that it is never taken for one that it has."""

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
"""The format, for an agent that is asked to answer in it (`output_style: agent-handoff`)."""


def render_report(report: HandoffReport) -> str:
    """Return a report as Markdown."""
    found, context = report.findings, report.context
    blocks = [
        f"## {TITLE}",
        f"**From:** {report.sender}\n**To:** {report.receiver}\n**Task:** {report.task}\n"
        f"**Status:** {report.status.value}\n**Confidence:** {report.confidence}",
        "---",
        f"### Summary\n{escape(report.summary)}",
        "### Findings",
        f"#### Key Discoveries\n{_numbered(found.discoveries)}",
        f"#### Artifacts Created\n{_bullets(found.artifacts_created)}",
        f"#### Artifacts Modified\n{_bullets(found.artifacts_modified)}",
        "### Context for Next Agent",
        f"#### Relevant Files\n{_table(context.relevant_files)}",
        f"#### Patterns Identified\n{_bullets(context.patterns)}",
        f"#### Decisions Made\n{_decisions(context.decisions)}",
        "### Blockers / Open Questions",
        _boxes(report.blockers, report.resolved_blockers),
        "### Recommendations for Next Agent",
        _numbered(report.recommendations),
        "### Verification Commands",
        _fenced(report.verification_script),
    ]
    for note in report.notes:
        blocks += [f"### {NOTE}{note.heading}", _bullets(note.items)]
    blocks += [
        "---",
        f"**Handoff Confidence:** {report.handoff_confidence}\n**Ready for Next Phase:** {report.readiness.value}",
    ]
    return "\n\n".join(blocks) + "\n"


def _items(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of marker and text each; further lines of a text are indented, and so stay in its item."""
    rows = []
    for marker, text in pairs:
        indent = " " * len(marker.removesuffix("[ ] ").removesuffix("[x] "))
        rows.append(marker + _NEXT_LINE.sub(f"\n{indent}", escape(text)))
    return "\n".join(rows) or "- None"


def _bullets(texts: Iterable[str]) -> str:
    """Return a bulleted list."""
    return _items(("- ", text) for text in texts)


def _numbered(texts: Iterable[str]) -> str:
    """Return a numbered list."""
    return _items((f"{number}. ", text) for number, text in enumerate(texts, 1))


def _boxes(open_ones: Sequence[str], settled: Sequence[str]) -> str:
    """Return a list of boxes: what is open, then what is settled."""
    return _items([*(("- [ ] ", text) for text in open_ones), *(("- [x] ", text) for text in settled)])


def _table(files: Sequence[RelevantFile]) -> str:
    """Return the table of relevant files."""
    if not files:
        return "- None"
    rows = [f"| {cell(code_span(one.file))} | {cell(one.lines)} | {cell(one.reason)} |" for one in files]
    return "\n".join(["| File | Lines | Why It Matters |", "|------|-------|----------------|", *rows])


def _decisions(decisions: Sequence[ReportDecision]) -> str:
    """Return the decisions, each with what is known of its reasons below it."""
    rows = []
    for one in decisions:
        rows.append(_items([("- ", f"**Decision**: {one.decision}")]))
        parts = (("Rationale", one.rationale), ("Alternatives Considered", one.alternatives))
        rows += [_items([("  - ", f"**{label}**: {text}")]) for label, text in parts if text]
    return "\n".join(rows) or "- None"


def _fenced(script: str) -> str:
    """Return a script in a fence that nothing in it can end."""
    if not script:
        return "- None"
    ticks = "`" * max(3, longest_run(script) + 1)
    return f"{ticks}bash\n{script}\n{ticks}"
