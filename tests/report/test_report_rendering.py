"""A handoff report as Markdown. `python -m tests.report.test_report_rendering` writes the golden files anew."""

import json
import re

import pytest

from baton.report.parsing import parse_report
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
from baton.report.rendering import FORMAT, render_report
from tests.report.report_material import EXAMPLE, REPORTS, report

FULL = HandoffReport(
    sender="implementer",
    receiver="reviewer",
    task="Add OAuth login",
    status=Status.PARTIAL,
    confidence=72,
    summary="Login works with GitHub.\nGoogle is not done yet.",
    findings=ReportFindings(
        discoveries=["Sessions live in `src/auth.ts:10-20`", "# no heading\n---\n```\nno fence"],
        artifacts_created=["`src/oauth.ts` - the flow"],
        artifacts_modified=["`src/auth.ts:50-75` - calls it"],
    ),
    context=ReportContext(
        relevant_files=[RelevantFile(file="src/a|b.ts", lines="1-5 | 9", reason="A \\| in its name")],
        patterns=["**Adapter**: one for each provider"],
        decisions=[
            ReportDecision(decision="Use PKCE", rationale="no secret in the client", alternatives="implicit flow"),
            ReportDecision(decision="No cookies"),
        ],
    ),
    blockers=["Which Google project?"],
    resolved_blockers=["Is the callback public?"],
    recommendations=["Read the flow", "None of the tokens is stored; keep it so"],
    verification_script="# the tests\nmake test\necho '```'",
    handoff_confidence=65,
    readiness=Readiness.WITH_CAVEATS,
    notes=[Note(heading="Summary", items=["a section of one's own"])],
)
"""A report with everything in it."""

GOLDEN = {"example_rendered.md": render_report(parse_report(EXAMPLE).report), "full.md": render_report(FULL)}


def headings(text: str) -> list[str]:
    """Return the headings and rules of a page in order, outside of fences."""
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(?:#{2,4} .+|---)$", outside, flags=re.MULTILINE)


class TestRenderReport:
    @pytest.mark.parametrize("name", GOLDEN)
    def test_the_output_is_the_committed_page(self, name: str) -> None:
        """S4-fmt-a, S4-fmt-b, S4-fmt-c, S4-fmt-d, S4-fmt-e, S4-fmt-f, S4-fmt-g, S4-fmt-h, S4-fmt-i, S4-fmt-j, S4-fmt-k,
        S4-fmt-l, S4-fmt-m, S4-fmt-n, S4-fmt-o, S4-fmt-p, S4-fmt-q, S4-fmt-r: every line of the format.
        """  # noqa: D205 - the ids take two lines
        assert GOLDEN[name] == (REPORTS / name).read_text(encoding="utf-8")

    def test_the_documents_example_round_trips(self) -> None:
        """Only the remark behind None goes (S4-ex-a, S4-ex-b, C-27)."""
        assert render_report(parse_report(EXAMPLE).report) == EXAMPLE.replace("None (exploration only)", "None")

    def test_sections_and_rules_stand_in_the_documents_order(self) -> None:
        """S4-fmt-s, S4-fmt-g: the same for an empty report and for a full one."""
        order = headings(EXAMPLE)

        assert headings(render_report(report())) == order
        assert [heading for heading in headings(render_report(FULL)) if "Note" not in heading] == order
        assert headings(FORMAT) == order

    def test_an_empty_list_is_written_as_none(self) -> None:
        """C-27: an empty list is "None", not a missing section."""
        page = render_report(report())

        assert page.count("\n- None\n") == 9

    @pytest.mark.parametrize("readiness", Readiness)
    def test_the_readiness_is_written_unchanged(self, readiness: Readiness) -> None:
        """With caveats never becomes Yes by way of the boolean (C-29)."""
        once = HandoffReport.from_json_object(report(readiness=readiness).to_json_object())

        assert f"**Ready for Next Phase:** {readiness.value}\n" in render_report(once)

    def test_the_fence_is_longer_than_any_in_the_script(self) -> None:
        """C-32: a script cannot end its own fence."""
        assert "\n````bash\n# the tests\nmake test\necho '```'\n````\n" in render_report(FULL)

    def test_no_text_opens_a_block(self) -> None:
        """C-33: headings, rules and fences in a text stay text, for a person and for an agent."""
        page = render_report(FULL)

        assert "2. \\# no heading\n   \\---\n   \\```\n   no fence\n" in page
        assert "| `src/a\\|b.ts` | 1-5 \\| 9 | A \\\\\\| in its name |" in page


class TestFormat:
    def test_the_format_is_the_documents_and_not_a_report(self) -> None:
        """An agent that returns the empty format gets errors (S4-int-a)."""
        assert re.findall(r"\*\*(\w[\w ]+):\*\*", FORMAT) == re.findall(r"\*\*(\w[\w ]+):\*\* ", EXAMPLE)


if __name__ == "__main__":
    for file, text in GOLDEN.items():
        (REPORTS / file).write_text(text, encoding="utf-8")
    members = parse_report(EXAMPLE).report.to_json_object()
    (REPORTS / "example.json").write_text(json.dumps(members, indent=2) + "\n", encoding="utf-8")
