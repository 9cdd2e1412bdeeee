"""Tests of reading reports as models write them: fenced whole, with lines for lists, and labels of their own."""

import pytest

from baton.report.parsing import MOST_LINES, parse_report
from baton.report.records import Readiness, ReportError
from tests.report.report_material import EXAMPLE, markdown


class TestFences:
    @pytest.mark.parametrize("before", ["", "Here it is:\n\n"], ids=["alone", "behind talk"])
    @pytest.mark.parametrize("behind", ["", "\nNow run:\n\n```sh\nmake\n```\n"], ids=["last", "before a script"])
    def test_a_fence_within_the_fence_does_not_end_the_report(self, before: str, behind: str) -> None:
        """S4-purpose-b, C-32: models fence the whole with no more ticks than its commands; its foot is in it."""
        parsed = parse_report(f"{before}```markdown\n{EXAMPLE}```\n{behind}")

        assert parsed.report == parse_report(EXAMPLE).report
        assert not any(one.member == "readiness" for one in parsed.warnings)

    def test_an_indented_fence_is_looked_into(self) -> None:
        """As in an item of a list, or below a command line's own marks; what it indents by itself stays so."""
        fenced = "\n".join(f"  {line}" for line in f"```md\n{EXAMPLE}```".split("\n"))

        assert parse_report(fenced).report == parse_report(EXAMPLE).report

    def test_only_the_fence_with_the_title_is_looked_into(self) -> None:
        """Each of these has an end that is not its own: read to the end of the text, they take minutes together."""
        unit = "```a\n```b\n```\n"
        with pytest.raises(ReportError, match="is missing"):
            parse_report(unit * (MOST_LINES // 3 - 1))


class TestLabels:
    def test_a_label_that_the_format_lacks_is_not_part_of_the_value_above_it(self) -> None:
        """S4-purpose-b: a date below the task is no part of the task, and is warned about."""
        parsed = parse_report(
            markdown(Task="Add login\n**Date:** 2026-05-01", foot="**Ready for Next Phase:** Yes\n**Model:** small")
        )

        assert (parsed.report.task, parsed.report.readiness) == ("Add login", Readiness.YES)
        assert sum("was not read" in one.text for one in parsed.warnings) == 2

    def test_reasons_may_stand_in_the_paragraph_of_their_decision(self) -> None:
        """Models write a line for each label, and no list."""
        first = "**Decision**: A\n**Rationale**: B\nand more\n**Alternatives Considered**: C"
        body = f"### Decisions\n{first}\n\n**Decision**: D\n**Rationale**: E"
        found = parse_report(markdown(body)).report.context.decisions

        assert [tuple(one.model_dump().values()) for one in found] == [("A", "B\nand more", "C"), ("D", "E", "")]

    def test_what_is_nested_below_a_reason_belongs_to_it(self) -> None:
        """S4-purpose-b: it was lost, as only a decision's own lists were read."""
        body = "### Decisions\n- **Decision**: A\n- **Rationale**:\n  - fast\n  - cheap"
        (found,) = parse_report(markdown(body)).report.context.decisions

        assert found.rationale == "fast\ncheap"


class TestTitle:
    @pytest.mark.parametrize(
        "title", ["# Handoff Report", "## 📋 Agent Handoff Report: Add login", "### Handoff report (2)"]
    )
    def test_one_that_is_a_little_off_is_one(self, title: str) -> None:
        """It was taken for a section, so all that stood at the head was called missing."""
        parsed = parse_report(f"Done.\n\n{EXAMPLE.replace('## Agent Handoff Report', title)}")

        assert parsed.report == parse_report(EXAMPLE).report
        assert any("write '## Agent Handoff Report'" in one.text for one in parsed.warnings)
        assert any("text before the title" in one.text for one in parsed.warnings)


class TestEmptyLists:
    @pytest.mark.parametrize("text", ["No blockers.", "- [ ] No open questions", "*No blockers or open questions.*"])
    def test_no_blockers_are_none(self, text: str) -> None:
        """Each was an open question of the baton."""
        assert parse_report(markdown(f"### Blockers\n{text}")).report.blockers == []

    @pytest.mark.parametrize("text", ["No files were modified.", "- No new files created", "No artifacts"])
    def test_no_files_are_none(self, text: str) -> None:
        """Each was a path of the work's scope."""
        assert parse_report(markdown(f"#### Artifacts Modified\n{text}")).report.findings.artifacts_modified == []

    @pytest.mark.parametrize("text", ["No blockers were documented for 2.0", "No tests"])
    def test_what_says_more_is_an_entry(self, text: str) -> None:
        """Only what is nothing is left out."""
        assert parse_report(markdown(f"### Blockers\n- [ ] {text}")).report.blockers == [text]


class TestCodeSpans:
    def test_each_line_is_a_command_of_its_own(self) -> None:
        """Two spans were read as one, with the backticks between them in the commands."""
        body = "### Verification\n`make test`\n`make lint`\nand then\n"

        assert parse_report(markdown(body)).report.verification_script == "make test\nmake lint\n# and then"

    def test_two_files_in_a_cell_stay_two(self) -> None:
        """The outer backticks were taken off, which tore the inner ones apart."""
        body = "#### Relevant Files\n| File | Lines | Why It Matters |\n|---|---|---|\n| `a.py`, `b.py` | All | both |"

        assert [one.file for one in parse_report(markdown(body)).report.context.relevant_files] == ["`a.py`, `b.py`"]
