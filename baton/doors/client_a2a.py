"""A2A 1.0: each pipeline is a skill, and each run a task, over JSON-RPC and HTTP+JSON.

The histories are the store: a task is made from them whenever it is asked for, so the service keeps nothing and any
copy of it answers for every task.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from temporalio.service import RPCError

from baton import __version__
from baton.doors import client_runs as runs
from baton.doors.client_a2a_handoffs import SKILL, HandoffTasks, handoff_skill, is_handoff, tool_schemas
from baton.doors.client_a2a_messages import ORDER_TYPE, Content, choose_offer, read_order, read_reply, read_start
from baton.doors.client_a2a_push import JWKS_PATH, Pushes, can_push
from baton.doors.client_a2a_tasks import (
    INTERRUPTED,
    JSON,
    TERMINAL,
    Artifacts,
    artifact_event,
    context_of,
    handoff_artifacts,
    receipt_artifact,
    rejected_task,
    state_event,
    state_of,
    task_of,
    to_struct,
    update_of,
)
from baton.doors.client_access import Caller
from baton.doors.client_runs import Offer, ServiceParts
from baton.doors.client_service import Door, caller_of
from baton.errors import BatonError, MalformedMessageError, PipelineError
from baton.lazy import needs_extra
from baton.runs.client_executions import map_concurrently
from baton.runs.client_follow import Cursor, Followed
from baton.runs.client_handoffs import read_handoff_bytes
from baton.runs.client_list import RunFilter, count_runs
from baton.runs.client_record import RunRecord
from baton.wire.json_values import find_excess, loads_strict
from baton.wire.names import A2A_EXTENSION

with needs_extra("a2a", __name__):
    from a2a.auth.user import User
    from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
    from a2a.server.context import ServerCallContext
    from a2a.server.jsonrpc_models import JSONParseError as NotJSONError
    from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
    from a2a.server.request_handlers.response_helpers import build_error_response
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.routes.common import ServerCallContextBuilder
    from a2a.server.routes.rest_routes import create_rest_routes
    from a2a.types import a2a_pb2 as pb
    from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, AGENT_CARD_WELL_KNOWN_PATH
    from a2a.utils.error_handlers import build_rest_error_payload
    from a2a.utils.errors import (
        A2AError,
        ContentTypeNotSupportedError,
        ExtendedAgentCardNotConfiguredError,
        ExtensionSupportRequiredError,
        InternalError,
        InvalidParamsError,
        InvalidRequestError,
        JSONParseError,
        PushNotificationNotSupportedError,
        TaskNotCancelableError,
        TaskNotFoundError,
        UnsupportedOperationError,
    )
    from a2a.utils.input_mode_validator import validate_input_modes
    from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

PATH = "/a2a"
"""Where both bindings are, below the service's address."""
_TEXT_MODES = ("text/plain", "text/markdown", JSON)
_FILE_MODES = ("application/octet-stream", "application/pdf", "text/csv", "image/png", "image/jpeg")
_JSON_TYPES = (JSON, A2A_JSON_MEDIA_TYPE)
_UNSUPPORTED_MEDIA_TYPE = 415
_CARD_CACHE = "public, max-age=60"
_CANCEL_SECONDS = 5.0
_PAGE = 50
_STATUSES: Mapping[int, tuple[str, ...]] = {
    pb.TASK_STATE_SUBMITTED: ("RUNNING", "SUSPENDED", "PAUSED"),
    pb.TASK_STATE_WORKING: ("RUNNING", "SUSPENDED", "PAUSED"),
    pb.TASK_STATE_INPUT_REQUIRED: ("WAITING", "PENDING_HANDOFF"),
    pb.TASK_STATE_COMPLETED: ("COMPLETED",),
    pb.TASK_STATE_FAILED: ("FAILED", "TIMED_OUT"),
    pb.TASK_STATE_REJECTED: ("FAILED",),
    pb.TASK_STATE_CANCELED: ("CANCELED", "TERMINATED"),
}


def door(parts: ServiceParts) -> Door:
    """Return the door of A2A: the card, JSON-RPC and HTTP+JSON."""
    handler = RunHandler(parts)
    card, builder = handler.card, _ContextBuilder()
    rest = create_rest_routes(handler, builder, path_prefix=PATH)
    calls = [*create_jsonrpc_routes(handler, PATH, builder), *create_jsonrpc_routes(handler, f"{PATH}/", builder)]
    return Door(
        [
            *map(_dated, create_agent_card_routes(card, cache_control=_CARD_CACHE)),
            *(_only_json(route, _refuse_rpc) for route in calls),  # at both paths: some clients join the address so
            Route(JWKS_PATH, handler.public_keys, methods=["GET"]),
            # The other routes would take every path for a tenant's.
            *(_only_json(route, _refuse_rest) for route in rest if isinstance(route, Route)),
        ],
        handler.pushes.run,
        frozenset({AGENT_CARD_WELL_KNOWN_PATH, JWKS_PATH}),
    )


def _dated(route: Route) -> Route:
    """Return the route of the card, with the time since when it is as it is."""
    since = formatdate(usegmt=True)

    async def endpoint(request: Request) -> Response:
        response: Response = await route.endpoint(request)
        response.headers["last-modified"] = since
        return response

    return Route(route.path, endpoint, methods=["GET"])


def _only_json(route: Route, refuse: Callable[[A2AError], Response]) -> Route:
    """Return a route whose bodies are JSON that is read in no time, which no form of a web page can send."""

    async def endpoint(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await request.body()
        if body and kind not in _JSON_TYPES:
            return refuse(ContentTypeNotSupportedError(f"send {JSON}; found {kind[:80]!r}"))
        if body and (fault := _fault_of(body)) is not None:
            return refuse(fault)
        return await _while_connected(request, route.endpoint(request))

    return Route(route.path, endpoint, methods=sorted(route.methods or ()))


async def _while_connected(request: Request, answering: Coroutine[Any, Any, Response]) -> Response:
    """Return the response to a call, which ends if its caller leaves: some wait for a run for days."""
    call, left = asyncio.ensure_future(answering), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({call, left}, return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            raise ClientDisconnect
        return call.result()
    finally:
        call.cancel()
        left.cancel()
        await asyncio.gather(call, left, return_exceptions=True)


def _fault_of(body: bytes) -> A2AError | None:
    """Return why a body is not passed on: the SDK takes seconds to check what has many values."""
    try:
        excess = find_excess(loads_strict(body))
    except MalformedMessageError as error:
        return JSONParseError(str(error))
    return None if excess is None else InvalidParamsError(str(excess))


def _refuse_rpc(error: A2AError) -> Response:
    unread = NotJSONError(message=str(error)) if isinstance(error, JSONParseError) else error
    return JSONResponse(build_error_response(None, unread))


def _refuse_rest(error: A2AError) -> Response:
    payload = build_rest_error_payload(InvalidRequestError(str(error)) if isinstance(error, JSONParseError) else error)
    if isinstance(error, ContentTypeNotSupportedError):
        payload["error"]["code"] = _UNSUPPORTED_MEDIA_TYPE  # the SDK says 400, the specification this
    return JSONResponse(payload, status_code=payload["error"]["code"])


def agent_card(parts: ServiceParts) -> pb.AgentCard:
    """Return the card: what is offered, with the schema of each pipeline's input, and how to call."""
    modes = [*_TEXT_MODES, *(_FILE_MODES if parts.artifacts else ()), *([ORDER_TYPE] if parts.orders else ())]
    schemas = {name: offer.input_schema for name, offer in parts.offers.items()}
    extension = pb.AgentExtension(
        uri=A2A_EXTENSION,
        description="Input schemas of the skills, costs, cursors, contracts and signed handoffs of Baton.",
        params=to_struct(
            {"skills": schemas}
            | ({"order": ORDER_TYPE} if parts.orders else {})
            | ({"handoffs": tool_schemas(parts.agents)} if parts.agents else {})
        ),
    )
    bearer = pb.SecurityScheme(http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="bearer"))
    return pb.AgentCard(
        name="Baton",
        description=f"Durable pipelines: {', '.join(sorted(parts.offers)) or 'none'}.",
        version=__version__,
        supported_interfaces=[
            pb.AgentInterface(url=f"{parts.url}{PATH}", protocol_binding=binding, protocol_version="1.0")
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=can_push(parts), extensions=[extension]),
        security_schemes={"bearer": bearer},
        security_requirements=[pb.SecurityRequirement(schemes={"bearer": pb.StringList()})],
        default_input_modes=modes,
        default_output_modes=["text/plain", JSON, "application/octet-stream"],
        skills=[
            *(_skill(name, offer) for name, offer in sorted(parts.offers.items())),
            *([handoff_skill()] if parts.agents else ()),
        ],
    )


def _skill(name: str, offer: Offer) -> pb.AgentSkill:
    return pb.AgentSkill(id=name, name=name, description=offer.description or f"The pipeline {name}.", tags=["baton"])


class _Caller(User):
    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self.caller.name


class _ContextBuilder(ServerCallContextBuilder):
    """Passes on the caller whom the guard has authenticated."""

    def build(self, request: Request) -> ServerCallContext:
        """Return the context of a request."""
        return ServerCallContext(
            user=_Caller(caller_of(request)),
            state={"headers": dict(request.headers)},
            requested_extensions=get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)),
        )


def _of(context: ServerCallContext) -> Caller:
    assert isinstance(context.user, _Caller)  # noqa: S101 - the builder above made it
    return context.user.caller


@contextmanager
def _as_a2a() -> Iterator[None]:
    """Turn Baton's errors into those of the protocol."""
    try:
        yield
    except A2AError:
        raise
    except runs.NotFoundError as error:
        raise TaskNotFoundError(str(error)) from None
    except runs.NotAllowedError as error:
        raise UnsupportedOperationError(str(error)) from None
    except PipelineError as error:
        raise InvalidParamsError(str(error)) from None
    except (BatonError, RPCError) as error:
        raise InternalError(f"the task cannot be read now ({type(error).__name__}); try again") from error


@dataclass(frozen=True)
class _Taken:
    """What a message came to: its task, a receipt for it, and the whole task if there is no run."""

    task_id: str
    receipt: pb.Artifact | None = None
    rejected: pb.Task | None = None

    def with_receipt(self, task: pb.Task) -> pb.Task:
        """Return the answer to an order: its task, with the receipt."""
        task.artifacts.extend([self.receipt] if self.receipt else [])
        return task


class RunHandler(RequestHandler):
    """Answers the calls of both bindings from runs."""

    def __init__(self, parts: ServiceParts) -> None:
        self._parts = parts
        self.card = agent_card(parts)
        self.pushes = Pushes(parts, partial(self._events, stop_at=TERMINAL))
        self._handoffs = HandoffTasks(parts.tools) if parts.tools else None

    async def public_keys(self, _: Request) -> Response:
        """Return the keys that verify the signatures of notifications."""
        keyring = self._parts.keyring
        return Response(
            keyring.public().to_json() if keyring else '{"keys": []}', media_type="application/jwk-set+json"
        )

    @validate_request_params
    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        """Return a task as it is now; with the extension, its signed handoffs as well."""
        validate_history_length(params)
        with _as_a2a():
            if self._handoffs is not None and is_handoff(params.id):
                return await self._handoffs.get(_of(context), params.id)
            run = await runs.read(self._parts, _of(context), params.id)
            task = await self._task(run)
            if A2A_EXTENSION in context.requested_extensions:
                messages = await read_handoff_bytes(self._parts.client, run.workflow_id, run.run_id)
                task.artifacts.extend(handoff_artifacts(messages))
            return apply_history_length(task, params)

    @validate_request_params
    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        """Return a page of the caller's tasks, the last changed first."""
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        caller, size = _of(context), params.page_size or _PAGE
        group = params.context_id or None
        statuses = _STATUSES.get(params.status, ()) if params.status else None
        if statuses == ():
            raise InvalidParamsError("no task has this status")
        with _as_a2a():
            try:
                page = await runs.listed(
                    self._parts, caller, group=group, status=statuses, limit=size, after=params.page_token or None
                )
            except BatonError as error:
                raise InvalidParamsError(str(error)) from None
            own_ids = [run.workflow_id for run in page.runs]
            records = await map_concurrently(partial(self._find, caller), own_ids)
            tasks = [await self._task(run, params.include_artifacts) for run in records if run is not None]
            run_filter = RunFilter(id_prefix=runs.listed_prefix(caller, group), status=statuses)
            total = await count_runs(self._parts.client, run_filter)
        after = params.status_timestamp_after.ToNanoseconds() if params.HasField("status_timestamp_after") else 0
        wanted = [
            task
            for task in tasks
            if params.status in (0, task.status.state) and task.status.timestamp.ToNanoseconds() >= after
        ]
        wanted.sort(key=lambda task: task.status.timestamp.ToNanoseconds(), reverse=True)
        return pb.ListTasksResponse(
            tasks=[apply_history_length(task, params) for task in wanted],
            next_page_token=page.next or "",
            page_size=size,
            total_size=total,
        )

    @validate_request_params
    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        """Ask a task to cancel; return it as it is once it has ended, or after some seconds."""
        caller = _of(context)
        with _as_a2a():
            if self._handoffs is not None and is_handoff(params.id):
                raise TaskNotCancelableError("a handoff is another's task: give it back or reject it, by a message")
            run = await runs.read(self._parts, caller, params.id)
            if state_of(run) in TERMINAL:
                raise TaskNotCancelableError(f"the task has ended: it is {run.status.value.lower()}")
            await runs.cancel(self._parts, caller, params.id)
            try:
                async with asyncio.timeout(_CANCEL_SECONDS):
                    run = await self._until(caller, params.id, TERMINAL)
            except TimeoutError:
                run = await runs.read(self._parts, caller, params.id)
            return await self._task(run)

    @validate_request_params
    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task | pb.Message:
        """Start a task or answer one; return it once it has ended or asks something, or at once if asked to."""
        validate_history_length(params.configuration)
        with _as_a2a():
            caller = _of(context)
            if (answer := await self._answer_agent(params, caller)) is not None:
                return answer
            taken = await self._take(params, context)
            if taken.rejected is not None:
                return taken.rejected
            if params.configuration.return_immediately:
                run = await runs.read(self._parts, caller, taken.task_id)
            else:
                run = await self._until(caller, taken.task_id, TERMINAL | INTERRUPTED)
            return apply_history_length(taken.with_receipt(await self._task(run)), params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """Start a task or answer one, and yield what happens until it has ended or asks something."""
        validate_history_length(params.configuration)
        with _as_a2a():
            is_new = not params.message.task_id
            if (answer := await self._answer_agent(params, _of(context))) is not None:
                yield answer
                return
            taken = await self._take(params, context)
            if taken.rejected is not None:
                yield taken.rejected
                return
            events = self._events(_of(context), taken.task_id, from_start=is_new, stop_at=TERMINAL | INTERRUPTED)
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, pb.Task):
                        yield apply_history_length(taken.with_receipt(event), params.configuration)
                    else:
                        yield event

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """Yield a task, and what happens from now on, or after the cursor in `Last-Event-ID`, until it has ended."""
        with _as_a2a():
            caller = _of(context)
            run = await runs.read(self._parts, caller, params.id)
            if state_of(run) in TERMINAL:
                raise UnsupportedOperationError(f"the task has ended: it is {run.status.value.lower()}")
            text = context.state["headers"].get("last-event-id")
            try:
                cursor = Cursor.parse(text) if text else None
            except ValueError:
                raise InvalidParamsError("Last-Event-ID is not a cursor of an event's metadata") from None
            events = self._events(caller, params.id, cursor=cursor, stop_at=TERMINAL)
            async with aclosing(events):
                async for event in events:
                    yield event

    async def _answer_agent(self, params: pb.SendMessageRequest, caller: Caller) -> pb.Task | pb.Message | None:
        """Return the answer to an agent outside; None if a message is not about a handoff."""
        handoffs, message = self._handoffs, params.message
        content = None if handoffs is None else Content.of(message)
        if handoffs is None or content is None or not (is_handoff(message.task_id) or content.skill == SKILL):
            return None
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        if message.task_id:
            return await handoffs.reply(caller, message.task_id, content)
        return await handoffs.next(caller, content)

    async def _take(self, params: pb.SendMessageRequest, context: ServerCallContext) -> _Taken:
        """Start the task of a message, answer one, or steer one."""
        message, caller = params.message, _of(context)
        wants_pushes = params.configuration.HasField("task_push_notification_config")
        if wants_pushes:
            self.pushes.check(params.configuration.task_push_notification_config)
        validate_input_modes(message, self.card)
        content = Content.of(message)
        data = read_order(message)
        sent = message.message_id if data is None else sha256(data).hexdigest()  # the same when it is sent again
        group = message.context_id or str(uuid5(NAMESPACE_URL, sent))
        claims = {"context": group, "message": message.message_id}
        taken = _Taken(message.task_id)
        if data is not None:
            if A2A_EXTENSION not in {*message.extensions, *context.requested_extensions}:
                raise ExtensionSupportRequiredError(f"a message with an order names the extension {A2A_EXTENSION}")
            task_id, accepted = await runs.order(self._parts, caller, data, group=group, claims=claims)
            if accepted.workflow_id is None:
                return _Taken(task_id, rejected=rejected_task(accepted, task_id, group))
            taken = _Taken(task_id, receipt_artifact(accepted))
        elif not message.task_id:
            offer = choose_offer(self._parts.offers, content.skill)
            given = await read_start(content, offer, self._parts.artifacts)
            key = message.message_id
            taken = _Taken(await runs.start(self._parts, caller, offer, given, key=key, group=group, claims=claims))
        else:
            task_id = message.task_id
            run = await runs.read(self._parts, caller, task_id)
            if message.context_id and message.context_id != context_of(run):
                raise InvalidParamsError("the context is not that of the task")
            if state_of(run) in TERMINAL:
                raise UnsupportedOperationError(f"the task has ended: it is {run.status.value.lower()}")
            await self._reply(caller, run, content, message.message_id)
        if wants_pushes:
            self.pushes.add(caller, taken.task_id, params.configuration.task_push_notification_config)
        return taken

    async def _reply(self, caller: Caller, run: RunRecord, content: Content, key: str) -> None:
        """Answer what a run asks; of one that asks nothing, send the agent at work a text as a note."""
        if content.files:
            raise ContentTypeNotSupportedError("a task that there is takes no files: send text or JSON")
        task_id = run.workflow_id
        if run.questions or content.members or not content.text:
            reply = read_reply(content, run.questions)
            await runs.answer(
                self._parts, caller, task_id, reply.choice, question=reply.question, data=reply.data, why=reply.why
            )
            return
        try:
            await runs.steer(self._parts, caller, task_id, content.text, key=key)
        except PipelineError as error:
            raise UnsupportedOperationError(f"the task asks nothing: {error}") from None

    async def _find(self, caller: Caller, task_id: str) -> RunRecord | None:
        """Return a run of the caller; None if it is not theirs, is gone or cannot be read."""
        try:
            return await runs.read(self._parts, caller, task_id)
        except runs.NotFoundError:
            return None

    async def _task(self, run: RunRecord, with_artifacts: bool = True) -> pb.Task:
        return task_of(run, await Artifacts(self._parts.artifacts).new(run) if with_artifacts else ())

    async def _until(self, caller: Caller, task_id: str, states: frozenset[Any]) -> RunRecord:
        """Return a run once its task has one of some states."""
        async with aclosing(runs.watch(self._parts, caller, task_id)) as updates:
            async for update in updates:
                if update.run is not None and state_of(update.run) in states:
                    return update.run
        return await runs.read(self._parts, caller, task_id)

    async def _events(
        self,
        caller: Caller,
        task_id: str,
        *,
        stop_at: frozenset[Any],
        from_start: bool = False,
        cursor: Cursor | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the task first, then its news, each state and artifact as it comes."""
        artifacts, replays, is_first = Artifacts(self._parts.artifacts), from_start or cursor is not None, True
        async with aclosing(runs.watch(self._parts, caller, task_id, cursor)) as updates:
            async for update in updates:
                run = update.run
                if run is None:
                    continue
                if is_first:
                    task = task_of(run, () if from_start else await artifacts.new(run))
                    if from_start:
                        task.status.CopyFrom(pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED))
                    yield task
                state = state_of(run)
                if replays or not is_first:
                    async for event in self._news(update, artifacts):
                        yield event
                    if update.news and state in TERMINAL | INTERRUPTED:
                        yield state_event(run, update.cursors[-1])
                if state in stop_at:
                    return
                is_first = False

    async def _news(self, update: Followed, artifacts: Artifacts) -> AsyncIterator[Any]:
        run = update.run
        assert run is not None  # noqa: S101 - the caller looked
        for news, cursor in zip(update.news, update.cursors, strict=True):
            if (event := update_of(run, news, cursor)) is not None:
                yield event
        for artifact in await artifacts.new(run):
            yield artifact_event(run, artifact)

    @validate_request_params
    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Send what happens to a task to a URL."""
        return self.pushes.add(await self._pushing(params.task_id, context), params.task_id, params)

    @validate_request_params
    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Return where it is sent."""
        for config in self.pushes.of(await self._pushing(params.task_id, context), params.task_id):
            if config.id == params.id:
                return config
        raise TaskNotFoundError(f"the task has no push notification {params.id[:80]!r}")

    @validate_request_params
    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """Return all places that it is sent to."""
        configs = self.pushes.of(await self._pushing(params.task_id, context), params.task_id)
        return pb.ListTaskPushNotificationConfigsResponse(configs=configs)

    @validate_request_params
    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Send it there no more."""
        self.pushes.remove(await self._pushing(params.task_id, context), params.task_id, params.id)

    async def _pushing(self, task_id: str, context: ServerCallContext) -> Caller:
        """Return the caller of a task of theirs, if there are push notifications."""
        if not can_push(self._parts):
            raise PushNotificationNotSupportedError
        with _as_a2a():
            await runs.read(self._parts, _of(context), task_id)
        return _of(context)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        """Refuse: the card says all."""
        raise ExtendedAgentCardNotConfiguredError
