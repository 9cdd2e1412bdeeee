"""What all tests share: one real Temporal server a session, repeatable examples, an orderly end of the process."""

import gc
import signal
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings

from baton.devserver import DevServer, DevServerOptions
from baton.protocol.names import SEARCH_ATTRIBUTES

# A shell that runs the tests in the background has them ignore Ctrl-C, and their child processes would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SETTINGS = {"frontend.WorkflowTimeSkippingEnabled": True, "frontend.WorkflowPauseEnabled": True}
"""Server settings of the tests beyond the tuned ones of `DevServer`."""

# The same examples on every run, and no clock. To look for new ones: pytest --hypothesis-profile=search
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", _UNTIMED, max_examples=50, derandomize=True)
settings.register_profile("search", _UNTIMED, max_examples=2_000, print_blob=True)
settings.load_profile("tests")


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[DevServer]:
    """Return a Temporal server in memory, at ``server.address``; under pytest-xdist each process has its own.

    It is shared by all tests of the session: give every workflow an id of its own and every worker a task
    queue of its own.
    """
    async with DevServer(DevServerOptions(ui_port=None, search_attributes=SEARCH_ATTRIBUTES, settings=SETTINGS)) as it:
        yield it


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Let the Temporal SDK's threads end before the interpreter does.

    One of them may otherwise ask for the interpreter's lock while that is being torn down, which ends the
    process with SIGABRT after all tests have passed (sdk-python issue 300).
    """
    gc.collect()
    time.sleep(0.3)
