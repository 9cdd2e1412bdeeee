"""Messages between client, workflow and stage: records with a published JSON Schema."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar, overload

from pydantic import BaseModel, Field, JsonValue, PrivateAttr, StringConstraints, field_validator

from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton, BatonPatch, BatonT
from baton.core.budget import Budget
from baton.core.history import Outcome, Reported, Spend, StepKind
from baton.core.inputs import INPUT_NAME, MAX_INPUTS, convert, encode_inputs
from baton.core.lab import LabPath, LabReport, LabTerms
from baton.core.pages import PAGE, read_page
from baton.core.past import (
    ChildHandoff,
    Heir,
    ParentHandoff,
    RolledBack,
    SealCheck,
    check_carried,
    check_outcome,
    check_personal_data,
)
from baton.core.questions import Question, Settled
from baton.core.requester import Requester
from baton.core.stages import OnReport
from baton.core.steering import SteeringNote
from baton.core.verdict import Verdict
from baton.wire.json_values import Json, find_excess
from baton.wire.records import CompactRecord, Integer, Name, Place, Sha256Hex, Statement, Timestamp, Urgency

T = TypeVar("T")

TraceHeader = Annotated[str, StringConstraints(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")]
"""A W3C trace context header of version 00, which is what Baton itself writes."""
SpanId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""A span id, as in that header."""


class Origin(CompactRecord):
    """The run that a fork started from.

    Attributes:
        workflow_id: The workflow it was forked from.
        run_id: The run it was forked from.
        at: The step before which it was forked.
        by: Who forked it.
        why: The reason.
    """

    workflow_id: str
    run_id: str
    at: str
    by: str = ""
    why: str = ""


MAX_SESSION_EVENTS = 2_000
"""The most session events that a run starts from."""
STARTING = ["Workflow starting"]
"""The current state of the first baton."""


class ToolLimits(CompactRecord):
    """What a child may call at most, by what the pipelines above it forbid and grant. It only restricts.

    Attributes:
        child: The child's workflow type.
        forbidden: The forbidden tools, each with the pipeline that forbids it.
        granted: By pipeline, the only tools that it grants.
    """

    child: str
    forbidden: dict[Name, str] = Field(default_factory=dict)
    granted: dict[str, list[Name]] = Field(default_factory=dict)


class PipelineInput(CompactRecord):
    """The input of a pipeline: the argument of its `run`.

    Services set the members before `outcomes`; continue-as-new and fork set the others.

    Attributes:
        goal: The objective, in one sentence.
        baton: Other members of the first baton; `current_state` is `["Workflow starting"]` by default.
        params: Parameters of the pipeline's code, any JSON.
        inputs: What its agents work on, by name: JSON, texts, `ArtifactRef`s, pydantic models or results of steps.
        task_id: Identifies the task across runs and pipelines, a UUID; generated at the start by default.
        budget: What the whole chain may cost; unlimited by default.
        requester: Who it works for, as the service that starts it has verified; its stages and children know it too.
        priority: Which runs go first where workers are short, from 1 (first) to 5; 3 by default (Temporal's priority).
        fairness_key: Whose run it is, such as a tenant: waiting runs of several take turns. 1 to 64 ASCII
            characters.
        session: Events of another tool's session (`baton import`), for the contracts: unverified, whatever they say.
        traceparent: The trace that started it, as a W3C Trace Context header.
        follows: In a child pipeline, the span of the handoff that brought the task to its parent.
        parent_handoff: In a child pipeline, the handoff that brought the task to its parent.
        personal_data: Personal data, encrypted by the vault (`Vault.seal`); nowhere else in the input.
        tool_limits: In a child pipeline, what its parent lets it call.
        outcomes: Recorded steps, which are not executed again.
        pages: Of many recorded steps those before `outcomes`; see `recorded`.
        edit: A patch to apply after the recorded steps.
        origin: The run this one was forked from.
        continued: How often the run continued as new.
        carried: Other state of the run that this one continues: open exchanges, the conversation, the last sender. In a
            child, the chain of handoffs between pipelines that brought the task to its parent.
        lab: In the lab, how it runs without effects.
        heir: The run that may start from this past (`outcomes` to `lab`); its writer sets it.

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
    requester: Requester | None = None
    priority: Urgency | None = None
    fairness_key: Annotated[str, StringConstraints(pattern=r"^[ -~]{1,64}$")] | None = None
    session: list[dict[str, JsonValue]] = Field(default_factory=list, max_length=MAX_SESSION_EVENTS)
    traceparent: TraceHeader | None = None
    follows: SpanId | None = None
    parent_handoff: ParentHandoff | None = None
    personal_data: dict[str, JsonValue] = Field(default_factory=dict)
    tool_limits: ToolLimits | None = None
    outcomes: list[Outcome] = Field(default_factory=list)
    pages: list[str] = Field(default_factory=list)
    edit: dict[str, JsonValue] | None = None
    origin: Origin | None = None
    continued: Integer = Field(default=0, ge=0)
    carried: dict[str, JsonValue] = Field(default_factory=dict)
    lab: LabPath | None = None
    heir: Heir | None = None

    __baton_start__: ClassVar[bool] = True
    _seal: SealCheck | None = PrivateAttr(default=None)

    @property
    def has_past(self) -> bool:
        """Whether the run starts from more than a service may give it."""
        given = self.recorded_count or self.edit is not None or self.origin or self.continued or self.carried
        return bool(given or self.lab)

    @property
    def recorded_count(self) -> int:
        """How many steps are recorded."""
        return len(self.pages) * PAGE + len(self.outcomes)

    @property
    def seal(self) -> SealCheck | None:
        """What came of verifying the past's seal when the input was received; None if it has none."""
        return self._seal

    def with_seal(self, seal: SealCheck) -> Self:
        """Return the input as received under a seal."""
        self._seal = seal
        return self

    @field_validator("inputs", mode="before")
    @classmethod
    def _encode_inputs(cls, inputs: Any) -> Any:
        return encode_inputs(inputs, tagged=True) if isinstance(inputs, Mapping) else inputs

    @field_validator("params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        if (limit := find_excess(params)) is not None:
            raise ValueError(str(limit))
        return params

    def check_past(self) -> None:
        """Check what continue-as-new and fork set, as far as others than its owner use it; pages when they are read.

        Raises:
            ValidationError: It is malformed, so neither Baton nor anybody with Baton's form of it has written it.
        """
        check_personal_data(self.personal_data)
        check_carried(self.carried)
        for outcome in self.outcomes:
            _check_step(outcome)

    def without_past(self) -> Self:
        """Return the input with nothing but what services set."""
        return self.model_copy(
            update={
                **{"personal_data": {}, "outcomes": [], "pages": [], "carried": {}, "continued": 0},
                **{"edit": None, "origin": None, "heir": None},
            }
        )

    def first_baton(self, kind: type[Baton] = Baton) -> Baton:
        """Return the first baton of the pipeline."""
        if not issubclass(kind, Baton):
            raise TypeError(f"baton_type={kind.__name__}: expected a class derived from Baton")
        members: dict[str, Any] = {"current_state": STARTING, **self.baton, "goal": self.goal}
        return kind.from_json_object(members)

    def recorded(self) -> list[Outcome]:
        """Return all recorded steps, in the order in which they ended.

        Raises:
            PipelineError: They cannot be read.
        """
        return [*(outcome for page in self.pages for outcome in self.read_page(page)), *self.outcomes]

    @staticmethod
    def read_page(page: str) -> list[Outcome]:
        """Return the recorded steps of a page.

        Raises:
            PipelineError: It is malformed.
        """
        return read_page(page, _check_step)

    @property
    def roll_backs(self) -> list[RolledBack]:
        """The roll-backs of the runs that this one continues, oldest first."""
        operators: Any = self.carried.get("operators", {})
        return [RolledBack.model_validate(roll_back) for roll_back in operators.get("roll_backs", [])]


class PipelineStatus(StrEnum):
    """The state of a pipeline, as in the search attribute `BatonStatus`."""

    RUNNING = "RUNNING"
    WAITING = "WAITING"
    PENDING_HANDOFF = "PENDING_HANDOFF"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Waiting(CompactRecord):
    """A step in progress.

    Attributes:
        kind: `"stage"`, `"fan_out"`, `"child"`, `"sleep"` or `"approval"`.
        name: The name of the step, or the title of the approval.
        seq: The step's number.
        since: When it began (workflow time).
        until: The deadline of an approval, or the end of a sleep.
    """

    kind: str
    name: str
    seq: Integer
    since: Timestamp
    until: Timestamp | None = None


class Overview(CompactRecord):
    """The answer of the query `status`.

    Attributes:
        status: Running, waiting for a person, suspended until a worker can run a stage, completed or failed.
        task_id: The task's id.
        seq: How many steps the code has started.
        waiting_for: Steps in progress, approvals included, in step order.
        questions: What is asked of people, the oldest first.
        spend: The total cost of all accepted steps.
        billed: The total charged, rejected attempts included; absent if equal to `spend`.
        remaining_micro_usd: The rest of the budget; absent without a budget.
        topped_up_micro_usd: What people added to the budget.
        digest: The digest of the current baton.
        notes: Notes for operators, such as roll-backs and rejected signals; the newest 50.
    """

    status: PipelineStatus = Field(strict=False)
    task_id: str
    seq: Integer
    waiting_for: list[Waiting] = Field(default_factory=list)
    questions: list[Question] = Field(default_factory=list)
    spend: Spend = Spend()
    billed: Spend | None = None
    remaining_micro_usd: Integer | None = None
    topped_up_micro_usd: Integer = Field(default=0, ge=0)
    digest: str
    notes: list[str] = Field(default_factory=list)


class PipelineResult(CompactRecord):
    """The result of a pipeline.

    Attributes:
        task_id: The task's id.
        baton: The final baton.
        steps: The number of steps.
        spend: The total cost of all accepted steps.
        billed: The total charged, rejected attempts included; absent if equal to `spend`.
        topped_up_micro_usd: What people added to the budget.
        output: The output of the pipeline's code, any JSON.
        personal_data: Encrypted personal data that a child wrote, for its parent.
        handoff: A child's last handoff, which its parent's next one follows.
    """

    task_id: str
    baton: dict[str, Json]
    steps: Integer = Field(ge=0)
    spend: Spend = Spend()
    billed: Spend | None = None
    topped_up_micro_usd: Integer = Field(default=0, ge=0)
    output: Json = None
    personal_data: dict[str, JsonValue] = Field(default_factory=dict)
    handoff: ChildHandoff | None = None
    __baton_has_output__: ClassVar[bool] = True

    @overload
    def final_baton(self) -> Baton: ...
    @overload
    def final_baton(self, kind: type[BatonT]) -> BatonT: ...
    def final_baton(self, kind: type[Baton] = Baton) -> Baton:
        """Return the final baton as a record of type ``kind``."""
        return kind.from_json_object(self.baton)

    def output_as(self, kind: type[T]) -> T:
        """Return the output as a value of a type, as `StageResult.output_as` does."""
        return convert(self.output, kind, "the output")


def item_name(name: str, item: int | None) -> str:
    """Return the name of an item of a map, or without an item the name of the step."""
    return name if item is None else f"{name} {item}"


class StageInput(CompactRecord):
    """The input of a stage's activity.

    Attributes:
        stage: The stage's name.
        seq: The step's number.
        task_id: The task's id.
        baton: The part of the baton that the stage may read.
        earlier_decisions: The number of decisions before those in `baton`.
        attempt: The attempt, from 1; a rejected patch leads to the next.
        findings: Why the previous attempt was rejected.
        params: The pipeline's parameters.
        inputs: The inputs by name, as `encode_inputs` returns them.
        authors: The stage or child that answered an input, by the input's name.
        branch: True in a fan-out, where the merge makes the change and not the branch.
        after: How many steps had ended when it was sent; identifies the baton it was made from.
        released: Texts that a person released although the safety scan rejects them: digest to reviewer.
        personal_data: Encrypted personal data of the handoff; only for a stage that declares some.
        turns: The newest turns of the conversation, verbatim.
        summary: The summary of the older turns; empty if nothing was compressed.
        older: The artifacts with older turns that the summary refers to.
        contract: What its agent may see and do, in a pipeline with contracts.
        tool_limits: What the pipelines above this one let it call.
        requester: Who the run works for.
        left_out: The session events that the contract leaves out and earlier messages did not name: event id to label.
        handoff_id: The handoff that brought it, if any.
        stream: Whether people watch its output while it works.
        steer: Whether people may send its agent notes while it works.
        report: The handoff report of the step before, as Markdown; empty if it did not report.
        on_report: What happens if its own report is not ready.
        step_name: The step's name, if the pipeline's code gave it another than the stage's.
        item: In a map, the number of its item, from 1.
        lab: In the lab, how it runs without effects.
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
    authors: dict[str, Name] = Field(default_factory=dict)
    branch: bool = False
    after: Integer = Field(default=0, ge=0)
    released: dict[str, str] = Field(default_factory=dict)
    personal_data: dict[str, JsonValue] = Field(default_factory=dict)
    turns: list[dict[str, JsonValue]] = Field(default_factory=list)
    summary: str = ""
    older: list[ArtifactRef] = Field(default_factory=list)
    contract: dict[str, JsonValue] | None = None
    tool_limits: ToolLimits | None = None
    requester: Requester | None = None
    left_out: dict[str, str] = Field(default_factory=dict)
    handoff_id: str = ""
    stream: bool = False
    steer: bool = False
    report: str = ""
    on_report: OnReport = Field(default=OnReport.STOP, strict=False)
    step_name: str = ""
    item: Place | None = None
    lab: LabTerms | None = None

    @property
    def title(self) -> str:
        """The name of the step, or of the branch or item that it is."""
        return item_name(self.step_name or self.stage, self.item)

    def step(self) -> dict[str, JsonValue]:
        """Return the `step` member of a handoff: everything that has no other member there."""
        elsewhere = {"stage", "task_id", "baton", "personal_data", "turns", "summary", "handoff_id"}
        members: dict[str, JsonValue] = self.model_dump(mode="json", exclude=elsewhere)
        return members


class MissingPart(CompactRecord):
    """The input of the activity that waits for a worker with a missing part, or for an artifact.

    Attributes:
        tries: How often the stage ran before.
        artifact: The hash of the artifact that the store has lost, if that is what is missing.
    """

    stage: str
    seq: Integer
    text: str
    tries: Integer = 0
    artifact: Sha256Hex | None = None


class Selected(CompactRecord):
    """Why an artifact was included in a stage's prompt, or left out.

    Attributes:
        id: The artifact's id.
        included: Whether its content was included.
        reason: Why, or why not.
        tokens: The tokens of its content.
    """

    id: str
    included: bool
    reason: str
    tokens: Integer = Field(default=0, ge=0)


class PromptPart(CompactRecord):
    """One part of an agent's prompt.

    Attributes:
        name: The part: `"baton"`, `"contract"`, `"input draft"`, …
        tokens: The tokens of the complete part.
        shown: The tokens shown.
        why: What was left out; empty if complete.
    """

    name: str
    tokens: Integer = Field(ge=0)
    shown: Integer = Field(ge=0)
    why: str = ""


class StageReturn(CompactRecord):
    """The result of a stage's activity; a rejected patch is a result, not an exception.

    Attributes:
        stage: The stage's name.
        seq: The step's number.
        attempt: The attempt, from 1.
        baton_patch: The patch exactly as the stage returned it.
        findings: Why the patch is rejected; empty if it is accepted.
        output: The stage's output for the pipeline's code.
        spend: The cost of the stage.
        models: The part of the cost of each model, if known.
        tools: Of that, what was charged inside a tool: by tool, then by model.
        tokens_read: The tokens of its prompt, 0 if it did not ask for one.
        prompt: The parts of the prompt, and what was left out of each.
        selected: Which artifacts the prompt included, and why.
        branch: True if it ran in a fan-out.
        after: How many steps had ended when it was sent.
        seconds: How long it ran, rounded, as measured by its worker.
        verdict: Why the worker rejected the handoff and did not run the stage; absent if it was accepted.
        anchor: The head of the task's audit chain after the result was recorded.
        personal_data: The encrypted personal data that it wrote, to hand on.
        warnings: What is unusual about it but allowed, for its history entry.
        turns: The turns of its conversation, to hand on.
        tool_calls: Its tool calls, to hand on.
        events: The session events that it recorded, for the contracts of later stages.
        journal: The artifact with the transcript of its agents, and the texts that its events leave out.
        streamed: Its output while it worked, if people watched it.
        steered: The notes of people that its agent was shown.
        report: What its handoff report says in brief, if it answered with one.
        step_name: The step's name, as in the input.
        item: The number of its item, as in the input.
        lab: In the lab, what became of its tool calls, its time and its prompt.
    """

    stage: Name
    seq: Integer = Field(ge=1)
    attempt: Integer = Field(default=1, ge=1)
    baton_patch: dict[str, JsonValue] = Field(default_factory=dict)
    findings: list[str] = Field(default_factory=list)
    output: JsonValue = None
    spend: Spend = Spend()
    models: dict[Name, Spend] = Field(default_factory=dict, max_length=100)
    tools: dict[Name, dict[Name, Spend]] = Field(default_factory=dict, max_length=100)
    tokens_read: Integer = Field(default=0, ge=0)
    prompt: list[PromptPart] = Field(default_factory=list)
    selected: list[Selected] = Field(default_factory=list)
    branch: bool = False
    after: Integer = Field(default=0, ge=0)
    seconds: Integer = Field(default=0, ge=0)
    verdict: Verdict | None = None
    anchor: str | None = None
    personal_data: dict[str, JsonValue] | None = None
    warnings: list[str] = Field(default_factory=list)
    turns: list[dict[str, JsonValue]] = Field(default_factory=list)
    tool_calls: list[dict[str, JsonValue]] = Field(default_factory=list)
    events: list[dict[str, JsonValue]] = Field(default_factory=list)
    journal: str | None = None
    streamed: list[dict[str, JsonValue]] = Field(default_factory=list)
    steered: list[SteeringNote] = Field(default_factory=list)
    report: Reported | None = None
    step_name: str = ""
    item: Place | None = None
    lab: LabReport | None = None

    @property
    def title(self) -> str:
        """The name of the step, or of the branch or item that it is."""
        return item_name(self.step_name or self.stage, self.item)

    def answers(self, message: StageInput) -> bool:
        """Return whether it is the result of a step's input."""
        return (self.seq, self.title) == (message.seq, message.title)

    @classmethod
    def for_input(cls, message: StageInput, **members: Any) -> Self:
        """Return the result for a stage's input."""
        names = ("stage", "seq", "attempt", "branch", "after", "step_name", "item")
        copied = {name: getattr(message, name) for name in names}
        return cls(**copied, **members)


class StageResult(CompactRecord):
    """The result of a stage: what a stage function may return instead of a patch, and what `Pipeline.stage` returns.

    Attributes:
        baton_patch: The change to the baton; `{}` is legal.
        output: A result for the pipeline's code, as JSON or a pydantic model, which is kept as JSON.
        spend: The cost of the stage.
        turns: Conversation for the next stages, each `{"role": …, "content": …}`; compressed when it grows too long.
        tool_calls: Tool calls, each as an item of a handoff's `toolCallHistory`.
        report: A handoff report in markdown instead of a patch; parsed strictly, and an error leads to another
            attempt.
        warnings: What is unusual about it but allowed, for its history entry.

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
    warnings: list[str] = Field(default_factory=list)
    __baton_has_output__: ClassVar[bool] = True

    @field_validator("output", mode="before")
    @classmethod
    def _model_as_json(cls, output: Any) -> Any:
        return output.model_dump(mode="json", by_alias=True) if isinstance(output, BaseModel) else output

    def output_as(self, kind: type[T]) -> T:
        """Return the output as a value of a type that pydantic can parse, such as a model.

        Raises:
            InputError: It does not fit the type.

        Example:
            >>> StageResult(output={"passed": 12}).output_as(dict[str, int])
            {'passed': 12}
        """
        return convert(self.output, kind, "the output")


_VALUES: Mapping[StepKind, type[BaseModel]] = {StepKind.APPROVAL: Settled, StepKind.CHILD: PipelineResult}
"""The form of an outcome's value, by the kind of its step; that of other kinds is the pipeline's own."""


def _check_step(outcome: Outcome) -> None:
    """Raise pydantic's ValidationError if a recorded step is malformed where others than its owner use it."""
    check_outcome(outcome)
    if outcome.failure is None and (form := _VALUES.get(outcome.kind)) is not None:
        form.model_validate(outcome.value, strict=False)
