"""`Requester`: who a run works for, as the service that started it has verified.

It travels with the task: to each stage inside the signed handoff, to children and to pipelines that a handoff starts.
"""

from pydantic import Field, field_validator
from pydantic_core import to_json

from baton.wire.json_values import Json, find_excess
from baton.wire.records import CompactRecord, Name

MAX_CLAIMS = 32
"""The most claims of a requester."""
MAX_CLAIM_BYTES = 4_096
"""The most bytes of all claims together, as JSON: every handoff of the run carries them."""


class Requester(CompactRecord):
    """The identity and claims of the person or service for whom a run works.

    Baton does not verify them: the service that starts the run has done so, for example with an ID token, and says in
    `issuer` who vouches. They are in the history and in every handoff, so they are never a secret: a token stays
    outside.

    Attributes:
        id: The name, as in bills and approvals, for example `"ann@example.com"`.
        issuer: Who vouches for it, for example `"https://login.example.com"`.
        claims: What else is known, by name, for example `{"groups": ["sales"]}`; at most 4,096 bytes as JSON.

    Example:
        >>> Requester(id="ann", issuer="https://login.example.com", claims={"tenant": "acme"}).claims["tenant"]
        'acme'
    """

    id: Name
    issuer: Name | None = None
    claims: dict[Name, Json] = Field(default_factory=dict, max_length=MAX_CLAIMS)

    @field_validator("claims")
    @classmethod
    def _check_claims(cls, claims: dict[str, Json]) -> dict[str, Json]:
        if (limit := find_excess(claims)) is not None:
            raise ValueError(str(limit))
        if (size := len(to_json(claims))) > MAX_CLAIM_BYTES:
            raise ValueError(f"the claims have {size:,} bytes as JSON; at most {MAX_CLAIM_BYTES:,} are allowed")
        return claims
