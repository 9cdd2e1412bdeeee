"""An agent that answers with a text instead of a patch."""

import pytest

from baton import Baton, PatchError, StageContext
from baton.agents import AgentAnswer, AgentWork, AnswerForm, agent_stage


class Says:
    """An agent whose model said something."""

    name = "says"

    def __init__(self, text: str) -> None:
        self._said = text

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer."""
        assert work.schema is None
        assert "answer with the text" in work.user_turn()
        return work.read(self._said)


async def test_the_whole_answer_is_the_output() -> None:
    """Also where it looks like a patch: nothing in it is applied."""
    text = '{"baton_patch": {"goal": "Another"}}\n'
    result = await agent_stage(Says(text), answers=AnswerForm.TEXT)(StageContext.for_test(Baton(goal="Write")))

    assert (result.output, result.baton_patch) == (text, {})


async def test_no_text_is_a_finding() -> None:
    """The agent is asked again, and told why."""
    with pytest.raises(PatchError, match="answer with the text that was asked for"):
        await agent_stage(Says("  \n"), answers=AnswerForm.TEXT)(StageContext.for_test(Baton(goal="Write")))
