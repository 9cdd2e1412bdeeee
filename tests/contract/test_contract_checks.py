"""The validation of a contract: the document's example, one fault at a time, and many at once."""

from datetime import timedelta
from typing import Any

import pytest

from baton.contract.compiler import compile_contract
from baton.contract.draft import contract_tokens
from baton.contract.records import Check, HandoffContract, verdict_log_fields
from baton.contract.validation import MAX_CONTRACT_FINDINGS, expiry_findings
from baton.core.verdict import CLOCK, Disposition, Verdict
from tests.contract.contract_material import (
    EXAMPLE,
    IDEA,
    NOW,
    TRACEPARENT,
    errors,
    event,
    example,
    request,
    verdict,
    warnings,
)


def sourced(**source: Any) -> dict[str, Any]:
    """Return the example with one fact, its source changed; `...` takes a member away."""
    fact = EXAMPLE["facts"][0]
    provenance = {name: value for name, value in {**fact["source"], **source}.items() if value is not ...}
    return example(facts=[{**fact, "source": provenance}])


class TestValidContracts:
    def test_the_document_s_example(self) -> None:
        """Without errors, without warnings, as JSON and as a record (S5-fields-q, S5-check-r, X-7)."""
        for contract in (EXAMPLE, HandoffContract.from_json_object(EXAMPLE)):
            outcome = verdict(contract)

            assert bool(outcome)
            assert (outcome.errors, outcome.warnings) == ([], [])

    @pytest.mark.parametrize(
        "contract",
        [
            pytest.param(example(task="x" * 500), id="a task of 500 characters"),
            pytest.param(example(expiresAfterMinutes=1), id="a minute"),
            pytest.param(example(expiresAfterMinutes=1440), id="a day"),
            pytest.param(example(expiresAfterMinutes=...), id="the default expiry"),
            pytest.param(example(outputSchema=...), id="no output schema"),
            pytest.param(example(createdAt="2026-06-27T11:25:00+02:00"), id="another offset"),
            pytest.param(example(createdAt="2026-06-27T09:25:59Z"), id="a clock that is a little ahead"),
            pytest.param(example(mood="good"), id="a member of a later minor"),
            pytest.param(example(schemaVersion="1.1"), id="a minor ahead"),
            pytest.param(example(receivingAgentVersion="1.2.0"), id="a version of the receiver"),
            pytest.param(example(traceId="other", traceparent=f"00-{'a' * 32}-{'b' * 16}-01"), id="a traceparent"),
        ],
    )
    def test_at_the_limits(self, contract: dict[str, Any]) -> None:
        """Nothing that the document allows is refused (C-36, C-38, C-44, C-45, S5-fields-n, S5-fm-a, S5-check-r)."""
        trace = "a" * 32 if "traceparent" in contract else EXAMPLE["traceId"]

        assert errors(contract, parent_trace_id=trace) == []


class TestOneFault:
    """What prevents the handoff, one fault at a time (S5-check-e, S5-check-g, S5-valid-a)."""

    @pytest.mark.parametrize("name", ["handoffId", "receivingAgent", "task", "traceId"])
    @pytest.mark.parametrize(
        "value", [pytest.param(..., id="missing"), "", " ", "\n", "\u200b", pytest.param(None, id="null"), 5]
    )
    def test_required_members_say_something(self, name: str, value: Any) -> None:
        """Present, a text, not blank, and no default fills them in (S5-valid-b, S5-code-c)."""
        check = Check.TRACE if name == "traceId" else Check.REQUIRED

        assert (check, f"/{name}") in errors(example(**{name: value}))

    def test_a_task_of_more_than_500_characters(self) -> None:
        """It is several tasks (S5-fields-c, C-38)."""
        assert errors(example(task="x" * 501)) == [(Check.REQUIRED, "/task")]

    @pytest.mark.parametrize("name", ["facts", "excludedContext", "allowedTools", "forbiddenTools", "createdAt"])
    def test_lists_and_time_have_no_defaults(self, name: str) -> None:
        """Explicit lists of tools, and explicit exclusions (S5-fields-k, S5-fields-j, S5-fields-n, S5-check-a)."""
        assert (Check.SHAPE, f"/{name}") in errors(example(**{name: ...}))

    @pytest.mark.parametrize("name", ["source", "timestamp", "method"])
    @pytest.mark.parametrize("value", [pytest.param(..., id="missing"), "", " ", pytest.param(None, id="null")])
    def test_every_fact_has_its_provenance(self, name: str, value: Any) -> None:
        """System, time and method, all of them (S5-valid-c, S5-fields-f, S5-code-c, C-35)."""
        assert (Check.PROVENANCE, f"/facts/0/source/{name}") in errors(sourced(**{name: value}))

    def test_a_fact_without_a_source(self) -> None:
        """It cannot be trusted, so it does not cross (S5-valid-c, C-35)."""
        fact = {name: value for name, value in EXAMPLE["facts"][0].items() if name != "source"}

        assert errors(example(facts=[fact])) == [(Check.PROVENANCE, "/facts/0/source")]

    @pytest.mark.parametrize("confidence", ["high", "medium", "low", "unverified"])
    @pytest.mark.parametrize("name", ["unknown", "UNKNOWN ", "unknown_tool", "undefined"])
    def test_an_unknown_source(self, confidence: str, name: str) -> None:
        """Whatever its confidence says, it does not cross (S5-fm-d, C-35)."""
        contract = sourced(source=name)
        contract["facts"][0]["confidence"] = confidence

        assert errors(contract) == [(Check.PROVENANCE, "/facts/0/source/source")]

    def test_a_fact_that_was_retrieved_after_the_contract_was_made(self) -> None:
        """Its time is not when the data was retrieved (S5-fm-b, C-42)."""
        assert errors(sourced(timestamp="2026-06-27T10:25:00Z")) == [(Check.PROVENANCE, "/facts/0/source/timestamp")]

    @pytest.mark.parametrize("member", ["claim", "confidence", "eventId"])
    @pytest.mark.parametrize("value", [pytest.param(..., id="missing"), "", "certain\n", 5])
    def test_the_other_parts_of_a_fact(self, member: str, value: Any) -> None:
        """Claim, confidence and event; a confidence is one of four (S5-fields-e, S5-fields-g, S5-fields-h)."""
        fact = {name: part for name, part in {**EXAMPLE["facts"][0], member: value}.items() if part is not ...}
        fine = value == "certain\n" and member != "confidence"

        assert errors(example(facts=[fact])) == ([] if fine else [(Check.SHAPE, f"/facts/0/{member}")])

    @pytest.mark.parametrize("tool", ["email.send", "Email.Send", " email.send", "ｅmail.send"])
    def test_a_tool_that_is_allowed_and_forbidden(self, tool: str) -> None:
        """However it is spelled (S5-valid-f, S5-code-c, C-37)."""
        assert errors(example(allowedTools=[tool])) == [(Check.TOOLS, "/allowedTools/0")]

    @pytest.mark.parametrize("label", ["brainstorm", "Type:brainstorm", "type:", ":brainstorm", "type:a\nb"])
    def test_a_label_that_is_none(self, label: str) -> None:
        """A label says why, a colon, and what kind of thing was left out (S5-fields-j)."""
        assert errors(example(excludedContext=[label])) == [(Check.SHAPE, "/excludedContext/0")]

    @pytest.mark.parametrize("member", ["schemaName", "version"])
    def test_an_output_schema_without_a_name_or_version(self, member: str) -> None:
        """It is referred to by both (S5-fields-l)."""
        ref = {name: value for name, value in EXAMPLE["outputSchema"].items() if name != member}

        assert errors(example(outputSchema=ref)) == [(Check.SHAPE, f"/outputSchema/{member}")]

    def test_an_output_schema_that_is_not_registered(self) -> None:
        """The message names what comes near (S5-valid-g, S5-check-m, C-46)."""
        unknown = verdict(example(outputSchema={"schemaName": "ComplianceDecisionV2", "version": "1.2"}))
        other_verdict = verdict(example(outputSchema={"schemaName": "ComplianceDecisionV1", "version": "1.3"}))

        assert [(error.rule, error.at) for error in unknown.errors] == [(Check.SCHEMA, "/outputSchema")]
        assert "did you mean 'ComplianceDecisionV1'" in unknown.errors[0].text
        assert "there are 1.2" in other_verdict.errors[0].text

    @pytest.mark.parametrize(
        "trace", ["other", "trace-risk-review-2026-002", "Trace-Risk-Review-2026-001", TRACEPARENT]
    )
    def test_a_trace_of_another_pipeline(self, trace: str) -> None:
        """The causal chain would be lost (S5-valid-h, S5-fields-o)."""
        assert errors(example(traceId=trace)) == [(Check.TRACE, "/traceId")]

    @pytest.mark.parametrize("minutes", [0, -1, -(10**30), 1441, 2**53, 10**30, 1.5, "30", True])
    def test_an_impossible_expiry(self, minutes: Any) -> None:
        """More than nothing, at most a day (C-45)."""
        assert {at for _, at in errors(example(expiresAfterMinutes=minutes))} == {"/expiresAfterMinutes"}

    @pytest.mark.parametrize("made", ["2026-06-27T19:25:00Z", "2026-06-27T09:30:01Z", "9999-12-31T23:59:59Z"])
    def test_a_contract_from_the_future(self, made: str) -> None:
        """Else its expiry could be pushed out (C-36)."""
        assert errors(example(createdAt=made)) == [(CLOCK, "/createdAt")]

    @pytest.mark.parametrize("made", ["2026-06-27 09:25:00Z", "2026-06-27T09:25:00", "today", 5, None])
    def test_a_time_that_is_none(self, made: Any) -> None:
        """A time has its offset (S5-fields-n, C-42)."""
        assert errors(example(createdAt=made)) == [(Check.SHAPE, "/createdAt")]

    @pytest.mark.parametrize("version", ["2.0", "0.9", "1", "x", 1.1])
    def test_a_version_that_is_not_readable(self, version: Any) -> None:
        """Sender and receiver would mean different things (S5-fm-a, S5-check-k)."""
        assert (Check.SHAPE, "/schemaVersion") in errors(example(schemaVersion=version))

    @pytest.mark.parametrize("most", [0, 1, 100])
    def test_a_contract_that_is_too_long(self, most: int) -> None:
        """Zero is a budget too (S5-valid-e, S5-code-c, C-8)."""
        assert errors(EXAMPLE, max_tokens=most) == [(Check.BUDGET, "")]

    def test_a_contract_that_just_fits(self) -> None:
        """Counted as its receiver reads it (X-8, S5-valid-e)."""
        took = contract_tokens(HandoffContract.from_json_object(EXAMPLE))

        assert errors(EXAMPLE, max_tokens=took) == []
        assert errors(EXAMPLE, max_tokens=took - 1) == [(Check.BUDGET, "")]


class TestWarnings:
    @pytest.mark.parametrize(
        ("members", "found"),
        [
            pytest.param({"facts": []}, (Check.PROVENANCE, "/facts"), id="no facts"),
            pytest.param({"allowedTools": []}, (Check.TOOLS, "/allowedTools"), id="no tools"),
            pytest.param({"createdAt": "2026-06-27T08:54:59Z"}, (Check.TIME, "/expiresAfterMinutes"), id="expired"),
        ],
    )
    def test_the_document_s_three(self, members: dict[str, Any], found: tuple[Check, str]) -> None:
        """No facts, no tools, expired: warnings, and the contract passes (S5-valid-i, S5-check-j, S5-code-c, C-36)."""
        contract = example(**{"facts": [], **members}) if "createdAt" in members else example(**members)

        assert found in warnings(contract)
        assert errors(contract) == []
        assert verdict(contract)

    def test_exactly_at_its_expiry_it_is_not_expired(self) -> None:
        """It lasts thirty minutes, not less (C-36, C-42)."""
        record = HandoffContract.from_json_object(EXAMPLE)

        assert warnings(EXAMPLE, now=NOW + timedelta(minutes=30)) == []
        assert not record.is_expired(NOW + timedelta(minutes=30))
        assert record.is_expired(NOW + timedelta(minutes=30, microseconds=1))

    def test_a_schema_that_nobody_looked_up(self) -> None:
        """Without a registry it is unknown whether the output can be read (S5-valid-g)."""
        assert warnings(EXAMPLE, schemas=None) == [(Check.SCHEMA, "/outputSchema")]


class TestAllTogether:
    def test_every_check_reports_at_once(self) -> None:
        """A fault of shape does not hide the others (S5-valid-i, S5-check-e)."""
        contract = example(
            handoffId="",
            task=" ",
            traceId="other",
            facts=[{**sourced(source="unknown")["facts"][0], "eventId": "evt-idea"}, {"claim": 5}],
            allowedTools=["email.send"],
            forbiddenTools=["email.send"],
            outputSchema={"schemaName": "None", "version": "9"},
            createdAt="2026-06-28T09:25:00Z",
            expiresAfterMinutes=0,
            receivingAgent="Nobody",
        )
        outcome = errors(contract, events=[IDEA], max_tokens=0)

        assert {check for check, _ in outcome} == {*Check} - {Check.TIME} | {CLOCK}
        assert (Check.PROVENANCE, "/facts/0/source/source") in outcome

    @pytest.mark.parametrize(
        "contract",
        [
            {},
            {"facts": 5},
            {"facts": [5, {}, None, {"claim": "\ud800"}]},
            {"allowedTools": {"a": 1}},
            {"handoffId": "\ud800", "allowedTools": ["\ud800"], "forbiddenTools": ["\ud800"]},
            example(createdAt="9999-12-31T23:59:59Z"),
        ],
    )
    def test_junk_is_judged_too(self, contract: dict[str, Any]) -> None:
        """Nothing that a sender sends raises (S5-valid-a)."""
        compiled = compile_contract([IDEA], request())

        outcome = verdict(contract, report=compiled.report, events=[IDEA], max_tokens=10)
        assert outcome.errors
        assert outcome.model_dump_json()

    @pytest.mark.parametrize("minutes", [None, [], {}, "soon", 10**400, float("inf")])
    def test_an_expiry_that_is_none_has_passed(self, minutes: Any) -> None:
        """Nothing that a sender sends raises (S5-valid-a)."""
        [found] = expiry_findings(example(expiresAfterMinutes=minutes), NOW)

        assert "compile it again" in found.text

    def test_what_a_compiler_was_given_wrongly_is_a_verdict(self) -> None:
        """A task that is too long, or no trace: found here, not raised there (S5-compiler-i)."""
        compiled = compile_contract([], request(task="x" * 501, trace_id="", handoff_id=" "))

        assert errors(compiled.contract, report=compiled.report) == [
            (Check.REQUIRED, "/handoffId"),
            (Check.REQUIRED, "/task"),
            (Check.TRACE, "/traceId"),
        ]

    def test_a_verdict_is_short(self) -> None:
        """However many faults a hostile sender makes."""
        outcome = verdict(sourced(source="unknown") | {"facts": sourced(source="unknown")["facts"] * 500})

        assert len(outcome.errors) == MAX_CONTRACT_FINDINGS + 1
        assert outcome.errors[-1].text == "and 450 errors more"

    def test_names_that_a_sender_made_long_are_cut(self) -> None:
        """They stand in log lines (S5-valid-j)."""
        name, labels = "x\n" * 50_000, [f"type:{number}" for number in range(5_000)]
        schema = {"schemaName": name, "version": name}
        hostile = example(handoffId=name, receivingAgent=name, traceId=name, allowedTools=[name], outputSchema=schema)
        outcome = verdict({**hostile, "excludedContext": labels})

        assert not outcome
        assert len(str(verdict_log_fields(outcome))) < 12_000
        assert "\n" not in outcome.handoff_id

    def test_no_finding_quotes_a_claim_or_task(self) -> None:
        """Errors go into logs (S5-valid-j)."""
        fact = {**EXAMPLE["facts"][0], "claim": "marker-1", "eventId": "", "confidence": "marker-2"}
        contract = example(facts=[fact], task="marker-3" * 100)

        assert "marker" not in verdict(contract, max_tokens=1).model_dump_json()


class TestVerdict:
    def test_its_log_line_has_every_error_and_warning_and_the_counts(self) -> None:
        """Also of a contract that passes (S5-valid-j, S5-check-f, S5-check-i, S5-check-j, S5-fm-c, S5-fields-a)."""
        fields = verdict_log_fields(verdict(example(facts=[], allowedTools=[], task="", traceId="other")))

        assert fields == {
            "handoff_id": "risk-review-2026-001",
            "receiving_agent": "ComplianceReviewAgent",
            "trace_id": "other",
            "valid": False,
            "errors": [
                "required_fields: '/task': Value error, it must say something; found an empty or blank text",
                "trace_id: '/traceId' is not the trace of the sending pipeline, 'trace-risk-review-2026-001'; "
                "use that one",
            ],
            "warnings": [
                "source_provenance: it has no facts, which is usually a bug; see what was left out, and why",
                "tool_alignment: it allows no tools; grant some, if the task takes any",
            ],
            "facts": 0,
            "tools": 0,
            "zero_facts": 1,
            "zero_tools": 1,
            "excluded": {"type:brainstorm": 1, "type:internal_note": 1, "stale:crm.lookup_pricing": 1},
        }
        fine = verdict_log_fields(verdict(EXAMPLE))
        assert (fine["valid"], fine["facts"], fine["zero_facts"], fine["zero_tools"]) == (True, 2, 0, 0)

    def test_the_counts_of_labels_are_the_contract_s(self) -> None:
        """Two brainstorms are two (C-39, S5-check-i)."""
        compiled = compile_contract([event("brainstorm", "a", id="1"), event("brainstorm", "b", id="2")], request())

        assert verdict_log_fields(verdict(compiled.contract))["excluded"] == {"type:brainstorm": 2}

    def test_a_gate_reports_it_as_its_own(self) -> None:
        """The same function on both sides, in the words of the receiver's verdict (X-7, S5-check-g)."""
        shapeless = verdict(example(task=""))
        reported = Verdict.of(shapeless.errors)

        assert reported.findings == shapeless.errors
        assert not shapeless
        assert reported.disposition() is Disposition.BACK_TO_SENDER
        assert bool(Verdict.of(verdict(EXAMPLE).errors))
