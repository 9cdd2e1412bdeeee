"""The recorded answers of tools come from the stage's transcript, where the history has only what they claim."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import MemoryArtifactStore, PipelineInput
from baton.lab import Case, read_cases
from baton.testing import pipeline_worker, run_pipeline
from tests.lab.conftest import WatchedStore
from tests.lab.letters import LETTER, kept_stage, letters, silent_stage


@pytest.fixture
async def reading(sealed: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(sealed, [letters], [kept_stage, silent_stage]) as worker:
        yield worker


async def case_of(worker: Worker, stage: str, store: MemoryArtifactStore) -> Case:
    """Return the case of a stage of a new run, read with a store."""
    run = await run_pipeline(worker, letters, PipelineInput(goal="Read"), id=f"letters-{uuid4().hex[:6]}")
    [case] = await read_cases(worker.client, run.handle.id, stage, store=store)
    return case


async def test_a_result_is_whole_as_the_transcript_has_it(reading: Worker, kept: WatchedStore) -> None:
    case = await case_of(reading, "keeps", kept)
    [call] = case.tool_calls
    assert (call.result, call.shown, case.dropped) == (LETTER, '{"number":7}', [])


@pytest.mark.parametrize("stage", ["keeps", "silent"])
async def test_what_no_transcript_has_is_dropped_and_said(reading: Worker, kept: WatchedStore, stage: str) -> None:
    """A claim is no answer: the transcript is in another store, or the stage keeps none."""
    case = await case_of(reading, stage, MemoryArtifactStore() if stage == "keeps" else kept)
    assert case.tool_calls == []
    [dropped] = case.dropped
    assert "letter" in dropped
