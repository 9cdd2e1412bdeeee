"""Ports that are reserved for servers."""

import socket
import sys

import pytest

from baton.devserver.processes import held_port


def is_available(port: int) -> bool:
    """Return whether an ordinary socket can bind the port."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class TestHeldPort:
    @pytest.mark.skipif(sys.platform != "linux", reason="other systems would refuse it to the server as well")
    def test_no_other_socket_gets_a_held_port(self) -> None:
        """Not between two servers either; afterwards it is free."""
        with held_port() as port:
            available = [is_available(port)]
            for _ in range(2):
                with socket.create_server(("127.0.0.1", port)) as server:
                    socket.create_connection(server.getsockname()).close()
                available.append(is_available(port))

        assert available == [False] * 3
        with held_port(port):
            pass

    def test_a_port_in_use_is_refused(self) -> None:
        """A client of that port would otherwise meet the other server."""
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            pytest.raises(OSError, match="in use"),
            held_port(server.getsockname()[1]),
        ):
            pass
