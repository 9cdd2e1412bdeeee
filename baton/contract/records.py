"""The handoff contract as a record, the session events that it is made of, the verdict on one, and its explanation."""

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
from baton.core.verdict import Code, Finding
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
)
from baton.wire.text import single_line


class ContractError(HandoffError):
    """No contract can be compiled: an id appears twice, or a processor breaks a rule."""


class UnknownAgentError(RoutingError):
    """No such agent is registered, or it cannot do what is asked; the message names what comes nearest."""


class UnknownSchemaError(HandoffError):
    """No such output schema is registered; the message names what comes nearest."""


TOOL_DENIED = "TOOL_DENIED"
"""The code of a denied call, in messages, in logs and as the status of its record in the ledger."""

_NAMED = 20


class ToolDeniedError(BatonError):
    """A tool was called that the contract does not allow; it did not run."""

    code = TOOL_DENIED

    def __init__(self, tool: str, handoff_id: str, *, allowed: Collection[str]) -> None:
        self.tool = tool
        self.handoff_id = handoff_id
        names = sorted(allowed)
        listed = ", ".join(names[:_NAMED]) + (f" (+{len(names) - _NAMED} more)" if len(names) > _NAMED else "")
        if names:
            text = f"{tool!r} is not among the tools of handoff {handoff_id!r}: {listed}"
        else:
            text = f"{tool!r} was called under handoff {handoff_id!r}, which allows no tools"
        super().__init__(f"{TOOL_DENIED}: {text}. Do without it, or ask for more")


class EventType(StrEnum):
    """What kind of thing happened."""

    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    LLM_RESPONSE = "llm_response"
    USER_MESSAGE = "user_message"
    ASSISTANT_MESSAGE = "assistant_message"
    DECISION = "decision"
    BRAINSTORM = "brainstorm"
    INTERNAL_NOTE = "internal_note"
    REJECTED_ASSUMPTION = "rejected_assumption"


def _written(value: Any) -> Any:
    """Write a time as it stands on the wire; a text stays as it is."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if not isinstance(value, str):
        raise ValueError("a time is a text, as in 2026-06-27T09:20:00Z, or a datetime")
    return value


WrittenTime = Annotated[datetime | str, PlainValidator(_written), WithJsonSchema({"type": "string"})]
"""A time as somebody wrote it, readable or not. It is made of a text or a datetime, and kept as text."""


class SessionEvent(OpenRecord):
    """One thing that happened in a session.

    Attributes:
        id: Names the event; unique in the session, and a fact's `eventId` leads back to it.
        type: What kind of thing happened.
        timestamp: When; of a tool's result, when the data was retrieved and not when it was passed on.
        content: The claim or the text, short; a tool's result is a claim in a sentence.
        ref: The digest of the whole content, where `content` is not all of it.
        whole: The artifact with the whole claim, where `content` is only its beginning.
        tokens: How many tokens the whole content has; 0 if not counted.
        exclude_from_handoff: True keeps it from every other agent.
        max_age_minutes: After how many minutes it is stale, instead of what the policy says.
        tool_name: The tool that was called, or that answered.
        call_id: Of a call its own id, if not that of the event; of a result the call that it answers.
        success: Whether the tool did its work; absent where that is not known, which does not mean yes.
        accepted: Of a decision, whether it was accepted.
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
    accepted: bool | None = None
    agent: str | None = None
    handoff_id: str | None = None

    @property
    def at(self) -> datetime | None:
        """The time of the event in UTC; None if it is missing, unreadable or has no offset."""
        return instant(self.timestamp)

    @model_serializer(mode="wrap")
    def _compact(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out members at their default: a session is most of what a run has to keep."""
        members: dict[str, Any] = handler(self)
        defaults = _defaults()
        return {name: one for name, one in members.items() if name not in defaults or one != defaults[name]}


@cache
def _defaults() -> dict[str, Any]:
    """Return the default of each member of an event that has one, by its name on the wire."""
    fields = SessionEvent.model_fields.items()
    return {field.alias or name: field.default for name, field in fields if not field.is_required()}


def instant(value: object) -> datetime | None:
    """Return the time that a value tells, in UTC, or None if it tells none."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


CONTRACT_RELEASED = ("1.0",)
"""Every released version of the contract's schema, oldest first."""
CONTRACT_CURRENT = CONTRACT_RELEASED[-1]
"""The version that this release of Baton writes."""
LONGEST_TASK = 500
"""The most characters of a task; what needs more is several tasks."""
DEFAULT_EXPIRY_MINUTES = 30
"""After how many minutes a contract expires, unless it says otherwise."""
MOST_EXPIRY_MINUTES = 24 * 60
"""The longest expiry that `validate_contract` accepts by default."""

ContractVersion = Annotated[str, StringConstraints(pattern=r"^1\.(0|[1-9][0-9]{0,3})$"), Field(examples=["1.0"])]
"""The version of the contract's schema: this major, any minor."""
Label = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]*:[^\r\n]+$", max_length=300),
    Field(examples=["type:brainstorm", "stale:crm.lookup_pricing"]),
]
"""Why something was left out, a colon, and what kind of thing it was; never its content."""
Identifier = Annotated[Statement, Field(max_length=200, json_schema_extra={"maxLength": 200})]
"""A name that says something, at most 200 characters."""
Task = Annotated[Statement, Field(max_length=LONGEST_TASK, json_schema_extra={"maxLength": LONGEST_TASK})]
"""What is to be done, in one text of at most 500 characters."""


class Confidence(StrEnum):
    """How sure the system is of a fact; the surest first."""

    HIGH = "high"
    """A deterministic tool call that succeeded."""
    MEDIUM = "medium"
    """A language model."""
    LOW = "low"
    """Fallback logic, or a tool that did not say whether it succeeded."""
    UNVERIFIED = "unverified"
    """What a user said, or what has no known source."""


class SourceProvenance(OpenRecord):
    """Where a fact came from.

    Attributes:
        source: The system, for example `"crm.lookup_customer"`.
        timestamp: When the data was retrieved, which is not when it was passed on.
        method: How, for example `"api_call"` or `"tool_call:contracts.search"`.
    """

    source: Statement
    timestamp: Instant
    method: Statement


class Fact(OpenRecord):
    """Something that the receiver may know.

    Attributes:
        claim: What is claimed.
        source: Where it came from.
        confidence: How sure the system is of it.
        event_id: The session event that it was taken from.
        whole: The artifact with the whole claim, where `claim` is its beginning.
        in_full: Whether the receiver's prompt shows the whole claim.
    """

    claim: Statement
    source: SourceProvenance
    confidence: Annotated[Confidence, Field(strict=False)]
    event_id: Identifier
    whole: Annotated[Digest | None, NOT_NULL] = None
    in_full: Annotated[bool | None, NOT_NULL] = None


class OutputSchemaRef(OpenRecord):
    """The shape that the receiver's output must have, by name and version in a registry.

    Attributes:
        schema_name: The schema's name.
        version: Its version, exactly.
    """

    schema_name: Identifier
    version: Identifier

    @classmethod
    def parse(cls, text: str) -> "OutputSchemaRef":
        """Return the reference that `"Name@version"` spells."""
        name, _, version = text.rpartition("@")
        if not name.strip() or not version.strip():
            raise ValueError(f"{text!r} names no output schema with its version; write it as 'Decision@1.2'")
        return cls(schema_name=name, version=version)

    def __str__(self) -> str:
        """Return the reference as `"Name@version"`."""
        return f"{self.schema_name}@{self.version}"


class HandoffContract(OpenRecord):
    """What a receiver is to do, may know and may use, compiled and never written by hand.

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
        trace_id: The trace that links it to the pipeline, the first request and what follows.
        schema_version: The version of the schema that the contract follows; absent in 1.0.
        receiving_agent_version: The receiver's version, exactly.
        traceparent: The W3C trace context that the handoff travels with.
        message_id: The signed message that carries the contract, by its `handoffId`.
        excluded_counts: How many session events each label stands for.
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
        """The last moment at which the contract may be used; the last there is, of one made near the end of time."""
        try:
            return self.created_at + timedelta(minutes=self.expires_after_minutes)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def is_expired(self, now: datetime) -> bool:
        """Return whether it may no longer be used; then it is compiled again, and never executed."""
        return now - self.created_at > timedelta(minutes=self.expires_after_minutes)


class Check(StrEnum):
    """What a finding is about: the document's seven checks, and two for what they missed."""

    REQUIRED = "required_fields"
    PROVENANCE = "source_provenance"
    CONTEXT = "forbidden_context"
    BUDGET = "token_budget"
    TOOLS = "tool_alignment"
    SCHEMA = "output_schema"
    TRACE = "trace_id"
    SHAPE = "shape"
    TIME = "time"


class ContractFinding(CompactRecord):
    """One thing that is wrong with a contract, or that a person should know.

    Attributes:
        check: Which check found it.
        text: A sentence that says what was expected and what to do; never a claim or a task.
        at: Where, as a JSON pointer; empty for the contract as a whole.
    """

    check: Annotated[Check, Field(strict=False)]
    text: str
    at: str = ""


class ContractVerdict(CompactRecord):
    """The verdict on a contract, with what a log line and a monitor need of it.

    Attributes:
        errors: What prevents the handoff.
        warnings: What does not, and should be looked at.
        handoff_id: The contract's handoff; empty if it names none.
        receiving_agent: Its receiver; empty if it names none.
        trace_id: Its trace; empty if it names none.
        facts: How many facts it has.
        tools: How many tools it allows.
        excluded: How many events each of its labels stands for, where it says so; 1 where it does not.
    """

    errors: list[ContractFinding] = Field(default_factory=list)
    warnings: list[ContractFinding] = Field(default_factory=list)
    handoff_id: str = ""
    receiving_agent: str = ""
    trace_id: str = ""
    facts: Count = 0
    tools: Count = 0
    excluded: dict[str, Count] = Field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether the contract may be handed over."""
        return not self.errors

    def findings(self) -> list[Finding]:
        """Return the errors as a receiver's gate reports them."""
        return [
            Finding(code=Code.SCHEMA_INVALID, text=one.text, at=one.at, rule=one.check.value) for one in self.errors
        ]


def verdict_log_fields(verdict: ContractVerdict) -> Mapping[str, Any]:
    """Return a verdict as the members of a structured log line."""
    return {
        "handoff_id": verdict.handoff_id,
        "receiving_agent": verdict.receiving_agent,
        "trace_id": verdict.trace_id,
        "valid": bool(verdict),
        "errors": [f"{one.check.value}: {one.text}" for one in verdict.errors],
        "warnings": [f"{one.check.value}: {one.text}" for one in verdict.warnings],
        "facts": verdict.facts,
        "tools": verdict.tools,
        "zero_facts": int(verdict.facts == 0),
        "zero_tools": int(verdict.tools == 0),
        "excluded": dict(verdict.excluded),
    }


class LeftOut(CompactRecord):
    """One session event that did not cross, and why; its content is not told.

    Attributes:
        event_id: The event.
        label: Why, for example `"type:brainstorm"`.
        agent: Who recorded it.
    """

    event_id: str
    label: str
    agent: str | None = None


class Explanation(CompactRecord):
    """Why an agent did what it did, as far as what it was given can tell.

    Attributes:
        stage: The stage.
        seq: The step's number.
        attempt: Which attempt; earlier ones may have had other contracts.
        contract: The contract, as JSON; empty in a pipeline without contracts.
        left_out: The events that did not cross.
        prompt: The parts of the prompt, each with its tokens before and after it was made to fit, and why.
        tokens_read: Tokens of the prompt that the agent was given; 0 if it asked for none, or has not ended.
        transcript_tokens: What handing on everything that was said and fetched before would have cost.
    """

    stage: str
    seq: Integer
    attempt: Integer = 1
    contract: dict[str, JsonValue] = Field(default_factory=dict)
    left_out: list[LeftOut] = Field(default_factory=list)
    prompt: list[PromptPart] = Field(default_factory=list)
    tokens_read: Integer = 0
    transcript_tokens: Integer = 0

    @property
    def terms(self) -> HandoffContract:
        """The contract, as a record."""
        return HandoffContract.from_json_object(self.contract)

    @property
    def times_fewer(self) -> float | None:
        """How many times fewer tokens it read than the transcript has; None while that is not known."""
        return self.transcript_tokens / self.tokens_read if self.tokens_read else None

    def to_markdown(self) -> str:
        """Return the explanation for a person."""
        lines = [f"# What {self.stage!r} was given (step {self.seq}, attempt {self.attempt})", ""]
        lines += self._of_contract() if self.contract else ["- no contract"]
        lines += ["", "## What its prompt had", ""]
        lines += [
            f"- {single_line(part.name)}: {part.shown:,} of {part.tokens:,} tokens"
            + (f"; {single_line(part.why)}" if part.why else "")
            for part in self.prompt
        ] or ["- not known"]
        return "\n".join([*lines, *self._cost()]) + "\n"

    def _of_contract(self) -> list[str]:
        """Return the lines on the contract: task, tools, facts, and what was left out."""
        contract = self.terms
        lines = [
            f"- **Task:** {single_line(contract.task)}",
            f"- **Handoff:** `{contract.handoff_id}` in trace `{contract.trace_id}`",
            f"- **Contract:** made {contract.created_at.isoformat()}, valid for {contract.expires_after_minutes} min",
        ]
        if contract.output_schema is not None:
            lines.append(f"- **Its output must fit:** {contract.output_schema}")
        lines.append(f"- **Tools allowed:** {_names(contract.allowed_tools)}")
        lines.append(f"- **Tools forbidden:** {_names(contract.forbidden_tools)}")
        lines += ["", f"## Facts it saw ({len(contract.facts)})", ""]
        lines += [
            f"- {single_line(fact.claim)}\n  - {fact.confidence.value}, from `{single_line(fact.source.source)}` by "
            f"{single_line(fact.source.method)}, retrieved {fact.source.timestamp.isoformat()} "
            f"(event `{fact.event_id}`)"
            for fact in contract.facts
        ] or ["- none"]
        lines += ["", f"## Left out ({len(self.left_out)})", ""]
        by_label: dict[str, list[str]] = {}
        for one in self.left_out:
            by_label.setdefault(one.label, []).append(one.event_id)
        lines += [
            f"- `{label}`: {len(ids)} ({', '.join(ids[:_LISTED])}{', …' if len(ids) > _LISTED else ''})"
            for label, ids in by_label.items()
        ] or ["- nothing"]
        return lines

    def _cost(self) -> list[str]:
        """Return the lines on what the prompt cost."""
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
                "- Beside that, what it was spared, all that the stages before it said and fetched: "
                f"{self.transcript_tokens:,} tokens{ratio}",
            ]
        return lines


_LISTED = 10


def explanation_of(
    contract: Mapping[str, Any],
    told: Iterable[Mapping[str, str]],
    before: Iterable[SessionEvent],
    *,
    stage: str,
    seq: int,
    attempt: int = 1,
    tokens_read: int = 0,
    prompt: Sequence[PromptPart] = (),
) -> Explanation:
    """Return the explanation of one stage."""
    events = {event.id: event for event in before}
    labels = {id: label for message in told for id, label in message.items()}
    facts = {fact["eventId"] for fact in contract.get("facts", [])}  # one that was left out before may cross by now
    left_out = [
        LeftOut(event_id=id, label=label, agent=events[id].agent if id in events else None)
        for id, label in labels.items()
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


def _names(tools: Iterable[str]) -> str:
    """Return names of tools for a line."""
    return ", ".join(f"`{single_line(tool)}`" for tool in tools) or "none"
