"""Who the console answers: links, sessions, proxies, hosts, origins, roles, rates."""

import asyncio
from collections.abc import Mapping

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from temporalio.client import Client

from baton.client import Connection, Role, connect
from baton.client.faces import Proxy, Rate, Rates, server_error
from baton.codec.server import serving
from baton.console.app import console_app
from baton.console.security import (
    _MAX_SESSIONS,
    HEADERS,
    LEAVE,
    MAX_FORM_BYTES,
    Access,
    Guard,
    Links,
    action,
    enter,
    form_secret,
    get_viewer,
    page,
)
from baton.console.sources import Sources
from baton.devserver import DevServer
from baton.doors.client_access import _MAX_BUCKETS
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring
from tests.console.conftest import BASE, Browser, token_in


async def _name(request: Request) -> Response:
    viewer = get_viewer(request)
    return PlainTextResponse(f"{viewer.name} {viewer.role.name} {request.app.state.access.token(viewer)}")


async def _act(request: Request, form: Mapping[str, str]) -> Response:
    return PlainTextResponse(f"done {form.get('what')}")


def _app(access: Access) -> Starlette:
    """Return an application with a page for each role."""
    routes = [
        Route("/enter", enter),
        page("/", _name),
        page("/deciders", _name, Role.DECIDER),
        action("/act", _act),
        action("/operate", _act, Role.OPERATOR),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, access=access)])
    app.state.access = access
    return app


def _linked(role: Role = Role.OPERATOR) -> tuple[Browser, Links]:
    links = Links("ann", role)
    return Browser(_app(Access(links=links)), links), links


def _proxied(peer: str = "10.0.0.5", *, secret: bytes | None = None, **roles: Role) -> httpx.AsyncClient:
    granted = {"*": Role.VIEWER, "release": Role.DECIDER, "sre": Role.OPERATOR, **roles}
    proxy = Proxy.at(["10.0.0.0/24", "::1"], "X-Forwarded-User", "X-Forwarded-Groups", granted)
    app = _app(Access(proxy=proxy, url="https://baton.example.org", secret=secret))
    transport = httpx.ASGITransport(app, client=(peer, 1))
    return httpx.AsyncClient(transport=transport, base_url="https://baton.example.org")


class TestLinks:
    """The link that a terminal prints."""

    async def test_a_link_signs_in_once(self) -> None:
        """A link found later in a history or a log is worthless."""
        browser, links = _linked()
        used = links.path
        await browser.sign_in()
        other = Browser(browser.app)

        assert (await other.get(used)).status_code == 401
        assert (await other.get("/")).status_code == 401
        assert (await browser.get("/")).text.startswith("ann OPERATOR ")
        assert links.path != used

    async def test_a_preview_does_not_use_it_up(self) -> None:
        """A mail scanner or a preview sends HEAD."""
        browser, links = _linked()
        await browser.http.head(links.path)

        await browser.sign_in()

    async def test_the_cookie_is_for_this_console_alone(self) -> None:
        """Scripts cannot read it, other sites' forms do not send it, and another port's console has its own."""
        browser, links = _linked()
        answer = await browser.http.get(links.path, follow_redirects=False)
        cookie = answer.headers["set-cookie"]

        assert cookie.startswith("baton_console_8234=")
        assert {"HttpOnly", "SameSite=lax"} <= {part.strip() for part in cookie.split(";")}
        assert links.path.partition("=")[2] not in cookie

    async def test_every_page_requires_a_session(self, sources: Sources) -> None:
        """Those of all modules."""
        app = console_app(sources, Access(links=Links("ann")))
        paths = {route.path for route in app.routes if isinstance(route, Route)} - {"/enter", "/healthz"}
        stranger = Browser(app)
        stranger_answers = {path: (await stranger.get(path)).status_code for path in sorted(paths)[:8]}

        assert set(stranger_answers.values()) == {401}


class TestLeaving:
    """The end of a session."""

    async def test_signing_out_ends_the_session(self, sources: Sources) -> None:
        """The cookie is worth nothing from then on, other sessions stay, and the page says how to come back."""
        links = Links("ann")
        app = console_app(sources, Access(links=links))
        ann, other = await Browser(app, links).sign_in(), await Browser(app, links).sign_in()
        page, cookies = (await ann.get("/start")).text, dict(ann.http.cookies)
        assert (await ann.post(LEAVE, {})).status_code == 403  # another site's form has no token
        assert (await ann.get("/start")).status_code == 200
        left = await ann.post(LEAVE, {"csrf": token_in(page)})
        assert (left.status_code, left.url.path) == (401, "/")
        assert "You are signed out" in left.text
        assert "baton console" in left.text
        assert not ann.http.cookies
        ann.http.cookies.update(cookies)
        assert (await ann.get("/start")).status_code == 401
        assert (await other.get("/start")).status_code == 200

    async def test_a_page_that_is_followed_ends_with_the_session(
        self, sources: Sources, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its stream ends, so that its script asks again and is refused."""
        monkeypatch.setattr("baton.console.pages_inbox._CACHE_SECONDS", 0.01)
        links = Links("ann")
        async with (
            serving(console_app(sources, Access(links=links)), "the console") as url,
            httpx.AsyncClient(base_url=url, follow_redirects=True, timeout=60) as ann,
        ):
            page = (await ann.get(links.path)).text
            async with ann.stream("GET", "/inbox/events") as stream:
                parts = stream.aiter_raw()
                await anext(parts)
                left = await ann.post(LEAVE, data={"csrf": token_in(page)}, headers={"origin": url})
                assert left.status_code == 401
                async for _ in parts:
                    pass
            assert (await ann.get("/inbox/events")).status_code == 401

    async def test_people_of_a_proxy_sign_out_there(self, sources: Sources) -> None:
        """Where it has named an address for that."""
        for sign_out in ("/oauth2/sign_out", ""):
            proxy = Proxy.at(["127.0.0.1"], "X-Forwarded-User", "X-Forwarded-Groups", {"*": Role.VIEWER}, sign_out)
            app = console_app(sources, Access(proxy=proxy, url=BASE))
            page = (await Browser(app).get("/inbox", x_forwarded_user="bob")).text
            assert ('href="/oauth2/sign_out"' in page, "Sign out" in page) == (bool(sign_out), bool(sign_out))
        assert "not signed in" in (await Browser(app).get("/inbox")).text


class TestFaults:
    """Why the Temporal server cannot be asked."""

    @pytest.mark.parametrize(
        ("fault", "title"),
        [
            ("address", "No Temporal server answers"),
            ("namespace", "The namespace does not exist"),
            ("tls", "The Temporal server does not answer as expected"),
            ("port", "The Temporal server&#39;s address is wrong"),
        ],
    )
    async def test_a_page_names_the_cause(self, server: DevServer, client: Client, fault: str, title: str) -> None:
        """With what to do, and it tries again by itself."""
        connections = {
            "address": Connection("127.0.0.1:1"),
            "namespace": Connection(server.address, "nowhere"),
            "port": Connection("localhost"),
        }

        async def make() -> Client:
            if fault == "tls":
                try:
                    return await Client.connect(server.address, tls=True)
                except RuntimeError as error:
                    raise server_error(error, server.address, "default") from error
            return await connect(connections[fault])

        links = Links("ann")
        browser = await Browser(console_app(Sources(make), Access(links=links)), links).sign_in(503)
        answer = await browser.get("/")

        assert answer.status_code == 503
        assert f"<h1>{title}</h1>" in answer.text
        assert "This page tries again by itself." in answer.text
        assert answer.headers["refresh"] == "5"


class TestHosts:
    """By which names and from which pages the console is asked."""

    @pytest.mark.parametrize("host", ["evil.example:8234", "127.0.0.1.evil.example", "", "[::1", "10.0.0.9:8234"])
    async def test_another_host_name_is_refused(self, host: str) -> None:
        """DNS rebinding would give another site's page the console's origin."""
        browser, _ = _linked()
        await browser.sign_in()

        assert (await browser.get("/", host=host)).status_code == 421

    @pytest.mark.parametrize("host", ["localhost:8234", "127.0.0.1:8234", "[::1]:8234"])
    async def test_this_machine_has_three_names(self, host: str) -> None:
        """Each is accepted."""
        browser, _ = _linked()

        assert (await browser.get("/", host=host)).status_code == 401

    @pytest.mark.parametrize(
        "headers",
        [
            pytest.param({"origin": "http://evil.example"}, id="another site"),
            pytest.param({"origin": "http://127.0.0.1:9999"}, id="another port of this machine"),
            pytest.param({"origin": "null"}, id="a page without an origin"),
            pytest.param({"sec-fetch-site": "same-site"}, id="a browser that says so"),
            pytest.param({}, id="nothing that tells"),
        ],
    )
    async def test_a_form_of_another_site_does_nothing(self, headers: dict[str, str]) -> None:
        """Even with the session and a valid token."""
        browser, _ = _linked()
        await browser.sign_in()
        token = (await browser.get("/")).text.split()[-1]

        assert (await browser.http.post("/act", data={"csrf": token}, headers=headers)).status_code == 403

    async def test_a_form_needs_the_token_of_its_session(self) -> None:
        """A token that is missing, changed or from another session is refused."""
        browser, _ = _linked()
        await browser.sign_in()
        token = (await browser.get("/")).text.split()[-1]
        other, _ = _linked()
        await other.sign_in()
        foreign = (await other.get("/")).text.split()[-1]

        assert (await browser.post("/act", {"csrf": token, "what": "x" * MAX_FORM_BYTES})).status_code == 413
        for wrong in ("", foreign, token[:-1] + "x", token + "0"):
            assert (await browser.post("/act", {"csrf": wrong, "what": "it"})).status_code == 403
        assert (await browser.post("/act", {"csrf": token, "what": "it"})).text == "done it"

    async def test_every_response_has_the_security_headers(self) -> None:
        """Pages, refusals and redirects."""
        browser, links = _linked()
        answers = [await browser.get("/"), await browser.http.get(links.path, follow_redirects=False)]

        for answer in answers:
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "unsafe" not in HEADERS["content-security-policy"]
        assert HEADERS["content-security-policy"].startswith("default-src 'none'; ")


class TestSeveralConsoles:
    """Consoles that stand for each other behind a proxy."""

    async def test_a_form_of_one_is_accepted_by_another_with_the_same_keys(self) -> None:
        """Whichever of them a proxy chooses; a console with other keys refuses it, and so does one without."""
        keys, others = Keyring.generate(), Keyring.generate()
        person = {"x-forwarded-user": "bob", "x-forwarded-groups": "sre"}
        first, second, foreign, keyless = (
            _proxied(secret=form_secret(keyring)) for keyring in (keys, keys, others, None)
        )
        token = (await first.get("/", headers=person)).text.split()[-1]

        async def act(console: httpx.AsyncClient, who: str = "bob") -> int:
            headers = {**person, "x-forwarded-user": who, "origin": "https://baton.example.org"}
            return (await console.post("/act", data={"csrf": token}, headers=headers)).status_code

        assert [await act(console) for console in (first, second, foreign, keyless)] == [200, 200, 403, 403]
        assert await act(second, "eve") == 403, "it is still bound to the person"


class TestRoles:
    """What a role may do."""

    @pytest.mark.parametrize(
        ("role", "answers"),
        [(Role.VIEWER, (403, 403, 403)), (Role.DECIDER, (200, 200, 403)), (Role.OPERATOR, (200, 200, 200))],
    )
    async def test_each_role_includes_those_below_it(self, role: Role, answers: tuple[int, int, int]) -> None:
        """The page of deciders, an action of deciders, an action of operators."""
        browser, _ = _linked(role)
        await browser.sign_in()
        token = (await browser.get("/")).text.split()[-1]
        fields = {"csrf": token}
        statuses = [
            await browser.get("/deciders"),
            await browser.post("/act", fields),
            await browser.post("/operate", fields),
        ]

        assert tuple(response.status_code for response in statuses) == answers


class TestProxy:
    """People whom a proxy has authenticated."""

    @pytest.mark.parametrize(
        ("groups", "role"), [("", "VIEWER"), ("release", "DECIDER"), ("other, sre ,release", "OPERATOR")]
    )
    async def test_the_highest_role_of_their_groups_counts(self, groups: str, role: str) -> None:
        """The name comes from the proxy."""
        headers = {"x-forwarded-user": "bob", "x-forwarded-groups": groups}

        assert (await _proxied().get("/", headers=headers)).text.startswith(f"bob {role} ")

    async def test_headers_from_other_addresses_are_ignored(self) -> None:
        """A caller who bypasses the proxy is not authenticated."""
        headers = {"x-forwarded-user": "bob", "x-forwarded-groups": "sre", "x-forwarded-for": "10.0.0.5"}

        assert (await _proxied("192.0.2.7").get("/", headers=headers)).status_code == 403

    @pytest.mark.parametrize("names", [[], ["bob", "eve"], [" "], ["bo\x7fb"]])
    async def test_an_invalid_name_is_not_authenticated(self, names: list[str]) -> None:
        """A second header may come from the caller."""
        headers = [("x-forwarded-user", name) for name in names]

        assert (await _proxied().get("/", headers=headers)).status_code == 403

    async def test_an_invalid_proxy_address_is_an_error_at_once(self) -> None:
        """Not only when somebody is refused."""
        with pytest.raises(BatonError, match="proxy"):
            Proxy.at(["proxy.local"], "u", "g", {})


class TestRates:
    """How often one may ask."""

    async def test_a_signed_in_person_is_limited_too(self) -> None:
        """A script in their name could otherwise flood the server."""
        links = Links("ann", Role.OPERATOR)
        access = Access(links=links)
        access.rates = Rates(lambda: 0.0)  # the bucket does not refill
        browser = Browser(_app(access), links)
        await browser.sign_in()
        answers = [await browser.get("/") for _ in range(130)]

        assert {answer.status_code for answer in answers} == {200, 429}

    async def test_the_oldest_sessions_and_buckets_are_forgotten(self) -> None:
        """However many there were, memory has a bound."""
        browser, links = _linked()
        await browser.sign_in()
        for _ in range(_MAX_SESSIONS):
            assert links.take(links.path.partition("key=")[2])
        assert (await browser.get("/")).status_code == 401
        rates, rate = Rates(lambda: 0.0), Rate(1, 1)
        assert [rates.take(str(who), rate) for who in range(_MAX_BUCKETS + 1)] == [True] * (_MAX_BUCKETS + 1)
        assert rates.take("0", rate)

    def test_a_bucket_refills_with_time(self) -> None:
        """A burst, then a rate per second, for each caller."""
        now = [0.0]
        rates, rate = Rates(lambda: now[0]), Rate(2, 1)

        assert [rates.take("ann", rate) for _ in range(3)] == [True, True, False]
        assert rates.take("bob", rate)
        now[0] = 1.0
        assert [rates.take("ann", rate) for _ in range(2)] == [True, False]

    async def test_guessing_links_is_rate_limited(self) -> None:
        """After ten keys; a signed-in user is not affected."""
        browser, _ = _linked()
        await browser.sign_in()
        stranger = Browser(browser.app)
        answers = await asyncio.gather(*(stranger.get("/enter?key=guess") for _ in range(12)))

        assert 429 in {answer.status_code for answer in answers}
        assert (await browser.get("/")).status_code == 200

    async def test_nobody_can_lock_out_the_owner_of_a_link(self, sources: Sources) -> None:
        """Neither someone who guesses from the same address, nor a page whose session is over."""
        links = Links("ann")
        app = console_app(sources, Access(links=links))
        stranger = Browser(app)
        paths = ["/enter?key=guess"] * 12 + ["/runs/events"] * 70
        answers = await asyncio.gather(*map(stranger.get, paths))  # at once: the rate is one of time

        assert 429 in {answer.status_code for answer in answers}
        assert (await (await Browser(app, links).sign_in()).get("/")).status_code == 200


async def test_the_health_check_needs_no_session(sources: Sources, client: Client) -> None:
    """It reveals nothing else."""
    browser = Browser(console_app(sources, Access(links=Links("ann"))))

    assert (await browser.get("/healthz", host="10.0.0.7")).text == "ok"
    assert BASE.startswith("http://127.0.0.1")
