"""Watches the models and tools of a LangChain or LangGraph run: counts, charges, records, and stops what is denied."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Optional
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.tools import StructuredTool
from langchain_core.tracers.context import register_configure_hook
from langgraph.types import Command
from pydantic import BaseModel, JsonValue

from baton.agents.billing import UsageMeter
from baton.agents.port import AgentWork
from baton.contract.records import ToolDeniedError
from baton.errors import AgentError
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT
from baton.wire.money import Price, Usage

_watching: ContextVar[Optional["GuardCallback"]] = ContextVar("baton_watching", default=None)
# And not among the callbacks of the run: a model or tool that is called with callbacks of its own is not told of those.
register_configure_hook(_watching, inheritable=True)


class GuardCallback(BaseCallbackHandler):
    """What a run's callbacks tell, put where Baton keeps it."""

    raise_error = True
    run_inline = True

    def __init__(self, work: AgentWork, agent: str, price: Price | None = None) -> None:
        self._work = work
        self._meter = UsageMeter(work, agent, price)
        self._streamed: dict[UUID, Usage] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._calls: dict[UUID, tuple[str, str]] = {}
        self._named: dict[UUID, str] = {}
        self._read: dict[UUID, list[Any]] = {}
        self._spoke: set[UUID] = set()
        self._reader = next((one for one in work.tools if one.name == READ_ARTIFACT), None)
        self._ended: AgentError | ToolDeniedError | None = None
        self._over = False
        self._said: list[str] = []
        self.message: BaseMessage | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all models and tools that are called in the `with` block; what outlasts it calls no more."""
        token = _watching.set(self)
        try:
            yield
        finally:
            _watching.reset(token)
            self._over = True

    def tell(self, *, besides: str | None = None) -> None:
        """Record what models said last."""
        for text in self._said:
            if text != besides:
                self._work.context.session.model_response(text)
        self._said.clear()

    async def settle(self) -> None:
        """Put denied calls on record."""
        await self._work.context.tools.settle()

    def refuse(self) -> None:
        """End a run that was to end before; a node may have caught that, tried again, or told its model of it."""
        if self._ended is not None:
            raise self._ended from None

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Count a request to a chat model."""
        self._in_loop(self._ask)
        self._read[run_id] = [one.content for turn in messages for one in turn]

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any) -> None:
        """Count a request to a model of texts."""
        self._in_loop(self._ask)
        self._read[run_id] = [*prompts]

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        """Tell a piece of text; and keep the usage in a chunk: LangChain adds up what a server restates in each one."""
        self._spoke.add(run_id)
        self._work.context.stream.text(getattr(chunk, "text", None) or (token if isinstance(token, str) else ""))
        told = getattr(getattr(chunk, "message", None), "usage_metadata", None)
        if told and (usage := Usage.read(told)):
            before = self._streamed.get(run_id)
            self._streamed[run_id] = usage if before is None else before.then(usage)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Charge a request, and keep what the model said: it is recorded once something follows it."""
        for choice in (one for choices in response.generations for one in choices):
            self.message = getattr(choice, "message", None) or self.message
            if choice.text.strip():
                self._in_loop(self._said.append, choice.text)
                if run_id not in self._spoke:
                    self._work.context.stream.text(choice.text)
        model, usage = _used(response)
        read = self._read.pop(run_id, [])
        if not usage and run_id in self._spoke:  # many servers measure only what they do not stream
            usage = self._meter.estimated(read, [one.text for one in response.generations[0]])
        self._spoke.discard(run_id)
        streamed = self._streamed.pop(run_id, usage)
        self._in_loop(self._charge, model, min(usage, streamed, key=lambda one: one.total))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Charge an answer that was cut off: what its client's error says it cost, else what its stream reported."""
        answer = getattr(error, "completion", None)
        told = getattr(answer, "usage", None)
        told = told.model_dump() if isinstance(told, BaseModel) else getattr(told, "__dict__", told)
        streamed = self._streamed.pop(run_id, None)
        if usage := (Usage.read(told) if isinstance(told, Mapping) else None) or streamed:
            self._in_loop(self._charge, str(getattr(answer, "model", "")), usage)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the call of a tool."""
        name = str((serialized or {}).get("name") or kwargs.get("name") or "unnamed")
        shown = {key: repr(value) for key, value in (inputs or {"input": input_str}).items()}
        self._in_loop(self._begin, run_id, name, shown)
        self._named[run_id] = name
        self._work.context.stream.tool_called(name, inputs or input_str)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a tool returned; a message that says that it failed is a failure."""
        told = _told(output)
        failed = any(getattr(one, "status", "success") == "error" for one in told)
        self._in_loop(self._end, run_id, "\n".join(map(_text, told)), not failed)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a tool raised."""
        self._in_loop(self._end, run_id, f"{type(error).__name__}: {error}", False)

    async def read(self, arguments: Mapping[str, Any]) -> Any:
        """Return what `read_artifact` reads; an error for the model where the handoff names nothing."""
        if self._reader is None:
            return {"error": "your handoff names nothing that could be read"}
        return await self._reader.call(arguments)

    def read_in_thread(self, arguments: Mapping[str, Any]) -> Any:
        """Return the same from a node that runs in a thread."""
        if threading.get_ident() == self._thread:
            raise RuntimeError(f"await the tool {READ_ARTIFACT!r}: this node runs in the event loop")
        return asyncio.run_coroutine_threadsafe(self.read(arguments), self._loop).result()

    def _ask(self) -> None:
        """Count a request, unless the run is to end."""
        self._go_on()
        self.tell()
        self._meter.request()

    def _begin(self, run_id: UUID, name: str, shown: dict[str, JsonValue]) -> None:
        """Record a call, unless it is denied or the run is to end."""
        self._go_on()
        self._meter.check()
        self.tell()
        if name == READ_ARTIFACT and self._reader is not None:
            return  # it notes by itself what was read; the next stages get no fact of it
        self._work.context.tools.check(name)
        self._calls[run_id] = name, self._work.context.session.tool_call(name, shown)

    def _end(self, run_id: UUID, text: str, success: bool) -> None:
        """Record and tell the result of a call that was begun."""
        self._work.context.stream.tool_answered(self._named.pop(run_id, ""), text)
        if run_id in self._calls:
            name, call_id = self._calls.pop(run_id)
            session = self._work.context.session
            session.tool_result(name, text, call_id=call_id, success=success)

    def _charge(self, model: str, usage: Usage) -> None:
        """Charge a request, unless the run's bill is closed already."""
        if not self._over:
            self._meter.charge(usage, model)

    def _go_on(self) -> None:
        """Go on, unless the run is to end or has ended."""
        self.refuse()
        if self._over:
            raise AgentError("the run has ended")

    def _in_loop(self, act: Callable[..., Any], *args: Any) -> None:
        """Act in the thread of the event loop, where session, bill and heartbeats belong, and wait for it."""
        if threading.get_ident() == self._thread:
            self._noted(act, *args)
            return

        async def there() -> None:
            self._noted(act, *args)

        asyncio.run_coroutine_threadsafe(there(), self._loop).result()

    def _noted(self, act: Callable[..., Any], *args: Any) -> None:
        """Act, and note what is to end the run."""
        try:
            act(*args)
        except (AgentError, ToolDeniedError) as error:
            self._ended = self._ended or error
            raise


def _read(id: str, offset: int = 0, limit: int = MAX_READ) -> Any:
    """Read a part of an artifact, input or fact that your context names, from a character on."""
    return _run().read_in_thread({"id": id, "offset": offset, "limit": limit})


async def _aread(id: str, offset: int = 0, limit: int = MAX_READ) -> Any:
    """Read likewise, in the event loop."""
    return await _run().read({"id": id, "offset": offset, "limit": limit})


def _run() -> GuardCallback:
    """Return the run that is watched here."""
    watch = _watching.get()
    if watch is None:
        raise RuntimeError(f"the tool {READ_ARTIFACT!r} reads only in a stage of `LangGraphAgent`")
    return watch


read_artifact = StructuredTool.from_function(_read, coroutine=_aread, name=READ_ARTIFACT)
"""The tool for the nodes of a graph that reads what the prompt names; say so by `uses=["read_artifact"]`."""


def _used(response: LLMResult) -> tuple[str, Usage]:
    """Return a request's model and tokens. Each of several choices has the whole; one from a cache of its own none."""
    output: Mapping[str, Any] = response.llm_output or {}
    message = getattr(response.generations[0][0], "message", None) if any(response.generations) else None
    said: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
    names = (said.get("model_name"), said.get("model"), output.get("model_name"), output.get("model"))
    model = str(next(filter(None, names), ""))
    # Models of texts report it beside their answer.
    told: Any = getattr(message, "usage_metadata", None) or output.get("token_usage") or {}
    return model, Usage() if told.get("total_cost") == 0 else Usage.read(told) or Usage()


def _told(output: Any) -> list[Any]:
    """Return what a tool tells its model: of a command the messages in it, which answer the call."""
    update = output.update if isinstance(output, Command) else None
    values = update.values() if isinstance(update, Mapping) else ()
    lists = (one if isinstance(one, list | tuple) else [one] for one in values)
    return [one for found in lists for one in found if isinstance(one, ToolMessage)] or [output]


def _text(told: Any) -> str:
    """Return the text of what a tool tells, of blocks the texts among them."""
    content = getattr(told, "content", told)
    if isinstance(content, list) and (texts := [one["text"] for one in content if _is_text(one)]):
        return "\n".join(texts)
    return content if isinstance(content, str) else repr(content)


def _is_text(block: Any) -> bool:
    """Return whether a block of content is a text."""
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)
