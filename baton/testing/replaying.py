"""Replays: does the pipelines' code, as it is now, fit what runs have recorded?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.worker import Plugin, Replayer

from baton.pipelines.workflow_steps import workflow_type
from baton.plugin import BatonPlugin


async def assert_replays(
    run: WorkflowHistory | WorkflowHandle[Any, Any],
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
    further: Sequence[Plugin] = (),
) -> None:
    """Assert that the pipelines' code, as it is now, fits what a run has recorded.

    Do this with committed histories of your released pipelines: code that does not fit them suspends every run
    in progress that is older.

    Args:
        run: A recorded history (`WorkflowHistory.from_json`), or the handle of a run, open or closed.
        workflows: The pipelines, at least the one that ran.
        plugin: The plugin to decode the history with; needed if it names an artifact store.
        further: The other plugins of the worker, as of durable agents: `[DurableAgentsPlugin()]`.

    Raises:
        AssertionError: The code asks for something else than was recorded; the message says what.

    Example:
        ```python
        recorded = Path("tests/histories/delivery.json").read_text()
        await assert_replays(WorkflowHistory.from_json("delivery", recorded), [Delivery])
        ```
    """
    history = run if isinstance(run, WorkflowHistory) else await run.fetch_history()
    replayer = Replayer(workflows=workflows, plugins=[plugin or BatonPlugin(), *further])
    replay = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if replay.replay_failure is not None:
        raise AssertionError(
            f"the code does not fit the history of {history.workflow_id!r}: {replay.replay_failure}"
        ) from replay.replay_failure


async def assert_replays_folder(
    folder: Path,
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
    further: Sequence[Plugin] = (),
) -> int:
    """Assert that the pipelines' code fits every history in a folder; the error names all that do not fit.

    Put a history there for each released pipeline and each way through it: `baton export RUN FILE` writes one.

    Args:
        folder: Searched with its sub-folders for `*.json`, each a history as `WorkflowHistory.to_json` writes it.
        workflows: The pipelines, at least those that ran.
        plugin: The plugin to decode the histories with; needed if they name an artifact store or are encrypted.
        further: The other plugins of the worker, as of durable agents: `[DurableAgentsPlugin()]`.

    Returns:
        How many histories there are.

    Raises:
        AssertionError: The folder has none; or some do not fit, are not histories, or belong to other pipelines.

    Example:
        ```python
        async def test_released_runs_can_go_on():
            assert await assert_replays_folder(Path("tests/histories"), [Delivery, Review]) >= 2
        ```
    """
    files = _histories(folder)
    if not files:
        raise AssertionError(f"{str(folder)!r} has no history; write one with `baton export RUN FILE.json`")
    misfits = []
    for name, text in files.items():
        misfit = await _misfit(name, text, workflows, plugin, further)
        misfits += [misfit] if misfit is not None else []
    if misfits:
        listed = "\n".join(f"- {text}" for text in misfits)
        raise AssertionError(f"{len(misfits)} of {len(files)} histories do not replay:\n{listed}")
    return len(files)


def _histories(folder: Path) -> dict[str, str]:
    """Return the texts of all histories below a folder, by their paths in it."""
    files = sorted(folder.rglob("*.json"))
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in files}


async def _misfit(
    name: str, text: str, workflows: Sequence[type], plugin: BatonPlugin | None, further: Sequence[Plugin]
) -> str | None:
    """Return why a history does not replay, or None if it does."""
    try:
        history = WorkflowHistory.from_json(name.removesuffix(".json"), text)
        started = history.events[0].workflow_execution_started_event_attributes
    except Exception as error:  # as many kinds as there are ways of not being a history
        return f"{name} is not a history: {type(error).__name__}: {error}"
    if started.workflow_type.name not in {workflow_type(one) for one in workflows}:
        return f"{name} is of the pipeline {started.workflow_type.name!r}, which is not among those given"
    try:
        await assert_replays(history, workflows, plugin=plugin, further=further)
    except AssertionError as error:
        return f"{name}: {error}"
    return None
