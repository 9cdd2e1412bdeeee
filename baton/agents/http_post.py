"""One JSON request over HTTP that ends in time, and at once when it is cancelled (needs `httpx2`).

It follows no redirect, for that would carry the key to whoever the redirect names.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from baton.extras import needs_extra

with needs_extra("chat", "baton.agents.chat_completions"):
    import httpx2

from baton.agents.failures import wait_of
from baton.codec.addresses import is_this_machine
from baton.errors import AgentError

MOST_BYTES = 8 * 1024 * 1024
"""An answer may not be larger."""


@dataclass(frozen=True)
class Answered:
    """What a server answered.

    Attributes:
        status: The HTTP status.
        body: The bytes of the body.
        retry_after: After how many seconds it wants to be asked again, if it said so.
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
    try:
        parts = httpx2.URL(url)  # as it is read when it is asked
    except httpx2.InvalidURL:
        parts = httpx2.URL()
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo or url != url.strip():
        raise ValueError("an address is expected as https://host/path, without blanks, and no name or key in it")
    if secret and parts.scheme == "http" and not is_this_machine(parts.host):
        raise ValueError(f"{url!r} would carry the key in clear text; use https")
    return url


def key_from(variable: str | None) -> str | None:
    """Return the key in a variable of the worker's environment; None if none is needed.

    Raises:
        AgentError: There is no such variable here, or no key in it; another worker may have it.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise AgentError(f"the environment of this worker has no {variable!r}, which is to hold the key; set it")
    if not key.isascii() or not key.isprintable():
        raise AgentError(f"the variable {variable!r} of this worker holds signs that no key has; set it anew")
    return key


async def post_json(
    url: str, message: Mapping[str, Any], headers: Mapping[str, str], *, seconds: float, ca_file: str | None = None
) -> Answered:
    """Send a JSON object, and return the answer whatever its status.

    Args:
        url: Where to (`checked_url`); over TLS, the proxy that the environment names is used.
        message: The object.
        headers: Further headers, the key among them.
        seconds: How long the whole exchange may take.
        ca_file: A file with the certificates to trust, instead of the system's; read once.

    Raises:
        AgentError: The server cannot be reached, is too slow, or answers with too much. The text names the host only.
        asyncio.CancelledError: It was cancelled; the connection is closed.
    """
    address = urlsplit(url)
    host, accepts = address.hostname, {"Accept": "application/json"}
    proxied = address.scheme == "https"  # to a proxy that is no tunnel, plain HTTP would show the key
    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(verify=_trusted(ca_file), timeout=None, trust_env=proxied) as client,
            client.stream("POST", url, json=message, headers={**accepts, **headers}) as response,
        ):
            body = await _read(response)
            return Answered(response.status_code, body, wait_of(response.headers))
    except TimeoutError:
        raise AgentError(f"{host!r} did not answer in time") from None
    except httpx2.HTTPError as error:
        if (untrusted := _untrusted(error)) is not None:
            why = f"the certificate of {host!r} cannot be trusted: {untrusted.verify_message}"
            raise AgentError(why, permanent=True) from None
        raise AgentError(f"{host!r} cannot be reached or read ({type(error).__name__})") from None


@cache
def _trusted(ca_file: str | None) -> ssl.SSLContext:
    """Return whom to trust; made once, for that takes longer than many a request.

    Raises:
        AgentError: The file cannot be read on this worker.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror
        raise AgentError(f"there are no certificates in {ca_file!r} on this worker ({why})") from None


async def _read(response: httpx2.Response) -> bytes:
    """Return the body, unless it is too large."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MOST_BYTES:
            raise AgentError(f"{response.url.host!r} answered with more than {MOST_BYTES} bytes", permanent=True)
    return bytes(body)


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return what is wrong with a certificate, if that is what an error came from."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error
