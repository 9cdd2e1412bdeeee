"""Push notifications of A2A: what happens to a task, posted to its caller's address and signed."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256
from time import time
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from google.protobuf.json_format import MessageToDict

from baton.doors.client_access import Caller
from baton.doors.client_runs import ServiceParts
from baton.keys.store_keyring import Keyring, Purpose
from baton.lazy import needs_extra
from baton.wire.base64url import to_base64url

with needs_extra("a2a", __name__):
    from a2a.types.a2a_pb2 import TaskPushNotificationConfig
    from a2a.utils.errors import InvalidParamsError, PushNotificationNotSupportedError
    from a2a.utils.proto_utils import to_stream_response

SIGNATURE_HEADER = "Baton-Signature"
"""The header of a notification with a JWT (EdDSA): `iss`, `aud`, `iat`, `exp`, `jti`, `sub` (the task), and
`body_sha256`, the body's digest in hexadecimal digits. The key with its `kid` is in the service's JWK Set."""
JWKS_PATH = "/.well-known/jwks.json"
_VALID_SECONDS = 300
_MAX_PER_TASK, _MAX_PER_CALLER = 16, 1_000
_MAX_CONFIG_BYTES = 8 * 1024
_TRIES, _FIRST_PAUSE = 5, 0.5
_TIMEOUT = httpx.Timeout(10)
_log = logging.getLogger(__name__)

Events = Callable[[Caller, str], AsyncGenerator[Any, None]]
"""Yields the events of a task from now on, until it has ended."""


def can_push(parts: ServiceParts) -> bool:
    """Return whether a service sends any."""
    return bool(parts.push_to) and parts.keyring is not None


def sign_notification(keyring: Keyring, body: bytes, *, issuer: str, audience: str, task: str) -> str:
    """Return the JWT that signs a notification's body."""
    key, now = keyring.current(Purpose.SIGN), int(time())
    header = {"alg": "EdDSA", "typ": "JWT", "kid": key.id}
    claims = {
        **{"iss": issuer, "aud": audience, "sub": task, "iat": now, "exp": now + _VALID_SECONDS},
        **{"jti": str(uuid4()), "body_sha256": sha256(body).hexdigest()},
    }
    text = ".".join(to_base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    return f"{text}.{to_base64url(key.private.sign(text.encode()))}"


class Pushes:
    """Where notifications go, by task and caller; they last as long as the process.

    The addresses are kept in memory only, because they have the receivers' credentials.
    """

    def __init__(self, parts: ServiceParts, events: Events) -> None:
        self._parts = parts
        self._events = events
        self._configs: dict[tuple[str, str, str], TaskPushNotificationConfig] = {}
        self._senders: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._http: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Send while the context is open."""
        async with httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as self._http:
            try:
                yield
            finally:
                senders = [*self._senders.values()]
                for sender in senders:
                    sender.cancel()
                await asyncio.gather(*senders, return_exceptions=True)

    def add(self, caller: Caller, task_id: str, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Send what happens to a task of the caller to an address from now on.

        Raises:
            InvalidParamsError: It is none that this service sends, or there are too many.
        """
        self.check(config)
        own = TaskPushNotificationConfig()
        own.CopyFrom(config)
        own.task_id, own.id = task_id, config.id or str(uuid4())
        key = (caller.name, task_id, own.id)
        if own.ByteSize() > _MAX_CONFIG_BYTES:
            raise InvalidParamsError(f"a push notification has at most {_MAX_CONFIG_BYTES:,} bytes")
        known = [other for other in self._configs if other[0] == caller.name and other != key]
        if len(known) >= _MAX_PER_CALLER:  # those of tasks that have ended make room
            for other in [other for other in known if self._senders[other].done()]:
                self.remove(caller, *other[1:])
                known.remove(other)
        of_task = [other for other in known if other[1] == task_id]
        if len(of_task) >= _MAX_PER_TASK or len(known) >= _MAX_PER_CALLER:
            raise InvalidParamsError(
                f"too many push notifications; you may have {_MAX_PER_TASK} for a task, {_MAX_PER_CALLER:,} in all"
            )
        self.remove(caller, task_id, own.id)
        self._configs[key] = own
        self._senders[key] = asyncio.create_task(self._send_all(caller, own))
        return own

    def of(self, caller: Caller, task_id: str) -> list[TaskPushNotificationConfig]:
        """Return what a caller has asked for about a task."""
        return [config for key, config in self._configs.items() if key[:2] == (caller.name, task_id)]

    def remove(self, caller: Caller, task_id: str, id: str) -> None:
        """Send no more to an address; none may be there."""
        key = (caller.name, task_id, id)
        self._configs.pop(key, None)
        if (sender := self._senders.pop(key, None)) is not None:
            sender.cancel()

    def check(self, config: TaskPushNotificationConfig) -> None:
        """Raise if this service does not send notifications to an address, or cannot with these credentials."""
        if not can_push(self._parts):
            raise PushNotificationNotSupportedError
        url, login = config.url, config.authentication
        if not all(text.isascii() and text.isprintable() for text in (config.token, login.scheme, login.credentials)):
            raise InvalidParamsError("a token, scheme or credential has characters that no HTTP header can carry")
        try:
            parsed = urlsplit(url)
            origins = {f"{parsed.scheme}://{parsed.netloc}", f"{parsed.scheme}://{parsed.hostname}:*"}
            is_allowed = parsed.username is None and not origins.isdisjoint(self._parts.push_to)
        except ValueError:
            is_allowed = False
        if not is_allowed:
            raise InvalidParamsError("this service sends no notifications to that address; ask who runs it to allow it")

    async def _send_all(self, caller: Caller, config: TaskPushNotificationConfig) -> None:
        try:
            async with aclosing(self._events(caller, config.task_id)) as events:
                async for event in events:
                    body = json.dumps(MessageToDict(to_stream_response(event))).encode()
                    await self._send(config, body)
        except Exception:  # this task is not awaited
            _log.exception("the notifications of task %s ended", config.task_id)

    async def _send(self, config: TaskPushNotificationConfig, body: bytes) -> None:
        keyring, http = self._parts.keyring, self._http
        assert keyring is not None and http is not None  # noqa: S101, PT018 - else nothing is offered
        signature = sign_notification(keyring, body, issuer=self._parts.url, audience=config.url, task=config.task_id)
        headers = {"content-type": "application/json", SIGNATURE_HEADER: signature}
        if config.token:
            headers["X-A2A-Notification-Token"] = config.token
        if config.authentication.scheme and config.authentication.credentials:
            headers["Authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
            try:
                response = await http.post(config.url, content=body, headers=headers)
            except httpx.HTTPError as error:
                problem = type(error).__name__
            else:
                if response.is_success or response.is_client_error:
                    return
                problem = str(response.status_code)
        _log.warning("a notification of task %s was not delivered: %s", config.task_id, problem)
