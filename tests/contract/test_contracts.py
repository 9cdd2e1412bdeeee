"""Pipelines with contracts on a real server: what crosses, what does not, and what enforces it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker
from typer.testing import CliRunner, Result

from baton import MemoryArtifactStore, PipelineResult, WorkerParts
from baton.cli.app import make_app
from baton.client import explain, fork, read_run, roll_back
from baton.client.faces import explain_in
from baton.contract.records import Explanation
from baton.devserver import DevServer
from baton.errors import HistoryError
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import OFF, BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import QUERY_EXPLAIN
from tests.contract.contract_pipelines import (
    CONTRACT_PIPELINES,
    CONTRACT_STAGES,
    SCHEMAS,
    Glanced,
    Glances,
    Misrouted,
    Reviewed,
)
from tests.support import Handle, failure, start


@pytest.fixture(scope="module", params=["sealed", "plain"])
async def worker(request: pytest.FixtureRequest, server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a worker with sealed handoffs, and one without: contracts hold on both."""
    parts = WorkerParts(artifacts=MemoryArtifactStore(), schemas=SCHEMAS)
    guards = safeguards if request.param == "sealed" else OFF
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=guards)])
    async with pipeline_worker(client, CONTRACT_PIPELINES, CONTRACT_STAGES) as worker:
        yield worker


def plugin_of(worker: Worker) -> BatonPlugin:
    [plugin] = worker.client.config()["plugins"]
    assert isinstance(plugin, BatonPlugin)
    return plugin


async def ended(handle: Handle) -> PipelineResult:
    result: PipelineResult = await handle.result()
    return result


class TestContracts:
    async def test_what_is_left_out_is_told_and_what_crosses_is_a_fact(self, worker: Worker) -> None:
        """One looked-up fact and one decision cross; each other event has a label (S5-contract-c, S5-contract-d)."""
        handle = await start(worker, Reviewed.run, marker="xyzzy")
        result = await ended(handle)
        explanation = await handle.query(QUERY_EXPLAIN, "review", result_type=Explanation)

        assert result.output == {"approved": True}
        *facts, asked = [fact.claim for fact in explanation.terms.facts]
        assert facts == ["The recipient is an enterprise customer.", "The email goes to one recipient."]
        assert "Never name" not in asked  # the history has the beginning of a long message
        assert [rule.text for rule in explanation.terms.constraints or ()] == ["Never name another customer."]
        assert "Never name another customer." in explanation.to_markdown()
        assert sorted(omission.label for omission in explanation.left_out) == [
            "explicit:user_message",
            "stale:crm.lookup_pricing",
            "stale:decision",
            "type:brainstorm",
            "type:internal_note",
            "type:rejected_assumption",
        ]
        assert explanation.terms.allowed_tools == ["policy.search"]
        assert explanation.terms.forbidden_tools == ["email.send"]
        assert explanation.tokens_read > 0
        await assert_replays(handle, CONTRACT_PIPELINES, plugin=plugin_of(worker))

    async def test_a_handoff_says_what_was_done_and_with_which_tools(
        self, server: DevServer, safeguards: Safeguards
    ) -> None:
        """The task is the receiver's, the context its facts; a call has the digest of its arguments.

        S3-5.2-k, S3-5.2-o, S3-5.2-w.
        """
        parts = WorkerParts(artifacts=MemoryArtifactStore(), schemas=SCHEMAS)
        client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
        async with pipeline_worker(client, CONTRACT_PIPELINES, CONTRACT_STAGES) as worker:
            handle = await start(worker, Reviewed.run)
            task_id = (await ended(handle)).task_id
        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            review, write_down = [record.body for record in (await ledger.trace(task_id)).handoffs]

        assert review["taskDescription"] == "Evaluate whether the proposed outbound email violates internal policy."
        facts = [(item["excerpt"], item["relevanceScore"]) for item in review["relevantContext"]]
        assert ("The recipient is an enterprise customer.", 0.9) in facts
        tools = [call["tool"] for call in write_down["toolCallHistory"]]
        assert tools == ["crm.lookup_customer", "crm.lookup_pricing", "policy.search"]
        assert all(call["outputTokens"] > 0 for call in write_down["toolCallHistory"])
        assert [done["result"].get("output") for done in write_down["completedSubtasks"]] == [None, {"approved": True}]

    async def test_history_alone_tells_the_same(self, worker: Worker) -> None:
        """The explanation needs no worker, and says what the query says (S5-prob-h); transcripts it alone knows."""
        handle = await start(worker, Reviewed.run, marker="xyzzy")
        await ended(handle)
        run = await read_run(worker.client, handle.id)
        explanation = await handle.query(QUERY_EXPLAIN, "review", result_type=Explanation)

        explained = explain_in(run, "review")
        assert explained.model_copy(update={"transcripts": []}) == explanation
        assert explained.transcripts
        assert {omission.agent for omission in explanation.left_out} == {"research"}
        assert "xyzzy" not in explanation.to_markdown()
        assert "stale:crm.lookup_pricing" in explanation.to_markdown()

    async def test_what_the_history_does_not_keep_hides_nothing(self, worker: Worker) -> None:
        """Events first left out for an outside agent are also explained for the next stage."""
        handle = await start(worker, Glanced.run)
        await ended(handle)
        explanation = explain_in(await read_run(worker.client, handle.id), "noted")

        assert explanation == await handle.query(QUERY_EXPLAIN, "noted", result_type=Explanation)
        assert "type:brainstorm" in [omission.label for omission in explanation.left_out]
        with pytest.raises(HistoryError, match="a handoff to somebody outside"):
            await explain(worker.client, handle.id, "3")

    async def test_a_run_that_continues_names_nothing_again(self, worker: Worker) -> None:
        """What the runs before left out for good is counted in its contracts, and not sent again."""
        handle = await start(worker, Glances.run)
        await ended(handle)
        run = await read_run(worker.client, handle.id)
        newest = run.handed[-1]
        counts: Any = (newest.contract or {})["excludedCounts"]

        assert run.start.continued >= 1
        assert newest.stage == "noted"
        assert "type:brainstorm" not in [label for sent in run.handed for label in sent.left_out.values()]
        assert counts["type:brainstorm"] == 1
        assert "earlier event" in explain_in(run, "noted").to_markdown()

    async def test_an_output_that_does_not_fit_goes_back_to_the_agent(self, worker: Worker) -> None:
        """So does an unreadable report: each attempt gets the findings and corrects them (S5-fields-l, S4-parse-m)."""
        handle = await start(worker, Reviewed.run, sloppy=True)
        result = await ended(handle)
        run = await read_run(worker.client, handle.id)

        assert result.output == {"approved": True}
        assert [step.attempts for step in run.steps] == [1, 2, 2]
        assert any("Send the email" in entry for entry in result.final_baton().decision_log)

    async def test_a_stage_that_was_never_sent_has_no_event_to_go_back_to(self, worker: Worker) -> None:
        """A roll-back says so, and that a fork needs none."""
        handle = await start(worker, Misrouted.run)
        await failure(handle)

        with pytest.raises(HistoryError, match="fork at that step instead"):
            await roll_back(worker.client, handle.id, "research", by="ann", why="it is registered now")
        refork = await fork(worker.client, handle.id, "research", by="ann", why="it is registered now")
        assert "nothing was sent to stage" in await failure(refork)

    async def test_a_fork_knows_the_facts_of_the_run_before(self, worker: Worker) -> None:
        """The outcomes of earlier stages include their events, so the contract is the same."""
        handle = await start(worker, Reviewed.run)
        await ended(handle)
        forked = await fork(worker.client, handle.id, at="review", by="ann", why="to look again")
        await forked.result()
        first = explain_in(await read_run(worker.client, handle.id), "review")
        second = explain_in(await read_run(worker.client, forked.id), "review")
        assert [fact.event_id for fact in second.terms.facts] == [fact.event_id for fact in first.terms.facts]

    async def test_what_was_sent_before_a_fork_is_explained_from_there(self, worker: Worker) -> None:
        """A fork of a fork has its history from the first run; a stage that it runs itself is its own."""
        handle = await start(worker, Reviewed.run)
        await ended(handle)
        forked = await fork(worker.client, handle.id, at="write_down", by="ann", why="to look again")
        await forked.result()
        refork = await fork(worker.client, forked.id, at="write_down", by="ann", why="and again")
        await refork.result()
        for id in (forked.id, refork.id):
            first = explain_in(await read_run(worker.client, handle.id), "review")
            assert await explain(worker.client, id, "review") == first
            assert await explain(worker.client, id, "2") == first
            own = await explain(worker.client, id, "write_down")
            assert own == explain_in(await read_run(worker.client, id), "write_down")
            with pytest.raises(HistoryError, match=f"run '{id}' has no step 'revue'"):
                await explain(worker.client, id, "revue")


class TestExplainCommand:
    async def test_it_tells_what_the_query_tells(self, worker: Worker, server: DevServer) -> None:
        """As JSON for programs, as a page for people; an unknown stage is an error that names the others."""
        handle = await start(worker, Reviewed.run, marker="xyzzy")
        explanation = (await ended(handle)) and await handle.query(QUERY_EXPLAIN, "review", result_type=Explanation)

        async def explained(*words: str) -> Result:
            connection = ["--address", server.address]
            return await asyncio.to_thread(CliRunner().invoke, make_app(), ["explain", handle.id, *words, *connection])

        as_json, page, wrong = await explained("review", "--json"), await explained("review"), await explained("revue")

        assert as_explained(as_json.stdout) == explanation
        assert "The recipient is an enterprise customer." in page.stdout
        assert "xyzzy" not in page.stdout
        assert wrong.exit_code == 1
        assert "its steps are: 1 research, 2 review" in " ".join(wrong.stderr.split())


def as_explained(text: str) -> Explanation:
    """Return the explanation that the command wrote as JSON, without its transcripts, which the query lacks."""
    members = json.loads(text)
    del members["times_fewer"], members["transcripts"]
    return Explanation.model_validate(members)
