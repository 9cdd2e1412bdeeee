"""The golden set: whatever is compressed, and whoever writes the summary, nothing that matters is lost."""

import pytest

from baton.compression.rules import Compressed, CompressInput, cut_to, plan
from tests.compression.golden import LANGUAGES, LENGTHS, Golden, history

TONGUES = [*((tongue,) for tongue in LANGUAGES), LANGUAGES]


def compressed(given: CompressInput, narrative: str | None = None) -> Compressed:
    """Return a compressed history whose narrative is the given one, or the rules' own."""
    made = plan(given)
    assert made is not None
    return made.finish(narrative)


def lost(golden: Golden, made: Compressed, *, shortened: bool = False) -> list[str]:
    """Return what was planted and is not in the compressed history, word for word."""
    text = "\n".join([made.summary, *(turn.content for turn in made.verbatim)])
    numbers = [value if shortened else sentence for sentence, value in golden.numbers]
    return [planted for planted in [*golden.verbatim, *numbers] if planted not in text]


@pytest.mark.parametrize("languages", TONGUES, ids="-".join)
@pytest.mark.parametrize("tokens", LENGTHS)
class TestGoldenSet:
    def test_nothing_is_lost_when_rules_write_the_summary(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Decisions, constraints, flags and numbers are there word for word (S3-7.1.3-b, S3-11-c, S3-6.4-c, S3-2-b)."""
        golden = history(tokens, languages=languages)

        assert lost(golden, compressed(CompressInput(turns=golden.turns, window=tokens))) == []

    def test_nothing_is_lost_when_a_model_forgets_everything(self, tokens: int, languages: tuple[str, ...]) -> None:
        """What must survive does not rest on the model (S3-11-c, S3-6.4-f)."""
        golden = history(tokens, languages=languages)
        made = compressed(CompressInput(turns=golden.turns, window=tokens), "All went well.")

        assert lost(golden, made) == []
        assert made.summary.startswith("All went well.\n")

    def test_it_fits_the_receiver(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Compression fires, the result is under the threshold and the summary says something (S3-13.2-c, C-19)."""
        golden = history(tokens, languages=languages)
        given = CompressInput(turns=golden.turns, window=tokens, other_tokens=800)
        made = compressed(given)

        assert made.before_tokens > given.allowed >= made.after_tokens
        assert given.model_copy(update={"turns": made.verbatim, "summary": made.summary}).tokens() == made.after_tokens
        assert made.verbatim == golden.turns[-5:]
        assert len(made.summary.split("\n")[0]) > 20

    def test_it_fits_a_small_receiver(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Into a third of the room: what is around numbers gives way, the numbers do not (C-19, S3-11-c)."""
        golden = history(tokens, languages=languages)
        given = CompressInput(turns=golden.turns, window=max(3_000, tokens // 4))
        made = compressed(given)

        assert made.after_tokens <= given.allowed
        assert lost(golden, made, shortened=True) == []

    def test_nothing_is_lost_on_a_chain_of_agents(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Each agent adds a part and compresses again what it was given (S3-11-c, S3-6.4-d)."""
        golden = history(tokens, languages=languages)
        size = len(golden.turns) // 4 + 1
        given = CompressInput(turns=[], window=max(3_000, tokens // 3))
        made: Compressed | None = None
        for start in range(0, len(golden.turns), size):
            before = made.verbatim if made else []
            turns = [*before, *golden.turns[start : start + size]]
            given = given.model_copy(update={"turns": turns, "summary": made.summary if made else ""})
            planned = plan(given)
            if planned is None:
                made = Compressed(summary=given.summary, verbatim=turns, before_tokens=0, after_tokens=0)
            else:
                made = planned.finish(cut_to("What a model wrote. " * 99, 200))

        assert made is not None
        assert given.model_copy(update={"turns": made.verbatim, "summary": made.summary}).tokens() <= given.allowed
        assert lost(golden, made, shortened=True) == []

    def test_it_does_the_same_again(self, tokens: int, languages: tuple[str, ...]) -> None:
        """The rules throw no dice, and a replayed plan is the same plan."""
        given = CompressInput(turns=history(tokens, languages=languages).turns, window=tokens)

        assert compressed(given) == compressed(CompressInput.model_validate_json(given.model_dump_json()))

    def test_what_is_compressed_need_not_be_again(self, tokens: int, languages: tuple[str, ...]) -> None:
        given = CompressInput(turns=history(tokens, languages=languages).turns, window=tokens)
        made = compressed(given)

        assert plan(given.model_copy(update={"turns": made.verbatim, "summary": made.summary})) is None


class TestGenerator:
    @pytest.mark.parametrize("tokens", LENGTHS)
    def test_every_kind_is_planted(self, tokens: int) -> None:
        """A golden set with nothing in it would prove nothing (S3-11-c)."""
        golden = history(tokens, languages=LANGUAGES)

        assert min(len(golden.decisions), len(golden.constraints), len(golden.flags), len(golden.numbers)) >= 3
        assert golden == history(tokens, languages=LANGUAGES)
