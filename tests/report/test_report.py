"""The records of a handoff report, and their JSON."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from baton.report.parsing import parse_report
from baton.report.records import (
    Band,
    HandoffReport,
    Readiness,
    ReportFindings,
    Status,
    band,
    contract_confidence,
    split_commands,
)
from tests.report.report_material import EXAMPLE, REPORTS, report, reports

REQUIRED = ("from", "to", "task", "status", "confidence", "summary")


def minimal(**members: Any) -> dict[str, Any]:
    """Return the JSON of a report with the required members, and others as given."""
    return {"from": "a", "to": "b", "task": "t", "status": "partial", "confidence": 60, "summary": "s", **members}


class TestInterface:
    def test_the_example_has_every_member_with_its_type(self) -> None:
        """S4-parse-a, S4-parse-b, S4-parse-c, S4-parse-d, S4-parse-e, S4-parse-f, S4-parse-g, S4-parse-h, S4-parse-i,
        S4-parse-j, S4-parse-k, S4-parse-l, S4-parse-m: the document's example, member by member.
        """  # noqa: D205 - the ids take two lines
        members = parse_report(EXAMPLE).report.to_json_object()

        assert members == json.loads((REPORTS / "example.json").read_text(encoding="utf-8"))
        assert {name: type(members[name]) for name in REQUIRED} == dict.fromkeys(REQUIRED, str) | {"confidence": int}
        assert list(members["findings"]) == ["discoveries", "artifactsCreated", "artifactsModified"]
        assert list(members["context"]) == ["relevantFiles", "patterns", "decisions"]
        assert list(members["context"]["relevantFiles"][0]) == ["file", "lines", "reason"]
        assert list(members["context"]["decisions"][0]) == ["decision", "rationale", "alternatives"]
        for name in ("blockers", "recommendations", "verificationCommands"):
            assert all(isinstance(item, str) for item in members[name])
        assert members["readyForNextPhase"] is True

    @pytest.mark.parametrize(
        ("place", "wrong"),
        [
            *((name, 5) for name in ("from", "to", "task", "status", "summary")),
            ("confidence", "85"),
            *((f"findings.{name}", [5]) for name in ("discoveries", "artifactsCreated", "artifactsModified")),
            *((f"context.relevantFiles.0.{name}", 5) for name in ("file", "lines", "reason")),
            ("context.patterns", [5]),
            *((f"context.decisions.0.{name}", 5) for name in ("decision", "rationale", "alternatives")),
            *((name, [5]) for name in ("blockers", "recommendations", "verificationCommands")),
            ("readyForNextPhase", "Yes"),
        ],
    )
    def test_other_types_are_refused(self, place: str, wrong: Any) -> None:
        """S4-parse-a, S4-parse-b, S4-parse-c, S4-parse-d, S4-parse-e, S4-parse-f, S4-parse-g, S4-parse-h, S4-parse-i,
        S4-parse-j, S4-parse-k, S4-parse-l: the document's example with one value of another type.
        """  # noqa: D205 - the ids take two lines
        members = json.loads((REPORTS / "example.json").read_text(encoding="utf-8"))
        *way, last = place.split(".")
        inner = members
        for step in way:
            inner = inner[int(step) if step.isdecimal() else step]
        inner[last] = wrong

        with pytest.raises(ValidationError) as refused:
            HandoffReport.from_json_object(members)
        places = [".".join(map(str, fault["loc"])) for fault in refused.value.errors()]
        assert places == [f"{place}.0" if isinstance(wrong, list) else place]

    def test_the_second_confidence_is_read(self) -> None:
        """It is the footer's, not the header's, which is the same in the example (S4-ex-e, S4-fmt-r)."""
        less = EXAMPLE.replace("**Handoff Confidence:** 85", "**Handoff Confidence:** 80")

        assert parse_report(less).report.handoff_confidence == 80

    @given(reports)
    def test_it_survives_json(self, original: HandoffReport) -> None:
        """The JSON of any report is the same report (S4-parse-m)."""
        assert HandoffReport.from_json_object(json.loads(json.dumps(original.to_json_object()))) == original

    @pytest.mark.parametrize("name", REQUIRED)
    def test_six_members_are_required(self, name: str) -> None:
        """No other member is (C-31, S4-parse-a, S4-parse-b, S4-parse-c, S4-parse-d)."""
        members = minimal()

        assert HandoffReport.from_json_object(members)
        with pytest.raises(ValidationError, match=name):
            HandoffReport.from_json_object({key: value for key, value in members.items() if key != name})

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"status": "done"}, id="a fifth status"),
            pytest.param({"status": "Completed"}, id="a status in capitals"),
            pytest.param({"confidence": 101}, id="too sure"),
            pytest.param({"confidence": -1}, id="less than not sure"),
            pytest.param({"confidence": 84.5}, id="half a point"),
            pytest.param({"confidence": "85"}, id="a number as text"),
            pytest.param({"confidence": True}, id="a boolean"),
            pytest.param({"summary": " \n"}, id="a blank summary"),
            pytest.param({"blockers": [""]}, id="a blank entry"),
            pytest.param({"readiness": "yes"}, id="a readiness in small letters"),
            pytest.param({"sender": "a"}, id="Python's spelling"),
            pytest.param({"verdict": "fine"}, id="an unknown member"),
        ],
    )
    def test_invalid_reports_are_refused(self, members: dict[str, Any]) -> None:
        """S4-status-e, S4-fmt-e, S4-fmt-f: closed sets and whole numbers from 0 to 100, in JSON as well."""
        with pytest.raises(ValidationError):
            HandoffReport.from_json_object(minimal(**members))

    def test_line_breaks_are_normalized(self) -> None:
        """A report from another system equals the one that was sent (C-33)."""
        result = report(summary="  one\r\ntwo \x85three\n", task="in\n two")

        assert (result.summary, result.task) == ("one\ntwo\nthree", "in two")


class TestStatus:
    def test_there_are_exactly_four_statuses(self) -> None:
        """S4-status-a, S4-status-b, S4-status-c, S4-status-d, S4-status-e."""
        assert {status.value: status.delivers for status in Status} == {
            "completed": True,
            "partial": True,
            "blocked": False,
            "failed": False,
        }


class TestBand:
    @pytest.mark.parametrize(
        ("confidence", "meaning", "label"),
        [
            (0, Band.LOW, "unverified"),
            (49, Band.LOW, "unverified"),
            (50, Band.MODERATE, "low"),
            (69, Band.MODERATE, "low"),
            (70, Band.GOOD, "medium"),
            (89, Band.GOOD, "medium"),
            (90, Band.HIGH, "high"),
            (100, Band.HIGH, "high"),
        ],
    )
    def test_the_bands_meet_at_their_edges(self, confidence: int, meaning: Band, label: str) -> None:
        """S4-conf-a, S4-conf-b, S4-conf-c, S4-conf-d, S4-conf-e; and X-2's map to contracts' labels, for display."""
        assert (band(confidence), contract_confidence(confidence)) == (meaning, label)

    def test_every_confidence_has_a_band(self) -> None:
        """0 to 100 without a gap, and nothing beyond (S4-conf-e)."""
        assert {band(score) for score in range(101)} == set(Band)
        for beyond in (-1, 101):
            with pytest.raises(ValueError, match="from 0 to 100"):
                band(beyond)

    def test_no_scale_is_converted_silently(self) -> None:
        """A report's confidence is a number in every form it takes (X-2)."""
        result = report(confidence=90)

        assert result.to_json_object()["confidence"] == 90
        with pytest.raises(ValidationError):
            HandoffReport.from_json_object(minimal(confidence="high"))


class TestReadiness:
    @pytest.mark.parametrize(
        ("members", "answer", "boolean"),
        [
            pytest.param({"readiness": "Yes"}, Readiness.YES, True, id="yes"),
            pytest.param({"readiness": "With caveats"}, Readiness.WITH_CAVEATS, True, id="with caveats"),
            pytest.param({"readiness": "No"}, Readiness.NO, False, id="no"),
            pytest.param({"readyForNextPhase": True}, Readiness.YES, True, id="only the interface's boolean"),
            pytest.param({"readyForNextPhase": False}, Readiness.NO, False, id="only the interface's false"),
            pytest.param({}, Readiness.NO, False, id="nothing said"),
            pytest.param(
                {"readiness": "With caveats", "readyForNextPhase": True}, Readiness.WITH_CAVEATS, True, id="both"
            ),
            pytest.param({"readiness": "No", "readyForNextPhase": True}, Readiness.NO, False, id="readiness counts"),
        ],
    )
    def test_the_boolean_follows_from_the_answer(
        self, members: dict[str, Any], answer: Readiness, boolean: bool
    ) -> None:
        """The three answers are the source of truth (C-29, S4-parse-l)."""
        result = HandoffReport.from_json_object(minimal(**members))

        assert (result.readiness, result.ready_for_next_phase) == (answer, boolean)

    @pytest.mark.parametrize("status", Status)
    @pytest.mark.parametrize("readiness", Readiness)
    def test_a_pipeline_continues_with_delivered_work_only(self, status: Status, readiness: Readiness) -> None:
        """With caveats proceeds with completed and partial work, No never does (C-29)."""
        expected = status in ("completed", "partial") and readiness in ("Yes", "With caveats")

        assert report(status=status, readiness=readiness).may_proceed is expected

    def test_the_second_confidence_is_the_first_by_default(self) -> None:
        """It is kept where it differs (C-28)."""
        assert report(confidence=70).handoff_confidence == 70
        assert report(confidence=70, handoff_confidence=0).handoff_confidence == 0


class TestCommandsOf:
    def test_comments_and_blank_lines_are_not_commands(self) -> None:
        """They stay in the script (C-32, S4-parse-k)."""
        script = "# Check\ncat a\n\n  # again\n  make test\n"
        result = report(verification_script=script)

        assert result.verification_commands == ["cat a", "make test"]
        assert result.verification_script == script.strip("\n")

    @pytest.mark.parametrize("line", ["\u200b", "\ufeff", "\u2060 "])
    def test_an_invisible_line_is_not_a_command(self, line: str) -> None:
        """Otherwise the report's own JSON would be invalid (S4-parse-m)."""
        result = report(verification_script=f"make test\n{line}\nmake")

        assert result.verification_commands == ["make test", "make"]
        assert HandoffReport.from_json_object(result.to_json_object()) == result

    def test_a_backslash_continues_a_command(self) -> None:
        """The lines are one command."""
        assert split_commands("make \\\n  -C x \\\n# no comment here\ntrue\nlast \\") == [
            "make \\\n  -C x \\\n# no comment here",
            "true",
            "last \\",
        ]

    def test_commands_without_a_script_make_one(self) -> None:
        """JSON by the document's interface has only the commands."""
        result = HandoffReport.from_json_object(minimal(verificationCommands=["cat a", "cat b"]))

        assert (result.verification_script, result.verification_commands) == ("cat a\ncat b", ["cat a", "cat b"])

    def test_a_hostile_script_is_read_in_one_pass(self) -> None:
        """A quarter of a million continued lines are one command."""
        assert len(split_commands("\\\n" * 250_000)) == 1


class TestImports:
    def test_only_the_parser_needs_a_markdown_library(self) -> None:
        """Workflows render, merge and patch; activities and clients parse."""
        rooms = ("records", "rendering", "rules")
        modules = ", ".join(f"baton.report.{name}" for name in rooms)
        code = f"import sys, {modules}; sys.exit('markdown_it' in sys.modules)"

        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestRecord:
    def test_it_is_frozen(self) -> None:
        """A change makes a new report."""
        with pytest.raises(ValidationError, match="frozen"):
            report().task = "another"  # type: ignore[misc]

    def test_python_makes_it_with_pythons_names(self) -> None:
        """JSON uses the document's names."""
        assert ReportFindings(artifacts_created=["`a`"]).to_json_object()["artifactsCreated"] == ["`a`"]
