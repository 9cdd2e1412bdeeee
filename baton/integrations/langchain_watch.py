"""Watches the models and tools of a LangChain or LangGraph run: counts, charges, records, and stops what is denied."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from pydantic import JsonValue

from baton.activity.session import cut
from baton.activity.toolbox import LONGEST_RESULT
from baton.integrations.agents import AgentWork
from baton.integrations.limiting import Bill
from baton.protocol.errors import AgentError
from baton.protocol.summarising import Price
from baton.protocol.tools import ToolDeniedError


class Watch(BaseCallbackHandler):
    """What a run's callbacks tell, put where Baton keeps it.

    What it raises stops the tool or the request before it is made. Nodes that are not async run in threads.

    Args:
        work: The work of the agent that is watched.
        price: What the models cost, where the public price list does not know them.

    Attributes:
        message: What a chat model answered last, if one did.
    """

    raise_error = True
    run_inline = True

    def __init__(self, work: AgentWork, price: Price | None = None) -> None:
        self._work = work
        self._bill = Bill(work, price)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._calls: dict[UUID, tuple[str, str]] = {}
        self._ended: AgentError | ToolDeniedError | None = None
        self.message: BaseMessage | None = None

    async def settle(self) -> None:
        """Put denied calls on record."""
        await self._work.context.tools.settle()

    def refuse(self) -> None:
        """End a run that was to end before; a node may have caught that, tried again, or told its model of it.

        Raises:
            AgentError: It had gone beyond its limits.
            ToolDeniedError: A call was denied.
        """
        if self._ended is not None:
            raise self._ended from None

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        """Count a request to a chat model.

        Raises:
            AgentError: It would be one too many, or the run had gone beyond its limits.
            ToolDeniedError: A call was denied before.
        """
        self._in_loop(self._ask)

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], **kwargs: Any) -> None:
        """Count a request to a model of texts.

        Raises:
            AgentError: It would be one too many, or the run had gone beyond its limits.
            ToolDeniedError: A call was denied before.
        """
        self._in_loop(self._ask)

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Charge a request, and record what the model said.

        Raises:
            AgentError: The run has gone beyond its limits.
        """
        for choices in response.generations:
            for choice in choices:
                if (message := getattr(choice, "message", None)) is not None:
                    self.message = message
                    self._in_loop(self._charge, message)
                if choice.text.strip():
                    self._in_loop(self._work.context.session.model_response, choice.text)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the call of a tool.

        Raises:
            ToolDeniedError: The contract does not allow it; it does not run.
        """
        name = str((serialized or {}).get("name") or kwargs.get("name") or "unnamed")
        shown = {key: repr(value) for key, value in (inputs or {"input": input_str}).items()}
        self._in_loop(self._begin, run_id, name, shown)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a tool returned; a message that says that it failed is a failure."""
        content = getattr(output, "content", output)
        text = content if isinstance(content, str) else repr(content)
        self._in_loop(self._end, run_id, text, getattr(output, "status", "success") != "error")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a tool raised."""
        self._in_loop(self._end, run_id, f"{type(error).__name__}: {error}", False)

    def _ask(self) -> None:
        """Count a request, unless the run is to end.

        Raises:
            AgentError: It would be one too many, or the run had gone beyond its limits.
            ToolDeniedError: A call was denied before.
        """
        self.refuse()
        self._bill.request()

    def _begin(self, run_id: UUID, name: str, shown: dict[str, JsonValue]) -> None:
        """Record a call, unless it is denied.

        Raises:
            ToolDeniedError: The contract does not allow it.
        """
        self._work.context.tools.check(name)
        self._calls[run_id] = name, self._work.context.session.tool_call(name, shown)

    def _end(self, run_id: UUID, text: str, success: bool) -> None:
        """Record the result of a call that was begun."""
        if run_id in self._calls:
            name, call_id = self._calls.pop(run_id)
            session = self._work.context.session
            session.tool_result(name, cut(text, LONGEST_RESULT), call_id=call_id, content=text, success=success)

    def _charge(self, message: BaseMessage) -> None:
        """Charge what a message of a model cost.

        Raises:
            AgentError: The run has gone beyond its limits.
        """
        usage = getattr(message, "usage_metadata", None)
        if not usage:
            return
        model = str(message.response_metadata.get("model_name") or message.response_metadata.get("model") or "")
        cached = usage.get("input_token_details", {}).get("cache_read", 0)
        self._bill.charge(model, usage.get("input_tokens", 0), usage.get("output_tokens", 0), cached)

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
