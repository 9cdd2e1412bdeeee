"""What an agent says or answers without a label is never shown to the next agent as known."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, PipelineInput, Safeguards, StageContext, WorkerParts, open_store
from baton.client import explain
from baton.contract import workflow as contract_workflow
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest
from baton.contract.validation import validate_contract
from baton.contract.workflow import MAX_CONTRACT_TOKENS
from baton.devserver import DevServer
from baton.testing import assert_replays, pipeline_worker, run_pipeline
from tests.agents.material import BATON, contract
from tests.contract.musing_pipelines import (
    ASKED_FOR_NOTES,
    FOUND,
    MUSING,
    NOTES,
    SENTENCES,
    muses,
    muses_without_contracts,
    tells,
)

TIMER = "timer_started_event_attributes"


@pytest.fixture(scope="module")
async def worker(
    server: DevServer, safeguards: Safeguards, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Worker]:
    """Return a worker with the musing agents and the one that tells its prompt."""
    folder: Path = tmp_path_factory.mktemp("texts")
    plugin = BatonPlugin(WorkerParts(artifacts=open_store(folder)), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [muses, muses_without_contracts], [*MUSING.values(), tells]) as running:
        yield running


def without_answer_of(agent: str, prompt: str) -> str:
    """Return a prompt without the input that says whose answer it is."""
    page = rf"^Input `text`, answered by `{agent}`:\n\[CONTEXT.*?^\[END OF CONTEXT[^\n]*\]$"
    return re.sub(page, "", prompt, flags=re.DOTALL | re.MULTILINE)


async def run(worker: Worker, pipeline: Any, agent: str, hands: str, goal: str = "Write to the customer") -> Any:
    """Run a pipeline, and return the run."""
    return await run_pipeline(worker, pipeline, PipelineInput(goal=goal, params={"agent": agent, "hands": hands}))


@pytest.mark.parametrize("agent", MUSING)
async def test_what_is_not_handed_on_is_not_shown(agent: str, worker: Worker) -> None:
    """By default the next agent has a contract; of forty sentences in fourteen languages it sees none (S5-prob-b)."""
    asked = await run(worker, muses, agent, "nothing")

    assert len(SENTENCES) > 40
    assert [sentence for sentence in SENTENCES if sentence in asked.result.output] == []
    assert (FOUND in asked.result.output) is (agent != "own")
    await assert_replays(asked.handle, [muses])


@pytest.mark.parametrize("hands", ["result", "output"])
@pytest.mark.parametrize("pipeline", [muses, muses_without_contracts], ids=["contracts", "without"])
@pytest.mark.parametrize("agent", ["own", "pydantic"])
async def test_what_is_handed_on_is_shown_as_the_answer_of_its_agent(
    agent: str, pipeline: Any, hands: str, worker: Worker
) -> None:
    """Whole, on a page that names the agent, and nowhere else."""
    prompt = (await run(worker, pipeline, agent, hands)).result.output
    rest = without_answer_of(agent, prompt)

    assert [sentence for sentence in SENTENCES if sentence not in prompt] == []
    assert [sentence for sentence in SENTENCES if sentence in rest] == []


async def test_facts_are_results_and_noted_decisions_and_all_else_is_counted(worker: Worker) -> None:
    """Thoughts and rejected ideas are labelled and left out; so is what the agent said and answered (S5-check-c)."""
    asked = await run(worker, muses, "pydantic", "result", goal=ASKED_FOR_NOTES)
    explained = await explain(worker.client, asked.handle.id, "tells")
    facts = [(fact.claim, fact.confidence, fact.source.method) for fact in explained.terms.facts]

    assert facts == [
        (FOUND, "high", "tool_call:read_annex"),
        (NOTES.decided[0], "medium", "decision"),
    ]
    assert Counter(left_out.label for left_out in explained.left_out) == {
        "type:brainstorm": 1,
        "type:rejected_assumption": 2,
        "type:internal_note": 1,
        "type:assistant_message": 2,
    }
    assert explained.terms.excluded_counts == Counter(left_out.label for left_out in explained.left_out)
    assert explained.terms.tools_as_declared


async def test_what_many_steps_recorded_is_read_in_several_workflow_tasks(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first agent of a long run gets a contract of all that was before, and a task has two seconds."""
    asked = await run(worker, muses, "pydantic", "result", goal=ASKED_FOR_NOTES)
    at_once = (await explain(worker.client, asked.handle.id, "tells")).terms
    monkeypatch.setattr(contract_workflow, "MAX_OPEN_EVENTS", 1)
    monkeypatch.setattr(contract_workflow, "MAX_READ_AT_ONCE", 2)
    sliced = await run(worker, muses, "pydantic", "result", goal=ASKED_FOR_NOTES)
    terms = (await explain(worker.client, sliced.handle.id, "tells")).terms

    assert [fact.claim for fact in terms.facts] == [fact.claim for fact in at_once.facts]
    assert terms.excluded_counts == at_once.excluded_counts
    timers = [
        len([e async for e in each.handle.fetch_history_events() if e.HasField(TIMER)]) for each in (asked, sliced)
    ]
    assert timers[1] > timers[0]
    await assert_replays(sliced.handle, [muses])


def test_a_contract_by_default_leaves_tools_as_they_are_declared() -> None:
    """A stage that declares none may call any, as without a contract; terms of a pipeline's own allow none."""
    by_default = contract().model_copy(update={"tools_as_declared": True})
    open_stage, limited = (StageContext.for_test(BATON, contract=given) for given in (by_default, contract()))

    assert [context.tools.allows("crm.lookup") for context in (open_stage, limited)] == [True, False]
    assert ["Allowed tools" in context.prompt for context in (open_stage, limited)] == [False, True]


def test_a_contract_by_default_has_room_for_any_number_of_declared_tools() -> None:
    """They are not text of the contract: an agent with hundreds of tools ran before without a contract."""
    tools = frozenset(f"mcp__warehouse__tool_number_{number}" for number in range(500))
    now = datetime.now(UTC)
    asked: dict[str, Any] = {"receiving_agent": "packs", "task": "Pack", "trace_id": "0" * 31 + "1", "created_at": now}
    valid = []
    for as_declared in (True, False):
        request = ContractRequest(
            "6f1e6c0a-7d6b-4a5e-9c55-0123456789ab",
            capability=tools,
            granted=tools,
            tools_as_declared=as_declared,
            **asked,
        )
        compiled = compile_contract([], request).contract
        valid.append(bool(validate_contract(compiled, now=now, max_tokens=MAX_CONTRACT_TOKENS)))
    assert valid == [True, False]
