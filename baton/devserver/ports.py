"""Ports of this machine that are kept for a server before it listens, and while it is started again."""

import contextlib
import socket
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def held_port(port: int = 0, *, host: str = "127.0.0.1") -> Iterator[int]:
    """Hold a port while the context is open, for a server that will listen on it."""
    with contextlib.ExitStack() as held:
        probe = held.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: just closed is free
        probe.bind((host, port))
        bound: int = probe.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield bound
