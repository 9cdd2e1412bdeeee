"""The ports of embedded servers: many start on one machine at once, and none takes another's port."""

import shlex
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from temporalio.client import Client

from baton import devserver
from baton.devserver import HOST, DevServer, DevServerOptions
from baton.devserver.processes import find_temporal
from baton.errors import ServerError
from tests.devserver.test_ports import is_available

Programs = Callable[[str], str]

LOOKS_FOR_ITS_PORT = """\
import socket, sys
try:
    socket.socket().bind(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
except OSError as error:
    print("not given to others:", error.strerror)
again = socket.socket()
again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
again.bind(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
again.listen()
print("and mine to listen on")
"""
"""A server that ends at once, and writes who may have its port while it starts."""

CRASHES_ONCE = """\
import os, pathlib, sys
first = pathlib.Path({mark!r})
if first.exists():
    os.execv({temporal!r}, [{temporal!r}, *sys.argv[1:]])
first.touch()
print("listen tcp 127.0.0.1:7236: bind: address already in use")
print("panic: invalid memory address")
print()
print("goroutine 1 [running]:")
print("main.main()\\n" * 1000)
sys.exit(2)
"""
"""A server that crashes as the real one does if an inner port is taken, and is the real one the next time."""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Return a factory of programs of Python code, to be started in place of `temporal`."""

    def make(code: str) -> str:
        program = tmp_path / "temporal"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
        program.chmod(0o755)
        return str(program)

    return make


class TestPorts:
    @pytest.mark.skipif(sys.platform != "linux", reason="other systems would refuse the port to the server too")
    async def test_ports_are_reserved_while_it_starts(self, programs: Programs) -> None:
        """Its own inner services look for free ports too, and once in some thousand starts found its own."""
        options = DevServerOptions(ui_port=None, temporal=programs(LOOKS_FOR_ITS_PORT))
        with pytest.raises(ServerError, match=r"not given to others: Address already in use\nand mine to listen on"):
            await DevServer(options).start()
        with ExitStack() as stack:
            ports = devserver._reserve_ports(0, 0, stack)
            assert [port and is_available(port) for port in ports] == [False, False]
        assert [port and is_available(port) for port in ports] == [True, True]

    async def test_a_port_that_is_taken_right_before_the_launch_is_replaced(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If none can be reserved; here the check is as late as the other process."""
        reserve, calls = devserver._reserve_ports, 0
        with socket.create_server((HOST, 0)) as taker:

            def too_late(port: int, ui_port: int | None, stack: ExitStack) -> tuple[int, int | None]:
                nonlocal calls
                calls += 1
                return (taker.getsockname()[1], None) if calls == 1 else reserve(port, ui_port, stack)

            monkeypatch.setattr(devserver, "_reserve_ports", too_late)
            async with DevServer(DevServerOptions(ui_port=None)) as started:
                assert not started.address.endswith(f":{taker.getsockname()[1]}")
                await Client.connect(started.address)
        assert calls == 2

    async def test_another_server_at_the_address_is_not_mistaken_for_it(
        self, server: DevServer, programs: Programs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other server ends with its own tests, and clients of the address lose it."""
        port = int(server.address.rpartition(":")[2])
        monkeypatch.setattr(devserver, "_reserve_ports", lambda *_: (port, None))
        slow = programs("import sys, time; time.sleep(1); sys.exit('cannot listen')")
        with pytest.raises(ServerError, match="ended with code 1 before it served; its last output:\ncannot listen"):
            await DevServer(DevServerOptions(ui_port=None, temporal=slow)).start()

    async def test_a_crash_because_of_a_taken_port_is_retried(self, programs: Programs, tmp_path: Path) -> None:
        """The reason is above a trace that is longer than the tail that is kept."""
        program, marker = str(find_temporal()), tmp_path / "crashed"
        crashing = programs(CRASHES_ONCE.format(temporal=program, mark=str(marker)))
        async with DevServer(DevServerOptions(ui_port=None, temporal=crashing)) as started:
            await Client.connect(started.address)
        assert marker.exists()

    async def test_a_crash_is_reported_with_its_reason(self, programs: Programs, tmp_path: Path) -> None:
        """Without the trace, which would hide the reason."""
        code = CRASHES_ONCE.format(temporal=sys.executable, mark=str(tmp_path / "crashed"))
        crashing = programs(code.replace("address already in use", "no such device"))
        with pytest.raises(ServerError) as failed:
            await DevServer(DevServerOptions(ui_port=None, temporal=crashing)).start()
        assert "bind: no such device\npanic: invalid memory address" in str(failed.value)
        assert "main.main" not in str(failed.value)
