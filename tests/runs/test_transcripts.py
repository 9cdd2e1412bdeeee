"""What agents were asked and answered, read back from a run: each attempt, also one that failed, for a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import BatonPlugin, MemoryArtifactStore, Pipeline, Retries, WorkerParts, pipeline
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.client import ReadTranscript, explain
from baton.client.faces import ArtifactStore, moments, read_transcripts
from baton.devserver import DevServer
from baton.errors import AgentError
from baton.testing import assert_replays, pipeline_worker
from tests.support import Handle, start

THOUGHT = "The first answer that comes to mind."


class Careless:
    """An agent whose first answer breaks a rule."""

    name = "draft"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Think, and answer rightly once told what was wrong."""
        work.context.session.internal_note(f"{THOUGHT} {len(work.findings)}")
        return AgentAnswer(patch={"current_state": ["Drafted"] if work.findings else "not a list"})


class Broken:
    """An agent that fails after it thought."""

    name = "breaks"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Think, and fail for good."""
        work.context.session.internal_note(THOUGHT)
        raise AgentError("the provider is gone", permanent=True)


class Quiet(Careless):
    """An agent of which nothing is kept."""

    name = "quiet"


drafting, breaking = agent_stage(Careless(), notes=False), agent_stage(Broken(), retries=Retries(attempts=1))
quiet = agent_stage(Quiet(), notes=False, transcript="off")


@pipeline
async def drafts(p: Pipeline) -> object:
    """Run the stages that the parameter names."""
    stages = {"draft": drafting, "breaks": breaking, "quiet": quiet}
    for name in p.params["stages"]:
        await p.stage(stages[str(name)])
    return None


@asynccontextmanager
async def working(server: DevServer, store: ArtifactStore, **parts: Any) -> AsyncIterator[Worker]:
    """Return a worker with a store."""
    plugin = BatonPlugin(WorkerParts(artifacts=store, **parts), safeguards="off")
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [drafts], [drafting, breaking, quiet]) as worker:
        yield worker


async def run_stages(worker: Worker, *stages: str) -> Handle:
    """Run stages to their end."""
    handle = await start(worker, drafts, stages=[*stages])
    try:
        await handle.result()
    except WorkflowFailureError:
        assert "breaks" in stages
    return handle


async def read(worker: Worker, store: ArtifactStore, handle: Handle, stage: str) -> list[ReadTranscript]:
    """Return the transcripts of a stage."""
    explanation = await explain(worker.client, handle.id, stage)
    return await read_transcripts(store, explanation.transcripts)


def thoughts(transcript: ReadTranscript) -> list[str]:
    """Return what an agent thought in an attempt."""
    assert transcript.transcript is not None
    found = moments(transcript.transcript)
    return [text for moment in found if moment.title == "thought" for _, text in moment.texts]


async def test_each_attempt_has_its_own(server: DevServer) -> None:
    """Also one that was refused; the history has no word of it."""
    store = MemoryArtifactStore()
    async with working(server, store) as worker:
        handle = await run_stages(worker, "draft")
        first, second = await read(worker, store, handle, "draft")
        history = await handle.fetch_history()

    assert (thoughts(first), thoughts(second)) == ([f"{THOUGHT} 0"], [f"{THOUGHT} 1"])
    assert second.transcript is not None
    assert "current_state" in second.transcript.messages[-1].text  # the finding, which its prompt quotes
    assert THOUGHT not in history.to_json()
    await assert_replays(handle, [drafts], plugin=BatonPlugin(safeguards="off"))


async def test_one_that_failed_is_there_too(server: DevServer) -> None:
    """It is asked for most."""
    store = MemoryArtifactStore()
    async with working(server, store) as worker:
        handle = await run_stages(worker, "draft", "breaks")
        [failed] = await read(worker, store, handle, "breaks")

    assert thoughts(failed) == [THOUGHT]


@pytest.mark.parametrize("stage", ["draft", "quiet"])
async def test_what_is_off_is_not_kept(server: DevServer, stage: str) -> None:
    """By the worker for all its stages, or by a stage for itself."""
    store = MemoryArtifactStore()
    async with working(server, store, **({"transcripts": None} if stage == "draft" else {})) as worker:
        handle = await run_stages(worker, stage)

        assert await read(worker, store, handle, stage) == []
        assert store._blobs == {}


async def test_after_its_time_it_is_not_shown(server: DevServer) -> None:
    """Whoever has the artifact."""
    store = MemoryArtifactStore()
    async with working(server, store, transcripts=timedelta(microseconds=1)) as worker:
        handle = await run_stages(worker, "draft")
        [*_, expired] = await read(worker, store, handle, "draft")

    assert expired.transcript is None
    assert expired.missing.startswith("it was kept until ")


async def test_a_store_without_it_says_so(server: DevServer) -> None:
    """As of another deployment."""
    async with working(server, MemoryArtifactStore()) as worker:
        handle = await run_stages(worker, "draft")
        [*_, lost] = await read(worker, MemoryArtifactStore(), handle, "draft")

    assert lost.missing.startswith("it is not in this artifact store: ")


def test_a_stage_says_one_of_three() -> None:
    """A misspelt word would keep what was to be off."""
    with pytest.raises(ValueError, match="transcript is 'none'; expected one of kept, sealed, off"):
        agent_stage(Careless(), transcript="none")  # type: ignore[arg-type]
