"""Task 3: agents with a typed answer, with a text, and with notes that travel."""

from typing import Any

import pytest

from baton import PipelineInput
from baton.testing import run_pipeline

FACTS = {
    "output": {"customer": "Ada", "pays_usd": 20},
    "decided": ["Offer a year, because Ada stays"],
    "rejected": ["Give it away"],
}
TEXT = """Dear Ada, a year is 240 USD.

```baton
decided: Name the yearly price first, because it is asked for
open: Does Ada want an invoice?
```"""


@pytest.fixture
def offer(load: Any) -> Any:
    return load("offer", "task03")


async def run(offer: Any, baton_worker: Any) -> Any:
    start = PipelineInput(goal="Write an offer", params={"customer": "Ada Lovelace"})
    async with baton_worker([offer.offer], [offer.research, offer.price, offer.write]) as worker:
        return await run_pipeline(worker, offer.offer, start)


async def test_the_offer_is_written(offer: Any, baton_worker: Any, script: Any) -> None:
    script.answers[:] = [FACTS, TEXT]
    ended = await run(offer, baton_worker)
    assert ended.result.output == {"yearly_usd": 240, "offer": "Dear Ada, a year is 240 USD."}
    assert ended.step_names == ["research", "price", "write"]


async def test_notes_are_in_the_baton(offer: Any, baton_worker: Any, script: Any) -> None:
    script.answers[:] = [FACTS, TEXT]
    ended = await run(offer, baton_worker)
    assert ended.baton.decision_log == [
        "Offer a year, because Ada stays",
        "Name the yearly price first, because it is asked for",
    ]
    assert ended.baton.open_questions == ["Does Ada want an invoice?"]


async def test_each_agent_sees_what_it_needs(offer: Any, baton_worker: Any, script: Any) -> None:
    script.answers[:] = [FACTS, TEXT]
    await run(offer, baton_worker)
    first, second = script.prompts
    assert "Ada Lovelace" in first
    assert "pays_usd: 20" in second
    assert "240" in second
    assert "because Ada stays" in second
    assert "Give it away" not in second
    assert not any("Lovelace" in instructions for instructions in script.instructions)


async def test_an_answer_of_another_type_is_corrected(offer: Any, baton_worker: Any, script: Any) -> None:
    script.answers[:] = [{"output": {"customer": "Ada", "pays_usd": "a lot"}}, FACTS, TEXT]
    ended = await run(offer, baton_worker)
    assert ended.result.output["yearly_usd"] == 240
