"""What a stage or a pipeline is told when it runs in the lab: where answers come from, what a candidate changes.

A stage that carries `LabTerms` has no effect outside: `baton.pipelines.activity_lab` holds it back.
"""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field, JsonValue, ValidationError

from baton.core.questions import Settled
from baton.wire.json_values import Json, digest
from baton.wire.records import CompactRecord, Count, Digest, Name, Positive, Sha256Hex

LAB_RUN = "baton.lab"
"""The workflow type of a lab run; a worker executes nothing but stages for it."""
LAB = "baton_lab"
"""The member of a failure's details with the report of a stage that failed in the lab, and the header of its runs."""
LAB_STAGE = "baton.lab."
"""The name of a stage's activity in the lab begins so: a worker that cannot hold it back has no such activity."""
USED_UP = "the budget of the case is used up"
"""Why a case ends whose stages cost what it may cost."""
STAGE_CALL = "(stage)"
"""The tool of a `RecordedCall` that is a whole stage of the recorded run."""


class Unrecorded(StrEnum):
    """What becomes of a tool call that the record has no answer to."""

    REFUSE = "refuse"
    """The call is denied, and the case ends with it."""
    ASK = "ask"
    """The case ends with the question which answer the tool would have given: `baton lab answer`."""
    RUN = "run"
    """Tools declared `AgentTool.of(…, repeatable=True)` run; others are denied."""


class Overrides(CompactRecord):
    """What a candidate changes about the agent of a stage; None leaves it as the code has it.

    Attributes:
        stage: The only stage that changes, where a case has several.
        model: The model, as its framework names it; an agent that cannot take one refuses.
        prompt: The whole system prompt: the stage's instructions and the agent's own.
        instructions: The stage author's instructions alone.
        tools: The only tools that the agent may call, of those that it has.
        window: The tokens of the model's context window.
        facts: How many facts of the contract it gets, the first ones.
    """

    stage: Name | None = None
    model: str | None = None
    prompt: str | None = None
    instructions: str | None = None
    tools: list[Name] | None = None
    window: Positive | None = None
    facts: Count | None = None

    def instructions_for(self, own: str) -> str:
        """Return the instructions that a stage's author gave, or what replaces them."""
        return next((text for text in (self.prompt, self.instructions) if text is not None), own)


class LabTerms(CompactRecord):
    """How a stage runs in the lab.

    Attributes:
        answers: The artifact with the recorded calls, a list of `RecordedCall`; absent if there is none.
        unrecorded: What becomes of a call that they do not answer.
        allow: The stages that somebody named, so that they may run although their code is not held back.
        overrides: What the candidate changes.
        case_micro_usd: The most that one run may cost, in millionths of a US dollar; of several stages, all of them.
        sealed_for: The recorded task, whose personal data the input has sealed.
        hands_on: Whether later stages of the case read the artifacts that it writes, which are then kept.
    """

    answers: Sha256Hex | None = None
    unrecorded: Unrecorded = Field(default=Unrecorded.REFUSE, strict=False)
    allow: list[Name] = Field(default_factory=list)
    overrides: Overrides = Overrides()
    case_micro_usd: Positive | None = None
    sealed_for: str = ""
    hands_on: bool = False


class RecordedCall(CompactRecord):
    """A call of a tool as it was recorded, or as a person answered it for the lab.

    Attributes:
        tool: The tool; `STAGE_CALL` for a whole stage, whose result is its patch and output.
        arguments: The digest of its arguments as canonical JSON; absent for a call without any.
        result: What it returned; of a failed call the error's text.
        success: Whether it succeeded.
        shown: The arguments for people, as JSON, where the record has them.
        by: Who answered it for the lab; empty if it is from the record.
        stage: The stage that called it, where a case has several.
    """

    tool: Name
    arguments: Digest | None = None
    result: JsonValue = None
    success: bool = True
    shown: str = ""
    by: str = ""
    stage: str = ""

    @property
    def is_stage(self) -> bool:
        """Whether it is a whole stage."""
        return self.tool == STAGE_CALL


def work_digest(baton: Json, params: Json, inputs: Json) -> str:
    """Return the digest of what a stage works on: of two runs of it the same, if it was asked the same."""
    return digest({"baton": baton, "params": params, "inputs": inputs})


class LabPath(CompactRecord):
    """How a pipeline runs in the lab.

    Attributes:
        terms: How each of its stages runs.
        settled: How people answered the recorded run, in order.
        last: The step after which it ends; absent if it runs to its end.
        before_micro_usd: What the run was billed before its first step, in millionths of a US dollar.
    """

    terms: LabTerms = LabTerms()
    settled: list[Settled] = Field(default_factory=list)
    last: Name | None = None
    before_micro_usd: Count = 0


class CallFate(StrEnum):
    """What became of a tool call in the lab."""

    RECORDED = "recorded"
    """It was answered from the record."""
    RAN = "ran"
    """The tool ran, as it is declared repeatable."""
    REFUSED = "refused"
    """It was denied."""
    ASKED = "asked"
    """It ended the case with a question."""


class LabCall(CompactRecord):
    """A call of a tool in the lab, and what became of it.

    Attributes:
        tool: The tool.
        how: What became of the call.
        arguments: The digest of its arguments as canonical JSON.
        shown: The arguments for people, as JSON, unless the stage's texts are not kept.
    """

    tool: Name
    how: CallFate = Field(strict=False)
    arguments: Digest | None = None
    shown: str = ""


class LabReport(CompactRecord):
    """What a stage reports about its run in the lab.

    Attributes:
        milliseconds: How long its function took.
        calls: Its tool calls, in order.
        prompt: The artifact with the prompt, if it made one.
    """

    milliseconds: Count = 0
    calls: list[LabCall] = Field(default_factory=list)
    prompt: Sha256Hex | None = None


def find_lab_report(details: Iterable[object]) -> LabReport | None:
    """Return the report of a stage that failed in the lab, from the details of its failure, if it got so far."""
    for detail in details:
        if isinstance(detail, dict) and isinstance(detail.get(LAB), dict):
            try:
                return LabReport.model_validate(detail[LAB], strict=False)
            except ValidationError:  # another worker's
                return None
    return None
