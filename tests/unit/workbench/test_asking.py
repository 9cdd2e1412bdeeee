"""A model is asked only where one is configured, in the shape that was asked for, and its words are data."""

from typing import Any

import pytest
from pydantic import BaseModel

from activities.workbench.asking import ModelError, ModelRefusedError, configured_model
from baton import Baton, Spend, StageContext
from tests.unit.contract_review.material import chat_service


class Answer(BaseModel):
    """What these tests ask for."""

    words: list[str]


def configure(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Set the variables, and take away the others."""
    for name in ("URL", "MODEL", "KEY", "PROMPT_PRICE", "COMPLETION_PRICE"):
        monkeypatch.delenv(f"BATON_LLM_{name}", raising=False)
    for name, value in values.items():
        monkeypatch.setenv(f"BATON_LLM_{name}", value)


async def ask(monkeypatch: pytest.MonkeyPatch, answers: Any) -> tuple[Answer, StageContext[Baton], Any]:
    """Ask a service for words about a text."""
    context = StageContext.for_test(Baton(goal="Find words"))
    with chat_service(answers) as service:
        configure(monkeypatch, URL=service.url, MODEL="small", KEY="sk-secret", COMPLETION_PRICE="10")
        model = configured_model()
        assert model is not None
        return await model.ask(context, "Name its words.", {"text": "a SECRET-MARK b"}, Answer), context, service


class TestConfiguredModel:
    """Which model a worker has."""

    def test_is_none_without_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then everything is done by rules."""
        configure(monkeypatch)
        assert configured_model() is None

    def test_refuses_half_a_configuration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It names what is missing; waiting will not mend it."""
        configure(monkeypatch, MODEL="small")
        with pytest.raises(ModelRefusedError, match="set BATON_LLM_URL, BATON_LLM_KEY too"):
            configured_model()


class TestAsk:
    """One question."""

    async def test_puts_data_into_the_user_turn_and_charges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only our words are in the system turn (X-6), and the bill is at the environment's price."""
        answers = {"answer": {"baton_patch": {}, "output": {"words": ["a", "b"]}}}
        answer, context, service = await ask(monkeypatch, answers)
        assert answer.words == ["a", "b"]
        assert context.charged == Spend(micro_usd=2_000, prompt_tokens=1_000, completion_tokens=200)
        [(_, headers, body)] = service.asked
        system, user = body["messages"]
        assert "SECRET-MARK" not in system["content"]
        assert "SECRET-MARK" in user["content"]
        assert headers["Authorization"] == "Bearer sk-secret"

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param("I am done!", id="prose"),
            pytest.param({"baton_patch": {}, "output": {"words": "a"}}, id="another shape"),
            pytest.param({"baton_patch": {}}, id="no output"),
        ],
    )
    async def test_refuses_another_shape(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        """Another attempt may help, so the error is one that is tried again."""
        with pytest.raises(ModelError, match=r"'small' did not answer in the shape 'Answer'"):
            await ask(monkeypatch, {"answer": answer})

    async def test_tells_a_refusal_from_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wrong key is not tried again, an overloaded service is; neither error has the key."""
        for status, body, kind in ((401, b"no: sk-secret", ModelRefusedError), (503, b"later", ModelError)):
            with pytest.raises(kind) as raised:
                await ask(monkeypatch, lambda _, answer=(status, body): answer)
            assert "sk-secret" not in str(raised.value)
