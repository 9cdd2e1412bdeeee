"""The compression step: the choice of the model, its cost, and its failures."""

from decimal import Decimal

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from baton import Spend, WorkerParts
from baton.agents import Usage
from baton.compression.rules import (
    CompressInput,
    ContextTooLargeError,
    Summariser,
    Summary,
    SummaryFailedError,
    read_summary,
)
from baton.core.turns import Turn
from baton.pipelines.activity_compression import compress, compress_history
from baton.pipelines.activity_parts import worker_parts
from baton.wire.money import Price
from tests.compression.golden import history

GOLDEN = history(10_000)
UPSTREAM = Spend(micro_usd=100_000, prompt_tokens=10_000, completion_tokens=2_000)
GIVEN = CompressInput(turns=GOLDEN.turns, window=10_000, upstream=UPSTREAM)
CHEAP = Price(input=Decimal("0.10"), output=Decimal("0.40"))
BILL = Spend(micro_usd=1_100, prompt_tokens=9_000, completion_tokens=400)


class Scribe:
    """A scripted model that keeps its prompts."""

    def __init__(self, answer: Summary | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, prompt: str, max_tokens: int) -> Summary:
        self.asked.append((prompt, max_tokens))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def scribe(text: str = "They read the agreement.", spend: Spend = BILL) -> Scribe:
    return Scribe(Summary(text=text, spend=spend))


class TestCompressHistory:
    async def test_the_agents_own_cheap_model_writes_it(self) -> None:
        """Its actual cost is charged (S3-6.4-c, S3-9-c, S3-9-d, S3-9-e)."""
        model = scribe()
        result = await compress_history(GIVEN, Summariser(model, CHEAP))

        assert read_summary(result.summary)[0] == "They read the agreement."
        assert (result.spend, result.fallback_reason, result.warnings) == (BILL, None, [])

    async def test_it_is_asked_for_the_oldest_turns_and_not_for_the_newest(self) -> None:
        """With the rules of preservation and the length limit (S3-6.4-b, S3-6.4-f)."""
        model = scribe()
        await compress_history(GIVEN, Summariser(model, CHEAP))
        ((prompt, max_tokens),) = model.asked

        assert max_tokens == 1_000
        assert all(turn.content in prompt for turn in GOLDEN.turns[:-5])
        assert not any(turn.content in prompt for turn in GOLDEN.turns[-5:])
        assert "every flag or warning that was raised" in prompt

    async def test_no_two_prompts_share_a_nonce(self) -> None:
        """The speakers cannot know the end of the fence (S3-10.1)."""
        model = scribe()
        for _ in range(2):
            await compress_history(GIVEN, Summariser(model, CHEAP))

        assert model.asked[0] != model.asked[1]

    async def test_a_history_that_fits_is_unchanged(self) -> None:
        """No model is asked, nothing is charged (S3-6.4-a)."""
        model = scribe()
        request = GIVEN.model_copy(update={"window": 100_000, "summary": "Before."})
        result = await compress_history(request, Summariser(model, CHEAP))

        assert (result.summary, result.verbatim, result.spend) == ("Before.", GOLDEN.turns, Spend())
        assert (result.compressed, result.before_tokens, model.asked) == (False, result.after_tokens, [])

    async def test_a_dear_model_is_not_asked(self) -> None:
        """It would cost five per cent or more, so the rules write the summary, with the reason (S3-9-d, S3-9-e)."""
        model = scribe()
        dear = Price(input=Decimal(3), output=Decimal(15))
        result = await compress_history(GIVEN, Summariser(model, dear))

        assert model.asked == []
        assert result.spend == Spend()
        assert result.fallback_reason is not None
        assert "not under 5 %" in result.fallback_reason

    @pytest.mark.parametrize("price", ["0.10", "0.30", "1", "3"])
    async def test_the_cost_stays_under_five_per_cent(self, price: str) -> None:
        """For any price, if the model charges the estimate (S3-9-d)."""
        tariff = Price(input=Decimal(price), output=Decimal(price) * 4)

        async def model(prompt: str, max_tokens: int) -> Summary:
            return Summary(
                text="x", spend=Spend(micro_usd=tariff.micro_usd(Usage(input=len(prompt) // 4, output=max_tokens)))
            )

        result = await compress_history(GIVEN, Summariser(model, tariff))

        assert result.spend.micro_usd * 20 < UPSTREAM.micro_usd
        assert result.warnings == []

    async def test_a_model_that_costs_more_than_announced_is_charged_and_reported(self) -> None:
        """It has to be paid all the same (S3-9-b, S3-9-d)."""
        result = await compress_history(GIVEN, Summariser(scribe(spend=Spend(micro_usd=5_000)), CHEAP))

        assert result.spend.micro_usd == 5_000
        assert result.warnings == ["the summary cost 0.005 USD, which is not under 5 % of the 0.1 USD upstream"]

    @pytest.mark.parametrize(
        ("answer", "reason", "spend"),
        [
            pytest.param(
                TimeoutError("secret words"), "the model for summaries failed with TimeoutError", Spend(), id="raises"
            ),
            pytest.param(
                SummaryFailedError("refused", BILL),
                "the model for summaries failed: refused",
                BILL,
                id="is to be paid",
            ),
            pytest.param(
                Summary(text=" \n", spend=BILL),
                "the model for summaries answered with nothing",
                BILL,
                id="says nothing",
            ),
        ],
    )
    async def test_a_model_that_fails_fails_no_handoff(
        self, answer: Summary | Exception, reason: str, spend: Spend
    ) -> None:
        """The rules write the summary, the reason is recorded, and the cost charged (S3-6.4-c, S3-9-b, S3-11-c)."""
        result = await compress_history(GIVEN, Summariser(Scribe(answer), CHEAP))
        by_rules = await compress_history(GIVEN)

        assert (result.summary, result.verbatim) == (by_rules.summary, by_rules.verbatim)
        assert (result.fallback_reason, result.spend) == (reason, spend)

    async def test_without_a_model_the_rules_write_it(self) -> None:
        """No key is needed to run a pipeline (S3-6.4-d)."""
        result = await compress_history(GIVEN)

        assert result.fallback_reason == "no model for summaries is set up"
        assert sum(len(line.text) for line in read_summary(result.summary)[1]) > 200
        assert (result.replaced, len(result.verbatim)) == (len(GOLDEN.turns) - 5, 5)


class TestCompress:
    async def test_it_uses_the_workers_model_and_counter(self) -> None:
        """The worker's model and the worker's counter (S3-9-e, S3-5.1-b)."""
        model = scribe()
        parts = WorkerParts(summariser=Summariser(model, CHEAP), counter=lambda text: len(text) // 2)
        with worker_parts(parts):
            result = await ActivityEnvironment().run(compress, GIVEN.model_copy(update={"window": 20_000}))

        assert len(model.asked) == 1
        assert result.before_tokens > 16_000 >= result.after_tokens

    async def test_a_history_that_cannot_fit_is_not_retried(self) -> None:
        """A retry would not fit either (C-19)."""
        request = CompressInput(turns=[Turn(content="x")], window=100, other_tokens=99)
        with worker_parts(WorkerParts()), pytest.raises(ApplicationError, match="window of 100") as caught:
            await ActivityEnvironment().run(compress, request)

        assert caught.value.non_retryable
        assert caught.value.type == ContextTooLargeError.__name__
