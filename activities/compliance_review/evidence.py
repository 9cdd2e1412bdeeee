"""What a decision may rest on: the facts of a contract that are certain, said by the tool that can say them.

A fact that a person or a model said, that another tool said, or that has none of the forms is set aside: it is named
in the decision, and proves nothing. Two facts that contradict each other prove nothing either.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from activities.compliance_review.claims import Claim, claim_of

ClaimT = TypeVar("ClaimT", bound=Claim)

CERTAIN = "high"
"""The confidence of what a tool said that succeeded (S5-fields-i)."""


@dataclass(frozen=True)
class Known:
    """A fact, as a contract or a tool of the agent's own states it.

    Attributes:
        event: The session event it comes from.
        claim: The sentence.
        source: The tool, or who else said it.
        confidence: `high`, `medium`, `low` or `unverified`.
    """

    event: str
    claim: str
    source: str
    confidence: str


@dataclass(frozen=True)
class Backed(Generic[ClaimT]):
    """A claim, and the event that it comes from.

    Attributes:
        claim: The claim.
        event: The event's id.
    """

    claim: ClaimT
    event: str


class Evidence:
    """The facts that a decision may rest on.

    Attributes:
        set_aside: The events of facts that it may not rest on, in order.

    Example:
        >>> said = "The account of customer C-7 has the status active."
        >>> by_tool = Known("1.1.4", said, "crm.read_customer_status", "high")
        >>> by_user = Known("1.1.5", said, "user", "low")
        >>> Evidence([by_user, by_tool]).set_aside
        ('1.1.5',)
    """

    def __init__(self, facts: Iterable[Known]) -> None:
        self._claims: list[Backed[Claim]] = []
        aside: list[str] = []
        for fact in facts:
            claim = claim_of(fact.claim) if fact.confidence == CERTAIN else None
            if claim is None or fact.source != claim.tool:
                aside.append(fact.event)
            else:
                self._claims.append(Backed(claim, fact.event))
        said: dict[object, set[str]] = {}
        for backed in self._claims:
            said.setdefault(backed.claim.subject, set()).add(backed.claim.sentence)
        doubtful = {subject for subject, sentences in said.items() if len(sentences) > 1}
        aside += [backed.event for backed in self._claims if backed.claim.subject in doubtful]
        self._claims = [backed for backed in self._claims if backed.claim.subject not in doubtful]
        self.set_aside = tuple(aside)

    def all(self, kind: type[ClaimT], **members: object) -> list[Backed[ClaimT]]:
        """Return the claims of a kind whose members have these values, the same claim once."""
        found: dict[str, Backed[ClaimT]] = {}
        for backed in self._claims:
            claim = backed.claim
            if isinstance(claim, kind) and all(getattr(claim, name) == value for name, value in members.items()):
                found.setdefault(claim.sentence, Backed(claim, backed.event))
        return list(found.values())

    def one(self, kind: type[ClaimT], **members: object) -> Backed[ClaimT] | None:
        """Return the claim of a kind whose members have these values; None if there is none."""
        found = self.all(kind, **members)
        return found[0] if found else None
