"""Verdicts, their precedence, and what becomes of a handoff."""

import itertools
import json

import pytest
from pydantic import ValidationError

from baton.core.verdict import (
    MAX_FINDING_LENGTH,
    MAX_FINDINGS,
    Code,
    Disposition,
    Finding,
    Verdict,
    disposition_of,
    rejected,
)

PRECEDENCE = (
    Code.SIGNATURE_INVALID,
    Code.SAFETY_VIOLATION,
    Code.SCHEMA_INVALID,
    Code.ROUTING_ERROR,
    Code.INCOMPLETE_CONTEXT,
    Code.BUDGET_EXHAUSTED,
)


def finding(code: Code, text: str = "") -> Finding:
    return Finding(code=code, text=text or f"about {code}")


class TestCode:
    def test_the_documents_four_are_spelled_as_in_its_code(self) -> None:
        """UPPER_SNAKE on the wire, and a fifth for seals (S3-7.2-a, C-14, C-15)."""
        four = {"SCHEMA_INVALID", "INCOMPLETE_CONTEXT", "SAFETY_VIOLATION", "BUDGET_EXHAUSTED"}

        assert {code.value for code in Code} == four | {"SIGNATURE_INVALID", "ROUTING_ERROR"}


class TestVerdict:
    def test_a_valid_one_says_so_and_nothing_else(self) -> None:
        """`{valid: true}` (S3-7.1.4-a)."""
        verdict = Verdict.of([])

        assert verdict
        assert json.loads(verdict.model_dump_json()) == {"valid": True}

    def test_another_has_a_reason_details_and_findings(self) -> None:
        """`{valid: false, reason, details}`, and every finding (S3-7.1.4-a, S3-7.2-a, S3-7.2-b)."""
        verdict = Verdict.of([finding(Code.SCHEMA_INVALID, "a"), finding(Code.SCHEMA_INVALID, "b")])

        assert not verdict
        assert json.loads(verdict.model_dump_json()) == {
            "valid": False,
            "reason": "SCHEMA_INVALID",
            "details": "a; b",
            "findings": [{"code": "SCHEMA_INVALID", "text": "a"}, {"code": "SCHEMA_INVALID", "text": "b"}],
        }

    @pytest.mark.parametrize("codes", list(itertools.permutations(PRECEDENCE, 2)), ids=" then ".join)
    def test_the_gravest_finding_decides_whatever_the_order(self, codes: tuple[Code, Code]) -> None:
        """SAFETY before INCOMPLETE before BUDGET: nothing unsafe enters the retry loop (C-13, S3-6.1-o, S3-7.2-g)."""
        verdict = Verdict.of(finding(code) for code in codes)

        assert verdict.reason is min(codes, key=PRECEDENCE.index)
        assert [finding.code for finding in verdict.findings] == sorted(codes, key=PRECEDENCE.index)

    def test_details_are_about_the_reason_only(self) -> None:
        """The other findings stand beside it (C-13)."""
        verdict = Verdict.of([finding(Code.BUDGET_EXHAUSTED, "b"), finding(Code.SAFETY_VIOLATION, "s")])

        assert (verdict.details, len(verdict.findings)) == ("s", 2)

    def test_it_stays_small(self) -> None:
        """It is part of the sender's next input, and of the ledger."""
        verdict = Verdict.of(finding(Code.SCHEMA_INVALID, f"{n:04}" * 1_000) for n in range(1_000))

        assert len(verdict.findings) == MAX_FINDINGS
        assert {len(finding.text) for finding in verdict.findings} == {MAX_FINDING_LENGTH}

    def test_the_same_finding_counts_once(self) -> None:
        """Two checks can find the same fault."""
        assert len(Verdict.of([finding(Code.SCHEMA_INVALID)] * 3).findings) == 1

    def test_it_cannot_be_changed(self) -> None:
        """A recorded verdict must stay as it was."""
        with pytest.raises(ValidationError, match="frozen"):
            setattr(Verdict.of([]), "valid", False)  # noqa: B010 - the type checker knows it is frozen

    def test_the_answer_is_the_documents_word(self) -> None:
        """ACCEPTED or REJECTED (S3-7.2-h)."""
        assert Verdict.of([]).answer.value == "ACCEPTED"
        assert rejected(Code.SIGNATURE_INVALID, "unknown key").answer.value == "REJECTED"

    @pytest.mark.parametrize("reason", ["SchemaInvalid", "schema_invalid", "TOO_SLOW"])
    def test_no_other_reason_is_read(self, reason: str) -> None:
        """The codes are a closed set, on the wire too (S3-7.2-a, C-15)."""
        with pytest.raises(ValidationError, match="reason"):
            Verdict.model_validate_json(json.dumps({"valid": False, "reason": reason}))


class TestFate:
    @pytest.mark.parametrize(
        ("code", "fates"),
        [
            pytest.param(Code.SCHEMA_INVALID, ["back_to_sender", "back_to_sender", "escalate"], id="S3-6.1-n, schema"),
            pytest.param(
                Code.INCOMPLETE_CONTEXT, ["back_to_sender", "back_to_sender", "escalate"], id="S3-6.1-n, completeness"
            ),
            pytest.param(Code.SAFETY_VIOLATION, ["dead_letter"] * 3, id="S3-6.1-k, S3-6.1-o"),
            pytest.param(Code.SIGNATURE_INVALID, ["dead_letter"] * 3, id="C-14"),
            pytest.param(Code.BUDGET_EXHAUSTED, ["top_up"] * 3, id="C-21"),
            pytest.param(Code.ROUTING_ERROR, ["reroute"] * 3, id="mis-delivery"),
        ],
    )
    def test_every_code_has_its_own(self, code: Code, fates: list[str]) -> None:
        """Retried only where the sender can correct it (S3-6.1-k, n, o, S3-6.3-g, C-14, C-20, C-21)."""
        assert [disposition_of(code, attempt).value for attempt in (1, 2, 3)] == fates
        assert [rejected(code, "x").disposition(attempt).value for attempt in (1, 2, 3)] == fates

    def test_every_code_has_one(self) -> None:
        """None is forgotten when a code is added."""
        assert all(isinstance(disposition_of(code), Disposition) for code in Code)

    def test_an_accepted_handoff_runs(self) -> None:
        """A verdict without findings is an acceptance."""
        assert Verdict.of([]).disposition() is Disposition.RUN

    def test_the_number_of_attempts_is_declared(self) -> None:
        """Three by default; exhaustion and escalation coincide (C-20, S3-6.3-a, S3-6.3-g)."""
        assert [disposition_of(Code.SCHEMA_INVALID, attempt) for attempt in (2, 3)] == [
            Disposition.BACK_TO_SENDER,
            Disposition.ESCALATE,
        ]
        assert disposition_of(Code.SCHEMA_INVALID, attempt=1, limit=1) is Disposition.ESCALATE
        assert disposition_of(Code.SCHEMA_INVALID, attempt=4, limit=5) is Disposition.BACK_TO_SENDER

    def test_only_what_runs_or_goes_back_leaves_the_checkpoint_alone(self) -> None:
        """The metric of roll-backs has every other fate as a reason from the start (S3-8.1-f, C-21)."""
        assert {fate for fate in Disposition if not fate.rolls_back} == {Disposition.RUN, Disposition.BACK_TO_SENDER}
