"""A codec server: lets the Temporal UI and CLI show what a payload codec made unreadable."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import lru_cache, partial

from google.protobuf import json_format

from baton.extras import needs_extra

with needs_extra("codec", __name__):
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from baton.codec.encryption import MAX_DECODED_BYTES, CompressionCodec, EncryptionCodec
from baton.codec.serving import has_bearer_token, read_body, serving
from baton.errors import PayloadError
from baton.keys.store_keyring import Keyring

MAX_BODY_BYTES = 8 * 1024 * 1024
"""A request's body may not be larger: twice what one gRPC message can carry."""

_ALLOWED_HEADERS = ("content-type", "x-namespace", "authorization", "authorization-extras")
_log = logging.getLogger(__name__)

_Transform = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def codecs_for(keyring: Keyring | None) -> list[PayloadCodec]:
    """Return the codecs of a codec server, for the payloads of Baton's own data converter."""
    compression: list[PayloadCodec] = [CompressionCodec()]
    return compression if keyring is None else [*compression, EncryptionCodec(keyring)]


def codec_app(codecs: Sequence[PayloadCodec], *, origins: Sequence[str], token: str | None = None) -> Starlette:
    """Return the ASGI application that answers `POST /decode` and `POST /encode`."""
    if "*" in origins:
        raise ValueError("origins has '*'; name the exact origins of your UIs, e.g. 'http://localhost:8233'")

    # One page asks for dozens of payloads, and its operator needs the reason once.
    warn = lru_cache(maxsize=64)(partial(_log.warning, "the codec server cannot show payloads: %s"))

    def endpoint(transform: _Transform) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            # A page whose name was made to lead here (DNS rebinding) may read any answer: to its browser both are one.
            origin = request.headers.get("origin")
            if origin is not None and origin not in origins:
                return PlainTextResponse(_foreign(origin, origins), status_code=403)
            if token is not None and not has_bearer_token(request, token):
                return PlainTextResponse("expected 'Authorization: Bearer <the token>'", status_code=401)
            return await _answer(request, transform, warn)

        return answer

    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("POST",),
        allow_headers=_ALLOWED_HEADERS,
        allow_credentials=True,
    )
    return Starlette(
        routes=[
            Route("/decode", endpoint(_through([codec.decode for codec in reversed(codecs)])), methods=["POST"]),
            Route("/encode", endpoint(_through([codec.encode for codec in codecs])), methods=["POST"]),
        ],
        middleware=[cors],
        exception_handlers={ClientDisconnect: _gone},
    )


@contextlib.asynccontextmanager
async def serve_codec(
    codecs: Sequence[PayloadCodec],
    *,
    origins: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> AsyncIterator[str]:
    """Serve `codec_app` inside the running event loop while the context is open."""
    app = codec_app(codecs, origins=origins, token=token)
    async with serving(app, "the codec server", host=host, port=port) as url:
        yield url


def _through(steps: Sequence[_Transform]) -> _Transform:
    async def transform(payloads: Sequence[Payload]) -> list[Payload]:
        done: list[Payload] = []
        size = 0
        for payload in payloads:  # one after the other: a short request must not fill the memory
            made = [payload]
            for step in steps:
                made = await step(made)
            done += made
            size += sum(len(one.data) for one in made)
            if size > MAX_DECODED_BYTES:
                raise PayloadError(f"the payloads hold more than {MAX_DECODED_BYTES} bytes; ask for fewer at once")
        return done

    return transform


def _foreign(origin: str, origins: Sequence[str]) -> str:
    known = ", ".join(origins) or "none"
    return f"pages of {origin[:200]!r} are not answered; of these they are: {known}"


async def _gone(_: Request, __: Exception) -> Response:
    """Let go of a request whose sender hung up while sending it; the answer is not read."""
    return PlainTextResponse("the body ended too soon", status_code=400)


async def _answer(request: Request, transform: _Transform, warn: Callable[[str], None]) -> Response:
    body = await read_body(request, MAX_BODY_BYTES)
    if body is None:
        return PlainTextResponse(f"the body is larger than {MAX_BODY_BYTES} bytes", status_code=413)
    try:
        given = json_format.Parse(body, Payloads())
    except (json_format.ParseError, ValueError, RecursionError):
        return PlainTextResponse("the body is not temporal.api.common.v1.Payloads as JSON", status_code=400)
    try:
        result = await transform(given.payloads)
    except PayloadError as error:
        warn(str(error))
        return PlainTextResponse(str(error), status_code=400)
    except Exception as error:  # codecs are the user's own code, and the browser needs an answer with CORS headers
        _log.exception("a payload codec failed at %s", request.url.path)
        kind = type(error).__name__
        return PlainTextResponse(f"a codec raised {kind}; the codec server's log says more", status_code=400)
    text = json_format.MessageToJson(Payloads(payloads=result), indent=None)
    return Response(text, media_type="application/json")
