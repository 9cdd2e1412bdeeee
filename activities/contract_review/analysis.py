"""The second agent: every rule on every clause, and what a contract of the sort should have and has not.

Each finding cites its rule, its clause and the clause's own words. The same contract and policy give the same
findings, in the same order.
"""

from collections.abc import Iterable, Mapping

from activities.contract_review import rules_exit, rules_money, rules_rights, rules_whole
from activities.contract_review.records import Analysis, Clause, Extraction, Finding, Policy
from activities.contract_review.scope import Rule, Scope, finding_of

RULES: tuple[Rule, ...] = (*rules_money.RULES, *rules_exit.RULES, *rules_rights.RULES, *rules_whole.RULES)
"""Every rule; ids are unique."""

_MOST_OF_A_RULE = 20


def analyse(extraction: Extraction, policy: Policy) -> Analysis:
    """Return what the rules find in a contract.

    Args:
        extraction: The contract as the first agent left it.
        policy: What the reviewing side accepts.

    Returns:
        The findings, numbered in the order of the clauses; what is missing comes last.

    Raises:
        ReviewError: The policy names a party that the contract does not have.
    """
    scope = Scope.of(extraction, policy)
    found: list[Finding] = []
    for rule in RULES:
        seen: set[str] = set()
        for hit in rule.find(scope):
            finding = finding_of(rule, hit, scope)
            key = finding.clause or f"no {finding.absent}"  # the first sentence of a clause stands for the others
            if key not in seen and len(seen) < _MOST_OF_A_RULE:
                seen.add(key)
                found.append(finding)
    return Analysis(party=scope.us, other=scope.them, findings=numbered(found, extraction.clauses), rules=len(RULES))


def numbered(findings: Iterable[Finding], clauses: Iterable[Clause]) -> tuple[Finding, ...]:
    """Return findings in the order of their clauses with their ids; the order of equals is kept."""
    places = {clause.id: at for at, clause in enumerate(clauses)}
    ordered = sorted(findings, key=lambda one: places.get(one.clause or "", len(places)))
    width = max(2, len(str(len(ordered))))
    return tuple(one.model_copy(update={"id": f"F-{at:0{width}d}"}) for at, one in enumerate(ordered, 1))


def unresolved(findings: Iterable[Finding], clauses: Mapping[str, Clause]) -> list[str]:
    """Return the ids of findings whose clause is not there, or does not have the words that they quote.

    Example:
        >>> clause = Clause(id="1", title="Term", text="Two years.", page=1, line=1, last_page=1, last_line=1)
        >>> finding = Finding(id="F-01", rule="X-1", title="", why="", clause="1", quote="Ten years.")
        >>> unresolved([finding], {"1": clause})
        ['F-01']
    """
    return [
        one.id
        for one in findings
        if any(id not in clauses for id in one.more)
        or (one.clause is not None and (one.clause not in clauses or one.quote not in clauses[one.clause].text))
        or (one.clause is None and one.absent is None)
    ]
