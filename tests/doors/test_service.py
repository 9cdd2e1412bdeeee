"""The frame of all doors: who may call, from where, how much, how often."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from temporalio.client import Client

from baton.client import Access, Caller, Offer, Role, ServiceParts, Tokens, serve_service, service
from baton.client.faces import Proxy, Rate
from baton.doors.client_service import MAX_BODY_BYTES, Door, caller_of
from baton.errors import BatonError

TOKEN = "ann-token-0123456789"
BASE = "http://127.0.0.1:8235"


async def _who(request: Request) -> Response:
    caller = caller_of(request)
    return JSONResponse({"name": caller.name, "role": caller.role, "bytes": len(await request.body())})


async def _stream(request: Request) -> Response:
    async def forever() -> AsyncIterator[str]:
        while not await request.is_disconnected():
            yield "data: x\n\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(forever(), media_type="text/event-stream")


DOOR = Door(
    [
        Route("/who", _who, methods=["GET", "POST"]),
        Route("/card", lambda _: JSONResponse({}), methods=["GET"]),
        Route("/events", _stream, methods=["GET"]),
    ],
    public=frozenset({"/card"}),
)


def app_of(client: Client, access: Access | None = None, *, door: Door = DOOR) -> Starlette:
    own = access or Access(tokens=Tokens({Caller("ann"): TOKEN}))
    return service(ServiceParts(client, {"article": Offer("article")}, own, BASE), doors=[door])


def caller_on(
    app: Starlette, *, token: str | None = TOKEN, peer: str = "127.0.0.1", **headers: str
) -> httpx.AsyncClient:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    authorization = {} if token is None else {"authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app, client=(peer, 5))
    return httpx.AsyncClient(transport=transport, base_url=BASE, headers=authorization | sent)


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        (TOKEN, {}, 200),
        (TOKEN, {"origin": BASE}, 200),
        (None, {}, 401),
        ("another-token-0123456789", {}, 401),
        (TOKEN, {"host": "evil.example"}, 421),
        (TOKEN, {"host": "127.0.0.2:8235"}, 200),
        (TOKEN, {"host": "127.0.0.2.evil.example"}, 421),
        (TOKEN, {"origin": "https://evil.example"}, 403),
        (TOKEN, {"origin": "null"}, 403),
        (TOKEN, {"content_encoding": "gzip"}, 415),
    ],
)
async def test_only_a_caller_with_a_token_gets_through(
    client: Client, token: str | None, headers: Mapping[str, str], status: int
) -> None:
    async with caller_on(app_of(client), token=token, **headers) as http:
        answer = await http.get("/who")
    assert answer.status_code == status
    assert (answer.json().get("name") == "ann") is (status == 200)


async def test_public_paths_need_no_token_but_the_right_host(client: Client) -> None:
    async with caller_on(app_of(client), token=None) as http:
        assert (await http.get("/card")).status_code == 200
        assert (await http.get("/card", headers={"host": "evil.example"})).status_code == 421
        assert (await http.get("/healthz")).status_code == 200


async def test_a_page_of_a_declared_site_may_call(client: Client) -> None:
    access = Access(tokens=Tokens({Caller("ann"): TOKEN}), origins=["https://chat.example"])
    async with caller_on(app_of(client, access), origin="https://chat.example") as http:
        answer = await http.get("/who")
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        assert (await http.options("/who", headers=asked)).status_code == 200


async def test_a_large_body_is_not_passed_on(client: Client) -> None:
    async with caller_on(app_of(client)) as http:
        assert (await http.post("/who", content=b"x" * MAX_BODY_BYTES)).json()["bytes"] == MAX_BODY_BYTES
        assert (await http.post("/who", content=b"x" * (MAX_BODY_BYTES + 1))).status_code == 413


async def test_a_body_has_a_deadline(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.doors.client_service.BODY_SECONDS", 0.05)
    async with serve_service(app_of(client), port=0) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /who HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\nauthorization: Bearer "
            + TOKEN.encode()
            + b"\r\n\r\n12"
        )
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_stranger_holds_no_public_path_with_a_body(client: Client) -> None:
    async with serve_service(app_of(client), port=0) as url, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /card HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n12")
        assert b" 200 " in await reader.readline()
        writer.close()


async def test_a_head_has_a_deadline(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.codec.server.HEAD_SECONDS", 0.05)
    async with serve_service(app_of(client), port=0) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /who HT")
        assert await reader.read() == b""
        writer.close()


async def test_a_caller_cannot_call_without_end(client: Client) -> None:
    access = Access(tokens=Tokens({Caller("ann"): TOKEN, Caller("bob"): TOKEN * 2}), rate=Rate(2, 0.001))
    app = app_of(client, access)
    async with caller_on(app) as ann, caller_on(app, token=TOKEN * 2) as bob:
        assert [(await ann.get("/who")).status_code for _ in range(3)] == [200, 200, 429]
        assert (await bob.get("/who")).status_code == 200


async def test_300_streams_of_one_caller_leave_room_for_the_others(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is closed makes room."""
    monkeypatch.setattr("baton.doors.client_service.MAX_STREAMS", 3)
    access = Access(tokens=Tokens({Caller("ann"): TOKEN, Caller("bob"): TOKEN * 2}), rate=Rate(1_000, 1_000))
    async with serve_service(app_of(client, access), port=0) as url, AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=400)
        ann, bob = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}, limits=limits, timeout=60)
            )
            for token in (TOKEN, TOKEN * 2)
        ]
        opened = [await stack.enter_async_context(ann.stream("GET", "/events")) for _ in range(300)]
        assert sorted({stream.status_code for stream in opened}) == [200, 429]
        assert [stream.status_code for stream in opened].count(200) == 3
        assert (await ann.get("/who")).status_code == 200
        async with bob.stream("GET", "/events") as other:
            assert other.status_code == 200
        for stream in opened:
            await stream.aclose()
        while (await stack.enter_async_context(ann.stream("GET", "/events"))).status_code != 200:
            pass


async def test_a_proxy_names_the_callers(client: Client) -> None:
    proxy = Proxy.at(["10.0.0.5"], "X-Forwarded-User", "X-Forwarded-Groups", {"*": Role.VIEWER, "sre": Role.OPERATOR})
    app = app_of(client, Access(proxy=proxy))
    async with caller_on(app, token=None, peer="10.0.0.5", x_forwarded_user="ann", x_forwarded_groups="sre") as http:
        assert (await http.get("/who")).json() == {"name": "ann", "role": Role.OPERATOR, "bytes": 0}
    async with caller_on(app, token=None, peer="10.0.0.6", x_forwarded_user="ann") as http:
        assert (await http.get("/who")).status_code == 401


async def test_it_can_be_mounted_and_its_doors_run_meanwhile(client: Client) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        log.append("open")
        yield
        log.append("closed")

    app = app_of(client, door=Door(DOOR.routes, run, DOOR.public))
    outer = Starlette(routes=[Mount("/baton", app)], lifespan=app.router.lifespan_context)
    async with serve_service(outer, port=0) as url, httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/baton/card")).status_code == 200
        assert (await http.get("/baton/who")).status_code == 401
        assert log == ["open"]
    assert log == ["open", "closed"]


class TestTokens:
    @pytest.mark.parametrize(
        "text",
        [
            'ann = "short"',
            'ann = "has blanks has blanks"',
            'ann = "ann-token-0123456789"\nbob = "ann-token-0123456789"',
            '[ann]\nrole = "operator"',
            '[ann]\ntoken = "ann-token-0123456789"\nrole = "king"',
            '[ann]\ntoken = "ann-token-0123456789"\nadmin = true',
            "ann = 7",
            "",
            "ann",
        ],
    )
    def test_a_wrong_file_is_refused(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "tokens.toml"
        file.write_text(text)
        with pytest.raises(BatonError):
            Tokens.read(file)

    def test_a_table_says_what_a_caller_may(self, tmp_path: Path) -> None:
        file = tmp_path / "tokens.toml"
        file.write_text(
            'ann = "ann-token-0123456789"\n[shop]\ntoken = "shop-token-0123456789"\nrole = "viewer"\nsees_all = true\n'
            "decides = false\n"
        )
        tokens = Tokens.read(file)

        def caller(token: str) -> Caller | None:
            return tokens.caller(Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]}))

        assert caller("ann-token-0123456789") == Caller("ann")
        assert caller("shop-token-0123456789") == Caller("shop", Role.VIEWER, sees_all=True, decides=False)
        assert caller("") is None
