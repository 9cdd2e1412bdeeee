"""Agents outside take and return handoffs over MCP, each with its own token: the situations of the door."""

import asyncio
import uuid
from typing import Any

import pytest
from mcp import Client as McpClient
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import OutsideAgents, read_run
from baton.core.messages import PipelineInput
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from baton.testing import assert_replays
from tests.agents.coding_agents.calling import RefusedError, call, listed, mine
from tests.doors.clients.conftest import mcp_client
from tests.doors.clients.desks import desk_at, served
from tests.exchange.exchange_pipelines import HandsOutside
from tests.exchange.test_outside_service import waiting
from tests.support import overview

FINE = {"decision_log": ["Clause 4.2 is fine"]}


async def test_an_agent_lists_claims_reads_accepts_and_returns_a_patch(
    presses: Worker, url: str, safeguards: Safeguards
) -> None:
    """The acceptance is on record before the agent begins, and the patch becomes part of the baton (S3-6.2-a)."""
    handle = await waiting(presses)
    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        claimed = await call(client, "claim", handoff_id=handoff_id, minutes=5)
        assert (claimed["reserved_for"], claimed["description"]) == ("reviewer", None)
        assert (await call(client, "accept", handoff_id=handoff_id))["accepted"] is True
        assert "Add OAuth2 login" in await call(client, "read_contract", handoff_id=handoff_id)
        done = await call(client, "propose_patch", handoff_id=handoff_id, patch=FINE)
    assert done["done"] is True
    result = await handle.result()
    async with Ledger(safeguards.ledger) as ledger:
        trace = await ledger.trace(result.task_id)
    assert [record.members["status"] for record in trace.records] == ["ACCEPTED"]
    assert (result.baton["decision_log"], result.output["answer"]["answer"]) == (FINE["decision_log"], "accepted")
    await assert_replays(handle, [HandsOutside], plugin=BatonPlugin(safeguards=safeguards))


async def test_its_notes_become_a_part_of_the_patch(presses: Worker, url: str) -> None:
    """What it rejected or only thought is in the session by its type, without its text, and in no baton."""
    handle = await waiting(presses)
    notes = {"decided": ["Clause 4.2 is fine, it is the law's"], "open": ["When?"], "rejected": ["No cap"]}
    async with mcp_client(url, "reviewer") as client:
        work: dict[str, Any] = {"handoff_id": await listed(client, handle), "patch": {"open_questions": ["Who signs?"]}}
        await call(client, "accept", handoff_id=work["handoff_id"])
        with pytest.raises(RefusedError, match=r"notes\.said"):
            await call(client, "propose_patch", **work, notes={"said": ["Fine"]})
        await call(client, "propose_patch", **work, notes={**notes, "thought": ["A fax?"]})

    result = await handle.result()
    assert result.baton["decision_log"] == notes["decided"]
    assert result.baton["open_questions"] == ["Who signs?", "When?"]
    [outcome] = (await read_run(presses.client, handle.id)).state.outcomes
    noted = [(event["type"], event.get("content"), event["agent"]) for event in outcome.events]
    assert noted == [
        ("decision", notes["decided"][0], "reviewer"),
        ("rejected_assumption", None, "reviewer"),
        ("brainstorm", None, "reviewer"),
    ]
    assert outcome.entries[0].warnings == []


async def test_work_without_reasons_is_kept_and_told(presses: Worker, url: str) -> None:
    """An empty patch is legal."""
    handle = await waiting(presses)
    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        await call(client, "accept", handoff_id=handoff_id)
        await call(client, "propose_patch", handoff_id=handoff_id, patch={})
    await handle.result()

    [outcome] = (await read_run(presses.client, handle.id)).state.outcomes
    assert outcome.entries[0].warnings == ["left no reasons"]


async def test_a_late_acceptance_raises_an_alert(presses: Worker, url: str) -> None:
    """From dispatch to acceptance, as for a durable queue: two seconds at most (S3-6.5-a, S3-6.5-c, S3-6.5-e)."""
    handle = await waiting(presses)
    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        await asyncio.sleep(2.1)  # by the server's clock, which no test can set
        await call(client, "accept", handoff_id=handoff_id)

    alert = "to 'reviewer' outside: a handoff by queue took"
    assert [alert in note and "longest allowed is 2 s" in note for note in (await overview(handle)).notes] == [True]
    await handle.terminate()


async def test_an_agent_sees_and_acts_on_only_its_own(presses: Worker, url: str) -> None:
    """Another agent finds nothing, not even by the id; another one of its kind finds it claimed."""
    handle = await waiting(presses)
    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        await call(client, "claim", handoff_id=handoff_id)
    async with mcp_client(url, "painter") as painter:
        assert handle.id not in [row["workflow"] for row in await mine(painter)]
        for tool in ("claim", "accept", "read_contract", "give_back"):
            with pytest.raises(RefusedError, match="no handoff"):
                await call(painter, tool, handoff_id=handoff_id)
    async with mcp_client(url, "reviewer/bob") as bob:
        with pytest.raises(RefusedError, match="'reviewer' has claimed"):
            await call(bob, "claim", handoff_id=handoff_id)
    await handle.terminate()


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        pytest.param("claim", {"minutes": "long"}, "minutes", id="a wrong type"),
        pytest.param("claim", {"minutes": 0}, "minutes", id="no lease at all"),
        pytest.param("reject", {"reason": " "}, "reason", id="a blank reason"),
        pytest.param("reject", {}, "reason", id="no reason"),
        pytest.param("ask_for_input", {"unmet": [""]}, "unmet", id="a blank need"),
        pytest.param("propose_patch", {}, "patch", id="no patch"),
        pytest.param("propose_patch", {"patch": []}, "patch", id="a patch that is a list"),
        pytest.param("propose_report", {}, "report", id="no report"),
        pytest.param("claim", {"handoff_id": "x"}, "call list_mine", id="a handoff that is none"),
        pytest.param("claim", {"handoff_id": "x@none"}, "no handoff", id="a pipeline that is none"),
    ],
)
async def test_a_faulty_call_is_explained_without_its_values(
    url: str, tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with mcp_client(url, "reviewer") as client:
        with pytest.raises(RefusedError, match=said) as refused:
            await call(client, tool, **{"handoff_id": "x@y", **arguments})
    assert "'long'" not in str(refused.value)


async def test_a_pipeline_without_a_worker_is_a_temporary_error(sealing: Client, url: str) -> None:
    """Its handoffs are unknown, so the answer is to try again, not that there are none."""
    queue = f"nobody-{uuid.uuid4()}"
    handle = await sealing.start_workflow(HandsOutside.run, PipelineInput(goal="g"), id=queue, task_queue=queue)
    async with mcp_client(url, "reviewer") as client:
        with pytest.raises(RefusedError, match="try again"):
            await call(client, "propose_patch", handoff_id=f"x@{queue}", patch={})
    await handle.terminate()


async def test_a_hostile_patch_does_not_reach_the_pipeline(presses: Worker, url: str) -> None:
    handle = await waiting(presses)
    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        await call(client, "accept", handoff_id=handoff_id)
        for count in (200_000, 20_000):
            with pytest.raises(RefusedError, match=f"{count:,}"[:3]):
                await call(client, "propose_patch", handoff_id=handoff_id, patch={"artifacts": [{}] * count})
        await call(client, "propose_patch", handoff_id=handoff_id, patch=FINE)
    assert (await handle.result()).baton["decision_log"] == FINE["decision_log"]


async def test_an_agent_that_lost_the_answer_is_told_by_another_server(
    presses: Worker, url: str, agents: OutsideAgents
) -> None:
    """The handoff's name says where it was, so a service that was started again finds it done."""
    handle = await waiting(presses)
    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        await call(client, "accept", handoff_id=handoff_id)
        await call(client, "propose_patch", handoff_id=handoff_id, patch=FINE)
    await handle.result()
    async with served(agents) as other, desk_at(other) as client:
        again = await call(client, "propose_patch", handoff_id=handoff_id, patch={"decision_log": ["Not at all"]})
    assert (again["done"], len(again["warnings"])) == (True, 1)
    assert (await handle.result()).baton["decision_log"] == FINE["decision_log"]


async def test_calls_repeated_before_the_first_is_answered_are_told_it_is_done(presses: Worker, url: str) -> None:
    """One of them returns the work; none of the others is told that nothing waits."""
    handle = await waiting(presses)

    async def give(client: McpClient, handoff_id: str) -> bool:
        while True:  # the server may lose a query of a run that ends
            try:
                return bool((await call(client, "propose_patch", handoff_id=handoff_id, patch=FINE))["done"])
            except RefusedError as error:
                if "did not answer" not in str(error):
                    raise

    async with mcp_client(url, "reviewer") as client:
        handoff_id = await listed(client, handle)
        await call(client, "accept", handoff_id=handoff_id)
        assert all(await asyncio.gather(*(give(client, handoff_id) for _ in range(8))))
    assert (await handle.result()).baton["decision_log"] == FINE["decision_log"]
