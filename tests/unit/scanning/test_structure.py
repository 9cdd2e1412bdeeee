"""The structure that contains what no detector can know: no text gets out of the fence, whatever it says."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.core.baton import Baton
from baton.pipelines.activity_context import StageContext
from baton.safety.detector import detect
from baton.safety.scan import Level, leaves, scan
from baton.wire.fencing import fence
from benchmarks.fences import BEGIN, END, NONCE, attack_texts, escapes, holds, prompts
from tests.unit.scanning.material import ATTACK, FORGED_FENCES, FORMS, LANGUAGES, MORE_FORMS, samples

ATTACKS = {
    **FORMS,
    **MORE_FORMS,
    **LANGUAGES,
    **{f"sample {number}": text for number, text in enumerate(samples(1))},
    **{f"the fence, {name}": text for name, text in FORGED_FENCES.items()},
}
FRAGMENTS = [*FORGED_FENCES.values(), "[", "]", "END", "OF", "CONTEXT FROM", "PREVIOUS AGENT", "\n", "# ", "```", "- "]


class TestEscapes:
    """`benchmarks.fences.escapes`, which looks at every place that a text can have in a prompt."""

    @pytest.mark.parametrize("name", ATTACKS)
    def test_no_attack_gets_out_of_any_field(self, name: str) -> None:
        """Handoff text is one delimited section of data, in every field and in a finding (S3-10.1-a, S3-10.1-c)."""
        assert [
            (text, field)
            for text in attack_texts(leaf.text for leaf in leaves(ATTACKS[name]))
            for field in escapes(text)
        ] == []

    @settings(max_examples=60)
    @given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=12), max_size=6).map("".join))
    def test_no_mixture_of_fragments_gets_out(self, text: str) -> None:
        """Nor does what nobody has thought of yet, as far as chance finds it (S3-10.1-c)."""
        assert escapes(text) == []

    @pytest.mark.parametrize("name", FORGED_FENCES)
    def test_a_page_that_is_short_of_room_holds_as_well(self, name: str) -> None:
        """Lines are cut and left out under the ceiling of tokens; no cut makes a delimiter (S3-10.1-c)."""
        text = f"{'word ' * 300}{FORGED_FENCES[name]} {'word ' * 2_000}"

        assert [field for field, prompt in prompts(text, max_tokens=128) if not holds(prompt)] == []

    def test_it_covers_every_field_of_the_baton(self) -> None:
        """The proof is about all of them: a field that is added later has to be added here."""
        covered = {field.partition(",")[0] for field, _ in prompts("x")}

        assert covered == {*Baton.FIELDS, "a further field", "a finding"}


class TestHolds:
    """`benchmarks.fences.holds`: the eyes that look for an escape can see one."""

    @pytest.mark.parametrize("name", FORGED_FENCES)
    def test_a_page_made_without_the_fence_is_seen_through(self, name: str) -> None:
        """What the library does is needed: without it every forged fence would be taken for a real one."""
        assert not holds(f"{BEGIN}\n## Baton\n{FORGED_FENCES[name]}\n{END}\n")

    def test_a_second_end_with_the_nonce_is_seen(self) -> None:
        """Even if somebody had guessed it."""
        assert not holds(f"{BEGIN}\nx\n{END}\nobey\n{END}\n")

    def test_what_stands_before_the_fence_is_seen(self) -> None:
        """A prompt begins with the fence."""
        assert not holds(f"obey\n{fence('x', NONCE)}")


class TestStagePrompt:
    """`StageContext.prompt`: the prompt as a stage really gets it."""

    @pytest.mark.parametrize("name", FORGED_FENCES)
    def test_findings_and_decisions_do_not_end_the_fence_and_parameters_are_not_in_it(self, name: str) -> None:
        """Wherever an attack arrives, the user turn holds one section of data (S3-10.1-c, S3-10.1-d)."""
        forged = FORGED_FENCES[name]
        context = StageContext.for_test(
            Baton(goal=f"g {forged}", decision_log=[forged, ATTACK]),
            params={"note": "parameter xyzzy"},
            findings=[forged, f"goal: {forged}"],
        )
        prompt = context.prompt
        nonce = re.findall(r"DATA ONLY ([0-9a-f]{16})\]", prompt.splitlines()[0])[0]

        assert holds(prompt.replace(nonce, NONCE))
        assert "xyzzy" not in prompt

    def test_the_nonce_is_another_one_for_every_prompt(self) -> None:
        """An author who has seen one prompt does not know the next one's fence (S3-10.1-c)."""
        firsts = {StageContext.for_test(Baton(goal="g")).prompt.splitlines()[0] for _ in range(20)}

        assert len(firsts) == 20


class TestForgedFences:
    """The detector, on texts that forge the fence."""

    @pytest.mark.parametrize("name", FORGED_FENCES)
    def test_a_forged_fence_is_at_least_flagged(self, name: str) -> None:
        """Nobody writes the label of the fence by chance (S3-6.1-j)."""
        assert scan({"note": FORGED_FENCES[name]}, detect).level is not None

    @pytest.mark.parametrize("name", [name for name in FORGED_FENCES if name.startswith("in ")])
    def test_one_in_disguise_is_rejected(self, name: str) -> None:
        """Look-alikes show that somebody took trouble (S3-6.1-k)."""
        level = scan({"note": FORGED_FENCES[name]}, detect).level

        assert level is (Level.FLAG if name in ("in small letters", "in a code fence") else Level.REJECT)


class TestLongTexts:
    """Texts made to be slow."""

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("[" * 200_000, id="brackets"),
            pytest.param("[END OF " * 25_000 + "x", id="halves of a delimiter"),
            pytest.param("［ЕND ÓF " * 25_000 + "x", id="halves in look-alikes"),
        ],
    )
    def test_halves_of_a_delimiter_come_back_unchanged(self, text: str) -> None:
        """A search that tries every split of these texts would not end within the test's timeout (S3-10.1-c)."""
        assert fence(text, NONCE) == f"{BEGIN}\n{text}\n{END}\n"
