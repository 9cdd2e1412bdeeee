"""The HTTP service through which outside agents fetch, answer and return handoffs, each with its own token."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from baton.lazy import needs_extra
from baton.wire.text import list_faults, quantity

with needs_extra("codec", __name__):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

from temporalio.exceptions import TemporalError

from baton.codec.server import has_bearer_token, read_body, serving
from baton.errors import BatonError, PipelineError
from baton.exchange.external import MAX_LEASE
from baton.handoff.store_gate import MAX_BYTES_ON_LOOP
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.wire.json_values import loads_strict
from baton.wire.records import AgentVersion, Name, OpenRecord, Statement

MAX_BODY_BYTES = 1024 * 1024
"""The maximum size of a request's body; a patch has to fit into a workflow's history."""
MIN_TOKEN_LENGTH = 16
"""The minimum length of a token; shorter ones can be guessed."""
UNANSWERED_HEADER = "Baton-Unanswered-Pipelines"
"""The header of a list with the number of pipelines that did not answer."""
_MAX_FAULTS = 10

_HEADER_TEXT = re.compile("[!-~]*")
_log = logging.getLogger(__name__)


class ActionBody(OpenRecord):
    """The body of a request; each route reads the members that it needs, and unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")

    holder: Name | None = None
    lease_seconds: int = Field(default=600, ge=1, le=int(MAX_LEASE.total_seconds()))
    version: AgentVersion = "1.0.0"
    reason: Statement = ""
    unmet: list[Statement] = Field(default_factory=list)
    patch: dict[str, JsonValue] = Field(default_factory=dict)
    report: JsonValue = None
    notes: dict[str, list[str]] = Field(default_factory=dict)


_MEMBERS = tuple(field.alias or name for name, field in ActionBody.model_fields.items())
_VERBS = ("claim", "give-back", "accept", "reject", "needs-input", "patch", "report")
_REQUIRED_MEMBERS = {"reject": "reason", "needs-input": "unmet", "patch": "patch", "report": "report"}
"""The member that each call needs; without it the handoff would be done and the agent's work lost."""


def outside_app(agents: OutsideAgents, tokens: Mapping[str, str]) -> Starlette:
    """Return the ASGI application."""
    unsendable = sorted(agent for agent, token in tokens.items() if not _HEADER_TEXT.fullmatch(token))
    if unsendable:
        raise ValueError(f"the tokens of {unsendable} have blanks or other characters that a header cannot carry")
    short = sorted(agent for agent, token in tokens.items() if len(token) < MIN_TOKEN_LENGTH)
    if short:
        raise ValueError(f"the tokens of {short} are shorter than {MIN_TOKEN_LENGTH} characters; make them at random")
    if len(set(tokens.values())) < len(tokens):
        raise ValueError("two agents have the same token; give each its own")

    def authenticated(
        handler: Callable[[Request, str], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            agent = _authenticate(request, tokens)
            if agent is None:
                return _error(401, "expected 'Authorization: Bearer <the agent's token>'")
            if "id" in request.path_params and not request.query_params.get("workflow"):
                return _error(400, "name the handoff's pipeline: ?workflow=, as in the list")
            coding = request.headers.get("content-encoding", "identity").lower()
            if coding != "identity":
                return _error(415, f"send the body without Content-Encoding; found {coding[:20]!r}")
            try:
                return await handler(request, agent)
            except PipelineError as error:
                return _error(409, str(error))
            except (BatonError, TemporalError) as error:
                _log.exception("a handoff outside failed")
                return _error(503, f"{type(error).__name__}; try again, the service's log says more")
            except asyncio.CancelledError:  # the service stops; the action may have been made, and can be repeated
                return _error(503, "the service was stopped; try again")

        return endpoint

    async def list_open(request: Request, agent: str) -> Response:
        open_handoffs = await agents.query_open(agent)
        unanswered = open_handoffs.unanswered
        if unanswered and not open_handoffs.answered:  # an empty list would mean that there is nothing to do
            return _error(503, f"no answer from {quantity(unanswered, 'waiting pipeline')}; try again")
        handoffs = [_handoff_json(ref) for ref in open_handoffs.handoffs]
        return JSONResponse(handoffs, headers={UNANSWERED_HEADER: str(unanswered)})

    async def read(request: Request, agent: str) -> Response:
        ref = await find(request, agent)
        return Response(await agents.read(ref), media_type="application/json")

    async def action(request: Request, agent: str) -> Response:
        verb = request.path_params["verb"]
        required = _REQUIRED_MEMBERS.get(verb)
        if verb not in _VERBS:
            return _error(404, f"unknown call; expected {', '.join(_VERBS)}")
        raw = await read_body(request, MAX_BODY_BYTES)
        if raw is None:
            return _error(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        try:
            body = _parse_body(raw) if len(raw) <= MAX_BYTES_ON_LOOP else await asyncio.to_thread(_parse_body, raw)
        except (ValidationError, BatonError, TypeError) as error:
            return _error(400, _describe_fault(error))
        if required is not None and required not in body.model_fields_set:
            return _error(400, f"{required}: missing in the body")
        if body.notes and verb != "patch":
            return _error(400, "notes: they become a part of a patch, so they belong to one; a report says all itself")
        return JSONResponse(await _make_action(agents, verb, await find(request, agent), agent, body))

    async def find(request: Request, agent: str) -> HandoffRef:
        return await agents.find(request.query_params["workflow"], agent, request.path_params["id"])

    app = Starlette(
        routes=[
            Route("/handoffs", authenticated(list_open), methods=["GET"]),
            Route("/handoffs/{id}", authenticated(read), methods=["GET"]),
            Route("/handoffs/{id}/{verb}", authenticated(action), methods=["POST"]),
        ],
        exception_handlers={HTTPException: _on_http_error, ClientDisconnect: _on_disconnect},
    )
    app.router.redirect_slashes = False  # behind a proxy, a redirect would lose its TLS or path
    return app


@contextlib.asynccontextmanager
async def serve_outside(
    agents: OutsideAgents, tokens: Mapping[str, str], *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve `outside_app` inside the running event loop while the context is open.

    Args:
        agents: As for `outside_app`.
        tokens: As for `outside_app`.
        host: The address to listen on; by default only this machine can reach it.
        port: The port, or 0 for a free one.

    Yields:
        The service's URL.

    Raises:
        ServerError: The port is taken, or the address is not this machine's.
        ValueError: As for `outside_app`.
    """
    async with serving(outside_app(agents, tokens), "the service for agents outside", host=host, port=port) as url:
        yield url


def _authenticate(request: Request, tokens: Mapping[str, str]) -> str | None:
    """Return the agent whose token a request carries; every token is compared, so timing reveals nothing."""
    known_tokens = dict(tokens)  # another thread may change them
    matches = [agent for agent, token in known_tokens.items() if has_bearer_token(request, token)]
    return matches[0] if len(matches) == 1 and len(known_tokens[matches[0]]) >= MIN_TOKEN_LENGTH else None


async def _make_action(
    agents: OutsideAgents, verb: str, ref: HandoffRef, agent: str, body: ActionBody
) -> dict[str, Any]:
    """Do what a verb names, and return the response."""
    holder = body.holder
    match verb:
        case "claim":
            lease = timedelta(seconds=body.lease_seconds)
            return _handoff_json(await agents.claim(ref, agent, holder=holder, lease=lease))
        case "give-back":
            return _handoff_json(await agents.give_back(ref, agent, holder=holder))
        case "accept":
            receipt = await agents.accept(ref, agent, holder=holder, version=body.version)
            return receipt.model_dump(mode="json")
        case "reject":
            return _handoff_json(await agents.reject(ref, agent, body.reason, holder=holder))
        case "needs-input":
            return _handoff_json(await agents.needs_input(ref, agent, body.unmet, holder=holder))
        case "patch":
            work: Any = {"report": body.report, "notes": body.notes}
            return _handoff_json(await agents.return_patch(ref, agent, body.patch, holder=holder, **work))
        case _:
            return _handoff_json(await agents.return_report(ref, agent, body.report, holder=holder))


def _handoff_json(ref: HandoffRef) -> dict[str, Any]:
    return {"workflow": ref.workflow_id, **ref.handoff.model_dump(mode="json", exclude={"end"})}


def _parse_body(body: bytes) -> ActionBody:
    return ActionBody.from_json_object(loads_strict(body or b"{}"))


def _describe_fault(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    rows = list_faults(error)
    if any(row["type"] == "model_type" for row in rows):
        return 'a body is a JSON object, such as {"holder": "ann"}'
    texts = [f"{'.'.join(map(str, row['loc']))[:60] or 'body'}: {row['msg']}" for row in rows[:_MAX_FAULTS]]
    if any(row["type"] == "extra_forbidden" for row in rows):
        texts.append(f"a body has {', '.join(_MEMBERS)}")
    return "; ".join(texts)


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for this type
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """Answer a request whose sender disconnected; nobody reads this."""
    return _error(400, "the body ended too soon")
