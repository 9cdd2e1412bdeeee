"""Waiting for a worker that has what a stage needs: the run is suspended, and neither fails nor uses up its tries."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import worker, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

from baton.core.lacks import MOST_WORKERS, WAIT_FOR_WORKER, Lack, Lacking
from baton.core.messages import PipelineStatus
from baton.errors import ConfigurationError
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.pipelines.workflow_handlers import RunHandlers

_LONGEST = timedelta(seconds=5)  # a new worker is found that soon
_POLICY = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=_LONGEST)
_ANSWERS_WITHIN = timedelta(seconds=30)
_any_worker = ContextVar("baton_any_worker", default=False)


@contextmanager
def to_any_worker(outgoing: OutgoingHandoff) -> Iterator[None]:
    """Have a stage that was lacking given to whichever worker asks: by default the pipeline's own worker takes it."""
    token = _any_worker.set(bool(outgoing.lacked_by))
    try:
        yield
    finally:
        _any_worker.reset(token)


class PassesOn(worker.WorkflowInboundInterceptor):
    """Has Temporal start no activity eagerly, on the worker of the workflow task, within `to_any_worker`."""

    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        """Put ours before the worker's next interceptor."""
        super().init(_NotEager(outbound))


class _NotEager(worker.WorkflowOutboundInterceptor):
    def start_activity(self, input: worker.StartActivityInput) -> workflow.ActivityHandle[Any]:
        input.disable_eager_execution = input.disable_eager_execution or _any_worker.get()
        return super().start_activity(input)


def lack_told(error: FailureError) -> Lack | None:
    """Return what the worker lacked that was to run a stage; None where the stage failed otherwise."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if not (isinstance(cause, ApplicationError) and cause.type == ConfigurationError.__name__ and cause.details):
        return None
    try:
        return Lack.model_validate(cause.details[0])
    except ValidationError:
        return None


async def wait_for_worker(handlers: RunHandlers, outgoing: OutgoingHandoff, lack: Lack) -> None:
    """Wait until a worker takes the activity that may have what was lacking: one that has it now, or a new one."""
    stage = outgoing.spec.name
    known = outgoing.lacked_by.setdefault((lack.kind, lack.name), [])
    if not known:
        handlers.note(f"{stage!r} waits for a worker that can do it: {lack.text}")
    if again := known.count(lack.worker):  # the stage came to it again, past another that may have it
        pause = min(timedelta(seconds=2 ** min(again - 1, 6)), _LONGEST)
        await workflow.sleep(pause, summary=f"step {outgoing.given.seq}: {stage} waits"[:200])
    known.append(lack.worker)
    del known[:-MOST_WORKERS]
    lacking = Lacking(
        stage=stage, seq=outgoing.given.seq, kind=lack.kind, name=lack.name, text=lack.text, workers=known
    )
    try:
        with handlers.visibility.waiting(PipelineStatus.SUSPENDED, stage):
            await workflow.execute_activity(
                WAIT_FOR_WORKER,
                lacking,
                task_queue=outgoing.task_queue,
                start_to_close_timeout=_ANSWERS_WITHIN,
                retry_policy=_POLICY,
                summary=f"step {lacking.seq}: {stage} waits for a worker"[:200],
            )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError(f"stage {stage!r} was cancelled") from error
        raise
    finally:
        handlers.visibility.goes_on(stage)
