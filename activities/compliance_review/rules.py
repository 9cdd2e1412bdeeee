"""The compliance agent's rules: what each rule of a policy comes to, by the facts of a contract and nothing else.

A rule is met only if facts say so. Where a fact is missing, because it was not asked for, a tool failed, or what was
known is too old, the rule is unknown and a person has to look: silence approves nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from activities.compliance_review.claims import (
    Customer,
    Evidence,
    InForce,
    Message,
    Named,
    Phrases,
    Quote,
    Recipients,
    Status,
    shown,
)
from activities.compliance_review.policy import (
    PhrasesRule,
    Policy,
    QuoteRule,
    RecipientsRule,
    Rule,
    StatusRule,
)
from activities.compliance_review.records import Amount, ComplianceDecision, Concern, Result, RuleOutcome, Verdict

Events = tuple[str, ...]
Point = tuple[Result, str, Events]
"""One point of a rule: the result, why in a clause without a full stop, and the events it rests on."""


@dataclass(frozen=True)
class Case:
    """What is decided: a policy, the facts, and the day."""

    policy: Policy
    evidence: Evidence
    today: date


def decide(case: Case, handoff_id: str, concerns: tuple[Concern, ...] = ()) -> ComplianceDecision:
    """Return what follows from a policy, facts and a model's concerns under a handoff."""
    message = case.evidence.one(Message)
    outcomes = (*_premises(case), *(judge(rule, case) for rule in case.policy.rules))
    verdict: Verdict = "needs_review" if concerns or any(one.result != "met" for one in outcomes) else "approved"
    if any(one.result == "violated" and one.severity == "block" for one in outcomes):
        verdict = "violates_policy"
    return ComplianceDecision(
        verdict=verdict,
        message=message.claim.digest if message else "",
        handoff_id=handoff_id,
        policy=case.policy.digest,
        policy_version=case.policy.version,
        outcomes=outcomes,
        concerns=concerns,
        set_aside=case.evidence.set_aside,
    )


def undecided(handoff_id: str, reason: str, set_aside: Events = ()) -> ComplianceDecision:
    """Return the decision where the policy is missing: a person has to look."""
    outcome = _premise("POLICY", "There is a policy to decide by.", "unknown", f"{reason}.")
    return ComplianceDecision(
        verdict="needs_review",
        message="",
        handoff_id=handoff_id,
        policy="",
        policy_version="",
        outcomes=(outcome,),
        set_aside=set_aside,
    )


def judge(rule: Rule, case: Case) -> RuleOutcome:
    """Return what a rule comes to: violated if a point of it is, unknown if a point is, met otherwise."""
    if rule.valid_until is not None and rule.valid_until < case.today:
        points: list[Point] = [
            ("unknown", f"the rule ended on {rule.valid_until}, and what holds since is unknown", ())
        ]
    else:
        points = [*_points(rule, case)]
    result: Result = next((one for one in ("violated", "unknown") if any(it[0] == one for it in points)), "met")
    decisive = [point for point in points if point[0] == result]
    because = "; ".join(dict.fromkeys(why for _, why, _ in decisive)) or "nothing in the e-mail falls under it"
    return RuleOutcome(
        rule=rule.id,
        title=rule.title,
        severity=rule.severity,
        result=result,
        because=f"{because[:1].upper()}{because[1:]}.",
        facts=tuple(dict.fromkeys(event for _, _, events in decisive for event in events)),
    )


def _premises(case: Case) -> Iterator[RuleOutcome]:
    """Yield what every decision needs: which e-mail it is, and that research and agent have one policy."""
    message, policy = case.evidence.one(Message), case.evidence.one(InForce)
    named: Result = "met" if message else "unknown"
    why = "The mailbox was read." if message else "No certain fact names the e-mail."
    yield _premise("MESSAGE", "It is known which e-mail is decided on.", named, why, message.event if message else None)
    same: Result = "met" if policy and policy.claim.digest == case.policy.digest else "unknown"
    why = "The policy was changed meanwhile." if policy else "No certain fact names the policy."
    why = "Both have the same digest." if same == "met" else why
    yield _premise("POLICY", "The policy is the one of the research.", same, why, policy.event if policy else None)


def _premise(rule: str, title: str, result: Result, because: str, event: str | None = None) -> RuleOutcome:
    facts = (event,) if event else ()
    return RuleOutcome(rule=rule, title=title, severity="review", result=result, because=because, facts=facts)


def _points(rule: Rule, case: Case) -> Iterator[Point]:
    match rule:
        case RecipientsRule():
            return _recipients(rule, case)
        case StatusRule():
            return _status(rule, case)
        case QuoteRule():
            return _quote(rule, case)
        case PhrasesRule():
            return _phrases(rule, case)


def _recipients(rule: RecipientsRule, case: Case) -> Iterator[Point]:
    found = case.evidence.one(Recipients)
    if found is None:
        yield "unknown", "no certain fact says where the e-mail goes", ()
        return
    base = (found.event,)
    if found.claim.unreadable:
        yield "unknown", f"{found.claim.unreadable} addresses cannot be read", base
    if not found.claim.domains:
        yield "unknown", "the e-mail has no recipient", base
    for domain in sorted(found.claim.domains):
        whose = case.evidence.one(Customer, domain=domain)
        facts = (*base, whose.event) if whose else base
        if domain in rule.blocked:
            yield "violated", f"no e-mail may go to {domain}", base
        elif domain in rule.own or domain in rule.allowed:
            yield "met", f"the domain {domain} needs no customer", base
        elif whose is None:
            yield "unknown", f"no certain fact says whose domain {domain} is", base
        elif whose.claim.customer is None:
            yield "violated", f"the domain {domain} belongs to no customer", facts
        elif rule.tiers and whose.claim.tier not in rule.tiers:
            yield "violated", f"customer {whose.claim.customer} is of tier {whose.claim.tier}", facts
        else:
            yield "met", f"the domain {domain} belongs to customer {whose.claim.customer}", facts


def _status(rule: StatusRule, case: Case) -> Iterator[Point]:
    customers, open_points = _customers(case)
    yield from open_points
    for customer, base in customers:
        found = case.evidence.one(Status, customer=customer)
        if found is None:
            yield "unknown", f"no certain fact has the status of customer {customer}", base
        else:
            result: Result = "met" if found.claim.status in rule.accepted else "violated"
            yield (
                result,
                f"the account of customer {customer} has the status {found.claim.status}",
                (*base, found.event),
            )


def _quote(rule: QuoteRule, case: Case) -> Iterator[Point]:
    named = case.evidence.one(Named)
    if named is None:
        yield "unknown", "no certain fact says which amounts the e-mail names", ()
        return
    if not named.claim.amounts:
        yield "met", "the e-mail names no amount", (named.event,)
        return
    customers, open_points = _customers(case)
    yield from open_points
    for customer, base in customers:
        for amount in named.claim.amounts:
            yield _quoted(rule, case, customer, amount, (*base, named.event))


def _quoted(rule: QuoteRule, case: Case, customer: str, amount: Amount, base: Events) -> Point:
    quotes = case.evidence.all(Quote, customer=customer)
    if not quotes:
        return "unknown", f"no fact that is fresh enough has the quotes of customer {customer}", base
    same = [one for one in quotes if one.claim.amount == amount and one.claim.quoted_on is not None]
    facts = (*base, *(one.event for one in same or quotes))
    ages = [(case.today - one.claim.quoted_on).days for one in same if one.claim.quoted_on is not None]
    if not ages:
        return "violated", f"no quote of customer {customer} is over {shown(amount)}", facts
    if any(0 <= age <= rule.max_days for age in ages):
        return "met", f"{shown(amount)} was quoted to customer {customer} within {rule.max_days} days", facts
    if min(ages) < 0:
        return "unknown", f"the quote over {shown(amount)} is dated in the future", facts
    return "violated", f"the quote over {shown(amount)} is {min(ages)} days old, not {rule.max_days}", facts


def _phrases(rule: PhrasesRule, case: Case) -> Iterator[Point]:
    found = case.evidence.one(Phrases, rule=rule.id)
    base = (found.event,) if found else ()
    if found is None or found.claim.of != len(rule.forbidden):
        yield "unknown", "no certain fact says whether the e-mail has these phrases", base
    elif not found.claim.found:
        yield "met", "none of the phrases is in the e-mail", base
    else:
        yield from (("violated", f"phrase {number} of the rule is in the e-mail", base) for number in found.claim.found)


def _customers(case: Case) -> tuple[list[tuple[str, Events]], list[Point]]:
    """Return the customers that the e-mail goes to, each with the events that say so, and what is open about them."""
    found = case.evidence.one(Recipients)
    if found is None or found.claim.unreadable:
        return [], [("unknown", "it is not certain where the e-mail goes", (found.event,) if found else ())]
    customers: list[tuple[str, Events]] = []
    points: list[Point] = []
    for domain in sorted(found.claim.domains.keys() - case.policy.known_domains()):
        whose = case.evidence.one(Customer, domain=domain)
        if whose is None:
            points.append(("unknown", f"no certain fact says whose domain {domain} is", (found.event,)))
        elif whose.claim.customer is None:
            points.append(("unknown", f"the domain {domain} belongs to no customer", (found.event, whose.event)))
        else:
            customers.append((whose.claim.customer, (found.event, whose.event)))
    return customers, points
