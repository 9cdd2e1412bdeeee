"""An agent behind a plain endpoint, against a server that speaks the wire format."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from baton import Stage
from baton.agents.chat_completions import ChatCompletionsAgent
from baton.agents.port import AgentLimits, AgentTool, AnswerForm, agent_stage
from baton.compression.summariser import Price
from baton.contract.session import EventType
from baton.contract.tools import ToolDeniedError
from baton.core.history import Spend
from baton.errors import PatchError
from baton.wire.fencing import FENCE_LABEL
from tests.chat_server import ChatServer, Reply, chat_server, completion, refusal
from tests.unit.integrations.material import PATCH, context, contract, events, lookup

KEY = "sk-plain-0123456789abcdef"
KEY_ENV = "BATON_TEST_MODELS_KEY"
GOOD = '{"baton_patch": {"decision_log": ["Keep sessions out, because they need a store"]}}'
CRM = AgentTool.of(lookup, name="crm.lookup")
CALL = completion(calls=[("crm_lookup", {"customer": "c-1"})])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the key where a worker has it."""
    monkeypatch.setenv(KEY_ENV, KEY)


def stage(server: ChatServer, **terms: Any) -> Stage[Any, Any]:
    """Return a stage whose agent asks a server."""
    names = ("model", "structured", "price", "parameters", "seconds", "mends")
    options = {name: terms.pop(name) for name in names if name in terms}
    agent = ChatCompletionsAgent(
        **{"name": "plan", "url": server.url, "model": "gpt-4o", "key_env": KEY_ENV, **options}
    )
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
        assert shape["json_schema"]["strict"] is False
        members = shape["json_schema"]["schema"]["properties"]["baton_patch"]["properties"]
        assert list(members) == ["decision_log"]

    @pytest.mark.parametrize(("structured", "asked"), [("json_object", {"type": "json_object"}), ("prompt", None)])
    async def test_an_endpoint_that_knows_no_schema_is_told_it_in_the_prompt(self, structured: str, asked: Any) -> None:
        """So that any endpoint will do."""
        with chat_server(completion(GOOD)) as server:
            await stage(server, structured=structured)(context())

        assert server.asked[0].body.get("response_format") == asked
        assert '"additionalProperties": false' in server.asked[0].body["messages"][1]["content"]

    async def test_the_key_is_in_the_header_and_the_handoff_beside_it(self) -> None:
        """The key is looked up when it is needed, by the name of its variable (S5-fields-a)."""
        with chat_server(completion(GOOD)) as server:
            made = stage(server)
            of = context()
            await made(of)

        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.asked[0].headers["x-baton-handoff-id"] == of.handoff_id
        assert KEY not in repr(made)

    async def test_parameters_of_ones_own_are_sent(self) -> None:
        """Whatever the endpoint knows."""
        with chat_server(completion(GOOD)) as server:
            await stage(server, parameters={"temperature": 0})(context())

        assert server.asked[0].body["temperature"] == 0

    @pytest.mark.parametrize(
        "url", ["http://models.example/v1", "ftp://models.example", "models.example", "https://key@models.example"]
    )
    def test_an_address_that_would_give_the_key_away_is_refused(self, url: str) -> None:
        """Where the agent is made."""
        with pytest.raises(ValueError, match="https"):
            ChatCompletionsAgent("plan", url, "m", key_env=KEY_ENV)

    @pytest.mark.parametrize(
        "url", ["http://localhost:port/v1", "http://[::1/v1", "https://models.example/v1\n", " http://localhost/v1"]
    )
    def test_an_address_that_no_request_can_go_to_is_refused(self, url: str) -> None:
        """Where the agent is made too: Temporal would run its stage again and again."""
        with pytest.raises(ValueError, match="an address is expected as https://host/path, without blanks"):
            ChatCompletionsAgent("plan", url, "m")

    async def test_a_worker_without_the_key_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the variable's name; another worker may have it."""
        monkeypatch.delenv(KEY_ENV)
        with chat_server() as server, pytest.raises(ApplicationError, match=f"has no '{KEY_ENV}'") as raised:
            await stage(server)(context())
        assert not raised.value.non_retryable
        assert server.asked == []


class TestConversation:
    """Tools, and answers that have to be mended."""

    async def test_tools_are_called_guarded_and_their_results_go_back(self) -> None:
        """Calls are recorded under the handoff, and every request is charged (S5-fields-a, S5-compiler-h)."""
        with chat_server(CALL, completion(GOOD)) as server:
            of = context()
            await stage(server, tools=[CRM])(of)
        asked, called, returned = server.asked[1].body["messages"][-3:]

        assert asked["role"] == "user"
        assert called["tool_calls"][0]["function"]["name"] == "crm_lookup"
        assert returned == {"role": "tool", "tool_call_id": "call_1", "content": "c-1 pays 20 USD"}
        assert events(of) == [(EventType.TOOL_CALL, "crm.lookup"), (EventType.TOOL_RESULT, "crm.lookup")]
        assert {one.handoff_id for one in of.session.events} == {of.handoff_id}
        assert of.charged == Spend(micro_usd=7_000, prompt_tokens=2_000, completion_tokens=200)

    async def test_a_model_is_told_what_it_is_not_sent_of_a_long_result(self) -> None:
        """It would take the first part for all there is."""
        export = AgentTool.of(lambda customer: "x" * 100_007, name="crm.lookup")
        with chat_server(CALL, completion(GOOD)) as server:
            await stage(server, tools=[export])(context())
        returned = server.asked[1].body["messages"][-1]["content"]

        assert returned == "x" * 100_000 + "\n[… 7 characters more are left out]"

    async def test_a_tool_that_is_not_allowed_is_neither_shown_nor_called(self) -> None:
        """The run ends, whatever the model was told (S5-fields-k)."""
        with chat_server(CALL) as server, pytest.raises(ToolDeniedError):
            await stage(server, tools=[CRM])(context(contract([])))

        assert "tools" not in server.asked[0].body

    @pytest.mark.parametrize(
        ("name", "arguments", "told"),
        [
            pytest.param("unheard_of", {}, "there is no tool 'unheard_of'; there is crm_lookup", id="an unknown tool"),
            pytest.param("crm_lookup", {"customer": 7}, "the arguments do not fit: customer:", id="a wrong type"),
            pytest.param("crm_lookup", [1], "expected as a JSON object", id="no object"),
        ],
    )
    async def test_a_call_that_cannot_be_made_is_told_to_the_model(self, name: str, arguments: Any, told: str) -> None:
        """It calls otherwise, or goes on without."""
        with chat_server(completion(calls=[(name, arguments)]), completion(GOOD)) as server:
            await stage(server, tools=[CRM])(context())

        assert told in server.asked[1].body["messages"][-1]["content"]

    async def test_the_forms_of_other_servers_are_read(self) -> None:
        """Some give a call's arguments as an object instead of its text, and a message in parts."""
        call, answer = completion(calls=[("crm_lookup", {})]), completion(None)
        call["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = {"customer": "c-1"}
        answer["choices"][0]["message"]["content"] = [
            {"type": "text", "text": GOOD[:9]},
            {"type": "text", "text": GOOD[9:]},
        ]
        with chat_server(call, answer) as server:
            result = await stage(server, tools=[CRM])(context())

        assert server.asked[1].body["messages"][-1]["content"] == "c-1 pays 20 USD"
        assert result.baton_patch == PATCH

    async def test_what_stands_beside_the_message_may_be_any_json(self) -> None:
        """A seed, a time in nanoseconds, or half a character in the message, which is made whole."""
        answer = {**completion(GOOD), "created": 1_763_700_000_123_456_789, "seed": 2**64 - 3, "note": "half \ud83d"}
        with chat_server(completion("Done! \ud83d"), answer) as server:
            result = await stage(server)(context())

        assert server.asked[1].body["messages"][-2]["content"] == "Done! \ufffd"
        assert result.baton_patch == PATCH

    async def test_what_a_model_thinks_aloud_is_a_note_and_no_part_of_its_answer(self) -> None:
        """Where its server leaves it in the text."""
        thinking = completion("<think>\nA {plan}?\n</think>", calls=[("crm_lookup", {"customer": "c-1"})])
        of = context()
        with chat_server(thinking, completion(f"<think>\nShort.\n</think>\n\n{GOOD}")) as server:
            result = await stage(server, tools=[CRM], mends=0)(of)

        assert result.baton_patch == PATCH
        said = [(one.type, one.content) for one in of.session.events if not one.tool_name]
        assert said == [(EventType.INTERNAL_NOTE, "A {plan}?"), (EventType.INTERNAL_NOTE, "Short.")]

    @pytest.mark.parametrize(
        ("before", "noted"), [("<think>\n\n</think>\n\n", []), ("A {plan}?\n</think>\n\n", ["A {plan}?"])]
    )
    async def test_a_thought_may_be_empty_or_lack_its_beginning(self, before: str, noted: list[str]) -> None:
        """So it is where a model is told not to think, and where its server begins the thought for it."""
        of = context()
        with chat_server(completion(before + GOOD)) as server:
            result = await stage(server, mends=0)(of)

        assert result.baton_patch == PATCH
        assert [one.content for one in of.session.events] == noted

    async def test_an_answer_that_speaks_of_thoughts_is_an_answer(self) -> None:
        """The mark in one of its texts ends nothing."""
        answer = GOOD.replace("sessions", "</think>")
        with chat_server(completion(answer)) as server:
            result = await stage(server, mends=0)(context())

        assert result.baton_patch == {"decision_log": ["Keep </think> out, because they need a store"]}

    async def test_a_long_thought_that_is_cut_off_is_a_malformed_answer(self) -> None:
        """It is read in no more time than another text of its length."""
        with chat_server(completion("<think>" + "why? " * 100_000), completion(GOOD)) as server:
            result = await stage(server)(context())

        assert result.baton_patch == PATCH

    async def test_a_malformed_answer_is_mended_in_the_same_conversation(self) -> None:
        """The model reads what is wrong with it."""
        with chat_server(completion("Done!"), completion(GOOD)) as server:
            result = await stage(server)(context())

        assert result.baton_patch == PATCH
        assert "is no JSON object" in server.asked[1].body["messages"][-1]["content"]

    async def test_an_empty_list_of_calls_is_not_sent_back(self) -> None:
        """Some endpoints send one with every message, and others refuse the conversation for it."""
        first = completion("Done!")
        first["choices"][0]["message"]["tool_calls"] = []
        with chat_server(first, completion(GOOD)) as server:
            await stage(server)(context())

        assert server.asked[1].body["messages"][-2] == {"role": "assistant", "content": "Done!"}

    async def test_one_that_stays_malformed_leads_to_another_attempt(self) -> None:
        """With the findings; Temporal is not asked for a retry."""
        with chat_server(completion("Done!"), completion("Done!")) as server, pytest.raises(PatchError):
            await stage(server)(context())
        assert server.left == []

    async def test_a_report_is_the_models_text(self) -> None:
        """No shape is asked for."""
        with chat_server(completion("## Agent Handoff Report\n")) as server:
            result = await stage(server, answers=AnswerForm.REPORT)(context())

        assert result.report == "## Agent Handoff Report\n"
        assert "response_format" not in server.asked[0].body

    @pytest.mark.parametrize(
        ("limits", "asked"),
        [
            pytest.param(AgentLimits(requests=2), 2, id="requests"),
            pytest.param(AgentLimits(tokens=2_000), 2, id="tokens"),
            pytest.param(AgentLimits(micro_usd=6_000), 2, id="money"),
            pytest.param(AgentLimits(micro_usd=0), 1, id="no money"),
        ],
    )
    async def test_a_limit_ends_the_run_for_good(self, limits: AgentLimits, asked: int) -> None:
        """Before the next request is made; without any money, once a request has cost some."""
        with chat_server(CALL, CALL, CALL) as server:
            with pytest.raises(ApplicationError, match="reached a limit") as raised:
                await stage(server, tools=[CRM], limits=limits)(context())
            assert len(server.asked) == asked
        assert raised.value.non_retryable


class TestCharge:
    """What a request costs."""

    async def test_a_price_of_ones_own_counts(self) -> None:
        """For a model that nobody else knows."""
        with chat_server(completion(GOOD)) as server:
            of = context()
            await stage(server, model="mine-1", price=Price(prompt=Decimal(1), completion=Decimal(10)))(of)

        assert of.charged == Spend(micro_usd=2_000, prompt_tokens=1_000, completion_tokens=100)

    @pytest.mark.parametrize("usage", [None, {"prompt_tokens": 10**30, "completion_tokens": 10**30}])
    async def test_an_endpoint_that_does_not_count_is_estimated(self, usage: dict[str, int] | None) -> None:
        """No request is free of tokens, nor has it so many that no handoff could tell of them."""
        with chat_server(completion(GOOD) | {"usage": usage}) as server:
            of = context()
            await stage(server)(of)

        assert 100 < of.charged.prompt_tokens < 10_000
        assert 10 < of.charged.completion_tokens < 1_000


class TestFailure:
    """What an endpoint may do wrong."""

    @pytest.mark.parametrize(
        ("status", "code", "permanent"),
        [
            pytest.param(307, "moved", True, id="a redirect, which the key does not follow"),
            pytest.param(400, "invalid_request", True, id="a refused request"),
            pytest.param(401, "invalid_api_key", True, id="a wrong key"),
            pytest.param(403, "forbidden", True, id="a key without the right"),
            pytest.param(404, "model_not_found", True, id="an unknown model"),
            pytest.param(429, "insufficient_quota", True, id="no money left"),
            pytest.param(408, "timeout", False, id="too slow a request"),
            pytest.param(429, "rate_limit_exceeded", False, id="too many requests"),
            pytest.param(500, "server_error", False, id="a fault of the endpoint"),
            pytest.param(503, "overloaded", False, id="an overload"),
            pytest.param(521, "web_server_down", False, id="a gateway whose server is down"),
        ],
    )
    async def test_only_what_may_pass_is_tried_again(self, status: int, code: str, permanent: bool) -> None:
        """The text has the status and the code, and no word of the endpoint."""
        reply = refusal(status, code, f"Incorrect API key provided: {KEY[:-1]}", Location="http://127.0.0.1:9/")
        with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
            await stage(server)(context())

        assert raised.value.non_retryable is permanent
        assert f"answered {status} ({code})" in str(raised.value)
        assert ("a redirect, which is not followed" in str(raised.value)) is (status == 307)
        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [
            pytest.param("7", 7, id="in seconds"),
            pytest.param("7.5", 7.5, id="in parts of a second"),
            pytest.param("{date}", 3_600, id="as a date"),
            pytest.param("Wed, 21 Oct 2015 07:28:00 GMT", None, id="a date in the past"),
            pytest.param("0", None, id="at once"),
            pytest.param("99999999999999", 366 * 86_400, id="never"),
            pytest.param("soon", None, id="neither"),
            pytest.param("Thu, 31 Dec 99999999999999999999 23:59:59 GMT", None, id="a year that is none"),
        ],
    )
    async def test_the_endpoint_says_when_to_ask_again(self, header: str, seconds: float | None) -> None:
        """Temporal waits that long before the next run, and as long as the stage's retries say at the least."""
        date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
        reply = refusal(429, "rate_limit_exceeded", **{"Retry-After": header.format(date=date)})
        with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
            await stage(server)(context())

        delay = raised.value.next_retry_delay
        assert (delay and delay.total_seconds()) == (seconds and pytest.approx(seconds, abs=60 if "{" in header else 0))

    async def test_an_endpoint_may_say_it_in_milliseconds(self) -> None:
        """As OpenAI and Azure do, beside whole seconds."""
        reply = refusal(429, "rate_limit_exceeded", **{"Retry-After-Ms": "1500", "Retry-After": "2"})
        with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
            await stage(server)(context())

        assert raised.value.next_retry_delay == timedelta(milliseconds=1_500)

    async def test_more_from_the_cache_than_was_read_is_charged_as_read(self) -> None:
        """Some endpoints count so; the request is paid."""
        answer = completion('{"baton_patch": {}}', read=1_000, written=0)
        answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 1_024}
        of = context()
        with chat_server(answer) as server:
            await stage(server)(of)

        assert of.charged.prompt_tokens == 1_000
        assert of.charged.micro_usd > 0

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b'{"choices": [', id="half a JSON text"),
            pytest.param(b"<html>", id="a page"),
            pytest.param({"choices": []}, id="no choice"),
            pytest.param({"choices": [{"message": {"tool_calls": [{"id": 1}]}}]}, id="a call without a name"),
        ],
    )
    async def test_a_malformed_answer_is_tried_again(self, body: Any) -> None:
        """It is the endpoint's fault, not the model's."""
        with chat_server(Reply(body)) as server, pytest.raises(ApplicationError, match="no") as raised:
            await stage(server)(context())

        assert not raised.value.non_retryable

    @pytest.mark.parametrize(
        ("error", "told", "permanent"),
        [
            pytest.param({"code": 502, "message": "of key-1"}, "answered 502$", False, id="a status that may pass"),
            pytest.param({"code": "insufficient_quota"}, r"answered 500 \(insufficient_quota\)$", True, id="no money"),
            pytest.param({"code": 403}, "answered 403$", True, id="a status that stays"),
        ],
    )
    async def test_a_gateways_error_in_a_success_is_one(self, error: Any, told: str, permanent: bool) -> None:
        """It failed once it had begun to answer; nobody's tokens are counted."""
        of = context()
        with chat_server({"error": error}) as server, pytest.raises(ApplicationError, match=told) as raised:
            await stage(server)(of)

        assert raised.value.non_retryable is permanent
        assert not of.charged

    async def test_one_that_never_ends_is_left_at_the_deadline(self) -> None:
        """A byte now and then does not keep the stage."""
        with chat_server(Reply(b"{", slow=True)) as server, pytest.raises(ApplicationError, match="in time") as raised:
            await stage(server, seconds=0.2)(context())
        assert not raised.value.non_retryable

    async def test_a_run_whose_tool_takes_too_long_ends_in_its_time(self) -> None:
        """So that it still tells its bill."""

        async def waits(customer: str) -> None:
            await asyncio.Event().wait()

        crm, of = AgentTool.of(waits, name="crm.lookup"), context()
        with chat_server(CALL) as server, pytest.raises(ApplicationError, match="an end within 2 s") as raised:
            async with asyncio.timeout(60):
                await stage(server, tools=[crm], limits=AgentLimits(seconds=2.0))(of)
        assert not raised.value.non_retryable
        assert of.charged.prompt_tokens == 1_000

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
        with pytest.raises(ApplicationError, match="cannot be reached") as raised:
            await stage(server)(context())
        assert not raised.value.non_retryable

    async def test_a_content_filter_is_final(self) -> None:
        """The same words would be filtered again."""
        reply = completion(None, finish="content_filter")
        with chat_server(reply) as server, pytest.raises(ApplicationError, match="content filter") as raised:
            await stage(server)(context())
        assert raised.value.non_retryable
