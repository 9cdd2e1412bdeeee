"""A worker for pipelines and stages, configured from the environment; it runs until it is stopped.

Settings come from `BATON_...` variables (see `Settings`), the connection from `temporal.toml` profiles and
`TEMPORAL_...` variables. Your own program calls `run_worker`; `python -m baton.worker FILE` runs all pipelines and
stages of a file or package.
"""

import asyncio
import difflib
import gc
import logging
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from pydantic import Field, field_validator
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkerDeploymentConfig

from baton import __version__
from baton.artifacts.store import open_store
from baton.client import Connection, connect
from baton.compression.store_tokens import best_counter
from baton.contract.activity_transcript import KEPT_FOR
from baton.contract.registry import OutputSchema, OutputSchemas
from baton.core.stages import same_name
from baton.errors import ArtifactError, BatonError, ServerError
from baton.handoff.store_safeguards import SafeguardSettings
from baton.hosting.metering import watch_runs, worker_metrics
from baton.hosting.tracing import TracingError, open_tracing
from baton.keys.store_keyring import Keyring, KeyringError
from baton.keys.store_keys import Deciders
from baton.ledger.records import LedgerContinuityError, LedgerKeysError
from baton.pipelines.activity_parts import WorkerParts
from baton.pipelines.activity_stage import Stage
from baton.pipelines.workflow_function import named_schemas
from baton.pipelines.workflow_steps import is_pipeline, workflow_type
from baton.plugin import AT_ONCE, GRACE_SECONDS, OFF, BatonPlugin
from baton.sdk import exit_process
from baton.sdk.failure_logs import short_failure, short_failures
from baton.sdk.sandbox import PipelineFileError, naming_lines, users_traceback
from baton.telemetry.metrics import BUCKETS
from baton.telemetry.worker_logs import limit_repeated_logs
from baton.wire.names import DEFAULT_STORE

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryTracing


@dataclass(frozen=True)
class WorkerCode:
    """The pipelines, stages, plain activities and output schemas of a worker."""

    pipelines: Sequence[type]
    stages: Sequence[Callable[..., Any]]
    schemas: Sequence[OutputSchema] = ()

    @property
    def by_type(self) -> dict[str, type]:
        """The pipelines by their workflow types."""
        return {workflow_type(pipeline): pipeline for pipeline in self.pipelines}


COLLECT_AFTER = 5_000
"""The threshold of the garbage collector. With Python 3.11's 700, a worker with agents spends a tenth of its time on
scanning the objects of their frameworks."""

log = logging.getLogger("baton.worker")


class SettingError(BatonError):
    """A setting is invalid, as found when it was used. Correct the variable that it names."""


@contextmanager
def naming_variable(variable: str) -> Iterator[None]:
    """Prefix errors in the block with the variable that caused them."""
    try:
        yield
    except (ValueError, ArtifactError, KeyringError) as error:
        raise SettingError(f"{variable}: {error}") from error


class Settings(SafeguardSettings):
    """The settings of a worker; each member is the variable `BATON_<MEMBER>`.

    Attributes:
        task_queue: The task queue.
        artifacts: The artifact store: a folder, or the URL of a bucket (`s3://…`, `gs://…`, `az://…`).
        compress: Whether to compress payloads.
        searchable: Whether the namespace has Baton's search attributes.
        stages_at_once: How many stages run at the same time.
        grace_seconds: How long stages in progress may take to finish after a stop signal.
        deployment: The name of the worker deployment.
        build_id: This build; switches worker versioning on.
        metrics: The address for Prometheus metrics, for example `127.0.0.1:9464`.
        deciders: The file of people who may decide about approvals, with public keys and groups.
        transcript_days: How many days the artifact store keeps what agents were asked and answered; 0 keeps nothing.
        log_days: How many days logs have to be kept, 183 for a high-risk AI system in the EU; transcripts are kept at
            least as long, and `baton doctor` warns of what ends earlier.
        log_level: The log level.
    """

    task_queue: str = Field(default="baton", min_length=1)
    artifacts: str = DEFAULT_STORE
    compress: bool = True
    searchable: bool = True
    stages_at_once: int = Field(default=100, ge=1)
    grace_seconds: float = Field(default=GRACE_SECONDS, ge=0, le=timedelta(days=7).total_seconds())
    deployment: str = "baton"
    build_id: str | None = None
    metrics: str | None = None
    deciders: Path | None = None
    transcript_days: int = Field(default=KEPT_FOR.days, ge=0, le=36_500)
    log_days: int = Field(default=0, ge=0, le=36_500)
    log_level: str = "INFO"

    @property
    def transcripts(self) -> timedelta | None:
        """How long transcripts are kept; None keeps none."""
        return timedelta(days=max(self.transcript_days, self.log_days)) if self.transcript_days else None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings of an environment; Temporal's Worker Controller has its own names for two of them."""
        named = {ours: environment[theirs] for ours, theirs in _CONTROLLED.items() if environment.get(theirs)}
        return super().of({**named, **{name: value for name, value in environment.items() if value}})

    @field_validator("log_level")
    @classmethod
    def _check_level(cls, level: str) -> str:
        if level.upper() not in logging.getLevelNamesMapping():
            raise ValueError(f"{level!r} is not a level; expected DEBUG, INFO, WARNING, ERROR or CRITICAL")
        return level.upper()


_CONTROLLED = {"BATON_DEPLOYMENT": "TEMPORAL_DEPLOYMENT_NAME", "BATON_BUILD_ID": "TEMPORAL_WORKER_BUILD_ID"}
"""What the Worker Controller of Temporal sets in the pods of a build."""
_OTHER_VARIABLES = frozenset(
    [
        *("ENV", "KEYS", "USER", "DECIDER_KEY", "AGENT", "HOLDER", "TEMPORAL_CLI", "RECORD"),
        *("TASK_ID", "HANDOFF_ID", "STAGE", "FILES"),  # set for programs of stages
        *("LLM_URL", "LLM_KEY", "LLM_MODEL", "LLM_PROMPT_PRICE", "LLM_COMPLETION_PRICE"),  # the shipped pipelines
        *("DELIVERY_SANDBOX", "DELIVERY_READABLE"),
        *("CODEC_TOKEN", "CODEC_ORIGINS", "CODEC_PORT", "CONSOLE_PORT", "SERVE_PORT"),  # compose and the codec server
        *("RETENTION", "METRICS_RETENTION", "SCRATCH", "SHARED_FOLDER"),
    ]
)
"""The variables that other programs read, without `BATON_`."""


def unknown_settings(environment: Iterable[str]) -> list[str]:
    """Return a phrase for each `BATON_…` variable that nothing reads."""
    known = sorted({*map(str.upper, Settings.model_fields), *_OTHER_VARIABLES})
    names = [name.removeprefix("BATON_") for name in sorted(environment) if name.startswith("BATON_")]
    matches = {name: difflib.get_close_matches(name, known, n=1) for name in names if name not in known}
    return [
        f"BATON_{name} is unknown{f' (did you mean BATON_{similar[0]}?)' if similar else ''}"
        for name, similar in matches.items()
    ]


async def plugin_for(
    settings: Settings, served: WorkerCode, tracing: "OpenTelemetryTracing | None" = None
) -> BatonPlugin:
    """Return a worker's plugin; invalid settings raise an error here."""
    _, counter = best_counter()
    with naming_variable("BATON_ARTIFACTS"):
        store = open_store(settings.artifacts)
        await store.put(b"")  # so that a read-only store fails here and not in a stage
    if settings.deciders:
        with naming_variable("BATON_DECIDERS"):
            Deciders.from_file(settings.deciders)
    parts = WorkerParts(
        artifacts=store,
        counter=counter,
        schemas=OutputSchemas(served.schemas),
        deciders=settings.deciders,
        transcripts=settings.transcripts,
    )
    safeguards = None
    if settings.seals:
        with naming_variable("BATON_KEYS"):
            keyring = Keyring.from_environment(os.environ)  # creates development keys in .baton if there are none
        with naming_variable("BATON_LEDGER"):
            placed = settings.in_namespace(Connection().settings()["namespace"])
        safeguards = placed.with_keys(keyring, store)
        with naming_variable("BATON_LEDGER"):
            async with safeguards.opened():  # so that errors show before the worker takes tasks
                pass
    return BatonPlugin(
        parts, compress=settings.compress, searchable=settings.searchable, safeguards=safeguards or OFF, tracing=tracing
    )


async def connect_worker(settings: Settings, served: WorkerCode, tracing: "OpenTelemetryTracing | None") -> Client:
    """Return the worker's client, after checking the namespace."""
    plugin = await plugin_for(settings, served, tracing)
    runtime = metrics_runtime(settings.metrics) if settings.metrics else None
    client = await connect(plugins=[plugin], runtime=runtime)
    await check_namespace(client)
    return client


async def run_until(stop: asyncio.Event, coroutine: Coroutine[Any, Any, Client]) -> Client | None:
    """Return the result, or None if ``stop`` is set first; connecting may take a minute to fail."""
    task, stopped = asyncio.create_task(coroutine), asyncio.create_task(stop.wait())
    await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait((task,))
    return None


async def check_namespace(client: Client) -> None:
    """Raise an error if the namespace does not exist or refuses this worker."""
    host, name = client.service_client.config.target_host, client.namespace
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name), retry=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise SettingError(f"TEMPORAL_NAMESPACE: the service at {host} has no namespace {name!r}") from error
        raise ServerError(f"the service at {host} refuses namespace {name!r}: {error.message}") from error


def metrics_runtime(address: str) -> Runtime:
    """Return a runtime that serves Prometheus metrics at an IP address and port."""
    metrics = PrometheusConfig(bind_address=address, durations_as_seconds=True, histogram_bucket_overrides=BUCKETS)
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=metrics))
    except ValueError as error:
        raise SettingError(
            f"BATON_METRICS: metrics cannot be served at {address!r}; expected an IP address and a free port, for "
            f"example 127.0.0.1:9464: {error}"
        ) from error


def make_worker(client: Client, settings: Settings, served: WorkerCode) -> Worker:
    """Return the worker, not yet running."""
    versioning = None
    if settings.build_id:
        versioning = WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(settings.deployment, settings.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=served.pipelines,
        activities=served.stages,
        max_concurrent_activities=settings.stages_at_once,
        # Workflow code does not block: more threads would only wait for the interpreter's lock.
        workflow_task_executor=ThreadPoolExecutor(1, thread_name_prefix="workflows"),
        graceful_shutdown_timeout=timedelta(seconds=settings.grace_seconds) or AT_ONCE,
        sticky_queue_schedule_to_start_timeout=timedelta(milliseconds=750),
        deployment_config=versioning,
        # Recorded in each workflow task; the default, a hash of the installed packages, is three times as long.
        build_id=None if versioning else f"baton-{__version__}",
    )


_EXTRA_THREADS = 32
"""Threads beyond one for each stage: a stage may run several tools at once, and one may hang."""


class _ToolThreads(ThreadPoolExecutor):
    """Threads for blocking tools and nodes; they cannot be stopped, so a stopping worker does not wait for them."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what has not started, and do not wait."""
        super().shutdown(wait=False, cancel_futures=True)


async def run(settings: Settings, served: WorkerCode) -> None:
    """Run until SIGTERM or SIGINT; then wait for stages in progress, for the grace period."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(_ToolThreads(_EXTRA_THREADS + settings.stages_at_once, thread_name_prefix="tools"))
    for signum in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(signum, stop.set)
        except NotImplementedError:  # on Windows
            signal.signal(signum, lambda *_: loop.call_soon_threadsafe(stop.set))
    async with AsyncExitStack() as stack:
        tracing = open_tracing(os.environ)
        if tracing is not None:
            stack.callback(tracing.close)
        client = await run_until(stop, connect_worker(settings, served, tracing))
        if client is None:
            log.info("stopped before there was a connection")
            return
        with naming_lines():
            made = make_worker(client, settings, served)
        await stack.enter_async_context(made)
        if settings.metrics and settings.searchable:
            watcher = asyncio.create_task(watch_runs(client, worker_metrics(client)))
            stack.callback(watcher.cancel)
        names = ", ".join(served.by_type)
        service = f"{client.service_client.config.target_host}, namespace {client.namespace!r}"
        log.info("working for task queue %r at %s: %s", settings.task_queue, service, names)
        await stop.wait()
        log.info("stopping; stages in progress have %g s to finish", settings.grace_seconds)
    log.info("stopped")


def serve(served: WorkerCode) -> int:
    """Run a worker and return the exit code: 0 stopped, 2 invalid settings or code, 3 no server."""
    program = Path(sys.argv[0]).name
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    limit_repeated_logs()
    if unknown := unknown_settings(os.environ):
        log.warning("ignored: %s", ", ".join(unknown))
    gc.set_threshold(COLLECT_AFTER)
    try:
        with short_failures():
            asyncio.run(run(settings, served))
    except (LedgerContinuityError, LedgerKeysError, PipelineFileError, SettingError, TracingError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except BatonError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 3
    return 0


def run_worker(
    pipelines: Sequence[type] | str,
    stages: Sequence[Callable[..., Any]] = (),
    *,
    schemas: Sequence[OutputSchema] = (),
) -> NoReturn:
    """Run a worker until SIGTERM or SIGINT, then exit.

    Args:
        pipelines: The workflow classes, or the name of a package or module with the pipelines, stages and schemas.
        stages: Stages and plain activities.
        schemas: Output schemas.

    Raises:
        SystemExit: Always: 0 stopped, 2 invalid settings or code, 3 no server.

    Example:
        ```python
        if __name__ == "__main__":
            run_worker([Delivery], [plan, implement])
        ```
    """
    if isinstance(pipelines, str):
        exit_process(_serve_source(pipelines))
    exit_process(serve(WorkerCode(pipelines, stages, schemas)))


def _serve_source(source: str) -> int:
    """Run a worker for a file or package and return the exit code."""
    try:
        served = discover(source)
    except SettingError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # of the user's code
        print("".join(users_traceback(error)).rstrip() if is_verbose() else short_failure(error), file=sys.stderr)
        return 2
    return serve(served)


def is_verbose() -> bool:
    """Return whether the log level asks for whole tracebacks."""
    return os.environ.get("BATON_LOG_LEVEL", "").upper() == "DEBUG"


def discover(source: str) -> WorkerCode:
    """Return all pipelines, stages and output schemas of a Python file or package."""
    served = collect_served(_import_source(source))
    if not served.pipelines and not served.stages:
        raise SettingError(f"{source} defines no pipeline and no stage; write @pipeline or @stage above a function")
    return served


def collect_served(modules: Sequence[ModuleType]) -> WorkerCode:
    """Return the pipelines, stages and output schemas that modules define or import.

    Raises:
        SettingError: Two pipelines or two stages have the same name, and one would do the other's work.
    """
    stages: dict[str, Stage[Any, Any]] = {}
    for value in _values(modules):
        if isinstance(value, Stage):
            name = value.spec.name
            if (first := stages.setdefault(name, value)) is not value:
                raise SettingError(same_name(name, first, value))
    return WorkerCode([*collect_pipelines(modules).values()], [*stages.values()], named_schemas(_values(modules)))


def collect_pipelines(modules: Iterable[ModuleType]) -> dict[str, type]:
    """Return the pipelines that modules define or import, by their workflow types.

    Raises:
        SettingError: Two pipelines have the same name.
    """
    pipelines: dict[str, type] = {}
    for value in filter(is_pipeline, _values(modules)):
        name = workflow_type(value)
        if (first := pipelines.setdefault(name, value)) is not value:
            places = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in (first, value))
            raise SettingError(f"two pipelines are named {name!r}, {places}: rename one by `name=…`")
    return pipelines


def _values(modules: Iterable[ModuleType]) -> Iterator[Any]:
    for module in modules:
        yield from vars(module).values()


def _import_source(source: str) -> list[ModuleType]:
    """Import a file, a module, or a package with all its modules."""
    path = Path(source)
    if path.suffix == ".py" or path.is_dir():
        if not path.exists():
            raise SettingError(f"there is no file {source!r}")
        target = path.resolve()
        root = target.parent
        while (root / "__init__.py").exists():
            root = root.parent
        sys.path.insert(0, str(root))
        name = ".".join(target.relative_to(root).with_suffix("").parts)
    else:
        sys.path.insert(0, str(Path.cwd()))
        name = source
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise SettingError(f"there is no module {name!r} ({source})") from error
        raise
    return with_submodules(module)


def with_submodules(module: ModuleType) -> list[ModuleType]:
    """Return a module and, if it is a package, all its submodules except `__main__`."""
    submodules = pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}.")
    return [module, *(import_module(info.name) for info in submodules if not info.name.endswith("__main__"))]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m baton.worker FILE|PACKAGE", file=sys.stderr)
        exit_process(2)
    exit_process(_serve_source(sys.argv[1]))
