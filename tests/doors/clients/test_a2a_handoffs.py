"""Agents outside that pull their work over A2A, with the protocol's own client: the situations of the MCP door."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import get_message_text
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from google.protobuf.json_format import MessageToDict
from temporalio.worker import Worker

from baton import MemoryArtifactStore
from baton.client import Access, Caller, OutsideAgents, Role, ServiceParts, Tokens, serve_service, service
from baton.devserver.processes import held_port
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.report.rendering import render_report
from tests.agents.coding_agents.calling import REPORT, call, waiting
from tests.doors.clients.desks import desk_at
from tests.doors.test_a2a import BINDINGS, said, send
from tests.support import Handle

FINE = {"decision_log": ["Clause 4.2 is fine"]}
ANY = "6a0c1c6e-4f0e-4d0b-9a53-1f6a4b1f4f3e"
WAITS, ASKED, DONE = pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_COMPLETED


@dataclass(frozen=True)
class Desk:
    """An agent of a kind that no other test has, its colleague, and another agent, each with the SDK's client."""

    agent: str
    url: str
    presses: Worker
    clients: Mapping[str, Client]

    @property
    def ann(self) -> Client:
        return self.clients[f"{self.agent}/ann"]

    @property
    def bob(self) -> Client:
        return self.clients[f"{self.agent}/bob"]

    async def handed(self, **params: Any) -> Handle:
        """Start a pipeline, and wait until its handoff waits for the agent."""
        return await waiting(self.presses, agent=self.agent, **params)

    async def next(self, client: Client) -> pb.Task:
        """Ask for the next handoff until there is one: the server's index lags behind by a moment."""
        while True:
            [event] = await send(client, said("What is next?", skill="next-handoff"))
            if event.HasField("task"):
                return event.task


async def reply(client: Client, task: pb.Task, text: str = "", **arguments: Any) -> pb.Task:
    """Answer in a task; return it as it is then."""
    [event] = await send(client, said(text, arguments or None, task_id=task.id))
    return event.task


async def get(client: Client, task: pb.Task) -> pb.Task:
    return await client.get_task(pb.GetTaskRequest(id=task.id))


@pytest.fixture
async def desk(presses: Worker, agents: OutsideAgents, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """Return the agents, over one of the bindings."""
    agent, binding = f"reviewer-{uuid4().hex[:8]}", getattr(request, "param", BINDINGS[0])
    names = (f"{agent}/ann", f"{agent}/bob", agent, f"{agent}/{agent}", "painter")
    tokens = {name: f"{name}-token-0123456789" for name in names}
    access = Access(tokens=Tokens({Caller(name, Role.VIEWER): token for name, token in tokens.items()}))
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        app = service(ServiceParts(agents.client, {}, access, url, MemoryArtifactStore(), agents))
        await stack.enter_async_context(serve_service(app, port=port))
        clients = {}
        for name, token in tokens.items():
            headers = {"authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=60))
            card = await A2ACardResolver(http, url).get_agent_card()
            config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            clients[name] = ClientFactory(config).create(card)
        yield Desk(agent, url, presses, clients)


@pytest.mark.parametrize("desk", BINDINGS, indirect=True)
async def test_an_agent_accepts_reads_and_returns_a_patch(desk: Desk, safeguards: Safeguards) -> None:
    """The acceptance is on record before the agent has the contract, and its patch becomes part of the baton."""
    handle = await desk.handed()
    task = await desk.next(desk.ann)
    assert task.status.state == (await get(desk.ann, task)).status.state == ASKED
    assert "Add OAuth2 login" in get_message_text(task.status.message)
    async with Ledger(safeguards.ledger) as ledger:
        [accepted] = (await ledger.trace(json.loads(task.artifacts[0].parts[0].raw)["taskId"])).records
        assert accepted.members["status"] == "ACCEPTED"
        done = await reply(desk.ann, task, tool="propose_patch", patch=FINE)

    assert done.status.state == (await get(desk.ann, task)).status.state == DONE
    assert (await handle.result()).baton["decision_log"] == FINE["decision_log"]


async def test_a_text_is_a_report(desk: Desk) -> None:
    handle = await desk.handed()
    task = await desk.next(desk.ann)
    text = render_report(REPORT).replace("reviewer", desk.agent)
    assert (await reply(desk.ann, task, text)).status.state == DONE
    assert (await handle.result()).output["report"]["status"] == "completed"


async def test_what_it_saved_over_mcp_is_in_its_report(desk: Desk) -> None:
    """An agent has one set of tools, whichever door it comes by."""
    handle = await desk.handed()
    task = await desk.next(desk.ann)
    async with desk_at(desk.url, f"{desk.agent}/ann-token-0123456789") as client:
        work = {"handoff_id": task.id, "artifact_id": "review", "type": "review", "text": "Fine"}
        await call(client, "save_artifact", **work)
    await reply(desk.ann, task, render_report(REPORT).replace("reviewer", desk.agent))
    assert [artifact["id"] for artifact in (await handle.result()).baton["artifacts"]] == ["review"]


async def test_what_is_refused_is_corrected(desk: Desk) -> None:
    """The pipeline's rules hold, the arguments are checked, and the task stays the agent's."""
    handle = await desk.handed()
    task = await desk.next(desk.ann)
    faulty: list[dict[str, Any]] = [
        {"tool": "propose_patch", "patch": {"goal": "Something else"}},
        {"tool": "propose_patch", "patch": []},
        {"tool": "propose_patch", "patch": {}, "notes": {"said": ["Fine"]}},
        {"tool": "propose_patch", "patch": {}, "self": 1},
        {"tool": "leave"},
        {"tool": ["claim"]},
        {"tool": "claim", "minutes": 0},
        {"tool": "claim", "minutes": 10**9},
        {"tool": "claim", "handoff_id": str(uuid4()), "minutes": 0},
        {"tool": "propose_patch", "patch": {"work_scope": 1e300}},
        {"tool": "propose_patch", "patch": {"open_questions": [2.0**60]}},
        {"tool": "ask_for_input", "unmet": ["x" * 100_000]},
        {"patch": {}},
    ]
    for arguments in faulty:
        with pytest.raises(InvalidParamsError):
            await reply(desk.ann, task, **arguments)
    with pytest.raises(InvalidParamsError):
        await reply(desk.ann, task, "All is fine.")
    with pytest.raises(ContentTypeNotSupportedError):
        await send(desk.ann, pb.Message(message_id="1", role=pb.ROLE_USER, task_id=task.id, parts=[pb.Part(raw=b"x")]))

    assert (await get(desk.ann, task)).status.state == ASKED
    assert (await reply(desk.ann, task, tool="propose_patch", patch=FINE)).status.state == DONE
    await handle.result()


async def test_one_that_asks_again_gets_the_same(desk: Desk) -> None:
    """A lost answer costs nothing; a colleague gets nothing while it is held, and sees that it is."""
    handle = await desk.handed()
    task = await desk.next(desk.ann)
    assert (await desk.next(desk.ann)).id == task.id
    [nothing] = await send(desk.bob, said("What is next?", skill="next-handoff"))
    assert nothing.HasField("message")
    seen = await get(desk.bob, task)
    assert (seen.status.state, list(seen.artifacts)) == (pb.TASK_STATE_WORKING, [])
    with pytest.raises(InvalidParamsError):
        await reply(desk.bob, task, tool="propose_patch", patch=FINE)
    for _ in range(2):  # the second time, its answer was lost
        assert (await reply(desk.ann, task, tool="propose_patch", patch=FINE)).status.state == DONE
    assert (await handle.result()).baton["decision_log"] == FINE["decision_log"]


async def test_what_is_given_back_is_a_colleagues(desk: Desk) -> None:
    handle = await desk.handed()
    task = await desk.next(desk.ann)
    assert (await reply(desk.ann, task, tool="give_back")).status.state == WAITS
    taken = await desk.next(desk.bob)
    assert (taken.id, taken.status.state) == (task.id, ASKED)
    refused = await reply(desk.bob, task, tool="reject", reason="It is not ours")
    assert refused.status.state == pb.TASK_STATE_REJECTED
    assert (await handle.result()).output["answer"]["reason"] == "It is not ours"


async def test_a_caller_with_nearly_the_same_name_is_another(desk: Desk) -> None:
    await desk.handed()
    task = await desk.next(desk.clients[desk.agent])
    assert (await get(desk.clients[desk.agent], task)).status.state == ASKED
    assert (await get(desk.clients[f"{desk.agent}/{desk.agent}"], task)).status.state == pb.TASK_STATE_WORKING


async def test_another_agent_finds_nothing(desk: Desk) -> None:
    """Not even by the id; and nobody cancels what is another's task."""
    handle = await desk.handed()
    task, painter = await desk.next(desk.ann), desk.clients["painter"]
    for asking in (get(painter, task), reply(painter, task, tool="give_back")):
        with pytest.raises(TaskNotFoundError):
            await asking
    for id in (f"{uuid4()}@{handle.id}", f"{uuid4()}@nothing"):
        with pytest.raises(TaskNotFoundError):
            await get(desk.ann, pb.Task(id=id))
    with pytest.raises(TaskNotCancelableError):
        await desk.ann.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert (await get(desk.ann, task)).status.state == ASKED
    await handle.terminate()


@pytest.mark.parametrize("id", [f"{ANY}@\0", f"{ANY}@" + "x" * 100_000, "-" * 36 + "@\n", f"{ANY}@a/b@c"], ids=range(4))
async def test_a_name_that_nothing_has_is_not_found(desk: Desk, id: str) -> None:
    """An error does not repeat it in its full length."""
    for asking in (get(desk.ann, pb.Task(id=id)), reply(desk.ann, pb.Task(id=id), tool="claim")):
        with pytest.raises(TaskNotFoundError) as raised:
            await asking
        assert len(str(raised.value)) < 300


async def test_what_names_another_handoff_acts_on_the_tasks_own(desk: Desk) -> None:
    """The task says which handoff it is; an argument does not."""
    first, second = [await desk.handed() for _ in range(2)]
    task = await desk.next(desk.ann)
    other = next(handle for handle in (first, second) if not task.id.endswith(handle.id))
    await reply(desk.ann, task, tool="reject", reason="No", handoff_id=f"{uuid4()}@{other.id}")
    assert (await desk.next(desk.ann)).id.endswith(other.id)
    await other.terminate()


async def test_the_card_describes_the_tools(desk: Desk) -> None:
    """With the schema of each tool's arguments, but the handoff, which the task names."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, desk.url).get_agent_card()
    [skill] = card.skills
    tools = MessageToDict(card.capabilities.extensions[0].params)["handoffs"]
    assert skill.id == "next-handoff"
    assert tools["reject"]["required"] == ["reason"]
    assert not any("handoff_id" in schema["properties"] for schema in tools.values())
