"""Whether a contract holds what was left out: judged by event, by text and by label."""

import hashlib
from typing import Any

import pytest

from baton.contract.compiler import CompileReport, compile_contract
from baton.contract.records import Check, SessionEvent
from tests.contract.contract_material import IDEA, errors, event, request, result


class TestEvidence:
    GOOD = result("The recipient is an existing enterprise customer.", id="evt-good")

    def compiled(self, *events: SessionEvent) -> tuple[dict[str, Any], CompileReport]:
        """Return the contract of a session as JSON, and the report."""
        compiled = compile_contract(events or (IDEA, self.GOOD), request())
        return compiled.contract.to_json_object(), compiled.report

    def test_what_the_compiler_made_is_clean(self) -> None:
        """By the report and by the events alike (S5-valid-d, C-41)."""
        contract, report = self.compiled()

        assert errors(contract, report=report, events=[IDEA, self.GOOD]) == []
        assert errors(contract, events=[IDEA, self.GOOD]) == []

    @pytest.mark.parametrize(
        "one",
        [
            pytest.param(event("brainstorm", "x"), id="a type that never crosses"),
            pytest.param(event("user_message", "x", exclude_from_handoff=True), id="a mark"),
            pytest.param(result("x", success=False), id="a failed tool"),
            pytest.param(event("decision", "x", accepted=False), id="a decision that was not accepted"),
        ],
    )
    def test_without_a_report_the_events_say_what_does_not_cross(self, one: SessionEvent) -> None:
        """Under the label that the compiler gives (S5-valid-d, C-41)."""
        contract = compile_contract([one], request()).contract.to_json_object()
        source = {"source": "crm", "timestamp": "2026-06-27T09:20:00Z", "method": "api_call"}
        fact = {"claim": "y", "source": source, "confidence": "low", "eventId": one.id}

        assert errors(contract, events=[one]) == []
        assert errors({**contract, "facts": [fact]}, events=[one]) == [(Check.CONTEXT, "/facts/0")]
        assert errors({**contract, "excludedContext": []}, events=[one]) == [(Check.CONTEXT, "/excludedContext")]

    @pytest.mark.parametrize("evidence", ["report", "events"])
    def test_a_fact_of_an_event_that_was_left_out(self, evidence: str) -> None:
        """It is found by its event, whatever it says (S5-valid-d, C-41)."""
        contract, report = self.compiled()
        contract["facts"][0] |= {"eventId": "evt-idea", "confidence": "medium"}
        members: Any = {"report": report, "events": [IDEA, self.GOOD]}

        assert errors(contract, **{evidence: members[evidence]}) == [(Check.CONTEXT, "/facts/0")]

    def test_a_text_that_was_left_out_under_another_event_s_name(self) -> None:
        """It is found by its text (S5-valid-d, C-41)."""
        contract, report = self.compiled()
        contract["facts"][0]["claim"] = f" {IDEA.content}\n"

        assert errors(contract, report=report, events=[IDEA, self.GOOD]) == [(Check.CONTEXT, "/facts/0")]

    def test_a_text_that_was_left_out_and_is_known_by_its_digest_only(self) -> None:
        """The session may have lost the text (C-41)."""
        digest = "sha256:" + hashlib.sha256(IDEA.content.encode()).hexdigest()
        stored_event = IDEA.model_copy(update={"content": "", "ref": digest})
        contract, report = self.compiled()
        contract["facts"][0]["claim"] = IDEA.content

        assert errors(contract, report=report, events=[stored_event, self.GOOD]) == [(Check.CONTEXT, "/facts/0")]

    def test_a_task_that_is_a_text_that_was_left_out(self) -> None:
        """The task is read by the receiver as well (S5-valid-d)."""
        contract, _ = self.compiled()

        assert errors({**contract, "task": IDEA.content}, events=[IDEA, self.GOOD]) == [(Check.CONTEXT, "/task")]

    def test_a_tool_may_find_out_what_somebody_had_only_thought(self) -> None:
        """The same words from an event that crosses are its own (C-41)."""
        tool_result = result(IDEA.content, id="evt-found")
        contract, report = self.compiled(IDEA, tool_result)

        assert [fact["eventId"] for fact in contract["facts"]] == ["evt-found"]
        assert errors(contract, report=report, events=[IDEA, tool_result]) == []

    def test_a_fact_of_no_event(self) -> None:
        """It leads back to nothing (S5-fields-h, C-41)."""
        contract, report = self.compiled()
        contract["facts"][0]["eventId"] = "evt-invented"

        assert errors(contract, report=report) == [(Check.CONTEXT, "/facts/0")]
        assert errors(contract, events=[IDEA, self.GOOD]) == [(Check.CONTEXT, "/facts/0")]

    @pytest.mark.parametrize(
        "said",
        [
            pytest.param(event("llm_response", "They are happy."), id="a model"),
            pytest.param(result("They are happy.", success=None), id="a tool that did not say"),
            pytest.param(result("They are happy.", by_model=True), id="a tool that asked a model"),
        ],
    )
    def test_confidence_that_was_raised(self, said: SessionEvent) -> None:
        """High belongs to tools that succeeded (S5-fields-i, C-43)."""
        contract, report = self.compiled(said)
        contract["facts"][0]["confidence"] = "high"

        assert errors(contract, report=report, events=[said]) == [(Check.CONTEXT, "/facts/0")]

    @pytest.mark.parametrize(
        ("labels", "at"),
        [
            pytest.param([], "/excludedContext", id="a label is missing"),
            pytest.param(["type:brainstorm", "stale:crm"], "/excludedContext/1", id="a label too many"),
            pytest.param(["type:internal_note"], "/excludedContext", id="another label"),
        ],
    )
    def test_labels_tell_what_was_left_out(self, labels: list[str], at: str) -> None:
        """No more and no less (S5-valid-d, S5-fields-j, S5-compiler-g)."""
        contract, report = self.compiled()

        assert (Check.CONTEXT, at) in errors({**contract, "excludedContext": labels}, report=report)

    @pytest.mark.parametrize(
        ("words", "about"),
        [
            pytest.param("Touch the report", {}, id="other words"),
            pytest.param("Do not wait", {"eventId": "evt-idea"}, id="of another event"),
            pytest.param("Do not wait", {"eventId": "evt-99"}, id="of no event"),
        ],
    )
    @pytest.mark.parametrize("with_report", [True, False])
    def test_constraints_are_what_a_user_forbade(self, words: str, about: dict[str, str], with_report: bool) -> None:
        """An agent cannot add a rule in a user's name (S5-valid-d)."""
        said = event("user_message", "Hurry. Do not wait", id="evt-said", prohibitions=["Do not wait"])
        contract, report = self.compiled(said)
        rules = contract["constraints"]
        assert rules == [{"text": "Do not wait", "eventId": "evt-said"}]
        known = {"report": report if with_report else None, "events": [said]}
        assert errors(contract, **known) == []

        forged = {**contract, "constraints": [*rules, {"text": words, "eventId": "evt-said", **about}]}

        assert errors(forged, **known) == [(Check.CONTEXT, "/constraints/1")]

    def test_labels_are_missed_without_a_report_too(self) -> None:
        """The marks and types of the events say which there have to be (C-41)."""
        contract, _ = self.compiled()
        events = [IDEA, self.GOOD, event("user_message", "x", exclude_from_handoff=True)]

        assert errors(contract, events=events) == [(Check.CONTEXT, "/excludedContext")]

    def test_counts_are_compared(self) -> None:
        """A label stands for a number of events, which is checked as well (C-39)."""
        contract, report = self.compiled()

        assert errors({**contract, "excludedCounts": {"type:brainstorm": 2}}, report=report) == [
            (Check.CONTEXT, "/excludedCounts")
        ]
