"""What a running pipeline can be asked, and what it can be told besides decisions."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from baton.budget.workflow import BudgetAccount
from baton.core.messages import Overview, PipelineInput, RollBacks, RolledBack, Waiting
from baton.core.patching import patch_effect
from baton.core.state import PipelineState
from baton.errors import PatchError, StageFailedError
from baton.handoff.pending import PendingHandoff
from baton.pipelines.workflow_approvals import Approvals
from baton.pipelines.workflow_visibility import Visibility, untyped_handler
from baton.telemetry.metrics import ROLLBACKS, Metrics
from baton.wire.names import (
    FIRST_SEED,
    QUERY_BATON,
    QUERY_CHECK_PATCH,
    QUERY_DETAILS,
    QUERY_HISTORY,
    QUERY_STATUS,
    QUERY_WAITING,
    ROLLED_BACK,
)
from baton.wire.text import single_line

_NOTES_KEPT = 50
_LONGEST_ID = 200
_LONGEST_NOTE = 2_000  # characters; all of them travel in one answer to a query, and into the next run


@dataclass(frozen=True)
class Intervention:
    """A roll-back or a fork, as who made it told the run.

    Attributes:
        action: `"ROLL_BACK"` or `"FORK"`.
        id: Names it.
        step: The step that runs again first.
        from_run_id: The run that was left.
        who: Who says to have decided it.
        why: The reason.
    """

    action: str
    id: str
    step: str
    from_run_id: str
    who: str
    why: str


class RunHandlers:
    """The handlers of a pipeline: its queries, its notes for operators, and what is under way.

    Attributes:
        under_way: What the pipeline waits for now, by step number.
        approvals: The open approvals.
        visibility: What the Temporal UI shows.
        notes: What operators should know, the newest last.
        steps: How many steps the code has asked for.
        interventions: Roll-backs and forks that are not on record yet.
        pending_handoffs: Returns the handoffs that wait for a person.
        roll_backs: Tells of them in a run that was reset.
        defer_continue_as_new: How many blocks are under way that continuing as new may not break.
    """

    def __init__(self, state: PipelineState, task_id: str, account: BudgetAccount) -> None:
        self._state = state
        self._task_id = task_id
        self._account = account
        self.under_way: dict[int, Waiting] = {}
        self.notes: list[str] = []
        self._roll_backs: list[RolledBack] = []
        self.interventions: list[Intervention] = []
        self.pending_handoffs: Callable[[], Sequence[PendingHandoff]] = tuple
        self.roll_backs = RollBackReader(self.rolled_back)
        self.steps = 0
        self.defer_continue_as_new = 0
        self.visibility = Visibility()
        self.approvals = Approvals(lambda: self._state.baton.digest, self.note)
        self.metrics.begin(ROLLBACKS)
        workflow.set_query_handler(QUERY_BATON, untyped_handler(self._on_baton))
        workflow.set_query_handler(QUERY_HISTORY, untyped_handler(self._on_history))
        workflow.set_query_handler(QUERY_STATUS, untyped_handler(self._on_status))
        workflow.set_query_handler(QUERY_CHECK_PATCH, untyped_handler(self._on_check_patch))
        workflow.set_query_handler(QUERY_WAITING, untyped_handler(self._on_waiting))
        workflow.set_query_handler(QUERY_DETAILS, untyped_handler(self._on_details))

    @cached_property
    def metrics(self) -> Metrics:
        """What the pipeline counts; silent while it is replayed."""
        return Metrics(workflow.metric_meter())

    @property
    def is_quiet(self) -> bool:
        """Whether no step is under way and no approval open, and nothing would be lost between two steps."""
        return not self.defer_continue_as_new and not self.under_way and not self.approvals.waiting()

    def waiting(self) -> list[Waiting]:
        """Return what is under way or waited for, in order of the steps."""
        return sorted([*self.under_way.values(), *self.approvals.waiting()], key=lambda one: one.seq)

    def note(self, text: str) -> None:
        """Keep a note for the operators; it is shown in the status and in the details, and logged."""
        line = single_line(text[:_LONGEST_NOTE])
        workflow.logger.warning(line)
        self.notes = [*self.notes, line][-_NOTES_KEPT:]

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run's operators are to know when this one continues as new."""
        return {"notes": [*self.notes], "roll_backs": [_in_short(one) for one in self._roll_backs]}

    def rolled_back(self, told: RolledBack) -> None:
        """Charge what the part that was left had spent, and tell who rolled the run back."""
        self._account.charge_unreserved("", told.left)
        self._roll_backs = [*self._roll_backs, told][-_NOTES_KEPT:]
        id = f"rollback:{told.from_run_id[:_LONGEST_ID]}"
        self.interventions.append(Intervention("ROLL_BACK", id, told.to, told.from_run_id, told.by, told.why))
        self.note(told.note)
        if told.stopped_children:
            self.note(f"stopped children: {', '.join(told.stopped_children)}")

    def restore(self, start: PipelineInput) -> None:
        """Go on where the run before left off."""
        told: Any = start.carried.get("operators", {})
        self.notes = [*told.get("notes", [])]
        self._roll_backs = start.roll_backs
        handoffs: Any = start.carried.get("handoffs", {})
        if (origin := start.origin) is not None and not start.continued and handoffs.get("on_record"):
            id = f"fork:{workflow.info().workflow_id[:_LONGEST_ID]}"
            self.interventions.append(Intervention("FORK", id, origin.at, origin.run_id, origin.by, origin.why))

    def _on_baton(self) -> dict[str, JsonValue]:
        """The baton now, as JSON."""
        return self._state.baton.to_json_object()

    def _on_history(self, since: int = 0) -> list[dict[str, JsonValue]]:
        """The history entries, from the ``since``-th on: who changed what, and when."""
        return [entry.model_dump(mode="json") for entry in self._state.entries[since:]]

    def _on_status(self) -> Overview:
        """Status, steps, what is waited for, spend, notes."""
        return Overview(
            status=self.visibility.status,
            task_id=self._task_id,
            seq=self.steps,
            waiting_for=self.waiting(),
            spend=self._state.spend,
            billed=self._account.billed(self._state.spend),
            remaining_micro_usd=self._account.budget.remaining_micro_usd if self._account.limited else None,
            topped_up_micro_usd=self._account.budget.topped_up_micro_usd,
            digest=self._state.baton.digest,
            notes=self.notes,
        )

    def _on_waiting(self) -> list[Waiting]:
        """What is under way or waited for: stages, children, approvals with their deadlines."""
        return self.waiting()

    def _on_check_patch(self, baton: Any, patch: Any) -> list[str]:
        """What the pipeline refuses of a ``patch`` of a ``baton``, by its rules and its type: a sentence each."""
        try:
            patch_effect(type(self._state.initial).model_validate(baton), patch, self._state.rules)
        except PatchError as error:
            return error.findings
        return []

    def _on_details(self) -> str:
        """The page of the run's details: status, baton and where to roll back to, as Markdown."""
        return self.visibility.page(
            self._state,
            [*self.under_way.values()],
            self.approvals.waiting(),
            self.pending_handoffs(),
            self.notes,
            self._account.budget.own.micro_usd,
        )


def _in_short(told: RolledBack) -> dict[str, JsonValue]:
    """Return of a roll-back what later runs tell of it."""
    texts = {"to": told.to, "by": told.by, "why": told.why, "from_run_id": told.from_run_id}
    short = {name: text[:_LONGEST_NOTE] for name, text in texts.items()}
    return told.model_copy(update={**short, "stopped_children": []}).model_dump(mode="json")


_ATTEMPT = timedelta(seconds=30)
_WITHIN = timedelta(minutes=2)


class RollBackReader:
    """Reads who rolled the run back and what the abandoned part had spent, before the next step begins."""

    def __init__(self, heard: Callable[[RolledBack], None]) -> None:
        self._heard = heard
        first_seed = workflow.extern_functions().get(FIRST_SEED, workflow.random_seed)
        self._seed: int = first_seed()
        self._told = 0
        self._reading: asyncio.Task[None] | None = None

    async def known(self) -> None:
        """Return once the run knows of every time that it was reset.

        Raises:
            StageFailedError: The history of the part that was left cannot be read, so its bills are unknown.
        """
        while self._seed != workflow.random_seed():
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(workflow.random_seed()))
            await asyncio.shield(self._reading)

    async def _read(self, seed: int) -> None:
        try:
            found: RollBacks = await workflow.execute_activity(
                ROLLED_BACK,
                self._told,
                result_type=RollBacks,
                start_to_close_timeout=_ATTEMPT,
                schedule_to_close_timeout=_WITHIN,
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
                summary="bills of the part that was rolled back",
            )
        except ActivityError as error:
            why = error.cause or error
            raise StageFailedError(
                f"what the part that was rolled back had spent cannot be read: {why}. Roll the run back once its "
                "workers can read its history"
            ) from error
        for told in found.made:
            self._heard(told)
        self._told += len(found.made)
        self._seed = seed
