"""One JSON request over HTTP that ends in time, and at once when it is cancelled; nothing but the standard library.

It follows no redirect, for that would carry the key to whoever the redirect names.
"""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from baton.protocol.errors import AgentError

MOST_BYTES = 8 * 1024 * 1024
"""An answer may not be larger."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answered:
    """What a server answered.

    Attributes:
        status: The HTTP status.
        body: The bytes of the body.
        retry_after: After how many seconds it wants to be asked again, if it said so in seconds.
    """

    status: int
    body: bytes
    retry_after: float | None = None


def checked_url(url: str, *, secret: bool) -> str:
    """Return an address that a request may go to.

    Args:
        url: The address.
        secret: Whether a key is sent with it, which then needs TLS or this very machine.

    Raises:
        ValueError: It is no HTTP address, or would carry a key in clear text.

    Example:
        >>> checked_url("http://models.example/v1/chat/completions", secret=True)
        Traceback (most recent call last):
        ...
        ValueError: 'http://models.example/v1/chat/completions' would carry the key in clear text; use https
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ValueError("an address is expected as https://host/path, without a name or a key in it")
    if secret and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError(f"{url!r} would carry the key in clear text; use https")
    return url


def key_from(variable: str | None) -> str | None:
    """Return the key in a variable of the worker's environment; None if none is needed.

    Raises:
        AgentError: There is no such variable here; another worker may have it.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise AgentError(f"the environment of this worker has no {variable!r}, which is to hold the key; set it")
    return key


async def post_json(
    url: str, message: Mapping[str, Any], headers: Mapping[str, str], *, seconds: float, ca_file: str | None = None
) -> Answered:
    """Send a JSON object, and return the answer whatever its status.

    Args:
        url: Where to (`checked_url`).
        message: The object.
        headers: Further headers, the key among them.
        seconds: How long the whole exchange may take.
        ca_file: A file with the certificates to trust, instead of the system's.

    Raises:
        AgentError: The server cannot be reached, is too slow, or answers with too much. The text names the host only.
        asyncio.CancelledError: It was cancelled; the connection is closed.
    """
    exchange = _Exchange(url, seconds, ca_file)
    data = json.dumps(message, ensure_ascii=False).encode()
    running = asyncio.get_running_loop().run_in_executor(None, exchange.run, data, dict(headers))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        exchange.close()
        running.add_done_callback(_forget)
        raise


def _forget(done: "asyncio.Future[Answered]") -> None:
    """Take note of how an exchange ended that nobody waits for any more."""
    if not done.cancelled():
        done.exception()


class _Exchange:
    """One request and its answer, in a thread of its own."""

    def __init__(self, url: str, seconds: float, ca_file: str | None) -> None:
        parts = urlsplit(url)
        self._host = str(parts.hostname)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._until = time.monotonic() + seconds
        if parts.scheme == "https":
            trusted = ssl.create_default_context(cafile=ca_file)
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, parts.port, timeout=seconds, context=trusted
            )
        else:
            made = http.client.HTTPConnection(self._host, parts.port, timeout=seconds)
        self._connection = made
        self._socket: socket.socket | None = None
        self._closed = False

    def close(self) -> None:
        """End it from another thread: what waits for the socket wakes up."""
        self._closed = True
        if (sock := self._socket) is not None:
            with contextlib.suppress(OSError):  # it ended by itself in between
                sock.shutdown(socket.SHUT_RDWR)

    def run(self, data: bytes, headers: dict[str, str]) -> Answered:
        """Send the request and read the answer."""
        headers |= {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # the connection forgets it where the server is to close it
            if self._closed:
                raise ConnectionAbortedError
            self._connection.request("POST", self._path, body=data, headers=headers)
            with contextlib.closing(self._connection.getresponse()) as response:
                body = self._read(response)
                return Answered(response.status, body, _seconds(response.headers.get("Retry-After")))
        except TimeoutError:
            raise AgentError(f"{self._host!r} did not answer in time") from None
        except ssl.SSLCertVerificationError as error:
            why = f"the certificate of {self._host!r} cannot be trusted: {error.verify_message}"
            raise AgentError(why, permanent=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise AgentError(f"{self._host!r} cannot be reached or read ({type(error).__name__})") from None
        finally:
            self._connection.close()

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Return the body; a server that sends a byte now and then does not keep us beyond the deadline."""
        body = bytearray()
        while True:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if self._socket is not None:
                self._socket.settimeout(left)
            piece = response.read1(_CHUNK)
            if not piece:
                if self._closed or (response.length or 0) > 0:
                    raise http.client.IncompleteRead(b"")
                return bytes(body)
            body += piece
            if len(body) > MOST_BYTES:
                raise AgentError(f"{self._host!r} answered with more than {MOST_BYTES} bytes", permanent=True)


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; its other form, a date, is left to the retry policy."""
    return float(header) if header and header.strip().isdigit() else None
