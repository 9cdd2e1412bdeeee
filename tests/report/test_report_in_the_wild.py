"""Tests of reading reports as models write them: fenced whole, with lines for lists, and labels of their own."""

import pytest

from baton.report.parsing import MAX_LINES, parse_report
from baton.report.records import Readiness, ReportError
from tests.report.report_material import EXAMPLE, markdown


class TestFences:
    @pytest.mark.parametrize("before", ["", "Here it is:\n\n"], ids=["alone", "behind talk"])
    @pytest.mark.parametrize("behind", ["", "\nNow run:\n\n```sh\nmake\n```\n"], ids=["last", "before a script"])
    def test_a_fence_within_the_fence_does_not_end_the_report(self, before: str, behind: str) -> None:
        """S4-purpose-b, C-32: models fence the whole with no more ticks than its commands; its foot is in it."""
        parsed = parse_report(f"{before}```markdown\n{EXAMPLE}```\n{behind}")

        assert parsed.report == parse_report(EXAMPLE).report
        assert not any(warning.member == "readiness" for warning in parsed.warnings)

    def test_an_indented_fence_is_looked_into(self) -> None:
        """As in an item of a list, or below a command line's own marks; what it indents by itself stays so."""
        fenced = "\n".join(f"  {line}" for line in f"```md\n{EXAMPLE}```".split("\n"))

        assert parse_report(fenced).report == parse_report(EXAMPLE).report

    def test_only_the_fence_with_the_title_is_looked_into(self) -> None:
        """Each of these has an end that is not its own: read to the end of the text, they take minutes together."""
        unit = "```a\n```b\n```\n"
        with pytest.raises(ReportError, match="is missing"):
            parse_report(unit * (MAX_LINES // 3 - 1))


class TestLabels:
    def test_a_label_that_the_format_lacks_is_not_part_of_the_value_above_it(self) -> None:
        """S4-purpose-b: a date below the task is no part of the task, and is warned about."""
        parsed = parse_report(
            markdown(Task="Add login\n**Date:** 2026-05-01", foot="**Ready for Next Phase:** Yes\n**Model:** small")
        )

        assert (parsed.report.task, parsed.report.readiness) == ("Add login", Readiness.YES)
        assert sum("was ignored" in warning.text for warning in parsed.warnings) == 2

    def test_what_is_nested_below_a_reason_belongs_to_it(self) -> None:
        """S4-purpose-b: it was lost, as only a decision's own lists were read."""
        body = "### Decisions\n- **Decision**: A\n- **Rationale**:\n  - fast\n  - cheap"
        (decision,) = parse_report(markdown(body)).report.context.decisions

        assert decision.rationale == "fast\ncheap"


class TestCodeSpans:
    def test_each_line_is_a_command_of_its_own(self) -> None:
        """Two spans were read as one, with the backticks between them in the commands."""
        body = "### Verification\n`make test`\n`make lint`\nand then\n"

        assert parse_report(markdown(body)).report.verification_script == "make test\nmake lint\n# and then"

    def test_two_files_in_a_cell_stay_two(self) -> None:
        """The outer backticks were taken off, which tore the inner ones apart."""
        body = "#### Relevant Files\n| File | Lines | Why It Matters |\n|---|---|---|\n| `a.py`, `b.py` | All | both |"

        assert [file.file for file in parse_report(markdown(body)).report.context.relevant_files] == ["`a.py`, `b.py`"]
