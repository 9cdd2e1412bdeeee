"""One Temporal plugin that makes a client and its workers speak Baton.

Give it to `Client.connect(plugins=[BatonPlugin()])`; workers made from that client inherit it, and a
`Replayer` takes it too. It sets the data converter, passes `baton` through the workflow sandbox, turns any
exception of a pipeline's code into a failed run, labels new runs for search, and gives stages their
artifact store and token counter. Its workers have safeguards: keys and ledger are found when the first is made.
"""

import asyncio
import dataclasses
import inspect
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4
from weakref import WeakKeyDictionary

from temporalio import client, worker, workflow
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception
from temporalio.plugin import SimplePlugin
from temporalio.service import ConnectConfig, GrpcCompression, ServiceClient
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError, SandboxedWorkflowRunner

from baton.artifacts.store import ArtifactStore, default_store, is_on_this_machine
from baton.codec.conversion import data_converter, use_worker_threshold, warn_of_clear_text
from baton.codec.encryption import is_encryption_enabled
from baton.compression import activity as compressing
from baton.core.history import SPENT, TOPPED_UP
from baton.core.messages import Overview, PipelineInput
from baton.exchange.activity import EXCHANGE_ACTIVITIES, record
from baton.handoff.store_safeguards import Safeguards, SafeguardSettings
from baton.keys.store_keyring import Keyring, KeySource
from baton.pipelines.activity_context import WorkerParts, worker_parts
from baton.pipelines.activity_worker import MissingParts, as_failure, check_decision
from baton.pipelines.workflow_visibility import close_run, runs_in, show_failed, start_attributes
from baton.runs.client_rollback import rolled_back
from baton.sdk.early_queries import RunCache
from baton.sdk.runner import (
    FAILED_THE_RUN,
    AnyFault,
    GuardedRunner,
    PipelineRunner,
    log_failure,
    logging_failures,
    runner_for,
)
from baton.telemetry.metering import MeteredWorker, begin_pipelines, worker_metrics
from baton.telemetry.tracing import TracedClient, TracedWorker
from baton.telemetry.worker_logs import event_loop_watchdog
from baton.wire.names import QUERY_DETAILS, QUERY_STATUS, SEALS
from baton.wire.text import disarm, host_of, is_loopback

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryTracing

OFF: Literal["off"] = "off"
"""What `BatonPlugin(safeguards=…)` and `BATON_SAFEGUARDS` take in place of safeguards: there are none."""
WORKFLOW_TASKS = 8
"""How many workflow tasks a worker takes at a time. Workflow code runs one at a time anyway, under Python's lock.

After a restart each task replays its run: of a hundred taken at once most would time out, and be done again.
"""
_SUMMARY_CHARACTERS = 200  # the server takes 400 bytes
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_HEARTBEAT_PAUSE = timedelta(milliseconds=250)  # between two that are sent; so much of a bill a lost worker may cost
_INSTEAD = (
    "Otherwise ask workflow.now(), workflow.random(), workflow.uuid4() or workflow.sleep(), and do in a stage what "
    "needs files, the network or the environment."
)
_FRAMEWORKS = (
    *("pydantic_ai", "langgraph", "langchain", "langchain_core", "langchain_openai", "langchain_anthropic"),
    *("openai", "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "requests"),
)
"""What a file with a pipeline may import beside it for its agents; most of them cannot be loaded in the sandbox."""
_DEFINITION = "__temporal_activity_definition"  # what Temporal has at each activity
_METADATA = "__temporal_workflow_metadata"  # the query by which the UI asks for a run's current details


class BatonPlugin(SimplePlugin):
    """What makes a Temporal client and its workers speak Baton; see the module.

    Example:
        ```python
        client = await Client.connect("localhost:7233", plugins=[BatonPlugin()])
        worker = Worker(client, task_queue="baton", workflows=[Delivery], activities=[plan, implement])
        ```
    """

    def __init__(
        self,
        parts: WorkerParts | None = None,
        *,
        compress: bool = True,
        searchable: bool = True,
        safeguards: Safeguards | Literal["off"] | None = None,
        keyring: Keyring | None = None,
        encrypt: bool = False,
        tracing: "OpenTelemetryTracing | None" = None,
    ) -> None:
        """Set up the plugin.

        Args:
            parts: What stages are provided with; by default the deployment's artifact store (`BATON_ARTIFACTS`, else
                `.baton/artifacts`). The store also has large payloads: what a worker writes above 8 KiB as stored
                (16 KiB of text or more) and what a client sends above 256 KiB. Who reads such runs needs the same one.
            compress: Compress what goes into the history.
            searchable: Label new runs with Baton's search attributes. The namespace must have them:
                `baton dev` and docker-compose.yml create them, `baton doctor` tells whether they are there.
            safeguards: Keys, ledger and safety policy. With them every stage is begun by a sealed handoff, which
                its worker validates and puts on record first. By default those that the environment names, as for
                `worker.py`: `BATON_KEYS`, `BATON_LEDGER` and their like, else keys and ledger in `.baton`. They are
                made, outside production, when the first worker is. `"off"`: none; stages are begun by plain inputs.
            keyring: The keys, where neither `safeguards` nor the environment has them: of a service that reads what
                is encrypted, or signals handoffs.
            encrypt: Encrypt what is written; by default as `BATON_ENCRYPT` says.
            tracing: Where the spans of what is started and of every stage go; `baton.telemetry.tracing.open_tracing`.

        Raises:
            KeyringError: Production was given development keys.
        """
        parts = parts or WorkerParts(artifacts=default_store())
        self._providing = _Providing(parts, _Guarding(safeguards, keyring))
        self._stores_here = is_on_this_machine(parts.artifacts)
        interceptors: list[client.Interceptor | worker.Interceptor] = [_WorkerInterceptor(self._providing)]
        if tracing is not None:
            interceptors[:0] = [TracedClient(tracing), TracedWorker(tracing)]
        if searchable:
            interceptors.append(_Labels())
        if isinstance(safeguards, Safeguards):
            encrypt = safeguards.encrypt
        elif safeguards is None:
            encrypt = encrypt or is_encryption_enabled(os.environ)
        keys = self._providing.guarding.keys
        converter = data_converter(parts.artifacts, compress=compress, keyring=keys, encrypt=encrypt)
        super().__init__(
            "baton",
            data_converter=converter,
            interceptors=interceptors,
            workflow_runner=partial(_runner, kind=runner_for(converter)),
            workflow_failure_exception_types=[AnyFault],
        )
        self._own_activities: list[Callable[..., Any]] = [
            compressing.compress,
            record,
            rolled_back,
            check_decision,
            *EXCHANGE_ACTIVITIES,
        ]

    def configure_worker(self, config: worker.WorkerConfig) -> worker.WorkerConfig:
        """Set up a worker as the client was, and have its stages measured by the client's runtime.

        Raises:
            TypeError: A workflow's `__init__` takes its input and lacks `@workflow.init`: no run of it could begin.
                Or a function among the activities is neither a stage nor an activity.
            KeyringError: There are no keys for the safeguards, and this is production.
            ValueError: A `BATON_…` variable has a value that cannot be used.
        """
        self._providing.guarding.find(self._providing.parts.artifacts)
        config = super().configure_worker(config)
        for kind in config.get("workflows") or []:
            _check_init(kind)
        for one in config.get("activities") or []:
            if not hasattr(one, _DEFINITION):
                raise TypeError(
                    f"{one!r} is not a stage: write @stage above it, or @activity.defn for a plain activity"
                )
        # A stage's bill is in its heartbeats: by default the SDK keeps them back for 0.8 of the heartbeat timeout.
        pause = config.get("max_heartbeat_throttle_interval", _HEARTBEAT_PAUSE)
        config["max_heartbeat_throttle_interval"] = min(pause, _HEARTBEAT_PAUSE)
        if grace := _grace(config.get("graceful_shutdown_timeout")):
            config["graceful_shutdown_timeout"] = grace
        if self._stores_here:  # more at a time gains nothing from a disk, and costs a task for every small payload
            config["max_workflow_task_external_storage_concurrency"] = 1
        given = list(config.get("activities") or [])
        names = {_activity_name(one) for one in given}  # what the worker brings itself stays its own
        missing = MissingParts({*names, *map(_activity_name, self._own_activities)})
        own = [*self._own_activities, *missing.activities]
        config["activities"] = [*given, *(one for one in own if _activity_name(one) not in names)]
        if config.get("tuner") is None and config.get("max_concurrent_workflow_tasks") is None:
            config["max_concurrent_workflow_tasks"] = WORKFLOW_TASKS
        cache = RunCache()
        config["workflow_runner"] = _keeping(config.get("workflow_runner"), cache)
        config["unsandboxed_workflow_runner"] = _keeping(_unsandboxed(config.get("unsandboxed_workflow_runner")), cache)
        warn_of_clear_text(config["client"].data_converter)
        use_worker_threshold(config["client"].data_converter)
        metrics = worker_metrics(config["client"])
        begin_pipelines(config["client"], config.get("task_queue", ""), config.get("workflows") or [])
        self._providing.parts = dataclasses.replace(self._providing.parts, metrics=metrics)
        config["interceptors"] = [*(config.get("interceptors") or []), missing, MeteredWorker(metrics)]
        return config

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        """Connect to a server on this machine without gzip, which only takes time where nothing crosses a network."""
        if config.grpc_compression is GrpcCompression.GZIP and is_loopback(host_of(config.target_host)):
            config = dataclasses.replace(config, grpc_compression=GrpcCompression.NONE)
        return await next(config)

    async def run_worker(self, worker: worker.Worker, next: Callable[[worker.Worker], Awaitable[None]]) -> None:
        """Run a worker, with the ledger open if there is one; what holds up its event loop is logged.

        Raises:
            LedgerError: The ledger cannot be opened.
            KeyringError: A key is missing.
        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._providing.opened())
            except Exception:
                # Only a worker that has begun can end: `async with worker` would wait for this one for ever.
                stopping = asyncio.create_task(worker.shutdown())
                with suppress(Exception):  # the first reason is the one to tell
                    await next(worker)
                await stopping
                raise
            stack.enter_context(event_loop_watchdog())
            runner = worker.config(active_config=True).get("workflow_runner")
            if isinstance(runner, GuardedRunner | PipelineRunner) and runner.cache is not None:
                runner.cache.attach(worker)
            await next(worker)


def _grace(given: timedelta | None) -> timedelta | None:
    """Return how long stages may take to finish after a stop: what the worker says, or `BATON_GRACE_SECONDS`."""
    return given or timedelta(seconds=float(os.environ.get("BATON_GRACE_SECONDS") or 0)) or None


def _check_init(kind: type) -> None:
    """Refuse a workflow whose `__init__` is not given what it takes."""
    init = vars(kind).get("__init__", object.__init__)  # the SDK, too, wants it in the class itself
    taken = [*inspect.signature(init).parameters.values()][1:]
    needed = [one.name for one in taken if one.default is one.empty and one.kind not in _COLLECTING]
    if needed and not hasattr(init, "__temporal_workflow_init"):
        raise TypeError(
            f"{kind.__qualname__}.__init__ takes {', '.join(needed)}, and Temporal gives it nothing: write "
            "@workflow.init above it"
        )


class _Guarding:
    """The safeguards of a plugin's workers: given, found when the first worker is made, or off."""

    def __init__(self, given: Safeguards | str | None, keyring: Keyring | None) -> None:
        if isinstance(given, str) and given != OFF:
            raise ValueError(f"safeguards is {given!r}; give Safeguards(…) or {OFF!r}")
        self.keys = KeySource(
            given.keyring if isinstance(given, Safeguards) else keyring, from_environment=given is None
        )
        self.shared = given.shared() if isinstance(given, Safeguards) else None
        self._finds = given is None

    def find(self, artifacts: ArtifactStore | None) -> None:
        """Find the safeguards that the environment names, once."""
        if not self._finds:
            return
        settings = SafeguardSettings.of(os.environ)
        if settings.seals:
            self.shared = settings.with_keys(self.keys.require(), artifacts).shared()
        self._finds = False


class _Providing:
    """What a worker provides to its stages; the gate only while a worker runs."""

    def __init__(self, parts: WorkerParts, guarding: _Guarding) -> None:
        self.parts = parts
        self.guarding = guarding
        self._guarded: WeakKeyDictionary[asyncio.AbstractEventLoop, WorkerParts] = WeakKeyDictionary()

    def here(self) -> WorkerParts:
        """Return what the workers of this event loop provide."""
        return self._guarded.get(asyncio.get_running_loop(), self.parts)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Provide the gate inside the `with` block."""
        if self.guarding.shared is None:
            yield
            return
        async with self.guarding.shared.open() as guarded:
            parts = dataclasses.replace(self.parts, gate=guarded.gate, vault=guarded.vault)
            self._guarded[asyncio.get_running_loop()] = parts
            yield


def _runner(
    given: worker.WorkflowRunner | None, *, kind: type[SandboxedWorkflowRunner] = SandboxedWorkflowRunner
) -> worker.WorkflowRunner:
    """Return the sandbox with `baton` and the frameworks of agents passed through: loading them again costs, or fails.

    `agents` may be a package of the user's own, which stays in the sandbox.
    """
    sandbox = given or SandboxedWorkflowRunner()
    if not isinstance(sandbox, SandboxedWorkflowRunner):
        return _unsandboxed(sandbox)
    openai_agents = ["agents"] if hasattr(sys.modules.get("agents"), "RunContextWrapper") else []
    restrictions = sandbox.restrictions.with_passthrough_modules("baton", *_FRAMEWORKS, *openai_agents)
    return kind(restrictions=restrictions, runner_class=sandbox.runner_class)


def _unsandboxed(given: worker.WorkflowRunner | None) -> worker.WorkflowRunner:
    """Return a runner without Baton's sandbox, guarded."""
    return given if isinstance(given, GuardedRunner) else GuardedRunner(given or worker.UnsandboxedWorkflowRunner())


def _keeping(runner: worker.WorkflowRunner | None, cache: RunCache) -> worker.WorkflowRunner:
    """Return one of Baton's runners as a worker has it."""
    assert isinstance(runner, GuardedRunner | PipelineRunner)  # noqa: S101 - the plugin has put it there
    return dataclasses.replace(runner, cache=cache)


def _activity_name(activity: Callable[..., Any]) -> str | None:
    """Return the name under which an activity is known; None if it stands for all others."""
    definition = getattr(activity, _DEFINITION, None)
    return getattr(definition, "name", None)


class _Labels(client.Interceptor):
    """Gives every pipeline that is started a task id and search attributes."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        return _LabellingClient(next)


class _LabellingClient(client.OutboundInterceptor):
    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        start = input.args[0] if len(input.args) == 1 else None
        if isinstance(start, PipelineInput):
            start = start.model_copy(update={"task_id": start.task_id or str(uuid4())})
            input.args = [start]
            input.search_attributes = _labelled(
                input.search_attributes, start_attributes(input.workflow, start.task_id)
            )
            input.static_summary = input.static_summary or disarm(start.goal[:_SUMMARY_CHARACTERS])
        return await super().start_workflow(input)

    async def create_schedule(self, input: client.CreateScheduleInput) -> client.ScheduleHandle:
        action = input.schedule.action
        start = action.args[0] if isinstance(action, client.ScheduleActionStartWorkflow) and action.args else None
        if isinstance(action, client.ScheduleActionStartWorkflow) and isinstance(start, PipelineInput):
            # Each run is a task of its own, whose id only the run knows: it labels itself with it.
            ours = [one for one in start_attributes(action.workflow, "") if one.value]
            action.typed_search_attributes = _labelled(action.typed_search_attributes, ours)
            action.static_summary = action.static_summary or disarm(start.goal[:_SUMMARY_CHARACTERS])
        return await super().create_schedule(input)


def _labelled(given: object, ours: Sequence[SearchAttributePair[Any]]) -> TypedSearchAttributes:
    """Return the caller's search attributes with Baton's added."""
    if given is not None and not isinstance(given, TypedSearchAttributes):
        raise TypeError("search_attributes must be TypedSearchAttributes for a pipeline; found the untyped form")
    names = {pair.key.name for pair in ours}
    return TypedSearchAttributes([*(pair for pair in given or () if pair.key.name not in names), *ours])


class _WorkerInterceptor(worker.Interceptor):
    """Gives stages what their worker provides, and ends runs whose code fails."""

    def __init__(self, providing: _Providing) -> None:
        self._providing = providing

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        return _ProvidingActivity(next, self._providing)

    def workflow_interceptor_class(
        self, input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        if self._providing.guarding.shared is not None:
            input.unsafe_extern_functions[SEALS] = lambda: True
        return PipelineInbound


class _ProvidingActivity(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, providing: _Providing) -> None:
        super().__init__(next)
        self._providing = providing

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        with worker_parts(self._providing.here()):
            return await super().execute_activity(input)


class PipelineInbound(worker.WorkflowInboundInterceptor):
    """What surrounds the code of a run."""

    async def handle_query(self, input: worker.HandleQueryInput) -> Any:
        """Answer a query; what the run itself has set as its details stands above the page."""
        answer = await super().handle_query(input)
        page = workflow.get_query_handler(QUERY_DETAILS) if input.query == _METADATA else None
        if page is not None:
            answer.current_details = "\n\n".join([*filter(None, [answer.current_details]), page()])
        return answer

    async def handle_update_handler(self, input: worker.HandleUpdateInput) -> Any:
        """Run an update's handler; what it raises fails the update, and Temporal tells its sender alone."""
        with logging_failures(f"the handler of the update {input.update!r} failed"):
            return await super().handle_update_handler(input)

    async def handle_signal(self, input: worker.HandleSignalInput) -> None:
        """Run a signal's handler; what it raises fails the run."""
        with logging_failures(FAILED_THE_RUN):
            await super().handle_signal(input)

    async def execute_workflow(self, input: worker.ExecuteWorkflowInput) -> Any:
        """Run the workflow; see the class."""
        loop = asyncio.get_running_loop()
        try:
            return await self._executed(input, loop)
        finally:
            close_run(loop)

    async def _executed(self, input: worker.ExecuteWorkflowInput, loop: asyncio.AbstractEventLoop) -> Any:
        try:
            return await super().execute_workflow(input)
        except (Exception, BaseExceptionGroup) as raised:
            end = _first(raised)
        # Raised out here, so that a failure keeps the cause it came with.
        if isinstance(end, workflow.ContinueAsNewError) or is_cancelled_exception(end):
            raise end
        if type(end) is workflow.NondeterminismError:  # of recorded outcomes: it suspends the run, see `AnyFault`
            raise end
        show_failed(loop)
        bill = _bill(loop)
        if isinstance(end, FailureError):
            raise as_failure(end, bill, never=True) if isinstance(end, ApplicationError) else end
        log_failure(end, FAILED_THE_RUN)
        message, kind = str(end) or type(end).__name__, type(end).__name__
        if isinstance(end, RestrictedWorkflowAccessError):
            message = f"{message} {_INSTEAD}"
        raise ApplicationError(message, *bill, type=kind, non_retryable=True) from end


def _bill(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    """Return what the pipeline of an event loop was charged, and given by people, as its failure tells it."""
    status = workflow.get_query_handler(QUERY_STATUS) if runs_in(loop) else None
    overview = None if status is None else status()
    if not isinstance(overview, Overview):
        return []
    billed = overview.billed or overview.spend
    more = {TOPPED_UP: overview.topped_up_micro_usd} if overview.topped_up_micro_usd else {}
    return [{SPENT: billed.model_dump(mode="json"), **more}] if billed or more else []


def _first(error: BaseException) -> BaseException:
    """Return the first failure of a task group, which wraps what its tasks raise; another exception as it is."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first(one) for one in error.exceptions]
    return next((one for one in leaves if not isinstance(one, workflow.ContinueAsNewError)), leaves[0])
