"""The OpenAI Agents SDK behind the port, over real sockets: what goes out on the wire, and what errors become."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from agents import Agent, ModelSettings, ToolOutputText
from temporalio.exceptions import ApplicationError

from baton import Spend, StageContext
from baton.agents import AgentTool, agent_stage
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.port import HANDOFF_HEADER
from baton.errors import PatchError
from tests.agents.test_openai_agents import ANSWER, BATON, PATCH, contract, lookup, run_stage


@dataclass
class Server:
    """A provider's server: it answers from a list, and keeps what it was asked."""

    url: str = ""
    replies: list[tuple[int, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)


@contextmanager
def serving(*replies: tuple[int, Any]) -> Iterator[Server]:
    """Serve while the block runs."""
    server = Server(replies=list(replies))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            status, reply = server.replies.pop(0)
            data = json.dumps(reply).encode()
            self.send_response(status)
            for name, value in (("content-type", "application/json"), ("content-length", str(len(data)))):
                self.send_header(name, value)
            if status == 429:
                self.send_header("retry-after", "2.5")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}/v1"
        thread = Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield server
        listening.shutdown()
        thread.join()


def chat_reply(content: str | None, **more: Any) -> dict[str, Any]:
    """Return an answer in the format of chat completions."""
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if more else "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def response_reply(text: str) -> dict[str, Any]:
    """Return an answer in the format of responses."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output = [{"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}]
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110, **details}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": output, "usage": usage, **rest}


class TestOverTheWire:
    """Requests to a server that speaks a provider's format."""

    async def test_chat_completions(self) -> None:
        """A tool is called and the answer read; every request names the handoff (S5-fields-a)."""
        function = {"name": "lookup", "arguments": '{"customer": "c-1"}'}
        call = {"id": "call-1", "type": "function", "function": function}
        with serving((200, chat_reply(None, tool_calls=[call])), (200, chat_reply(ANSWER))) as server:
            models = provider(base_url=server.url, api_key="key-1", api="chat")
            agent = OpenAIAgent(Agent("support", model="m", tools=[lookup]), provider=models)
            context = StageContext.for_test(BATON, contract=contract("lookup"))

            assert (await run_stage(agent_stage(agent), context)).baton_patch == PATCH
        (first_path, headers, _), (_, _, second) = server.asked
        assert first_path == "/v1/chat/completions"
        assert (headers[HANDOFF_HEADER.lower()], headers["authorization"]) == ("test", "Bearer key-1")
        assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call-1", "content": "c-1 pays 20 USD"}
        assert second["response_format"]["json_schema"]["strict"] is False
        assert context.charged.prompt_tokens == 200

    async def test_an_agents_own_headers_are_sent_beside_the_handoff(self) -> None:
        """A gateway wants its own; each agent of a run keeps those that it has."""
        handing = {"name": "transfer_to_billing", "arguments": "{}"}
        call = {"id": "call-1", "type": "function", "function": handing}
        with serving((200, chat_reply(None, tool_calls=[call])), (200, chat_reply(ANSWER))) as server:
            billing = Agent("billing", model="m", model_settings=ModelSettings(extra_headers={"X-Gateway": "b"}))
            settings = ModelSettings(extra_headers={"X-Gateway": "a"}, temperature=0)
            first = Agent("support", model="m", handoffs=[billing], model_settings=settings)
            models = provider(base_url=server.url, api_key="key-1", api="chat")

            await run_stage(agent_stage(OpenAIAgent(first, provider=models)))
        requests = [headers for _, headers, _ in server.asked]
        assert [headers["x-gateway"] for headers in requests] == ["a", "b"]
        assert HANDOFF_HEADER.lower() in requests[0].keys() & requests[1].keys()
        assert settings.extra_headers == {"X-Gateway": "a"}

    async def test_a_call_whose_arguments_are_cut_off_is_not_made(self) -> None:
        """A tool whose parameters all have defaults would run with those, and do what nobody asked for."""
        providers: list[str] = []

        def forget(customer: str = "everybody") -> str:
            """Forget a customer."""
            providers.append(customer)
            return "forgotten"

        call = {"id": "call-1", "type": "function", "function": {"name": "forget", "arguments": '{"customer": "c-'}}
        with serving((200, chat_reply(None, tool_calls=[call])), (200, chat_reply(ANSWER))) as server:
            models = provider(base_url=server.url, api_key="key-1", api="chat")
            await run_stage(agent_stage(OpenAIAgent(Agent("support", model="m"), provider=models), tools=[forget]))

        assert providers == []
        assert "expected as a JSON object" in server.asked[1][2]["messages"][-1]["content"]

    async def test_an_answer_that_the_sdk_rejects_is_charged(self) -> None:
        """It looks for calls of an id that was there before it tells of the response."""
        function = {"name": "lookup", "arguments": '{"customer": "c-1"}'}
        call = {"id": "call-1", "type": "function", "function": function}
        other = {**call, "function": {"name": "lookup", "arguments": '{"customer": "c-2"}'}}
        replies = [(200, chat_reply(None, tool_calls=[each])) for each in (call, other)]
        context = StageContext.for_test(BATON, contract=contract("lookup"))
        with serving(*replies) as server:
            models = provider(base_url=server.url, api_key="key-1", api="chat")
            with pytest.raises(ApplicationError, match="two tool calls one id"):
                await run_stage(
                    agent_stage(OpenAIAgent(Agent("s", model="m", tools=[lookup]), provider=models)), context
                )

        assert context.charged == Spend(prompt_tokens=200, completion_tokens=20)

    @pytest.mark.parametrize("more", [{}, {"reasoning_content": "Hm."}], ids=["nothing", "a thought"])
    async def test_an_empty_answer_is_asked_for_once(self, more: Any) -> None:
        """The SDK would ask again, as often as the run may, and pay for each."""
        reply = chat_reply("", **more)
        reply["choices"][0]["finish_reason"] = "stop"
        with serving((200, reply), (200, reply)) as server:
            models = provider(base_url=server.url, api_key="key-1", api="chat")
            with pytest.raises(PatchError, match="the answer is empty"):
                await run_stage(agent_stage(OpenAIAgent(Agent("s", model="m"), provider=models)))

        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        ("result", "content"),
        [
            pytest.param({"paid": True, "by": None}, '{"paid": true, "by": null}', id="an object, as JSON"),
            pytest.param([], "[]", id="an empty list"),
            pytest.param(ToolOutputText(text="paid"), [{"type": "text", "text": "paid"}], id="content of the SDK"),
            pytest.param([{"type": "text", "text": "paid"}], [{"type": "text", "text": "paid"}], id="as an object"),
        ],
    )
    async def test_the_model_gets_a_tools_result_as_json(self, result: Any, content: Any) -> None:
        """As under every framework; the SDK sends `{'paid': True, 'by': None}`."""
        call = {"id": "call-1", "type": "function", "function": {"name": "invoice", "arguments": "{}"}}
        invoice = AgentTool.of(lambda: result, name="invoice")
        with serving((200, chat_reply(None, tool_calls=[call])), (200, chat_reply(ANSWER))) as server:
            models = provider(base_url=server.url, api_key="key-1", api="chat")
            await run_stage(agent_stage(OpenAIAgent(Agent("support", model="m"), provider=models), tools=[invoice]))

        assert server.asked[1][2]["messages"][-1]["content"] == content

    async def test_responses(self) -> None:
        """OpenAI's own interface is spoken by default."""
        with serving((200, response_reply(ANSWER))) as server:
            agent = OpenAIAgent(Agent("support", model="m"), provider=provider(base_url=server.url, api_key="k"))
            context = StageContext.for_test(BATON)

            assert (await run_stage(agent_stage(agent), context)).baton_patch == PATCH
        assert server.asked[0][0] == "/v1/responses"
        assert context.charged.completion_tokens == 10
