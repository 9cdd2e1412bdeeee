"""Candidates that are another revision of the code: a worker of it, from a worktree of its own, for a lab run."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from baton.cli.session import KEYS_FOLDER
from baton.cli.supervision import WorkerProgram, worker_process
from baton.lab import LabError, Lane


@asynccontextmanager
async def serving(revisions: Sequence[tuple[Lane, str]], source: str | None, store: str) -> AsyncIterator[list[Lane]]:
    """Serve each revision while the block runs, and return the lanes with the task queues of its workers.

    Args:
        revisions: The lanes, each with its revision.
        source: What `python -m baton.worker` serves, a path within the repository or a package.
        store: The artifact store that all workers share.

    Raises:
        LabError: There is no such revision, nothing was named to serve, or a worker ended before the block did.
    """
    if revisions and source is None:
        raise LabError("say what a worker of the revision serves: `--serve refunds.py`")
    async with AsyncExitStack() as stack:
        lanes, workers = [], list[tuple[str, asyncio.subprocess.Process]]()
        for lane, revision in revisions:
            queue, process = await stack.enter_async_context(_worker(revision, source or "", store))
            workers.append((revision, process))
            lanes.append(lane.model_copy(update={"task_queue": queue}))
        try:
            async with asyncio.timeout(None) as block:
                watching = [asyncio.create_task(_end_with(process, block)) for _, process in workers]
                try:
                    yield lanes
                finally:
                    for task in watching:
                        task.cancel()
        except TimeoutError:
            if not block.expired():
                raise
            ended = [(revision, process.returncode) for revision, process in workers]
            revision, code = next((revision, code) for revision, code in ended if code is not None)
            raise LabError(f"the worker of {revision!r} ended, with exit code {code}") from None


@asynccontextmanager
async def _worker(revision: str, source: str, store: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run a worker of a revision, and return its task queue and its process."""
    commit = (await _git("rev-parse", "--verify", f"{revision}^{{commit}}")).strip()
    below = (await _git("rev-parse", "--show-prefix")).strip()
    queue = f"baton-lab-{commit[:12]}"
    with tempfile.TemporaryDirectory(prefix="baton-lab-") as folder:
        place = Path(folder, "worktree")
        await _git("worktree", "add", "--detach", str(place), commit)
        try:
            environment = {**os.environ, "BATON_TASK_QUEUE": queue, **_shared(place / below, store)}
            program = WorkerProgram(("-m", "baton.worker", source), environment, folder=place / below)
            async with worker_process(program) as process:
                yield queue, process
        finally:
            await _git("worktree", "remove", "--force", str(place))


async def _end_with(process: asyncio.subprocess.Process, block: asyncio.Timeout) -> None:
    """Let a block time out once a process ends: nothing that the block waits for would come."""
    await process.wait()
    block.reschedule(asyncio.get_running_loop().time())


def _shared(place: Path, store: str) -> dict[str, str]:
    """Let a worker elsewhere use this folder's keys and ledger, and return the variable of its store."""
    if KEYS_FOLDER.exists() and not (place / KEYS_FOLDER).exists():
        (place / KEYS_FOLDER).symlink_to(KEYS_FOLDER.resolve(), target_is_directory=True)
    return {"BATON_ARTIFACTS": store if ":" in store else str(Path(store).resolve())}


async def _git(*words: str) -> str:
    """Run git and return what it printed.

    Raises:
        LabError: It failed.
    """
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec("git", *words, **pipes)  # type: ignore[arg-type]
    printed, beside = await process.communicate()
    if process.returncode:
        raise LabError(f"git {words[0]}: {beside.decode(errors='replace').strip().splitlines()[-1]}")
    return printed.decode()
