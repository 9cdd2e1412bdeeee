"""Every kind of rule: when it agrees, differs, or lacks a fact."""

from typing import Any

import pytest

from activities.compliance_review.claims import (
    Amount,
    Claim,
    Customer,
    Evidence,
    Named,
    Phrases,
    Quote,
    Recipients,
    Result,
    Status,
)
from activities.compliance_review.policy import Case, compare
from tests.shipped.compliance_review.material import OWN, TODAY, days_ago, known, outcome, policy

ACME = Customer(domain="acme.example", customer="C-7", tier="enterprise")
STRANGER = Customer(domain="acme.example")
EUR_30K, USD_30K = (Amount(currency=currency, cents=3_000_000) for currency in ("EUR", "USD"))
NAMED = Named(amounts=(EUR_30K,))


def quote(days: int, amount: Amount = EUR_30K, id: str = "Q-1") -> Quote:
    return Quote(customer="C-7", quote=id, quoted_on=days_ago(days), amount=amount)


RECIPIENTS: dict[str, Any] = {"kind": "recipients", "own": ["own.example"], "allowed": ["firm.example"]}
QUOTE: dict[str, Any] = {"kind": "quote", "max_days": 30}
PHRASES: dict[str, Any] = {"kind": "phrases", "forbidden": ["we guarantee", "off the record"]}

CASES = [
    pytest.param(RECIPIENTS, [ACME], "agrees", id="recipients: a customer"),
    pytest.param(RECIPIENTS, [STRANGER], "differs", id="recipients: nobody we know"),
    pytest.param(RECIPIENTS, [], "not found", id="recipients: nobody asked whose domain it is"),
    pytest.param({**RECIPIENTS, "tiers": ["standard"]}, [ACME], "differs", id="recipients: another tier"),
    pytest.param({**RECIPIENTS, "blocked": ["acme.example"]}, [ACME], "differs", id="recipients: a blocked domain"),
    pytest.param({"kind": "status"}, [ACME, Status(customer="C-7", status="active")], "agrees", id="status: active"),
    pytest.param({"kind": "status"}, [ACME, Status(customer="C-7", status="closed")], "differs", id="status: closed"),
    pytest.param({"kind": "status"}, [ACME], "not found", id="status: not asked"),
    pytest.param({"kind": "status"}, [STRANGER], "not found", id="status: of no customer"),
    pytest.param(QUOTE, [Named(), ACME], "agrees", id="quote: no amount named"),
    pytest.param(QUOTE, [NAMED, ACME, quote(30)], "agrees", id="quote: exactly as old as may be"),
    pytest.param(QUOTE, [NAMED, ACME, quote(31)], "differs", id="quote: a day too old"),
    pytest.param(
        QUOTE, [NAMED, ACME, quote(31), quote(2, id="Q-2")], "agrees", id="quote: a newer one of the same amount"
    ),
    pytest.param(QUOTE, [NAMED, ACME, quote(-1)], "not found", id="quote: of tomorrow"),
    pytest.param(QUOTE, [NAMED, ACME, quote(2, USD_30K)], "differs", id="quote: another currency"),
    pytest.param(QUOTE, [NAMED, ACME, Quote(customer="C-7")], "differs", id="quote: none on record"),
    pytest.param(QUOTE, [NAMED, ACME], "not found", id="quote: stale, so not there"),
    pytest.param(QUOTE, [ACME, quote(2)], "not found", id="quote: amounts unknown"),
    pytest.param(PHRASES, [Phrases(rule="R-1", of=2)], "agrees", id="phrases: none"),
    pytest.param(PHRASES, [Phrases(rule="R-1", of=2, found={2: 14})], "differs", id="phrases: one"),
    pytest.param(PHRASES, [Phrases(rule="R-2", of=2)], "not found", id="phrases: of another rule"),
    pytest.param(PHRASES, [Phrases(rule="R-1", of=1)], "not found", id="phrases: of another version of the rule"),
]


class TestCompare:
    @pytest.mark.parametrize(("rule", "facts", "result"), CASES)
    def test_says_what_the_facts_say(self, rule: dict[str, Any], facts: list[Claim], result: Result) -> None:
        """What agrees or differs cites facts; a missing one is not found."""
        rule_outcome = outcome(rule, *facts)
        assert rule_outcome.result == result
        if result != "not found":
            assert set(rule_outcome.facts) <= {f"e{at}" for at in range(1, len(facts) + 2)}
            assert rule_outcome.facts

    @pytest.mark.parametrize("rule", [RECIPIENTS, {"kind": "status"}, QUOTE, PHRASES])
    def test_is_not_certain_without_facts(self, rule: dict[str, Any]) -> None:
        """Silence agrees with no rule of any kind."""
        rules = policy(OWN, {"id": "R-1", **rule})
        assert compare(rules.rules[1], Case(rules, Evidence([]), TODAY)).result == "not found"

    @pytest.mark.parametrize("rule", [RECIPIENTS, {"kind": "status"}])
    def test_is_not_certain_where_an_address_is_unreadable(self, rule: dict[str, Any]) -> None:
        """An unreadable address may belong to anyone."""
        rules = policy(OWN, {"id": "R-1", **rule})
        facts = known(Recipients(domains={"own.example": 1}, unreadable=1))
        assert compare(rules.rules[1], Case(rules, Evidence(facts), TODAY)).result == "not found"

    def test_cites_the_facts_it_rests_on(self) -> None:
        """A difference names the events of the facts that show it, and no others (S5-prob-h)."""
        rule_outcome = outcome(QUOTE, NAMED, ACME, quote(31), Status(customer="C-7", status="active"))
        assert rule_outcome.facts == ("e1", "e3", "e2", "e4")
        assert rule_outcome.because == "The quote over 30000.00 EUR is 31 days old, not 30."

    def test_differs_by_one_customer_of_two(self) -> None:
        """Another valid recipient does not help; the reason names the one that differs."""
        birch = Customer(domain="birch.example", customer="C-8", tier="enterprise")
        active, closed = Status(customer="C-7", status="active"), Status(customer="C-8", status="closed")
        rule_outcome = outcome({"kind": "status"}, ACME, birch, active, closed, acme=1, birch=2)
        assert rule_outcome.result == "differs"
        assert rule_outcome.because == "The account of customer C-8 has the status closed."
        assert rule_outcome.facts == ("e1", "e3", "e5")

    def test_quotes_a_phrase_of_the_policy_with_its_line(self) -> None:
        """The words are the policy's own; the line is where the e-mail has them."""
        because = outcome(PHRASES, Phrases(rule="R-1", of=2, found={2: 14})).because
        assert "'off the record'" in because.lower()
        assert "line 14" in because

    def test_needs_no_customer_among_ourselves(self) -> None:
        """An internal e-mail agrees with the rules about customers."""
        assert outcome({"kind": "status"}, own=3).result == "agrees"

    def test_has_an_end(self) -> None:
        """What holds after a rule expired is not found."""
        ended = {**QUOTE, "valid_until": days_ago(1).isoformat()}
        rule_outcome = outcome(ended, NAMED, ACME, quote(2))
        assert (rule_outcome.result, rule_outcome.because[:17]) == ("not found", "The rule ended on")
        assert outcome({**QUOTE, "valid_until": TODAY.isoformat()}, NAMED, ACME, quote(2)).result == "agrees"
