"""`Run`: what the parts of a running pipeline share. It answers the queries, and reads roll-backs."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from baton.budget.workflow import BudgetAccount
from baton.core.baton import Baton
from baton.core.history import Outcome
from baton.core.messages import Overview, PipelineInput, Waiting
from baton.core.past import RollBacks, RolledBack
from baton.core.patching import PatchRules, PublishedTerms
from baton.core.state import PipelineState
from baton.errors import StageFailedError
from baton.runtime.questions import ApprovedStages
from baton.runtime.workflow_input import RunInput
from baton.runtime.workflow_lab import LabVisit
from baton.runtime.workflow_questions import QuestionBoard
from baton.runtime.workflow_visibility import Visibility, untyped_handler, upsert_memo
from baton.telemetry.metrics import ROLLBACKS, Metrics
from baton.wire.json_values import Json
from baton.wire.names import (
    FIRST_SEED,
    MEMO_OUTCOME,
    MEMO_TERMS,
    QUERY_BATON,
    QUERY_DETAILS,
    QUERY_HISTORY,
    QUERY_STATUS,
    QUERY_WAITING,
    ROLLED_BACK,
)
from baton.wire.text import single_line

_MAX_NOTES = 50
_MAX_ID_LENGTH = 200
_MAX_NOTE_LENGTH = 2_000  # one query returns all notes, and the next run inherits them
MAX_AT_WORK = 500
"""How many stages and children of a run are at work at once; the server rejects the task with the 2,001st."""
_MAX_TASK_STEPS = 50  # that begin in one workflow task, which has two seconds
_MAX_TASK_BYTES = 3_000_000  # of content in one workflow task; the server ends a run whose task completes with 4 MB


@dataclass(frozen=True)
class Intervention:
    """A roll-back or a fork, by the name that the operator gave, unverified."""

    action: str
    id: str
    step: str
    from_run_id: str
    who: str
    why: str


class StepLimit:
    """Limits how many steps are at work at once, and how many steps and bytes begin in one workflow task."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_AT_WORK)
        self._beginning = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._task = 0
        self._steps = 0
        self._bytes = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the slots during the block; it begins once the current workflow task may begin a step."""
        async with self._slots:
            async with self._beginning:
                await self._wait_until(lambda: self._steps < _MAX_TASK_STEPS)
                self._steps += 1
            yield

    async def admit(self, *content: Json) -> None:
        """Wait until a message fits into the current workflow task; a single message always does.

        Args:
            *content: What the pipeline and its agents put into the message. Baton's own members do not count: a new
                one would start timers in recorded runs that had none.
        """
        size = len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        async with self._sending:
            await self._wait_until(lambda: not self._bytes or self._bytes + size <= _MAX_TASK_BYTES)
            self._bytes += size

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while True:
            task = workflow.info().get_current_history_length()
            if task != self._task:
                self._task, self._steps, self._bytes = task, 0, 0
            if condition():
                return
            await workflow.sleep(timedelta(milliseconds=1), summary="the next slice of many steps")


class Run:
    """What the parts of a run share; it answers the run's queries.

    Attributes:
        input: The run's input, which may be unusable.
        start: What it starts with, by its input.
        task_id: The task's id; the same across continued and forked runs.
        state: The baton, its history and the recorded outcomes.
        account: The budget.
        limit: How many steps are at work at once, and begin in one workflow task.
        under_way: The steps in progress, by number.
        visibility: The run's search attributes and details in the Temporal UI.
        board: The questions to people.
        approved_stages: The stages that they approved.
        lab: In the lab, what it is told there.
        notes: Notes for operators, oldest first.
        steps: How many steps the code has started.
        interventions: Roll-backs and forks that the ledger does not have yet.
        roll_backs: Reads the roll-backs of a run that was reset.
        defer_continue_as_new: How many open blocks prevent continue-as-new.
    """

    def __init__(self, start: PipelineInput, baton_type: type[Baton], rules: PatchRules) -> None:
        self.input = RunInput(start)
        self.start = self.input.start
        self.state = PipelineState(self.input.baton(baton_type), rules)
        self.task_id = self.input.task_id()
        _publish_terms(self.state)
        self.account = BudgetAccount(self.start)
        self.limit = StepLimit()
        self.under_way: dict[int, Waiting] = {}
        self.notes: list[str] = []
        self._roll_backs: list[RolledBack] = []
        self.interventions: list[Intervention] = []
        self.roll_backs = RollBackReader(self.record_roll_back)
        self.steps = 0
        self.defer_continue_as_new = 0
        self.visibility = Visibility()
        self.visibility.set_task(self.task_id)
        requester = None if self.start.requester is None else self.start.requester.id
        self.board = QuestionBoard(lambda: self.state.baton.digest, self.note, self.visibility, requester)
        self.approved_stages = ApprovedStages()
        self.lab = None if self.start.lab is None else LabVisit(self.start.lab, self.start.recorded_count)
        self.metrics.begin(ROLLBACKS)
        workflow.set_query_handler(QUERY_BATON, untyped_handler(self._on_baton))
        workflow.set_query_handler(QUERY_HISTORY, untyped_handler(self._on_history))
        workflow.set_query_handler(QUERY_STATUS, untyped_handler(self._on_status))
        workflow.set_query_handler(QUERY_WAITING, untyped_handler(self._on_waiting))
        workflow.set_query_handler(QUERY_DETAILS, untyped_handler(self._on_details))

    @cached_property
    def metrics(self) -> Metrics:
        """The pipeline's metrics; nothing is counted during replay."""
        return Metrics(workflow.metric_meter())

    @property
    def is_idle(self) -> bool:
        """Whether the run may continue as new: no step in progress, no open question, no deferring block."""
        return not self.defer_continue_as_new and not self.under_way and not self.board.is_asking

    def for_stages(self) -> dict[str, Any]:
        """Return the members of a stage's input that are the same for all stages of the run."""
        lab = None if self.lab is None else self.lab.terms(self.account.budget.own.micro_usd)
        return {"tool_limits": self.start.tool_limits, "requester": self.start.requester, "lab": lab}

    def waiting(self) -> list[Waiting]:
        """Return the steps in progress, approvals included, in step order."""
        approvals = [
            Waiting(kind="approval", name=asked.title, seq=asked.seq, since=asked.since, until=asked.until)
            for asked in self.board.open_now()
            if asked.handoff is None
        ]
        return sorted([*self.under_way.values(), *approvals], key=lambda waiting: waiting.seq)

    def publish(self, outcome: Outcome, *, with_events: bool = False) -> None:
        """Publish an outcome in the memo, for readers without a worker; the history has a stage's events elsewhere."""
        bare = outcome.model_copy(update={"events": []}) if outcome.events and not with_events else outcome
        upsert_memo({MEMO_OUTCOME: bare})

    def note(self, text: str) -> None:
        """Add a note for operators and log it."""
        line = single_line(text[:_MAX_NOTE_LENGTH])
        workflow.logger.warning(line)
        self.notes = [*self.notes, line][-_MAX_NOTES:]

    def carried(self) -> dict[str, JsonValue]:
        """Return the notes and roll-backs for the next run."""
        return {"notes": [*self.notes], "roll_backs": [_shorten(roll_back) for roll_back in self._roll_backs]}

    def record_roll_back(self, roll_back: RolledBack) -> None:
        """Charge the cost of the abandoned part, credit its top-ups, and note who rolled the run back."""
        self.account.charge_unreserved("", roll_back.left)
        if roll_back.topped_up_micro_usd:
            self.account.top_up(roll_back.topped_up_micro_usd)
        self._roll_backs = [*self._roll_backs, roll_back][-_MAX_NOTES:]
        run_id = roll_back.from_run_id
        id = f"rollback:{run_id[:_MAX_ID_LENGTH]}"
        self.interventions.append(Intervention("ROLL_BACK", id, roll_back.to, run_id, roll_back.by, roll_back.why))
        self.note(roll_back.note)
        if roll_back.stopped_children:
            self.note(f"stopped children: {', '.join(roll_back.stopped_children)}")

    def restore(self) -> None:
        """Restore the notes and roll-backs of the previous run, and note a fork."""
        start = self.start
        operators: Any = start.carried.get("operators", {})
        self.notes = [*operators.get("notes", [])]
        self._roll_backs = start.roll_backs
        handoffs: Any = start.carried.get("handoffs", {})
        if (origin := start.origin) is not None and not start.continued and handoffs.get("on_record"):
            id = f"fork:{workflow.info().workflow_id[:_MAX_ID_LENGTH]}"
            self.interventions.append(Intervention("FORK", id, origin.at, origin.run_id, origin.by, origin.why))

    def _on_baton(self) -> dict[str, JsonValue]:
        """The current baton, as JSON."""
        return self.state.baton.to_json_object()

    def _on_history(self, since: int = 0) -> list[dict[str, JsonValue]]:
        """The history entries from index ``since``: who changed what, and when."""
        return [entry.model_dump(mode="json") for entry in self.state.entries[since:]]

    def _on_status(self) -> Overview:
        """Status, steps in progress, open questions, spend, notes."""
        return Overview(
            status=self.visibility.status,
            task_id=self.task_id,
            seq=self.steps,
            waiting_for=self.waiting(),
            questions=self.board.open_now(),
            spend=self.state.spend,
            billed=self.account.billed(self.state.spend),
            remaining_micro_usd=self.account.budget.remaining_micro_usd if self.account.limited else None,
            topped_up_micro_usd=self.account.budget.topped_up_micro_usd,
            digest=self.state.baton.digest,
            notes=self.notes,
        )

    def _on_waiting(self) -> list[Waiting]:
        """The steps in progress, approvals included, with their deadlines."""
        return self.waiting()

    def _on_details(self) -> str:
        """The run's details as Markdown: status, baton, and the events to roll back to."""
        return self.visibility.page(
            self.state,
            [*self.under_way.values()],
            self.board.open_now(),
            self.notes,
            self.account.budget.own.micro_usd,
        )


def _publish_terms(state: PipelineState) -> None:
    """Publish the baton's additional fields and its rules in the memo, for readers without the pipeline's code."""
    members = state.initial.to_json_object()
    additional = {name: members[name] for name in members if name not in Baton.FIELDS}
    terms = PublishedTerms(fields=additional, protected=sorted(state.rules.protected))
    if terms != PublishedTerms():
        workflow.upsert_memo({MEMO_TERMS: terms})


def _shorten(roll_back: RolledBack) -> dict[str, JsonValue]:
    """Return the part of a roll-back that later runs keep."""
    texts = {
        "to": roll_back.to[:_MAX_NOTE_LENGTH],
        "by": roll_back.by[:_MAX_NOTE_LENGTH],
        "why": roll_back.why[:_MAX_NOTE_LENGTH],
        "from_run_id": roll_back.from_run_id[:_MAX_NOTE_LENGTH],
    }
    return roll_back.model_copy(update={**texts, "stopped_children": []}).model_dump(mode="json")


_READ_TIMEOUT = timedelta(seconds=30)
_READ_DEADLINE = timedelta(minutes=2)


class RollBackReader:
    """Reads who rolled the run back and what the abandoned part spent, before the next step begins."""

    def __init__(self, record: Callable[[RolledBack], None]) -> None:
        self._record = record
        first_seed = workflow.extern_functions().get(FIRST_SEED, workflow.random_seed)
        self._seed: int = first_seed()
        self._count = 0
        self._reading: asyncio.Task[None] | None = None

    async def catch_up(self) -> None:
        """Record every reset of the run that is not recorded yet.

        Raises:
            StageFailedError: The history of the abandoned part cannot be read, so its cost is unknown.
        """
        while self._seed != workflow.random_seed():
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(workflow.random_seed()))
            await asyncio.shield(self._reading)

    async def _read(self, seed: int) -> None:
        try:
            new: RollBacks = await workflow.execute_activity(
                ROLLED_BACK,
                self._count,
                result_type=RollBacks,
                start_to_close_timeout=_READ_TIMEOUT,
                schedule_to_close_timeout=_READ_DEADLINE,
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
                summary="bills of the part that was rolled back",
            )
        except ActivityError as error:
            raise StageFailedError(
                f"the cost of the part that was rolled back cannot be read: {error.cause or error}. Roll the run back "
                "again when its workers can read its history"
            ) from error
        for roll_back in new.made:
            self._record(roll_back)
        self._count += len(new.made)
        self._seed = seed
