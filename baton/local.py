"""Run a pipeline here and now: a server, a worker for the module's stages, and the run's progress as lines."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

from baton.budget.records import Budget
from baton.cli.output import make_console
from baton.core.messages import PipelineInput, PipelineResult
from baton.devserver import DevServer
from baton.pipelines.workflow_function import PipelineType
from baton.pipelines.workflow_steps import workflow_type
from baton.plugin import BatonPlugin
from baton.runs.cli_decide import LiveView, can_ask
from baton.runs.client_connection import Connection, connect
from baton.wire.json_values import Json
from baton.worker import Settings, defined_in, plugin_for


def run(
    pipeline: type | PipelineType,
    goal: str,
    *,
    params: Mapping[str, Json] | None = None,
    budget: Budget | None = None,
    stages: Sequence[Callable[..., Any]] | None = None,
    plugin: BatonPlugin | None = None,
    quiet: bool = False,
) -> PipelineResult:
    """Run a pipeline to its end, and return its result. In a script and in a notebook.

    It runs on the Temporal server that the environment or a profile names (`TEMPORAL_ADDRESS`, `temporal.toml`), else
    on an embedded one that ends with the run. Where the pipeline waits for an approval, a terminal shows what is
    decided on and asks; elsewhere, as in a notebook, the command that decides is written, and the run waits.

    Args:
        pipeline: What `@pipeline` made, or a workflow class.
        goal: The objective, in one sentence.
        params: What the pipeline's code needs to know.
        budget: What the run may cost.
        stages: The stages that it uses; by default all of the module in which the pipeline stands.
        plugin: The plugin to run with; by default one that is set up as a worker's is, from `BATON_...` variables:
            with keys, ledger and artifacts in `.baton`, made on first use.
        quiet: Write no progress to the standard error, and ask no question.

    Returns:
        The result, with the final baton and the output.

    Raises:
        temporalio.client.WorkflowFailureError: The pipeline failed.
        ServerError: There is no server, and none could be started.

    Example:
        ```python
        result = baton.run(article, goal="Write about batons")
        print(result.output)
        ```
    """
    start = PipelineInput(goal=goal, params=dict(params or {}), budget=budget)
    return _finished(_run(pipeline, start, stages, plugin, quiet))


def _finished(work: Coroutine[Any, Any, PipelineResult]) -> PipelineResult:
    """Run a coroutine to its end: here, or in a thread where a loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    ended: list[PipelineResult | BaseException] = []

    def in_thread() -> None:
        try:
            ended.append(asyncio.run(work))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=in_thread, name="baton.run")
    thread.start()
    thread.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


async def _run(
    pipeline: type,
    start: PipelineInput,
    stages: Sequence[Callable[..., Any]] | None,
    plugin: BatonPlugin | None,
    quiet: bool,
) -> PipelineResult:
    """Start everything, run the pipeline, and stop everything."""
    here = defined_in([sys.modules[pipeline.__module__]])
    pipelines = {pipeline, *here.pipelines}
    name = workflow_type(pipeline)
    async with AsyncExitStack() as running:
        plugin = plugin or await plugin_for(Settings.of(os.environ), here)
        client = await running.enter_async_context(_client(plugin))
        queue = f"{name}-{uuid4().hex[:8]}"
        activities = here.stages if stages is None else stages
        await running.enter_async_context(
            Worker(client, task_queue=queue, workflows=[*pipelines], activities=activities)
        )
        handle: WorkflowHandle[Any, PipelineResult] = await client.start_workflow(
            name, start, id=queue, task_queue=queue, result_type=PipelineResult
        )
        if not quiet:
            console = make_console(error=True)
            if not _configured():
                where = f"export TEMPORAL_ADDRESS={client.service_client.config.target_host}"
                console.print(f"for commands in another terminal: {where}", style="dim", soft_wrap=True)
            await LiveView(client, console, plugin._providing.parts.artifacts, asks=can_ask()).show(handle.id)
        return await handle.result()


@asynccontextmanager
async def _client(plugin: BatonPlugin) -> AsyncIterator[Client]:
    """Yield a client of the server that is configured, or of an embedded one."""
    if _configured():
        yield await connect(plugins=[plugin])
        return
    async with DevServer() as server:
        yield await connect(Connection(address=server.address), plugins=[plugin])


def _configured() -> str | None:
    """Return the server that the environment or a profile names."""
    return os.environ.get("TEMPORAL_ADDRESS") or ClientConfig.load_client_connect_config().get("target_host")
