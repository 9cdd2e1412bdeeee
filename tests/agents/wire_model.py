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

    def _request_body(self, messages: list[BaseMessage]) -> dict[str, Any]:
        tools = [{"type": "function", "function": tool} for tool in self.tools]
        return {
            "model": "gpt-4o",
            "messages": [_sent(message) for message in messages],
            **({"tools": tools} if tools else {}),
        }

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        async with self._client() as client:
            response = await client.chat.completions.create(**self._request_body(messages))
        reply, calls = response.choices[0].message, response.choices[0].message.tool_calls or []
        tool_calls = [
            _call(call.id, call.function.name, call.function.arguments) for call in calls if call.type == "function"
        ]
        message = AIMessage(
            reply.content or "",
            tool_calls=tool_calls,
            usage_metadata=_usage(response.usage),
            additional_kwargs={"refusal": reply.refusal} if reply.refusal else {},
        )
        message.response_metadata = {"model_name": response.model, "finish_reason": response.choices[0].finish_reason}
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = {**self._request_body(messages), "stream": True, "stream_options": {"include_usage": True}}
        async with self._client() as client, await client.chat.completions.create(**request) as chunks:
            async for chunk in chunks:
                delta = chunk.choices[0].delta if chunk.choices else None
                calls = [
                    {"name": call.function.name, "args": call.function.arguments, "id": call.id, "index": call.index}
                    for call in (delta.tool_calls if delta else None) or []
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


def _usage(report: Any) -> Any:
    if report is None:
        return None
    read, written = report.prompt_tokens, report.completion_tokens
    return {"input_tokens": read, "output_tokens": written, "total_tokens": report.total_tokens}


def _sent(message: BaseMessage) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
    sent: dict[str, Any] = {"role": _ROLES[message.type], "content": message.text}
    if isinstance(message, AIMessage) and message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
            }
            for call in message.tool_calls
        ]
    return sent
