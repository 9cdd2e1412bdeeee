"""The compiler's processors one by one: which events each leaves out, and what facts are made of."""

from datetime import timedelta
from typing import Any

import pytest

from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractPolicy, Draft, render_contract
from baton.contract.records import Confidence, Constraint, ContractError, EventType, SessionEvent, SourceProvenance
from baton.contract.validation import validate_contract
from tests.contract.contract_material import NOW, SCHEMAS, event, request, result


def fate(candidate: SessionEvent, policy: ContractPolicy | None = None, *others: SessionEvent) -> str:
    """Return the label of an event, or how sure the fact is that it became, or what consumed it."""
    compiled = compile_contract([candidate, *others], request(), policy)
    disposition = compiled.report.dispositions[0]
    return disposition.label or disposition.consumed_by or compiled.contract.facts[0].confidence.value


class TestLeaveOut:
    @pytest.mark.parametrize("kind", ["brainstorm", "internal_note", "rejected_assumption"])
    def test_types_that_never_cross(self, kind: str) -> None:
        """Brainstorms, notes and rejected assumptions (S5-compiler-b, S5-check-c, S5-check-p, C-40, S5-fields-j)."""
        assert fate(event(kind, "What if we skip it?")) == f"type:{kind}"

    @pytest.mark.parametrize("kind", list(EventType))
    def test_whatever_is_marked(self, kind: EventType) -> None:
        """The mark comes before everything else, and the label says so (S5-compiler-c, S5-check-p, C-39)."""
        candidate = event(kind, "Secret", tool_name="crm", success=True, accepted=True, exclude_from_handoff=True)

        assert fate(candidate) == f"explicit:{kind.value}"

    def test_results_of_tools_that_failed(self) -> None:
        """Labelled, and the tool is not granted (C-39, S5-compiler-h)."""
        compiled = compile_contract(
            [result("503", success=False, tool_name="policy.search")], request(granted=frozenset())
        )

        assert compiled.contract.excluded_context == ["failed:policy.search"]
        assert compiled.contract.allowed_tools == []

    @pytest.mark.parametrize(
        ("minutes", "own", "label"),
        [
            pytest.param(30, None, "high", id="exactly at the limit"),
            pytest.param(30.01, None, "stale:crm.lookup", id="a moment over the limit"),
            pytest.param(600, None, "stale:crm.lookup", id="ten hours, and no limit of its own"),
            pytest.param(600, 601, "high", id="ten hours, its own limit is longer"),
            pytest.param(5, 4, "stale:crm.lookup", id="its own limit is shorter"),
            pytest.param(0, 0, "high", id="a limit of nothing, at once"),
            pytest.param(0.1, 0, "stale:crm.lookup", id="a limit of nothing, a moment later"),
            pytest.param(-0.5, None, "high", id="a clock that is a little ahead"),
            pytest.param(-600, None, "stale:crm.lookup", id="in the future"),
            pytest.param(5, 2**53 - 1, "high", id="a limit beyond any calendar"),
        ],
    )
    def test_stale_results(self, minutes: float, own: int | None, label: str) -> None:
        """Older than the limit is stale, as old is not; the future is never fresh (S5-compiler-d, C-42, S5-check-q)."""
        assert fate(result("The price is 5", minutes, max_age_minutes=own)) == label

    @pytest.mark.parametrize(
        ("own", "label"), [(None, "medium"), (5, "medium"), (4, "stale:llm_response")], ids=["none", "as old", "older"]
    )
    def test_what_says_how_long_it_lasts(self, own: int | None, label: str) -> None:
        """No tool's result, so it does not grow old unless it says so (S5-compiler-d, C-42)."""
        assert fate(event("llm_response", "x", max_age_minutes=own)) == label
        assert fate(event("llm_response", "x", 600)) == "medium"

    @pytest.mark.parametrize("written", [None, "", "yesterday", "2026-06-27T09:24:00"])
    @pytest.mark.parametrize("kind", ["tool_result", "llm_response", "user_message", "decision"])
    def test_what_has_no_readable_time(self, kind: str, written: str | None) -> None:
        """Provenance needs a time, so an event without one never becomes a fact (C-42, S5-compiler-f)."""
        candidate = event(kind, "x", timestamp=written, tool_name="crm.lookup", success=True, accepted=True)

        assert fate(candidate) == f"stale:{'crm.lookup' if kind == 'tool_result' else kind}"

    def test_each_tool_has_its_own_age(self) -> None:
        """A price is old sooner than a customer's name (S5-check-d)."""
        policy = ContractPolicy(tool_ages={"crm.lookup_pricing": 2, "crm.lookup_name": 1_000})

        assert fate(result("5 EUR", 3, tool_name="crm.lookup_pricing"), policy) == "stale:crm.lookup_pricing"
        assert fate(result("Ann", 900, tool_name="crm.lookup_name"), policy) == "high"
        assert fate(result("else", 31, tool_name="crm.other"), policy) == "stale:crm.other"
        assert fate(result("5 EUR", 3, tool_name="CRM.lookup_pricing"), policy) == "stale:CRM.lookup_pricing"

    def test_age_counts_from_when_data_was_retrieved(self) -> None:
        """A cached answer is as old as its data, and the fact says when that was (S5-fm-b)."""
        fact = compile_contract([result("5 EUR", 20)], request()).contract.facts[0]

        assert fact.source.timestamp == NOW - timedelta(minutes=20)

    @pytest.mark.parametrize(
        ("accepted", "label"), [(True, "medium"), (False, "unsupported:decision"), (None, "unsupported:decision")]
    )
    def test_decisions_that_were_not_accepted(self, accepted: bool | None, label: str) -> None:
        """Only an accepted one crosses (C-40, S5-prob-b)."""
        assert fate(event("decision", "Approve by hand", accepted=accepted)) == label

    @pytest.mark.parametrize("text", ["", "  ", "\n", "\u200b"])
    def test_what_says_nothing(self, text: str) -> None:
        """An empty claim never becomes a fact (S5-compiler-e)."""
        assert fate(result(text)) == "unsupported:tool_result"

    def test_what_an_assistant_said(self) -> None:
        """A message to the user, or an agent's text, is not a claim (C-39)."""
        assert fate(event("assistant_message", "Done!")) == "type:assistant_message"

    def test_a_label_is_one_line_whatever_the_tool_is_called(self) -> None:
        """A hallucinated name cannot break the audit's list (S5-check-i)."""
        candidate = result("x", success=False, tool_name="crm\n  .lookup" + "x" * 300)

        assert fate(candidate) == ("failed:crm .lookup" + "x" * 300)[: len("failed:") + 200]


class TestCalls:
    def test_by_the_id_of_the_call(self) -> None:
        """Whichever order other results come in (C-39)."""
        call = event("tool_call", "{}", id="c1", tool_name="crm.lookup")
        answers = [result("other", id="r1"), result("mine", id="r2", call_id="c1")]

        assert fate(call, None, *answers) == "r2"

    def test_by_an_id_that_the_framework_gave(self) -> None:
        """A provider's own call id does as well (C-39)."""
        call = event("tool_call", "{}", tool_name="crm.lookup", call_id="call_8fj")

        assert fate(call, None, result("mine", id="r1", call_id="call_8fj")) == "r1"

    def test_a_call_is_consumed_once(self) -> None:
        """A second result of the call, as of a stream, is a separate event (C-39)."""
        call = event("tool_call", "{}", id="c1", tool_name="crm.lookup")
        answers = [result("a", id="r1", call_id="c1"), result("b", id="r2", call_id="c1")]
        compiled = compile_contract([call, *answers], request())

        assert compiled.report.dispositions[0].consumed_by == "r1"
        assert [fact.event_id for fact in compiled.contract.facts] == ["r1", "r2"]

    def test_in_order_where_nothing_has_an_id(self) -> None:
        """The first call of a tool is consumed by its first result (C-39)."""
        calls = [event("tool_call", "{}", id=f"c{number}", tool_name="crm.lookup") for number in (1, 2)]
        answers = [result("a", id="r1"), result("b", id="r2")]
        dispositions = compile_contract([*calls, *answers], request()).report.dispositions

        assert [item.consumed_by for item in dispositions[:2]] == ["r1", "r2"]

    def test_a_result_that_is_left_out_consumes_its_call_all_the_same(self) -> None:
        """The call is accounted for by the label of its result (C-39)."""
        call = event("tool_call", "{}", id="c1", tool_name="crm.lookup")

        assert fate(call, None, result("503", id="r1", call_id="c1", success=False)) == "r1"

    @pytest.mark.parametrize(
        "others",
        [
            pytest.param([], id="no result"),
            pytest.param([result("x", tool_name="policy.search")], id="a result of another tool"),
            pytest.param(
                [result("x", tool_name="policy.search", call_id="evt-tool_call")], id="another tool claims it"
            ),
            pytest.param([result("x", call_id="c9")], id="a result of another call"),
        ],
    )
    def test_a_call_without_a_result_is_left_out(self, others: list[SessionEvent]) -> None:
        """It is labelled, and its tool is not granted (C-39, S5-compiler-h)."""
        call = event("tool_call", "{}", tool_name="email.send")
        contract_request = request(capability=frozenset({"email.send"}), granted=frozenset(), forbidden=frozenset())
        compiled = compile_contract([call, *others], contract_request)

        assert compiled.report.dispositions[0].label == "unsupported:tool_call"
        assert compiled.contract.allowed_tools == []


class TestClaims:
    @pytest.mark.parametrize(
        ("candidate", "source", "method", "confidence"),
        [
            pytest.param(result("x"), "crm.lookup", "tool_call:crm.lookup", "high", id="a tool that succeeded"),
            pytest.param(
                result("x", success=None), "crm.lookup", "tool_call:crm.lookup", "low", id="a tool that did not say"
            ),
            pytest.param(event("llm_response", "x"), "llm", "llm_generation", "medium", id="a model"),
            pytest.param(
                event("llm_response", "x", agent="research"), "research", "llm_generation", "medium", id="agent"
            ),
            pytest.param(event("user_message", "x", agent="chat"), "user", "user_input", "unverified", id="a user"),
            pytest.param(event("decision", "x", accepted=True), "agent", "decision", "medium", id="a decision"),
        ],
    )
    def test_source_method_and_confidence_follow_the_type(
        self, candidate: SessionEvent, source: str, method: str, confidence: str
    ) -> None:
        """High only for success that is true, medium for models, unverified for users.

        Proves S5-fields-f, S5-fields-g, S5-fields-i, S5-fields-p, S5-compiler-e, S5-compiler-f, S5-prob-h, C-43.
        """
        fact = compile_contract([candidate], request()).contract.facts[0]

        assert (fact.source.source, fact.source.method, fact.confidence.value) == (source, method, confidence)
        assert (fact.claim, fact.event_id, fact.source.timestamp) == ("x", candidate.id, NOW - timedelta(minutes=5))

    def test_a_tool_that_was_used_is_allowed(self) -> None:
        """It succeeded and its result crosses, so it needs no grant (S5-compiler-h)."""
        used = [result("Two rules apply", tool_name="policy.search")]

        assert compile_contract(used, request(granted=frozenset())).contract.allowed_tools == ["policy.search"]
        assert compile_contract([], request(granted=frozenset())).contract.allowed_tools == []

    @pytest.mark.parametrize("tool", [None, "", " ", "unknown", "Unknown", "undefined", "\u200b"])
    def test_a_result_of_no_known_tool_is_never_sure(self, tool: str | None) -> None:
        """It is an unverified fact that the validation refuses (S5-fm-d, C-35)."""
        candidate = result("x", tool_name=tool)
        fact = compile_contract([candidate], request()).contract.facts[0]

        assert (fact.source.source, fact.confidence) == ("unknown", Confidence.UNVERIFIED)

    def test_a_clock_without_an_offset_is_refused(self) -> None:
        """No age could be told (C-42, S5-fields-n)."""
        with pytest.raises(ValueError, match="no UTC offset"):
            request(created_at=NOW.replace(tzinfo=None))

    @pytest.mark.parametrize(
        "members",
        [{"max_result_age_minutes": -1}, {"tool_ages": {"crm": -5}}, {"expires_after_minutes": 0}],
    )
    def test_a_policy_of_impossible_times_is_refused(self, members: dict[str, Any]) -> None:
        """Where it is made, not at the first handoff (C-45)."""
        with pytest.raises(ValueError, match=r"must be [01] or more"):
            ContractPolicy(**members)


class TestWhatRestsOnStaleResults:
    def test_what_a_model_said_about_a_stale_result_is_stale(self) -> None:
        """Until its tool answered again; another stage's model, and what was said before, are not concerned."""
        members: dict[str, Any] = {"agent": "pricing", "handoff_id": "h-1"}
        events = [
            event("llm_response", "I look the price up", 50, id="before", **members),
            result("The price is 12 EUR", 45, id="old", **members),
            event("llm_response", "12 EUR are too much", 44, id="about", **members),
            event("llm_response", "The terms are fair", 44, id="other", agent="legal", handoff_id="h-1"),
            result("The price is 10 EUR", 5, id="new", **members),
            event("llm_response", "10 EUR are fair", 4, id="again", **members),
        ]

        contract = compile_contract(events, request()).contract

        assert [fact.event_id for fact in contract.facts] == ["before", "other", "new", "again"]
        assert "stale:llm_response" in contract.excluded_context


class TestWhatRestsOnFailures:
    def test_an_excuse_does_not_cross_without_its_failure(self) -> None:
        """Both are left out with the label of the failure, until the tool answers (S5-prob-a, C-39)."""
        members: dict[str, Any] = {"agent": "build", "handoff_id": "h-1", "tool_name": "tests.run"}
        events = [
            event("llm_response", "I run the tests", 9, id="before", **members),
            result("3 of 90 tests fail", 8, id="failure", success=False, **members),
            event("llm_response", "They are flaky", 7, id="excuse", **members),
            result("90 tests pass", 5, id="passed", **members),
            event("llm_response", "All is well", 4, id="after", **members),
        ]

        contract = compile_contract(events, request()).contract

        assert [fact.event_id for fact in contract.facts] == ["before", "passed", "after"]
        assert contract.excluded_context == ["failed:tests.run", "failed:llm_response"]

    def test_a_decision_that_rests_on_an_excuse_is_left_out_with_it(self) -> None:
        """A model's words after a failed result are as bad as the result."""
        members: dict[str, Any] = {"agent": "build", "handoff_id": "h-1"}
        events = [
            result("3 of 90 tests fail", 8, id="failure", success=False, tool_name="tests.run", **members),
            event("llm_response", "They are flaky", 7, id="excuse", **members),
            event("decision", "Ship it", 6, id="ship", accepted=True, rests_on=["excuse"], **members),
        ]

        assert compile_contract(events, request()).contract.facts == []

    @pytest.mark.parametrize(
        ("source", "rests_on", "label"),
        [
            pytest.param(result("It costs 20 USD", 45, id="price"), ["price"], "stale:decision", id="a stale one"),
            pytest.param(
                result("no answer", id="price", success=False), ["price"], "failed:decision", id="a failed one"
            ),
            pytest.param(result("It costs 20 USD", id="price"), ["price"], None, id="a fresh one"),
            pytest.param(result("It costs 20 USD", 45, id="price"), None, None, id="none"),
        ],
    )
    def test_a_decision_is_as_good_as_the_sources_that_it_names(
        self, source: SessionEvent, rests_on: list[str] | None, label: str | None
    ) -> None:
        """And one that rests on such a decision too; without a named source it crosses."""
        decided = event("decision", "Offer 20 USD", id="offer", accepted=True, rests_on=rests_on)
        after = event("decision", "Ask for 200", id="order", accepted=True, rests_on=["offer"])

        labels = compile_contract([source, decided, after], request()).contract.excluded_counts or {}

        assert {name: count for name, count in labels.items() if name.endswith("decision")} == (
            {label: 2} if label else {}
        )


class TestBudget:
    def test_a_prohibition_is_a_constraint_also_where_its_message_has_no_room(self) -> None:
        """Word for word, once, beside the budget; what others wrote forbids nothing."""
        words = "Never touch the public API report."
        said = {"prohibitions": [words]}
        events = [
            event("user_message", f"Write the notes of 1.2. {words} {'Thank you. ' * 90}", 60, id="request", **said),
            event("user_message", words, 50, id="again", exclude_from_handoff=True, **said),
            event("llm_response", "Never mind the report.", id="model", prohibitions=["Never mind the report."]),
            *(result(f"Commit {number}", 2, id=f"commit-{number}") for number in range(9)),
        ]
        bare = compile_contract([], request()).report.contract_tokens
        compiled = compile_contract(events, request(max_tokens=bare + 90))
        contract = compiled.contract

        assert contract.constraints == [Constraint(text=words, event_id="request")]
        assert "budget:user_message" in contract.excluded_context
        assert {fact.source.source for fact in contract.facts} == {"crm.lookup"}
        assert words in render_contract(contract)
        verdict = validate_contract(
            contract, now=NOW, report=compiled.report, events=events, max_tokens=bare + 90, schemas=SCHEMAS
        )
        assert verdict.errors == []

    def test_what_a_user_asked_and_forbade_is_kept_first(self) -> None:
        """Without it the receiver does something else, or what it may not do; tools can be called again."""
        events = [
            event("user_message", "Write the notes of 1.2", 60, id="request"),
            event("user_message", "Never touch the public API report", 59, id="prohibition"),
            *(result(f"Commit {number} is a chore", 2, id=f"commit-{number}") for number in range(90)),
        ]
        unlimited = compile_contract(events, request())
        compiled = compile_contract(events, request(max_tokens=unlimited.report.contract_tokens // 3))

        assert [fact.event_id for fact in compiled.contract.facts][:2] == ["request", "prohibition"]
        assert "budget:user_message" not in compiled.contract.excluded_context

    def test_the_surest_and_newest_are_kept(self) -> None:
        """What has no room is labelled by its tool, and the tool was used all the same (S5-valid-e, C-39)."""
        events = [
            event("decision", "U" * 40, 3, id="decision", accepted=True),
            result("A" * 40, 20, id="old", tool_name="policy.search"),
            result("B" * 40, 2, id="new"),
            event("llm_response", "C" * 40, 1, id="model"),
        ]
        unlimited = compile_contract(events, request())
        compiled = compile_contract(events, request(max_tokens=unlimited.report.contract_tokens - 30))

        assert [fact.event_id for fact in compiled.contract.facts] == ["old", "new"]
        assert compiled.contract.excluded_context == ["budget:decision", "budget:llm_response"]
        tight = compile_contract(events, request(max_tokens=unlimited.report.contract_tokens - 60, granted=frozenset()))
        assert [fact.event_id for fact in tight.contract.facts] == ["new"]
        assert "budget:policy.search" in tight.contract.excluded_context
        assert tight.contract.allowed_tools == ["policy.search"]

    def test_of_equally_sure_and_new_ones_the_last_is_kept(self) -> None:
        """Of equal facts the later ones are kept (S5-valid-e)."""
        events = [result("A" * 40, 2, id="first"), result("B" * 40, 2, id="second")]
        unlimited = compile_contract(events, request())
        compiled = compile_contract(events, request(max_tokens=unlimited.report.contract_tokens - 10))

        assert [fact.event_id for fact in compiled.contract.facts] == ["second"]

    def test_one_that_is_too_long_does_not_keep_others_out(self) -> None:
        """It alone is left out (S5-valid-e)."""
        events = [result("long " * 500, 1, id="long"), result("short", 2, id="short")]
        compiled = compile_contract(events, request(max_tokens=300))

        assert [fact.event_id for fact in compiled.contract.facts] == ["short"]

    def test_another_estimator_counts(self) -> None:
        """One that charges more for the whole than for the parts is obeyed too (X-8, S5-valid-e)."""

        def harsh(text: str) -> int:
            return len(text) + (1_000 if text.count("\n- ") > 1 else 0)

        events = [result("a", 1, id="a"), result("b", 2, id="b")]
        compiled = compile_contract(events, request(max_tokens=900), estimator=harsh)

        assert [fact.event_id for fact in compiled.contract.facts] == ["a"]

    def test_a_budget_of_nothing_is_a_budget(self) -> None:
        """Zero tokens leave no facts (S5-valid-e)."""
        assert compile_contract([result("x")], request(max_tokens=0)).contract.facts == []


class TestTools:
    @pytest.mark.parametrize(
        ("members", "allowed"),
        [
            pytest.param({}, ["crm.lookup"], id="used"),
            pytest.param({"granted": {"policy.search"}}, ["crm.lookup", "policy.search"], id="and granted"),
            pytest.param({"forbidden": {"crm.lookup"}}, [], id="forbidden wins"),
            pytest.param({"forbidden": {" CRM.Lookup"}}, [], id="however it is spelled"),
            pytest.param({"capability": {"policy.search"}}, [], id="not able to"),
        ],
    )
    def test_what_is_allowed(self, members: dict[str, set[str]], allowed: list[str]) -> None:
        """A tool that was used crosses only if the receiver is able to and nothing forbids it (C-37, S5-fields-k)."""
        tools: dict[str, Any] = {
            "capability": {"crm.lookup", "policy.search"},
            "granted": (),
            "forbidden": (),
            **members,
        }
        compiled = compile_contract([result("x")], request(**{name: frozenset(value) for name, value in tools.items()}))

        assert compiled.contract.allowed_tools == allowed

    @pytest.mark.parametrize(
        "candidate",
        [
            pytest.param(event("brainstorm", "Use it", tool_name="crm.lookup", success=True), id="a brainstorm"),
            pytest.param(event("tool_call", "{}", tool_name="crm.lookup"), id="a call"),
            pytest.param(result("x", success=False), id="a failure"),
            pytest.param(result("x", success=None), id="nobody said that it succeeded"),
            pytest.param(result("x", 31), id="a stale result"),
            pytest.param(result("x", exclude_from_handoff=True), id="a result that is kept back"),
        ],
    )
    def test_what_does_not_count_as_used(self, candidate: SessionEvent) -> None:
        """Privileges are not carried over by talk (S5-compiler-h, S5-fields-k, C-37)."""
        contract_request = request(capability=frozenset({"crm.lookup"}), granted=frozenset())

        assert compile_contract([candidate], contract_request).contract.allowed_tools == []


class TestDraft:
    def test_an_event_is_settled_once(self) -> None:
        """A processor that settles an event again gets an error (C-39)."""
        candidate = result("x")
        draft = Draft([candidate], request(), ContractPolicy())
        draft.leave_out(candidate, "confidential")

        with pytest.raises(ContractError, match="already settled as confidential:tool_result"):
            draft.leave_out(candidate, "stale")

    def test_a_fact_can_be_withdrawn(self) -> None:
        """It leaves under a label like everything else (C-39)."""
        candidate = result("x")
        draft = Draft([candidate], request(), ContractPolicy())
        draft.state(candidate, "x", SourceProvenance(source="crm", timestamp=NOW, method="api_call"), Confidence.HIGH)
        draft.leave_out(candidate, "budget", "crm")

        assert (draft.facts, draft.label_counts()) == ([], {"budget:crm": 1})

    @pytest.mark.parametrize(
        "candidate", [event("llm_response", "x"), result("x", success=None)], ids=["model", "not said"]
    )
    def test_only_a_tool_s_success_is_stated_as_sure(self, candidate: SessionEvent) -> None:
        """A processor cannot lend confidence (S5-fields-i, C-43)."""
        draft = Draft([candidate], request(), ContractPolicy())

        with pytest.raises(ContractError):
            draft.state(candidate, "x", SourceProvenance(source="llm", timestamp=NOW, method="m"), Confidence.HIGH)

    @pytest.mark.parametrize("claim", ["", " ", "\u200b"])
    def test_a_claim_says_something(self, claim: str) -> None:
        """A fact of nothing would be refused later, far from its cause (S5-compiler-e)."""
        candidate = result("x")
        draft = Draft([candidate], request(), ContractPolicy())

        with pytest.raises(ContractError, match="says nothing"):
            draft.state(candidate, claim, SourceProvenance(source="crm", timestamp=NOW, method="m"), Confidence.LOW)

    @pytest.mark.parametrize("kind", ["", "Too Secret", "a:b", "x" * 81])
    def test_a_label_begins_with_a_word(self, kind: str) -> None:
        """So that its two parts can be told apart (S5-fields-j)."""
        draft = Draft([result("x")], request(), ContractPolicy())

        with pytest.raises(ContractError, match="cannot begin a label"):
            draft.leave_out(draft.rest[0], kind)

    def test_only_calls_are_consumed(self) -> None:
        """Nothing else vanishes without a label (C-39)."""
        draft = Draft([event("brainstorm", "x")], request(), ContractPolicy())

        with pytest.raises(ContractError, match="only a tool_call is consumed"):
            draft.consume(draft.rest[0], result("y"))

    def test_events_of_another_session_are_refused(self) -> None:
        """A processor cannot add facts that did not happen (S5-contract-d)."""
        draft = Draft([], request(), ContractPolicy())

        with pytest.raises(ContractError, match="no event 'evt-brainstorm'"):
            draft.leave_out(event("brainstorm"), "type")
