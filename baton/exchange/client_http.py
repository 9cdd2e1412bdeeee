"""The HTTP service by which agents outside fetch, answer and return handoffs, each with a token of its own."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from baton.lazy import needs_extra
from baton.wire.text import list_faults

with needs_extra("codec", __name__):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

from temporalio.exceptions import TemporalError

from baton.codec.server import has_bearer_token, read_body, serving
from baton.errors import BatonError, PipelineError
from baton.exchange.client_external import Found, OutsideAgents
from baton.exchange.external import LONGEST_LEASE
from baton.handoff.store_gate import MAX_BYTES_ON_LOOP
from baton.wire.json_values import loads_strict
from baton.wire.records import AgentVersion, Name, OpenRecord, Statement

MAX_BODY_BYTES = 1024 * 1024
"""A request's body may not be larger: a patch has to fit into a workflow's history."""
SHORTEST_TOKEN = 16
"""Shorter tokens are refused: they can be guessed."""
UNASKED = "Baton-Unasked"
"""The header of a list that says how many pipelines could not be asked: what waits in them is not in it."""
_MOST_FAULTS = 10

_SENDABLE = re.compile("[!-~]*")
_log = logging.getLogger(__name__)


class Ask(OpenRecord):
    """What the body of a request says; each route reads what it needs, and a member that none knows is refused.

    Attributes:
        holder: Which one of its kind the agent is.
        lease_seconds: Of a claim: for how long.
        version: The agent's version, by semver.org.
        reason: Why not.
        unmet: What is missing.
        patch: The patch.
        report: The report.
    """

    model_config = ConfigDict(extra="forbid")

    holder: Name | None = None
    lease_seconds: int = Field(default=600, ge=1, le=int(LONGEST_LEASE.total_seconds()))
    version: AgentVersion = "1.0.0"
    reason: Statement = ""
    unmet: list[Statement] = Field(default_factory=list)
    patch: dict[str, JsonValue] = Field(default_factory=dict)
    report: JsonValue = None


_MEMBERS = tuple(field.alias or name for name, field in Ask.model_fields.items())
_VERBS = ("claim", "give-back", "accept", "reject", "needs-input", "patch", "report")
_NEEDED = {"reject": "reason", "needs-input": "unmet", "patch": "patch", "report": "report"}
"""What a body must say; without it the handoff would be done, and the agent's work lost."""


def outside_app(agents: OutsideAgents, tokens: Mapping[str, str]) -> Starlette:
    """Return the ASGI application."""
    unsendable = sorted(agent for agent, token in tokens.items() if not _SENDABLE.fullmatch(token))
    if unsendable:
        raise ValueError(f"the tokens of {unsendable} hold blanks or other characters that no header carries")
    short = sorted(agent for agent, token in tokens.items() if len(token) < SHORTEST_TOKEN)
    if short:
        raise ValueError(f"the tokens of {short} are shorter than {SHORTEST_TOKEN} characters; make them at random")
    if len(set(tokens.values())) < len(tokens):
        raise ValueError("two agents have the same token; give each one of its own")

    def authenticated(
        answer: Callable[[Request, str], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            agent = _agent(request, tokens)
            if agent is None:
                return _error(401, "expected 'Authorization: Bearer <the agent's token>'")
            if "id" in request.path_params and not request.query_params.get("workflow"):
                return _error(400, "say which pipeline the handoff waits in: ?workflow=, as the list tells")
            coding = request.headers.get("content-encoding", "identity").lower()
            if coding != "identity":
                return _error(415, f"a body comes as it is, without Content-Encoding; found {coding[:20]!r}")
            try:
                return await answer(request, agent)
            except PipelineError as error:
                return _error(409, str(error))
            except (BatonError, TemporalError) as error:
                _log.exception("a handoff outside failed")
                return _error(503, f"{type(error).__name__}; try again, the service's log says more")
            except asyncio.CancelledError:  # the service ends; the move may have come through, and can be repeated
                return _error(503, "the service was stopped meanwhile; try again")

        return endpoint

    async def list_open(request: Request, agent: str) -> Response:
        listed = await agents.look(agent)
        if listed.unasked and not listed.asked:  # an empty list would say that there is nothing to do
            none = f"not one of the pipelines that wait ({listed.unasked}) can be asked just now"
            return _error(503, f"{none}, so it is not known what is for you; try again")
        return JSONResponse([_shown(one) for one in listed.found], headers={UNASKED: str(listed.unasked)})

    async def read(request: Request, agent: str) -> Response:
        found = await _found(request, agent)
        return Response(await agents.read(found), media_type="application/json")

    async def move(request: Request, agent: str) -> Response:
        verb = request.path_params["verb"]
        needed = _NEEDED.get(verb)
        if verb not in _VERBS:
            return _error(404, f"there is {', '.join(_VERBS)}")
        body = await read_body(request, MAX_BODY_BYTES)
        if body is None:
            return _error(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        try:
            ask = _ask(body) if len(body) <= MAX_BYTES_ON_LOOP else await asyncio.to_thread(_ask, body)
        except (ValidationError, BatonError, TypeError) as error:
            return _error(400, _fault(error))
        if needed is not None and needed not in ask.model_fields_set:
            return _error(400, f"{needed}: the body must say it")
        return JSONResponse(await _moved(agents, verb, await _found(request, agent), agent, ask))

    async def _found(request: Request, agent: str) -> Found:
        return await agents.find(request.query_params["workflow"], agent, request.path_params["id"])

    app = Starlette(
        routes=[
            Route("/handoffs", authenticated(list_open), methods=["GET"]),
            Route("/handoffs/{id}", authenticated(read), methods=["GET"]),
            Route("/handoffs/{id}/{verb}", authenticated(move), methods=["POST"]),
        ],
        exception_handlers={HTTPException: _no_such_call, ClientDisconnect: _gone},
    )
    app.router.redirect_slashes = False  # behind a proxy it would lead elsewhere: out of its TLS, or its path
    return app


@contextlib.asynccontextmanager
async def serve_outside(
    agents: OutsideAgents, tokens: Mapping[str, str], *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve `outside_app` inside the running event loop while the context is open.

    Args:
        agents: As for `outside_app`.
        tokens: As for `outside_app`.
        host: The address to listen on; only this machine reaches the default.
        port: The port, or 0 for a free one.

    Yields:
        The service's URL.

    Raises:
        ServerError: The port is taken, or the address is not this machine's.
        ValueError: As for `outside_app`.
    """
    async with serving(outside_app(agents, tokens), "the service for agents outside", host=host, port=port) as url:
        yield url


def _agent(request: Request, tokens: Mapping[str, str]) -> str | None:
    """Return whose token a request carries; every token is compared, so the time tells nothing."""
    known = dict(tokens)  # another thread may be changing them
    found = [agent for agent, token in known.items() if has_bearer_token(request, token)]
    return found[0] if len(found) == 1 and len(known[found[0]]) >= SHORTEST_TOKEN else None


async def _moved(agents: OutsideAgents, verb: str, found: Found, agent: str, ask: Ask) -> dict[str, Any]:
    """Make the move that a verb names, and return what the agent is answered."""
    holder = ask.holder
    match verb:
        case "claim":
            lease = timedelta(seconds=ask.lease_seconds)
            return _shown(await agents.claim(found, agent, holder=holder, lease=lease))
        case "give-back":
            return _shown(await agents.give_back(found, agent, holder=holder))
        case "accept":
            receipt = await agents.accept(found, agent, holder=holder, version=ask.version)
            return receipt.model_dump(mode="json")
        case "reject":
            return _shown(await agents.reject(found, agent, ask.reason, holder=holder))
        case "needs-input":
            return _shown(await agents.needs_input(found, agent, ask.unmet, holder=holder))
        case "patch":
            return _shown(await agents.return_patch(found, agent, ask.patch, holder=holder, report=ask.report))
        case _:
            return _shown(await agents.return_report(found, agent, ask.report, holder=holder))


def _shown(found: Found) -> dict[str, Any]:
    return {"workflow": found.workflow_id, **found.handoff.model_dump(mode="json", exclude={"end"})}


def _ask(body: bytes) -> Ask:
    """Return what a body says; a large one takes longer than other requests should wait."""
    return Ask.from_json_object(loads_strict(body or b"{}"))


def _fault(error: Exception) -> str:
    """Return what is wrong with a body, without quoting it."""
    if not isinstance(error, ValidationError):
        return str(error)
    rows = list_faults(error)
    if any(row["type"] == "model_type" for row in rows):
        return 'a body is a JSON object, such as {"holder": "ann"}'
    told = [f"{'.'.join(map(str, row['loc']))[:60] or 'body'}: {row['msg']}" for row in rows[:_MOST_FAULTS]]
    if any(row["type"] == "extra_forbidden" for row in rows):
        told.append(f"a body has {', '.join(_MEMBERS)}")
    return "; ".join(told)


def _error(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status_code=status)


async def _no_such_call(_: Request, error: Exception) -> Response:
    """Answer a path or a method that there is not."""
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)


async def _gone(_: Request, __: Exception) -> Response:
    """Let go of a request whose sender hung up while sending it; this answer is not read."""
    return _error(400, "the body ended too soon")
