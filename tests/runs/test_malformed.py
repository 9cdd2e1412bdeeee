"""Runs with malformed records: anybody who may start workflows can start one, and everybody else's lists go on."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from typer.testing import CliRunner, Result

from baton import BatonPlugin, PipelineInput
from baton.cli.app import make_app
from baton.client import read_run
from baton.client.faces import CheckMark
from baton.core.pages import PAGE
from baton.devserver import DevServer
from baton.errors import UnreadableRunError
from baton.handoff.store_safeguards import Safeguards
from baton.runs.client_checks import check_payloads
from baton.testing import local_server, pipeline_worker, run_pipeline
from baton.wire.names import ATTRIBUTE_PIPELINE
from tests.contract.contract_pipelines import Glances
from tests.exchange.exchange_pipelines import StreamsIn
from tests.pipelines.pipelines import Linear
from tests.pipelines.stages import STAGES
from tests.support import GOAL, LIMIT, Handle

MALFORMED: dict[str, dict[str, JsonValue]] = {
    "notes": {"carried": {"operators": [1]}},
    "roll-backs": {"carried": {"operators": {"roll_backs": [{"left": "much"}]}}},
    "a budget": {"carried": {"budget": 7}},
    "released texts": {"carried": {"handoffs": {"released": ["x"]}}},
    "turns": {"carried": {"handoffs": {"turns": "x"}}},
    "a relay": {"carried": {"handoffs": {"relay": {"personal_data": {"sub": 1}}}}},
    "personal data": {"personal_data": {"sub-1": "Ada"}},
    "streams": {"carried": {"streams": {"opening": 1}}},
    "a state of the pipeline's own": {"carried": {"exchange": 1}},
    "outcomes": {"outcomes": [{"seq": 1}]},
    "a stage without an entry": {"outcomes": [{"seq": 1, "order": 0, "name": "plan"}]},
    "a decision": {"outcomes": [{"seq": 1, "order": 0, "name": "plan", "kind": "approval", "value": {"approved": 1}}]},
    "an outcome without a patch that fits": {
        "outcomes": [
            {
                "seq": 1,
                "order": 0,
                "name": "plan",
                "entries": [
                    {"seq": 1, "stage_id": "plan", "timestamp": "2026-11-21T00:00:00Z", "patch": {"decision_log": 1}}
                ],
            }
        ]
    },
}
"""Members of an input that Baton never writes like this, by what is wrong."""
PAGES: dict[str, str] = {
    "no JSON": "steps",
    "too few steps": "[]",
    "stages without an entry": json.dumps([{"seq": seq + 1, "order": seq, "name": "plan"} for seq in range(PAGE)]),
}
"""Pages of recorded steps that Baton never writes like this, by what is wrong."""
OWNED: dict[str, dict[str, JsonValue]] = {
    "exchange": {"outbox": [1]},
    "streams": {"chunks": {"x": [1]}},
    "chain": {"hops": "many"},
    "contracts": {"events": [{"id": 1}]},
    "handoffs": {"told": [{"about": 1}]},
}
"""Carried states that only their owner in the pipeline can check."""


@pytest.fixture(scope="module")
async def own_server() -> AsyncIterator[DevServer]:
    """Return a server of our own: the runs here change what every list says."""
    async with local_server() as server:
        yield server


@pytest.fixture(scope="module")
async def client(own_server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Return a client with keys and a ledger."""
    safeguards = Safeguards.development(tmp_path_factory.mktemp("malformed") / ".baton")
    return await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards=safeguards)])


async def start_raw(client: Client, pipeline: str, members: dict[str, JsonValue], queue: str) -> Handle:
    """Start a pipeline as a client of another language does."""
    name = SearchAttributePair(SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE), pipeline)
    return await client.start_workflow(
        pipeline,
        {"goal": GOAL, **members},
        id=f"malformed-{uuid.uuid4()}",
        task_queue=queue,
        execution_timeout=LIMIT,
        search_attributes=TypedSearchAttributes([name]),
    )


async def reason(handle: Handle) -> str:
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    return str(failed.value.cause)


@pytest.mark.parametrize("wrong", MALFORMED)
async def test_a_malformed_input_ends_its_run_and_is_named_to_readers(client: Client, wrong: str) -> None:
    """In the run's failure and by what reads it: a sentence, and never an error of Python's own."""
    async with pipeline_worker(client, [Linear], STAGES) as worker:
        handle = await start_raw(client, "Linear", MALFORMED[wrong], worker.task_queue)
        assert re.match("PipelineError: the pipeline cannot start|InvalidPayload: expected", await reason(handle))
    with pytest.raises(UnreadableRunError, match=handle.id):
        await read_run(client, handle.id)


@pytest.mark.parametrize("page", PAGES)
async def test_a_malformed_page_is_refused_when_it_is_read(own_server: DevServer, page: str) -> None:
    """A worker reads one page a task, before the first step that it records; readers read them all."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    async with pipeline_worker(client, [Linear], STAGES) as worker:
        handle = await start_raw(client, "Linear", {"pages": [PAGES[page]]}, worker.task_queue)
        assert "cannot start from this input: a page of recorded steps" in await reason(handle)
    with pytest.raises(UnreadableRunError, match="a page of recorded steps"):
        await read_run(client, handle.id)


@pytest.mark.parametrize("owner", OWNED)
async def test_a_malformed_state_is_refused_by_its_owner(own_server: DevServer, owner: str) -> None:
    """Also where no seal is needed, before any step; readers, which do not use these members, read the run."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    pipeline = Glances if owner == "contracts" else StreamsIn
    async with pipeline_worker(client, [pipeline], []) as worker:
        handle = await start_raw(client, pipeline.__name__, {"carried": {owner: OWNED[owner]}}, worker.task_queue)
        assert f"cannot start from this input: carried.{owner}" in await reason(handle)
    assert (await read_run(client, handle.id)).steps == []


async def command(server: DevServer, *words: str) -> Result:
    environment = {"COLUMNS": "300", "TEMPORAL_ADDRESS": server.address}
    return await asyncio.to_thread(CliRunner().invoke, make_app(), list(words), env=environment)


async def test_everybody_elses_commands_go_on_and_name_the_run(
    own_server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an exit code of their own: nothing is forged, and all else was read."""
    monkeypatch.chdir(tmp_path)
    plugin = BatonPlugin(safeguards=Safeguards.development(tmp_path / ".baton"))
    client = await Client.connect(own_server.address, plugins=[plugin])
    async with pipeline_worker(client, [Linear], STAGES) as worker:
        await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        handle = await start_raw(client, "Linear", MALFORMED["notes"], worker.task_queue)
        await reason(handle)

    for words in (["audit", "verify", "--all"], ["bill"], ["show", handle.id]):
        result = await command(own_server, *words)
        assert (result.exit_code, handle.id in result.stderr) == (5, True), result.output
    for words in (["list", "--all"], ["inbox"]):
        assert (await command(own_server, *words)).exit_code == 0
    finding = await check_payloads(client)
    assert (finding.mark, handle.id in finding.found) == (CheckMark.WARN, True)
