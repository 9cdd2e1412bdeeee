"""Pipelines of installed packages: the worker that has one, and a server with that worker for a single run.

A package names its pipelines in the entry point group `baton.pipelines`: each pipeline's type, and the module that runs
its worker, as `python -m MODULE` does.
"""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.metadata import entry_points

from baton.cli.session import Session
from baton.cli.supervision import WorkerProgram, absolute_store, supervised, worker_environment
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


@contextlib.asynccontextmanager
async def served_here(session: Session, pipeline: str, task_queue: str) -> AsyncIterator[Session]:
    """Yield a session with a server of its own, in memory, where a worker has the pipeline; both end with the block."""
    module = worker_module(pipeline)
    async with contextlib.AsyncExitStack() as running:
        with session.progress("starting the server"):
            server = await running.enter_async_context(DevServer(DevServerOptions(ui_port=None)))
        environment = worker_environment(
            os.environ, address=server.address, namespace="default", artifacts=absolute_store(session.options.store)
        )
        program = WorkerProgram(
            ("-m", module), {**environment, "BATON_TASK_QUEUE": task_queue, "BATON_LOG_LEVEL": "WARNING"}
        )
        await running.enter_async_context(supervised(program, session.note))
        session.note(f"for commands in another terminal: export TEMPORAL_ADDRESS={server.address}")
        yield replace(session, options=replace(session.options, address=server.address, namespace="default"))
