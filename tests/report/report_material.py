"""Material for tests of handoff reports: the document's example, and generators of hostile reports."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from baton.report.records import (
    HandoffReport,
    Note,
    Readiness,
    RelevantFile,
    ReportContext,
    ReportDecision,
    ReportFindings,
    Status,
)

REPORTS = Path(__file__).parents[1] / "data/reports"
EXAMPLE = (REPORTS / "example.md").read_text(encoding="utf-8")
"""The document's own example, code-explorer to code-architect (L131-200)."""

NASTY = (
    *("|", "\\", "`", "```", "~~~", "#", "## ", "### Summary", "> ", "- ", "* ", "1. ", "2) ", "[ ] ", "[x] ", "---"),
    *("None", "none (x)", "***", "===", "\n", "\r\n", "\r", "\n\n", "    ", "  ", "\t", "a", "b c", "_", "=", ":--"),
    *("**From:** x", "**Decision**: ", "**Rationale**: z", "**Handoff Confidence:** 3", "Ready for Next Phase: Yes"),
    *("<!--", "<script>", "[a]: b", "&#10;", "\u2028", "\x85", "\u00a0", "é", "漢", "😀", "\0", "\x0b", "\x1c"),
    *("| a | b |", "|---|---|", "-", "+", "## Agent Handoff Report", "Note: ", "(", ")", ":", "—", "$", "!", "- None"),
    *(
        "**Summary**",
        "**2. Open Questions:**\n",
        "__Findings__:",
        "**Agent Handoff Report**",
        "n/a",
        "**Date:** x",
        "No files.",
        "no blockers",
    ),
)
"""Pieces that mean something in Markdown, in the format, or to a careless reader of lines."""


def _says(text: str) -> bool:
    return any(sign.isalnum() for sign in text)


nasty = st.one_of(
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=12).map("".join), st.text(min_size=1, max_size=20)
).filter(_says)
"""Texts that try to get out of where they stand."""
_many = st.lists(nasty, max_size=3)
_perhaps = st.one_of(st.just(""), nasty)


def _build(kind: Any, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(members).map(lambda values_by_name: kind(**values_by_name))


consistent = st.one_of(
    st.tuples(st.sampled_from([Status.COMPLETED, Status.PARTIAL]), st.sampled_from(Readiness)),
    st.tuples(
        st.sampled_from([Status.BLOCKED, Status.FAILED]), st.sampled_from([Readiness.NO, Readiness.WITH_CAVEATS])
    ),
)
"""Pairs of a status and a readiness that do not contradict each other."""

reports = st.builds(
    lambda pair, members: HandoffReport(status=pair[0], readiness=pair[1], **members),
    consistent,
    st.fixed_dictionaries(
        {
            "sender": nasty,
            "receiver": nasty,
            "task": nasty,
            "summary": nasty,
            "confidence": st.integers(0, 100),
            "handoff_confidence": st.integers(0, 100),
            "findings": _build(ReportFindings, discoveries=_many, artifacts_created=_many, artifacts_modified=_many),
            "context": _build(
                ReportContext,
                relevant_files=st.lists(_build(RelevantFile, file=nasty, lines=_perhaps, reason=_perhaps), max_size=2),
                patterns=_many,
                decisions=st.lists(
                    _build(ReportDecision, decision=nasty, rationale=_perhaps, alternatives=_perhaps), max_size=2
                ),
            ),
            "blockers": _many,
            "resolved_blockers": _many,
            "recommendations": _many,
            "verification_script": _perhaps,
            "notes": st.lists(_build(Note, heading=nasty, items=_many), max_size=2),
        }
    ),
)
"""Reports that are consistent and otherwise as nasty as can be."""


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Return a strategy for the document's example with a few lines deleted, moved, indented, duplicated or damaged."""
    lines = EXAMPLE.split("\n")
    for _ in range(draw(st.integers(1, 6))):
        index, other_index = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        match draw(st.sampled_from(["delete", "insert", "append", "indent", "swap"])):
            case "delete" if len(lines) > 1:
                del lines[index]
            case "insert":
                lines.insert(index, draw(nasty))
            case "append":
                lines[index] += draw(nasty)
            case "indent":
                lines[index] = draw(st.sampled_from(["  ", "    ", "> ", "- ", "\t"])) + lines[index]
            case _:
                lines[index], lines[other_index] = lines[other_index], lines[index]
    return "\n".join(lines)


def report(**members: Any) -> HandoffReport:
    """Return a report with the six required members, and others as given."""
    required = {
        "sender": "planner",
        "receiver": "coder",
        "task": "Add login",
        "status": Status.COMPLETED,
        "confidence": 85,
        "summary": "The plan is written. It has three steps.",
    }
    return HandoffReport(**{**required, **members})


def markdown(body: str = "", *, summary: str = "Done. It works.", foot: str = "", **header: str) -> str:
    """Return a report's text: a head with the given values, a summary, a body, and a foot."""
    values = {"From": "a", "To": "b", "Task": "t", "Status": "completed", "Confidence": "85", **header}
    head = "\n".join(f"**{name}:** {value}" for name, value in values.items() if value)
    end = foot or "**Handoff Confidence:** 85\n**Ready for Next Phase:** Yes"
    return f"## Agent Handoff Report\n\n{head}\n\n---\n\n### Summary\n{summary}\n\n{body}\n\n---\n\n{end}\n"
