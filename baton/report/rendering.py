r"""A handoff report as Markdown, exactly in the document's format and order (agent-handoff L17-83).

What `render_report` writes, `parse_report` reads back to the same record, whatever the texts in it: none of them
can open a heading, a list or a fence of its own, or end the one it stands in.
"""

import re
from collections.abc import Iterable, Sequence

from baton.report.escaping import cell, code_span, escape, longest_run
from baton.report.records import HandoffReport, RelevantFile, ReportDecision
from baton.report.titles import TITLE

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
    """Return a report as Markdown.

    An empty list is `- None` (C-27). The readiness is written as it is, never as the boolean that follows (C-29).

    Args:
        report: Any report.

    Returns:
        Markdown that ends in a line break.

    Example:
        >>> report = HandoffReport(sender="a", receiver="b", task="t", status="partial", confidence=60, summary="s")
        >>> print(*render_report(report).splitlines()[:6], sep="|")
        ## Agent Handoff Report||**From:** a|**To:** b|**Task:** t|**Status:** partial
    """
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
