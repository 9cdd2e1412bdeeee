"""Recorded outcomes: steps that happened in an earlier run are returned, not executed again."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from pydantic import JsonValue
from temporalio import workflow

from baton.budget.workflow import BudgetAccount
from baton.core.history import Outcome, StepKind
from baton.core.messages import PipelineInput
from baton.core.state import PipelineState
from baton.errors import OutcomeMismatchError, RecordedBatonError, StageFailedError
from baton.pipelines.workflow_start import changed_type

_PATIENCE = timedelta(seconds=10)
_SHORTEST_RUN = timedelta(seconds=1)  # continuing as new more often than once a second stalls on the server


@dataclass(frozen=True)
class ContinueAfter:
    """When a pipeline continues as new, in the middle of whatever its code is doing.

    Attributes:
        events: Length of the run's history, in events.
        bytes: Size of the run's history, in bytes.
    """

    events: int = 3_200
    bytes: int = 2_000_000


class RecordedOutcomes:
    """The outcomes a run was started with, handed out in the order in which they once happened."""

    def __init__(self, start: PipelineInput, state: PipelineState, account: BudgetAccount) -> None:
        self._start = start
        self._state = state
        self._account = account
        self._edit = start.edit
        outcomes = start.outcomes
        self._by_seq = {one.seq: one for one in outcomes if one.kind is not StepKind.EDIT}
        self._edits = {one.order: one for one in outcomes if one.kind is StepKind.EDIT}

    async def take(self, seq: int, name: str, kind: StepKind) -> Outcome | None:
        """Return the recorded outcome of a step, after taking over its effect; None if there is none."""
        self._restore_edits()
        outcome = self._by_seq.get(seq)
        if outcome is None:
            return None
        if (outcome.name, outcome.kind) != (name, kind):
            found = (
                f"step {seq} was recorded as {outcome.kind.value} {outcome.name!r}, but the code asks for "
                f"{kind.value} {name!r}; the code before this step has changed"
            )
            if self._start.continued:  # as where it does not fit the history: a release must not fail every long run
                raise workflow.NondeterminismError(
                    f"{found} since the run that this one continues: it continues once workers have code that fits"
                )
            raise OutcomeMismatchError(f"{found}, so fork at an earlier step")
        # In concurrent code, others asked for their first steps while this one ran: they ask before it continues.
        await workflow.wait_condition(lambda: True)
        if len(self._state.outcomes) != outcome.order:
            try:
                await workflow.wait_condition(lambda: len(self._state.outcomes) == outcome.order, timeout=_PATIENCE)
            except TimeoutError:
                raise OutcomeMismatchError(
                    f"step {seq} ({name!r}) was recorded as the {outcome.order + 1}. to end, but the code does not "
                    "ask for those before it; it has changed, so fork at an earlier step"
                ) from None
        self._restore(outcome)
        self._account.taken_over(outcome)
        self._restore_edits()
        if outcome.canceled:
            await workflow.wait_condition(lambda: False)  # until the code cancels it again
        if outcome.failure is not None:
            raise StageFailedError(outcome.failure)
        return outcome

    def knows(self, seq: int, name: str) -> bool:
        """Return whether a step is recorded under this name."""
        return seq in self._by_seq and self._by_seq[seq].name == name

    async def ready_to_edit(self) -> None:
        """Wait, in a run that was forked with an edit, until the recorded outcomes are used up."""

        def is_ready() -> bool:
            return self._edit is None or len(self._state.outcomes) >= len(self._start.outcomes)

        if not is_ready():
            with suppress(TimeoutError):  # then the step that comes too late says what is wrong
                await workflow.wait_condition(is_ready, timeout=_PATIENCE)

    def apply_edit(self) -> Outcome | None:
        """Apply the edit the run was forked with, once the recorded outcomes are used up."""
        if self._edit is None:
            return None
        patch, origin, self._edit = self._edit, self._start.origin, None
        by, why = (origin.by, origin.why) if origin else ("", "")
        return self._state.record_edit(patch, workflow.now(), by, why)

    async def continue_if_long(
        self, limits: ContinueAfter, task_id: str, carries: Mapping[str, Callable[[], JsonValue]]
    ) -> None:
        """Continue as new where the run's history has grown long; the next run takes up right here."""
        info = workflow.info()
        long = (
            info.get_current_history_length() >= limits.events
            or info.get_current_history_size() >= limits.bytes
            or info.is_continue_as_new_suggested()
        )
        if not long or workflow.now() - info.start_time < _SHORTEST_RUN:
            return
        # The next run would not be asked to, and would wait for ever in the step that was canceled here.
        if workflow.cancellation_reason() is not None:
            return
        await workflow.wait_condition(workflow.all_handlers_finished)
        carried = {
            "outcomes": list(self._state.outcomes),
            "edit": None,
            "task_id": task_id,
            "continued": self._start.continued + 1,
            "carried": {
                **{name: carry() for name, carry in carries.items()},
                **self._account.carried(self._state.outcomes),
            },
            "budget": self._account.budget if self._account.limited else None,
        }
        workflow.continue_as_new(self._start.model_copy(update=carried))

    def _restore_edits(self) -> None:
        """Take over the edits that came next."""
        while edit := self._edits.pop(len(self._state.outcomes), None):
            self._restore(edit)

    def _restore(self, outcome: Outcome) -> None:
        """Take over a recorded outcome."""
        try:
            self._state.restore(outcome)
        except RecordedBatonError as error:
            if self._start.continued:
                raise changed_type(type(self._state.initial), str(error)) from None
            raise OutcomeMismatchError(
                f"the baton that step {outcome.seq} ({outcome.name!r}) left does not fit the code's type: {error}. "
                "Fork at an earlier step, or start a new run"
            ) from None
