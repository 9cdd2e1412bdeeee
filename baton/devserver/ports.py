"""Ports of this machine that are kept for a server before it listens, and while it is started again."""

import contextlib
import socket
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def held_port(port: int = 0, *, host: str = "127.0.0.1") -> Iterator[int]:
    """Hold a port while the context is open, for a server that will listen on it.

    A port that was only found free may be given away before the server asks for it: to another program that wants a
    free one, to a server of this program, to whoever opens a connection. On Linux none of them is given a port that is
    held, and a server that sets SO_REUSEADDR, as all do, can listen on it all the same. Other systems would refuse it
    to the server as well; there the port is free when the context begins, and no more is promised.

    Args:
        port: The port, or 0 for a free one.
        host: The address, of this machine.

    Yields:
        The port.

    Raises:
        OSError: A server listens on it, or it is not this machine's to give.

    Example:
        >>> with held_port() as port, socket.create_server(("127.0.0.1", port)) as server:
        ...     server.getsockname()[1] == port
        True
    """
    with contextlib.ExitStack() as held:
        probe = held.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: just closed is free
        probe.bind((host, port))
        bound: int = probe.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield bound
