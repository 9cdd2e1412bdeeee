"""Nothing is shortened silently: what agents see, on a real server (issue 33)."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import BatonPlugin, MemoryArtifactStore, PipelineInput, Safeguards, WorkerParts
from baton.client import explain, read_run
from baton.devserver import DevServer
from baton.testing import assert_replays, pipeline_worker, run_pipeline
from tests.pipelines import prompt_pipelines as they
from tests.pipelines.prompt_pipelines import FOUND, LOG, PIPELINES, PROMPTS, READ, STAGES

START = PipelineInput(goal="Write about batons", baton={"constraints": ["Cite every source"]})


@pytest.fixture(scope="module")
def plugin(safeguards: Safeguards) -> BatonPlugin:
    """Return a plugin with safeguards and a store."""
    return BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)


@pytest.fixture(scope="module")
async def worker(server: DevServer, plugin: BatonPlugin) -> AsyncIterator[Worker]:
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


async def test_a_tools_result_reaches_the_next_agent_in_full(worker: Worker, plugin: BatonPlugin) -> None:
    """A page of 3,000 characters is a fact; of a longer log, the agent reads the rest itself."""
    READ.clear()
    run = await run_pipeline(worker, they.learns, START)
    explained = await explain(worker.client, run.handle.id, "digest")

    assert FOUND.strip() in PROMPTS["digest"]
    assert "(960 of 40,000 characters) (read the rest with `read_artifact`, id '3.collect.2')" in PROMPTS["inspect"]
    assert READ[0] == {"id": "3.collect.2", "characters": 40_000, "offset": 39_990, "text": f"{39_990:<10}"}
    assert "is named in your handoff" in str(READ[1])
    assert [(part.name, part.tokens, part.shown, part.why) for part in explained.prompt] == [
        (part.name, part.tokens, part.tokens, "") for part in explained.prompt
    ]
    assert sum(part.shown for part in explained.prompt) <= explained.tokens_read
    await assert_replays(run.handle, PIPELINES, plugin=plugin)


async def test_shortened_parts_are_named_everywhere(worker: Worker, plugin: BatonPlugin) -> None:
    """In the prompt, the history and the explanation; rules and a short input are complete."""
    READ.clear()
    run = await run_pipeline(worker, they.shortens, START)
    record = await read_run(worker.client, run.handle.id)
    explanation = await explain(worker.client, run.handle.id, "edit")
    notice = next(line for line in PROMPTS["edit"].splitlines() if line.startswith("Input draft: "))[6:]

    assert notice.endswith(" of 40,000 characters; read the rest with `read_artifact`")
    assert "- Cite every source" in PROMPTS["edit"]
    assert READ[0] == {"id": "draft", "characters": 40_000, "offset": 39_990, "text": f"{39_990:<10}"}
    assert record.state.entries[0].warnings == [f"the prompt had no room for all: {notice}"]
    assert [(part.name, part.tokens > part.shown, part.why) for part in explanation.prompt] == [
        ("contract", False, ""),
        ("baton", False, ""),
        ("input draft", True, notice),
        ("input style", False, ""),
    ]
    assert f"tokens; {notice}" in explanation.to_markdown().replace("\\", "")
    await assert_replays(run.handle, PIPELINES, plugin=plugin)


async def test_required_parts_that_do_not_fit_fail_without_cost(worker: Worker) -> None:
    """The agent is not called, the stage is not retried, and the error has the sizes."""
    with pytest.raises(WorkflowFailureError) as raised:
        await run_pipeline(worker, they.insists, START)

    message = str(raised.value.cause)
    assert "PromptTooLargeError: the prompt may have " in message
    assert "constraints 5, input draft 10,00" in message
    assert "strict" not in PROMPTS
    assert len(LOG) == 40_000


async def test_a_wrong_answer_names_the_field_and_the_rule(worker: Worker) -> None:
    """In the agent's next prompt, and in the error when its attempts are used up."""
    with pytest.raises(WorkflowFailureError) as raised:
        await run_pipeline(worker, they.errs, START)

    rule = "'/baton_patch/acceptance' is not of type \"array\""
    assert rule in PROMPTS["careless"].partition("Why Your Last Answer Was Rejected")[2]
    assert "was refused 2 times" in str(raised.value.cause)
    assert rule in str(raised.value.cause)
