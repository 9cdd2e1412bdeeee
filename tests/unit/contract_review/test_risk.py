"""The risk process: grades, bands, appetite, treatment, and what is left."""

import pytest

from activities.contract_review.records import Analysis, Finding, Policy
from activities.contract_review.risk import CONSEQUENCE, LIKELIHOOD, assess, level_of, matrix, regraded
from activities.contract_review.treatments import PLANS
from tests.unit.contract_review.material import SERVICES, reviewed


def finding(rule: str, likelihood: int = 3, consequence: int = 3, id: str = "F-01") -> Finding:
    """Return a finding with these grades."""
    return Finding(
        id=id, rule=rule, title="A fault", why="It costs.", clause="1", likelihood=likelihood, consequence=consequence
    )


def analysis(*findings: Finding) -> Analysis:
    """Return an analysis for the Customer."""
    return Analysis(party="Customer", other="Supplier", findings=findings, rules=len(findings))


class TestAssess:
    """From findings to the register."""

    @pytest.mark.parametrize("likelihood", range(1, 6))
    @pytest.mark.parametrize("consequence", range(1, 6))
    def test_scores_evaluates_and_treats(self, likelihood: int, consequence: int) -> None:
        """The score is the product; within the appetite it is retained, above it treated, and less is left."""
        (risk,) = assess(analysis(finding("PAY-1", likelihood, consequence)), Policy(appetite=6)).risks
        assert risk.score == likelihood * consequence
        assert risk.accepted == (risk.score <= 6)
        assert (risk.treatment == "retain") == risk.accepted
        assert risk.residual == risk.score if risk.accepted else risk.residual < risk.score
        assert bool(risk.wording) != risk.accepted

    @pytest.mark.parametrize(
        ("score", "level"),
        [
            (1, "low"),
            (4, "low"),
            (5, "moderate"),
            (9, "moderate"),
            (10, "high"),
            (14, "high"),
            (15, "extreme"),
            (25, "extreme"),
        ],
    )
    def test_bands_have_their_borders(self, score: int, level: str) -> None:
        """The bands are those that the report states."""
        assert level_of(score) == level

    def test_orders_by_score(self) -> None:
        """The first in the register is the highest."""
        risks = assess(analysis(finding("PAY-1", 2, 2, "F-01"), finding("REN-1", 4, 4, "F-02")), Policy()).risks
        assert [(risk.id, risk.finding) for risk in risks] == [("R-01", "F-02"), ("R-02", "F-01")]

    @pytest.mark.parametrize(
        ("findings", "verdict"),
        [
            pytest.param([], "sign", id="nothing found"),
            pytest.param([finding("PAY-1", 2, 3)], "sign", id="within the appetite"),
            pytest.param([finding("PAY-1", 3, 4)], "negotiate", id="above it"),
            pytest.param([finding("PAY-1", 3, 5)], "do not sign", id="extreme"),
        ],
    )
    def test_gives_the_verdict(self, findings: list[Finding], verdict: str) -> None:
        """What follows for the whole contract follows from its risks."""
        assert assess(analysis(*findings), Policy()).verdict == verdict

    def test_grades_an_indemnity_without_a_cap_as_critical(self) -> None:
        """Two findings together are worse than each, and the register says why."""
        capped = assess(analysis(finding("IND-1", 3, 4)), Policy()).risks[0]
        both = assess(analysis(finding("IND-1", 3, 4, "F-01"), finding("LIA-1", 2, 5, "F-02")), Policy()).risks[0]
        assert (capped.consequence, both.consequence) == (4, 5)
        assert "no cap limits it (LIA-1)" in both.consequence_reason

    @pytest.mark.parametrize("rule", PLANS)
    def test_names_the_parties_in_what_it_proposes(self, rule: str) -> None:
        """No mark of a template is left in a wording, and the sides are the contract's own."""
        (risk,) = assess(analysis(finding(rule, 5, 5)), Policy()).risks
        assert "{" not in risk.event + risk.action + risk.wording + risk.title
        assert risk.residual < 25

    def test_gives_criteria_for_every_grade(self) -> None:
        """ISO 31000 asks for criteria that are written down (6.3.4)."""
        assert sorted(LIKELIHOOD) == sorted(CONSEQUENCE) == [1, 2, 3, 4, 5]

    def test_has_a_matrix_with_each_risk_once(self) -> None:
        """The picture and the register tell the same."""
        risks = reviewed(SERVICES).risks.risks
        cells = matrix(risks)
        assert len(cells) == 25
        assert sorted(id for ids in cells.values() for id in ids) == sorted(risk.id for risk in risks)
        assert all(risk.id in cells[risk.likelihood, risk.consequence] for risk in risks)


class TestRegraded:
    """Other grades for a risk."""

    def test_are_evaluated_anew(self) -> None:
        """A risk that rises above the appetite is treated, one that falls within it is retained."""
        (low,) = assess(analysis(finding("PAY-1", 2, 3)), Policy()).risks
        up = regraded(low, 3, 3, "seen before", 6)
        assert (up.score, up.accepted, up.treatment) == (9, False, "reduce")
        assert "seen before" in up.likelihood_reason
        assert regraded(up, 2, 3, "not so", 6).treatment == "retain"
