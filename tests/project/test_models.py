"""The configured model is asked in the shape that was asked for, its answers are paid, and its words are data."""

from typing import Any

import pytest
from pydantic import BaseModel

from activities.models import ask_model, configured_model
from baton import Baton, Spend, StageContext
from baton.agents import AgentLimits, AgentWork, AnswerForm
from baton.errors import AgentError, PatchError
from tests.chat_server import Reply, chat_server, completion


class Words(BaseModel):
    """What these tests ask for."""

    words: list[str]


def work_of(context: StageContext[Baton]) -> AgentWork:
    """Return an agent's work in a context."""
    return AgentWork(
        prompt=context.prompt,
        instructions="",
        tools=(),
        form=AnswerForm.PATCH,
        schema=None,
        limits=AgentLimits(),
        withheld=frozenset(),
        context=context,
    )


def configure(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Set some of the variables, and delete the others."""
    for name in ("URL", "MODEL", "KEY", "PROMPT_PRICE", "COMPLETION_PRICE"):
        monkeypatch.delenv(f"BATON_LLM_{name}", raising=False)
    for name, value in values.items():
        monkeypatch.setenv(f"BATON_LLM_{name}", value)


async def ask(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> tuple[Words | None, StageContext[Baton], Any]:
    """Ask a server for words about a text."""
    context = StageContext.for_test(Baton(goal="Find words"))
    with chat_server(reply) as server:
        url = server.url.removesuffix("/chat/completions")
        configure(monkeypatch, URL=url, MODEL="small", KEY="sk-secret", PROMPT_PRICE="1", COMPLETION_PRICE="10")
        answer = await ask_model(work_of(context), "Name its words.", {"text": "a SECRET-MARK b"}, Words)
        return answer, context, server


async def test_without_a_model_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller then works by its rules."""
    configure(monkeypatch)
    assert await ask_model(work_of(StageContext.for_test(Baton(goal="g"))), "Do.", {}, Words) is None


def test_wrong_settings_are_refused_for_good() -> None:
    """The error names the variable."""
    members = {"BATON_LLM_URL": "https://models.example/v1", "BATON_LLM_MODEL": "small", "BATON_LLM_KEY": "k"}
    assert configured_model("plan", members) is not None
    for wrong, named in (
        ({"BATON_LLM_KEY": ""}, "BATON_LLM_KEY"),
        ({"BATON_LLM_URL": "http://models.example/v1"}, "BATON_LLM_URL"),
        ({"BATON_LLM_PROMPT_PRICE": "cheap"}, "BATON_LLM_PROMPT_PRICE"),
    ):
        with pytest.raises(AgentError, match=named) as raised:
            configured_model("plan", {**members, **wrong})
        assert raised.value.permanent


async def test_data_is_in_the_user_turn_and_the_answer_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only our words are in the system turn (X-6), and the bill is at the environment's price."""
    body = '{"baton_patch": {}, "output": {"words": ["a", "b"]}}'
    answer, context, server = await ask(monkeypatch, Reply(completion(body, read=1_000, written=100)))
    assert answer == Words(words=["a", "b"])
    assert context.charged == Spend(micro_usd=2_000, prompt_tokens=1_000, completion_tokens=100)
    [asked] = server.asked
    system, user = asked.body["messages"]
    assert "SECRET-MARK" not in system["content"]
    assert "SECRET-MARK" in user["content"]


async def test_a_refusal_is_permanent_and_an_overload_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither error has the key."""
    for status, permanent in ((401, True), (503, False)):
        with pytest.raises(AgentError) as raised:
            await ask(monkeypatch, Reply(b"no", status=status))
        assert raised.value.permanent is permanent
        assert "sk-secret" not in str(raised.value)


async def test_another_shape_is_refused_and_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has one chance to mend it in the same conversation; every answer is charged."""
    context = StageContext.for_test(Baton(goal="Find words"))
    with chat_server(completion("I am done!"), completion('{"baton_patch": {}}')) as server:
        url = server.url.removesuffix("/chat/completions")
        configure(monkeypatch, URL=url, MODEL="small", KEY="sk-secret", PROMPT_PRICE="1")
        with pytest.raises(PatchError):
            await ask_model(work_of(context), "Name its words.", {}, Words)
    assert context.charged.micro_usd == 2_000
