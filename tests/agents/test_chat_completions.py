"""An agent behind a plain endpoint, against a server that speaks the wire format."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pydantic_ai.models
import pytest
from temporalio.exceptions import ApplicationError

from baton import Stage
from baton.agents import AgentTool, agent_stage
from baton.agents.chat_completions import chat_agent
from baton.contract.records import EventType
from baton.errors import ConfigurationError, PatchError
from tests.agents.material import PATCH, context, events, lookup
from tests.chat_server import ChatServer, chat_server, completion

KEY = "sk-plain-0123456789abcdef"
KEY_ENV = "BATON_TEST_MODELS_KEY"
GOOD = '{"baton_patch": {"decision_log": ["Keep sessions out, because they need a store"]}}'
CRM = AgentTool.of(lookup, name="crm.lookup")
CALL = completion(calls=[("crm_lookup", {"customer": "c-1"})])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the key where a worker has it, and allow requests, which go to this machine."""
    monkeypatch.setenv(KEY_ENV, KEY)
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


def stage(server: ChatServer, **terms: Any) -> Stage[Any, Any]:
    """Return a stage whose agent asks a server."""
    names = ("answer", "parameters", "seconds", "retries")
    options = {name: terms.pop(name) for name in names if name in terms}
    agent = chat_agent("plan", server.url, "gpt-4o", KEY_ENV, **options)
    return agent_stage(agent, instructions="You plan features.", **terms)


class TestRequest:
    """What goes over the wire."""

    async def test_it_asks_for_the_answers_schema(self) -> None:
        """As `response_format`, not strict: a strict schema would require the fields that did not change (C-3)."""
        with chat_server(completion(GOOD)) as server:
            await stage(server, writes=["decision_log"])(context())
        shape = server.asked[0].body["response_format"]

        assert shape["type"] == "json_schema"
        assert not shape["json_schema"].get("strict")
        members = shape["json_schema"]["schema"]["properties"]["baton_patch"]["properties"]
        assert list(members) == ["decision_log"]

    async def test_the_prompt_contains_the_schema_for_an_endpoint_without_schemas(self) -> None:
        """So that any endpoint will do."""
        with chat_server(completion(GOOD)) as server:
            await stage(server, answer="prompted")(context())

        assert '"additionalProperties": false' in server.asked[0].body["messages"][-1]["content"]

    async def test_the_key_is_in_the_header_and_the_handoff_beside_it(self) -> None:
        """The key is looked up when it is needed, by the name of its variable (S5-fields-a)."""
        with chat_server(completion(GOOD)) as server:
            agent = stage(server, parameters={"temperature": 0})
            stage_context = context()
            await agent(stage_context)

        (request,) = server.asked
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers["x-baton-handoff-id"] == stage_context.handoff_id
        assert request.body["temperature"] == 0
        assert request.path == "/v1/chat/completions"
        assert KEY not in repr(agent)

    def test_an_address_that_would_give_the_key_away_is_refused(self) -> None:
        """Where the agent is made, and so is one that no request can go to."""
        refused = []
        for url in (
            "http://models.example/v1",
            "ftp://models.example",
            "models.example",
            "https://key@models.example",
            "http://localhost:port/v1",
            "http://[::1/v1",
            "https://models.example/v1\n",
            " http://localhost/v1",
        ):
            with pytest.raises(ValueError, match="https"):
                chat_agent("plan", url, "m", KEY_ENV)
            refused.append(url)

        assert len(refused) == 8

    async def test_a_worker_without_the_key_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the variable's name; another worker may have it."""
        monkeypatch.setenv(KEY_ENV, "")
        with chat_server() as server, pytest.raises(ConfigurationError, match=f"'{KEY_ENV}'"):
            await stage(server)(context())
        assert server.asked == []

    async def test_a_key_of_other_characters_is_named_and_not_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the variable's name; another worker may have a better one."""
        monkeypatch.setenv(KEY_ENV, "sk-\u00e9")
        with chat_server() as server, pytest.raises(ApplicationError, match=f"'{KEY_ENV}'") as raised:
            await stage(server)(context())
        assert not raised.value.non_retryable
        assert server.asked == []


class TestConnections:
    """What is left open between two requests."""

    def test_an_agent_serves_several_event_loops(self) -> None:
        """Nothing is kept open in the first one: a connection of a loop that has ended failed the next request."""
        with chat_server(completion(GOOD), completion(GOOD), keep_alive=True) as server:
            agent = stage(server)
            answers = [asyncio.run(agent(context())).baton_patch for _ in range(2)]

        assert answers == [PATCH, PATCH]


class TestConversation:
    """Tools, and answers that have to be corrected."""

    async def test_a_models_thoughts_are_a_note_and_not_part_of_its_answer(self) -> None:
        """Where its server leaves it in the text."""
        stage_context = context()
        with chat_server(completion("<think>\nA {plan}?\n</think>\n\n" + GOOD)) as server:
            result = await stage(server, retries=0)(stage_context)
        assert result.baton_patch == PATCH
        assert events(stage_context) == [(EventType.INTERNAL_NOTE, None)]

        answer = GOOD.replace("sessions", "</think>")
        with chat_server(completion(answer)) as server:
            result = await stage(server, retries=0)(context())
        assert result.baton_patch == {"decision_log": ["Keep </think> out, because they need a store"]}

    async def test_a_malformed_answer_is_corrected_in_the_same_conversation(self) -> None:
        """The model reads what is wrong with it; one that stays malformed leads to another attempt of the stage."""
        with chat_server(completion("Done!"), completion(GOOD)) as server:
            result = await stage(server)(context())
        assert result.baton_patch == PATCH
        assert len(server.asked) == 2

        with chat_server(completion("Done!"), completion("Done!")) as server, pytest.raises(PatchError):
            await stage(server)(context())
        assert server.left == []
