"""Where a value of a run comes from: back over agents, facts, tools, models, costs and people to the sources.

It is read from histories alone: the run's, those of its children, and of the run that it continues or forks. What code
of the pipeline computed has no record; there equal values are looked for, and a reason says that it is not sure.
"""

import functools
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from baton.contract.records import EventType, Fact, HandoffContract, SessionEvent
from baton.core.history import HistoryEntry, Outcome, Spend, StepKind
from baton.core.messages import StageInput
from baton.core.questions import Settled
from baton.errors import HistoryError
from baton.runs.client_index import IndexedRun, ValuePlace, elements_of
from baton.runs.client_paths import Keys, ValuePath, inner_path, parse_path
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.wire.json_values import JsonFields
from baton.wire.money import format_cost
from baton.wire.text import cut_line

MAX_REASONS = 500
"""The most reasons that are listed; the nearest ones first."""

_MAX_RUNS = 20  # whose histories are read
_MAX_MEMBERS = 50  # of an object or list, each traced by itself
_MAX_LENGTH = 200
_PAUSES = (StepKind.APPROVAL, StepKind.SLEEP)


class ReasonKind(StrEnum):
    """What a reason is."""

    VALUE = "value"
    STEP = "step"
    TOOL = "tool"
    FACT = "fact"
    MESSAGE = "message"
    APPROVAL = "approval"
    EDIT = "edit"
    START = "start"
    CODE = "code"


class Found(StrEnum):
    """How a reason was found."""

    RECORDED = "record"
    EQUAL = "an equal value"
    ALIKE = "a part of its text"


@dataclass(frozen=True)
class Reason(JsonFields):
    """One thing that a value rests on.

    Attributes:
        id: Its name in this answer.
        kind: What it is: a value, a step with its agent, the result of a tool, a fact, what a person said, a person's
            approval or edit, what the run was started with, or the pipeline's code.
        text: One line.
        because: The ids of what it rests on in turn; empty for a source.
        found: How what it rests on was found: by the record, by an equal value, or by a text that one has of the other.
        who: The agent or the person.
        why: A person's reason.
        at: When it happened; for a tool's result, when the data was retrieved.
        confidence: The confidence in a fact.
        spend: The cost of a step.
        models: The part of each model, if known.
        workflow_id: The run that has it.
        run_id: Likewise.
        seq: The number of its step.
    """

    id: str
    kind: ReasonKind
    text: str
    because: list[str] = field(default_factory=list)
    found: Found = Found.RECORDED
    who: str = ""
    why: str = ""
    at: datetime | None = None
    confidence: str = ""
    spend: Spend = field(default_factory=Spend)
    models: dict[str, Spend] = field(default_factory=dict)
    workflow_id: str = ""
    run_id: str = ""
    seq: int | None = None

    @property
    def remarks(self) -> list[str]:
        """What else is known of it: who and why, the models, the cost, the confidence."""
        return [
            *([f"by {self.who}" + (f": “{self.why}”" if self.why else "")] if self.who else []),
            *([", ".join(self.models)] if self.models else []),
            *([format_cost(self.spend.micro_usd, self.spend.tokens)] if self.spend else []),
            *([f"{self.confidence} confidence"] if self.confidence else []),
            *([] if self.found is Found.RECORDED else [f"found by {self.found.value}"]),
        ]


@dataclass(frozen=True)
class Provenance(JsonFields):
    """Where a value comes from.

    Attributes:
        workflow_id: The run that was asked.
        run_id: Likewise.
        path: What was asked.
        reasons: The value itself, then what it rests on, the nearest first.
        more: How many further reasons are left out.
    """

    workflow_id: str
    run_id: str
    path: str
    reasons: list[Reason]
    more: int = 0

    def tree(self) -> Iterator[tuple[int, Reason, bool]]:
        """Yield the reasons as a tree: the depth, the reason, and whether what it rests on was yielded before."""
        by_id, told = {reason.id: reason for reason in self.reasons}, set[str]()
        pending = [(0, self.reasons[0].id)]
        while pending:
            depth, id = pending.pop()
            reason = by_id[id]
            yield depth, reason, id in told and bool(reason.because)
            if id not in told:
                told.add(id)
                pending += [(depth + 1, below) for below in reversed(reason.because)]


async def why(client: Client, workflow_id: str, path: str, *, run_id: str | None = None) -> Provenance:
    """Return where a value of a run comes from.

    Args:
        client: A connected client.
        workflow_id: The run.
        path: `output` or a part of it (`output.items[0].price`), a field of the baton or a part of it
            (`decision_log[2]`), a step's answer (`quote.output`), the id of an artifact, the title of an approval, or
            words of an entry of the baton.
        run_id: Which of its runs; the newest by default.

    Raises:
        HistoryError: The run has no such value; the message says what it has.
        temporalio.service.RPCError: The run does not exist, or the server is unreachable.
    """
    run = await read_run(client, workflow_id, run_id)
    return await _Tracer(client, run).trace(path)


_Made = Reason | Awaitable[Reason]


def _shown(value: Any) -> str:
    return cut_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _MAX_LENGTH)


class _Tracer:
    """Follows a value back, breadth first, so that the nearest reasons are listed if there are too many."""

    def __init__(self, client: Client, run: RunRecord) -> None:
        self._client = client
        self._first = IndexedRun(run, "")
        self._runs: dict[str, IndexedRun | None] = {run.workflow_id: self._first}
        self._known: set[str] = set()
        self._pending: deque[Callable[[], _Made]] = deque()
        self._more: set[str] = set()

    async def trace(self, path: str) -> Provenance:
        """Return where a value comes from."""
        run = self._first.record
        self._start(parse_path(run, path))
        reasons: list[Reason] = []
        while self._pending:
            made = self._pending.popleft()()
            reason = made if isinstance(made, Reason) else await made
            reasons.append(replace(reason, because=[*dict.fromkeys(filter(None, reason.because))]))
        return Provenance(run.workflow_id, run.run_id, path, reasons, len(self._more))

    def _start(self, at: ValuePath) -> None:
        if at.question is not None:
            self._approval(self._first, at.question)
        elif at.field:
            self._field(self._first, at.title, at.field, at.keys, at.value, approvals=True)
        elif at.step is not None:
            index = next(index for index, outcome in enumerate(self._first.outcomes) if outcome.seq == at.step)
            self._answer(self._first, at.title, at.value, ValuePlace(index, at.keys))
        else:
            self._value(self._first, at.title, at.value, at.keys[-1:], approvals=True)

    def _add(self, run: IndexedRun, id: str, make: Callable[[str], _Made]) -> str:
        """Note a reason that is made later, and return its id; an empty one if there are too many."""
        id = f"{run.prefix}{id}"
        if id not in self._known:
            if len(self._known) >= MAX_REASONS:
                self._more.add(id)
                return ""
            self._known.add(id)
            self._pending.append(lambda: make(id))
        return id

    def _reason(
        self, run: IndexedRun, id: str, kind: ReasonKind, text: str, because: Iterable[str] = (), **more: Any
    ) -> Reason:
        record = run.record
        return Reason(id, kind, text, [*because], workflow_id=record.workflow_id, run_id=record.run_id, **more)

    def _value(
        self,
        run: IndexedRun,
        title: str,
        value: Any,
        name: Keys,
        before: int | None = None,
        *,
        approvals: bool = False,
    ) -> str:
        """Add a value that the pipeline's code made: of an equal one, of its members, or of one that it contains."""

        def make(id: str) -> Reason:
            text, found = f"{title} = {_shown(value)}", Found.EQUAL
            places = run.find(value, name, before)
            if not places and (members := _members(value)):
                because = [self._value(run, inner_path(title, key), member, (key,), before) for key, member in members]
                found = Found.RECORDED
            elif not places and (places := run.find_contained(value, before)):
                because, found = [self._source(run, place) for place in places], Found.ALIKE
            elif places:
                because = [self._source(run, place) for place in places]
            else:
                because, found = [self._code(run, before)], Found.RECORDED
            if approvals:
                because += self._approvals_after(run, max((place.index for place in places), default=-1))
            return self._reason(run, id, ReasonKind.VALUE, text, because, found=found)

        return self._add(run, title, make)

    def _answer(self, run: IndexedRun, title: str, value: Any, place: ValuePlace) -> str:
        """Add a value in the answer of a step."""

        def make(id: str) -> Reason:
            return self._reason(run, id, ReasonKind.VALUE, f"{title} = {_shown(value)}", [self._source(run, place)])

        return self._add(run, title, make)

    def _field(self, run: IndexedRun, title: str, name: str, keys: Keys, value: Any, *, approvals: bool = False) -> str:
        """Add a field of the baton or a part of it; of a whole list, each entry."""

        def make(id: str) -> Reason:
            whole: Any = run.record.baton.to_json_object().get(name)
            if isinstance(whole, list) and not keys:
                parts = [*enumerate(whole)][-_MAX_MEMBERS:]
                because = [self._field(run, inner_path(title, key), name, (key,), element) for key, element in parts]
            else:
                brought = run.brought_by(name, whole[int(keys[0])] if isinstance(whole, list) else whole)
                because = [self._entry(run, name, brought)]
                if approvals:
                    because += self._approvals_after(run, -1 if brought is None else brought[0])
            return self._reason(run, id, ReasonKind.VALUE, f"{title} = {_shown(value)}", because)

        return self._add(run, title, make)

    def _code(self, run: IndexedRun, before: int | None) -> str:
        """Add the pipeline's code: whatever it was given may be in what it made."""
        steps = run.outcomes[:before]

        def make(id: str) -> Reason:
            made = [self._step_of(run, index) for index, outcome in enumerate(steps) if outcome.kind not in _PAUSES]
            text = f"the code of the pipeline {run.record.pipeline}, which had the answers of its steps"
            return self._reason(run, id, ReasonKind.CODE, text, made)

        return self._add(run, f"code after {len(steps)} steps", make)

    def _source(self, run: IndexedRun, place: ValuePlace) -> str:
        """Add the step, or the start, that has a value."""
        if place.index >= 0:
            return self._step_of(run, place.index, place.path)
        return self._given(run, " ".join(map(str, place.path[:2])))

    def _given(self, run: IndexedRun, what: str) -> str:
        """Add what the run was started with."""

        def make(id: str) -> Reason:
            began = run.record.first_began or run.record.began
            return self._reason(run, id, ReasonKind.START, f"{what}, given when the run was started", at=began)

        return self._add(run, f"start: {what}", make)

    def _step_of(self, run: IndexedRun, index: int, path: Keys = ()) -> str:
        """Add the step of an outcome; of a fan-out the branch that a path leads into."""
        outcome = run.outcomes[index]
        branches = [entry for entry in outcome.entries if entry.kind is StepKind.BRANCH]
        if outcome.kind is StepKind.APPROVAL and isinstance(outcome.value, dict):
            return self._approval(run, Settled.model_validate(outcome.value))
        if outcome.kind is StepKind.CHILD:
            return self._child(run, index, path)
        if branches and path and isinstance(path[0], int) and path[0] < len(branches):
            return self._step(run, index, branches[path[0]])
        if branches:
            merged = [self._step(run, index, branch) for branch in branches]
            text = f"step {outcome.seq} {outcome.name}, merged"
            return self._add(
                run,
                f"step {outcome.seq} {outcome.name}",
                lambda id: self._reason(run, id, ReasonKind.STEP, text, merged, seq=outcome.seq),
            )
        return self._step(run, index, outcome.entries[-1]) if outcome.entries else ""

    def _entry(self, run: IndexedRun, name: str, found: tuple[int, HistoryEntry] | None) -> str:
        """Add the step or the person that brought something into the baton."""
        if found is None:
            return self._given(run, f"{name} of the baton")
        index, entry = found
        if entry.kind is StepKind.MERGE or entry.kind is StepKind.CHILD:
            return self._step_of(run, index)
        if entry.kind is StepKind.EDIT:
            return self._edit(run, index, entry)
        return self._step(run, index, entry)

    def _edit(self, run: IndexedRun, index: int, entry: HistoryEntry) -> str:
        text = f"an edit before step {entry.seq}" if entry.by else f"{entry.stage_id} corrected its handoff"
        who: dict[str, Any] = {"who": entry.by or "", "why": entry.why or "", "at": entry.timestamp, "seq": entry.seq}
        return self._add(run, f"edit {index}", lambda id: self._reason(run, id, ReasonKind.EDIT, text, **who))

    def _approval(self, run: IndexedRun, settled: Settled) -> str:
        voters = [vote.who for vote in settled.votes if vote.choice == settled.choice and not vote.replaced]
        text = f"{settled.title}: {settled.verb}"
        who: dict[str, Any] = {
            "who": ", ".join(dict.fromkeys(voters)) or settled.who,
            "why": settled.why,
            "at": settled.at,
        }
        return self._add(
            run, f"answer {settled.question}", lambda id: self._reason(run, id, ReasonKind.APPROVAL, text, **who)
        )

    def _approvals_after(self, run: IndexedRun, index: int) -> list[str]:
        return self._approvals(run, run.outcomes[index + 1 :])

    def _approvals(self, run: IndexedRun, outcomes: Iterable[Outcome]) -> list[str]:
        values = [outcome.value for outcome in outcomes if outcome.kind is StepKind.APPROVAL]
        return [self._approval(run, Settled.model_validate(value)) for value in values if isinstance(value, dict)]

    def _step(self, run: IndexedRun, index: int, entry: HistoryEntry) -> str:
        """Add a step: its agent with what it was given, what its tools found, and who let it begin."""
        outcome = run.outcomes[index]

        async def make(id: str) -> Reason:
            sent = await self._sent(run, index, entry)
            accepted = (result for record in run.records for _, result in record.accepted if result.seq == entry.seq)
            returned = next((result for result in accepted if result.title == entry.stage_id), None)
            own = [event for event in outcome.events if event.get("agent", entry.stage_id) in _names(entry, sent)]
            because = [
                *([] if sent is None else [*self._inputs(run, sent), *self._facts(run, sent), *self._read(run, sent)]),
                *self._results(run, own),
                *self._approvals(run, _pauses_before(run.outcomes, index)),
                *self._decisions(run, sent),
            ] or [self._given(run, f"the goal “{_shown(run.record.start.goal)}”")]  # every agent reads it
            helpers = f", with {', '.join(entry.agents)}" if entry.agents else ""
            attempt = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
            return self._reason(
                run,
                id,
                ReasonKind.STEP,
                f"step {entry.seq} {entry.stage_id}{helpers}{attempt}",
                because,
                at=entry.timestamp,
                spend=entry.spend,
                models={} if returned is None else returned.models,
                seq=entry.seq,
            )

        return self._add(run, f"step {entry.seq} {entry.stage_id}", make)

    def _child(self, run: IndexedRun, index: int, path: Keys) -> str:
        """Add the pipeline that a step ran, and what its own history says of the value."""
        outcome = run.outcomes[index]
        workflow_id = next((child for child, _, _ in run.record.children_by_step.get(outcome.seq, ())), "")

        async def make(id: str) -> Reason:
            because, child = list[str](), await self._load(workflow_id)
            if child is not None and child.record.result is not None:
                keys = path[1:] if path[:1] == ("output",) else ()
                value: Any = child.record.result.output
                for key in keys:
                    value = value[key]
                title = functools.reduce(inner_path, keys, f"{child.prefix}output")
                if value is not None:
                    because.append(self._value(child, title, value, keys[-1:], approvals=True))
                else:
                    ended = range(len(child.outcomes))
                    because += [
                        self._step_of(child, each) for each in ended if child.outcomes[each].kind not in _PAUSES
                    ]
            spend = sum((entry.spend for entry in outcome.entries), start=Spend())
            text = f"step {outcome.seq} {outcome.name}, the pipeline {workflow_id or 'of an earlier run'}"
            return self._reason(run, id, ReasonKind.STEP, text, because, spend=spend, seq=outcome.seq)

        return self._add(run, f"step {outcome.seq} {outcome.name} {path}", make)

    async def _load(self, workflow_id: str) -> IndexedRun | None:
        """Return a child's run; None if its history is gone, or too many were read."""
        if workflow_id and workflow_id not in self._runs and len(self._runs) < _MAX_RUNS:
            try:
                record = await read_run(self._client, workflow_id)
            except (RPCError, HistoryError):
                self._runs[workflow_id] = None
            else:
                self._runs[workflow_id] = IndexedRun(record, f"{workflow_id} ")
        return self._runs.get(workflow_id)

    async def _sent(self, run: IndexedRun, index: int, entry: HistoryEntry) -> StageInput | None:
        """Return what a stage was sent at last; of a restored step in a run that this one continues or forks."""
        number, restored = 0, index < len(run.record.start.outcomes)
        while True:
            if matches := _last_sent(run.records[number], entry):
                return matches[0]
            number += 1
            if number == len(run.records) and not (restored and await self._read_earlier(run)):
                return None

    async def _read_earlier(self, run: IndexedRun) -> bool:
        """Read the run that the last one read continues or forks; return whether the server has it."""
        earlier = run.records[-1].earlier
        if earlier is None or run.is_complete or len(run.records) == _MAX_RUNS:
            return False
        try:
            run.records.append(await read_run(self._client, *earlier))
        except (RPCError, HistoryError):
            run.is_complete = True
        return not run.is_complete

    def _inputs(self, run: IndexedRun, sent: StageInput) -> list[str]:
        """Add the inputs of a stage: answers of other steps, or values of the pipeline's code."""
        added = []
        for name, value in sent.inputs.items():
            author = sent.authors.get(name)
            index = _answered(run.outcomes[: sent.after], author, value) if author else None
            if index is not None:
                added.append(self._step_of(run, index))
            else:
                title = f"input {name} of step {sent.seq} {sent.title}"
                added.append(self._value(run, title, value, (name,), sent.after))
        return added

    def _facts(self, run: IndexedRun, sent: StageInput) -> list[str]:
        """Add the facts and the rules of a stage's contract, and the steps that they are from."""
        if sent.contract is None:
            return []
        contract = HandoffContract.from_json_object(sent.contract)
        facts = [self._fact(run, fact) for fact in contract.facts]
        rules = [self._event(run, rule.event_id, rule.text) for rule in contract.constraints or ()]
        indexes = [run.events[fact.event_id][1] for fact in contract.facts if fact.event_id in run.events]
        steps = [self._step_of(run, index) for index in dict.fromkeys(indexes) if index >= 0]
        return [*facts, *rules, *steps]

    def _fact(self, run: IndexedRun, fact: Fact) -> str:
        source = f"{fact.source.source} by {fact.source.method}"
        known = {"confidence": fact.confidence.value, "at": fact.source.timestamp}
        return self._event(run, fact.event_id, fact.claim, source, **known)

    def _event(self, run: IndexedRun, event_id: str, claim: str, source: str = "", **known: Any) -> str:
        """Add what an event of the session says, and what it rests on."""
        event, index = run.events.get(event_id, (None, -1))

        def make(id: str) -> Reason:
            kind = ReasonKind.FACT if event is None else _EVENT_KINDS.get(event.type, ReasonKind.FACT)
            rests_on = (event.rests_on if event else None) or ()
            because = [
                self._event(run, other, run.events[other][0].content) for other in rests_on if other in run.events
            ]
            text = f"{source if event is None else _origin_of(event)}: {_shown(claim)}"
            return self._reason(
                run,
                id,
                kind,
                text,
                because,
                who=(event.agent if event else None) or "",
                **{"at": event.at if event else None, **known},
                seq=run.outcomes[index].seq if index >= 0 else None,
            )

        return self._add(run, f"event {event_id}", make)

    def _results(self, run: IndexedRun, events: Iterable[Mapping[str, Any]]) -> list[str]:
        """Add what the tools of a stage returned to its agent."""
        return [
            self._event(run, str(event["id"]), str(event.get("content") or ""))
            for event in events
            if event.get("type") == EventType.TOOL_RESULT
        ]

    def _read(self, run: IndexedRun, sent: StageInput) -> list[str]:
        """Add who wrote what the stage read in the baton."""
        steps = []
        for name, value in sent.baton.items():
            for element in elements_of(value):
                if (found := run.brought_by(name, element, sent.after)) is not None:
                    steps.append(self._entry(run, name, found))
        return [*dict.fromkeys(steps)]

    def _decisions(self, run: IndexedRun, sent: StageInput | None) -> list[str]:
        """Add what people decided about the handoff to a stage."""
        if sent is None or not sent.handoff_id:
            return []
        decided = run.record.handoff_decisions
        return [self._approval(run, settled) for settled in decided if settled.handoff_id == sent.handoff_id]


_ORIGINS = {
    EventType.DECISION: "a decision",
    EventType.USER_MESSAGE: "a person said",
    EventType.LLM_RESPONSE: "its model said",
}


def _origin_of(event: SessionEvent) -> str:
    """Return what recorded an event, in words."""
    origin = f"tool {event.tool_name}" if event.tool_name else _ORIGINS.get(event.type, "it said")
    return f"{origin}{', which failed' * (event.success is False)}{', in an imported session' * event.imported}"


_EVENT_KINDS = {
    EventType.TOOL_RESULT: ReasonKind.TOOL,
    EventType.USER_MESSAGE: ReasonKind.MESSAGE,
}


def _last_sent(record: RunRecord, entry: HistoryEntry) -> list[StageInput]:
    return [sent for sent in record.inputs if (sent.seq, sent.title) == (entry.seq, entry.stage_id)][-1:]


def _members(value: Any) -> list[tuple[str | int, Any]]:
    """Return the first members of an object or list."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*members][:_MAX_MEMBERS]


def _names(entry: HistoryEntry, sent: StageInput | None) -> set[str]:
    """Return the names under which the agents of a stage record events."""
    return {entry.stage or entry.stage_id, *entry.agents, *([sent.stage] if sent else [])}


def _pauses_before(outcomes: list[Outcome], index: int) -> list[Outcome]:
    """Return the approvals and sleeps right before an outcome."""
    first = index
    while first and outcomes[first - 1].kind in _PAUSES:
        first -= 1
    return outcomes[first:index]


def _answered(outcomes: list[Outcome], author: str, value: Any) -> int | None:
    """Return the index of the newest outcome that a stage or child answered with a value."""
    for index in reversed(range(len(outcomes))):
        outcome = outcomes[index]
        names = {outcome.name, *(entry.stage or entry.stage_id for entry in outcome.entries)}
        answers: list[Any] = [outcome.value, *(outcome.value if isinstance(outcome.value, list) else ())]
        if isinstance(outcome.value, dict) and outcome.kind is StepKind.CHILD:
            answers.append(outcome.value.get("output"))
        if author in names and value in answers:
            return index
    return None
