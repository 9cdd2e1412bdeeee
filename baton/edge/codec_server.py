"""A codec server: lets the Temporal UI and CLI show what a payload codec made unreadable.

The UI's page, in the operator's browser, posts payloads here and shows what comes back; `temporal …
--codec-endpoint URL` does the same. So this server answers a browser's preflight for the origins it is told
and no others, and listens on this machine unless told otherwise.

It decodes whatever it is asked to: with an encrypting codec, who may call it may read. Then set a token.
"""

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import uvicorn
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from baton.protocol.errors import ServerError

MAX_BODY_BYTES = 8 * 1024 * 1024
"""A request's body may not be larger: twice what one gRPC message can carry."""

_HEADERS = ["content-type", "x-namespace", "authorization", "authorization-extras"]
_log = logging.getLogger(__name__)


def codec_app(
    codecs: PayloadCodec | Sequence[PayloadCodec], *, origins: Sequence[str], token: str | None = None
) -> Starlette:
    """Return the ASGI application that answers `POST /decode` and `POST /encode`.

    Body and answer are Temporal's `Payloads` as JSON. References to payloads in external storage pass
    through untouched, as the UI's `?preserveStorageRefs=true` asks.

    Args:
        codecs: The codec, or several in the order in which they encode.
        origins: The exact origins of the UIs whose pages may call, such as `"http://localhost:8233"`.
        token: If given, every call must carry `Authorization: Bearer <token>`.

    Raises:
        ValueError: ``origins`` has `"*"`: any page in the operator's browser could then decode.
    """
    if "*" in origins:
        raise ValueError("origins has '*'; name the exact origins of your UIs, e.g. 'http://localhost:8233'")
    chain = [codecs] if isinstance(codecs, PayloadCodec) else list(codecs)

    async def encode(payloads: Sequence[Payload]) -> Sequence[Payload]:
        for codec in chain:
            payloads = await codec.encode(payloads)
        return payloads

    async def decode(payloads: Sequence[Payload]) -> Sequence[Payload]:
        for codec in reversed(chain):
            payloads = await codec.decode(payloads)
        return payloads

    def route(path: str, transform: Callable[[Sequence[Payload]], object]) -> Route:
        async def endpoint(request: Request) -> Response:
            if not _authorized(request, token):
                return PlainTextResponse("expected the header 'Authorization: Bearer <token>'", status_code=401)
            return await _answer(request, path, transform)

        return Route(path, endpoint, methods=["POST"])

    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["POST"],
        allow_headers=_HEADERS,
        allow_credentials=True,
    )
    return Starlette(routes=[route("/decode", decode), route("/encode", encode)], middleware=[cors])
