"""The compliance agent's rules: what became of each rule of a policy, by the facts of a contract and nothing else.

A rule is met only if facts say so. Where a fact is missing, because nobody asked, a tool failed, or what was known is
too old, the rule is unknown and a person has to look: silence approves nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from activities.compliance_review.claims import (
    Agreement,
    Approval,
    Attached,
    Backed,
    Customer,
    Evidence,
    Named,
    Phrases,
    Quote,
    Recipients,
    Status,
    shown,
)
from activities.compliance_review.policy import (
    AgreementRule,
    ApprovalRule,
    AttachmentsRule,
    PhrasesRule,
    Policy,
    QuoteRule,
    RecipientsRule,
    Rule,
    StatusRule,
)
from activities.compliance_review.records import Amount, Result, RuleOutcome


@dataclass(frozen=True)
class Point:
    """One point of a rule.

    Attributes:
        result: What became of it.
        because: Why, in a clause without a full stop.
        facts: The events it rests on.
    """

    result: Result
    because: str
    facts: tuple[str, ...] = ()


Points = Iterator[Point]


@dataclass(frozen=True)
class Case:
    """What is to be decided.

    Attributes:
        policy: The policy.
        evidence: The facts.
        today: The day on which it is decided.
    """

    policy: Policy
    evidence: Evidence
    today: date


def judge(rule: Rule, case: Case) -> RuleOutcome:
    """Return what became of a rule: violated if a point of it is, unknown if a point is, met otherwise.

    Args:
        rule: The rule.
        case: What it is applied to.
    """
    if rule.valid_until is not None and rule.valid_until < case.today:
        points = [Point("unknown", f"the rule ended on {rule.valid_until}, and nobody said what holds since")]
    else:
        points = list(_points(rule, case))
    result: Result = next((one for one in ("violated", "unknown") if any(p.result == one for p in points)), "met")
    decisive = [point for point in points if point.result == result]
    because = "; ".join(dict.fromkeys(point.because for point in decisive)) or "nothing in the e-mail falls under it"
    facts = dict.fromkeys(event for point in decisive for event in point.facts)
    return RuleOutcome(
        rule=rule.id,
        title=rule.title,
        severity=rule.severity,
        result=result,
        because=f"{because[:1].upper()}{because[1:]}.",
        facts=tuple(facts),
    )


def _points(rule: Rule, case: Case) -> Points:
    """Yield the points of a rule."""
    match rule:
        case RecipientsRule():
            return _recipients(rule, case)
        case StatusRule():
            return _status(rule, case)
        case AgreementRule():
            return _agreement(rule, case)
        case QuoteRule():
            return _quote(rule, case)
        case AttachmentsRule():
            return _attachments(rule, case)
        case PhrasesRule():
            return _phrases(rule, case)
        case ApprovalRule():
            return _approval(rule, case)


def _recipients(rule: RecipientsRule, case: Case) -> Points:
    found = case.evidence.one(Recipients)
    if found is None:
        yield Point("unknown", "no certain fact says where the e-mail goes")
        return
    base = (found.event,)
    if found.claim.unreadable:
        yield Point("unknown", f"{found.claim.unreadable} addresses cannot be read", base)
    if not found.claim.domains:
        yield Point("unknown", "the e-mail goes to nobody", base)
    for domain in sorted(found.claim.domains):
        if domain in rule.blocked:
            yield Point("violated", f"no e-mail may go to {domain}", base)
        elif domain in rule.own or domain in rule.allowed:
            yield Point("met", f"the domain {domain} needs no customer", base)
        else:
            whose = case.evidence.one(Customer, domain=domain)
            yield _known_customer(rule, domain, whose, base)


def _known_customer(rule: RecipientsRule, domain: str, whose: Backed[Customer] | None, base: tuple[str, ...]) -> Point:
    if whose is None:
        return Point("unknown", f"no certain fact says whose domain {domain} is", base)
    facts = (*base, whose.event)
    if whose.claim.customer is None:
        return Point("violated", f"the domain {domain} belongs to no customer", facts)
    if rule.tiers and whose.claim.tier not in rule.tiers:
        return Point("violated", f"customer {whose.claim.customer} is of tier {whose.claim.tier}", facts)
    return Point("met", f"the domain {domain} belongs to customer {whose.claim.customer}", facts)


def _status(rule: StatusRule, case: Case) -> Points:
    customers, open_points = _customers(case)
    yield from open_points
    for customer, base in customers:
        found = case.evidence.one(Status, customer=customer)
        if found is None:
            yield Point("unknown", f"no certain fact tells the status of customer {customer}", base)
        else:
            result: Result = "met" if found.claim.status in rule.accepted else "violated"
            because = f"the account of customer {customer} has the status {found.claim.status}"
            yield Point(result, because, (*base, found.event))


def _agreement(rule: AgreementRule, case: Case) -> Points:
    if rule.when == "attachments":
        attached = case.evidence.one(Attached)
        if attached is None:
            yield Point("unknown", "no certain fact says what is attached")
            return
        if not attached.claim.files:
            yield Point("met", "nothing is attached", (attached.event,))
            return
    customers, open_points = _customers(case)
    yield from open_points
    for customer, base in customers:
        found = case.evidence.one(Agreement, customer=customer, agreement=rule.agreement)
        if found is None:
            because = f"no certain fact says whether customer {customer} signed the {rule.agreement}"
            yield Point("unknown", because, base)
            continue
        facts, claim = (*base, found.event), found.claim
        if claim.signed_on is None:
            yield Point("violated", f"customer {customer} has not signed the {rule.agreement}", facts)
        elif claim.signed_on > case.today or (claim.until is not None and claim.until < case.today):
            because = f"the {rule.agreement} of customer {customer} was not in force on {case.today}"
            yield Point("violated", because, facts)
        else:
            yield Point("met", f"customer {customer} signed the {rule.agreement} on {claim.signed_on}", facts)


def _quote(rule: QuoteRule, case: Case) -> Points:
    named = case.evidence.one(Named)
    if named is None:
        yield Point("unknown", "no certain fact says which amounts the e-mail names")
        return
    if not named.claim.amounts:
        yield Point("met", "the e-mail names no amount", (named.event,))
        return
    customers, open_points = _customers(case)
    yield from open_points
    for customer, base in customers:
        quotes = case.evidence.all(Quote, customer=customer)
        for amount in named.claim.amounts:
            yield _covered(rule, case, customer, amount, quotes, (*base, named.event))


def _covered(
    rule: QuoteRule, case: Case, customer: str, amount: Amount, quotes: list[Backed[Quote]], base: tuple[str, ...]
) -> Point:
    """Return whether the amount is that of a recent quote."""
    if not quotes:
        return Point("unknown", f"no fact that is fresh enough tells the quotes of customer {customer}", base)
    same = [one for one in quotes if one.claim.amount == amount and one.claim.quoted_on is not None]
    ages = {one.event: (case.today - (one.claim.quoted_on or case.today)).days for one in same}
    facts = (*base, *(one.event for one in same or quotes))
    if not same:
        return Point("violated", f"no quote of customer {customer} is over {shown(amount)}", facts)
    if any(0 <= age <= rule.max_days for age in ages.values()):
        return Point("met", f"{shown(amount)} was quoted to customer {customer} within {rule.max_days} days", facts)
    if min(ages.values()) < 0:
        return Point("unknown", f"the quote over {shown(amount)} is dated in the future", facts)
    youngest = min(ages.values())
    return Point("violated", f"the quote over {shown(amount)} is {youngest} days old, not {rule.max_days}", facts)


def _attachments(rule: AttachmentsRule, case: Case) -> Points:
    found = case.evidence.one(Attached)
    if found is None:
        yield Point("unknown", "no certain fact says what is attached")
        return
    base, files = (found.event,), found.claim.files
    size = sum(one.kilobytes for one in files)
    yield Point("met", f"files attached: {len(files)}, together {size} KB", base)
    if len(files) > rule.max_count:
        yield Point("violated", f"files attached: {len(files)}, and {rule.max_count} may be", base)
    if size > rule.max_kilobytes:
        yield Point("violated", f"{size} KB are attached, and {rule.max_kilobytes} KB may be", base)
    for kind in sorted({one.type for one in files}):
        if kind in rule.forbidden or (rule.allowed and kind not in rule.allowed):
            yield Point("violated", f"files of type {kind} may not be attached", base)


def _phrases(rule: PhrasesRule, case: Case) -> Points:
    found = case.evidence.one(Phrases, rule=rule.id)
    if found is None or found.claim.of != len(rule.forbidden):
        facts = (found.event,) if found else ()
        yield Point("unknown", "no certain fact says whether the e-mail has these phrases", facts)
        return
    base = (found.event,)
    if not found.claim.found:
        yield Point("met", "none of the phrases stands in the e-mail", base)
    for number in found.claim.found:
        yield Point("violated", f"phrase {number} of the rule stands in the e-mail", base)


def _approval(rule: ApprovalRule, case: Case) -> Points:
    named = case.evidence.one(Named)
    if named is None:
        yield Point("unknown", "no certain fact says which amounts the e-mail names")
        return
    covered = {other.currency for other in case.policy.rules if isinstance(other, ApprovalRule)}
    for amount in named.claim.amounts:
        if amount.currency not in covered:
            yield Point("unknown", f"no rule says from which amount in {amount.currency} on", (named.event,))
    above = [one for one in named.claim.amounts if one.currency == rule.currency and one.cents > rule.above * 100]
    if not above:
        yield Point("met", f"no amount is above {rule.above} {rule.currency}", (named.event,))
        return
    customers, open_points = _customers(case)
    yield from open_points
    for customer, base in customers:
        yield _approved(rule, case, customer, above[0], (*base, named.event))


def _approved(rule: ApprovalRule, case: Case, customer: str, amount: Amount, base: tuple[str, ...]) -> Point:
    found = case.evidence.one(Approval, customer=customer, role=rule.role)
    if found is None:
        return Point("unknown", f"no certain fact tells the approvals for customer {customer}", base)
    facts, claim = (*base, found.event), found.claim
    if claim.amount is None or claim.until is None:
        return Point("violated", f"{shown(amount)} needs the approval of {rule.role}, and none is on record", facts)
    if claim.until < case.today or claim.amount.currency != amount.currency or claim.amount.cents < amount.cents:
        return Point("violated", f"the approval of {rule.role} does not reach {shown(amount)} on {case.today}", facts)
    return Point("met", f"the {rule.role} approved up to {shown(claim.amount)} until {claim.until}", facts)


def _customers(case: Case) -> tuple[list[tuple[str, tuple[str, ...]]], list[Point]]:
    """Return the customers that the e-mail goes to, each with the events that say so, and what is open about them."""
    found = case.evidence.one(Recipients)
    if found is None or found.claim.unreadable:
        return [], [Point("unknown", "it is not certain where the e-mail goes", (found.event,) if found else ())]
    customers: list[tuple[str, tuple[str, ...]]] = []
    points: list[Point] = []
    for domain in sorted(found.claim.domains.keys() - case.policy.known_domains()):
        whose = case.evidence.one(Customer, domain=domain)
        if whose is None:
            points.append(Point("unknown", f"no certain fact says whose domain {domain} is", (found.event,)))
        elif whose.claim.customer is None:
            points.append(Point("unknown", f"the domain {domain} belongs to no customer", (found.event, whose.event)))
        else:
            customers.append((whose.claim.customer, (found.event, whose.event)))
    return customers, points
