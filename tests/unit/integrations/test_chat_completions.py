"""An agent behind a plain endpoint, against a server that speaks the wire format."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pydantic_ai.models
import pytest
from temporalio.exceptions import ApplicationError

from baton import Stage
from baton.agents.chat_completions import chat_agent
from baton.agents.port import AgentLimits, AgentTool, AnswerForm, agent_stage
from baton.contract.session import EventType
from baton.errors import PatchError
from baton.wire.fencing import FENCE_LABEL
from tests.chat_server import ChatServer, Reply, chat_server, completion, refusal
from tests.unit.integrations.material import PATCH, context, events, lookup

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

    async def test_the_fenced_context_is_the_users_and_the_instructions_are_the_systems(self) -> None:
        """Nothing of the handoff reaches the system prompt (X-6, S3-10.1-d)."""
        with chat_server(completion(GOOD)) as server:
            result = await stage(server)(context())
        system, user = server.asked[0].body["messages"]

        assert result.baton_patch == PATCH
        assert system == {"role": "system", "content": "You plan features."}
        assert user["role"] == "user"
        assert FENCE_LABEL in user["content"]

    async def test_it_asks_for_the_answers_schema(self) -> None:
        """As `response_format`, not strict: a strict schema would require the fields that did not change (C-3)."""
        with chat_server(completion(GOOD)) as server:
            await stage(server, writes=["decision_log"])(context())
        shape = server.asked[0].body["response_format"]

        assert shape["type"] == "json_schema"
        assert not shape["json_schema"].get("strict")
        members = shape["json_schema"]["schema"]["properties"]["baton_patch"]["properties"]
        assert list(members) == ["decision_log"]

    async def test_an_endpoint_that_knows_no_schema_is_told_it_in_the_prompt(self) -> None:
        """So that any endpoint will do."""
        with chat_server(completion(GOOD)) as server:
            await stage(server, answer="prompted")(context())

        assert '"additionalProperties": false' in server.asked[0].body["messages"][-1]["content"]

    async def test_the_key_is_in_the_header_and_the_handoff_beside_it(self) -> None:
        """The key is looked up when it is needed, by the name of its variable (S5-fields-a)."""
        with chat_server(completion(GOOD)) as server:
            made = stage(server, parameters={"temperature": 0})
            of = context()
            await made(of)

        (asked,) = server.asked
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert asked.headers["x-baton-handoff-id"] == of.handoff_id
        assert asked.body["temperature"] == 0
        assert asked.path == "/v1/chat/completions"
        assert KEY not in repr(made)

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
        for value in ("", "sk-\u00e9"):
            monkeypatch.setenv(KEY_ENV, value)
            with chat_server() as server, pytest.raises(ApplicationError, match=f"'{KEY_ENV}'") as raised:
                await stage(server)(context())
            assert not raised.value.non_retryable
            assert server.asked == []


class TestConversation:
    """Tools, and answers that have to be mended."""

    async def test_tools_are_called_guarded_and_their_results_go_back(self) -> None:
        """Calls are recorded under the handoff (S5-fields-a, S5-compiler-h)."""
        with chat_server(CALL, completion(GOOD)) as server:
            of = context()
            await stage(server, tools=[CRM])(of)
        returned = server.asked[1].body["messages"][-1]

        assert (returned["role"], returned["content"]) == ("tool", "c-1 pays 20 USD")
        assert events(of) == [(EventType.TOOL_CALL, "crm.lookup"), (EventType.TOOL_RESULT, "crm.lookup")]
        assert {one.handoff_id for one in of.session.events} == {of.handoff_id}

    async def test_what_a_model_thinks_aloud_is_a_note_and_not_part_of_its_answer(self) -> None:
        """Where its server leaves it in the text."""
        of = context()
        with chat_server(completion("<think>\nA {plan}?\n</think>\n\n" + GOOD)) as server:
            result = await stage(server, retries=0)(of)
        assert result.baton_patch == PATCH
        assert events(of) == [(EventType.INTERNAL_NOTE, None)]

        answer = GOOD.replace("sessions", "</think>")
        with chat_server(completion(answer)) as server:
            result = await stage(server, retries=0)(context())
        assert result.baton_patch == {"decision_log": ["Keep </think> out, because they need a store"]}

    async def test_a_malformed_answer_is_mended_in_the_same_conversation(self) -> None:
        """The model reads what is wrong with it; one that stays malformed leads to another attempt of the stage."""
        with chat_server(completion("Done!"), completion(GOOD)) as server:
            result = await stage(server)(context())
        assert result.baton_patch == PATCH
        assert len(server.asked) == 2

        with chat_server(completion("Done!"), completion("Done!")) as server, pytest.raises(PatchError):
            await stage(server)(context())
        assert server.left == []

    async def test_a_report_is_the_models_text(self) -> None:
        """No shape is asked for."""
        with chat_server(completion("## Agent Handoff Report\n")) as server:
            result = await stage(server, answers=AnswerForm.REPORT)(context())

        assert result.report == "## Agent Handoff Report\n"
        assert "response_format" not in server.asked[0].body


class TestFailures:
    """What becomes of a request that fails."""

    async def test_only_what_may_pass_is_tried_again(self) -> None:
        """The text has the status, and no word of the endpoint; a redirect, which the key would follow, is refused."""
        found = {}
        for status, code in (
            (307, "moved"),
            (401, "invalid_api_key"),
            (404, "model_not_found"),
            (429, "insufficient_quota"),
            (429, "rate_limit_exceeded"),
            (500, "server_error"),
            (521, "web_server_down"),
        ):
            reply = refusal(status, code, f"Incorrect API key provided: {KEY}", Location="http://127.0.0.1:9/")
            with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
                await stage(server)(context())
            assert f"answered {status}" in str(raised.value)
            assert KEY not in str(raised.value)
            assert len(server.asked) == 1
            found[status, code] = raised.value.non_retryable

        assert {key for key, permanent in found.items() if not permanent} == {
            (429, "rate_limit_exceeded"),
            (500, "server_error"),
            (521, "web_server_down"),
        }

    async def test_an_answer_that_cannot_be_read_is_tried_again(self) -> None:
        """It is the endpoint's fault, not the model's."""
        bodies: tuple[Any, ...] = (
            b'{"choices": [',
            b"<html>",
            {"choices": []},
            {"choices": [{"message": {"tool_calls": [{}]}}]},
        )
        for body in bodies:
            with chat_server(Reply(body)) as server, pytest.raises(ApplicationError) as raised:
                await stage(server)(context())
            assert not raised.value.non_retryable, body

    async def test_one_that_never_ends_is_left_at_the_deadline(self) -> None:
        """A byte now and then does not keep the stage."""
        with chat_server(Reply(b"{", slow=True)) as server, pytest.raises(ApplicationError) as raised:
            await stage(server, limits=AgentLimits(seconds=0.5))(context())
        assert not raised.value.non_retryable

    async def test_a_cancelled_stage_leaves_the_endpoint_at_once(self) -> None:
        """The connection is closed; the endpoint may stop its work."""
        with chat_server(Reply(b"{", slow=True)) as server:
            running = asyncio.create_task(stage(server)(context()))
            await asyncio.to_thread(server.streaming.wait)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    async def test_nobody_listens(self) -> None:
        """A connection that is refused is tried again by Temporal."""
        with chat_server() as server:
            pass
        with pytest.raises(ApplicationError, match="could not be reached") as raised:
            await stage(server)(context())
        assert not raised.value.non_retryable
