"""What may be taken from a model's answer: concerns that rest on facts, and nothing that lets an e-mail pass."""

from typing import Any

import pytest
from pydantic import SecretStr

from activities.compliance_review.chat import Consultation, HttpChatModel, ModelAnswerError, ModelSettings
from activities.compliance_review.deciding import undecided
from activities.compliance_review.records import Concern
from activities.compliance_review.refining import concerns_of
from tests.unit.compliance_review.service import chat_service

FACTS = {"e1": "The e-mail goes to 1 at acme.example; 0 addresses are unreadable."}


async def asked(answer: Any) -> tuple[tuple[Concern, ...], str]:
    """Return the concerns in a model's answer, and the prompt that it was given."""
    with chat_service({"Concerns": answer}) as service:
        settings = ModelSettings(url=service.url, model="small", key=SecretStr("sk-secret"))
        talk = Consultation(HttpChatModel(settings), "the contract")
        concerns = await concerns_of(talk, undecided("h-1", "nobody decided"), FACTS)
        return concerns, service.prompts()[0]


class TestConcernsOf:
    """Reading an answer."""

    @pytest.mark.parametrize(
        ("doubt", "kept"),
        [
            pytest.param({"text": "One recipient only.", "facts": ["e1"]}, True, id="rests on a fact"),
            pytest.param({"text": "I feel uneasy.", "facts": []}, False, id="rests on nothing"),
            pytest.param({"text": "So it says.", "facts": ["e1", "e2"]}, False, id="rests on what is not there"),
        ],
    )
    async def test_keeps_what_rests_on_facts(self, doubt: dict[str, Any], kept: bool) -> None:
        """A concern without a fact, or with one that nobody stated, is dropped (S5-prob-h)."""
        concerns, prompt = await asked({"concerns": [doubt]})
        assert [one.text for one in concerns] == ([doubt["text"]] if kept else [])
        assert FACTS["e1"] in prompt

    async def test_refuses_another_answer(self) -> None:
        """What is no list of concerns leads to another attempt, and never to consent."""
        with pytest.raises(ModelAnswerError):
            await asked({"verdict": "approved"})

    async def test_takes_ten_at_most(self) -> None:
        """A model that finds something in everything fills no report."""
        concerns, _ = await asked({"concerns": [{"text": f"No. {at}", "facts": ["e1"]} for at in range(40)]})
        assert len(concerns) == 10
