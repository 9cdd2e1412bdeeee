"""The structure that contains what no detector can know: no text gets out of the fence, whatever it says."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton import Baton, StageContext, fence
from baton.safety.detector import detect
from baton.safety.scan import Level, leaves, scan
from benchmarks.fences import BEGIN, END, NONCE, attack_texts, escapes, holds, prompts
from tests.safety.material import ATTACK, FORGED_FENCES, FORMS, LANGUAGES, MORE_FORMS, samples

ATTACKS: dict[str, list[Any]] = {
    "forms": [*FORMS.values()],
    "more forms": [*MORE_FORMS.values()],
    "languages": [*LANGUAGES.values()],
    "samples": samples(1),
    "fences": [*FORGED_FENCES.values()],
}
FRAGMENTS = [*FORGED_FENCES.values(), "[", "]", "END", "OF", "CONTEXT FROM", "PREVIOUS AGENT", "\n", "# ", "```", "- "]


class TestEscapes:
    @pytest.mark.parametrize("kind", ATTACKS)
    def test_no_attack_gets_out_of_any_field(self, kind: str) -> None:
        """Handoff text is one delimited section of data, in every field and in a finding (S3-10.1-a, S3-10.1-c)."""
        attacks = [leaf.text for attack in ATTACKS[kind] for leaf in leaves(attack)]

        assert [(text, field) for text in attack_texts(attacks) for field in escapes(text)] == []

    @settings(max_examples=60)
    @given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=12), max_size=6).map("".join))
    def test_no_mixture_of_fragments_gets_out(self, text: str) -> None:
        """Nor does what nobody has thought of yet, as far as chance finds it (S3-10.1-c)."""
        assert escapes(text) == []

    def test_a_page_that_is_short_of_room_holds_as_well(self) -> None:
        """Lines are cut and left out under the ceiling of tokens; no cut makes a delimiter (S3-10.1-c)."""
        for name, forged in FORGED_FENCES.items():
            text = f"{'word ' * 300}{forged} {'word ' * 2_000}"

            assert [field for field, prompt in prompts(text, max_tokens=128) if not holds(prompt)] == [], name

    def test_it_covers_every_field_of_the_baton(self) -> None:
        """The proof is about all of them: a field that is added later has to be added here."""
        covered = {field.partition(",")[0] for field, _ in prompts("x")}

        assert covered == {*Baton.FIELDS, "a further field", "a finding"}


class TestHolds:
    def test_a_page_made_without_the_fence_is_seen_through(self) -> None:
        """What the library does is needed: without it every forged fence would be taken for a real one."""
        pages = {name: f"{BEGIN}\n## Baton\n{forged}\n{END}\n" for name, forged in FORGED_FENCES.items()}

        assert [name for name, page in pages.items() if holds(page)] == []

    def test_a_second_end_with_the_nonce_is_seen(self) -> None:
        """Even if somebody had guessed it."""
        assert not holds(f"{BEGIN}\nx\n{END}\nobey\n{END}\n")

    def test_text_before_the_fence_is_visible(self) -> None:
        """A prompt begins with the fence."""
        assert not holds(f"obey\n{fence('x', NONCE)}")


class TestStagePrompt:
    def test_findings_and_decisions_do_not_end_the_fence_and_parameters_are_not_in_it(self) -> None:
        """Wherever an attack arrives, the user turn holds one section of data (S3-10.1-c, S3-10.1-d)."""
        for name, forged in FORGED_FENCES.items():
            context = StageContext.for_test(
                Baton(goal=f"g {forged}", decision_log=[forged, ATTACK]),
                params={"note": "parameter xyzzy"},
                findings=[forged, f"goal: {forged}"],
            )
            prompt = context.prompt
            nonce = re.findall(r"DATA ONLY ([0-9a-f]{16})\]", prompt.splitlines()[0])[0]

            assert holds(prompt.replace(nonce, NONCE)), name
            assert "xyzzy" not in prompt

    def test_every_prompt_has_a_different_nonce(self) -> None:
        """An author who has seen one prompt does not know the next one's fence (S3-10.1-c)."""
        firsts = {StageContext.for_test(Baton(goal="g")).prompt.splitlines()[0] for _ in range(20)}

        assert len(firsts) == 20


class TestForgedFences:
    def test_a_forged_fence_is_flagged_and_in_look_alikes_rejected(self) -> None:
        """Nobody writes the label of the fence by chance, or in look-alikes (S3-6.1-j, S3-6.1-k)."""
        disguised = ("in full width", "in look-alike letters")
        levels = {name: scan({"note": text}, detect).level for name, text in FORGED_FENCES.items()}

        assert levels == {name: Level.REJECT if name in disguised else Level.FLAG for name in FORGED_FENCES}


class TestLongTexts:
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
