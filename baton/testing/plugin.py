"""The pytest plugin: fixtures for a server, clients, workers, scripts and cassettes. pytest loads it by itself.

No fixture is asynchronous, so it works with pytest-asyncio, with anyio's plugin, and with `asyncio.run`. The server
starts when a test first uses it; under pytest-xdist each process has its own.
"""

import gc
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import baton.testing as kit

if TYPE_CHECKING:  # pytest loads this module at every start, so fixtures import the rest lazily
    from temporalio.client import Client
    from temporalio.testing import TimeSkipper
    from temporalio.worker import Worker

    from baton.devserver import DevServer, DevServerOptions
    from baton.plugin import BatonPlugin
    from baton.testing import BackgroundLoop, Cassette, Scripts

RECORD_VARIABLE = "BATON_RECORD"
"""Set it to 1 to record, as with `--baton-record`."""

_PASSED = pytest.StashKey[bool]()
_SERVER = pytest.StashKey["DevServer"]()
_RECORDED = "baton recorded"
_SETTLE_SECONDS = 0.3
_MAX_NAME_LENGTH = 100
_PLAIN_NAME = re.compile(rf"(?=.{{1,{_MAX_NAME_LENGTH}}}$)[\w.]+(?:\[\w(?:[\w.-]*\w)?\])?")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--baton-record`."""
    group = parser.getgroup("baton", "durable pipelines (temporal-baton)")
    group.addoption(
        "--baton-record",
        action="store_true",
        help=f"ask the real agents for answers missing from the cassettes and record them (or {RECORD_VARIABLE}=1); "
        "refused in CI",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to record in CI, where a recording would not be reviewed."""
    if _is_recording(config) and _is_set("CI"):
        raise pytest.UsageError(
            f"--baton-record ({RECORD_VARIABLE}) asks real agents and writes cassettes, and CI is set; record on your "
            "own machine, review the files, and commit them"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed; stop the session if its server has exited."""
    report = yield
    if report.when == "call" and not report.skipped:
        item.stash[_PASSED] = report.passed
    server = item.config.stash.get(_SERVER, None)
    if report.failed and server is not None and (ended := kit.ended_too_soon(server)):
        item.session.shouldfail = ended
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the recorded answers, so that somebody reviews them."""
    files: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "teardown":
                files.update(value for name, value in report.user_properties if name == _RECORDED)
    if files:
        terminalreporter.section("baton recorded answers: review them before you commit them")
        for file, count in sorted(files.items()):
            terminalreporter.line(f"{count} in {file}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Let the Temporal SDK's threads end before the interpreter exits."""
    if {"baton.devserver", "baton.plugin"} & sys.modules.keys():
        gc.collect()
        time.sleep(_SETTLE_SECONDS)


@pytest.fixture(scope="session")
def baton_loop() -> "Iterator[BackgroundLoop]":
    """Return an event loop in a thread, for the session's server and clients."""
    with kit.BackgroundLoop() as loop:
        yield loop


@pytest.fixture(scope="session")
def baton_server_options() -> "DevServerOptions | None":
    """Return the server's options; override this fixture in your conftest.py to change them."""
    return None


@pytest.fixture(scope="session")
def baton_server(
    request: pytest.FixtureRequest,
    baton_loop: "BackgroundLoop",
    baton_server_options: "DevServerOptions | None",
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[DevServer]":
    """Return a real in-memory Temporal server, at ``baton_server.address``."""
    options = baton_server_options or kit.TEST_OPTIONS
    log = options.log_file or tmp_path_factory.mktemp("server") / "temporal.log"
    server = kit.local_server(replace(options, log=log))
    request.config.stash[_SERVER] = baton_loop.run(server.__aenter__())
    yield request.config.stash[_SERVER]
    del request.config.stash[_SERVER]
    baton_loop.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def baton_plugin() -> "BatonPlugin | None":
    """Return the plugin of the session's client; override this fixture in your conftest.py to change it."""
    return None


@pytest.fixture(scope="session")
def baton_client(
    baton_loop: "BackgroundLoop", baton_server: "DevServer", baton_plugin: "BatonPlugin | None"
) -> "Client":
    """Return a client of the server, with `BatonPlugin`; it can be used on any event loop."""
    return baton_loop.run(kit.connected(baton_server.address, baton_plugin))


@pytest.fixture(scope="session")
def baton_time(baton_client: "Client") -> "TimeSkipper":
    """Return the SDK's `TimeSkipper` for the client: runs started by its `.client` skip waiting time."""
    return kit.TimeSkipper(baton_client)


@pytest.fixture
def baton_worker(
    baton_client: "Client",
) -> "Callable[..., AbstractAsyncContextManager[Worker]]":
    """Return a function that runs a worker inside an `async with` block."""

    def worker(
        workflows: Sequence[type], stages: Sequence[Callable[..., Any]], *, client: "Client | None" = None, **more: Any
    ) -> "AbstractAsyncContextManager[Worker]":
        return kit.pipeline_worker(client or baton_client, workflows, stages, **more)

    return worker


@pytest.fixture
def baton_scripts(request: pytest.FixtureRequest) -> "Iterator[Scripts]":
    """Return a factory of scripted agents and stages, which must be used up when the test ends."""
    scripts = kit.Scripts()
    yield scripts
    if _has_finished(request.node):
        scripts.assert_used_up()


@pytest.fixture
def baton_cassette(request: pytest.FixtureRequest) -> "Iterator[Cassette]":
    """Return the test's cassette: `cassettes/<module>/<test>.json` beside the test's file."""
    records = _is_recording(request.config)
    cassette = kit.Cassette(_cassette_file(request.node), record=records)
    yield cassette
    if records and cassette.unused and request.node.stash.get(_PASSED, False):
        cassette.save(prune=True)
    if cassette.recorded:
        path = os.path.relpath(cassette.file, request.config.rootpath)
        request.node.user_properties.append((_RECORDED, (path, cassette.recorded)))
    if _has_finished(request.node):
        cassette.assert_no_misses()


def _has_finished(node: pytest.Item) -> bool:
    """Return whether a test passed or failed, and was not skipped or interrupted."""
    return _PASSED in node.stash


def _cassette_file(node: pytest.Item) -> Path:
    """Return the file of a test's cassette, which differs for any two tests."""
    test, bracket, parameters = node.nodeid.partition("::")[2].partition("[")
    name = f"{test.replace('::', '.')}{bracket}{parameters}"  # parameters keep their colons, which may distinguish them
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-")
    if not _PLAIN_NAME.fullmatch(name):  # replaced or cut characters may distinguish two tests
        plain = f"{plain[:_MAX_NAME_LENGTH].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return node.path.parent / "cassettes" / node.path.stem / f"{plain}.json"


def _is_recording(config: pytest.Config) -> bool:
    return bool(config.getoption("--baton-record")) or _is_set(RECORD_VARIABLE)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no")
