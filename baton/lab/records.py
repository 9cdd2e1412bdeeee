"""What the lab keeps: a cohort of recorded cases, a lab run's lanes, and what came of each case in each lane."""

import json
from collections.abc import Mapping
from itertools import chain, count
from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import from_json

from baton.core.history import Spend
from baton.core.lab import CallFate, LabCall, Overrides, RecordedCall, Unrecorded
from baton.core.messages import PipelineInput, StageInput
from baton.errors import BatonError
from baton.wire.json_values import canonical_json, format_digest, sha256
from baton.wire.records import Address, CompactRecord, Digest, Integer, Name, Place, Positive, Sha256Hex, Timestamp
from baton.wire.text import describe_faults

FORMAT = "baton-cohort/1"
"""The format of a cohort's file."""
RESULTS = "baton-lab-results/1"
"""The format of a file of results."""
BASELINE = "baseline"
"""The lane of today's code as it is."""

MAX_CASES = 1_000
"""The most cases of a cohort."""
MAX_ITEMS = 10_000
"""The most runs of a lab run: cases times lanes times repetitions."""
MAX_BYTES = 8_000_000
"""The most bytes of a lab run's cases, as JSON."""
_MAX_LANES = 20
_YEAR = 366 * 24 * 3_600.0  # seconds
_TERMS: Mapping[str, tuple[float, float]] = {
    **{"timeout": (0.001, _YEAR), "heartbeat": (0, _YEAR), "first": (0.001, _YEAR), "longest": (0.001, _YEAR)},
    **{"tries": (0, 10_000), "factor": (1, 1_000), "attempts": (1, 100)},
}

Pointer = Annotated[str, Field(pattern=r"^(/.*)?$")]
"""A JSON pointer into what a stage returned: `/output/…` or `/baton_patch/…`."""


class LabError(BatonError):
    """A cohort, its results or a lab run cannot be used. Do what the message says."""


class Source(CompactRecord):
    """Where a case comes from: the run, the step's number, when the stage began, and the task."""

    workflow_id: str
    run_id: str
    pipeline: str
    seq: Place
    at: Timestamp
    task_id: str = ""


class Terms(CompactRecord):
    """How the stage was scheduled, times in seconds.

    Attributes:
        task_queue: The task queue of its workers.
        timeout: The longest time of a try.
        heartbeat: The heartbeat timeout; 0 for none.
        tries: The most tries when it raises; 0 for no limit.
        first: The pause before the second try.
        factor: The factor by which each pause grows.
        longest: The longest pause.
        attempts: The most attempts when its patches are rejected.
    """

    task_queue: Address
    timeout: float = 600.0
    heartbeat: float = 0.0
    tries: Integer = 1
    first: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    attempts: Integer = 3

    @field_validator(*_TERMS)
    @classmethod
    def _check(cls, value: float, info: ValidationInfo) -> float:
        least, most = _TERMS[info.field_name or ""]
        if not least <= value <= most:
            raise ValueError(f"it is {value:g}; expected {least:g} to {most:g}")
        return value

    @classmethod
    def nearest(cls, task_queue: str, **terms: float) -> Self:
        """Return the terms that a case may have nearest to recorded ones."""
        members: Any = {name: min(max(value, _TERMS[name][0]), _TERMS[name][1]) for name, value in terms.items()}
        return cls(task_queue=task_queue, **members)


class Outcome(CompactRecord):
    """What came of a stage, recorded or in the lab.

    Attributes:
        baton_patch: The patch as the stage returned it.
        output: Its output.
        spend: The cost of all attempts.
        milliseconds: The time of all attempts, by the worker; of a recorded one, by the server.
        attempts: How often it was attempted.
        findings: Why attempts were rejected, in order.
        refused: The code of the gate's verdict if the handoff was rejected, such as `SAFETY_VIOLATION`.
        failure: Why it failed; empty if it did not.
        calls: Its tool calls in the lab.
        prompt: The artifact with its last prompt, of one stage.
        prompts: Of several, the same of each step.
    """

    baton_patch: dict[str, JsonValue] = Field(default_factory=dict)
    output: JsonValue = None
    spend: Spend = Spend()
    milliseconds: Integer = 0
    attempts: Integer = 1
    findings: list[str] = Field(default_factory=list)
    refused: str = ""
    failure: str = ""
    calls: list[LabCall] = Field(default_factory=list)
    prompt: Sha256Hex | None = None
    prompts: dict[str, Sha256Hex] = Field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The tokens that models read and wrote."""
        return self.spend.tokens

    @property
    def failed(self) -> str:
        """Why there is no result; empty if there is one."""
        return self.failure or self.refused

    @property
    def asked(self) -> LabCall | None:
        """The call whose answer the lab asks for, if that ended it."""
        return next((call for call in self.calls if call.how is CallFate.ASKED), None)


class Should(CompactRecord):
    """What a case should have come to: each value at its pointer, equal to what is there.

    Attributes:
        values: The expected values, by pointers into the outcome.
        why: Why, for people.
    """

    values: dict[Pointer, JsonValue] = Field(min_length=1)
    why: str = ""


class Case(CompactRecord):
    """One stage of one recorded run, or several in a row, or the whole run.

    Attributes:
        id: The case's name, unique in its cohort.
        source: Where it comes from.
        stage: The stage; of several, the pipeline.
        given: Its input at the first attempt; of several, that of the pipeline, with the steps before the first and
            people's answers. Personal data is sealed as in the run, or dropped where its stage keeps no transcript.
        terms: How it was scheduled.
        recorded: What it came to.
        tool_calls: Its recorded tool calls.
        dropped: What the file leaves out, in words.
        should: What it should have come to, of a run that went wrong.
        approved: Whether people approved it, of a run that asked them next; None if nobody was asked.
        path: Of several stages, the first and the last step, as in `decide..pay`; empty for one stage.
    """

    id: Name
    source: Source
    stage: Name
    given: dict[str, JsonValue]
    terms: Terms
    recorded: Outcome
    tool_calls: list[RecordedCall] = Field(default_factory=list)
    dropped: list[str] = Field(default_factory=list)
    should: Should | None = None
    approved: bool | None = None
    path: str = ""

    def answered(self, asked: LabCall, result: JsonValue, by: str) -> Self:
        """Return the case with a person's answer to a tool call that the record lacks."""
        call = RecordedCall(tool=asked.tool, arguments=asked.arguments, result=result, shown=asked.shown, by=by)
        return self.model_copy(update={"tool_calls": [*self.tool_calls, call]})

    @property
    def origin(self) -> tuple[object, ...]:
        """What no other recorded case has: its run, and its step or steps."""
        source, given = self.source, self.given
        return source.workflow_id, source.run_id, source.seq, self.path, given.get("step_name"), given.get("item")

    @property
    def stage_input(self) -> StageInput:
        """The stage's input as it was recorded."""
        return StageInput.model_validate(self.given, strict=False)

    @property
    def pipeline_input(self) -> PipelineInput:
        """The pipeline's input, of a case of several stages."""
        return PipelineInput.model_validate(self.given, strict=False)


class Judging(CompactRecord):
    """How outcomes are compared.

    Attributes:
        decision: Where the decision is; by default it is what the agent noted as decided, without its reasons.
        ignore: Pointers into the output that are not compared.
        tolerance: By pointer into the output, how far a number may be off.
    """

    decision: Pointer | None = None
    ignore: list[Pointer] = Field(default_factory=list)
    tolerance: dict[Pointer, float] = Field(default_factory=dict)


class Cohort(CompactRecord):
    """Recorded cases that can be run again, as one file that can be committed.

    Attributes:
        name: Its name.
        cases: The cases.
        judging: How outcomes are compared.
        artifacts: The bytes that the cases refer to, in base64 by SHA-256, in a packed cohort.

    Example:
        >>> Cohort(name="refunds").digest[:7]
        'sha256:'
    """

    name: Name
    cases: list[Case] = Field(default_factory=list, max_length=MAX_CASES)
    judging: Judging = Judging()
    artifacts: dict[Sha256Hex, str] = Field(default_factory=dict)
    format: str = FORMAT

    @property
    def digest(self) -> str:
        """The digest of what is run: the cases and how they are judged."""
        judged = [self.judging.to_json_object(), *(case.to_json_object() for case in self.cases)]
        return format_digest(sha256(canonical_json(judged)))

    @property
    def stages(self) -> list[str]:
        """The stages of its cases; a candidate may change one of them alone."""
        called = {call.stage for case in self.cases for call in case.tool_calls if call.is_stage}
        return sorted(called | {case.stage for case in self.cases if not case.path})

    def case(self, id: str) -> Case:
        """Return a case.

        Raises:
            LabError: There is none of this name.
        """
        found = [case for case in self.cases if case.id == id]
        if not found:
            names = ", ".join(case.id for case in self.cases[:20]) or "none"
            raise LabError(f"cohort {self.name!r} has no case {id!r}; it has {names}")
        return found[0]

    def with_cases(self, cases: list[Case]) -> Self:
        """Return the cohort with these cases added, in place of those of the same id and origin.

        If a case of another origin has the id, the new one is named by its step or path as well.

        Raises:
            LabError: They are too many.
        """
        by_id = {case.id: case for case in self.cases}
        for case in cases:
            step = case.path or case.given.get("step_name") or case.stage
            name = f"{case.source.workflow_id}.{step}"[-190:]
            ids = chain([case.id, name], (f"{name}.{nth}" for nth in count(2)))
            id = next(id for id in ids if id not in by_id or by_id[id].origin == case.origin)
            by_id[id] = case.model_copy(update={"id": id})
        if len(by_id) > MAX_CASES:
            raise LabError(f"cohort {self.name!r} would have {len(by_id):,} cases; at most {MAX_CASES:,}: make several")
        return self.model_copy(update={"cases": [*by_id.values()]})

    def to_bytes(self) -> bytes:
        """Return the file's content, with a line for each case."""
        return _lines({"format": FORMAT, "digest": self.digest, **self.to_json_object()})

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Read a file's content.

        Raises:
            LabError: It is not a cohort, or its cases were changed without its digest.
        """
        members = _read_object(data, FORMAT, name)
        stated = members.pop("digest", None)
        cohort: Self = _validate(cls, members, name)
        try:
            found = cohort.digest
        except ValueError as error:
            raise LabError(f"{name} is damaged: {error}") from error
        if stated != found:
            raise LabError(f"{name} was changed without its digest; use `baton lab add` or `answer`, or make it again")
        return cohort


class Lane(CompactRecord):
    """One way to run the cases: the baseline, or a candidate.

    Attributes:
        name: Its name in tables.
        overrides: What it changes.
        task_queue: The task queue of its workers, if they are others than the recorded ones.
    """

    name: Name
    overrides: Overrides = Overrides()
    task_queue: Address | None = None


class LabOptions(CompactRecord):
    """How a lab run goes.

    Attributes:
        repeat: How often each lane runs each case.
        parallel: How many stages run at once.
        budget_micro_usd: What the lab run may cost, in millionths of a US dollar; it then ends, and says what is left.
            No run of a case costs more than what is left, and one that would is not judged.
        case_micro_usd: What each run of a case may cost.
        unrecorded: What becomes of tool calls that the record has no answer to.
        allow: Stages that run although their code is not held back: of no agent, or of an agent of unknown code.
        task_queue: The task queue of the baseline's workers; by default the recorded one of each case.
    """

    repeat: Integer = Field(default=1, ge=1, le=100)
    parallel: Integer = Field(default=8, ge=1, le=1_000)
    budget_micro_usd: Integer | None = Field(default=None, ge=0)
    case_micro_usd: Positive | None = None
    unrecorded: Unrecorded = Field(default=Unrecorded.REFUSE, strict=False)
    allow: list[Name] = Field(default_factory=list)
    task_queue: Address | None = None


class LabStart(CompactRecord):
    """The input of a lab run: the cases without what they came to, and by case the artifact with its tool calls.

    A run that continued as new has what came of the items so far in `done`.
    """

    digest: Digest
    cases: list[Case] = Field(max_length=MAX_CASES)
    answers: dict[Name, Sha256Hex] = Field(default_factory=dict)
    lanes: list[Lane] = Field(min_length=1, max_length=_MAX_LANES)
    options: LabOptions = LabOptions()
    done: list["Ran"] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        count = len(self.cases) * len(self.lanes) * self.options.repeat
        if count > MAX_ITEMS:
            raise ValueError(f"it would have {count:,} runs; at most {MAX_ITEMS:,}: repeat less, or make several")
        return self

    @property
    def items(self) -> list[tuple[int, int, int]]:
        """What is to run: case, repeat and lane, the lanes of a case one after another."""
        lanes, repeats = range(len(self.lanes)), range(self.options.repeat)
        return [(case, nth, lane) for case in range(len(self.cases)) for nth in repeats for lane in lanes]


def path_id(lab_run: str, item: int) -> str:
    """Return the workflow in which a lab run runs an item of several stages."""
    return f"{lab_run}.{item}"


class Ran(CompactRecord):
    """What came of one item, by its place in `LabStart.items`.

    Attributes:
        item: The item.
        outcome: What came of it; None if the budget did not allow it, or ended it.
        spend: What it cost, to its end by the budget.
    """

    item: Integer
    outcome: Outcome | None = None
    spend: Spend = Spend()


class Sample(CompactRecord):
    """What came of a case in a lane, each time."""

    case: Name
    lane: Name
    outcomes: list[Outcome] = Field(default_factory=list)


class Figure(CompactRecord):
    """What the gate saw of a lane in one lab run: in how many runs the decision was the same, also in the baseline."""

    at: Timestamp
    lane: Name
    same: Integer
    count: Integer
    base_same: Integer
    base_count: Integer
    micro_usd: Integer | None = 0
    refused: bool = False


class Results(CompactRecord):
    """What came of a lab run, as one file beside its cohort.

    Attributes:
        cohort: The cohort's name.
        digest: The cohort's digest.
        workflow_id: The lab run.
        at: When it ended.
        repeat: How often each lane ran each case.
        lanes: The lanes, the baseline first.
        samples: What came of each case in each lane.
        unrun: How many items the budget did not allow, or ended.
        spend: What the lab run cost.
        figures: What the gate saw of this lab run and those before it, in order.
    """

    cohort: Name
    digest: Digest
    workflow_id: str
    at: Timestamp
    repeat: Integer
    lanes: list[Lane]
    samples: list[Sample]
    unrun: Integer = 0
    spend: Spend = Spend()
    figures: list[Figure] = Field(default_factory=list)
    format: str = RESULTS

    def outcomes(self, case: str, lane: str) -> list[Outcome]:
        """Return what came of a case in a lane, each time."""
        found = (sample.outcomes for sample in self.samples if (sample.case, sample.lane) == (case, lane))
        return [outcome for outcomes in found for outcome in outcomes]

    def prompts(self, case: Case, lane: str) -> dict[str, str]:
        """Return the artifact with a lane's prompt by stage or step; of several runs that of the first that has one."""
        found: dict[str, str] = {}
        for outcome in reversed(self.outcomes(case.id, lane)):
            found |= outcome.prompts or ({case.stage: outcome.prompt} if outcome.prompt else {})
        return found

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return _lines({"format": RESULTS, **self.to_json_object()})

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Read a file's content.

        Raises:
            LabError: It is not a file of results.
        """
        results: Self = _validate(cls, _read_object(data, RESULTS, name), name)
        return results


def _lines(members: dict[str, Any]) -> bytes:
    """Return an object as JSON with a line for each item of its lists, so that a changed case is a changed line."""
    lines = []
    for name, value in members.items():
        text = _plain(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(_plain, value)) + "\n ]"
        lines.append(f' "{name}": {text}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # members keep their order, as models saw it


def _read_object(data: bytes, form: str, name: str) -> dict[str, Any]:
    try:
        members = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise LabError(f"{name} is not JSON: {error}") from error
    if not isinstance(members, dict) or members.get("format") != form:
        raise LabError(f"{name} is not a file of the format {form!r}")
    return members


def _validate(kind: type[Any], members: dict[str, Any], name: str) -> Any:
    try:
        return kind.model_validate(members, strict=False)
    except ValidationError as error:
        raise LabError(f"{name} is damaged: {describe_faults(error)}") from error
