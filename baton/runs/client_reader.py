"""From a workflow's event history to a `RunRecord`: the baton after every stage, with no worker running."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import ValidationError
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from baton.core.baton import Baton
from baton.core.messages import PipelineInput
from baton.core.state import PipelineState
from baton.errors import HistoryError
from baton.runs.client_events import decoded, first_baton, parsed, pausings, time_of
from baton.runs.client_executions import describe, history
from baton.runs.client_failures import with_failures
from baton.runs.client_folding import fold
from baton.runs.client_record import RunRecord, RunStatus
from baton.runs.client_timers import made_ready, open_timers


async def read_run(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord:
    """Return a run, rebuilt from its event history alone.

    Args:
        client: A client with Baton's data converter, as `BatonPlugin` sets it.
        workflow_id: The workflow.
        run_id: Which of its runs; the newest by default.

    Returns:
        The record.

    Raises:
        HistoryError: The workflow is not a pipeline.
        temporalio.service.RPCError: There is no such workflow, or the server cannot be asked.
    """
    run_id, events = await history(client, workflow_id, run_id)
    run = await rebuild(workflow_id, run_id, events, client.data_converter)
    run.first_began = await first_began(client, run)
    return run


async def first_began(client: Client, run: RunRecord) -> datetime | None:
    """Return when the first run of a chain that continued as new started; None if the server no longer has it."""
    if run.previous_run_id is None or run.first_run_id is None:
        return run.began
    try:
        return (await describe(client, run.workflow_id, run.first_run_id)).start_time
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def rebuild(workflow_id: str, run_id: str, events: Sequence[HistoryEvent], converter: DataConverter) -> RunRecord:
    """Return the run that ``events`` tell of.

    Args:
        workflow_id: The workflow the events are of.
        run_id: The run, or empty to take it from the first event.
        events: All events of the run so far, in order.
        converter: Decodes the payloads.

    Returns:
        The record.

    Raises:
        HistoryError: The events are not those of a pipeline.
    """
    texts = await decoded(events, converter)
    events = await with_failures(events, converter)
    start = parsed(PipelineInput, texts.get(events[0].event_id)) if events else None
    if start is None:
        raise HistoryError(f"workflow {workflow_id!r} was not started with a PipelineInput; it is not a Baton pipeline")
    started = events[0].workflow_execution_started_event_attributes
    try:
        state = PipelineState(first_baton(start, events, texts))
    except ValidationError:
        state = PipelineState(Baton(goal="(unusable input)"))
    run = RunRecord(
        workflow_id=workflow_id,
        run_id=run_id or started.original_execution_run_id,
        pipeline=started.workflow_type.name,
        start=start,
        state=state,
        began=time_of(events[0]),
        first_run_id=started.first_execution_run_id or None,
        previous_run_id=started.continued_execution_run_id or None,
        notes=[one.note for one in start.roll_backs],
        pausings=[*pausings(events)],
        last_event=events[-1].event_id,
        read_at=time_of(events[-1]),
    )
    fold(run, events, texts, made_ready(events, texts))
    run.timers = open_timers(events, texts) if run.status is RunStatus.RUNNING else []
    return run
