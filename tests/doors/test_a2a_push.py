"""Notifications of A2A tasks: sent to allowed addresses only, and signed so that a receiver can verify them."""

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotFoundError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.worker import Worker

from baton import Keyring
from baton.client import serve_service, service
from baton.client.faces import ArtifactStore
from baton.codec.server import serving
from baton.devserver.processes import held_port
from tests.doors.conftest import http_of, make_parts
from tests.doors.test_a2a import agent, ask_article, said, send


class Hooks:
    """What an address has received: headers and bodies; the first answers are errors."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self.failures = 0

    async def receive(self, request: Request) -> Response:
        """Take a notification."""
        if self.failures:
            self.failures -= 1
            return Response(status_code=503)
        await self.received.put((dict(request.headers), await request.body()))
        return Response(status_code=204)


@pytest.fixture
async def hooks() -> AsyncIterator[tuple[Hooks, str]]:
    """Return what a receiver got, and its address."""
    own = Hooks()
    async with serving(Starlette(routes=[Route("/hook", own.receive, methods=["POST"])]), "the receiver") as address:
        yield own, address


@pytest.fixture
async def pushing(
    doors_worker: Worker, store: ArtifactStore, keyring: Keyring, hooks: tuple[Hooks, str]
) -> AsyncIterator[str]:
    """Return the address of a service that may notify the receiver."""
    with held_port() as port:
        address = f"http://127.0.0.1:{port}"
    app = service(make_parts(doors_worker, store, keyring, url=address, push_to=hooks[1]))
    async with serve_service(app, port=urlsplit(address).port or 0):
        yield address


def config(url: str, task: str = "", **members: Any) -> pb.TaskPushNotificationConfig:
    """Return where to send what happens to a task."""
    return pb.TaskPushNotificationConfig(task_id=task, url=url, **members)


async def test_what_happens_is_sent_and_signed(pushing: str, hooks: tuple[Hooks, str], keyring: Keyring) -> None:
    """With the receiver's own credentials; a receiver that fails gets it again."""
    received, address = hooks
    received.failures = 1
    credentials = pb.AuthenticationInfo(scheme="Bearer", credentials="their-secret")
    async with agent(pushing) as client:
        id = await ask_article(client)
        await client.create_task_push_notification_config(
            config(f"{address}/hook", id, id="own", token="mine", authentication=credentials)
        )
        await send(client, said(task_id=id, data={"percent": 7}))
        async with http_of(None) as http:
            jwks = jwt.PyJWKSet.from_json((await http.get(f"{pushing}/.well-known/jwks.json")).text)
        bodies = list[Any]()
        while not bodies or "TASK_STATE_COMPLETED" not in str(bodies[-1]):
            headers, body = await received.received.get()
            assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Bearer their-secret", "mine")
            signature = headers["baton-signature"]
            key = jwks[jwt.get_unverified_header(signature)["kid"]]
            claims = jwt.decode(
                signature,
                key,
                algorithms=["EdDSA"],
                audience=f"{address}/hook",
                issuer=pushing,
                options={"require": ["exp", "jti"]},
            )
            assert (claims["sub"], claims["body_sha256"]) == (id, sha256(body).hexdigest())
            bodies.append(json.loads(body))
    assert "task" in bodies[0]


async def test_addresses_are_the_callers_own_and_allowed_ones(pushing: str, hooks: tuple[Hooks, str]) -> None:
    _, address = hooks
    async with agent(pushing) as ann, agent(pushing, "bob") as bob:
        id = await ask_article(ann)
        for url in ("http://169.254.169.254/latest", "http://127.0.0.1:1/x", f"{address}.evil.example/", "nonsense"):
            with pytest.raises(A2AError):
                await ann.create_task_push_notification_config(config(url, id))
            with pytest.raises(A2AError):
                await send(ann, said("Batons", skill="quick"), task_push_notification_config=config(url))
        with pytest.raises(TaskNotFoundError):
            await bob.create_task_push_notification_config(config(f"{address}/hook", id))
        made = await ann.create_task_push_notification_config(config(f"{address}/hook", id, id="own"))
        got = await ann.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(task_id=id, id="own"))
        assert got == made
        asked = pb.ListTaskPushNotificationConfigsRequest(task_id=id)
        assert [each.id for each in (await ann.list_task_push_notification_configs(asked)).configs] == ["own"]
        for _ in range(2):
            await ann.delete_task_push_notification_config(
                pb.DeleteTaskPushNotificationConfigRequest(task_id=id, id="own")
            )
        assert not (await ann.list_task_push_notification_configs(asked)).configs


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"token": "schlüssel"}, id="a token in other letters"),
        pytest.param({"token": "two\r\nlines"}, id="a token of two lines"),
        pytest.param({"authentication": pb.AuthenticationInfo(scheme="Bearer", credentials="ключ")}, id="credentials"),
        pytest.param({"authentication": pb.AuthenticationInfo(scheme="Ключ", credentials="key")}, id="a scheme"),
    ],
)
async def test_what_no_header_can_carry_is_refused(
    pushing: str, hooks: tuple[Hooks, str], members: dict[str, Any]
) -> None:
    """At once: nothing could be sent."""
    own = config(f"{hooks[1]}/hook", id="own", **members)
    async with agent(pushing) as client:
        id = await ask_article(client)
        own.task_id = id
        with pytest.raises(InvalidParamsError):
            await client.create_task_push_notification_config(own)
        with pytest.raises(InvalidParamsError):
            await send(client, said("Batons", skill="quick"), task_push_notification_config=own)
        asked = pb.ListTaskPushNotificationConfigsRequest(task_id=id)
        assert not (await client.list_task_push_notification_configs(asked)).configs


async def test_a_receiver_that_is_down_gets_the_next_one_at_once(
    pushing: str, hooks: tuple[Hooks, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last try nothing is waited for."""
    monkeypatch.setattr("baton.doors.client_a2a_push._TRIES", 1)
    monkeypatch.setattr("baton.doors.client_a2a_push._FIRST_PAUSE", 3_600)
    received, address = hooks
    received.failures = 1
    async with agent(pushing) as client:
        id = await ask_article(client)
        await client.create_task_push_notification_config(config(f"{address}/hook", id, id="own"))
        await send(client, said(task_id=id, data={"percent": 7}))
        async with asyncio.timeout(60):
            assert "task" not in json.loads((await received.received.get())[1])


async def test_one_callers_notifications_leave_room_for_others(
    pushing: str, hooks: tuple[Hooks, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of a task that has ended, for the caller's next ones."""
    monkeypatch.setattr("baton.doors.client_a2a_push._MAX_PER_CALLER", 2)
    received, address = hooks
    async with agent(pushing) as ann, agent(pushing, "bob") as bob:
        first, second, others = await ask_article(ann), await ask_article(ann), await ask_article(bob)
        for id in (first, second):
            await ann.create_task_push_notification_config(config(f"{address}/hook", id, id="own"))
        with pytest.raises(A2AError, match="too many"):
            await ann.create_task_push_notification_config(config(f"{address}/hook", first, id="another"))
        with pytest.raises(A2AError, match="bytes"):
            await bob.create_task_push_notification_config(config(f"{address}/hook", others, token="x" * 100_000))
        await bob.create_task_push_notification_config(config(f"{address}/hook", others, id="own"))
        await ann.cancel_task(pb.CancelTaskRequest(id=first))
        while "TASK_STATE_CANCELED" not in str((await received.received.get())[1]):
            pass
        third = await ask_article(ann)
        made = await ann.create_task_push_notification_config(config(f"{address}/hook", third, id="own"))
        assert made.task_id == third
