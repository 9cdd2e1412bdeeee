"""The contract as the markdown that an agent reads: nothing that is not in the contract, and not all of it.

It belongs into the user turn, inside a fence (`baton.wire.fencing.fence`, X-6). Labels of what was left out are
for the audit: an agent that reads them learns of tools that it may not use (S5-fields-k).
"""

from datetime import datetime
from functools import lru_cache

from baton.contract.records import Fact, HandoffContract
from baton.wire.fencing import single_line
from baton.wire.tokens import TokenEstimator, estimate_tokens

HEADING = "## Handoff Contract"
FACTS = "\n**Facts:**\n"
"""The heading of the facts; there is none where there are no facts."""


def render_contract(contract: HandoffContract) -> str:
    """Return a contract as markdown for an agent's user turn.

    Each fact stands on one line that cannot become a heading or a fence, and what is known of its source stands
    before the claim, so that no claim can vouch for itself.

    Args:
        contract: The contract.

    Returns:
        Markdown that ends in a line break, not fenced.

    Example:
        >>> from datetime import UTC
        >>> from baton.contract.records import SourceProvenance
        >>> at = datetime(2026, 6, 27, 9, 20, tzinfo=UTC)
        >>> source = SourceProvenance(source="crm.lookup_customer", timestamp=at, method="api_call")
        >>> fact = Fact(claim="They signed the DPA.", source=source, confidence="high", event_id="evt-9a3b2c")
        >>> print(render_contract(HandoffContract(handoff_id="risk-review-2026-001", receiving_agent="Reviewer",
        ...     task="Review the email.", facts=[fact], excluded_context=[], allowed_tools=["policy.search"],
        ...     forbidden_tools=["email.send"], created_at=at, trace_id="t-1")), end="")
        ## Handoff Contract
        <BLANKLINE>
        **Task:** Review the email.
        <BLANKLINE>
        **Facts:**
        - high, crm.lookup_customer by api_call at 2026-06-27T09:20:00Z: They signed the DPA.
        <BLANKLINE>
        **Allowed tools:** policy.search
        **Forbidden tools:** email.send
        **Handoff:** risk-review-2026-001, to Reviewer, use until 2026-06-27T09:50:00Z
    """
    parts = [f"{HEADING}\n\n**Task:** {single_line(contract.task)}\n"]
    if contract.facts:
        parts += [FACTS, *map(fact_line, contract.facts)]
    parts.append(f"\n**Allowed tools:** {_listed(contract.allowed_tools)}\n")
    if contract.forbidden_tools:
        parts.append(f"**Forbidden tools:** {_listed(contract.forbidden_tools)}\n")
    if contract.output_schema is not None:
        parts.append(f"**Output:** as in {single_line(str(contract.output_schema))}\n")
    named, receiver = single_line(contract.handoff_id), single_line(contract.receiving_agent)
    parts.append(f"**Handoff:** {named}, to {receiver}, use until {_time(contract.expires_at)}\n")
    return "".join(parts)


def fact_line(fact: Fact) -> str:
    """Return a fact as a line of the rendered contract, with its line break.

    A method that only repeats the source, as `tool_call:crm.lookup` does for `crm.lookup`, is left out.
    """
    source = fact.source
    origin = _origin(source.source, source.method)
    return f"- {fact.confidence}, {origin} at {_time(source.timestamp)}: {single_line(fact.claim)}\n"


def contract_tokens(contract: HandoffContract, estimator: TokenEstimator = estimate_tokens) -> int:
    """Return how many tokens a contract takes as its receiver reads it: task, facts, tools and terms (S5-valid-e).

    Args:
        contract: The contract.
        estimator: Counts tokens, the same one that batons and messages are counted by (X-8).
    """
    return estimator(render_contract(contract))


@lru_cache(maxsize=4096)
def _origin(source: str, method: str) -> str:
    """Return where a fact is from and how, on one line."""
    name = single_line(source)
    return name if method == f"tool_call:{source}" else f"{name} by {single_line(method)}"


def _listed(names: list[str]) -> str:
    """Return names in a row, or that there are none."""
    return ", ".join(single_line(name) for name in names) or "none"


def _time(at: datetime) -> str:
    """Return a time to the second, as on the wire."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
