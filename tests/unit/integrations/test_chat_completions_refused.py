"""Answers of a plain endpoint that are not taken: what is said of them, and what they cost."""

from decimal import Decimal
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from baton.compression.summariser import Price
from baton.core.history import Spend
from tests.chat_server import Reply, chat_server, completion, refusal
from tests.unit.integrations.material import PATCH, context
from tests.unit.integrations.test_chat_completions import GOOD, KEY, KEY_ENV, stage


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the key where a worker has it."""
    monkeypatch.setenv(KEY_ENV, KEY)


class TestRefused:
    """`ChatCompletionsAgent`, of an answer that it does not take."""

    @pytest.mark.parametrize(
        ("reply", "status", "paid"),
        [
            pytest.param(refusal(401, KEY, f"wrong: {KEY}"), 401, 0, id="an error"),
            pytest.param(completion(GOOD, model=KEY), 200, 1_100, id="a success"),
        ],
    )
    async def test_an_answer_that_repeats_the_key_is_not_taken(self, reply: Any, status: int, paid: int) -> None:
        """It would carry the key into the history; what it cost is charged."""
        of = context()
        with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
            await stage(server, price=Price(prompt=Decimal(1), completion=Decimal(1)))(of)

        assert f"answered {status} and repeats the key" in str(raised.value)
        assert KEY not in str(raised.value)
        assert raised.value.non_retryable
        assert of.charged.micro_usd == paid

    async def test_a_word_that_stands_for_a_key_may_stand_in_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in each one of a server of one's own, which names itself."""
        monkeypatch.setenv(KEY_ENV, "ollama")
        with chat_server({**completion(GOOD), "system_fingerprint": "fp_ollama"}) as server:
            assert (await stage(server)(context())).baton_patch == PATCH

    async def test_an_error_that_tells_what_was_used_is_charged(self) -> None:
        """As gateways send it that fail after the model has answered."""
        of, reply = context(), {**completion(), "choices": [], "error": {"code": 502}}
        with chat_server(reply) as server, pytest.raises(ApplicationError, match="answered 502"):
            await stage(server)(of)

        assert of.charged == Spend(micro_usd=3_500, prompt_tokens=1_000, completion_tokens=100)

    async def test_a_page_of_another_address_says_what_to_look_at(self) -> None:
        """As a proxy's, or a server's own; it may also be a fault that passes."""
        page = Reply(b"<html>Welcome</html>", headers={"Content-Type": "text/html"})
        with chat_server(page) as server, pytest.raises(ApplicationError, match="see whether 'url' is that") as raised:
            await stage(server)(context())

        assert raised.value.non_retryable is False
