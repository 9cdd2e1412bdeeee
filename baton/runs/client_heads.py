"""Reads the heads of audit chains that the histories of runs hold: anchors outside the ledger."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from temporalio.client import Client

from baton.errors import BatonError, HistoryError, UnreadableRunError
from baton.ledger.chain import ChainHead
from baton.runs.client_executions import map_concurrently
from baton.runs.client_list import ListedRun, RunFilter, list_runs
from baton.runs.client_reader import read_run

_MAX_RUNS = 100_000


@dataclass(frozen=True)
class RecordedHeads:
    """The heads in the histories of runs.

    Attributes:
        heads: The heads, which the ledger must have.
        runs: How many runs were read, or could not be.
        unread: The workflow ids of runs whose heads could not be read, and why; `UnreadableRunError` if the run has
            malformed records.
        is_partial: Whether older runs were left out.
    """

    heads: tuple[ChainHead, ...]
    runs: int
    unread: tuple[tuple[str, BatonError], ...] = ()
    is_partial: bool = False


async def read_heads(client: Client, ledger: str, task_id: str | None = None) -> RecordedHeads:
    """Return the heads in the histories of all runs on the server, or of the runs of one task.

    Args:
        client: A connected client, with the workers' keys and store.
        ledger: The ledger's name.
        task_id: The task; all by default.

    Raises:
        temporalio.service.RPCError: The server does not answer.
    """
    runs = [run async for run in list_runs(client, RunFilter(task=task_id, children=True), limit=_MAX_RUNS)]
    results = await map_concurrently(partial(_read_heads_of, client, ledger), runs)
    heads = tuple(head for found in results if isinstance(found, list) for head in found)
    pairs = zip(runs, results, strict=True)
    unread = tuple((run.workflow_id, found) for run, found in pairs if isinstance(found, BatonError))
    return RecordedHeads(heads, len(runs), unread, len(runs) == _MAX_RUNS)


async def _read_heads_of(client: Client, ledger: str, run: ListedRun) -> list[ChainHead] | BatonError:
    try:
        record = await read_run(client, run.workflow_id, run.run_id)
        task_id = record.task_id or run.task_id
        return parse_anchors(ledger, task_id, record.anchors) if task_id is not None else []
    except BatonError as error:
        if isinstance(error, UnreadableRunError) or not isinstance(error, HistoryError):
            return error  # malformed, encrypted with other keys, or with malformed anchors
        return []  # not a pipeline, or already deleted


def parse_anchors(ledger: str, task_id: str, anchors: Iterable[str]) -> list[ChainHead]:
    """Return the heads that anchors of one task stand for, such as those of `RunRecord.anchors`.

    Args:
        ledger: The ledger's name.
        task_id: The task.
        anchors: The anchors, `N:sha256:…`.

    Raises:
        UnreadableRunError: One is malformed.
    """
    try:
        return [ChainHead.from_anchor(ledger, task_id, anchor) for anchor in anchors]
    except ValueError as error:
        raise UnreadableRunError(f"an anchor of task {task_id!r} is malformed; expected N:sha256:…") from error
