"""The token counts: that what is counted is what receivers read, and how the figures are made of it."""

import pytest

from baton.contract.records import EventType
from benchmarks.report import GOALS
from benchmarks.sessions import MODEL_CALLS, work
from benchmarks.tokens import _BEGAN, Inherited, chain, figures


def inherited(transcript: int, contract: int, own: tuple[int, ...] = (10, 20, 5)) -> Inherited:
    """Return what a stage inherits, with what matters here."""
    return Inherited(
        transcript=transcript, baton=0, contract=contract, facts=0, report=0, with_input=2 * contract, own=own
    )


class TestWork:
    def test_every_message_of_the_conversation_is_there(self) -> None:
        """Each of fifteen answers calls a tool, whose result is the next message; the last one is the stage's."""
        session = work(3, _BEGAN, len, sentences=False)

        assert len(session.messages) == 2 * (MODEL_CALLS - 1) + 1
        assert all(session.messages)
        assert session.messages[-1].startswith('{"baton_patch"')

    @pytest.mark.parametrize("sentences", [pytest.param(True, id="stated"), pytest.param(False, id="by itself")])
    def test_the_session_has_what_the_conversation_has(self, sentences: bool) -> None:
        """What tools returned is counted whole, and what does not cross is part of it."""
        session = work(3, _BEGAN, len, sentences=sentences)
        results = [event for event in session.log.events if event.type is EventType.TOOL_RESULT]

        assert [event.tokens for event in results] == [len(text) for text in session.messages[1::2]]
        assert {event.type for event in session.log.events} >= {EventType.BRAINSTORM, EventType.INTERNAL_NOTE}
        assert max(event.at for event in session.log.events if event.at) < session.ended

    def test_stages_read_other_files(self) -> None:
        """Stages that all read the same files would not be a realistic chain."""
        first, second = (work(seq, _BEGAN, len, sentences=False) for seq in (1, 2))

        assert not set(first.messages[1::2]) & set(second.messages[1::2])


class TestChain:
    async def test_a_transcript_is_all_that_was_said_before(self) -> None:
        """Nothing is left out of the transcript and nothing counted twice."""
        stages = await chain(3, sentences=False)

        assert [stage.transcript for stage in stages] == [0, sum(stages[0].own), sum(stages[0].own + stages[1].own)]

    async def test_a_contract_comes_with_its_baton(self) -> None:
        """What is counted as the contract is the whole prompt of the stage: contract and baton."""
        stages = await chain(2, sentences=True)

        assert stages[0].facts == 0
        assert stages[1].facts > 0
        assert all(stage.contract > stage.baton > 300 for stage in stages)


class TestFigures:
    def test_each_request_reads_all_that_was_said_before(self) -> None:
        """The first request reads what is inherited, the second one the first answer and its tool's result too."""
        assert inherited(0, 0).loop(100) == 100 + 130

    def test_they_are_ratios_of_what_is_read(self) -> None:
        """Of transcripts to contracts at the fifth and twentieth stage, and in the loops of the first five."""
        stages = [inherited(1_000 * seq, 100) for seq in range(20)]

        assert figures(stages) == {
            "tokens_vs_transcript_stage5": 40.0,
            "tokens_vs_transcript_stage20": 190.0,
            "tokens_with_inputs_stage5": 20.0,
            "tokens_whole_loop_ratio": pytest.approx((2 * 10_000 + 150) / (5 * 230)),
            "tokens_growth_stage20_vs_stage5": 1.0,
        }
        assert figures(stages).keys() <= GOALS.keys()
