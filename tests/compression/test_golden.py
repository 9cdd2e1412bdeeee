"""The golden set: whatever is compressed, and whoever writes the summary, nothing that matters is lost."""

import pytest

from baton.compression.rules import Compressed, CompressInput, cut_to, plan
from tests.compression.golden import LANGUAGES, LENGTHS, Golden, history

TONGUES = [*((tongue,) for tongue in LANGUAGES), LANGUAGES]


def compressed(request: CompressInput, narrative: str | None = None) -> Compressed:
    """Return a compressed history whose narrative is the given one, or the rules' own."""
    planned = plan(request)
    assert planned is not None
    return planned.finish(narrative)


def lost(golden: Golden, result: Compressed) -> list[str]:
    """Return what was planted and is not in the compressed history, word for word."""
    text = "\n".join([result.summary, *(turn.content for turn in result.verbatim)])
    return [
        planted for planted in [*golden.verbatim, *(sentence for sentence, _ in golden.numbers)] if planted not in text
    ]


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
        result = compressed(CompressInput(turns=golden.turns, window=tokens), "All went well.")

        assert lost(golden, result) == []
        assert result.summary.startswith("All went well.\n")

    def test_it_fits_the_receiver(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Compression fires, the result is under the threshold and the summary says something (S3-13.2-c, C-19)."""
        golden = history(tokens, languages=languages)
        request = CompressInput(turns=golden.turns, window=tokens, other_tokens=800)
        result = compressed(request)

        assert result.before_tokens > request.allowed >= result.after_tokens
        assert (
            request.model_copy(update={"turns": result.verbatim, "summary": result.summary}).tokens()
            == result.after_tokens
        )
        assert result.verbatim == golden.turns[-5:]
        assert len(result.summary.split("\n")[0]) > 20

    def test_it_fits_a_small_receiver(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Into a third of the room (C-19, S3-11-c)."""
        golden = history(tokens, languages=languages)
        request = CompressInput(turns=golden.turns, window=max(3_000, tokens // 4))
        result = compressed(request)

        assert result.after_tokens <= request.allowed
        assert lost(golden, result) == []

    def test_nothing_is_lost_on_a_chain_of_agents(self, tokens: int, languages: tuple[str, ...]) -> None:
        """Each agent adds a part and compresses again what it was given (S3-11-c, S3-6.4-d)."""
        golden = history(tokens, languages=languages)
        size = len(golden.turns) // 4 + 1
        request = CompressInput(turns=[], window=max(3_000, tokens // 3))
        result: Compressed | None = None
        for start in range(0, len(golden.turns), size):
            verbatim = result.verbatim if result else []
            turns = [*verbatim, *golden.turns[start : start + size]]
            request = request.model_copy(update={"turns": turns, "summary": result.summary if result else ""})
            planned = plan(request)
            if planned is None:
                result = Compressed(summary=request.summary, verbatim=turns, before_tokens=0, after_tokens=0)
            else:
                result = planned.finish(cut_to("What a model wrote. " * 99, 200))

        assert result is not None
        assert (
            request.model_copy(update={"turns": result.verbatim, "summary": result.summary}).tokens() <= request.allowed
        )
        assert lost(golden, result) == []

    def test_it_does_the_same_again(self, tokens: int, languages: tuple[str, ...]) -> None:
        """The rules throw no dice, and a replayed plan is the same plan."""
        request = CompressInput(turns=history(tokens, languages=languages).turns, window=tokens)

        assert compressed(request) == compressed(CompressInput.model_validate_json(request.model_dump_json()))

    def test_a_compressed_history_needs_no_second_compression(self, tokens: int, languages: tuple[str, ...]) -> None:
        request = CompressInput(turns=history(tokens, languages=languages).turns, window=tokens)
        result = compressed(request)

        assert plan(request.model_copy(update={"turns": result.verbatim, "summary": result.summary})) is None


class TestGenerator:
    @pytest.mark.parametrize("tokens", LENGTHS)
    def test_every_kind_is_planted(self, tokens: int) -> None:
        """A golden set with nothing in it would prove nothing (S3-11-c)."""
        golden = history(tokens, languages=LANGUAGES)

        assert min(len(golden.decisions), len(golden.constraints), len(golden.flags), len(golden.numbers)) >= 3
        assert golden == history(tokens, languages=LANGUAGES)
