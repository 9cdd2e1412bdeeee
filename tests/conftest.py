"""What all tests share: one real Temporal server a session, and repeatable examples."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from temporalio.worker.workflow_sandbox import SandboxRestrictions

from baton.devserver import DevServer
from baton.devserver.processes import held_port
from tests.support.workers import agents, client, exchange, own_server, safeguards, sealing, store, worker
from tests.wheels import wheel

__all__ = ["agents", "client", "exchange", "own_server", "safeguards", "sealing", "store", "wheel", "worker"]

# A shell that runs the tests in the background has them ignore Ctrl-C, and their child processes would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where no bytecode is kept, each process that the tests start compiles all its packages anew: twice the work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The sandbox would execute a test's module anew for each run and each replay, which is up to half of a test's
# processor time. `unpassed_tests` takes this back, and processes that tests start have the sandbox as users have it.
SandboxRestrictions.passthrough_modules_default.add("tests")

_OF_RUNS = Path(__file__).parents[1] / ".baton"

# The same examples on every run, and no clock. To look for new ones: pytest --hypothesis-profile=search
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", _UNTIMED, max_examples=50, derandomize=True)
settings.register_profile("search", _UNTIMED, max_examples=2_000, print_blob=True)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def server(baton_server: DevServer) -> DevServer:
    """Return the Temporal server of the session, at ``server.address``: that of the test kit's own plugin."""
    return baton_server


@pytest.fixture(scope="session", autouse=True)
def store_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what workers without a store of their own put into the deployment's out of the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATON_ARTIFACTS", str(tmp_path_factory.mktemp("artifacts")))
        yield


@pytest.fixture(scope="module")
def unpassed_tests() -> Iterator[None]:
    """Load this module's pipelines inside the sandbox, as a user's are."""
    SandboxRestrictions.passthrough_modules_default.discard("tests")
    yield
    SandboxRestrictions.passthrough_modules_default.add("tests")


@pytest.fixture(autouse=True)
def clean_checkout() -> Iterator[None]:
    """Fail a test that leaves the checkout something of its runs."""
    was_there = _OF_RUNS.exists()
    yield
    assert _OF_RUNS.exists() == was_there, f"the test, or one beside it, made {_OF_RUNS}"


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets so many seconds pass at once for whatever waits on the running event loop.

    A limit of time is so tested when the test is ready for it, however long its program took to begin.
    """

    def put_forward(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + seconds)

    return put_forward


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port that is reserved for the servers of this test."""
    with held_port() as port:
        yield port
