"""One JSON request over HTTP that ends in time, and at once when it is cancelled (needs `httpx2`).

It follows no redirect, which would carry the key to another address.
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
    """What a server answered."""

    status: int
    body: bytes
    retry_after: float | None = None


def checked_url(url: str, *, secret: bool) -> str:
    """Return an address that a request may go to."""
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
    """Return the key in a variable of the worker's environment; None if none is needed."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise AgentError(f"the environment of this worker has no {variable!r}, which is to hold the key; set it")
    if not key.isascii() or not key.isprintable():
        raise AgentError(
            f"the variable {variable!r} of this worker holds characters that a key cannot have; set it again"
        )
    return key


async def post_json(
    url: str, message: Mapping[str, Any], headers: Mapping[str, str], *, seconds: float, ca_file: str | None = None
) -> Answered:
    """Send a JSON object, and return the answer whatever its status."""
    address = urlsplit(url)
    host, accepts = address.hostname, {"Accept": "application/json"}
    proxied = address.scheme == "https"  # to a proxy that is not a tunnel, plain HTTP would show the key
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
    """Return whom to trust; made once, for that takes longer than many a request."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror
        raise AgentError(f"no certificates in {ca_file!r} on this worker ({why})") from None


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
