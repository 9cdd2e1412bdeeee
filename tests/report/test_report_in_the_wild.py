"""Reports as models write them: in a fence, with lines instead of lists, and with unknown labels."""

import pytest

from baton.report.parsing import parse_report
from baton.report.records import MAX_LINES, Readiness, ReportError
from tests.report.report_material import EXAMPLE, markdown


class TestFences:
    @pytest.mark.parametrize("before", ["", "Here it is:\n\n"], ids=["alone", "behind talk"])
    @pytest.mark.parametrize("behind", ["", "\nNow run:\n\n```sh\nmake\n```\n"], ids=["last", "before a script"])
    def test_a_nested_fence_does_not_end_the_report(self, before: str, behind: str) -> None:
        """S4-purpose-b, C-32: models fence the whole report with as many backticks as its commands."""
        parsed = parse_report(f"{before}```markdown\n{EXAMPLE}```\n{behind}")

        assert parsed.report == parse_report(EXAMPLE).report
        assert not any(warning.member == "readiness" for warning in parsed.warnings)

    def test_an_indented_fence_is_read(self) -> None:
        """The fence can be in a list item; indentation inside it is kept."""
        fenced = "\n".join(f"  {line}" for line in f"```md\n{EXAMPLE}```".split("\n"))

        assert parse_report(fenced).report == parse_report(EXAMPLE).report

    def test_only_the_fence_with_the_title_is_read(self) -> None:
        """Reading each fence to the end of the text would take minutes."""
        unit = "```a\n```b\n```\n"
        with pytest.raises(ReportError, match="is missing"):
            parse_report(unit * (MAX_LINES // 3 - 1))


class TestLabels:
    def test_an_unknown_label_does_not_continue_the_value_above(self) -> None:
        """S4-purpose-b: a date below the task is no part of the task, and is warned about."""
        parsed = parse_report(
            markdown(Task="Add login\n**Date:** 2026-05-01", foot="**Ready for Next Phase:** Yes\n**Model:** small")
        )

        assert (parsed.report.task, parsed.report.readiness) == ("Add login", Readiness.YES)
        assert sum("was ignored" in warning.text for warning in parsed.warnings) == 2

    def test_items_nested_below_a_reason_belong_to_it(self) -> None:
        """S4-purpose-b: items nested below a reason are part of it."""
        body = "### Decisions\n- **Decision**: A\n- **Rationale**:\n  - fast\n  - cheap"
        (decision,) = parse_report(markdown(body)).report.context.decisions

        assert decision.rationale == "fast\ncheap"


class TestCodeSpans:
    def test_each_line_is_a_separate_command(self) -> None:
        """Two code spans are two commands."""
        body = "### Verification\n`make test`\n`make lint`\nand then\n"

        assert parse_report(markdown(body)).report.verification_script == "make test\nmake lint\n# and then"

    def test_two_code_spans_in_a_cell_are_kept(self) -> None:
        """Only a single code span loses its backticks."""
        body = "#### Relevant Files\n| File | Lines | Why It Matters |\n|---|---|---|\n| `a.py`, `b.py` | All | both |"

        assert [file.file for file in parse_report(markdown(body)).report.context.relevant_files] == ["`a.py`, `b.py`"]
