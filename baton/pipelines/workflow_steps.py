"""The steps of a pipeline: numbered as its code asks for them, shown while under way, recorded as they end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeGuard

from temporalio import workflow

from baton.core.history import CANCELED_WITH_RUN, Outcome, StepKind
from baton.core.messages import StageResult, Waiting
from baton.core.state import PipelineState
from baton.errors import StageFailedError
from baton.pipelines.workflow_handlers import RunHandlers
from baton.pipelines.workflow_outcomes import RecordedOutcomes
from baton.pipelines.workflow_start import RunInput
from baton.pipelines.workflow_visibility import is_closed, upsert_memo
from baton.wire.names import MEMO_OUTCOME

LONG_ENOUGH = 1
"""Seconds for a step without a measurement: it is shown as one of its own."""

_LONGEST_NAME = 200  # a longer one fits no record, so nobody could decide about an approval of that title
_WAITING_KINDS = {StepKind.STAGE: "stage", StepKind.MERGE: "fan_out", StepKind.CHILD: "child", StepKind.SLEEP: "sleep"}
_DEFINITION = "__temporal_workflow_definition"  # as the SDK marks both the class and its `run` method


class Steps:
    """Takes each step from the record of an earlier run, or shows and records it while it is executed."""

    def __init__(
        self,
        run_input: RunInput,
        handlers: RunHandlers,
        state: PipelineState,
        recorded: RecordedOutcomes,
        continue_if_long: Callable[[], Awaitable[None]],
        record_interventions: Callable[[], Awaitable[None]],
    ) -> None:
        self._run_input = run_input
        self._handlers = handlers
        self._state = state
        self._recorded = recorded
        self._continue_if_long = continue_if_long
        self._record_interventions = record_interventions

    async def begin(self, name: str, kind: StepKind) -> tuple[int, Outcome | None]:
        """Number the next step; return its recorded outcome, or make ready to execute it."""
        self._run_input.check()
        if not 0 < len(name) <= _LONGEST_NAME:
            raise ValueError(
                f"a {kind.value} needs a name of 1 to {_LONGEST_NAME} characters; {name[:40]!r} has {len(name)}"
            )
        if is_closed():
            await workflow.wait_condition(lambda: False)  # a step that would begin behind the run's end never does
        await self._handlers.roll_backs.known()
        self._handlers.steps += 1
        seq = self._handlers.steps
        past = await self._recorded.take(seq, name, kind)
        if past is None:
            await self._recorded.ready_to_edit()
            self.apply_edit()
            await self._record_interventions()
            await self._handlers.roll_backs.known()  # a reset may go back to this task
            if self._handlers.is_quiet:
                await self._continue_if_long()
            self._handlers.visibility.entered(name)
        return seq, past

    def apply_edit(self) -> None:
        """Apply the edit a fork came with, once its recorded outcomes are used up."""
        edit = self._recorded.apply_edit()
        if edit is not None:
            publish(edit)

    @contextmanager
    def under_way(self, kind: StepKind, name: str, seq: int, until: datetime | None = None) -> Iterator[None]:
        """Show a step as under way while the block runs, and record it if it fails, as `recorded` does."""
        waiting = Waiting(kind=_WAITING_KINDS[kind], name=name, seq=seq, since=workflow.now(), until=until)
        self._handlers.under_way[seq] = waiting
        try:
            with self.recorded(kind, name, seq):
                yield
        finally:
            del self._handlers.under_way[seq]

    @contextmanager
    def recorded(self, kind: StepKind, name: str, seq: int) -> Iterator[None]:
        """Record it as the outcome if the step in the block fails or is canceled, by the code or with its run."""
        try:
            yield
        except StageFailedError as error:
            publish(self._state.record_failure(seq, name, kind, str(error)))
            self._handlers.visibility.ran(LONG_ENOUGH)
            raise
        except asyncio.CancelledError:
            why = "canceled by the pipeline" if workflow.cancellation_reason() is None else CANCELED_WITH_RUN
            publish(self._state.record_failure(seq, name, kind, why, canceled=True))
            raise


def publish(outcome: Outcome) -> None:
    """Leave in the history what no activity recorded, for readers without a worker; they know the events."""
    upsert_memo({MEMO_OUTCOME: outcome.model_copy(update={"events": []}) if outcome.events else outcome})


def results_of(outcome: Outcome) -> list[StageResult]:
    """Return what the stages of a step returned: one, or the branches of a fan-out in order."""
    if outcome.kind is not StepKind.MERGE:
        entry = outcome.entries[0]
        return [StageResult(baton_patch=entry.effective, output=outcome.value, spend=entry.spend)]
    outputs = outcome.value if isinstance(outcome.value, list) else []
    return [
        StageResult(baton_patch=entry.patch, output=output, spend=entry.spend)
        for entry, output in zip(outcome.entries, outputs, strict=False)
    ]


def is_pipeline(value: object) -> TypeGuard[type]:
    """Return whether a value is a workflow class, and not only derived from one."""
    return isinstance(value, type) and _DEFINITION in vars(value)


def workflow_type(run: Callable[..., Any]) -> str:
    """Return the workflow type that a `run` method belongs to: the name that `@workflow.defn` gave it."""
    name: str | None = getattr(getattr(run, _DEFINITION, None), "name", None)
    if name is None:
        raise TypeError(
            f"a pipeline is named by its `run` method or its workflow type; {run!r} is neither: "
            "its class needs @workflow.defn, and the method @workflow.run"
        )
    return name
