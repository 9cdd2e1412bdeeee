"""A worker for pipelines and their stages, set up from the environment; it runs until it is asked to stop.

Settings come from `BATON_...` variables (see `Settings`), the connection from `temporal.toml` profiles and
`TEMPORAL_...` variables. A program of your own calls `run_worker`; `python -m baton.worker FILE` serves all pipelines
and stages that a file or a package defines.
"""

import asyncio
import difflib
import gc
import logging
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import Field, field_validator
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkerDeploymentConfig

from baton import __version__
from baton.artifacts.records import DEFAULT_STORE
from baton.artifacts.store import open_store
from baton.client import connect
from baton.compression.store_tokens import best_counter
from baton.contract.registry import OutputSchema, OutputSchemas
from baton.errors import ArtifactError, BatonError, ServerError
from baton.handoff.store_safeguards import SafeguardSettings
from baton.keys.store_keyring import Keyring, KeyringError
from baton.keys.store_keys import Deciders
from baton.pipelines.activity_context import WorkerParts
from baton.pipelines.activity_stage import Stage
from baton.pipelines.workflow_steps import is_pipeline, workflow_type
from baton.plugin import OFF, BatonPlugin
from baton.sdk import leave
from baton.telemetry.metering import watch_runs, worker_metrics
from baton.telemetry.metrics import BUCKETS
from baton.telemetry.tracing import TracingError, open_tracing
from baton.telemetry.worker_logs import limit_repeated_logs

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryTracing


@dataclass(frozen=True)
class Served:
    """What a worker serves.

    Attributes:
        pipelines: Workflow classes.
        stages: Their stages, and plain activities.
        schemas: The output schemas that their contracts name.
    """

    pipelines: Sequence[type]
    stages: Sequence[Callable[..., Any]]
    schemas: Sequence[OutputSchema] = ()

    @property
    def by_type(self) -> dict[str, type]:
        """The pipelines by their workflow types."""
        return {workflow_type(one): one for one in self.pipelines}


COLLECT_AFTER = 5_000
"""So many new objects make Python look for garbage: after the 700 of Python 3.11, a worker with agents spends a tenth
of its time on going through all that their frameworks have loaded."""

log = logging.getLogger("baton.worker")


class SettingError(BatonError):
    """A setting cannot be used, as only its use could show."""


@contextmanager
def naming_variable(variable: str) -> Iterator[None]:
    """Say of a value that is refused inside which variable it came from."""
    try:
        yield
    except (ValueError, ArtifactError, KeyringError) as error:
        raise SettingError(f"{variable}: {error}") from error


class Settings(SafeguardSettings):
    """What the environment says; each member is the variable `BATON_<MEMBER>`.

    Attributes:
        task_queue: The task queue to work for.
        artifacts: The artifact store: a folder, or the URL of a bucket (`s3://…`, `gs://…`, `az://…`).
        compress: Whether to compress what goes into the history.
        searchable: Whether the namespace has Baton's search attributes.
        stages_at_once: How many stages run at the same time.
        grace_seconds: How long stages in progress may take to finish after a stop is asked for.
        deployment: The name of the worker deployment.
        build_id: This build; switches worker versioning on.
        metrics: Where to serve Prometheus metrics, for example `127.0.0.1:9464`.
        deciders: The file of those who may decide about approvals: their public keys, and groups.
        log_level: How much is logged.
    """

    task_queue: str = Field(default="baton", min_length=1)
    artifacts: str = DEFAULT_STORE
    compress: bool = True
    searchable: bool = True
    stages_at_once: int = Field(default=100, ge=1)
    grace_seconds: float = Field(default=20, ge=0, le=timedelta(days=7).total_seconds())
    deployment: str = "baton"
    build_id: str | None = None
    metrics: str | None = None
    deciders: Path | None = None
    log_level: str = "INFO"

    @field_validator("log_level")
    @classmethod
    def _is_level(cls, given: str) -> str:
        if given.upper() not in logging.getLevelNamesMapping():
            raise ValueError(f"{given!r} is not a level: DEBUG, INFO, WARNING, ERROR and CRITICAL are")
        return given.upper()


_ELSEWHERE = frozenset(
    [
        *("ENV", "KEYS", "USER", "DECIDER_KEY", "AGENT", "HOLDER", "TEMPORAL_CLI", "RECORD"),
        *("TASK_ID", "HANDOFF_ID", "STAGE", "FILES"),  # which programs of stages are given
        *("LLM_URL", "LLM_KEY", "LLM_MODEL", "LLM_PROMPT_PRICE", "LLM_COMPLETION_PRICE"),  # the shipped pipelines
        *("DELIVERY_SANDBOX", "DELIVERY_READABLE"),
        *("CODEC_TOKEN", "CODEC_ORIGINS", "CODEC_PORT", "CONSOLE_PORT"),  # compose and the codec server
        *("RETENTION", "METRICS_RETENTION", "SCRATCH", "SHARED_FOLDER"),
    ]
)
"""The variables that others than a worker read, without `BATON_`."""


def unknown_settings(environment: Iterable[str]) -> list[str]:
    """Return a phrase on each `BATON_…` variable that nothing reads."""
    known = sorted({*map(str.upper, Settings.model_fields), *_ELSEWHERE})
    given = [name.removeprefix("BATON_") for name in sorted(environment) if name.startswith("BATON_")]
    near = {name: difflib.get_close_matches(name, known, n=1) for name in given if name not in known}
    return [
        f"BATON_{name} is unknown{f' (did you mean BATON_{found[0]}?)' if found else ''}"
        for name, found in near.items()
    ]


async def plugin_for(settings: Settings, served: Served, tracing: "OpenTelemetryTracing | None" = None) -> BatonPlugin:
    """Return the plugin of a worker, with everything its stages need; what is wrong with the settings is found here."""
    _, counter = best_counter()
    with naming_variable("BATON_ARTIFACTS"):
        store = open_store(settings.artifacts)
        await store.put(b"")  # so that a store which cannot be written is not found out by a stage
    if settings.deciders:
        with naming_variable("BATON_DECIDERS"):
            Deciders.from_file(settings.deciders)
    parts = WorkerParts(
        artifacts=store, counter=counter, schemas=OutputSchemas(served.schemas), deciders=settings.deciders
    )
    safeguards = None
    if settings.seals:
        with naming_variable("BATON_KEYS"):
            keyring = Keyring.from_environment(os.environ)  # creates development keys in .baton if there are none
        safeguards = settings.with_keys(keyring, store)
        with naming_variable("BATON_LEDGER"):
            async with safeguards.opened():  # what is wrong with them is said before anything is taken on
                pass
    return BatonPlugin(
        parts, compress=settings.compress, searchable=settings.searchable, safeguards=safeguards or OFF, tracing=tracing
    )


async def connected(settings: Settings, served: Served, tracing: "OpenTelemetryTracing | None" = None) -> Client:
    """Return the worker's client."""
    plugin = await plugin_for(settings, served, tracing)
    runtime = serving_metrics(settings.metrics) if settings.metrics else None
    return await connect(plugins=[plugin], runtime=runtime)


async def admitted(settings: Settings, served: Served, tracing: "OpenTelemetryTracing | None") -> Client:
    """Return the worker's client once the service has let it in."""
    client = await connected(settings, served, tracing)
    await check_namespace(client)
    return client


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Client]) -> Client | None:
    """Return what ``work`` returns, or None if it is to stop first: a service out of reach takes a minute to fail."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.wait((working,))
    return None


async def check_namespace(client: Client) -> None:
    """Make sure that the service has the namespace and lets this worker in."""
    where, name = client.service_client.config.target_host, client.namespace
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name), retry=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise SettingError(f"TEMPORAL_NAMESPACE: the service at {where} has no namespace {name!r}") from error
        raise ServerError(f"the service at {where} refuses namespace {name!r}: {error.message}") from error


def serving_metrics(address: str) -> Runtime:
    """Return a runtime that serves Prometheus metrics at an IP address and port."""
    metrics = PrometheusConfig(bind_address=address, durations_as_seconds=True, histogram_bucket_overrides=BUCKETS)
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=metrics))
    except ValueError as error:
        raise SettingError(
            f"BATON_METRICS: metrics cannot be served at {address!r}; expected an IP address and a port that is free, "
            f"for example 127.0.0.1:9464: {error}"
        ) from error


def worker(client: Client, settings: Settings, served: Served) -> Worker:
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
        # Workflow code is Python and waits for nothing: further threads would only queue for the interpreter's lock.
        workflow_task_executor=ThreadPoolExecutor(1, thread_name_prefix="workflows"),
        graceful_shutdown_timeout=timedelta(seconds=settings.grace_seconds),
        sticky_queue_schedule_to_start_timeout=timedelta(milliseconds=750),
        deployment_config=versioning,
        # Each task of a workflow records it; the default is a hash of the installed packages, three times as long.
        build_id=None if versioning else f"baton-{__version__}",
    )


_THREADS = 32
"""So many more threads than stages there may be: a stage may call two tools at once, and one may never come back."""


class _Threads(ThreadPoolExecutor):
    """The threads of tools and nodes that are not async: none can be ended, so a worker that stops waits for none."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more."""
        super().shutdown(wait=False, cancel_futures=True)


async def run(settings: Settings, served: Served) -> None:
    """Work until SIGTERM or SIGINT; then let the stages in progress finish, for as long as the grace lasts."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(_Threads(_THREADS + settings.stages_at_once, thread_name_prefix="tools"))
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows has no such handlers; an ordinary one may not touch the loop itself
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    async with AsyncExitStack() as running:
        tracing = open_tracing(os.environ)
        if tracing is not None:
            running.callback(tracing.close)
        client = await unless(stop, admitted(settings, served, tracing))
        if client is None:
            log.info("stopped before there was a connection")
            return
        await running.enter_async_context(worker(client, settings, served))
        if settings.metrics and settings.searchable:
            watching = asyncio.create_task(watch_runs(client, worker_metrics(client)))
            running.callback(watching.cancel)
        names = ", ".join(served.by_type)
        where = f"{client.service_client.config.target_host}, namespace {client.namespace!r}"
        log.info("working for task queue %r at %s: %s", settings.task_queue, where, names)
        await stop.wait()
        log.info("stopping; stages in progress have %g s to finish", settings.grace_seconds)
    log.info("stopped")


def work(served: Served) -> int:
    """Run a worker; return the exit code: 0 stopped as asked, 2 wrong settings, 3 no server."""
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
        asyncio.run(run(settings, served))
    except (SettingError, TracingError) as error:
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
    """Run a worker until SIGTERM or SIGINT, then end the process.

    Args:
        pipelines: The workflow classes it runs; or the name of a package or module, whose pipelines, stages and
            schemas are all served.
        stages: Their stages, and plain activities.
        schemas: The output schemas that their contracts name.

    Raises:
        SystemExit: Always: 0 stopped as asked, 2 wrong settings, 3 no server.

    Example:
        ```python
        if __name__ == "__main__":
            run_worker([Delivery], [plan, implement])
        ```
    """
    if isinstance(pipelines, str):
        leave(_work_for(pipelines))
    leave(work(Served(pipelines, stages, schemas)))


def _work_for(place: str) -> int:
    """Run a worker for all that a place defines; return the exit code."""
    try:
        found = discover(place)
    except SettingError as fault:
        print(f"{Path(sys.argv[0]).name}: {fault}", file=sys.stderr)
        return 2
    return work(found)


def discover(place: str) -> Served:
    """Return all pipelines, stages and output schemas that a Python file or package defines."""
    found = defined_in(_modules(place))
    if not found.pipelines and not found.stages:
        raise SettingError(f"{place} defines no pipeline and no stage; write @pipeline or @stage above a function")
    return found


def defined_in(modules: Iterable[ModuleType]) -> Served:
    """Return the pipelines, stages and output schemas that modules define or import."""
    pipelines: dict[str, type] = {}
    stages: dict[str, Callable[..., Any]] = {}
    schemas: list[OutputSchema] = []
    for module in modules:
        for value in vars(module).values():
            if is_pipeline(value):
                pipelines.setdefault(workflow_type(value), value)
            elif isinstance(value, Stage):
                stages.setdefault(value.spec.name, value)
            elif isinstance(value, OutputSchema) and value not in schemas:
                schemas.append(value)
    return Served([*pipelines.values()], [*stages.values()], schemas)


def _modules(place: str) -> list[ModuleType]:
    """Import a file, a package with all its modules, or a module."""
    path = Path(place)
    if path.suffix == ".py" or path.is_dir():
        if not path.exists():
            raise SettingError(f"there is no file {place!r}")
        top = path.resolve()
        root = top.parent
        while (root / "__init__.py").exists():
            root = root.parent
        sys.path.insert(0, str(root))
        name = ".".join(top.relative_to(root).with_suffix("").parts)
    else:
        sys.path.insert(0, str(Path.cwd()))
        name = place
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise SettingError(f"there is no module {name!r} ({place})") from error
        raise
    return with_submodules(module)


def with_submodules(module: ModuleType) -> list[ModuleType]:
    """Return a module and, where it is a package, all modules in it but `__main__`."""
    below = pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}.")
    return [module, *(import_module(found.name) for found in below if not found.name.endswith("__main__"))]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m baton.worker FILE|PACKAGE", file=sys.stderr)
        leave(2)
    leave(_work_for(sys.argv[1]))
