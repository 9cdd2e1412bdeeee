"""What the tests of `compliance_review` share: the sample mailbox, policies of one rule, facts as tools state them."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from activities.compliance_review.claims import Claim, Evidence, Fact, InForce, Message, Recipients, RuleOutcome
from activities.compliance_review.policy import Case, Policy, compare, parse_policy
from baton.wire.json_values import canonical_json

SAMPLES = Path(__file__).parents[2] / "data" / "compliance"
OFFER, REPLY, RECORDS = SAMPLES / "offer.mbox", SAMPLES / "reply.eml", SAMPLES / "records"
TODAY = date(2026, 6, 27)
NOON = datetime(2026, 6, 27, 12, tzinfo=UTC)
DIGEST = "sha256:" + "5" * 64

OWN = {"id": "REC-1", "title": "Known people.", "kind": "recipients", "own": ["own.example"]}


def policy(*rules: dict[str, Any]) -> Policy:
    """Return a policy of rules, each with a title."""
    members = [{"title": "A rule.", **rule} for rule in rules]
    return parse_policy(canonical_json({"name": "Test", "version": "1", "rules": members}).decode(), "test")


def known(*claims: Claim, **by: str) -> list[Fact]:
    """Return facts from tools, with the events `e1`, `e2` and so on."""
    members = {"confidence": "high", **by}
    return [
        Fact(f"e{at}", claim.sentence, members.get("source", claim.tool), members["confidence"])
        for at, claim in enumerate(claims, 1)
    ]


def case(rules: Policy, *claims: Claim) -> Case:
    return Case(rules, Evidence(known(*claims)), TODAY)


def outcome(rule: dict[str, Any], *claims: Claim, **domains: int) -> RuleOutcome:
    """Return the outcome of a rule; `e1` has the recipients, the other facts follow in order.

    Args:
        rule: The rule.
        *claims: The other facts.
        **domains: How many recipients are at `<name>.example`; one at `acme.example` by default.
    """
    goes_to = {f"{name}.example": count for name, count in (domains or {"acme": 1}).items()}
    rules = policy(OWN, {"id": "R-1", **rule})
    return compare(rules.rules[1], case(rules, Recipients(domains=goes_to), *claims))


def premises(rules: Policy) -> list[Claim]:
    return [Message(digest=DIGEST), InForce(digest=rules.digest)]


def days_ago(days: int) -> date:
    return TODAY - timedelta(days=days)
