"""Ports that are held for servers."""

import socket
import sys

import pytest

from baton.devserver.processes import held_port


def is_given(port: int) -> bool:
    """Whether a socket that shares with nobody gets the port, as one does that asks for a free port or connects."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class TestHeldPort:
    @pytest.mark.skipif(sys.platform != "linux", reason="other systems would refuse it to the server as well")
    def test_nobody_is_given_it_while_it_is_held(self) -> None:
        """Not between two servers either; afterwards it is free."""
        with held_port() as port:
            given = [is_given(port)]
            for _ in range(2):
                with socket.create_server(("127.0.0.1", port)) as server:
                    socket.create_connection(server.getsockname()).close()
                given.append(is_given(port))

        assert given == [False] * 3
        with held_port(port):
            pass

    def test_one_that_is_served_is_refused(self) -> None:
        """Whoever asks for that port would otherwise meet the other server."""
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            pytest.raises(OSError, match="in use"),
            held_port(server.getsockname()[1]),
        ):
            pass
