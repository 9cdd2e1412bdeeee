"""A remote agent over A2A 1.0 as a stage."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.json_format import MessageToDict, ParseError
from pydantic import ValidationError
from temporalio import activity

from baton.agents.answers import AgentAnswer, AnswerForm
from baton.agents.port import AgentWork
from baton.codec.secrets import hold_secret, mask
from baton.core.history import Spend
from baton.errors import AgentError, ConfigurationError
from baton.lazy import needs_extra
from baton.wire.json_values import narrow_integers
from baton.wire.names import A2A_EXTENSION
from baton.wire.text import single_line

with needs_extra("a2a", __name__):
    import httpx
    from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
    from a2a.client.client import ClientCallContext
    from a2a.client.errors import A2AClientError, AgentCardResolutionError
    from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
    from a2a.types import a2a_pb2 as pb
    from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
    from a2a.utils.errors import A2AError, TaskNotFoundError

_TASK = "a2a_task"
_BINDINGS = ["JSONRPC", "HTTP+JSON"]
_CONNECT_SECONDS, _CANCEL_SECONDS = 10.0, 5.0
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 10.0
_MAX_REASON_LENGTH = 300
_MAX_COST = 10**12  # a million US dollars, or as many tokens; nobody is believed more
_ENDED = frozenset({pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_REJECTED})
_ASKS = frozenset({pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED})


class _TooLargeError(Exception):
    """The agent has sent more than it may."""


@dataclass(frozen=True)
class A2AAgent:
    """A remote agent over A2A.

    A worker that dies does not start its task again: the next attempt takes up the same task, by the id in the stage's
    heartbeats. A canceled stage cancels the task. Of the agent's cost, what it tells by Baton's extension is charged.

    Attributes:
        name: The agent's name.
        card_url: The address of the agent, or of its card. Its interfaces must be at the same origin, and redirects
            are refused.
        skill: The skill to ask for, as `metadata.skill`; needed where a Baton service offers several.
        token_variable: The variable of the worker's environment with the bearer token.
        token_file: The file with the bearer token, instead.
        most_bytes: The most bytes that the agent may send in one attempt.
        stream: Whether to stream the texts of its messages, like `p.stage(…, stream=True)`.

    Example:
        ```python
        article = agent_stage(A2AAgent("writer", "https://agents.example.com", token_variable="WRITER_TOKEN"))
        ```
    """

    name: str
    card_url: str
    skill: str | None = None
    token_variable: str | None = None
    token_file: Path | None = None
    most_bytes: int = 8 * 1024 * 1024
    stream: bool = True

    def __post_init__(self) -> None:
        """Refuse an address that is none."""
        parsed = urlsplit(self.card_url)
        if parsed.scheme not in ("http", "https") or not parsed.netloc or parsed.username is not None:
            raise ValueError(f"card_url={self.card_url!r}: expected an address such as https://agents.example.com")
        if self.token_variable is not None:
            hold_secret(self.token_variable)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Send the work to the agent, and wait for its answer.

        Raises:
            AgentError: The agent cannot be reached or called, failed, refused the work, asked for input, or sent too
                much or too late.
            PatchError: Its answer does not have the requested form.
            asyncio.CancelledError: The stage was canceled, and so was the task.
        """
        token = self._token()
        try:
            async with asyncio.timeout(work.limits.seconds), self._connected(token) as client:
                return await _Call(self, client, work).run()
        except TimeoutError:
            raise AgentError(f"agent {self.name!r} did not finish in time") from None
        except _TooLargeError:
            message = f"agent {self.name!r} sent more than {self.most_bytes:,} bytes"
            raise AgentError(message, permanent=True) from None
        except AgentError as error:
            raise AgentError(
                mask(str(error), [token] if token else []), permanent=error.permanent, waits=error.waits
            ) from None

    def _token(self) -> str | None:
        """Return the bearer token, read again for each run: tokens are rotated."""
        if self.token_variable is not None:
            token = os.environ.get(self.token_variable, "")
            source = f"the variable {self.token_variable}"
        elif self.token_file is not None:
            source = f"the file {str(self.token_file)!r}"
            try:
                token = self.token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ConfigurationError(f"agent {self.name!r}: {source} cannot be read: {error.strerror}") from None
        else:
            return None
        if not token:
            raise ConfigurationError(f"agent {self.name!r}: {source} has no token; set it")
        return token

    @contextlib.asynccontextmanager
    async def _connected(self, token: str | None) -> AsyncIterator[Client]:
        """Yield a client of the agent, whose card has been read."""
        origin, path = _origin(self.card_url), urlsplit(self.card_url).path
        is_card = path.endswith(".json")
        base, card_path = (origin, path) if is_card else (self.card_url.rstrip("/"), AGENT_CARD_WELL_KNOWN_PATH)
        transport = _Transport(httpx.AsyncHTTPTransport(), origin, token, self.most_bytes)
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        async with httpx.AsyncClient(
            transport=transport, timeout=timeout, follow_redirects=False, trust_env=False
        ) as http:
            try:
                card = await A2ACardResolver(http, base, card_path).get_agent_card()
            except AgentCardResolutionError as error:
                status = error.status_code
                is_final = status is not None and 300 <= status < 500 and status != 429
                why = f" ({status})" if status else ""
                raise AgentError(
                    f"the card of agent {self.name!r} cannot be read{why}", permanent=is_final, waits=not is_final
                ) from None
            elsewhere = [each.url for each in card.supported_interfaces if _origin(each.url) != origin]
            if len(elsewhere) == len(card.supported_interfaces):
                raise AgentError(f"agent {self.name!r} has no interface at {origin}", permanent=True)
            own = [each for each in card.supported_interfaces if each.url not in elsewhere]
            del card.supported_interfaces[:]
            card.supported_interfaces.extend(own)
            config = ClientConfig(httpx_client=http, supported_protocol_bindings=_BINDINGS)
            try:
                client = ClientFactory(config).create(card)
            except ValueError as error:
                message = f"agent {self.name!r} speaks none of {', '.join(_BINDINGS)}: {error}"
                raise AgentError(single_line(message), permanent=True) from None
            yield client


def _origin(url: str) -> str:
    try:
        parsed = urlsplit(url)
    except ValueError:
        return ""
    return f"{parsed.scheme}://{parsed.netloc}".lower()


@dataclass
class _Transport(httpx.AsyncBaseTransport):
    """Calls one origin only, with the token, and takes no more than so many bytes."""

    inner: httpx.AsyncBaseTransport
    origin: str
    token: str | None
    left: int

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if _origin(str(request.url)) != self.origin:
            raise httpx.UnsupportedProtocol(f"only {self.origin} is called")
        if self.token is not None:
            request.headers["authorization"] = f"Bearer {self.token}"
        request.headers["accept-encoding"] = "identity"  # so that the bytes that are counted are those in memory
        response = await self.inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx.RemoteProtocolError("the response is compressed")
        response.stream = _Bounded(response.stream, self)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


@dataclass
class _Bounded(httpx.AsyncByteStream):
    inner: Any
    transport: _Transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.inner:
            self.transport.left -= len(chunk)
            if self.transport.left < 0:
                raise _TooLargeError
            yield chunk

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class _Call:
    """One attempt to get a task done."""

    agent: A2AAgent
    client: Client
    work: AgentWork
    task_id: str = ""
    state: int = pb.TASK_STATE_SUBMITTED
    said: str = ""
    artifacts: dict[str, pb.Artifact] = field(default_factory=dict)
    charged: Spend = field(default_factory=Spend)
    seen: set[str] = field(default_factory=set)

    async def run(self) -> AgentAnswer:
        """Start the task or take it up, follow it to its end, and return its answer."""
        try:
            await self._follow()
        except asyncio.CancelledError:
            if not (activity.in_activity() and _is_shutdown()):  # the next worker takes the task up
                await self._cancel()
            raise
        name, said = self.agent.name, single_line(" ".join(self.said.split()))
        why = f": {said[:_MAX_REASON_LENGTH]}" if said else ""
        if self.state in _ASKS:
            await self._cancel()
            self.work.context.heartbeat()
            text = f"agent {name!r} asks for input, which a stage cannot give; give it in the stage's inputs{why}"
            raise AgentError(text, permanent=True)
        if self.state != pb.TASK_STATE_COMPLETED:
            self.work.context.heartbeat()  # a retry starts another task
            word = pb.TaskState.Name(self.state).removeprefix("TASK_STATE_").lower()
            is_final = self.state != pb.TASK_STATE_FAILED
            raise AgentError(f"agent {name!r} ended its task as {word}{why}", permanent=is_final)
        return await self._answer()

    async def _follow(self) -> None:
        """Take in events until the task has ended or asks something; a lost stream is taken up again."""
        self.task_id = next((item[_TASK] for item in self.work.context.resumed if _is_task(item)), "")
        pause = _FIRST_PAUSE
        while self.state not in _ENDED | _ASKS:
            try:
                async with contextlib.aclosing(self._events()) as events:
                    async for event in events:
                        self._take(event)
            except TaskNotFoundError:
                self.task_id = ""  # forgotten by the agent
            except (A2AClientError, httpx.HTTPError) as error:
                status = _status_of(error)
                if status is not None and 300 <= status < 500 and status != 429:
                    self._fail(f"it answered {status}", permanent=True)
                if self.task_id == "" or pause >= _MAX_PAUSE:
                    self._fail(f"it answered {status}" if status else "the connection was lost", permanent=False)
            except A2AError as error:
                self._fail(single_line(str(error))[:_MAX_REASON_LENGTH], permanent=True)
            except (ParseError, RecursionError, ValueError) as error:
                self._fail(f"it sent what is not A2A 1.0 ({type(error).__name__})", permanent=True)
            if self.state not in _ENDED | _ASKS:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE)

    def _fail(self, why: str, *, permanent: bool) -> None:
        raise AgentError(
            f"agent {self.agent.name!r} cannot be called: {why}", permanent=permanent, waits=not permanent
        ) from None

    async def _events(self) -> AsyncGenerator[pb.StreamResponse, None]:
        """Yield the events of the task, which is started if it was not."""
        if self.task_id:
            task = await self.client.get_task(pb.GetTaskRequest(id=self.task_id), context=_CONTEXT)
            yield pb.StreamResponse(task=task)
            if task.status.state not in _ENDED | _ASKS:
                request = pb.SubscribeToTaskRequest(id=self.task_id)
                async for event in self.client.subscribe(request, context=_CONTEXT):
                    yield event
            return
        message = self._message()
        async for event in self.client.send_message(pb.SendMessageRequest(message=message), context=_CONTEXT):
            yield event

    def _message(self) -> pb.Message:
        """Return the work as a message; its id is the same in each attempt, so that the agent can tell it was sent."""
        work = self.work
        text = f"{work.instructions}\n\n{work.user_turn(with_schema=True)}".lstrip()
        given = work.context.given
        id = work.handoff_id or f"{given.task_id}:{given.seq}:{given.attempt}:{self.agent.name}"
        message = pb.Message(message_id=id, role=pb.ROLE_USER, parts=[pb.Part(text=text)], extensions=[A2A_EXTENSION])
        if self.agent.skill is not None:
            message.metadata.update({"skill": self.agent.skill})
        return message

    def _take(self, event: pb.StreamResponse) -> None:
        """Take in an event."""
        match event.WhichOneof("payload"):
            case "task":
                self._begin(event.task)
            case "message":  # an answer without a task
                self.state, self.said = pb.TASK_STATE_COMPLETED, _text(event.message.parts)
                self.artifacts["message"] = pb.Artifact(artifact_id="message", parts=event.message.parts)
            case "status_update":
                self._charge(event.status_update.metadata)
                self._tell(event.status_update.status)
            case "artifact_update":
                self._add(event.artifact_update)

    def _begin(self, task: pb.Task) -> None:
        if task.id and task.id != self.task_id:
            self.task_id = task.id
            self.work.context.heartbeat({_TASK: task.id})
        for artifact in task.artifacts:
            self.artifacts[artifact.artifact_id] = artifact
        self._charge(task.metadata)
        self._tell(task.status)

    def _tell(self, status: pb.TaskStatus) -> None:
        """Note a status, and stream the text of its message, each once."""
        self.state = status.state
        self.said = _text(status.message.parts)
        if self.said and status.message.message_id not in self.seen:
            self.seen.add(status.message.message_id)
            self.work.context.stream.text(f"{self.said}\n")

    def _add(self, update: pb.TaskArtifactUpdateEvent) -> None:
        known = self.artifacts.get(update.artifact.artifact_id)
        if update.append and known is not None:
            known.parts.extend(update.artifact.parts)
        else:
            self.artifacts[update.artifact.artifact_id] = update.artifact

    def _charge(self, metadata: Any) -> None:
        """Charge what the agent has spent since it last told."""
        told = narrow_integers(MessageToDict(metadata)).get(A2A_EXTENSION)
        cost = told.get("cost") if isinstance(told, dict) else None
        try:
            spent = Spend.model_validate(cost) if isinstance(cost, Mapping) else Spend()
        except ValidationError:
            return
        if max(spent.micro_usd, spent.tokens) > _MAX_COST:
            return
        if new := spent.minus(self.charged):
            self.charged = self.charged + new
            self.work.charge(new)

    async def _answer(self) -> AgentAnswer:
        """Return the answer in the task's artifacts, of which files are kept; else that in its last message."""
        texts: list[str] = []
        objects: list[Any] = []
        chosen = [self.artifacts["output"]] if "output" in self.artifacts else [*self.artifacts.values()]
        for artifact in self.artifacts.values():
            for number, part in enumerate(artifact.parts, 1):
                match part.WhichOneof("content"):
                    case "raw":
                        id = artifact.artifact_id if number == 1 else f"{artifact.artifact_id}-{number}"
                        kind = part.media_type or "file"
                        await self.work.context.artifacts.write(id, part.raw, type=kind, path=part.filename or None)
                    case "text" if artifact in chosen:
                        texts.append(part.text)
                    case "data" if artifact in chosen:
                        objects.append(narrow_integers(MessageToDict(part.data)))
        text = "\n".join(texts) or self.said
        if objects and self.work.form in (AnswerForm.PATCH, AnswerForm.TYPED):
            return self.work.read(objects[0] if isinstance(objects[0], dict) else json.dumps(objects[0]))
        return self.work.read(text or json.dumps(objects[0] if objects else None))

    async def _cancel(self) -> None:
        """Ask the agent to cancel the task; it may have ended."""
        if self.task_id:
            with contextlib.suppress(A2AError, httpx.HTTPError, TimeoutError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self.client.cancel_task(pb.CancelTaskRequest(id=self.task_id), context=_CONTEXT)


_CONTEXT = ClientCallContext(service_parameters=ServiceParametersFactory.create([with_a2a_extensions([A2A_EXTENSION])]))


def _status_of(error: Exception) -> int | None:
    cause = error.__cause__
    return cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else None


def _is_task(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get(_TASK), str)


def _is_shutdown() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


def _text(parts: Any) -> str:
    return "\n".join(part.text for part in parts if part.HasField("text"))
