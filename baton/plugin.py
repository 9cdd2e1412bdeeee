"""`BatonPlugin`: the Temporal plugin for clients and workers that run Baton.

Pass it to `Client.connect(plugins=[BatonPlugin()])`; workers of that client inherit it, and a `Replayer` accepts it as
well. It sets the data converter, passes `baton` through the workflow sandbox, fails a run on any exception of its code,
adds search attributes to new runs, and provides stages with an artifact store and a token counter. Workers have
safeguards: the first worker loads keys and ledger.
"""

import asyncio
import dataclasses
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from temporalio import activity, worker, workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception
from temporalio.plugin import SimplePlugin
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError, SandboxedWorkflowRunner

from baton.artifacts.store import ArtifactStore, default_store, is_on_this_machine
from baton.codec.conversion import use_worker_threshold, warn_of_clear_text
from baton.codec.encryption import is_encryption_enabled
from baton.codec.failures import as_exception, leaf_errors, storable_type, text_of
from baton.contract.registry import OutputSchemas
from baton.core.history import SPENT, TOPPED_UP
from baton.core.lab import LAB, LAB_RUN, LAB_STAGE
from baton.core.messages import Overview
from baton.errors import LabRefusedError
from baton.exchange.activity import EXCHANGE_ACTIVITIES, record
from baton.exchange.external import ACTION
from baton.handoff.store_safeguards import Safeguards, SafeguardSettings
from baton.hosting.metering import MeteredWorker, begin_pipelines, worker_metrics
from baton.hosting.tracing import TracedClient, TracedWorker
from baton.keys.store_keyring import Keyring, KeySource
from baton.pipelines import activity_compression as compressing
from baton.pipelines.activity_parts import WorkerParts, worker_parts
from baton.pipelines.activity_stage import Stage
from baton.pipelines.activity_steering import check_note
from baton.pipelines.activity_worker import (
    MissingParts,
    as_failure,
    check_answer,
    record_question,
)
from baton.pipelines.workflow_function import named_schemas
from baton.pipelines.workflow_lab import OWN_IN_LAB, LabOutbound
from baton.runs.client_clock import ClockError, check_clock, watch_clock
from baton.runs.client_plugin import ClientPlugin
from baton.runs.client_rollback import rolled_back
from baton.runtime.workflow_input import run_fit
from baton.runtime.workflow_visibility import close_run, complete_run, runs_in, show_failed
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
from baton.sdk.sandbox import pipeline_restrictions, without_own
from baton.telemetry.worker_logs import event_loop_watchdog
from baton.wire.names import ANSWER, QUERY_DETAILS, QUERY_STATUS, SEALS, STEER

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryTracing

OFF: Literal["off"] = "off"
"""The value of `BatonPlugin(safeguards=…)` and `BATON_SAFEGUARDS` that disables safeguards."""
WORKFLOW_TASKS = 8
"""The concurrent workflow tasks of a worker; Python's lock runs their code one at a time anyway.

After a restart each task replays its run: of a hundred at once, most would time out and be repeated.
"""
GRACE_SECONDS = 20.0
"""How long stages in progress may take to finish after a stop, unless the worker or `BATON_GRACE_SECONDS` says."""
AT_ONCE = timedelta(microseconds=1)
"""The `graceful_shutdown_timeout` of a worker that cancels its stages at once; Temporal's default, 0, means unset."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_HEARTBEAT_INTERVAL = timedelta(milliseconds=250)  # a lost worker loses at most the charges of this time
_SANDBOX_HINT = (
    "Otherwise use workflow.now(), workflow.random(), workflow.uuid4() or workflow.sleep(), and use files, the network "
    "and the environment only in stages."
)
_DEFINITION = "__temporal_activity_definition"  # set by Temporal on each activity
_METADATA = "__temporal_workflow_metadata"  # the UI's query for a run's current details


class BatonPlugin(ClientPlugin, SimplePlugin):
    """The Temporal plugin for clients and workers that run Baton.

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
            parts: What workers provide to stages; by default the deployment's artifact store (`BATON_ARTIFACTS`, else
                `.baton/artifacts`). The store also holds large payloads: of a worker above 8 KiB as stored (16 KiB of
                text or more), of a client above 256 KiB. Readers of such runs need the same store.
            compress: Compress payloads.
            searchable: Set Baton's search attributes on new runs. The namespace must have them: `baton dev` and
                docker-compose.yml create them, and `baton doctor` checks them.
            safeguards: Keys, ledger and safety policy. Each stage then starts with a signed handoff, which its worker
                validates and records first. By default they come from the environment, as for `worker.py`:
                `BATON_KEYS`, `BATON_LEDGER` and the like, else keys and ledger in `.baton`, which the first worker
                creates outside production. `"off"` disables them; stages then start with plain inputs.
            keyring: The keys of a service that decrypts payloads or signals handoffs, if neither `safeguards` nor the
                environment has them.
            encrypt: Encrypt payloads; by default as in `BATON_ENCRYPT`.
            tracing: Exports spans of clients and stages, from `baton.hosting.tracing.open_tracing`.

        Raises:
            KeyringError: Development keys are used in production.
        """
        parts = parts or WorkerParts(artifacts=default_store())
        configured = safeguards if isinstance(safeguards, Safeguards) else None
        keys = KeySource(configured.keyring if configured else keyring, from_environment=safeguards is None)
        self._provider = _PartsProvider(parts, _SafeguardSource(safeguards, keys))
        self._store_is_local = is_on_this_machine(parts.artifacts)
        if configured:
            encrypt = configured.encrypt
        elif safeguards is None:
            encrypt = encrypt or is_encryption_enabled(os.environ)
        ClientPlugin.__init__(
            self,
            parts.artifacts,
            keys=keys,
            compress=compress,
            encrypt=encrypt,
            searchable=searchable,
            interceptors=[] if tracing is None else [TracedClient(tracing)],
        )
        own: list[worker.Interceptor] = [_WorkerInterceptor(self._provider)]
        SimplePlugin.__init__(
            self,
            "baton",
            data_converter=self._converter,
            interceptors=own if tracing is None else [TracedWorker(tracing), *own],
            workflow_runner=partial(_make_runner, kind=runner_for(self._converter)),
            workflow_failure_exception_types=[AnyFault],
        )
        self._own_activities: list[Callable[..., Any]] = [
            compressing.compress,
            record,
            rolled_back,
            check_answer,
            check_note,
            record_question,
            *EXCHANGE_ACTIVITIES,
        ]

    @property
    def artifacts(self) -> ArtifactStore | None:
        """The artifact store of its workers."""
        return self._provider.parts.artifacts

    def configure_replayer(self, config: worker.ReplayerConfig) -> worker.ReplayerConfig:
        """Configure a replayer, also for pipelines outside the sandbox."""
        config = super().configure_replayer(config)
        config["unsandboxed_workflow_runner"] = _guard(config.get("unsandboxed_workflow_runner"))
        return config

    def configure_worker(self, config: worker.WorkerConfig) -> worker.WorkerConfig:
        """Configure a worker, with metrics in the client's runtime.

        Raises:
            TypeError: A workflow's `__init__` takes an input and lacks `@workflow.init`, so no run could start, or a
                function among the activities is neither a stage nor an activity.
            KeyringError: The safeguards have no keys, in production.
            ValueError: A `BATON_…` variable has an invalid value.
        """
        client = config.get("client")
        self._provider.source.load(self._provider.parts.artifacts, client.namespace if client else "default")
        config = super().configure_worker(config)
        for kind in config.get("workflows") or []:
            _check_init(kind)
        activities = list(config.get("activities") or [])
        for function in activities:
            if not hasattr(function, _DEFINITION):
                raise TypeError(
                    f"{function!r} is not a stage: write @stage above it, or @activity.defn for a plain activity"
                )
        # Heartbeats carry a stage's cost; by default the SDK delays them for 0.8 of the heartbeat timeout.
        interval = config.get("max_heartbeat_throttle_interval", _HEARTBEAT_INTERVAL)
        config["max_heartbeat_throttle_interval"] = min(interval, _HEARTBEAT_INTERVAL)
        config["graceful_shutdown_timeout"] = _grace_period(config.get("graceful_shutdown_timeout"))
        if self._store_is_local:  # concurrency gains nothing on a disk, and costs a task for each small payload
            config["max_workflow_task_external_storage_concurrency"] = 1
        activities += [function.in_lab() for function in activities if isinstance(function, Stage)]
        names = {*map(_activity_name, activities)}  # these replace Baton's own
        missing = MissingParts({*names, *map(_activity_name, self._own_activities)})
        own = [*self._own_activities, *missing.activities]
        config["activities"] = [*activities, *(function for function in own if _activity_name(function) not in names)]
        if config.get("tuner") is None and config.get("max_concurrent_workflow_tasks") is None:
            config["max_concurrent_workflow_tasks"] = WORKFLOW_TASKS
        cache = RunCache()
        runner = _with_own(config.get("workflow_runner"), config.get("workflows") or [])
        config["workflow_runner"] = _with_cache(runner, cache)
        config["unsandboxed_workflow_runner"] = _with_cache(_guard(config.get("unsandboxed_workflow_runner")), cache)
        warn_of_clear_text(config["client"].data_converter)
        use_worker_threshold(config["client"].data_converter)
        metrics = worker_metrics(config["client"])
        begin_pipelines(config["client"], config.get("task_queue", ""), config.get("workflows") or [])
        schemas = self._provider.parts.schemas
        if named := named_schemas(config.get("workflows") or []):
            schemas = (schemas or OutputSchemas()).including(named)
        self._provider.parts = dataclasses.replace(self._provider.parts, metrics=metrics, schemas=schemas)
        config["interceptors"] = [*(config.get("interceptors") or []), missing, MeteredWorker(metrics)]
        return config

    async def run_worker(self, worker: worker.Worker, next: Callable[[worker.Worker], Awaitable[None]]) -> None:
        """Run a worker with an open ledger, if any, and log what blocks its event loop.

        A worker that verifies handoffs compares its clock with the server's, at the start and then each minute.

        Raises:
            ClockError: The clock is off by more than `TOLERANCE`; a worker that runs is shut down first.
            LedgerError: The ledger cannot be opened.
            KeyringError: A key is missing.
        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._provider.open())
                gate = self._provider.current().gate
                if gate is not None:
                    await check_clock(worker.client, gate.freshness.tolerance)
            except Exception:
                # A worker must run to shut down; otherwise `async with worker` waits for ever.
                shutdown = asyncio.create_task(worker.shutdown())
                with suppress(Exception):  # the first error counts
                    await next(worker)
                await shutdown
                raise
            stack.enter_context(event_loop_watchdog())
            runner = worker.config(active_config=True).get("workflow_runner")
            if isinstance(runner, GuardedRunner | PipelineRunner) and runner.cache is not None:
                runner.cache.attach(worker)
            if gate is None:
                await next(worker)
            else:
                await _run_while_in_step(worker, next, gate.freshness.tolerance)


async def _run_while_in_step(
    worker: worker.Worker, next: Callable[[worker.Worker], Awaitable[None]], tolerance: timedelta
) -> None:
    """Run a worker until it ends, or until its clock is off: then shut it down and raise."""
    watching = asyncio.create_task(watch_clock(worker.client, tolerance))

    async def shut_down() -> None:
        with suppress(ClockError):
            await watching
        await worker.shutdown()

    shutting_down = asyncio.create_task(shut_down())
    try:
        await next(worker)
    finally:
        is_off = watching.done()
        watching.cancel()
        shutting_down.cancel()
        await asyncio.gather(watching, shutting_down, return_exceptions=True)
    if is_off:
        await watching


def _grace_period(configured: timedelta | None) -> timedelta:
    """Return how long stages may take to finish after a stop: as configured, or `BATON_GRACE_SECONDS`."""
    return configured or timedelta(seconds=float(os.environ.get("BATON_GRACE_SECONDS") or GRACE_SECONDS))


def _check_init(kind: type) -> None:
    """Raise an error for a workflow whose `__init__` takes an argument but does not get it."""
    init = vars(kind).get("__init__", object.__init__)  # the SDK also looks only in the class itself
    parameters = [*inspect.signature(init).parameters.values()][1:]
    required = [item.name for item in parameters if item.default is item.empty and item.kind not in _VARIADIC]
    if required and not hasattr(init, "__temporal_workflow_init"):
        raise TypeError(
            f"{kind.__qualname__}.__init__ takes {', '.join(required)}, and Temporal passes nothing: write "
            "@workflow.init above it"
        )


class _SafeguardSource:
    """The safeguards of a plugin's workers: configured, loaded for the first worker, or off."""

    def __init__(self, configured: Safeguards | str | None, keys: KeySource) -> None:
        if isinstance(configured, str) and configured != OFF:
            raise ValueError(f"safeguards is {configured!r}; expected Safeguards(…) or {OFF!r}")
        safeguards = configured if isinstance(configured, Safeguards) else None
        self.keys = keys
        self.shared = safeguards.shared() if safeguards else None
        self._loads = configured is None

    def load(self, artifacts: ArtifactStore | None, namespace: str) -> None:
        """Load the safeguards of a namespace from the environment, once."""
        if not self._loads:
            return
        settings = SafeguardSettings.of(os.environ).in_namespace(namespace)
        if settings.seals:
            self.shared = settings.with_keys(self.keys.require(), artifacts).shared()
        self._loads = False


class _PartsProvider:
    """Provides the worker's parts to its stages, with the gate while a worker runs."""

    def __init__(self, parts: WorkerParts, source: _SafeguardSource) -> None:
        self.parts = parts
        self.source = source
        self._guarded: WeakKeyDictionary[asyncio.AbstractEventLoop, WorkerParts] = WeakKeyDictionary()

    def current(self) -> WorkerParts:
        """Return the parts of the workers in this event loop."""
        return self._guarded.get(asyncio.get_running_loop(), self.parts)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Provide the gate inside the `with` block."""
        if self.source.shared is None:
            yield
            return
        async with self.source.shared.open() as guarded:
            parts = dataclasses.replace(self.parts, gate=guarded.gate, vault=guarded.vault)
            self._guarded[asyncio.get_running_loop()] = parts
            yield


def _make_runner(
    configured: worker.WorkflowRunner | None, *, kind: type[SandboxedWorkflowRunner] = SandboxedWorkflowRunner
) -> worker.WorkflowRunner:
    """Return the sandbox, in which only the user's own modules are loaded again for each run.

    Installed packages are passed through: reloading them is slow, and many cannot be loaded twice.
    """
    sandbox = configured or SandboxedWorkflowRunner()
    if not isinstance(sandbox, SandboxedWorkflowRunner):
        return _guard(sandbox)
    return kind(restrictions=pipeline_restrictions(sandbox.restrictions), runner_class=sandbox.runner_class)


def _guard(runner: worker.WorkflowRunner | None) -> worker.WorkflowRunner:
    """Return a guarded runner without Baton's sandbox."""
    return runner if isinstance(runner, GuardedRunner) else GuardedRunner(runner or worker.UnsandboxedWorkflowRunner())


def _with_own(runner: worker.WorkflowRunner | None, workflows: Sequence[type]) -> worker.WorkflowRunner | None:
    """Return a runner that keeps the packages of these workflows in the sandbox."""
    if not isinstance(runner, PipelineRunner):
        return runner
    return dataclasses.replace(runner, restrictions=without_own(runner.restrictions, workflows))


def _with_cache(runner: worker.WorkflowRunner | None, cache: RunCache) -> worker.WorkflowRunner:
    """Return one of Baton's runners as a worker has it."""
    assert isinstance(runner, GuardedRunner | PipelineRunner)  # noqa: S101 - the plugin has put it there
    return dataclasses.replace(runner, cache=cache)


def _activity_name(activity: Callable[..., Any]) -> str | None:
    """Return the name of an activity; None for a dynamic one."""
    definition = getattr(activity, _DEFINITION, None)
    return getattr(definition, "name", None)


class _WorkerInterceptor(worker.Interceptor):
    """Provides parts to stages, and fails runs whose code raises."""

    def __init__(self, provider: _PartsProvider) -> None:
        self._provider = provider

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        return _ActivityWithParts(next, self._provider)

    def workflow_interceptor_class(
        self, input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        if self._provider.source.shared is not None:
            input.unsafe_extern_functions[SEALS] = lambda: True
        return PipelineInbound


class _ActivityWithParts(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, provider: _PartsProvider) -> None:
        super().__init__(next)
        self._provider = provider

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        kind, is_case = activity.info().activity_type, activity.info().workflow_type == LAB_RUN
        in_lab = is_case or kind.startswith(LAB_STAGE) or (LAB in input.headers and kind not in OWN_IN_LAB)
        if in_lab and not isinstance(input.fn, Stage):
            raise ApplicationError(
                f"{kind!r} is not a stage, so the lab does not run it",
                type=LabRefusedError.__name__,
                non_retryable=True,
            )
        with worker_parts(self._provider.current()):
            return await super().execute_activity(input)


_AWAITED = frozenset({ANSWER, STEER, ACTION})
"""The updates that a pipeline's run finishes before it ends; one of the team's own may take for ever."""


class PipelineInbound(worker.WorkflowInboundInterceptor):
    """Intercepts queries, updates, signals and the code of a run; in the lab also what it sends."""

    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        """Intercept what the run sends."""
        self._outbound, self._under_way = LabOutbound(outbound), 0
        super().init(self._outbound)

    async def handle_query(self, input: worker.HandleQueryInput) -> Any:
        """Answer a query, with Baton's page below the run's own details."""
        with _raising_exceptions():
            answer = await super().handle_query(input)
        page = workflow.get_query_handler(QUERY_DETAILS) if input.query == _METADATA else None
        if page is not None:
            answer.current_details = "\n\n".join([*filter(None, [answer.current_details]), page()])
        return answer

    async def handle_update_handler(self, input: worker.HandleUpdateInput) -> Any:
        """Run an update's handler; an error fails the update and is reported only to its sender."""
        with (
            logging_failures(f"the handler of the update {input.update!r} failed"),
            _raising_exceptions(),
            self._awaited(input.update),
        ):
            return await super().handle_update_handler(input)

    async def handle_signal(self, input: worker.HandleSignalInput) -> None:
        """Run a signal's handler; an error fails the run."""
        with logging_failures(FAILED_THE_RUN), _raising_exceptions(), self._awaited(input.signal):
            await super().handle_signal(input)

    @contextmanager
    def _awaited(self, name: str) -> Iterator[None]:
        """Have the run wait for the block, if it handles one of Baton's updates, before it ends."""
        counted = name in _AWAITED and runs_in(asyncio.get_running_loop())
        self._under_way += counted
        try:
            yield
        finally:
            self._under_way -= counted

    async def execute_workflow(self, input: worker.ExecuteWorkflowInput) -> Any:
        """Run the workflow; an error fails the run."""
        loop, fit = asyncio.get_running_loop(), run_fit()
        self._outbound.begin(input.args)
        try:
            return await self._execute(input, loop)
        finally:
            if runs_in(loop):
                fit.end()
            close_run(loop)

    async def _execute(self, input: worker.ExecuteWorkflowInput, loop: asyncio.AbstractEventLoop) -> Any:
        error = None
        try:
            with _raising_exceptions():
                result = await super().execute_workflow(input)
                await complete_run(loop)
        except (Exception, BaseExceptionGroup) as raised:
            error = _first_error(raised)
        await workflow.wait_condition(lambda: not self._under_way)
        if error is None:
            return result
        # Raised outside the handler, so that a failure keeps its own cause.
        if isinstance(error, workflow.ContinueAsNewError) or is_cancelled_exception(error):
            raise error
        show_failed(loop)
        details = _cost_details(loop)
        if isinstance(error, FailureError):
            raise as_failure(error, details, never=True) if isinstance(error, ApplicationError) else error
        log_failure(error, FAILED_THE_RUN)
        message = text_of(error) or storable_type(error)
        if isinstance(error, RestrictedWorkflowAccessError):
            message = f"{message} {_SANDBOX_HINT}"
        raise ApplicationError(message, *details, type=storable_type(error), non_retryable=True) from error


@contextmanager
def _raising_exceptions() -> Iterator[None]:
    """Raise an Exception instead of another error, which the SDK would lose, or which would end the worker."""
    loop = asyncio.get_running_loop()
    try:
        yield
    except (Exception, BaseExceptionGroup, asyncio.CancelledError):
        raise
    except BaseException as error:
        if type(error).__module__.startswith("temporalio.") or not runs_in(loop):  # it continues as new, or is evicted
            raise
        raise as_exception(error) from error


def _cost_details(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    """Return the cost and top-ups of an event loop's pipeline, as details of its failure."""
    status = workflow.get_query_handler(QUERY_STATUS) if runs_in(loop) else None
    overview = None if status is None else status()
    if not isinstance(overview, Overview):
        return []
    billed = overview.billed or overview.spend
    top_ups = {TOPPED_UP: overview.topped_up_micro_usd} if overview.topped_up_micro_usd else {}
    return [{SPENT: billed.model_dump(mode="json"), **top_ups}] if billed or top_ups else []


def _first_error(error: BaseException) -> BaseException:
    """Return the first error in an exception group, or the error itself."""
    errors = [*leaf_errors(error)]
    return next((inner for inner in errors if not isinstance(inner, workflow.ContinueAsNewError)), errors[0])
