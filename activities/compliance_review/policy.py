"""A policy of rules in TOML, the registers in CSV, and how the facts of a contract compare with each rule.

A comparison is not a verdict: only a model's answer makes one of it, and none more lenient than the comparison.
"""

import csv
import hashlib
import io
import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from activities.citations import Citation, find_unproved
from activities.compliance_review.claims import (
    Amount,
    Claim,
    ComplianceDecision,
    ComplianceError,
    Concern,
    Customer,
    Evidence,
    InForce,
    Judgement,
    Message,
    Named,
    NamedDomain,
    Phrases,
    Quote,
    Recipients,
    Reference,
    RegisterError,
    Result,
    RuleOutcome,
    Severity,
    Status,
    Verdict,
    render_amount,
)
from baton.wire.records import Record, Timestamp
from baton.wire.text import describe_faults

_MAX_POLICY_BYTES = 1_000_000


Phrase = Annotated[str, Field(min_length=2, max_length=120)]


class RuleTerms(Record):
    """The members of every rule: id, title, severity of a violation, and last day of validity."""

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,19}$")
    title: str = Field(min_length=1, max_length=200)
    severity: Severity = "block"
    valid_until: date | None = None


class RecipientsRule(RuleTerms):
    """Every recipient is at an own or allowed domain, or at that of a customer of the given tiers."""

    kind: Literal["recipients"]
    own: tuple[NamedDomain, ...] = ()
    allowed: tuple[NamedDomain, ...] = ()
    blocked: tuple[NamedDomain, ...] = ()
    tiers: tuple[Reference, ...] = ()


class StatusRule(RuleTerms):
    """Every customer's account has an accepted status at the time of the decision."""

    kind: Literal["status"]
    accepted: tuple[Reference, ...] = ("active",)


class QuoteRule(RuleTerms):
    """Every amount in the e-mail matches a quote that is at most `max_days` old."""

    kind: Literal["quote"]
    max_days: int = Field(ge=0, le=3650)


class PhrasesRule(RuleTerms):
    """None of the phrases is in the e-mail, as whole words in any case."""

    kind: Literal["phrases"]
    forbidden: tuple[Phrase, ...] = Field(min_length=1, max_length=200)


Rule = Annotated[RecipientsRule | StatusRule | QuoteRule | PhrasesRule, Field(discriminator="kind")]
"""Any rule, distinguished by `kind`."""


class Policy(Record):
    """A policy; the ids of its rules are unique."""

    name: str = Field(min_length=1, max_length=200)
    version: str = Field(min_length=1, max_length=40)
    rules: tuple[Rule, ...] = Field(min_length=1, max_length=100)

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, independent of the file's formatting."""
        return "sha256:" + hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def known_domains(self) -> frozenset[str]:
        """Return the own and allowed domains, which need no customer."""
        rules = [rule for rule in self.rules if isinstance(rule, RecipientsRule)]
        return frozenset(domain for rule in rules for domain in (*rule.own, *rule.allowed))

    def own_domains(self) -> frozenset[str]:
        """Return the own domains of the recipient rules."""
        return frozenset(domain for rule in self.rules if isinstance(rule, RecipientsRule) for domain in rule.own)


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file."""
    try:
        if path.stat().st_size > _MAX_POLICY_BYTES:
            raise ComplianceError(f"the policy {path.name!r} is larger than {_MAX_POLICY_BYTES:,} bytes")
        return parse_policy(json.dumps(tomllib.loads(path.read_text("utf-8-sig")), default=str), path.name)
    except OSError as error:
        raise ComplianceError(f"the policy {str(path)!r} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ComplianceError(f"the policy {path.name!r} is not TOML: {error}") from None


def parse_policy(data: str, name: str) -> Policy:
    """Parse a policy from JSON; errors refer to it as ``name``."""
    try:
        policy = Policy.model_validate_json(data)
    except ValidationError as error:
        raise ComplianceError(f"the policy {name!r} cannot be used: {describe_faults(error, 'the file')}") from None
    ids = [rule.id for rule in policy.rules]
    if duplicates := sorted({id for id in ids if ids.count(id) > 1}):
        raise ComplianceError(
            f"the policy {name!r} has more than one rule {', '.join(duplicates)}; give each a unique id"
        )
    return policy


_MAX_REGISTER_BYTES = 64_000_000
RowT = TypeVar("RowT", bound="Row")


class Row(Record):
    """A row of a register, its line and cells; `retrieved_at` is when it was copied from its source, now by default."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False, coerce_numbers_to_str=True)

    line: int = 1
    cells: tuple[str, ...] = ()
    customer: Reference
    retrieved_at: Timestamp | None = None


class CustomerRow(Row):
    """A row of `customers.csv`."""

    domain: NamedDomain
    tier: Reference = "standard"
    status: Reference = "active"


class QuoteRow(Row):
    """A row of `prices.csv`: an offered price, in units and hundredths, such as `48000.00`."""

    quote: Reference
    quoted_on: date
    amount: str = Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,2})?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    @property
    def money(self) -> Amount:
        """The amount as a record."""
        return Amount(currency=self.currency, cents=int(Decimal(self.amount) * 100))


@dataclass(frozen=True)
class Answer:
    """A register's answer and its retrieval time."""

    claim: Claim
    retrieved_at: datetime


@dataclass(frozen=True)
class Registers:
    """The registers of a folder; each look-up reads its file, so answers are current.

    Every look-up raises `RegisterError` if the register is unreadable, contradicts itself, or has not at the line that
    is cited what the answer says.
    """

    folder: Path
    now: Callable[[], datetime]

    def lookup_customer(self, domain: str) -> list[Answer]:
        """Return the customer that owns the domain (`crm.lookup_customer`)."""
        rows = [row for row in self._read_rows("customers", CustomerRow) if row.domain == domain]
        if len({row.customer for row in rows}) > 1:
            raise RegisterError(f"'customers' has {len(rows)} customers at the domain {domain!r}; expected one")
        if not rows:
            return [Answer(Customer(domain=domain), self.now())]
        claim = Customer(domain=domain, customer=rows[0].customer, tier=rows[0].tier, line=rows[0].line)
        return [self._prove("customers", rows[0], claim)]

    def lookup_pricing(self, customer: str) -> list[Answer]:
        """Return the quotes for a customer (`crm.lookup_pricing`)."""
        answers = [
            self._prove(
                "prices",
                row,
                Quote(customer=customer, quote=row.quote, quoted_on=row.quoted_on, amount=row.money, line=row.line),
            )
            for row in self._read_rows("prices", QuoteRow)
            if row.customer == customer
        ]
        return answers or [Answer(Quote(customer=customer), self.now())]

    def read_customer_status(self, customer: str) -> list[Answer]:
        """Return the status of a customer's account (`crm.read_customer_status`)."""
        rows = [row for row in self._read_rows("customers", CustomerRow) if row.customer == customer]
        statuses = {row.status for row in rows}
        if len(statuses) != 1:
            raise RegisterError(f"'customers' has {len(statuses)} statuses for customer {customer!r}; expected one")
        claim = Status(customer=customer, status=rows[0].status, line=rows[0].line)
        return [self._prove("customers", rows[0], claim)]

    def _prove(self, name: str, row: Row, claim: Claim) -> Answer:
        lines = (self.folder / f"{name}.csv").read_text("utf-8-sig").split("\n")
        place = f"'{name}.csv', line {row.line}"
        if unproved := find_unproved(Citation(place, lines, row.line, cell) for cell in row.cells):
            raise RegisterError(f"the register has changed meanwhile: {unproved[0]}")
        return Answer(claim, row.retrieved_at or self.now())

    def _read_rows(self, name: str, kind: type[RowT]) -> list[RowT]:
        path = self.folder / f"{name}.csv"
        try:
            if path.stat().st_size > _MAX_REGISTER_BYTES:
                raise RegisterError(f"the register {path.name!r} is larger than {_MAX_REGISTER_BYTES:,} bytes")
            rows = csv.DictReader(io.StringIO(path.read_text("utf-8-sig")))
            records = []
            for row in rows:
                cells = {column: cell for column, cell in row.items() if column and cell}  # an empty one is absent
                line = rows.line_num - sum(cell.count("\n") for cell in cells.values())
                records.append({**cells, "line": line, "cells": [*cells.values()]})
            return [kind.model_validate_json(json.dumps(record)) for record in records]
        except OSError as error:
            raise RegisterError(f"the register {path.name!r} cannot be read ({error.strerror})") from None
        except ValidationError as error:
            members = ", ".join(sorted({".".join(map(str, item["loc"])) or "a row" for item in error.errors()}))
            raise RegisterError(f"the register {path.name!r} has an invalid row: check {members}") from None
        except (ValueError, csv.Error) as error:
            raise RegisterError(f"the register {path.name!r} is not CSV ({error})") from None


Events = tuple[str, ...]
Point = tuple[Result, str, Events]
"""One point of a rule: result, reason as a clause without a full stop, and supporting events."""


@dataclass(frozen=True)
class Case:
    """The input of a decision: policy (None if it cannot be read), facts and day."""

    policy: Policy | None
    evidence: Evidence
    today: date


def decide(
    case: Case, handoff_id: str, judgement: Judgement | None = None, concerns: tuple[Concern, ...] = ()
) -> ComplianceDecision:
    """Compare an e-mail's facts with the policy; the verdict is a model's judgement, or `not_judged`."""
    message, policy = case.evidence.one(Message), case.policy
    if policy is None:
        outcomes = [_premise("POLICY", "There is a policy to decide by.", "not found", "The policy cannot be read.")]
    else:
        outcomes = [*_check_premises(case.evidence, policy), *(compare(rule, case) for rule in policy.rules)]
    verdict: Verdict = judgement or "not_judged"
    if judgement == "approved" and (concerns or any(outcome.result != "agrees" for outcome in outcomes)):
        verdict = "needs_review"
    if judgement and any(outcome.result == "differs" and outcome.severity == "block" for outcome in outcomes):
        verdict = "violates_policy"
    return ComplianceDecision(
        verdict=verdict,
        message=message.claim.digest if message else "",
        handoff_id=handoff_id,
        policy=policy.digest if policy else "",
        policy_version=policy.version if policy else "",
        outcomes=tuple(outcomes),
        concerns=concerns,
        set_aside=case.evidence.set_aside,
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


def _check_premises(evidence: Evidence, own: Policy) -> Iterator[RuleOutcome]:
    """Yield the premises of every decision: a known e-mail, and one policy for research and agent."""
    message, policy = evidence.one(Message), evidence.one(InForce)
    title = "It is known which e-mail is decided on."
    if message:
        yield _premise("MESSAGE", title, "agrees", "The mailbox was read.", message.event)
    else:
        yield _premise("MESSAGE", title, "not found", "No certain fact names the e-mail.")
    title = "The policy is the one of the research."
    if policy is None:
        yield _premise("POLICY", title, "not found", "No certain fact names the policy.")
    elif policy.claim.digest == own.digest:
        yield _premise("POLICY", title, "agrees", "Both have the same digest.", policy.event)
    else:
        yield _premise("POLICY", title, "not found", "The policy was changed meanwhile.", policy.event)


def _premise(rule: str, title: str, result: Result, because: str, *facts: str) -> RuleOutcome:
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
    for domain in sorted(recipients.claim.domains.keys() - (case.policy.known_domains() if case.policy else ())):
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
