"""What crosses the wire between client, workflow and stage: each a record with a published JSON Schema."""

import json
import re
from ast import literal_eval
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar, overload

from pydantic import BaseModel, Field, JsonValue, StringConstraints, field_validator

from baton.budget.records import Budget
from baton.core.baton import Baton, BatonPatch, BatonT
from baton.core.exhibits import Exhibit
from baton.core.history import Outcome, Spend
from baton.core.inputs import INPUT_NAME, MAX_INPUTS, encode_inputs
from baton.core.verdict import Verdict
from baton.wire.json_values import Json, canonical_json, digest, pae
from baton.wire.records import CompactRecord, Integer, Name, Statement, Timestamp

FormT = TypeVar("FormT", bound=BaseModel)

TraceHeader = Annotated[str, StringConstraints(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")]
"""A W3C trace context header of version 00, which is what Baton itself writes."""
SpanId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""The id of a span, as in that header."""


class Origin(CompactRecord):
    """Where a forked run comes from.

    Attributes:
        workflow_id: The workflow it was forked from.
        run_id: The run it was forked from.
        at: The step before which it leaves the old run.
        by: Who forked it.
        why: The reason given.
    """

    workflow_id: str
    run_id: str
    at: str
    by: str = ""
    why: str = ""


STARTING = ["Workflow starting"]
"""The current state before any stage wrote one."""


class PipelineInput(CompactRecord):
    """How a pipeline is started: the one argument of its `run`.

    Services set the goal and what belongs to it; the members from `outcomes` on are set by
    continue-as-new and fork.

    Attributes:
        goal: The objective, in one sentence.
        baton: Further members of the first baton; `current_state` is `["Workflow starting"]` by default.
        params: What the pipeline's code needs to know, any JSON.
        inputs: What its agents work on, by name: JSON, texts, `ArtifactRef`s, pydantic models or results of steps.
        task_id: Names the task across runs and pipelines, a UUID; made when the pipeline starts, if absent.
        budget: What the whole chain may cost; without one nothing is refused for want of money.
        traceparent: The trace that started it, in the form of W3C Trace Context.
        follows: Of a pipeline that another one starts: the span of the handoff that had brought the task to that one.
        personal_data: Personal data, encrypted by the vault (`Vault.seal`); nowhere else in the input.
        outcomes: Steps that happened already and are not executed again.
        edit: A patch to apply once the outcomes are used up.
        origin: The run this one was forked from.
        continued: How often the run continued as new.
        carried: What else a continued run needs to know: open exchanges, the conversation, who handed on last. Of a
            child: through which handoffs between pipelines the task had come to its parent.

    Example:
        >>> PipelineInput(goal="Add OAuth2 login").first_baton().current_state
        ['Workflow starting']
    """

    goal: Statement
    baton: dict[str, Json] = Field(default_factory=dict)
    params: dict[str, Json] = Field(default_factory=dict)
    inputs: dict[str, Json] = Field(
        default_factory=dict, max_length=MAX_INPUTS, json_schema_extra={"propertyNames": {"pattern": INPUT_NAME}}
    )
    task_id: str | None = None
    budget: Budget | None = None
    traceparent: TraceHeader | None = None
    follows: SpanId | None = None
    personal_data: dict[str, JsonValue] = Field(default_factory=dict)
    outcomes: list[Outcome] = Field(default_factory=list)
    edit: dict[str, JsonValue] | None = None
    origin: Origin | None = None
    continued: Integer = Field(default=0, ge=0)
    carried: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("inputs", mode="before")
    @classmethod
    def _written(cls, inputs: Any) -> Any:
        return encode_inputs(inputs, marked=True) if isinstance(inputs, Mapping) else inputs

    def first_baton(self, kind: type[Baton] = Baton) -> Baton:
        """Return the baton the pipeline begins with."""
        if not issubclass(kind, Baton):
            raise TypeError(f"baton_type={kind.__name__}: a pipeline's type of baton is derived from Baton")
        members: dict[str, Any] = {"current_state": STARTING, **self.baton, "goal": self.goal}
        return kind.from_json_object(members)

    @property
    def roll_backs(self) -> "list[RolledBack]":
        """The roll-backs of the runs that this one continues, the newest last."""
        told: Any = self.carried.get("operators", {})
        return [RolledBack.model_validate(one) for one in told.get("roll_backs", [])]


class Vote(CompactRecord):
    """What one person decided about an approval.

    Attributes:
        who: The person.
        approved: Yes or no.
        why: Their reason.
        at: When it counted (workflow time).
        via: `"update"` or `"signal"`.
        answer: The form that they filled in.
        key: The id of the key that signed the decision, checked by a worker; absent if nothing proves who it was.
        signature: That signature, over `Decision.statement`.
    """

    who: Name
    approved: bool
    why: str = ""
    at: Timestamp
    via: str
    answer: Json = None
    key: str | None = None
    signature: str | None = None


class Waiting(CompactRecord):
    """What a pipeline waits for.

    Attributes:
        kind: `"stage"`, `"fan_out"`, `"child"`, `"sleep"` or `"approval"`.
        name: Of which stage or approval.
        seq: The step's number.
        since: Since when (workflow time).
        until: The deadline of an approval, or the end of a sleep.
        digest: The digest of everything that an approval shows and asks, with the baton; a decision is bound to it.
        asks: Of an approval: what the person is asked.
        question: Of an approval: its id, the step and a nonce; a decision is about one question.
        shows: Of an approval: what the person is shown, long texts by their beginnings.
        answer: Of an approval: the JSON Schema of the form that anyone who approves fills in.
        needs: Of an approval: how many different people have to approve.
        who: Of an approval: who may decide, names and `group:` names; anybody if there are none.
        proof: Of an approval: whether only signed decisions count.
        votes: Of an approval: who has approved so far.
    """

    kind: str
    name: str
    seq: Integer
    since: Timestamp
    until: Timestamp | None = None
    digest: str | None = None
    asks: str | None = None
    question: str | None = None
    shows: list[Exhibit] = Field(default_factory=list)
    answer: dict[str, Json] | None = None
    needs: Integer = Field(default=1, ge=1)
    who: list[str] = Field(default_factory=list)
    proof: bool = False
    votes: list[Vote] = Field(default_factory=list)

    def digest_with(self, baton: str) -> str:
        """Return the digest of all that a person is shown and asked, given the digest of the baton."""
        return digest(
            {
                "approval": self.name,
                "question": self.question,
                "asks": self.asks,
                "baton": baton,
                "shows": [{"title": one.title, "form": one.form, "digest": one.digest} for one in self.shows],
                "answer": self.answer,
                "needs": self.needs,
                "who": self.who,
                "proof": self.proof,
            }
        )


class PipelineStatus(StrEnum):
    """The state of a pipeline, as in the search attribute `BatonStatus`."""

    RUNNING = "RUNNING"
    WAITING = "WAITING"
    PENDING_HANDOFF = "PENDING_HANDOFF"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Overview(CompactRecord):
    """What the query `status` answers.

    Attributes:
        status: Running, waiting for a person, suspended until a worker can do a stage, completed or failed.
        task_id: The task's id.
        seq: How many steps the code has asked for.
        waiting_for: What is under way or waited for, in order of the steps.
        spend: What all steps cost together.
        billed: What was really charged, refused attempts included; absent where that is the same.
        remaining_micro_usd: What is left of the budget; absent without one.
        topped_up_micro_usd: What people added to it.
        digest: The digest of the baton now.
        notes: What operators should know: roll-backs, refused signals; the newest 50.
    """

    status: PipelineStatus = Field(strict=False)
    task_id: str
    seq: Integer
    waiting_for: list[Waiting] = Field(default_factory=list)
    spend: Spend = Spend()
    billed: Spend | None = None
    remaining_micro_usd: Integer | None = None
    topped_up_micro_usd: Integer = Field(default=0, ge=0)
    digest: str
    notes: list[str] = Field(default_factory=list)


class PipelineResult(CompactRecord):
    """What a pipeline returns.

    Attributes:
        task_id: The task's id.
        baton: The final baton.
        steps: How many steps were taken.
        spend: What they cost together.
        billed: What was really charged, refused attempts included; absent where that is the same.
        topped_up_micro_usd: What people added to its budget.
        output: What the pipeline's own code wants to return, any JSON.
        personal_data: Personal data that a child wrote, encrypted; for its parent.
    """

    task_id: str
    baton: dict[str, Json]
    steps: Integer = Field(ge=0)
    spend: Spend = Spend()
    billed: Spend | None = None
    topped_up_micro_usd: Integer = Field(default=0, ge=0)
    output: Json = None
    personal_data: dict[str, JsonValue] = Field(default_factory=dict)
    __baton_has_output__: ClassVar[bool] = True

    @overload
    def final_baton(self) -> Baton: ...
    @overload
    def final_baton(self, kind: type[BatonT]) -> BatonT: ...
    def final_baton(self, kind: type[Baton] = Baton) -> Baton:
        """Return the final baton as a record of the pipeline's type."""
        return kind.from_json_object(self.baton)


class StageInput(CompactRecord):
    """What a stage's activity is sent.

    Attributes:
        stage: The stage's name.
        seq: The step's number.
        task_id: The task's id.
        baton: What the stage may read of the baton.
        earlier_decisions: How many decisions are in the log before those in `baton`.
        attempt: Which attempt this is, from 1; a refused patch leads to the next.
        findings: Why the attempt before was refused.
        params: The pipeline's parameters.
        inputs: What it works on, by name, as `encode_inputs` writes it.
        branch: True in a fan-out, where the merge makes the change and not the branch.
        after: How many steps had ended when it was sent, which tells a reader what baton it was made from.
        released: Texts that a person found harmless though the safety scan rejects them: digest to reviewer.
        personal_data: Personal data that came with the handoff, encrypted; only for a stage that declares some.
        turns: The newest turns of the conversation so far, word for word.
        summary: The older turns in short; empty if nothing was compressed.
        contract: What its agent may see and do, in a pipeline with contracts.
        left_out: Which session events the contract leaves out, and why, beyond what earlier messages of the run told:
            event id to label.
        handoff_id: The handoff that brought it, where it came by one.
        stream: Whether people want to read what it says while it works.
    """

    stage: Name
    seq: Integer = Field(ge=1)
    task_id: str
    baton: dict[str, JsonValue]
    earlier_decisions: Integer = Field(default=0, ge=0)
    attempt: Integer = Field(default=1, ge=1)
    findings: list[str] = Field(default_factory=list)
    params: dict[str, JsonValue] = Field(default_factory=dict)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    branch: bool = False
    after: Integer = Field(default=0, ge=0)
    released: dict[str, str] = Field(default_factory=dict)
    personal_data: dict[str, JsonValue] = Field(default_factory=dict)
    turns: list[dict[str, JsonValue]] = Field(default_factory=list)
    summary: str = ""
    contract: dict[str, JsonValue] | None = None
    left_out: dict[str, str] = Field(default_factory=dict)
    handoff_id: str = ""
    stream: bool = False

    def step(self) -> dict[str, JsonValue]:
        """Return what a handoff has no member of its own for: its `step`."""
        elsewhere = {"stage", "task_id", "baton", "personal_data", "turns", "summary", "handoff_id"}
        members: dict[str, JsonValue] = self.model_dump(mode="json", exclude=elsewhere)
        return members

    @classmethod
    def from_handoff(cls, message: Mapping[str, Any]) -> Self:
        """Return the input that a handoff carries."""
        to, task = message["toAgent"]["agentType"], message["taskId"]
        fields = cls.model_fields
        step = {name: value for name, value in message.get("step", {}).items() if name in fields}
        carried = {
            "baton": message["currentState"],
            "personal_data": message.get("personalDataPayload", {}),
            "turns": message["conversationHistoryVerbatim"],
            "summary": message["conversationHistorySummary"],
            "handoff_id": message["handoffId"],
        }
        return cls.model_validate({**step, **carried, "stage": to, "task_id": task})


class Missing(CompactRecord):
    """What the activity by which a run waits for another worker is sent.

    Attributes:
        stage: The stage that waits.
        seq: The number of its step.
        text: What its worker lacked, and what to do.
        tries: How often the stage had run before.
    """

    stage: str
    seq: Integer
    text: str
    tries: Integer = 0


class Selected(CompactRecord):
    """Why an artifact was given to a stage, or left out.

    Attributes:
        id: The artifact.
        included: Whether the stage was given its content.
        reason: Why, or why not.
        tokens: What its content costs.
    """

    id: str
    included: bool
    reason: str
    tokens: Integer = Field(default=0, ge=0)


class PromptPart(CompactRecord):
    """One part of the prompt that a stage's agent was given.

    Attributes:
        name: The part: `"baton"`, `"contract"`, `"input draft"`, …
        tokens: The tokens of all of it.
        shown: The tokens of what was shown.
        why: What was left out; empty where it is whole.
    """

    name: str
    tokens: Integer = Field(ge=0)
    shown: Integer = Field(ge=0)
    why: str = ""


class StageReturn(CompactRecord):
    """What a stage's activity answers; a refused patch is an answer, not an exception.

    Attributes:
        stage: The stage's name.
        seq: The step's number.
        attempt: Which attempt this was.
        baton_patch: The patch exactly as the stage returned it.
        findings: Why the patch is refused; empty when it is accepted.
        output: What the stage returns to the pipeline's code beside the patch.
        spend: What the stage cost.
        models: What of it each model cost, as far as the stage said.
        tokens_read: Tokens of the prompt the stage was given, 0 if it asked for none.
        prompt: What parts that prompt had, and what was left out of each.
        selected: Which artifacts it was given, and why.
        branch: True if it ran in a fan-out.
        after: How many steps had ended when it was sent.
        seconds: How long it ran, rounded, as its worker measured it.
        verdict: Why the stage's worker did not accept the handoff, and so did not run it; absent if it did.
        anchor: The head of the task's audit chain once the answer to the handoff was on record.
        personal_data: The personal data that it wrote, encrypted; it is handed on with what came before.
        turns: What was said in it, to be handed on.
        tool_calls: Which tools it called, to be handed on.
        events: What it recorded of its session, for the contracts of later stages.
        journal: The artifact with the texts of events that are kept out of the history.
        streamed: What it said while it worked, where people wanted to read that.
    """

    stage: Name
    seq: Integer = Field(ge=1)
    attempt: Integer = Field(default=1, ge=1)
    baton_patch: dict[str, JsonValue] = Field(default_factory=dict)
    findings: list[str] = Field(default_factory=list)
    output: JsonValue = None
    spend: Spend = Spend()
    models: dict[Name, Spend] = Field(default_factory=dict, max_length=100)
    tokens_read: Integer = Field(default=0, ge=0)
    prompt: list[PromptPart] = Field(default_factory=list)
    selected: list[Selected] = Field(default_factory=list)
    branch: bool = False
    after: Integer = Field(default=0, ge=0)
    seconds: Integer = Field(default=0, ge=0)
    verdict: Verdict | None = None
    anchor: str | None = None
    personal_data: dict[str, JsonValue] | None = None
    turns: list[dict[str, JsonValue]] = Field(default_factory=list)
    tool_calls: list[dict[str, JsonValue]] = Field(default_factory=list)
    events: list[dict[str, JsonValue]] = Field(default_factory=list)
    journal: str | None = None
    streamed: list[dict[str, JsonValue]] = Field(default_factory=list)

    @classmethod
    def to(cls, given: StageInput, **answer: Any) -> Self:
        """Return an answer to what a stage was sent."""
        asked = {name: getattr(given, name) for name in ("stage", "seq", "attempt", "branch", "after")}
        return cls(**asked, **answer)


class StageResult(CompactRecord):
    """What a stage function may return instead of a bare patch, and what `Pipeline.stage` returns.

    Attributes:
        baton_patch: The change to the baton; `{}` is legal.
        output: Anything the pipeline's code wants to branch on, as JSON.
        spend: What the stage cost.
        turns: What was said, if the next stages are to read it, each `{"role": …, "content": …}`; compressed where
            it grows too long for them.
        tool_calls: Which tools were called, each as an item of a handoff's `toolCallHistory`.
        report: A handoff report in markdown instead of a patch; it is read strictly, and what is wrong with it leads
            to another attempt.

    Example:
        >>> StageResult(baton_patch=BatonPatch(current_state=["Tests pass"]), output={"passed": 12}).output
        {'passed': 12}
    """

    baton_patch: BatonPatch | dict[str, Json] = Field(default_factory=dict)
    output: Json = None
    spend: Spend = Spend()
    turns: list[dict[str, Json]] = Field(default_factory=list)
    tool_calls: list[dict[str, Json]] = Field(default_factory=list)
    report: str | None = None
    __baton_has_output__: ClassVar[bool] = True


class Decision(CompactRecord):
    """What a person decides about an open approval: the argument of the update and signal `decide`.

    Attributes:
        approval: The approval's title, as `status` shows it.
        approved: Yes or no.
        who: The person who decides.
        why: Their reason.
        question: Which question they answer, as the query `waiting` shows it: a decision for an earlier question
            under the same title is refused. `baton.client.decide` reads it from the run where it is left out.
        digest: The digest of all that they were shown; a decision on anything else is refused. Likewise.
        answer: With a yes: the form that they filled in, as JSON.
        key: The id of the key that signed the decision.
        signature: The signature over `statement`, in base64url.

    Example:
        >>> Decision(approval="release manager", approved=True, who="ann", why="tests are green").approved
        True
    """

    __baton_most_bytes__: ClassVar[int] = 64 * 1024

    approval: Name
    approved: bool
    who: Name
    why: str = ""
    question: str | None = None
    digest: str | None = None
    answer: Json = None
    key: str | None = None
    signature: str | None = None

    @property
    def statement(self) -> bytes:
        """The bytes that a signature is made over: the decision without it, bound to its purpose."""
        return pae("application/vnd.baton.decision+json", canonical_json(self.model_dump(exclude={"signature"})))


class Decided(CompactRecord):
    """How an approval ended; what `Pipeline.approve` returns.

    Attributes:
        approval: The approval's title.
        question: The question that was answered.
        approved: Yes or no.
        who: The person, or the people, or `"deadline"`.
        why: The reason.
        at: When it was decided (workflow time).
        digest: The digest of everything that was shown.
        via: `"update"`, `"signal"` or `"deadline"`.
        answer: With a yes: the form that was filled in, as JSON; `answer_as` returns it typed.
        missing: How many more people have to approve; only what one of several approvers is answered has any.
        votes: Where several people had to approve, or signed: what each decided, in order.
    """

    approval: Name
    question: str
    approved: bool
    who: Name
    why: str = ""
    at: Timestamp
    digest: str
    via: str
    answer: Json = None
    missing: Integer = Field(default=0, ge=0)
    votes: list[Vote] = Field(default_factory=list)

    def answer_as(self, form: type[FormT]) -> FormT:
        """Return the form that was filled in, as a record of the type that `Pipeline.approve` was given."""
        return form.model_validate_json(json.dumps(self.answer))


class RolledBack(CompactRecord):
    """A roll-back, or another reset, as the history of the new run and of the run that was left tell it.

    Attributes:
        to: The step the run was rolled back to before; empty for a reset by Temporal's own tools.
        by: Who rolled it back.
        why: The reason.
        from_run_id: The run that was left.
        stopped_children: Workflow ids of child pipelines of the left run that were terminated.
        left: What was charged in the part that was left; it stays charged.
    """

    to: str = ""
    by: str = ""
    why: str = ""
    from_run_id: str = ""
    stopped_children: list[str] = Field(default_factory=list)
    left: Spend = Spend()

    @property
    def note(self) -> str:
        """One sentence on it, for operators; also the reason that the server keeps of a roll-back."""
        return f"rolled back to before {self.to!r} by {self.by}: {self.why}" if self.to else f"reset: {self.why}"

    @classmethod
    def from_reason(cls, reason: str, **further: Any) -> Self:
        """Return the roll-back that the reason of a reset tells of."""
        told = _ROLL_BACK.fullmatch(reason)
        if told is None:
            return cls(why=reason, **further)
        return cls(to=literal_eval(told[1]), by=told[2], why=told[3], **further)


_ROLL_BACK = re.compile(
    r"""rolled back to before ('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*") by (.+?): (.*)""", re.DOTALL
)


class RollBacks(CompactRecord):
    """The roll-backs of a run, in order: the answer of the activity `ROLLED_BACK`.

    Attributes:
        made: Those that the run did not know yet.
    """

    made: list[RolledBack]
