"""The third agent: each finding taken through the risk process of ISO 31000:2018.

Identification (6.4.2) names the event; analysis (6.4.3) grades likelihood and consequence by the criteria below;
evaluation (6.4.4) compares their product with the appetite of the policy; treatment (6.5) says what to do, with
wording to propose, and what risk is left. Monitoring (6.6) is the reader's: the register is made to be run again.
"""

from collections.abc import Iterable, Mapping

from activities.contract_review.records import Analysis, Finding, Grade, Level, Policy, Register, Risk, Verdict
from activities.contract_review.treatments import PLANS, UNKNOWN

LIKELIHOOD: Mapping[Grade, str] = {
    1: "rare: needs several things to go wrong at once",
    2: "unlikely: not expected in the term, but has been seen",
    3: "possible: about as likely as not in the term",
    4: "likely: expected at least once in the term",
    5: "almost certain: follows from the contract as written",
}
"""The criteria for likelihood."""

CONSEQUENCE: Mapping[Grade, str] = {
    1: "minor: settled by those who work with the contract",
    2: "limited: extra cost up to a month of fees",
    3: "serious: extra cost up to a quarter of the yearly fees, or a dispute",
    4: "major: extra cost up to the yearly fees, a stop of work, or a breach of law",
    5: "critical: more than the contract is worth, or the loss of rights or of a business",
}
"""The criteria for consequence."""

_BANDS: tuple[tuple[int, Level], ...] = ((15, "extreme"), (10, "high"), (5, "moderate"), (1, "low"))
_UNCAPPED = ("LIA-1", "LIA-2")


def assess(analysis: Analysis, policy: Policy) -> Register:
    """Return the risk register of an analysed contract.

    Args:
        analysis: What the second agent found.
        policy: Its appetite decides what is accepted.

    Returns:
        The risks, the highest first; those of equal score in the order of the findings.

    Example:
        >>> finding = Finding(id="F-01", rule="REN-1", title="", why="", clause="3.2", likelihood=4, consequence=4)
        >>> register = assess(Analysis(party="Customer", other="Supplier", findings=(finding,), rules=1), Policy())
        >>> register.verdict, register.risks[0].score, register.risks[0].residual
        ('do not sign', 16, 3)
    """
    rules = {finding.rule for finding in analysis.findings}
    names = {"us": analysis.party, "them": analysis.other}
    return register([_risk(finding, rules, names, policy.appetite) for finding in analysis.findings], policy.appetite)


def register(risks: Iterable[Risk], appetite: int) -> Register:
    """Return risks as a register: ordered, numbered, with the verdict that follows from them."""
    ordered = sorted(risks, key=lambda one: (-one.score, one.finding))
    width = max(2, len(str(len(ordered))))
    numbered = tuple(one.model_copy(update={"id": f"R-{at:0{width}d}"}) for at, one in enumerate(ordered, 1))
    return Register(appetite=appetite, risks=numbered, verdict=verdict_of(numbered))


def verdict_of(risks: Iterable[Risk]) -> Verdict:
    """Return what follows from the risks: one that is extreme and not accepted forbids to sign as it stands."""
    open_ = [one for one in risks if not one.accepted]
    if any(one.level == "extreme" for one in open_):
        return "do not sign"
    return "negotiate" if open_ else "sign"


def regraded(risk: Risk, likelihood: Grade, consequence: Grade, reason: str, appetite: int) -> Risk:
    """Return a risk with other grades, evaluated anew; what is done about it falls by as much as before."""
    score = likelihood * consequence
    accepted = score <= appetite
    return risk.model_copy(
        update={
            "likelihood": likelihood,
            "likelihood_reason": f"{LIKELIHOOD[likelihood]}; {reason}",
            "consequence": consequence,
            "consequence_reason": f"{CONSEQUENCE[consequence]}; {reason}",
            "score": score,
            "level": level_of(score),
            "accepted": accepted,
            "treatment": "retain" if accepted else ("reduce" if risk.treatment == "retain" else risk.treatment),
            "residual": score if accepted else min(score, risk.residual),
        }
    )


def level_of(score: int) -> Level:
    """Return the band of a score from 1 to 25.

    Example:
        >>> [level_of(score) for score in (4, 5, 10, 15)]
        ['low', 'moderate', 'high', 'extreme']
    """
    return next(level for least, level in _BANDS if score >= least)


def matrix(risks: Iterable[Risk]) -> dict[tuple[int, int], list[str]]:
    """Return the ids of the risks by likelihood and consequence; every cell of the 25 is there."""
    cells: dict[tuple[int, int], list[str]] = {(one, two): [] for one in range(1, 6) for two in range(1, 6)}
    for risk in risks:
        cells[risk.likelihood, risk.consequence].append(risk.id)
    return cells


def _risk(finding: Finding, rules: set[str], names: Mapping[str, str], appetite: int) -> Risk:
    plan = PLANS.get(finding.rule, UNKNOWN)
    likelihood, consequence = finding.likelihood, finding.consequence
    why = f"{CONSEQUENCE[consequence]}; {finding.why}"
    # An indemnity that no cap limits is worth what the claim is.
    if finding.rule.startswith("IND-") and rules & set(_UNCAPPED) and consequence < 5:
        consequence = 5
        why = f"{CONSEQUENCE[5]}; no cap limits it ({', '.join(sorted(rules & set(_UNCAPPED)))})"
    score = likelihood * consequence
    accepted = score <= appetite
    left = max(1, likelihood - plan.likelihood) * max(1, consequence - plan.consequence)
    return Risk(
        id="R-00",
        finding=finding.id,
        clause=finding.clause,
        title=finding.title,
        event=_named(plan.event, names),
        likelihood=likelihood,
        likelihood_reason=LIKELIHOOD[likelihood] + (f"; {finding.because}" if finding.because else ""),
        consequence=consequence,
        consequence_reason=why,
        score=score,
        level=level_of(score),
        accepted=accepted,
        treatment="retain" if accepted else plan.option,
        action="Accept it as it stands." if accepted else _named(plan.action, names),
        wording="" if accepted else _named(plan.wording, names),
        residual=score if accepted else min(left, score),
    )


def _named(text: str, names: Mapping[str, str]) -> str:
    for mark, name in names.items():
        text = text.replace("{" + mark + "}", name)
    return text
