"""`baton.run`: runs a pipeline with a server and a worker of its own, and prints the run's progress."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

from baton.lazy import needs_extra

with needs_extra("cli", "baton.run"):
    from baton.cli.decide import LiveView, can_ask
    from baton.cli.output import make_console
from baton.core.budget import Budget
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.requester import Requester
from baton.devserver import DevServer
from baton.pipelines.workflow_function import PipelineType
from baton.pipelines.workflow_steps import workflow_type
from baton.plugin import AT_ONCE, BatonPlugin
from baton.runs.client_connection import Connection, connect
from baton.sdk.failure_logs import RunFailedError, print_uncaught_shortly, short_failures
from baton.sdk.sandbox import naming_lines
from baton.wire.json_values import Json
from baton.worker import Settings, collect_served, is_verbose, plugin_for


def run(
    pipeline: type | PipelineType,
    goal: str,
    *,
    params: Mapping[str, Json] | None = None,
    inputs: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    requester: Requester | None = None,
    stages: Sequence[Callable[..., Any]] | None = None,
    plugin: BatonPlugin | None = None,
    quiet: bool = False,
) -> PipelineResult:
    """Run a pipeline to its end, in a script or a notebook, and return its result.

    It runs on the Temporal server that the environment or a profile names (`TEMPORAL_ADDRESS`, `temporal.toml`), or
    on an embedded server that ends with the run. When the pipeline waits for an approval, a terminal shows it and
    asks; elsewhere, as in a notebook, the command that decides is printed, and the run waits.

    Args:
        pipeline: A pipeline made by `@pipeline`, or a workflow class.
        goal: The objective, in one sentence.
        params: Parameters for the pipeline's code.
        inputs: What the pipeline works on, by name, as for a stage: JSON, a text, an `ArtifactRef`, a pydantic model.
        budget: The maximum cost of the run.
        requester: Who it works for.
        stages: The stages it uses; by default all stages of the pipeline's module.
        plugin: The plugin to run with; by default one configured like a worker's, from `BATON_...` variables, with
            keys, ledger and artifacts in `.baton`, made on first use.
        quiet: Print no progress to standard error, and ask no questions.

    Returns:
        The result, with the final baton and the output.

    Raises:
        temporalio.client.WorkflowFailureError: The pipeline failed; the message has the reason. The frames of a stage
            that raised are logged. An error that ends the program is printed without a traceback; with
            `BATON_LOG_LEVEL=DEBUG` all tracebacks are whole.
        ServerError: The server is unreachable, or the embedded server did not start.

    Example:
        ```python
        result = baton.run(article, goal="Write about batons")
        print(result.output)
        ```
    """
    given: dict[str, Any] = {"params": dict(params or {}), "inputs": dict(inputs or {})}
    start = PipelineInput(goal=goal, **given, budget=budget, requester=requester)
    try:
        return _run_to_end(_run(pipeline, start, stages, plugin, quiet))
    except WorkflowFailureError as error:
        failed = RunFailedError(error.cause)
    if not is_verbose():
        print_uncaught_shortly()
    # Outside the handler, so that its traceback has no other lines of Baton and the SDK.
    raise failed


def _run_to_end(work: Coroutine[Any, Any, PipelineResult]) -> PipelineResult:
    """Run a coroutine to its end, in a thread if an event loop is already running, as in a notebook."""
    try:
        asyncio.get_running_loop()
        is_running = True
    except RuntimeError:
        is_running = False
    if not is_running:  # outside the handler, so that its error is not the context of each failure
        return asyncio.run(work)
    outcome: list[PipelineResult | BaseException] = []

    def in_thread() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=in_thread, name="baton.run")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


async def _run(
    pipeline: type,
    start: PipelineInput,
    stages: Sequence[Callable[..., Any]] | None,
    plugin: BatonPlugin | None,
    quiet: bool,
) -> PipelineResult:
    module = collect_served([sys.modules[pipeline.__module__]])
    pipelines = {pipeline, *module.pipelines}
    name = workflow_type(pipeline)
    async with AsyncExitStack() as stack:
        if not quiet and not _configured_address():
            make_console(error=True).print("starting a Temporal server", style="dim")
        if not is_verbose():
            stack.enter_context(short_failures())
        plugin = plugin or await plugin_for(Settings.of(os.environ), module)
        client = await stack.enter_async_context(_client(plugin))
        queue = f"{name}-{uuid4().hex[:8]}"
        activities = module.stages if stages is None else stages
        with naming_lines():
            worker = Worker(
                client,
                task_queue=queue,
                workflows=[*pipelines],
                activities=activities,
                graceful_shutdown_timeout=AT_ONCE,  # the run has ended, or ends with its server
            )
        await stack.enter_async_context(worker)
        handle: WorkflowHandle[Any, PipelineResult] = await client.start_workflow(
            name, start, id=queue, task_queue=queue, result_type=PipelineResult
        )
        if not quiet:
            console = make_console(error=True)
            if not _configured_address():
                export = f"export TEMPORAL_ADDRESS={client.service_client.config.target_host}"
                console.print(f"for commands in another terminal: {export}", style="dim", soft_wrap=True)
            await LiveView(client, console, plugin._provider.parts.artifacts, asks=can_ask()).show(handle.id)
        return await handle.result()


@asynccontextmanager
async def _client(plugin: BatonPlugin) -> AsyncIterator[Client]:
    """Yield a client of the configured server, or of an embedded one."""
    if _configured_address():
        yield await connect(plugins=[plugin])
        return
    async with DevServer() as server:
        yield await connect(Connection(address=server.address), plugins=[plugin])


def _configured_address() -> str | None:
    """Return the server that the environment or a profile names."""
    return os.environ.get("TEMPORAL_ADDRESS") or ClientConfig.load_client_connect_config().get("target_host")
