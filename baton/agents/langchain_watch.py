"""Watches the models and tools of a LangChain or LangGraph run: counts, charges, records, and stops denied calls."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Optional
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tools import StructuredTool
from langchain_core.tracers.context import register_configure_hook
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from baton.agents.billing import UsageMeter
from baton.agents.notes import note_tools
from baton.agents.port import AgentWork
from baton.agents.results import record_text
from baton.agents.tools import AgentTool, CallIds
from baton.contract.activity_transcript import OpenRequest
from baton.contract.records import ToolDeniedError
from baton.core.notes import Notes
from baton.errors import AgentError
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT
from baton.wire.money import Price, Usage
from baton.wire.text import describe_faults

_active_callback: ContextVar[Optional["GuardCallback"]] = ContextVar("baton_active_callback", default=None)
# A hook instead of a callback of the run, because nodes may call models and tools with callbacks of their own.
register_configure_hook(_active_callback, inheritable=True)


class GuardCallback(BaseCallbackHandler):
    """Charges and records what a run's callbacks report."""

    raise_error = True
    run_inline = True

    def __init__(self, work: AgentWork, agent: str, price: Price | None = None) -> None:
        self._work = work
        self._meter = UsageMeter(work, agent, price)
        self._streamed: dict[UUID, Usage] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._calls: dict[UUID, tuple[str, str]] = {}
        self._graphs: dict[UUID, str | None] = {}  # the subgraphs of models and tools that run
        self._call_ids = CallIds()
        self._tool_names: dict[UUID, str] = {}
        self._parents: dict[UUID, UUID | None] = {}
        self._asked_models: set[UUID] = set()  # tool calls in which a model was asked
        self._prompts: dict[UUID, list[Any]] = {}
        self._requests: dict[UUID, OpenRequest] = {}
        self._streaming: set[UUID] = set()
        self._reader = next((tool for tool in work.tools if tool.name == READ_ARTIFACT), None)
        self._note_tools = {tool.name: tool for tool in note_tools(work.noted)} if work.notes else {}
        self._error: AgentError | ToolDeniedError | None = None
        self._closed = False
        self._texts: list[tuple[str, str | None]] = []  # with their subgraphs
        self.message: BaseMessage | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all models and tools that are called in the `with` block, and refuse calls after it."""
        token = _active_callback.set(self)
        try:
            yield
        finally:
            _active_callback.reset(token)
            self._closed = True

    def record_texts(self, *, except_for: str | None = None) -> None:
        """Record the models' latest texts."""
        session = self._work.context.session
        for text, graph in self._texts:
            if text != except_for:
                with session.acting_as(graph):
                    record_text(session, text)
        self._texts.clear()

    async def settle(self) -> None:
        """Record denied calls."""
        await self._work.context.tools.settle()

    def raise_pending(self) -> None:
        """Raise the error that should have ended the run; a node may have caught it."""
        if self._error is not None:
            raise self._error from None

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note what a chain belongs to."""
        self._parents[run_id] = parent_run_id

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a chain."""
        self._parents.pop(run_id, None)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a request to a chat model."""
        asked = [*_list_messages(message for turn in messages for message in turn)]
        self._run_in_loop(self._count_request, run_id, parent_run_id, asked)
        self._graphs[run_id] = _subgraph(kwargs)
        self._prompts[run_id] = [message.content for turn in messages for message in turn]

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a request to a completion model."""
        self._run_in_loop(self._count_request, run_id, parent_run_id, [("user", prompt) for prompt in prompts])
        self._graphs[run_id] = _subgraph(kwargs)
        self._prompts[run_id] = [*prompts]

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        """Stream a piece of text, and keep the chunk's usage: LangChain would add up usage that a server restates."""
        self._streaming.add(run_id)
        self._work.context.stream.text(getattr(chunk, "text", None) or (token if isinstance(token, str) else ""))
        report = getattr(getattr(chunk, "message", None), "usage_metadata", None)
        if report and (usage := Usage.read(report)):
            previous = self._streamed.get(run_id)
            self._streamed[run_id] = usage if previous is None else previous.after_chunk(usage)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Charge a request, and keep the model's text: it is recorded once something follows it.

        The ids of its tool calls are made unique. The message is replaced and not changed, because a cache may return
        it again; a node that reads the model's stream by itself has had the pieces before.
        """
        for choice in (choice for choices in response.generations for choice in choices):
            if isinstance(choice, ChatGeneration) and isinstance(choice.message, AIMessage):
                choice.message = _with_unique_calls(choice.message, self._call_ids)
            self.message = getattr(choice, "message", None) or self.message
            if choice.text.strip():
                self._run_in_loop(self._texts.append, (choice.text, self._graphs.get(run_id)))
                if run_id not in self._streaming:
                    self._work.context.stream.text(choice.text)
        self._graphs.pop(run_id, None)
        model, usage = _read_usage(response)
        prompts = self._prompts.pop(run_id, [])
        if usage is None:  # many servers do not measure
            usage = self._meter.estimate_usage(prompts, [choice.text for choice in response.generations[0]])
        self._streaming.discard(run_id)
        streamed = self._streamed.pop(run_id, usage)
        said = "\n".join(choice.text for choices in response.generations for choice in choices)
        self._run_in_loop(self._charge, run_id, model, min(usage, streamed, key=lambda bill: bill.total), said)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Charge an answer that was cut off, by the usage in the client's error or in the stream."""
        answer = getattr(error, "completion", None)
        report = getattr(answer, "usage", None)
        report = report.model_dump() if isinstance(report, BaseModel) else getattr(report, "__dict__", report)
        streamed = self._streamed.pop(run_id, None)
        self._graphs.pop(run_id, None)
        if usage := (Usage.read(report) if isinstance(report, Mapping) else None) or streamed:
            self._run_in_loop(self._charge, run_id, str(getattr(answer, "model", "")), usage, "")

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record a tool call."""
        self._parents[run_id] = parent_run_id
        name = str((serialized or {}).get("name") or kwargs.get("name") or "unnamed")
        arguments = inputs or {"input": input_str}
        if _NOTES not in (kwargs.get("tags") or ()):
            self._graphs[run_id] = _subgraph(kwargs)
            self._run_in_loop(self._record_call, run_id, name, arguments)
        self._tool_names[run_id] = name
        self._work.context.stream.tool_called(name, inputs or input_str)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the result of a tool; a message with an error status is a failure."""
        results = _tool_messages(output)
        failed = any(getattr(result, "status", "success") == "error" for result in results)
        self._run_in_loop(self._record_result, run_id, "\n".join(map(_content_text, results)), not failed)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record an exception of a tool."""
        self._run_in_loop(self._record_result, run_id, f"{type(error).__name__}: {error}", False)

    async def read(self, arguments: Mapping[str, Any]) -> Any:
        """Do what `read_artifact` does; return an error for the model if there is nothing to read."""
        if self._reader is None:
            return {"error": "your handoff names nothing that could be read"}
        return await self._reader.call(arguments)

    def read_in_thread(self, arguments: Mapping[str, Any]) -> Any:
        """Do the same for a node that runs in a thread."""
        if threading.get_ident() == self._thread:
            raise RuntimeError(f"await the tool {READ_ARTIFACT!r}: this node runs in the event loop")
        return asyncio.run_coroutine_threadsafe(self.read(arguments), self._loop).result()

    async def note(self, name: str, text: str) -> str:
        """Do what a tool for notes does."""
        tool = self._note_tools.get(name)
        try:
            return "not noted: this stage takes no notes" if tool is None else str(await tool.call({"text": text}))
        except ValidationError as error:
            return f"not noted: {describe_faults(error)}"

    def note_in_thread(self, name: str, text: str) -> str:
        """Do the same for a node that runs in a thread."""
        if threading.get_ident() == self._thread:
            raise RuntimeError(f"await the tool {name!r}: this node runs in the event loop")
        return asyncio.run_coroutine_threadsafe(self.note(name, text), self._loop).result()

    def _count_request(self, run_id: UUID, parent: UUID | None, asked: list[tuple[str, str]]) -> None:
        self._check_running()
        while parent is not None:
            self._asked_models.add(parent)
            parent = self._parents.get(parent)
        self.record_texts()
        self._requests[run_id] = self._meter.count_request(asked)

    def _record_call(self, run_id: UUID, name: str, arguments: dict[str, Any]) -> None:
        self._check_running()
        self._meter.check_limits()
        self.record_texts()
        if name == READ_ARTIFACT and self._reader is not None:
            return  # it records its own note, which is not a fact for the next stages
        session = self._work.context.session
        with session.acting_as(self._graphs[run_id]):
            self._work.context.tools.check(name)
            self._calls[run_id] = name, session.tool_call(name, arguments)

    def _record_result(self, run_id: UUID, text: str, success: bool) -> None:
        self._work.context.stream.tool_answered(self._tool_names.pop(run_id, ""), text)
        graph = self._graphs.pop(run_id, None)
        if run_id in self._calls:
            name, call_id = self._calls.pop(run_id)
            session = self._work.context.session
            by_model = run_id in self._asked_models
            with session.acting_as(graph):
                session.tool_result(name, text, call_id=call_id, success=success, by_model=by_model)

    def _charge(self, run_id: UUID, model: str, usage: Usage, said: str) -> None:
        if not self._closed:
            self._meter.charge(usage, model, request=self._requests.pop(run_id, None), said=said)

    def _check_running(self) -> None:
        self.raise_pending()
        if self._closed:
            raise AgentError("the run has ended")

    def _run_in_loop(self, action: Callable[..., Any], *args: Any) -> None:
        """Run an action in the event loop's thread, where session and bill belong, and wait for it."""
        if threading.get_ident() == self._thread:
            self._run_guarded(action, *args)
            return

        async def run() -> None:
            self._run_guarded(action, *args)

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _run_guarded(self, action: Callable[..., Any], *args: Any) -> None:
        """Run an action, and keep the error that ends the run."""
        try:
            action(*args)
        except (AgentError, ToolDeniedError) as error:
            self._error = self._error or error
            raise


def _read(id: str, offset: int = 0, limit: int = MAX_READ) -> Any:
    """Read a part of an artifact, input or fact that your context names, from a character on."""
    return _active_run().read_in_thread({"id": id, "offset": offset, "limit": limit})


async def _aread(id: str, offset: int = 0, limit: int = MAX_READ) -> Any:
    """Do the same in the event loop."""
    return await _active_run().read({"id": id, "offset": offset, "limit": limit})


def _subgraph(started: Mapping[str, Any]) -> str | None:
    """Return the node of the outermost graph whose subgraph calls a model or tool; None outside a subgraph."""
    path = str((started.get("metadata") or {}).get("langgraph_checkpoint_ns", ""))
    return path.partition(":")[0] if "|" in path else None


def _active_run() -> GuardCallback:
    callback = _active_callback.get()
    if callback is None:
        raise RuntimeError("the tools of Baton work only in a stage of `LangGraphAgent`")
    return callback


read_artifact = StructuredTool.from_function(_read, coroutine=_aread, name=READ_ARTIFACT)
"""A tool for nodes of a graph that reads what the prompt names; declare it by `uses=["read_artifact"]`."""


def _langchain_note(tool: AgentTool) -> StructuredTool:
    """Return a tool for notes as one of LangChain."""

    def note(text: str) -> str:
        return _active_run().note_in_thread(tool.name, text)

    async def anote(text: str) -> str:
        return await _active_run().note(tool.name, text)

    return StructuredTool.from_function(
        note, coroutine=anote, name=tool.name, description=tool.description, tags=[_NOTES]
    )


_NOTES = "baton.notes"
"""The tag of the tools for notes, which no contract limits."""
notes_tools = [_langchain_note(tool) for tool in note_tools(Notes())]
"""Tools for nodes of a graph that has tools anyway: `note_decision`, `open_question`, `consider`, `reject`."""


def _read_usage(response: LLMResult) -> tuple[str, Usage | None]:
    """Return a request's model, and its usage unless it is missing.

    Each of several choices reports the total; a cached answer costs nothing.
    """
    output: Mapping[str, Any] = response.llm_output or {}
    message = getattr(response.generations[0][0], "message", None) if any(response.generations) else None
    metadata: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
    names = (metadata.get("model_name"), metadata.get("model"), output.get("model_name"), output.get("model"))
    model = str(next(filter(None, names), ""))
    # Completion models report usage beside their answer.
    report: Any = getattr(message, "usage_metadata", None) or output.get("token_usage") or {}
    return model, Usage() if report.get("total_cost") == 0 else Usage.read(report)


def _with_unique_calls(message: AIMessage, ids: CallIds) -> AIMessage:
    """Return a message whose tool calls have ids of their own."""
    calls = [{**call, "id": ids.unique(call["id"])} if call["id"] else call for call in message.tool_calls]
    return message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})


def _tool_messages(output: Any) -> list[Any]:
    """Return the messages of a tool's result: for a command, those that it adds to the state."""
    update = output.update if isinstance(output, Command) else None
    values = update.values() if isinstance(update, Mapping) else ()
    lists = (value if isinstance(value, list | tuple) else [value] for value in values)
    return [message for messages in lists for message in messages if isinstance(message, ToolMessage)] or [output]


_ROLES = {"human": "user", "ai": "assistant"}


def _list_messages(messages: Iterable[BaseMessage]) -> Iterator[tuple[str, str]]:
    """Yield what a request asks: role and text."""
    for message in messages:
        role = _ROLES.get(message.type, message.type)
        yield role, _content_text(message)
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            yield role, f"{call['name']}({json.dumps(call['args'], ensure_ascii=False, default=str)})"


def _content_text(message: Any) -> str:
    """Return the text of a message or value; of content blocks, the text blocks."""
    content = getattr(message, "content", message)
    if isinstance(content, list) and (texts := [block["text"] for block in content if _is_text(block)]):
        return "\n".join(texts)
    return content if isinstance(content, str) else repr(content)


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)
