"""Compare the rules of a policy with the facts of a contract and nothing else.

A comparison is not a verdict: it says what agrees, what differs and what was not found, because it was never
requested, a tool failed or the answer is too old. Only a model's answer makes a verdict of it, and none more lenient
than the comparison.
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
    render_amount,
)
from activities.compliance_review.policy import (
    PhrasesRule,
    Policy,
    QuoteRule,
    RecipientsRule,
    Rule,
    StatusRule,
)
from activities.compliance_review.records import (
    Amount,
    ComplianceDecision,
    Concern,
    Judgement,
    Result,
    RuleOutcome,
    Verdict,
)

Events = tuple[str, ...]
Point = tuple[Result, str, Events]
"""One point of a rule: result, reason as a clause without a full stop, and supporting events."""


@dataclass(frozen=True)
class Case:
    """The input of a decision: policy, facts and day."""

    policy: Policy
    evidence: Evidence
    today: date


def decide(
    case: Case, handoff_id: str, judgement: Judgement | None = None, concerns: tuple[Concern, ...] = ()
) -> ComplianceDecision:
    """Compare an e-mail's facts with the policy; the verdict is a model's judgement, or `not_judged`."""
    message = case.evidence.one(Message)
    outcomes = (*_check_premises(case), *(compare(rule, case) for rule in case.policy.rules))
    verdict: Verdict = judgement or "not_judged"
    if judgement == "approved" and (concerns or any(outcome.result != "agrees" for outcome in outcomes)):
        verdict = "needs_review"
    if judgement and any(outcome.result == "differs" and outcome.severity == "block" for outcome in outcomes):
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


def decide_without_policy(handoff_id: str, reason: str, set_aside: Events = ()) -> ComplianceDecision:
    """Return the decision if the policy is missing: nothing is compared or judged."""
    outcome = _premise_outcome("POLICY", "There is a policy to decide by.", "not found", f"{reason}.")
    return ComplianceDecision(
        verdict="not_judged",
        message="",
        handoff_id=handoff_id,
        policy="",
        policy_version="",
        outcomes=(outcome,),
        set_aside=set_aside,
    )


def compare(rule: Rule, case: Case) -> RuleOutcome:
    """Compare a rule: it differs if any point does, else it is not found if any point is, else it agrees."""
    if rule.valid_until is not None and rule.valid_until < case.today:
        points: list[Point] = [
            ("not found", f"the rule ended on {rule.valid_until}, and what holds since is unknown", ())
        ]
    else:
        points = [*_check_rule(rule, case)]
    result: Result = next(
        (candidate for candidate in ("differs", "not found") if any(point[0] == candidate for point in points)),
        "agrees",
    )
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


def _check_premises(case: Case) -> Iterator[RuleOutcome]:
    """Yield the premises of every decision: a known e-mail, and one policy for research and agent."""
    message, policy = case.evidence.one(Message), case.evidence.one(InForce)
    message_result: Result = "agrees" if message else "not found"
    why = "The mailbox was read." if message else "No certain fact names the e-mail."
    yield _premise_outcome(
        "MESSAGE", "It is known which e-mail is decided on.", message_result, why, message.event if message else None
    )
    policy_result: Result = "agrees" if policy and policy.claim.digest == case.policy.digest else "not found"
    why = "The policy was changed meanwhile." if policy else "No certain fact names the policy."
    why = "Both have the same digest." if policy_result == "agrees" else why
    yield _premise_outcome(
        "POLICY", "The policy is the one of the research.", policy_result, why, policy.event if policy else None
    )


def _premise_outcome(rule: str, title: str, result: Result, because: str, event: str | None = None) -> RuleOutcome:
    facts = (event,) if event else ()
    return RuleOutcome(rule=rule, title=title, severity="review", result=result, because=because, facts=facts)


def _check_rule(rule: Rule, case: Case) -> Iterator[Point]:
    match rule:
        case RecipientsRule():
            return _check_recipients(rule, case)
        case StatusRule():
            return _check_status(rule, case)
        case QuoteRule():
            return _check_quotes(rule, case)
        case PhrasesRule():
            return _check_phrases(rule, case)


def _check_recipients(rule: RecipientsRule, case: Case) -> Iterator[Point]:
    recipients = case.evidence.one(Recipients)
    if recipients is None:
        yield "not found", "no certain fact says where the e-mail goes", ()
        return
    base = (recipients.event,)
    if recipients.claim.unreadable:
        yield "not found", f"{recipients.claim.unreadable} addresses cannot be read", base
    if not recipients.claim.domains:
        yield "not found", "the e-mail has no recipient", base
    for domain in sorted(recipients.claim.domains):
        owner = case.evidence.one(Customer, domain=domain)
        facts = (*base, owner.event) if owner else base
        if domain in rule.blocked:
            yield "differs", f"no e-mail may go to {domain}", base
        elif domain in rule.own or domain in rule.allowed:
            yield "agrees", f"the domain {domain} needs no customer", base
        elif owner is None:
            yield "not found", f"no certain fact says whose domain {domain} is", base
        elif owner.claim.customer is None:
            yield "differs", f"no customer with the domain {domain} is on record", facts
        elif rule.tiers and owner.claim.tier not in rule.tiers:
            yield "differs", f"customer {owner.claim.customer} is of tier {owner.claim.tier}", facts
        else:
            yield "agrees", f"the domain {domain} belongs to customer {owner.claim.customer}", facts


def _check_status(rule: StatusRule, case: Case) -> Iterator[Point]:
    customers, open_points = _find_customers(case)
    yield from open_points
    for customer, base in customers:
        status = case.evidence.one(Status, customer=customer)
        if status is None:
            yield "not found", f"no certain fact has the status of customer {customer}", base
        else:
            result: Result = "agrees" if status.claim.status in rule.accepted else "differs"
            yield (
                result,
                f"the account of customer {customer} has the status {status.claim.status}",
                (*base, status.event),
            )


def _check_quotes(rule: QuoteRule, case: Case) -> Iterator[Point]:
    named = case.evidence.one(Named)
    if named is None:
        yield "not found", "no certain fact says which amounts the e-mail names", ()
        return
    if not named.claim.amounts:
        yield "agrees", "the e-mail names no amount", (named.event,)
        return
    customers, open_points = _find_customers(case)
    yield from open_points
    for customer, base in customers:
        for amount in named.claim.amounts:
            yield _check_amount(rule, case, customer, amount, (*base, named.event))


def _check_amount(rule: QuoteRule, case: Case, customer: str, amount: Amount, base: Events) -> Point:
    quotes = case.evidence.all(Quote, customer=customer)
    if not quotes:
        return "not found", f"no fact that is fresh enough has the quotes of customer {customer}", base
    matching = [quote for quote in quotes if quote.claim.amount == amount and quote.claim.quoted_on is not None]
    facts = (*base, *(quote.event for quote in matching or quotes))
    ages = [(case.today - quote.claim.quoted_on).days for quote in matching if quote.claim.quoted_on is not None]
    if not ages:
        return "differs", f"no quote of customer {customer} is over {render_amount(amount)}", facts
    if any(0 <= age <= rule.max_days for age in ages):
        return "agrees", f"{render_amount(amount)} was quoted to customer {customer} within {rule.max_days} days", facts
    if min(ages) < 0:
        return "not found", f"the quote over {render_amount(amount)} is dated in the future", facts
    return "differs", f"the quote over {render_amount(amount)} is {min(ages)} days old, not {rule.max_days}", facts


def _check_phrases(rule: PhrasesRule, case: Case) -> Iterator[Point]:
    phrases = case.evidence.one(Phrases, rule=rule.id)
    base = (phrases.event,) if phrases else ()
    numbers = range(1, len(rule.forbidden) + 1)
    if phrases is None or phrases.claim.of != len(numbers) or not phrases.claim.found.keys() <= {*numbers}:
        yield "not found", "no certain fact says whether the e-mail has these phrases", base
    elif not phrases.claim.found:
        yield "agrees", "none of the phrases is in the e-mail", base
    else:
        yield from (
            ("differs", f"{rule.forbidden[number - 1]!r} is at line {line} of the e-mail's text", base)
            for number, line in phrases.claim.found.items()
        )


def _find_customers(case: Case) -> tuple[list[tuple[str, Events]], list[Point]]:
    """Return the recipient customers with their supporting events, and the points that are unknown about them."""
    recipients = case.evidence.one(Recipients)
    if recipients is None or recipients.claim.unreadable:
        return [], [("not found", "it is not certain where the e-mail goes", (recipients.event,) if recipients else ())]
    customers: list[tuple[str, Events]] = []
    points: list[Point] = []
    for domain in sorted(recipients.claim.domains.keys() - case.policy.known_domains()):
        owner = case.evidence.one(Customer, domain=domain)
        if owner is None:
            points.append(("not found", f"no certain fact says whose domain {domain} is", (recipients.event,)))
        elif owner.claim.customer is None:
            points.append(
                ("not found", f"no customer with the domain {domain} is on record", (recipients.event, owner.event))
            )
        else:
            customers.append((owner.claim.customer, (recipients.event, owner.event)))
    return customers, points
