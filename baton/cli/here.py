"""The worker that has a pipeline, of an installed package or this folder, and a server with it for a single run.

A package names its pipelines in the entry point group `baton.pipelines`: each pipeline's type, and the module that runs
its worker, as `python -m MODULE` does.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from importlib.metadata import entry_points

from baton.cli.session import Session
from baton.cli.supervision import WorkerProgram, absolute_store, find_worker, supervised, worker_environment
from baton.devserver import DevServer, DevServerOptions
from baton.errors import BatonError

GROUP = "baton.pipelines"


def worker_module(pipeline: str) -> str:
    """Return the module that runs the worker of an installed pipeline.

    Raises:
        BatonError: No installed package has it.
    """
    known = {found.name: found.value for found in entry_points(group=GROUP)}
    if pipeline not in known:
        names = ", ".join(sorted(known))
        raise BatonError(f"no file and no pipeline of an installed package is named {pipeline!r}; pipelines: {names}")
    return known[pipeline]


def _program(pipeline: str) -> Sequence[str]:
    """Return the worker's arguments for Python: that of an installed pipeline, else `./worker.py`."""
    try:
        return ("-m", worker_module(pipeline))
    except BatonError:
        if (script := find_worker(None)) is None:
            raise
        return (str(script),)


@contextlib.asynccontextmanager
async def served_here(session: Session, pipeline: str, task_queue: str) -> AsyncIterator[Session]:
    """Yield a session with a server of its own, in memory, where a worker has the pipeline; both end with the block."""
    program = _program(pipeline)
    async with contextlib.AsyncExitStack() as running:
        with session.progress("starting the server"):
            server = await running.enter_async_context(DevServer(DevServerOptions(ui_port=None)))
        environment = worker_environment(
            os.environ, address=server.address, namespace="default", artifacts=absolute_store(session.options.store)
        )
        quiet = {**environment, "BATON_TASK_QUEUE": task_queue, "BATON_LOG_LEVEL": "WARNING"}
        await running.enter_async_context(supervised(WorkerProgram(program, quiet), session.note))
        session.note(f"for commands in another terminal: export TEMPORAL_ADDRESS={server.address}")
        yield replace(session, options=replace(session.options, address=server.address, namespace="default"))
