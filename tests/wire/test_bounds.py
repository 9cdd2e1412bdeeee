"""No input determines how long its reader works: bounds on counts, only first faults, one limit for workflow code."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from baton import Baton
from baton.core.messages import PipelineInput, StageReturn
from baton.core.patching import patch_effect
from baton.core.state import PipelineState
from baton.core.store_schemas import SchemaGate
from baton.errors import MalformedMessageError, PatchError
from baton.handoff.store_gate import handoff_gate
from baton.report.parsing import parse_report
from baton.report.records import MAX_CHARACTERS, ReportError
from baton.wire.json_values import MAX_MESSAGE_VALUES, MAX_VALUES, count_containers, find_excess, loads_strict
from baton.wire.text import MAX_FAULTS, describe_faults, list_faults
from tests.wire.hostile import WIRE_RECORDS, messages, read, steps, values

SIZE = 60_000
MOST_STEPS = 20 * SIZE
"""Lines of Python that one check may take: a few for each of `SIZE` values, and not more for what is beyond a bound."""


class TestExcess:
    def test_it_names_the_container_that_holds_too_much(self) -> None:
        """The path starts at the outside, and the message names the limit."""
        excess = find_excess({"artifacts": [{"notes": [0] * 20_000}]})

        assert excess is not None
        assert excess.path == ("artifacts", 0, "notes")
        assert "20,000 entries; at most 10,000" in excess.text

    def test_the_bound_itself_is_allowed(self) -> None:
        """A value at the limit is read, and one above it is not."""
        assert find_excess([0] * MAX_VALUES) is None
        assert find_excess([0] * (MAX_VALUES + 1)) is not None
        assert find_excess({"a": [[0] * (MAX_VALUES - 2)]}) is None

    def test_depth_is_bounded(self) -> None:
        """Deep values are refused without recursion."""
        deep = values(10)["deep"]

        excess = find_excess({"state": deep})
        assert excess is not None
        assert excess.path == ("state",)

    def test_it_does_not_count_beyond_the_bound(self) -> None:
        """A hundred times the input is not more work."""
        small, large = (steps(lambda size=size: find_excess([[0]] * size)) for size in (MAX_VALUES + 1, 1_000_000))  # type: ignore[misc]
        assert large <= small + 10


class TestRecords:
    def test_reading_a_hostile_object_is_bounded_work(self) -> None:
        """Reading any member and reporting its faults takes a bounded number of steps."""
        slow: list[str] = []
        for kind in WIRE_RECORDS:
            for what, members in messages(kind, SIZE):
                errors: list[ValidationError | None] = []
                work = steps(lambda: errors.append(read(kind, members)))  # noqa: B023
                error = errors[0]
                work += 0 if error is None else steps(lambda: describe_faults(error))  # noqa: B023
                listed = 0 if error is None else len(list_faults(error))
                if work > MOST_STEPS or listed > MAX_FAULTS:
                    slow.append(f"{what}: {work:,} steps, {listed} faults")
        assert slow == []


class TestPatches:
    @pytest.mark.parametrize("size", [1_900, SIZE])
    def test_a_hostile_patch_is_refused_in_bounded_work(self, size: int) -> None:
        """It is a finding for the stage, never a million findings."""
        slow = []
        for name in (*Baton.FIELDS, "nobody"):
            for what, value in values(size).items():
                state = PipelineState(Baton(goal="Add login"))
                returned = StageReturn(stage="plan", seq=1, baton_patch={name: value})
                findings: list[str] = []
                work = steps(lambda: findings.extend(_refusal(state, returned)))  # noqa: B023
                if work > MOST_STEPS or len(findings) > 21:
                    slow.append(f"{name}: {what}: {work:,} steps, {len(findings)} findings")
        assert slow == []

    def test_the_refusal_names_the_member(self) -> None:
        """The findings for the agent fit into a prompt."""
        with pytest.raises(PatchError) as error:
            patch_effect(Baton(goal="Add login"), {"artifacts": [{}] * 200_000})
        assert error.value.findings == [
            "artifacts: has 200,000 entries; at most 10,000 JSON values are allowed in all; "
            "put content into an artifact"
        ]

    def test_a_branch_is_bounded_before_it_is_merged(self) -> None:
        """A merge compares entries with each other."""
        state = PipelineState(Baton(goal="Add login"))
        branch = StageReturn(stage="plan", seq=1, baton_patch={"constraints": ["x"] * SIZE})
        with pytest.raises(PatchError):
            state.record_fan_out(1, "plan", [branch], datetime(2026, 6, 1, tzinfo=UTC))

    def test_a_run_does_not_start_with_a_hostile_baton(self) -> None:
        """The input is refused with one fault, which names the member."""
        start = PipelineInput(goal="Add login", baton={"artifacts": [{}] * SIZE})

        with pytest.raises(ValidationError) as error:
            start.first_baton()
        assert [fault["loc"] for fault in list_faults(error.value)] == [("artifacts",)]


class TestGate:
    @pytest.mark.parametrize("size", [MAX_MESSAGE_VALUES - 10, SIZE])
    def test_a_hostile_message_is_refused_in_bounded_work(self, size: int) -> None:
        """`completedSubtasks: [{}, {}, …]` and the like: at most twenty findings."""
        slow = []
        check = handoff_gate()
        for name in ("completedSubtasks", "currentState", "receiverList", "fromAgent", "step", "unknown"):
            for what, value in values(size).items():
                results: list[Any] = []
                work = steps(lambda: results.extend(check({name: value})))  # noqa: B023
                if work > MOST_STEPS or not 1 <= len(results) <= 20:
                    slow.append(f"{name}: {what}: {work:,} steps, {len(results)} findings")
        assert slow == []

    def test_the_first_fault_of_a_long_message_is_found_wherever_it_is(self) -> None:
        """Only the start is searched for further faults."""
        gate = SchemaGate({"properties": {"names": {"items": {"type": "string"}}}})

        assert gate({"names": ["x"] * 40_000}) == []
        assert [finding.at for finding in gate({"names": [*["x"] * 39_999, 1]})] == ["/names/39999"]
        assert [finding.at for finding in gate({"names": [1, 2, *["x"] * 39_999, 3]})] == ["/names/0", "/names/1"]

    def test_truncation_is_not_a_fault(self) -> None:
        """The start of a list may break a rule about length or content that the whole list keeps."""
        rules = {"minItems": 5_000, "contains": {"const": "last"}}
        gate = SchemaGate({"properties": {"names": rules, "count": {"type": "integer"}}})

        assert [finding.at for finding in gate({"names": [*["x"] * 5_000, "last"], "count": "1"})] == ["/count"]

    def test_json_with_too_many_values_is_not_read(self) -> None:
        """Brackets are counted before parsing, in each spelling."""
        for raw in (b'{"a":[' + b"{}," * 400_000 + b"{}]}", b'{"a": [' + b"1, " * 400_000 + b"1]}"):
            with pytest.raises(MalformedMessageError):
                loads_strict(raw)

    def test_brackets_in_texts_are_not_counted(self) -> None:
        """Code, or JSON inside a text, may have more brackets than a message may have objects."""
        for text in ("[{" * 300_000, '[{"a\\\\\\": "' * 60_000 + "\\", "é[" * 200_000):
            for ascii_only in (True, False):
                raw = json.dumps({"text": text, "list": [1]}, ensure_ascii=ascii_only)
                assert loads_strict(raw) == loads_strict(raw.encode()) == {"text": text, "list": [1]}
                assert count_containers(raw.encode(), 10) == 2
        assert count_containers(b'{"a":"\\"[","b":' + b"[]" * 40, 10) == 41

    def test_the_count_of_a_hostile_text_is_bounded_work(self) -> None:
        """Each quote and backslash is read once, whether strings are closed or not."""
        for unit in (b'"', b'\\"', b"\\", b'"\\', b'"[\\"'):
            raw = b"[" * 100_001 + unit * (1_000_000 // len(unit))
            assert steps(lambda: count_containers(raw, 100_000)) < 20  # noqa: B023


class TestReports:
    def test_a_hostile_report_is_refused_in_bounded_work(self) -> None:
        """256 KiB of nested items and the like; values below the limits are read."""
        slow = []
        for unit in (
            "- a\n",
            "  - a\n",
            "- " * 30 + "a\n",
            "# a\n",
            "> a\n",
            "|a|b|\n|-|-|\n",
            "1. a\n\n",
            "```\n",
            "a\n",
        ):
            for size in (MAX_CHARACTERS, 3_000):
                text = unit * (size // len(unit))
                work = steps(lambda: _read(text))  # noqa: B023
                if work > 1_000_000:
                    slow.append(f"{unit!r} of {len(text):,}: {work:,} steps")
        assert slow == []


def _read(text: str) -> None:
    try:
        parse_report(text)
    except ReportError:
        return


def _refusal(state: PipelineState, returned: StageReturn) -> list[str]:
    try:
        state.record_stage(returned, datetime(2026, 6, 1, tzinfo=UTC))
    except PatchError as error:
        return list(error.findings)
    return []
