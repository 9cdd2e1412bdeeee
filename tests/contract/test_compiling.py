"""The compiler as a whole: what holds for every session, and what the document asks of it."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from baton.contract.compiler import DEFAULT_PROCESSORS, Compiled, compile_contract
from baton.contract.draft import (
    ContractPolicy,
    ContractRequest,
    Draft,
    EventOutcome,
    Processor,
    contract_tokens,
    render_contract,
)
from baton.contract.records import (
    Confidence,
    ContractError,
    EventType,
    HandoffContract,
    SessionEvent,
    verdict_log_fields,
)
from baton.contract.validation import validate_contract
from tests.contract.contract_material import (
    NOW,
    SCHEMAS,
    TRACEPARENT,
    event,
    request,
    requests,
    result,
    sessions,
)

NOISE = [
    event("brainstorm", "What if we just skip the compliance check?"),
    event("rejected_assumption", "Pricing is the only factor"),
    event("internal_note", "Debate about the budget approval"),
    event("user_message", "Twelve sessions ago we spoke of holidays", id="evt-old", exclude_from_handoff=True),
    result("The quote is 12,000 EUR", 45, id="evt-quote", tool_name="crm.lookup_pricing"),
    event("tool_call", '{"customer": "c-1"}', id="evt-call", tool_name="crm.lookup_customer"),
]
"""What the document's story has in its transcript and the receiver must not see, S5 L10-17."""
GOOD = result("The recipient is an existing enterprise customer.", id="evt-9a3b2c", tool_name="crm.lookup_customer")


def told(compiled: Compiled) -> dict[str, str]:
    """Return what became of each event, in the words of the oracle."""
    return {
        disposition.event_id: disposition.label
        or ("fact" if disposition.fate is EventOutcome.FACT else f"consumed by {disposition.consumed_by}")
        for disposition in compiled.report.dispositions
    }


class TestEverySession:
    @given(events=sessions(), contract_request=requests())
    def test_each_event_ends_as_one_thing(self, events: list[SessionEvent], contract_request: ContractRequest) -> None:
        """A fact, a label, or a call with its result; nothing is lost or made up (C-39, S5-compiler-g, S5-check-b)."""
        compiled = compile_contract(events, contract_request)
        contract, report = compiled.contract, compiled.report

        assert [disposition.event_id for disposition in report.dispositions] == [event.id for event in events]
        assert [fact.event_id for fact in contract.facts] == [
            event.id for event in events if event.id in report.ids(EventOutcome.FACT)
        ]
        kinds = {event.id: event.type for event in events}
        for disposition in report.dispositions:
            assert (disposition.label is not None) is (disposition.fate is EventOutcome.EXCLUDED)
            assert (disposition.consumed_by is not None) is (disposition.fate is EventOutcome.CONSUMED)
            if disposition.consumed_by is not None:
                assert (kinds[disposition.event_id], kinds[disposition.consumed_by]) == (
                    EventType.TOOL_CALL,
                    EventType.TOOL_RESULT,
                )
        results = [disposition.consumed_by for disposition in report.dispositions if disposition.consumed_by]
        assert len(results) == len(set(results))
        assert sum(dict(contract.excluded_counts or {}).values()) == len(report.ids(EventOutcome.EXCLUDED))
        assert contract.excluded_context == list(report.label_counts)

    @given(events=sessions(), contract_request=requests())
    def test_it_is_a_function(self, events: list[SessionEvent], contract_request: ContractRequest) -> None:
        """The same events and request make the same contract, also after a way over the wire (S5-compiler-j)."""
        once = compile_contract(events, contract_request)
        travelled = [SessionEvent.model_validate_json(event.model_dump_json()) for event in events]
        recompiled = compile_contract(iter(travelled), contract_request)

        assert recompiled == once
        assert recompiled.contract.to_json_object() == once.contract.to_json_object()

    @given(events=sessions(), contract_request=requests())
    def test_nothing_left_out_shows_anywhere(
        self, events: list[SessionEvent], contract_request: ContractRequest
    ) -> None:
        """The text of what did not cross is in no contract, prompt, report or log line.

        Proves S5-check-p, S5-prob-a, S5-code-b, S5-contract-c, C-39.
        """
        compiled = compile_contract(events, contract_request)
        verdict = validate_contract(compiled.contract, now=NOW, report=compiled.report, events=events)
        surfaces = [
            json.dumps(compiled.contract.to_json_object()),
            render_contract(compiled.contract),
            compiled.report.model_dump_json(),
            json.dumps(verdict_log_fields(verdict)),
            verdict.model_dump_json(),
        ]

        crossed = compiled.report.ids(EventOutcome.FACT)
        for number, current in enumerate(events):
            if current.id not in crossed:
                assert not any(f"marker-{number}-end" in surface for surface in surfaces)

    @given(events=sessions(), contract_request=requests())
    def test_only_a_tool_that_succeeded_is_sure(
        self, events: list[SessionEvent], contract_request: ContractRequest
    ) -> None:
        """High takes success that is true; a model is medium at most, a person unverified (S5-fields-i, C-43)."""
        kinds = {event.id: event for event in events}
        for fact in compile_contract(events, contract_request).contract.facts:
            source = kinds[fact.event_id]
            succeeded = source.type is EventType.TOOL_RESULT and source.success is True
            is_known = fact.source.source != "unknown"
            assert (fact.confidence is Confidence.HIGH) is (succeeded and is_known)
            if source.type is EventType.USER_MESSAGE:
                assert fact.confidence is Confidence.UNVERIFIED

    @given(events=sessions(), contract_request=requests())
    def test_tools_only_shrink(self, events: list[SessionEvent], contract_request: ContractRequest) -> None:
        """Never beyond the receiver's capability, never a forbidden one (C-37)."""
        contract = compile_contract(events, contract_request).contract

        forbidden = {tool.lower() for tool in contract_request.forbidden}
        assert set(contract.allowed_tools) <= contract_request.capability
        assert not {tool.lower() for tool in contract.allowed_tools} & forbidden

    @given(events=sessions(), contract_request=requests())
    def test_what_fits_is_within_the_budget(
        self, events: list[SessionEvent], contract_request: ContractRequest
    ) -> None:
        """Facts never take the contract over the receiver's tokens (S5-valid-e)."""
        compiled = compile_contract(events, contract_request)

        if contract_request.max_tokens is not None and compiled.contract.facts:
            assert contract_tokens(compiled.contract) <= contract_request.max_tokens
        assert compiled.report.contract_tokens == contract_tokens(compiled.contract)

    @given(events=sessions(), contract_request=requests())
    def test_what_it_makes_is_valid_unless_a_source_is_unknown(
        self, events: list[SessionEvent], contract_request: ContractRequest
    ) -> None:
        """Compile and validate agree on the evidence; nothing from an unknown source crosses (C-35, S5-compiler-i)."""
        compiled = compile_contract(events, contract_request)
        verdict = validate_contract(compiled.contract, now=NOW, report=compiled.report, events=events, schemas=SCHEMAS)

        unknown = [fact for fact in compiled.contract.facts if fact.source.source == "unknown"]
        assert bool(verdict) is not bool(unknown)

    @given(events=sessions())
    def test_it_makes_a_record_that_reads_back(self, events: list[SessionEvent]) -> None:
        """What it writes is the typed payload that receivers read (S5-contract-a, S5-check-a, S5-check-k)."""
        contract = compile_contract(events, request()).contract

        assert contract.schema_version == "1.0"
        assert HandoffContract.from_json(json.dumps(contract.to_json_object())) == contract


class TestCompileContract:
    def test_the_story_comes_to_the_facts_and_nothing_else(self) -> None:
        """What came with the transcript stays out, each for its reason.

        Proves S5-prob-a, S5-prob-b, S5-prob-c, S5-compiler-e, S5-compiler-g.
        """
        compiled = compile_contract([*NOISE, GOOD], request())

        assert [fact.claim for fact in compiled.contract.facts] == ["The recipient is an existing enterprise customer."]
        assert compiled.contract.excluded_context == [
            "type:brainstorm",
            "type:rejected_assumption",
            "type:internal_note",
            "explicit:user_message",
            "stale:crm.lookup_pricing",
        ]
        assert told(compiled) == {
            "evt-brainstorm": "type:brainstorm",
            "evt-rejected_assumption": "type:rejected_assumption",
            "evt-internal_note": "type:internal_note",
            "evt-old": "explicit:user_message",
            "evt-quote": "stale:crm.lookup_pricing",
            "evt-call": "consumed by evt-9a3b2c",
            "evt-9a3b2c": "fact",
        }

    def test_compile_validate_and_hand_over(self) -> None:
        """From the session to the prompt, and the receiver finds the same verdict (S5-check-s, S5-code-d, X-7)."""
        events = [*NOISE, GOOD]
        compiled = compile_contract(events, request())
        surroundings: dict[str, Any] = {
            "now": NOW,
            "schemas": SCHEMAS,
            "parent_trace_id": "trace-risk-review-2026-001",
        }
        sent = validate_contract(compiled.contract, report=compiled.report, events=events, **surroundings)
        arrived = validate_contract(json.loads(json.dumps(compiled.contract.to_json_object())), **surroundings)

        assert (sent.errors, sent.warnings) == ([], [])
        assert arrived == sent
        prompt = render_contract(HandoffContract.from_json_object(compiled.contract.to_json_object()))
        assert "enterprise customer" in prompt
        assert "skip the compliance check" not in prompt

    def test_a_contract_says_everything_that_the_document_wants(self) -> None:
        """Task, facts, exclusions, sources, confidence, tools, output, expiry, trace (S5-contract-b, S5-contract-d)."""
        contract = compile_contract([GOOD, NOISE[0]], request()).contract.to_json_object()

        assert contract == {
            "handoffId": "risk-review-2026-001",
            "receivingAgent": "ComplianceReviewAgent",
            "task": "Evaluate whether the proposed outbound email violates internal policy.",
            "facts": [
                {
                    "claim": "The recipient is an existing enterprise customer.",
                    "source": {
                        "source": "crm.lookup_customer",
                        "timestamp": "2026-06-27T09:20:00Z",
                        "method": "tool_call:crm.lookup_customer",
                    },
                    "confidence": "high",
                    "eventId": "evt-9a3b2c",
                }
            ],
            "excludedContext": ["type:brainstorm"],
            "allowedTools": ["policy.search"],
            "forbiddenTools": ["email.send"],
            "outputSchema": {"schemaName": "ComplianceDecisionV1", "version": "1.2"},
            "expiresAfterMinutes": 30,
            "createdAt": "2026-06-27T09:25:00Z",
            "traceId": "trace-risk-review-2026-001",
            "schemaVersion": "1.0",
            "excludedCounts": {"type:brainstorm": 1},
        }

    def test_a_session_without_events_makes_a_contract_without_facts(self) -> None:
        """It is valid and flagged, for that is usually a bug (S5-fm-c)."""
        compiled = compile_contract([], request())

        assert compiled.contract.facts == []
        assert [warning.at for warning in validate_contract(compiled.contract, now=NOW, schemas=SCHEMAS).warnings] == [
            "/facts"
        ]

    def test_the_trace_id_comes_from_the_traceparent_where_none_is_named(self) -> None:
        """Both are carried; a free-form trace id is kept (C-44, S5-check-h)."""
        named = compile_contract([], request(traceparent=TRACEPARENT)).contract
        derived = compile_contract([], request(trace_id="", traceparent=TRACEPARENT)).contract

        assert (named.trace_id, named.traceparent) == ("trace-risk-review-2026-001", TRACEPARENT)
        assert derived.trace_id == "0af7651916cd43dd8448eb211c80319c"

    def test_the_message_that_carries_it_is_named_by_a_member(self) -> None:
        """The contract's id is free text, the signed message's a random UUID, and the first names the second (X-1)."""
        message = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
        contract = compile_contract([], request(message_id=message)).contract

        assert (contract.handoff_id, contract.to_json_object()["messageId"]) == ("risk-review-2026-001", message)
        assert validate_contract(contract, now=NOW)
        assert not validate_contract(compile_contract([], request(message_id="risk-1")).contract, now=NOW)

    def test_the_expiry_is_the_policy_s(self) -> None:
        """Thirty minutes by default (S5-check-l, S5-fields-m)."""
        assert compile_contract([], request()).contract.expires_after_minutes == 30
        assert (
            compile_contract([], request(), ContractPolicy(expires_after_minutes=5)).contract.expires_after_minutes == 5
        )

    def test_the_same_events_later_make_another_contract(self) -> None:
        """Compiled anew after its expiry, what was fresh is stale and no longer a fact (S5-fields-m, C-36)."""
        events = [GOOD]
        first = compile_contract(events, request())
        later = NOW + timedelta(minutes=31)
        second = compile_contract(events, request(created_at=later))

        assert first.contract.is_expired(later)
        assert not second.contract.is_expired(later)
        assert second.contract.excluded_context == ["stale:crm.lookup_customer"]

    def test_two_events_of_one_id_are_refused(self) -> None:
        """A fact would lead back to either (S5-fields-h)."""
        with pytest.raises(ContractError, match="two events have the id 'evt-9a3b2c'"):
            compile_contract([GOOD, GOOD], request())

    def test_what_a_receiver_reads_does_not_grow_with_the_session(self) -> None:
        """Within a budget the tokens are flat however long the chain was (S5-prob-d, S5-prob-e)."""
        sizes = {}
        for count in (50, 500):
            events = [result(f"Fact number {number:05}", id=f"e{number}", tokens=400) for number in range(count)]
            report = compile_contract(events, request(max_tokens=500)).report
            sizes[count] = report.contract_tokens
            assert report.session_tokens == 400 * count

        assert 400 < sizes[50] == sizes[500] <= 500

    def test_the_report_measures_against_handing_on_everything(self) -> None:
        """The session's tokens are those of whole contents, or of claims if not counted (S5-prob-d)."""
        events = [result("Short claim", id="a", tokens=5_000), event("llm_response", "twelve chars", id="b")]

        assert compile_contract(events, request()).report.session_tokens == 5_003

    def test_a_fact_tells_who_acted_under_which_handoff(self) -> None:
        """By its event: which agent, under which handoff, on which data (S5-prob-h, S5-fields-h)."""
        one = result("They signed.", agent="research", handoff_id="h-1")
        fact = compile_contract([one], request()).contract.facts[0]

        source = {one.id: one}[fact.event_id]
        assert (source.agent, source.handoff_id, fact.source.source) == ("research", "h-1", "crm.lookup")


class TestProcessors:
    def test_they_are_named_and_in_order(self) -> None:
        """The report says which ran (S5-compiler-k, S5-prob-i)."""
        names = ["marked", "types", "calls", "failed", "stale", "claims", "budget"]

        assert [processor.name for processor in DEFAULT_PROCESSORS] == names
        assert compile_contract([], request()).report.processors == names

    def test_a_team_adds_one(self) -> None:
        """This one withholds everything about money (S5-compiler-k)."""

        def no_money(draft: Draft) -> None:
            for current in draft.rest:
                if "EUR" in current.content:
                    draft.leave_out(current, "confidential", "money")

        mine = (*DEFAULT_PROCESSORS[:2], Processor("no_money", no_money), *DEFAULT_PROCESSORS[2:])
        events = [result("It costs 12 EUR", id="a"), result("It is blue", id="b")]
        compiled = compile_contract(events, request(), processors=mine)

        assert told(compiled) == {"a": "confidential:money", "b": "fact"}
        assert compiled.contract.excluded_context == ["confidential:money"]
        assert compiled.report.processors == [processor.name for processor in mine]
        assert validate_contract(compiled.contract, now=NOW, report=compiled.report, events=events)

    def test_a_team_replaces_one(self) -> None:
        """Here claims are made by the team's own rule, with provenance all the same (S5-compiler-k)."""

        def shouted(draft: Draft) -> None:
            for current in draft.rest:
                source = compile_contract([GOOD], request()).contract.facts[0].source
                draft.state(current, current.content.upper(), source, Confidence.LOW)

        mine = tuple(
            Processor("claims", shouted) if processor.name == "claims" else processor
            for processor in DEFAULT_PROCESSORS
        )
        compiled = compile_contract([GOOD], request(), processors=mine)

        assert [fact.claim for fact in compiled.contract.facts] == [GOOD.content.upper()]

    def test_what_no_processor_settles_is_left_out(self) -> None:
        """Without any processor nothing crosses, and nothing is lost (C-39)."""
        compiled = compile_contract([GOOD, NOISE[0]], request(), processors=())

        assert told(compiled) == {"evt-9a3b2c": "unsupported:tool_result", "evt-brainstorm": "unsupported:brainstorm"}
        assert compiled.contract.allowed_tools == ["policy.search"]

    def test_no_processor_grants_tools(self) -> None:
        """A fact that a processor makes of a brainstorm does not make its tool a used one (S5-compiler-h)."""

        def everything(draft: Draft) -> None:
            source = compile_contract([GOOD], request()).contract.facts[0].source
            for current in draft.rest:
                draft.state(current, current.content, source, Confidence.LOW)

        idea = event("brainstorm", "Send it at once", tool_name="email.send", success=True)
        contract_request = request(capability=frozenset({"email.send"}), forbidden=frozenset(), granted=frozenset())
        compiled = compile_contract([idea], contract_request, processors=(Processor("everything", everything),))

        assert compiled.contract.allowed_tools == []

    def test_one_that_raises_is_named(self) -> None:
        """A bare `KeyError` would not tell a team which of its steps to mend (S5-compiler-k)."""

        def careless(draft: Draft) -> None:
            raise KeyError("price")

        with pytest.raises(ContractError, match="the processor 'prices' failed: KeyError: 'price'"):
            compile_contract([GOOD], request(), processors=(Processor("prices", careless),))

    @pytest.mark.parametrize("member", ["events", "request", "policy", "estimator"])
    def test_none_puts_another_session_or_request_in_their_place(self, member: str) -> None:
        """An event would be lost without a label, and a tool granted without a grant (C-39, S5-compiler-h)."""

        def replaces(draft: Draft) -> None:
            setattr(draft, member, getattr(draft, member))

        with pytest.raises(ContractError, match="the processor 'replaces' failed: AttributeError"):
            compile_contract([GOOD], request(), processors=(Processor("replaces", replaces),))

    def test_one_that_would_do_nothing_is_refused(self) -> None:
        """What an async one or a generator was to leave out would cross to every receiver, unseen."""

        async def later(draft: Draft) -> None: ...

        def yields(draft: Draft) -> Iterator[SessionEvent]:
            yield from draft.rest

        for run in (later, yields):
            with pytest.raises(TypeError, match="the processor 'mine' is an async function or a generator"):
                Processor("mine", run)  # type: ignore[arg-type]
