"""The compression step: which model writes, what it may cost, and what happens when it fails."""

from decimal import Decimal

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from baton.compression.activity import compress, compress_history
from baton.compression.rules import (
    CompressInput,
    ContextTooLargeError,
    Summariser,
    Summary,
    SummaryFailedError,
    read_summary,
)
from baton.core.history import Spend
from baton.handoff.records import Turn
from baton.pipelines.activity_context import WorkerParts, worker_parts
from baton.wire.money import Price, Usage
from tests.compression.golden import history

GOLDEN = history(10_000)
UPSTREAM = Spend(micro_usd=100_000, prompt_tokens=10_000, completion_tokens=2_000)
GIVEN = CompressInput(turns=GOLDEN.turns, window=10_000, upstream=UPSTREAM)
CHEAP = Price(input=Decimal("0.10"), output=Decimal("0.40"))
BILL = Spend(micro_usd=1_100, prompt_tokens=9_000, completion_tokens=400)


class Scribe:
    """A model that answers as it is told, and remembers what it was asked."""

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
        """And it is charged what it really cost (S3-6.4-c, S3-9-c, S3-9-d, S3-9-e)."""
        model = scribe()
        made = await compress_history(GIVEN, Summariser(model, CHEAP))

        assert read_summary(made.summary)[0] == "They read the agreement."
        assert (made.spend, made.fallback_reason, made.warnings) == (BILL, None, [])

    async def test_it_is_asked_for_the_oldest_turns_and_not_for_the_newest(self) -> None:
        """With the rules of preservation, and how long it may be (S3-6.4-b, S3-6.4-f)."""
        model = scribe()
        await compress_history(GIVEN, Summariser(model, CHEAP))
        ((prompt, most),) = model.asked

        assert most == 1_000
        assert all(turn.content in prompt for turn in GOLDEN.turns[:-5])
        assert not any(turn.content in prompt for turn in GOLDEN.turns[-5:])
        assert "every flag or warning that was raised" in prompt

    async def test_no_two_prompts_have_one_nonce(self) -> None:
        """Who spoke cannot know how the fence ends (S3-10.1)."""
        model = scribe()
        for _ in range(2):
            await compress_history(GIVEN, Summariser(model, CHEAP))

        assert model.asked[0] != model.asked[1]

    async def test_what_fits_is_left_alone(self) -> None:
        """No model is asked, nothing is charged (S3-6.4-a)."""
        model = scribe()
        given = GIVEN.model_copy(update={"window": 100_000, "summary": "Before."})
        made = await compress_history(given, Summariser(model, CHEAP))

        assert (made.summary, made.verbatim, made.spend) == ("Before.", GOLDEN.turns, Spend())
        assert (made.compressed, made.before_tokens, model.asked) == (False, made.after_tokens, [])

    async def test_a_dear_model_is_not_asked(self) -> None:
        """It would cost five per cent or more, so the rules write the summary, and it says so (S3-9-d, S3-9-e)."""
        model = scribe()
        dear = Price(input=Decimal(3), output=Decimal(15))
        made = await compress_history(GIVEN, Summariser(model, dear))

        assert model.asked == []
        assert made.spend == Spend()
        assert made.fallback_reason is not None
        assert "not under 5 %" in made.fallback_reason

    @pytest.mark.parametrize("price", ["0.10", "0.30", "1", "3"])
    async def test_what_is_paid_stays_under_five_per_cent(self, price: str) -> None:
        """For any price, when the model charges what was estimated (S3-9-d)."""
        tariff = Price(input=Decimal(price), output=Decimal(price) * 4)

        async def model(prompt: str, max_tokens: int) -> Summary:
            return Summary(
                text="x", spend=Spend(micro_usd=tariff.micro_usd(Usage(input=len(prompt) // 4, output=max_tokens)))
            )

        made = await compress_history(GIVEN, Summariser(model, tariff))

        assert made.spend.micro_usd * 20 < UPSTREAM.micro_usd
        assert made.warnings == []

    async def test_a_model_that_costs_more_than_it_said_is_paid_and_reported(self) -> None:
        """A bill is a fact (S3-9-b, S3-9-d)."""
        made = await compress_history(GIVEN, Summariser(scribe(spend=Spend(micro_usd=5_000)), CHEAP))

        assert made.spend.micro_usd == 5_000
        assert made.warnings == ["the summary cost 0.005 USD, which is not under 5 % of the 0.1 USD upstream"]

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
        """The rules write the summary, it says why, and what was paid is charged (S3-6.4-c, S3-9-b, S3-11-c)."""
        made = await compress_history(GIVEN, Summariser(Scribe(answer), CHEAP))
        by_rules = await compress_history(GIVEN)

        assert (made.summary, made.verbatim) == (by_rules.summary, by_rules.verbatim)
        assert (made.fallback_reason, made.spend) == (reason, spend)

    async def test_without_a_model_the_rules_write_it(self) -> None:
        """No key is needed to run a pipeline (S3-6.4-d)."""
        made = await compress_history(GIVEN)

        assert made.fallback_reason == "no model for summaries is set up"
        assert sum(len(line.text) for line in read_summary(made.summary)[1]) > 200
        assert (made.replaced, len(made.verbatim)) == (len(GOLDEN.turns) - 5, 5)


class TestCompress:
    async def test_it_uses_what_the_worker_provides(self) -> None:
        """The worker's model and the worker's counter (S3-9-e, S3-5.1-b)."""
        model = scribe()
        parts = WorkerParts(summariser=Summariser(model, CHEAP), counter=lambda text: len(text) // 2)
        with worker_parts(parts):
            made = await ActivityEnvironment().run(compress, GIVEN.model_copy(update={"window": 20_000}))

        assert len(model.asked) == 1
        assert made.before_tokens > 16_000 >= made.after_tokens

    async def test_what_cannot_fit_is_not_tried_again(self) -> None:
        """The same history would not fit the next time (C-19)."""
        given = CompressInput(turns=[Turn(content="x")], window=100, other_tokens=99)
        with worker_parts(WorkerParts()), pytest.raises(ApplicationError, match="window of 100") as caught:
            await ActivityEnvironment().run(compress, given)

        assert caught.value.non_retryable
        assert caught.value.type == ContextTooLargeError.__name__
