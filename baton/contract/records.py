"""The handoff contract: what the receiving agent is to do, may know and may use, and until when (S5 L27-95).

It is data and no prompt (S5-contract-a). Version 1.0 is the document's own: its eleven members, of which only the
output schema and the expiry may be missing. What came with 1.1 is optional, and absent rather than null.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from baton.artifacts.records import Name
from baton.wire.records import Minutes, Statement
from baton.wire.values import NOT_NULL, AgentVersion, Count, Instant, OpenRecord, Traceparent, Uuid4

CONTRACT_RELEASED = ("1.0",)
"""Every released version of the contract's schema, oldest first."""
CONTRACT_CURRENT = CONTRACT_RELEASED[-1]
"""The version that this release of Baton writes."""
LONGEST_TASK = 500
"""The most characters of a task; what needs more is several tasks (S5-fields-c, C-38)."""
DEFAULT_EXPIRY_MINUTES = 30
"""After how many minutes a contract expires, unless it says otherwise (S5-check-l)."""
MOST_EXPIRY_MINUTES = 24 * 60
"""The longest expiry that `validate_contract` accepts by default (C-45)."""

ContractVersion = Annotated[str, StringConstraints(pattern=r"^1\.(0|[1-9][0-9]{0,3})$"), Field(examples=["1.0"])]
"""The version of the contract's schema: this major, any minor."""
Label = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]*:[^\r\n]+$", max_length=300),
    Field(examples=["type:brainstorm", "stale:crm.lookup_pricing"]),
]
"""Why something was left out, a colon, and what kind of thing it was; never its content (S5-fields-j)."""
Identifier = Annotated[Statement, Field(max_length=200, json_schema_extra={"maxLength": 200})]
"""A name that says something, at most 200 characters."""
Task = Annotated[Statement, Field(max_length=LONGEST_TASK, json_schema_extra={"maxLength": LONGEST_TASK})]
"""What is to be done, in one text of at most 500 characters."""


class Confidence(StrEnum):
    """How sure the system is of a fact; the surest first (S5-fields-g, S5-fields-i)."""

    HIGH = "high"
    """A deterministic tool call that succeeded."""
    MEDIUM = "medium"
    """A language model."""
    LOW = "low"
    """Fallback logic, or a tool that did not say whether it succeeded."""
    UNVERIFIED = "unverified"
    """What a user said, or what has no known source."""


class SourceProvenance(OpenRecord):
    """Where a fact came from (S5-fields-f).

    Attributes:
        source: The system, for example `"crm.lookup_customer"`.
        timestamp: When the data was retrieved, which is not when it was passed on (S5-fm-b).
        method: How, for example `"api_call"` or `"tool_call:contracts.search"`.
    """

    source: Statement
    timestamp: Instant
    method: Statement


class Fact(OpenRecord):
    """Something that the receiver may know (S5-fields-d).

    Attributes:
        claim: What is claimed.
        source: Where it came from.
        confidence: How sure the system is of it.
        event_id: The session event that it was taken from.
    """

    claim: Statement
    source: SourceProvenance
    confidence: Annotated[Confidence, Field(strict=False)]
    event_id: Identifier


class OutputSchemaRef(OpenRecord):
    """The shape that the receiver's output must have, by name and version in a registry (S5-fields-l).

    Attributes:
        schema_name: The schema's name.
        version: Its version, exactly.

    Example:
        >>> print(OutputSchemaRef.parse("ComplianceDecisionV1@1.2"))
        ComplianceDecisionV1@1.2
    """

    schema_name: Identifier
    version: Identifier

    @classmethod
    def parse(cls, text: str) -> "OutputSchemaRef":
        """Return the reference that `"Name@version"` spells.

        Raises:
            ValueError: It is written otherwise.
        """
        name, _, version = text.rpartition("@")
        if not name.strip() or not version.strip():
            raise ValueError(f"{text!r} names no output schema with its version; write it as 'Decision@1.2'")
        return cls(schema_name=name, version=version)

    def __str__(self) -> str:
        """Return the reference as `"Name@version"`."""
        return f"{self.schema_name}@{self.version}"


class HandoffContract(OpenRecord):
    """What a receiver is to do, may know and may use, compiled and never written by hand (S5-contract-a to -d).

    Attributes:
        handoff_id: Names the handoff; in logs, traces and records, and with every action of the receiver.
        receiving_agent: Who is to receive; by it the contract is routed.
        task: The one task, at most 500 characters.
        facts: What the receiver may know.
        excluded_context: Why things were deliberately left out, each label once.
        allowed_tools: The tools that the receiver may call.
        forbidden_tools: The tools that it may not call.
        output_schema: The shape that its output must have; absent where any will do.
        expires_after_minutes: How long the contract may be used, in minutes from `createdAt`.
        created_at: When it was compiled.
        trace_id: The trace that links it to the pipeline, the first request and what follows (C-44).
        schema_version: The version of the schema that the contract follows; absent in 1.0.
        receiving_agent_version: The receiver's version, exactly (C-46).
        traceparent: The W3C trace context that the handoff travels with (C-44).
        message_id: The signed message that carries the contract, by its `handoffId` (X-1).
        excluded_counts: How many session events each label stands for (C-39).

    Example:
        >>> from datetime import UTC
        >>> contract = HandoffContract(handoff_id="risk-review-2026-001", receiving_agent="ComplianceReviewAgent",
        ...     task="Review the email.", facts=[], excluded_context=["type:brainstorm"], allowed_tools=[],
        ...     forbidden_tools=[], created_at=datetime(2026, 6, 27, 9, 25, tzinfo=UTC), trace_id="t-1")
        >>> contract.is_expired(datetime(2026, 6, 27, 9, 55, tzinfo=UTC))
        False
        >>> contract.is_expired(datetime(2026, 6, 27, 9, 55, 1, tzinfo=UTC))
        True
    """

    handoff_id: Identifier
    receiving_agent: Identifier
    task: Task
    facts: list[Fact]
    excluded_context: list[Label]
    allowed_tools: list[Name]
    forbidden_tools: list[Name]
    output_schema: Annotated[OutputSchemaRef | None, NOT_NULL] = None
    expires_after_minutes: Minutes = DEFAULT_EXPIRY_MINUTES
    created_at: Instant
    trace_id: Identifier
    schema_version: Annotated[ContractVersion | None, NOT_NULL] = None
    receiving_agent_version: Annotated[AgentVersion | None, NOT_NULL] = None
    traceparent: Annotated[Traceparent | None, NOT_NULL] = None
    message_id: Annotated[Uuid4 | None, NOT_NULL] = None
    excluded_counts: Annotated[dict[str, Count] | None, NOT_NULL] = None

    @property
    def expires_at(self) -> datetime:
        """The last moment at which the contract may be used."""
        return self.created_at + timedelta(minutes=self.expires_after_minutes)

    def is_expired(self, now: datetime) -> bool:
        """Return whether it may no longer be used; then it is compiled anew, and never executed (C-36).

        Args:
            now: The time, with its offset from UTC; in a workflow the workflow's.
        """
        return now - self.created_at > timedelta(minutes=self.expires_after_minutes)
