"""Tests of `baton.telemetry.trace`: traceparents, and the spans of a handoff."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from baton.core.outline import Outline
from baton.telemetry.trace import (
    MAX_LENGTH,
    HandoffTrace,
    TraceContext,
    TraceparentError,
    child_traceparent,
    handoff_span_id,
    new_traceparent,
    task_traceparent,
)
from baton.wire.records import Traceparent
from tests.core.material import json_objects
from tests.handoff.material import EXAMPLE, HANDOFF_ID, PARENT_ID, TASK_ID, TRACEPARENT

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

GOOD = (
    pytest.param(f"00-{TRACE}-{SPAN}-01", True, id="version 00, sampled"),
    pytest.param(f"00-{TRACE}-{SPAN}-00", False, id="version 00, not sampled"),
    pytest.param(f"00-{TRACE}-{SPAN}-09", True, id="flags that are not defined yet, sampled among them"),
    pytest.param(f"00-{TRACE}-{SPAN}-fe", False, id="flags that are not defined yet, sampled not among them"),
    pytest.param(f"cc-{TRACE}-{SPAN}-01", True, id="a later version of the same form"),
    pytest.param(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True, id="a later version that goes on"),
    pytest.param(f"00-{'0' * 31}1-{'0' * 15}1-01", True, id="ids that are almost nought"),
)
"""What a receiver must accept (W3C Trace Context §3.2, §4.3)."""

BAD = (
    pytest.param("", id="nothing"),
    pytest.param(f"00-{TRACE}-{SPAN}", id="no flags"),
    pytest.param(f"00-{TRACE}-{SPAN}-1", id="flags too short"),
    pytest.param(f"00-{TRACE}-{SPAN}-001", id="flags too long"),
    pytest.param(f"00-{TRACE}-{SPAN}-.0", id="flags not hexadecimal"),
    pytest.param(f"00-{TRACE}-{SPAN}-01-more", id="version 00 that goes on"),
    pytest.param(f"00-{TRACE}-{SPAN}-01.", id="version 00 with a full stop"),
    pytest.param(f"cc-{TRACE}-{SPAN}-01.more", id="a later version that goes on without a dash"),
    pytest.param(f"ff-{TRACE}-{SPAN}-01", id="version ff, which is none"),
    pytest.param(f"0-{TRACE}-{SPAN}-01", id="version too short"),
    pytest.param(f"000-{TRACE}-{SPAN}-01", id="version too long"),
    pytest.param(f".0-{TRACE}-{SPAN}-01", id="version not hexadecimal"),
    pytest.param(f"00-{'0' * 32}-{SPAN}-01", id="trace id nought"),
    pytest.param(f"00-{TRACE[1:]}-{SPAN}-01", id="trace id too short"),
    pytest.param(f"00-{TRACE}a-{SPAN}-01", id="trace id too long"),
    pytest.param(f"00-.{TRACE[1:]}-{SPAN}-01", id="trace id not hexadecimal"),
    pytest.param(f"00-{TRACE.upper()}-{SPAN}-01", id="trace id in upper case"),
    pytest.param(f"00-{TRACE}-{'0' * 16}-01", id="parent id nought"),
    pytest.param(f"00-{TRACE}-{SPAN[1:]}-01", id="parent id too short"),
    pytest.param(f"00-{TRACE}-{SPAN}1-01", id="parent id too long"),
    pytest.param(f"00-{TRACE}-{SPAN.upper()}-01", id="parent id in upper case"),
    pytest.param(f"00-{TRACE}-{SPAN}-01\n", id="a line end"),
    pytest.param(f" 00-{TRACE}-{SPAN}-01", id="a blank before it"),
    pytest.param(f"00-{TRACE}-{SPAN}-0١", id="a digit of another script"),
)
"""What a receiver must not accept."""

_wire: TypeAdapter[str] = TypeAdapter(Traceparent)


def is_on_the_wire(text: str) -> bool:
    """Return whether the handoff's schema takes a text as its traceparent."""
    try:
        _wire.validate_python(text)
    except ValidationError:
        return False
    return True


def parses(text: str) -> bool:
    """Return whether a text is parsed as a traceparent."""
    try:
        TraceContext.parse(text)
    except TraceparentError:
        return False
    return True


class TestParse:
    @pytest.mark.parametrize(("text", "sampled"), GOOD)
    def test_it_reads_what_the_recommendation_has_it_read(self, text: str, sampled: bool) -> None:
        """S3-5.2-x: a member `traceparent` is a W3C header value, of this version or a later one."""
        ids = text.split("-")

        assert TraceContext.parse(text) == TraceContext(ids[1], ids[2], sampled)
        assert is_on_the_wire(text)

    @pytest.mark.parametrize("text", BAD)
    def test_it_refuses_what_is_none(self, text: str) -> None:
        """S3-5.2-x: anything else is refused, by the schema as well."""
        assert not parses(text)
        assert not is_on_the_wire(text)

    def test_an_endless_one_is_refused_without_being_read(self) -> None:
        """A later version may go on, but not for ever."""
        assert not parses(f"01-{TRACE}-{SPAN}-01-" + "x" * MAX_LENGTH)

    @given(st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,20})?", fullmatch=True))
    def test_it_agrees_with_the_schema(self, text: str) -> None:
        """What the schema lets through can be parsed, and what can be parsed passes the schema."""
        assert parses(text) == is_on_the_wire(text)

    @given(st.text(max_size=80))
    def test_a_refusal_says_what_a_traceparent_looks_like(self, text: str) -> None:
        """The error tells the sender what to send."""
        with pytest.raises(TraceparentError, match=r"00-<32 hex>-<16 hex>-<2 hex>"):
            TraceContext.parse(text)


class TestHandingOn:
    def test_a_new_one_is_sampled(self) -> None:
        """Nobody has decided against recording it."""
        assert new_traceparent(TRACE, SPAN) == f"00-{TRACE}-{SPAN}-01"

    @pytest.mark.parametrize(
        ("trace_id", "span_id"),
        [
            pytest.param(TRACE, "0" * 16, id="a span id of nought"),
            pytest.param("0" * 32, SPAN, id="a trace id of nought"),
            pytest.param(TRACE, SPAN.upper(), id="upper case"),
            pytest.param(TRACE[:30], SPAN, id="too short"),
        ],
    )
    def test_ids_of_another_form_are_refused(self, trace_id: str, span_id: str) -> None:
        """A traceparent that others would drop is never made."""
        with pytest.raises(TraceparentError, match="hexadecimal digits"):
            new_traceparent(trace_id, span_id)

    @pytest.mark.parametrize("flags", ["00", "01"])
    def test_a_child_keeps_trace_and_sampling(self, flags: str) -> None:
        """S3-5.2-x: the trace goes on, with the decision that was made at its beginning."""
        child = child_traceparent(f"00-{TRACE}-{SPAN}-{flags}", "00f067aa0ba902b7")

        assert child == f"00-{TRACE}-00f067aa0ba902b7-{flags}"

    def test_what_is_handed_on_is_of_the_version_that_is_known_here(self) -> None:
        """Of a later version neither its number nor its further fields are handed on, as the recommendation asks."""
        child = child_traceparent(f"cc-{TRACE}-{SPAN}-ff-more", "00f067aa0ba902b7")

        assert child == f"00-{TRACE}-00f067aa0ba902b7-01"


class TestTaskTraceparent:
    @given(st.uuids(version=4))
    def test_it_is_real_and_has_the_tasks_id(self, task_id: UUID) -> None:
        """S3-5.2-x: a task that was started in no trace has one all the same, found by the task's id."""
        context = TraceContext.parse(task_traceparent(str(task_id)))

        assert context.trace_id == task_id.hex
        assert context.sampled

    def test_what_is_no_uuid_is_refused(self) -> None:
        """A trace id cannot be made of any text."""
        with pytest.raises(TraceparentError, match="32 hexadecimal digits"):
            task_traceparent("my task")


def trace_of(message: dict[str, Any]) -> HandoffTrace | None:
    return HandoffTrace.of(Outline.of(message))


class TestHandoffTrace:
    def test_it_reads_the_documents_own_members(self) -> None:
        """Nothing beyond the document's members is needed for a trace."""
        trace = trace_of({**EXAMPLE, "tracestate": "vendor=1"})

        assert trace is not None
        assert str(trace.parent) == TRACEPARENT
        assert (trace.handoff_id, trace.task_id, trace.previous_id) == (HANDOFF_ID, TASK_ID, PARENT_ID)
        assert (trace.sender, trace.receiver) == ("legal-analysis-agent", "risk-scoring-agent")
        assert (trace.tracestate, trace.attempt) == ("vendor=1", 1)
        assert trace.sent_at is not None
        assert trace.sent_at.isoformat() == "2026-06-12T09:30:00+00:00"

    @pytest.mark.parametrize(
        "name",
        [pytest.param("risk-scoring-agent", id="a stage"), pytest.param("test+risk-scoring-agent", id="a merge")],
    )
    def test_the_next_handoff_links_to_the_span_of_this_one(self, name: str) -> None:
        """The receiver, once it is the sender, names this handoff as the parent: both work out the same span."""
        first = trace_of(EXAMPLE)
        sender = {**EXAMPLE["fromAgent"], "agentId": name}
        second = trace_of({**EXAMPLE, "handoffId": PARENT_ID, "parentHandoffId": HANDOFF_ID, "fromAgent": sender})

        assert first is not None
        assert second is not None
        assert second.previous_span_id == first.span_id

    def test_a_handoff_that_hands_back_links_to_the_one_that_was_refused(self) -> None:
        """Its sender's execution is named by the handoff that it refused, and not by the one before."""
        refused = str(uuid4())
        sender = {**EXAMPLE["fromAgent"], "agentId": "scoring", "executionId": refused}
        trace = trace_of({**EXAMPLE, "fromAgent": sender, "step": {"seq": 2, "attempt": 2}})
        usual = trace_of({**EXAMPLE, "fromAgent": {**sender, "executionId": PARENT_ID}, "step": {"seq": 2}})

        assert trace is not None
        assert trace.hands_back
        assert trace.previous_span_id == handoff_span_id(refused, "scoring")
        assert usual is not None
        assert not usual.hands_back

    def test_the_first_handoff_links_to_nothing(self) -> None:
        """A handoff without a parent has no span before its own."""
        trace = trace_of({**EXAMPLE, "parentHandoffId": None})

        assert trace is not None
        assert trace.previous_span_id is None

    def test_the_copies_of_a_fan_out_have_spans_of_their_own(self) -> None:
        """They share the handoff's id, and a span id must not appear twice."""
        assert handoff_span_id(HANDOFF_ID, "test") != handoff_span_id(HANDOFF_ID, "review")

    @pytest.mark.parametrize(
        ("members", "begins"),
        [
            pytest.param({}, True, id="the first handoff"),
            pytest.param({"parentHandoffId": PARENT_ID}, False, id="a later one"),
            pytest.param({"traceparent": TRACEPARENT}, False, id="a trace of the service's"),
            pytest.param({"traceparent": None}, False, id="no traceparent"),
            pytest.param({"taskId": "no UUID"}, False, id="a task that is no UUID"),
            pytest.param({"receiverList": ["risk-scoring-agent", "b"]}, True, id="the first copy of a fan-out"),
            pytest.param({"receiverList": ["b", "risk-scoring-agent"]}, False, id="the second copy of a fan-out"),
            pytest.param({"initial": None}, False, id="one of a pipeline that has done something already"),
            pytest.param({"step": {"seq": 1}}, True, id="to the first stage"),
            pytest.param({"step": {"seq": 2}}, False, id="to another stage that begins at the same time"),
            pytest.param({"step": {"seq": 1, "follows": SPAN}}, False, id="of a child pipeline"),
            pytest.param({"step": {"seq": 1, "follows": "rubbish"}}, True, id="one that follows nothing"),
        ],
    )
    def test_only_the_first_handoff_begins_a_trace(self, members: dict[str, Any], begins: bool) -> None:
        """And only if the start of the pipeline was not recorded."""
        first = {**EXAMPLE, "initial": True, "parentHandoffId": None, "traceparent": task_traceparent(TASK_ID)}
        trace = trace_of({**first, **members})

        assert trace is not None
        assert trace.begins_trace is begins

    @pytest.mark.parametrize("missing", ["handoffId", "taskId", "fromAgent", "toAgent"])
    def test_a_message_that_names_no_handoff_has_no_trace(self, missing: str) -> None:
        """Without ids or names there is nothing to show; the gate says what is wrong."""
        assert trace_of({name: value for name, value in EXAMPLE.items() if name != missing}) is None

    @pytest.mark.parametrize("value", [None, 7, "rubbish", f"00-{'0' * 32}-{SPAN}-01"])
    def test_a_broken_traceparent_leaves_a_trace_without_a_parent(self, value: object) -> None:
        """The stage is still shown, in a trace of its own."""
        trace = trace_of({**EXAMPLE, "traceparent": value})

        assert trace is not None
        assert trace.parent is None

    @given(json_objects, st.sampled_from(sorted(EXAMPLE)))
    def test_it_never_raises(self, hostile: dict[str, Any], member: str) -> None:
        """A trace must not decide what becomes of a handoff, whatever a hostile message holds."""
        trace = [trace_of(hostile), trace_of({**EXAMPLE, member: hostile})]

        for item in trace:
            assert item is None or int(item.span_id, 16) > 0
