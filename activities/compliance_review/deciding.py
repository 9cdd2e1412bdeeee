"""The compliance agent's decision: every rule of the policy, and what follows from what became of them."""

from collections.abc import Iterator

from activities.compliance_review.claims import Backed, InForce, Message
from activities.compliance_review.records import ComplianceDecision, Concern, RuleOutcome, Verdict
from activities.compliance_review.rules import Case, judge


def decide(case: Case, handoff_id: str, concerns: tuple[Concern, ...] = ()) -> ComplianceDecision:
    """Return what follows from a policy and facts.

    Args:
        case: What is to be decided.
        handoff_id: The handoff under which it is.
        concerns: What a model found worth a look.
    """
    message = case.evidence.one(Message)
    outcomes = (*_premises(case, message), *(judge(rule, case) for rule in case.policy.rules))
    return ComplianceDecision(
        verdict=_verdict(outcomes, concerns),
        message=message.claim.digest if message else "",
        handoff_id=handoff_id,
        policy=case.policy.digest,
        policy_version=case.policy.version,
        outcomes=outcomes,
        concerns=concerns,
        set_aside=case.evidence.set_aside,
    )


def undecided(handoff_id: str, reason: str, set_aside: tuple[str, ...] = ()) -> ComplianceDecision:
    """Return the decision where there is no policy to decide by: a person has to look.

    Args:
        handoff_id: The handoff under which it is.
        reason: Why there is none, in a clause without a full stop.
        set_aside: The events of the facts that were not relied on.
    """
    outcome = RuleOutcome(
        rule="POLICY",
        title="There is a policy to decide by.",
        severity="review",
        result="unknown",
        because=f"{reason}.",
    )
    return ComplianceDecision(
        verdict="needs_review",
        message="",
        handoff_id=handoff_id,
        policy="",
        policy_version="",
        outcomes=(outcome,),
        set_aside=set_aside,
    )


def _verdict(outcomes: tuple[RuleOutcome, ...], concerns: tuple[Concern, ...]) -> Verdict:
    if any(one.result == "violated" and one.severity == "block" for one in outcomes):
        return "violates_policy"
    return "needs_review" if concerns or any(one.result != "met" for one in outcomes) else "approved"


def _premises(case: Case, message: Backed[Message] | None) -> Iterator[RuleOutcome]:
    """Yield what every decision presupposes: which e-mail it is, and that research and agent have one policy."""
    named = message is not None
    yield RuleOutcome(
        rule="MESSAGE",
        title="It is known which e-mail is decided on.",
        severity="review",
        result="met" if named else "unknown",
        because="The mailbox was read." if named else "No certain fact names the e-mail.",
        facts=(message.event,) if message else (),
    )
    policy = case.evidence.one(InForce)
    same = policy is not None and policy.claim.digest == case.policy.digest
    yield RuleOutcome(
        rule="POLICY",
        title="The policy is the one that the research went by.",
        severity="review",
        result="met" if same else "unknown",
        because="Both have the same digest."
        if same
        else "The policy was changed meanwhile."
        if policy
        else "No certain fact names the policy.",
        facts=(policy.event,) if policy else (),
    )
