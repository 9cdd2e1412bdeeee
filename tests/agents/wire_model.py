"""A chat model of LangChain that speaks the wire format of chat completions, whole or streamed."""

import json
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from openai import AsyncOpenAI

_ROLES = {"human": "user", "ai": "assistant", "system": "system"}


class WireModel(BaseChatModel):
    """Asks a server on this machine.

    Attributes:
        base: The server's address.
        tools: The tools that the model is shown.
    """

    base: str
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def _llm_type(self) -> str:
        return "wire"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.base, api_key="key", max_retries=0)

    def _asked(self, messages: list[BaseMessage]) -> dict[str, Any]:
        tools = [{"type": "function", "function": one} for one in self.tools]
        return {"model": "gpt-4o", "messages": [_sent(one) for one in messages], **({"tools": tools} if tools else {})}

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        async with self._client() as client:
            told = await client.chat.completions.create(**self._asked(messages))
        said, calls = told.choices[0].message, told.choices[0].message.tool_calls or []
        made = [_call(one.id, one.function.name, one.function.arguments) for one in calls if one.type == "function"]
        message = AIMessage(said.content or "", tool_calls=made, usage_metadata=_usage(told.usage))
        message.response_metadata = {"model_name": told.model, "finish_reason": told.choices[0].finish_reason}
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        asked = {**self._asked(messages), "stream": True, "stream_options": {"include_usage": True}}
        async with self._client() as client, await client.chat.completions.create(**asked) as chunks:
            async for chunk in chunks:
                delta = chunk.choices[0].delta if chunk.choices else None
                calls = [
                    {"name": one.function.name, "args": one.function.arguments, "id": one.id, "index": one.index}
                    for one in (delta.tool_calls if delta else None) or []
                ]
                message = AIMessageChunk(content=(delta.content if delta else None) or "", tool_call_chunks=calls)
                message.usage_metadata = _usage(chunk.usage)
                if not chunk.choices:
                    message.response_metadata = {"model_name": chunk.model}
                piece = ChatGenerationChunk(message=message)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(piece.text, chunk=piece)
                yield piece


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "name": name, "args": json.loads(arguments), "type": "tool_call"}


def _usage(told: Any) -> Any:
    if told is None:
        return None
    read, written = told.prompt_tokens, told.completion_tokens
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


def _sent(message: BaseMessage) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
    sent: dict[str, Any] = {"role": _ROLES[message.type], "content": message.text}
    if isinstance(message, AIMessage) and message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": one["id"],
                "type": "function",
                "function": {"name": one["name"], "arguments": json.dumps(one["args"])},
            }
            for one in message.tool_calls
        ]
    return sent
