"""Task 4: two agents, and an approval with a form and a deadline."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from baton import PipelineInput
from baton.testing import Reply, assert_replays, run_pipeline


@pytest.fixture
def article(load: Any, script: Any) -> Any:
    script.answers[:] = ["A draft.", "An article."]
    return load("article", "task04")


async def run(article: Any, baton_worker: Any, decision: Any, client: Any = None) -> Any:
    stages = [article.write, article.edit, article.publish]
    async with baton_worker([article.article], stages, client=client) as worker:
        start = PipelineInput(goal="Write about Temporal")
        decisions = {} if decision is None else {"editor": decision}
        return await run_pipeline(worker, article.article, start, within=timedelta(days=30), decisions=decisions)


async def test_what_is_approved_is_published_under_its_headline(article: Any, baton_worker: Any, script: Any) -> None:
    ended = await run(article, baton_worker, Reply(True, {"headline": "It lasts"}))
    assert ended.result.output == {"published": True, "headline": "It lasts"}
    assert ended.baton.current_state == ["Published"]
    [artifact] = ended.baton.artifacts
    assert (artifact.id, artifact.type) == ("article", "article")
    assert artifact.hash == hashlib.sha256(b"It lasts\n\nAn article.").hexdigest()
    assert "A draft." in script.prompts[1]
    await assert_replays(ended.handle, [article.article])


async def test_the_editor_sees_the_article(article: Any, baton_worker: Any) -> None:
    seen: list[Any] = []

    def decide(question: Any) -> Reply:
        seen.append(question)
        return Reply(True, {"headline": "It lasts"})

    await run(article, baton_worker, decide)
    [question] = seen
    assert question.asks == "Publish this article?"
    assert ("article", "An article.") in [(shown.title, shown.text) for shown in question.shows]
    assert question.until - question.since == timedelta(days=2)
    assert list(question.form["properties"]) == ["headline"]


async def test_a_no_publishes_nothing(article: Any, baton_worker: Any) -> None:
    ended = await run(article, baton_worker, False)
    assert ended.result.output == {"published": False, "why": "denied"}
    assert ended.baton.artifacts == []


async def test_silence_publishes_nothing(article: Any, baton_worker: Any, baton_time: Any) -> None:
    ended = await run(article, baton_worker, None, baton_time.client)
    assert ended.result.output == {"published": False, "why": "too late"}
    assert ended.baton.artifacts == []
