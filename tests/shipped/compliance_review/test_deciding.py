"""The decision as a whole: its verdict, what it presupposes, and that it fits the registered schema."""

from typing import Any

import pytest

from activities.compliance_review.claims import (
    ComplianceDecision,
    Concern,
    Evidence,
    Fact,
    InForce,
    Judgement,
    Message,
    Phrases,
    Recipients,
    Verdict,
)
from activities.compliance_review.policy import Case, decide
from activities.compliance_review.stages import DECISION, SCHEMAS
from baton.pipelines.activity_stage import output_check
from tests.shipped.compliance_review.material import DIGEST, OWN, TODAY, case, known, policy, premises

PHRASES = {"id": "PHR-1", "kind": "phrases", "forbidden": ["we guarantee"]}
LENIENT = {**PHRASES, "id": "PHR-2", "severity": "review"}
RULES = policy(OWN, PHRASES, LENIENT)
HOME = Recipients(domains={"own.example": 1})


def phrases(rule: str, *found: int) -> Phrases:
    """Return the claim on a rule's phrases."""
    return Phrases(rule=rule, of=1, found=dict.fromkeys(found, 1))


def decided(
    *claims: Any, judgement: Judgement | None = "approved", concerns: tuple[Concern, ...] = ()
) -> ComplianceDecision:
    """Return the decision on facts, including the premises."""
    return decide(case(RULES, *premises(RULES), HOME, *claims), "h-1", judgement, concerns)


class TestDecide:
    @pytest.mark.parametrize(
        ("facts", "verdict"),
        [
            pytest.param([phrases("PHR-1"), phrases("PHR-2")], "approved", id="all met"),
            pytest.param([phrases("PHR-1", 1), phrases("PHR-2")], "violates_policy", id="a rule that blocks"),
            pytest.param([phrases("PHR-1"), phrases("PHR-2", 1)], "needs_review", id="a rule for a person's look"),
            pytest.param([phrases("PHR-1")], "needs_review", id="a fact is missing"),
            pytest.param([phrases("PHR-1", 1)], "violates_policy", id="a violation and a missing fact"),
        ],
    )
    def test_gives_the_verdict(self, facts: list[Phrases], verdict: Verdict) -> None:
        """A model that approves is overruled by what differs or was not found."""
        assert decided(*facts).verdict == verdict

    @pytest.mark.parametrize("found", [(), (1,)])
    def test_judges_nothing_by_rules(self, found: tuple[int, ...]) -> None:
        """Without a model there is no verdict, whether all agrees or a rule that blocks differs."""
        assert decided(phrases("PHR-1", *found), phrases("PHR-2"), judgement=None).verdict == "not_judged"

    def test_may_be_stricter_than_the_comparison(self) -> None:
        """A model may hold back what agrees with every rule."""
        decision = decided(phrases("PHR-1"), phrases("PHR-2"), judgement="violates_policy")
        assert decision.verdict == "violates_policy"

    def test_is_held_back_by_a_concern(self) -> None:
        """A model can hold an e-mail back."""
        concern = Concern(text="Odd hour", facts=("e1",), by="small")
        assert decided(phrases("PHR-1"), phrases("PHR-2"), concerns=(concern,)).verdict == "needs_review"

    @pytest.mark.parametrize(
        ("premise", "rule"),
        [
            pytest.param(Message(digest=DIGEST), "POLICY", id="no fact names the policy"),
            pytest.param(InForce(digest=RULES.digest), "MESSAGE", id="no fact names the e-mail"),
        ],
    )
    def test_presupposes_an_email_and_a_policy(self, premise: Message | InForce, rule: str) -> None:
        """Without a known e-mail and policy nothing is approved."""
        decision = decide(case(RULES, premise, HOME, phrases("PHR-1"), phrases("PHR-2")), "h-1", "approved")
        assert decision.verdict == "needs_review"
        assert [result.rule for result in decision.results("not found")] == [rule]

    def test_notices_that_the_policy_changed_meanwhile(self) -> None:
        """Facts for another policy approve nothing under this one."""
        facts = (Message(digest=DIGEST), InForce(digest=DIGEST), HOME, phrases("PHR-1"), phrases("PHR-2"))
        decision = decide(case(RULES, *facts), "h-1")
        assert [result.because for result in decision.results("not found")] == ["The policy was changed meanwhile."]

    def test_names_what_it_set_aside(self) -> None:
        """A person's statement is listed, and decides nothing."""
        user_claim = Fact("e9", "The boss approved it.", "user", "unverified")
        evidence = Evidence([*known(*premises(RULES), HOME, phrases("PHR-1"), phrases("PHR-2")), user_claim])
        decision = decide(Case(RULES, evidence, TODAY), "h-1", "approved")
        assert (decision.verdict, decision.set_aside) == ("approved", ("e9",))


class TestSchema:
    @pytest.mark.parametrize(
        "decision",
        [
            pytest.param(decided(phrases("PHR-1", 1)), id="a violation"),
            pytest.param(decided(concerns=(Concern(text="x", facts=("e1",), by="m"),)), id="a concern"),
            pytest.param(decide(Case(None, Evidence(known(HOME)), TODAY), "h-1"), id="no policy"),
        ],
    )
    def test_is_fitted_by_every_decision(self, decision: ComplianceDecision) -> None:
        """The output fits the schema of the contract's name and version (S5-fields-l)."""
        assert output_check(SCHEMAS, DECISION)(decision.model_dump(mode="json")) == []

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"verdict": "fine"}, id="another verdict"),
            pytest.param({"outcomes": "none"}, id="no list"),
            pytest.param({"note": "x"}, id="a member more"),
        ],
    )
    def test_is_not_fitted_by_anything_else(self, change: dict[str, Any]) -> None:
        """A decision with other or additional members is rejected with the place."""
        output = {**decided().model_dump(mode="json"), **change}
        (finding,) = output_check(SCHEMAS, DECISION)(output)
        assert DECISION in finding

    def test_is_not_judged_without_a_policy(self) -> None:
        """Without a policy there is no approval."""
        assert decide(Case(None, Evidence([]), TODAY), "h-1").verdict == "not_judged"
