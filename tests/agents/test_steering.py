"""Notes of people for agents at work, on a real server: shown before the next request, or recorded as not shown."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pydantic_ai.models
import pytest
from agents import Agent
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput
from baton.agents import AgentTool, agent_stage, new_notes
from baton.agents.chat_completions import chat_agent
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.subprocess_agent import SubprocessAgent
from baton.client import Steer, read_run
from baton.devserver import DevServer
from baton.errors import OutdatedError, PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.entries import Trace
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.acceptance.operating import Operator
from tests.agents.steered_pipelines import (
    GATES,
    PIPELINES,
    STAGES,
    STEERED,
    Gate,
    steers,
    steers_again,
    steers_deaf,
    steers_nobody,
    steers_one_of_two,
    wait,
)
from tests.chat_server import ChatServer, chat_server, completion
from tests.handoff.handoff_stages import INJECTION
from tests.support import LIMIT, Handle

ANSWER = '{"baton_patch": {"decision_log": ["It costs 3"]}}'
NOTE = "use EUR"


@pytest.fixture(scope="module")
async def client(server: DevServer, safeguards: Safeguards) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, [*PIPELINES], STAGES) as worker:
        yield worker


async def begin(worker: Worker, pipeline: Any) -> tuple[Handle, Gate]:
    """Return a run whose stage is at work, and its gate."""
    id = f"steered-{uuid4()}"
    start = PipelineInput(goal="Name the price")
    handle = await worker.client.start_workflow(
        pipeline, start, id=id, task_queue=worker.task_queue, execution_timeout=LIMIT
    )
    await GATES[id].working.wait()
    return handle, GATES[id]


async def trace(safeguards: Safeguards, task_id: str) -> Trace:
    """Return what the ledger has of a task."""
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        return await ledger.trace(task_id, verifier=safeguards.keyring.public())


def plain(models: ChatServer) -> Any:
    return chat_agent("steered", models.url, "gpt-4o")


def openai(models: ChatServer) -> Any:
    return OpenAIAgent(
        Agent(name="steered", model="gpt-4o"), provider=provider(base_url=models.base, api_key="none", api="chat")
    )


class TestShown:
    @pytest.mark.parametrize("make", [plain, openai])
    async def test_a_note_is_in_the_next_request(
        self, client: Client, safeguards: Safeguards, make: Callable[[ChatServer], Any]
    ) -> None:
        """History and ledger have it, and what it says reaches the agent as a person's message, inside a fence."""
        replies = completion(calls=[("wait", {})]), completion(ANSWER)
        with chat_server(*replies) as models, pydantic_ai.models.override_allow_model_requests(True):
            stage = agent_stage(make(models), tools=[AgentTool.of(wait)], steer=True)
            async with pipeline_worker(client, PIPELINES, [stage]) as worker:
                handle, gate = await begin(worker, steers)
                note = await Steer(client, handle.id, NOTE).commit(by="ann")
                on_its_way = (await read_run(client, handle.id)).was_shown(note)
                gate.go_on.set()
                await handle.result()
            first, second = (asked.body["messages"] for asked in models.asked)

        assert NOTE not in str(first)
        assert second[-1]["role"] == "user"
        assert NOTE in second[-1]["content"]
        assert "ann" in second[-1]["content"]
        run = await read_run(client, handle.id)
        assert on_its_way is None
        assert run.was_shown(note) is True
        [entry] = run.state.entries
        assert [(shown.who, shown.text) for shown in entry.steered] == [("ann", NOTE)]
        assert [(sent.who, sent.text) for sent in run.steering] == [("ann", NOTE)]
        headers = (await trace(safeguards, run.start.task_id or "")).headers
        assert [(header.actor, header.status) for header in headers if header.actor] == [("ann", "STEERED")]
        await assert_replays(handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))

    async def test_a_node_of_a_graph_asks_for_it(self, client: Client) -> None:
        """The adapter cannot change the node's requests, so the node adds it."""

        async def steered(state: dict[str, Any]) -> dict[str, Any]:
            await wait()
            return {"current_state": [await new_notes(), await new_notes() or "no more"]}

        stage = agent_stage(LangGraphAgent(steered, steers=True), tools=[AgentTool.of(wait)], steer=True)
        async with pipeline_worker(client, PIPELINES, [stage]) as worker:
            handle, gate = await begin(worker, steers)
            await Steer(client, handle.id, NOTE, "steered").commit(by="ann")
            gate.go_on.set()
            result = await handle.result()

        shown, again = result.baton["current_state"]
        assert NOTE in shown
        assert again == "no more"

    async def test_a_retry_is_shown_it_too(self, worker: Worker) -> None:
        """The first run of the stage is lost with all that it read; within one run a note is new once."""
        handle, gate = await begin(worker, steers_again)
        await Steer(worker.client, handle.id, NOTE).commit(by="ann")
        gate.go_on.set()
        result = await handle.result()

        assert result.baton["decision_log"] == [f"Heard {[NOTE]}", "Again []"]


class TestCommand:
    async def test_it_sends_a_note_and_shows_what_became_of_it(
        self, worker: Worker, server: DevServer, safeguards: Safeguards, tmp_path: Path
    ) -> None:
        """`baton show` and `baton history` have the note, who sent it, and whether it was shown."""
        baton = Operator(tmp_path, {"TEMPORAL_ADDRESS": server.address})
        handle, gate = await begin(worker, steers_again)
        sent = json.loads(await baton("steer", handle.id, NOTE, "--step", "stumbling", "--yes", "--json"))
        shown_before = await baton("show", handle.id)
        gate.go_on.set()
        await handle.result()

        assert (sent["step"], sent["text"], sent["who"]) == ("stumbling", NOTE, "ann")
        assert NOTE in shown_before
        assert NOTE in await baton("show", handle.id)
        [row] = json.loads(await baton("history", handle.id, "--json"))["history"]
        assert [note["text"] for note in row["steered"]] == [NOTE]
        await baton("steer", handle.id, NOTE, "--yes", code=1)


class TestNotShown:
    async def test_a_note_that_comes_too_late_is_recorded(self, worker: Worker, safeguards: Safeguards) -> None:
        """The step ended before another request; a person may send it to the next agent."""
        handle, gate = await begin(worker, steers_nobody)
        note = await Steer(worker.client, handle.id, NOTE).commit(by="ann")
        gate.go_on.set()
        await handle.result()

        run = await read_run(worker.client, handle.id)
        assert run.was_shown(note) is False
        headers = (await trace(safeguards, run.start.task_id or "")).headers
        assert [header.status for header in headers if header.actor] == ["STEERED", "NOT_SHOWN"]
        with pytest.raises(PipelineError, match="COMPLETED"):
            await Steer(worker.client, handle.id, NOTE).preview()

    async def test_a_stage_without_notes_refuses_them(self, worker: Worker) -> None:
        """The words say what would have to be different; the run says so too."""
        handle, gate = await begin(worker, steers_deaf)
        with pytest.raises(PipelineError, match=r"'deaf'.*steer=True"):
            await Steer(worker.client, handle.id, NOTE).preview()
        gate.go_on.set()
        await handle.result()

    async def test_one_of_several_has_to_be_named(self, worker: Worker) -> None:
        """A note is for one agent."""
        handle, gate = await begin(worker, steers_one_of_two)
        with pytest.raises(PipelineError, match="'heedless', 'stumbling'"):
            await Steer(worker.client, handle.id, NOTE).preview()
        with pytest.raises(PipelineError, match="'nobody'"):
            await Steer(worker.client, handle.id, NOTE, "nobody").preview()
        note = await Steer(worker.client, handle.id, NOTE, "stumbling").commit(by="ann")
        gate.go_on.set()
        await handle.result()

        run = await read_run(worker.client, handle.id)
        assert note.step == "stumbling"
        assert run.was_shown(note) is True
        assert [entry.stage_id for entry in run.state.entries if entry.steered] == ["stumbling"]

    async def test_what_no_message_may_say_is_refused(self, worker: Worker) -> None:
        """The worker's safety scan reads it as it reads handoffs; secrets and long texts do not even leave."""
        handle, gate = await begin(worker, steers_nobody)
        with pytest.raises(PipelineError, match="safety scan"):
            await Steer(worker.client, handle.id, INJECTION).commit(by="mallory")
        with pytest.raises(PipelineError, match="safety scan"):  # the agent is told who sends it
            await Steer(worker.client, handle.id, NOTE).commit(by=INJECTION)
        with pytest.raises(PipelineError, match="secret"):
            await Steer(worker.client, handle.id, "the key is sk-0123456789abcdef0123").commit(by="ann")
        for text in ("", "x" * 501):
            with pytest.raises(PipelineError, match="text"):
                await Steer(worker.client, handle.id, text).preview()
        for _ in range(3):
            await Steer(worker.client, handle.id, "ä" * 190).commit(by="ann")
        with pytest.raises(PipelineError, match="as many notes"):
            await Steer(worker.client, handle.id, "ä" * 190).commit(by="ann")
        gate.go_on.set()
        await handle.result()

        assert len((await read_run(worker.client, handle.id)).steering) == 3

    async def test_notes_at_once_are_no_more_than_a_run_keeps(self, worker: Worker) -> None:
        """Those that are still being checked count too."""
        handle, gate = await begin(worker, steers_nobody)
        requests = [{"text": f"{number}" + "ä" * 190, "who": "ann"} for number in range(8)]
        sent = await asyncio.gather(
            *(handle.execute_update("steer", request) for request in requests), return_exceptions=True
        )
        gate.go_on.set()
        await handle.result()

        assert sum(not isinstance(one, BaseException) for one in sent) == 3

    async def test_a_note_that_the_run_did_not_take_is_not_shown(self, worker: Worker) -> None:
        """Who starts a run sets its memo, where an agent reads its notes: nobody checked or recorded that one."""
        id = f"steered-{uuid4()}"
        at = "2026-11-29T12:00:00Z"
        forged = {"id": "1:0", "seq": 1, "step": "stumbling", "text": INJECTION, "who": "ann", "at": at}
        handle: Handle = await worker.client.start_workflow(
            steers_again,
            PipelineInput(goal="Name the price"),
            id=id,
            task_queue=worker.task_queue,
            memo={"baton_notes": {"notes": [forged]}},
        )
        GATES[id].go_on.set()
        result = await handle.result()

        assert result.baton["decision_log"] == ["Heard []", "Again []"]

    async def test_a_note_is_for_the_step_that_was_shown(self, worker: Worker) -> None:
        """What a person saw at work has ended; another run of the workflow is not told."""
        handle, gate = await begin(worker, steers_nobody)
        operation = Steer(worker.client, handle.id, NOTE)
        preview = await operation.preview()
        gate.go_on.set()
        await handle.result()
        GATES[handle.id] = Gate()
        again = await worker.client.start_workflow(
            steers_again, PipelineInput(goal="Again"), id=handle.id, task_queue=worker.task_queue
        )
        await GATES[handle.id].working.wait()

        with pytest.raises(OutdatedError):
            await operation.commit(preview.mark, by="ann")
        GATES[handle.id].go_on.set()
        await again.result()

    def test_an_adapter_that_cannot_show_notes_is_refused(self) -> None:
        """Where it is written, not in a run."""
        program = SubprocessAgent("code", [sys.executable, "-c", "pass"])
        with pytest.raises(ValueError, match="SubprocessAgent"):
            agent_stage(program, steer=True)

        async def node(state: dict[str, Any]) -> dict[str, Any]:
            return state

        with pytest.raises(ValueError, match="LangGraphAgent"):
            agent_stage(LangGraphAgent(node), steer=True)
        assert STEERED.spec.steer
