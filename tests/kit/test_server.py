"""What the fixtures stand on: a loop in the background."""

import asyncio
import threading

import pytest

from baton.errors import ServerError
from baton.testing import BackgroundLoop


class TestBackgroundLoop:
    """`BackgroundLoop`."""

    def test_it_runs_coroutines_in_a_thread_and_ends_it(self) -> None:
        """The caller gets their results and errors."""

        async def thread() -> threading.Thread:
            return threading.current_thread()

        async def fails() -> None:
            raise ServerError("no server")

        with BackgroundLoop() as loop:
            used = loop.run(thread())
            assert used is not threading.current_thread()
            with pytest.raises(ServerError, match="no server"):
                loop.run(fails())
        assert not used.is_alive()

    async def test_a_running_loop_is_left_alone(self) -> None:
        """A fixture can use it while the test's loop runs."""
        with BackgroundLoop() as loop:
            assert loop.run(asyncio.sleep(0, "done")) == "done"
