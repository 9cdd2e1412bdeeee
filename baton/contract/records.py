"""The records of contracts: session events, the contract itself, its verdict and its explanation."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from pydantic import (
    Field,
    JsonValue,
    PlainValidator,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
)

from baton.core.messages import PromptPart
from baton.core.verdict import Finding
from baton.errors import BatonError, HandoffError, RoutingError
from baton.wire.records import (
    NOT_NULL,
    AgentVersion,
    CompactRecord,
    Count,
    Digest,
    Instant,
    Integer,
    Minutes,
    Name,
    OpenRecord,
    Statement,
    Traceparent,
    Uuid4,
    format_instant,
    parse_instant,
)
from baton.wire.text import quantity, single_line


class ContractError(HandoffError):
    """No contract can be compiled: a duplicate event id, or a faulty processor. Correct the processor or the events."""


class UnknownAgentError(RoutingError):
    """No suitable agent is registered; the message names similar ones. Register the agent, or correct the name."""


class UnknownSchemaError(HandoffError):
    """No such output schema is registered; the message names similar ones. Register the schema, or correct the name."""


TOOL_DENIED = "TOOL_DENIED"
"""The code of a denied call in messages, logs and the ledger."""

_MAX_NAMED = 20


class ToolDeniedError(BatonError):
    """The contract does not allow the called tool; it did not run.

    Grant the tool in `ContractTerms`, if the agent should have it.
    """

    code = TOOL_DENIED

    def __init__(self, tool: str, handoff_id: str, *, allowed: Collection[str], why: str = "") -> None:
        self.tool = tool
        self.handoff_id = handoff_id
        names = sorted(allowed)
        omitted = f" (+{len(names) - _MAX_NAMED} more)" if len(names) > _MAX_NAMED else ""
        if why:
            text = f"{tool!r} was called under handoff {handoff_id!r}, and {why}"
        elif names:
            listed = ", ".join(names[:_MAX_NAMED]) + omitted
            text = f"{tool!r} is not among the tools of handoff {handoff_id!r}: {listed}"
        else:
            text = f"{tool!r} was called under handoff {handoff_id!r}, which allows no tools"
        super().__init__(f"{TOOL_DENIED}: {text}. Do without it, or ask for more")


class EventType(StrEnum):
    """The type of a session event."""

    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    LLM_RESPONSE = "llm_response"
    USER_MESSAGE = "user_message"
    ASSISTANT_MESSAGE = "assistant_message"
    DECISION = "decision"
    BRAINSTORM = "brainstorm"
    INTERNAL_NOTE = "internal_note"
    REJECTED_ASSUMPTION = "rejected_assumption"


def _write_time(value: Any) -> Any:
    """Serialize a datetime; a text stays unchanged."""
    if isinstance(value, datetime):
        return format_instant(value)
    if not isinstance(value, str):
        raise ValueError("expected a time such as 2026-06-27T09:20:00Z, or a datetime")
    return value


WrittenTime = Annotated[datetime | str, PlainValidator(_write_time), WithJsonSchema({"type": "string"})]
"""A time as text, parseable or not; created from a text or a datetime."""


class SessionEvent(OpenRecord):
    """An event in a session.

    Attributes:
        id: The id of the event, unique in the session; a fact's `eventId` refers to it.
        type: The type of the event.
        timestamp: The time; for a tool's result, when the data was retrieved.
        content: The claim or text; for a tool's result, a claim in one sentence.
        ref: The digest of the whole content, if `content` is only a part.
        whole: The artifact with the whole claim, if `content` is only its beginning.
        tokens: The tokens of the whole content; 0 if not counted.
        exclude_from_handoff: Whether to keep it from every other agent.
        max_age_minutes: The age after which it is stale, instead of the policy's.
        tool_name: The tool of a call or result.
        call_id: For a call its own id, if not that of the event; for a result the id of its call.
        success: Whether the tool succeeded; absent if unknown, which does not mean success.
        by_model: Whether a model wrote the result of a tool, as of one that asks another agent.
        imported: Whether it is from another tool's session: its claims are unverified, and it grants no tool.
        accepted: For a decision, whether it was accepted.
        rests_on: For a decision, the ids of the results that it rests on.
        prohibitions: For a user's message, its sentences that forbid something, word for word.
        agent: Who recorded it.
        handoff_id: The handoff under which the agent acted.
    """

    id: Name
    type: Annotated[EventType, Field(strict=False)]
    timestamp: WrittenTime | None = None
    content: str = ""
    ref: Digest | None = None
    whole: Digest | None = None
    tokens: Count = 0
    exclude_from_handoff: bool = False
    max_age_minutes: Count | None = None
    tool_name: str | None = None
    call_id: Name | None = None
    success: bool | None = None
    by_model: bool = False
    imported: bool = False
    accepted: bool | None = None
    rests_on: list[Name] | None = None
    prohibitions: list[Statement] | None = None
    agent: str | None = None
    handoff_id: str | None = None

    @property
    def is_certain(self) -> bool:
        """Whether its fact may have high confidence: the result of a tool that succeeded here and asked no model."""
        return self.type is EventType.TOOL_RESULT and self.success is True and not self.by_model and not self.imported

    @property
    def at(self) -> datetime | None:
        """The time of the event in UTC; None if it is missing, unreadable or has no offset."""
        return parse_instant(self.timestamp)

    @model_serializer(mode="wrap")
    def _compact(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit members at their default, because sessions are most of a run's data."""
        members: dict[str, Any] = handler(self)
        defaults = _defaults()
        return {name: value for name, value in members.items() if name not in defaults or value != defaults[name]}


@cache
def _defaults() -> dict[str, Any]:
    """Return the defaults of an event's members by their JSON names."""
    fields = SessionEvent.model_fields.items()
    return {field.alias or name: field.default for name, field in fields if not field.is_required()}


MAX_CLAIM_LENGTH = 1_000
"""The maximum length of a claim in the history; a longer one is stored as an artifact."""


def shorten_claim(text: str, limit: int = MAX_CLAIM_LENGTH) -> str:
    """Shorten a claim to the limit, and note its full length."""
    if len(text) <= limit:
        return text
    length = limit - 40  # room for the note below
    return f"{text[:length]} … ({length:,} of {len(text):,} characters)"


CONTRACT_RELEASED = ("1.0",)
"""Every released version of the contract's schema, oldest first."""
CONTRACT_CURRENT = CONTRACT_RELEASED[-1]
"""The version that this release writes."""
MAX_TASK_LENGTH = 500
"""The maximum length of a task."""
DEFAULT_EXPIRY_MINUTES = 30
"""The default lifetime of a contract in minutes."""
MAX_EXPIRY_MINUTES = 24 * 60
"""The longest lifetime that `validate_contract` accepts."""

ContractVersion = Annotated[str, StringConstraints(pattern=r"^1\.(0|[1-9][0-9]{0,3})$"), Field(examples=["1.0"])]
"""A version of the contract's schema: this major, any minor."""
Label = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]*:[^\r\n]+$", max_length=300),
    Field(examples=["type:brainstorm", "stale:crm.lookup_pricing"]),
]
"""The reason why something was left out, a colon, and its subject; never its content."""
Identifier = Annotated[Statement, Field(max_length=200, json_schema_extra={"maxLength": 200})]
"""A name that is not blank, of at most 200 characters."""
Task = Annotated[Statement, Field(max_length=MAX_TASK_LENGTH, json_schema_extra={"maxLength": MAX_TASK_LENGTH})]
"""The task, of at most 500 characters."""


class Confidence(StrEnum):
    """The confidence in a fact, highest first."""

    HIGH = "high"
    """A successful deterministic tool call."""
    MEDIUM = "medium"
    """A language model."""
    LOW = "low"
    """Fallback logic, or a tool call of unknown success."""
    UNVERIFIED = "unverified"
    """A user's statement, or an unknown source."""


class SourceProvenance(OpenRecord):
    """The origin of a fact.

    Attributes:
        source: The system, such as `"crm.lookup_customer"`.
        timestamp: When the data was retrieved, not when it was passed on.
        method: The method, such as `"api_call"` or `"tool_call:contracts.search"`.
    """

    source: Statement
    timestamp: Instant
    method: Statement


class Fact(OpenRecord):
    """A fact that the receiver may know.

    Attributes:
        claim: The claim.
        source: The origin.
        confidence: The confidence in it.
        event_id: The session event that it comes from.
        whole: The artifact with the whole claim, if `claim` is only its beginning.
        in_full: Whether the receiver's prompt shows the whole claim.
    """

    claim: Statement
    source: SourceProvenance
    confidence: Annotated[Confidence, Field(strict=False)]
    event_id: Identifier
    whole: Annotated[Digest | None, NOT_NULL] = None
    in_full: Annotated[bool | None, NOT_NULL] = None


class Constraint(OpenRecord):
    """What a user forbade, which every receiver obeys.

    Attributes:
        text: The user's sentence, word for word.
        event_id: The session event of the user's message.
    """

    text: Statement
    event_id: Identifier


class OutputSchemaRef(OpenRecord):
    """A reference to the schema of the receiver's output, by name and version in a registry.

    Attributes:
        schema_name: The schema's name.
        version: Its exact version.
    """

    schema_name: Identifier
    version: Identifier

    @classmethod
    def parse(cls, text: str) -> "OutputSchemaRef":
        """Parse a reference such as `"Decision@1.2"`."""
        name, _, version = text.rpartition("@")
        if not name.strip() or not version.strip():
            raise ValueError(f"{text!r} is not an output schema with its version; write it as 'Decision@1.2'")
        return cls(schema_name=name, version=version)

    def __str__(self) -> str:
        """Return the reference in the form `"Name@version"`."""
        return f"{self.schema_name}@{self.version}"


class HandoffContract(OpenRecord):
    """The task, facts and tools of a receiver; compiled, never written by hand.

    Attributes:
        handoff_id: The id of the handoff, in logs, traces and records, and with every action of the receiver.
        receiving_agent: The name of the receiver, by which the contract is routed.
        task: The task, at most 500 characters.
        facts: The facts that the receiver may know.
        constraints: What users forbade; absent if they forbade nothing.
        excluded_context: The reasons why content was left out, each label once.
        allowed_tools: The tools that the receiver may call.
        forbidden_tools: The tools that the receiver may not call.
        output_schema: The schema of its output; absent if any output is accepted.
        expires_after_minutes: The lifetime of the contract, in minutes from `createdAt`.
        created_at: When it was compiled.
        trace_id: The trace that links it to the pipeline and the first request.
        schema_version: The version of the contract's schema; absent in 1.0.
        receiving_agent_version: The receiver's exact version.
        traceparent: The W3C trace context of the handoff.
        message_id: The signed message that carries the contract, by its `handoffId`.
        excluded_counts: The number of session events per label.
        tools_as_declared: True where the receiver's tools are not limited: it may call those that it declares, or any
            if it declares none.
    """

    handoff_id: Identifier
    receiving_agent: Identifier
    task: Task
    facts: list[Fact]
    constraints: Annotated[list[Constraint] | None, NOT_NULL] = None
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
    tools_as_declared: Annotated[bool | None, NOT_NULL] = None

    @property
    def limits_tools(self) -> bool:
        """Whether the receiver may call only the tools that the contract allows."""
        return not self.tools_as_declared

    @property
    def expires_at(self) -> datetime:
        """The time of expiry, at most the maximum of datetime."""
        try:
            return self.created_at + timedelta(minutes=self.expires_after_minutes)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def is_expired(self, now: datetime) -> bool:
        """Return whether the contract has expired; then it must be compiled again."""
        return now - self.created_at > timedelta(minutes=self.expires_after_minutes)


CREATED_AT = "/createdAt"
"""The place of a contract's time."""


class Check(StrEnum):
    """The checks of a contract: the seven of the source document, and two more."""

    REQUIRED = "required_fields"
    PROVENANCE = "source_provenance"
    CONTEXT = "forbidden_context"
    BUDGET = "token_budget"
    TOOLS = "tool_alignment"
    SCHEMA = "output_schema"
    TRACE = "trace_id"
    SHAPE = "shape"
    TIME = "time"


class ContractVerdict(CompactRecord):
    """The verdict on a contract, with summary data for logs and metrics; what the contract lacks is empty.

    Attributes:
        errors: The findings that prevent the handoff; `rule` is the check that found it, or `CLOCK`.
        excluded: The number of events per label; 1 if the contract does not say.
    """

    errors: list[Finding] = Field(default_factory=list)
    warnings: list[Finding] = Field(default_factory=list)
    handoff_id: str = ""
    receiving_agent: str = ""
    trace_id: str = ""
    facts: Count = 0
    tools: Count = 0
    excluded: dict[str, Count] = Field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether the contract may be handed off."""
        return not self.errors


def verdict_log_fields(verdict: ContractVerdict) -> Mapping[str, Any]:
    """Return a verdict as fields of a structured log line."""
    return {
        "handoff_id": verdict.handoff_id,
        "receiving_agent": verdict.receiving_agent,
        "trace_id": verdict.trace_id,
        "valid": bool(verdict),
        "errors": [f"{error.rule}: {error.text}" for error in verdict.errors],
        "warnings": [f"{warning.rule}: {warning.text}" for warning in verdict.warnings],
        "facts": verdict.facts,
        "tools": verdict.tools,
        "zero_facts": int(verdict.facts == 0),
        "zero_tools": int(verdict.tools == 0),
        "excluded": dict(verdict.excluded),
    }


class LeftOut(CompactRecord):
    """A session event that did not cross, and why, without its content.

    Attributes:
        event_id: The event.
        label: The reason, for example `"type:brainstorm"`.
        agent: Who recorded it.
    """

    event_id: str
    label: str
    agent: str | None = None


class Explanation(CompactRecord):
    """The input of a stage: its contract, what was left out, and its prompt.

    Attributes:
        stage: The stage.
        seq: The number of the step.
        attempt: The number of the attempt; earlier ones may have had other contracts.
        contract: The contract as JSON; empty in a pipeline without contracts.
        left_out: The events that did not cross.
        prompt: The parts of the prompt, with their tokens before and after cutting, and why.
        tokens_read: The tokens of the prompt; 0 if the stage built none, or has not ended.
        transcript_tokens: The tokens of the whole session before the stage.
        transcripts: The artifacts with what its agents were asked and answered, one for each attempt that left one.
    """

    stage: str
    seq: Integer
    attempt: Integer = 1
    contract: dict[str, JsonValue] = Field(default_factory=dict)
    left_out: list[LeftOut] = Field(default_factory=list)
    prompt: list[PromptPart] = Field(default_factory=list)
    tokens_read: Integer = 0
    transcript_tokens: Integer = 0
    transcripts: list[str] = Field(default_factory=list)

    @property
    def terms(self) -> HandoffContract:
        """The contract as a record."""
        return HandoffContract.from_json_object(self.contract)

    @property
    def times_fewer(self) -> float | None:
        """The ratio of transcript tokens to prompt tokens; None if unknown."""
        return self.transcript_tokens / self.tokens_read if self.tokens_read else None

    def to_markdown(self) -> str:
        """Return the explanation as Markdown."""
        lines = [f"# What {self.stage!r} was given (step {self.seq}, attempt {self.attempt})", ""]
        lines += self._render_terms() if self.contract else ["- no contract"]
        lines += ["", "## What its prompt had", ""]
        lines += [
            f"- {single_line(part.name)}: {part.shown:,} of {part.tokens:,} tokens"
            + (f"; {single_line(part.why)}" if part.why else "")
            for part in self.prompt
        ] or ["- not known"]
        return "\n".join([*lines, *self._render_cost()]) + "\n"

    def _render_terms(self) -> list[str]:
        contract = self.terms
        lines = [
            f"- **Task:** {single_line(contract.task)}",
            f"- **Handoff:** `{contract.handoff_id}` in trace `{contract.trace_id}`",
            f"- **Contract:** made {contract.created_at.isoformat()}, valid for {contract.expires_after_minutes} min",
        ]
        if contract.output_schema is not None:
            lines.append(f"- **Its output must fit:** {contract.output_schema}")
        open_tools = "all that it has" if not contract.limits_tools else "none"
        lines.append(f"- **Tools allowed:** {_join_names(contract.allowed_tools, open_tools)}")
        lines.append(f"- **Tools forbidden:** {_join_names(contract.forbidden_tools)}")
        if contract.constraints:
            lines += ["", f"## What users forbade ({len(contract.constraints)})", ""]
            lines += [f"- {single_line(rule.text)} (event `{rule.event_id}`)" for rule in contract.constraints]
        lines += ["", f"## Facts it saw ({len(contract.facts)})", ""]
        lines += [
            f"- {single_line(fact.claim)}\n  - {fact.confidence.value}, from `{single_line(fact.source.source)}` by "
            f"{single_line(fact.source.method)}, retrieved {fact.source.timestamp.isoformat()} "
            f"(event `{fact.event_id}`)"
            for fact in contract.facts
        ] or ["- none"]
        lines += ["", f"## Left out ({len(self.left_out)})", ""]
        by_label: dict[str, list[str]] = {}
        for left_out in self.left_out:
            by_label.setdefault(left_out.label, []).append(left_out.event_id)
        lines += [
            f"- `{label}`{_LEFT_OUT_WORDS.get(label, '')}: {len(ids)} ({', '.join(ids[:_MAX_LISTED])}"
            f"{', …' if len(ids) > _MAX_LISTED else ''})"
            for label, ids in by_label.items()
        ] or ["- nothing"]
        earlier = sum((self.terms.excluded_counts or {}).values()) - len(self.left_out)
        if earlier > 0:
            lines.append(f"- {quantity(earlier, 'earlier event')} in the runs that this one continues, see there")
        return lines

    def _render_cost(self) -> list[str]:
        lines = ["", "## What it cost to read", ""]
        if self.times_fewer is None:
            lines.append(
                "- not known: the stage asked for no prompt, or has returned nothing; everything before it has "
                f"{self.transcript_tokens} tokens"
            )
        else:
            ratio = f", {self.times_fewer:.1f} times as much" if self.times_fewer > 1 else ""
            lines += [
                f"- Its whole prompt, instructions and baton included: {self.tokens_read:,} tokens",
                "- For comparison, all that the stages before it said and fetched: "
                f"{self.transcript_tokens:,} tokens{ratio}",
            ]
        return lines


_MAX_LISTED = 10
_LEFT_OUT_WORDS = {
    f"type:{EventType.BRAINSTORM}": ", only thought",
    f"type:{EventType.REJECTED_ASSUMPTION}": ", rejected",
    f"type:{EventType.INTERNAL_NOTE}": ", notes to itself",
    f"type:{EventType.ASSISTANT_MESSAGE}": ", said or answered: not a fact",
}


def explain_stage(
    contract: Mapping[str, Any],
    messages: Iterable[Mapping[str, str]],
    earlier_events: Iterable[SessionEvent],
    *,
    stage: str,
    seq: int,
    attempt: int = 1,
    tokens_read: int = 0,
    prompt: Sequence[PromptPart] = (),
) -> Explanation:
    """Explain what one stage was given."""
    events = {event.id: event for event in earlier_events}
    labels = {id: label for message in messages for id, label in message.items()}
    order = {id: number for number, id in enumerate(events)}  # a signed message sorts its labels
    facts = {fact["eventId"] for fact in contract.get("facts", [])}  # an event that was left out before may cross now
    left_out = [
        LeftOut(event_id=id, label=label, agent=events[id].agent if id in events else None)
        for id, label in sorted(labels.items(), key=lambda item: order.get(item[0], len(order)))
        if id not in facts
    ]
    return Explanation(
        stage=stage,
        seq=seq,
        attempt=attempt,
        contract=dict(contract),
        left_out=left_out,
        prompt=[*prompt],
        tokens_read=tokens_read,
        transcript_tokens=sum(event.tokens for event in events.values()),
    )


def _join_names(tools: Iterable[str], otherwise: str = "none") -> str:
    return ", ".join(f"`{single_line(tool)}`" for tool in tools) or otherwise
