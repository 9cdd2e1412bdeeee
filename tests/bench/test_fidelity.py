"""Fidelity: what the first agent of a chain decides, finds and forbids is in the prompt of the fifth."""

from baton.agents.notes import INSTRUCTIONS
from baton.compression.store_tokens import exact_counter
from baton.core.notes import split_notes
from benchmarks.chains import ADAPTERS
from benchmarks.fidelity import figures, run_chains, transcript
from benchmarks.planted import ROLES, find_planted, script
from benchmarks.report import GOALS
from benchmarks.rig import Rig


class TestPlanted:
    def test_the_transcript_has_all_of_it_from_the_first_agent_alone(self) -> None:
        """Else a prompt could have it from elsewhere; thoughts stand there as they were said."""
        first, others = script(ROLES[0]), [script(role) for role in ROLES[1:]]
        rest = "\n".join(
            [*(step.output for other in others for step in other.steps), *(o.closing(INSTRUCTIONS) for o in others)]
        )

        assert find_planted(transcript()) == find_planted(
            "\n".join(f"{step.said}\n{step.output}" for step in first.steps)
        )
        assert find_planted(transcript()).decisions == find_planted(transcript()).numbers == 1
        assert find_planted(transcript()).thoughts_as_facts == 5
        assert find_planted(rest) == find_planted("")

    def test_a_model_closes_with_notes_only_if_it_is_asked(self) -> None:
        """And then with all of them, in a form that is read back."""
        first = script(ROLES[0])

        assert first.closing("Do it.") == first.text
        assert split_notes(first.closing(f"Do it.\n{INSTRUCTIONS}")) == (first.text, first.notes)


class TestFidelity:
    async def test_the_fifth_agent_knows_it_with_a_twentieth_of_the_tokens(self) -> None:
        """With and without contracts, through one adapter on a real server; nothing is passed on by hand."""
        async with Rig() as rig:
            prompts = await run_chains(rig, ADAPTERS[:1])
        values = figures([*prompts.values()], exact_counter()(transcript()))

        assert len(prompts) == 2
        assert [name for name, value in values.items() if not GOALS[name].met_by(value)] == []
