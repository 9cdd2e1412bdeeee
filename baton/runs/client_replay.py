"""Replays a recorded history against code, with no worker: whether the code can continue the run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime
from temporalio.worker import Plugin, Replayer
from temporalio.workflow import NondeterminismError

from baton.errors import HistoryError
from baton.runs.client_events import decode_payloads
from baton.wire.json_values import JsonFields


@dataclass(frozen=True)
class Replayed(JsonFields):
    """The result of a replay.

    Attributes:
        pipeline: The workflow's type.
        events: How many events the history has.
        problem: Why the code cannot continue the run, or why that is unknown; None if the code fits.
        is_misfit: Whether the code was replayed and does not fit: only other code can continue the run.
    """

    pipeline: str
    events: int
    problem: str | None = None
    is_misfit: bool = False


async def replay_history(
    history: WorkflowHistory,
    workflows: Mapping[str, type],
    *,
    plugins: Sequence[Plugin],
    converter: DataConverter,
    runtime: Runtime | None = None,
) -> Replayed:
    """Replay a history in the workflow sandbox: no stage is executed and nothing is written.

    Args:
        history: A recorded history, or one that a handle fetched.
        workflows: The pipelines by the name of their types.
        plugins: Those of a worker of the pipelines, above all its `BatonPlugin`.
        converter: Decodes the payloads, which is checked first: a missing key or artifact is not a fault of the code.
        runtime: The SDK's runtime; its default one otherwise.

    Raises:
        ValueError: The history has no event that starts a workflow.
    """
    started = history.events[0] if history.events else None
    if started is None or not started.HasField("workflow_execution_started_event_attributes"):
        raise ValueError("its first event does not start a workflow")
    pipeline = started.workflow_execution_started_event_attributes.workflow_type.name
    length = len(history.events)
    if pipeline not in workflows:
        names = ", ".join(sorted(workflows))
        return Replayed(pipeline, length, f"no workflow {pipeline!r} in the modules; they have {names}")
    try:
        await decode_payloads(history.events, converter)
    except HistoryError as error:
        return Replayed(pipeline, length, f"it cannot be replayed: {error}")
    replayer = Replayer(workflows=[*workflows.values()], plugins=plugins, runtime=runtime)
    failure = (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure
    if failure is None:
        return Replayed(pipeline, length)
    return Replayed(pipeline, length, f"the code {_describe_failure(failure)}", is_misfit=True)


def _describe_failure(failure: Exception) -> str:
    """Return the message of a failure, without the SDK's wrapping."""
    match = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(failure))
    message = match[1] if match else str(failure)
    return f"{'does not match the history' if isinstance(failure, NondeterminismError) else 'fails'}: {message}"
