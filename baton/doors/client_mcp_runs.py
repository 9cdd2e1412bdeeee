"""Pipelines as MCP tools: news are progress, and what a run asks is asked of the person at the client.

The run goes on without the client; `follow_run` finds it again.
"""

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar
from uuid import uuid4

from pydantic import BaseModel, Field, JsonValue

from baton.core.questions import MISFIT, Question
from baton.doors.client_access import Caller
from baton.doors.client_mcp_forms import CHOICE, elicitation, read_form
from baton.doors.client_runs import (
    Offer,
    ServiceParts,
    answer_key,
    cancel,
    may_answer,
    open_questions,
    questions_by_key,
    read,
    read_input,
    start,
    watch,
)
from baton.errors import BatonError, PipelineError
from baton.lazy import needs_extra
from baton.outside.client_tools import as_tool
from baton.runs.client_description import describe_news
from baton.runs.client_follow import Followed
from baton.runs.client_news import NewsKind
from baton.runs.client_record import RunRecord, RunStatus
from baton.runs.client_standing import standing
from baton.wire.records import CompactRecord
from baton.wire.text import cut_line

with needs_extra("mcp", __name__):
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool
    from mcp.types import CallToolResult, ClientCapabilities, ElicitResult, InputRequiredResult, TextContent
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

TASKS = "io.modelcontextprotocol/tasks"
"""The extension with which a client gets a task instead of waiting for the end of a run."""
_MAX_PROGRESS = 300  # characters
_MAX_WAIT = 300  # seconds
_SILENT = (NewsKind.TEXT, NewsKind.STREAM_RESTARTED)

P = ParamSpec("P")
T = TypeVar("T")
RunId = Annotated[str, Field(description="The run, as a pipeline's tool named it.")]


def as_mcp_tool(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Turn Baton's errors into tool errors for the model; other errors stay failures of the server."""
    told = as_tool(function)

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await told(*args, **kwargs)
        except BatonError as error:
            raise ToolError(str(error)) from error

    return call


class RunState(BaseModel):
    """A run as a tool returns it.

    Attributes:
        run: Its id, for `follow_run` and `cancel_run`.
        status: Its status: COMPLETED, FAILED, CANCELED, or RUNNING, WAITING, SUSPENDED and so on while it is open.
        says: The status in a sentence: what it waits for, or why it failed.
        output: What it returned.
        baton: The baton at its end.
    """

    run: str
    status: str
    says: str
    output: JsonValue = None
    baton: dict[str, JsonValue] | None = None


Answered = Annotated[CallToolResult, RunState] | InputRequiredResult


class _Talk(CompactRecord):
    """What is known between two rounds of a call; the client carries it, sealed by the SDK.

    Attributes:
        run: The run.
        cursor: The last news that the client has.
        answered: The questions that were answered here, by `questions_by_key`.
        declined: Those that the person did not answer, or may not.
        faults: Why the last answer to a question did not fit.
        told: How many news the client was told.
    """

    run: str
    cursor: str | None = None
    answered: list[str] = Field(default_factory=list)
    declined: list[str] = Field(default_factory=list)
    faults: dict[str, str] = Field(default_factory=dict)
    told: int = 0


def declares_tasks(capabilities: ClientCapabilities | None, version: str | None) -> bool:
    """Return whether a client takes a task as the result of a call."""
    extensions = capabilities.extensions if capabilities else None
    return version in MODERN_PROTOCOL_VERSIONS and TASKS in (extensions or {})


def result_of(run: RunRecord, *, note: str = "") -> CallToolResult:
    """Return a run as the result of a tool; an error if it has failed or was stopped. A note is for an open one."""
    stands = standing(run)
    output = run.result.output if run.result else None
    ended = run.status is not RunStatus.RUNNING
    baton = run.baton.to_json_object() if ended else None
    says = stands.sentence if ended else f"{note}{stands.sentence}"
    state = RunState(run=run.workflow_id, status=stands.status, says=says, output=output, baton=baton)
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False) if output is not None else ""
    is_error = ended and run.status is not RunStatus.COMPLETED
    return CallToolResult(
        content=[TextContent(type="text", text=text or f"Run {run.workflow_id}: {says}")],
        structured_content=state.model_dump(mode="json"),
        is_error=is_error,
    )


@dataclass(frozen=True)
class RunTools:
    """The tools of a service's pipelines.

    Attributes:
        parts: The service's.
        caller: Returns who calls.
    """

    parts: ServiceParts
    caller: Callable[[], Caller]

    def tools(self) -> list[Tool]:
        """Return a tool for each pipeline, and those for its runs.

        Raises:
            BatonError: The tools of two pipelines would have the same name.
        """
        named = dict[str, str]()
        for name in self.parts.offers:
            if (other := named.setdefault(tool_name(name), name)) != name:
                raise BatonError(f"the pipelines {other!r} and {name!r} would both be the tool {tool_name(name)}")
        pipelines = [self._pipeline(name, offer) for name, offer in self.parts.offers.items()]
        return [*pipelines, *(Tool.from_function(as_mcp_tool(tool)) for tool in (self.follow_run, self.cancel_run))]

    @property
    def names(self) -> frozenset[str]:
        """The names of the pipelines' tools."""
        return frozenset(map(tool_name, self.parts.offers))

    async def follow_run(
        self,
        run: RunId,
        ctx: Context[Any, Any],
        wait_seconds: Annotated[
            int, Field(ge=0, le=_MAX_WAIT, description="How long to wait for its end, or for what it asks a person.")
        ] = 60,
    ) -> Answered:
        """Wait for a run that you started: it continues without you, and asks people elsewhere as well."""
        return await self._follow(await self._resume(ctx) or _Talk(run=run), ctx, wait_seconds)

    async def cancel_run(self, run: RunId) -> Annotated[CallToolResult, RunState]:
        """Ask a run that you started to stop."""
        await cancel(self.parts, self.caller(), run)
        return result_of(await read(self.parts, self.caller(), run), note="It was asked to stop, and soon does. ")

    async def answer(self, run: RunRecord, key: str, given: ElicitResult) -> None:
        """Answer a question with what a person filled in, if it is still open.

        Raises:
            PipelineError: The answer is refused.
        """
        question = questions_by_key(run).get(key)
        if question is None:
            return
        choice, why, data = read_form(question, given.content or {})
        await answer_key(self.parts, self.caller(), run.workflow_id, key, choice, data=data, why=why)

    def _pipeline(self, name: str, offer: Offer) -> Tool:
        async def run(
            goal: str,
            ctx: Context[Any, Any],
            params: dict[str, JsonValue] | None = None,
            inputs: dict[str, JsonValue] | None = None,
            baton: dict[str, JsonValue] | None = None,
            key: str | None = None,
        ) -> Answered:
            talk = await self._resume(ctx)
            if talk is None:
                members = {"goal": goal, "params": params or {}, "inputs": inputs or {}, "baton": baton or {}}
                given = read_input(offer, members)
                id = await start(self.parts, self.caller(), offer, given, key=key or uuid4().hex)
                talk = _Talk(run=id)
                if declares_tasks(ctx.client_capabilities, ctx.protocol_version):
                    return result_of(await read(self.parts, self.caller(), id))
            return await self._follow(talk, ctx)

        about = offer.description or f"Run the pipeline {offer.pipeline!r}."
        tool = Tool.from_function(as_mcp_tool(run), name=tool_name(name), title=name, description=about)
        schema = offer.input_schema
        own = {"type": "string", "description": "Your own id of the request: the same one again starts nothing."}
        parameters = {**schema, "properties": {**schema["properties"], "key": own}}
        return tool.model_copy(update={"parameters": parameters})

    async def _resume(self, ctx: Context[Any, Any]) -> _Talk | None:
        """Return a call's state, once what the person answered since is passed on; None in its first round."""
        if ctx.request_state is None:
            return None
        talk = _Talk.model_validate_json(ctx.request_state)
        given = {key: item for key, item in (ctx.input_responses or {}).items() if isinstance(item, ElicitResult)}
        return await self._take(talk, given)

    async def _take(self, talk: _Talk, given: dict[str, ElicitResult]) -> _Talk:
        """Return the state after a person's answers."""
        run = await read(self.parts, self.caller(), talk.run)
        answered, declined, faults = [*talk.answered], [*talk.declined], dict[str, str]()
        for key, item in given.items():
            if item.action != "accept":
                declined.append(key)
                continue
            try:
                await self.answer(run, key, item)
                answered.append(key)
            except PipelineError as error:
                if MISFIT in str(error):
                    chosen = (item.content or {}).get(CHOICE)
                    faults[key] = f"To {chosen}: {error}" if chosen else str(error)
                else:
                    declined.append(key)
        return talk.model_copy(update={"answered": answered, "declined": declined, "faults": faults})

    async def _follow(
        self, talk: _Talk, ctx: Context[Any, Any], wait: float | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Return a run's end, what it asks, or after a while how it stands."""
        run = None
        updates = watch(self.parts, self.caller(), talk.run, talk.cursor)
        async with contextlib.aclosing(updates):
            async for update in _within(updates, wait):
                run = update.run or run
                for news, cursor in zip(update.news, update.cursors, strict=True):
                    talk = talk.model_copy(update={"cursor": str(cursor), "told": talk.told + 1})
                    if run is not None and news.kind not in _SILENT:
                        text = cut_line(describe_news(news, run), _MAX_PROGRESS)
                        await ctx.report_progress(talk.told, message=text)
                while run is not None and (questions := await self._open(run, talk)):
                    asked = {key: item for key, item in questions.items() if key not in talk.declined}
                    asked = {key: item for key, item in asked.items() if may_answer(item, self.caller())}
                    if not asked or not _elicits(ctx):
                        return result_of(run)
                    requests = {key: elicitation(item, talk.faults.get(key, "")) for key, item in asked.items()}
                    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        return InputRequiredResult(input_requests=requests, request_state=talk.model_dump_json())
                    given = {key: await _elicit(ctx, request) for key, request in requests.items()}
                    talk = await self._take(talk, given)
        return result_of(run or await read(self.parts, self.caller(), talk.run))

    async def _open(self, run: RunRecord, talk: _Talk) -> dict[str, Question]:
        """Return what a run asks, but for what was answered here; a vote leaves a question to others."""
        asked, name = await open_questions(self.parts, self.caller(), run), self.caller().name
        return {key: item for key, item in asked.items() if key not in talk.answered or item.has_vote_of(name)}


def tool_name(name: str) -> str:
    """Return the name of a pipeline's tool."""
    return "run_" + re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]


def _elicits(ctx: Context[Any, Any]) -> bool:
    """Return whether a client can ask its person to fill in a form."""
    elicits = ctx.client_capabilities.elicitation if ctx.client_capabilities else None
    return elicits is not None and (elicits.form is not None or elicits.url is None)


async def _elicit(ctx: Context[Any, Any], request: Any) -> ElicitResult:
    """Ask a client of an earlier revision, which answers while the call goes on."""
    params = request.params
    answered: ElicitResult = await ctx.session.elicit_form(params.message, params.requested_schema, ctx.request_id)
    return answered


async def _within(updates: AsyncIterator[Followed], seconds: float | None) -> AsyncIterator[Followed]:
    """Yield updates for some seconds, or for as long as there are any."""
    end = None if seconds is None else asyncio.get_running_loop().time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(end):
                update = await anext(updates)
        except (StopAsyncIteration, TimeoutError):
            return
        yield update
