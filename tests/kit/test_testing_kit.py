"""The test kit on a real server: fixtures, scripts, cassettes, attacks, the search for leaks, and skipped time."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from baton import Baton, BatonPatch, MemoryArtifactStore, PipelineInput, StageContext, WorkerParts, stage
from baton.client import Answer
from baton.client import decide as approve
from baton.core.verdict import Code
from baton.devserver import DevServer
from baton.handoff.sealed import SealError
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import open_sealed
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import Cassette, Expect, Scripts, pipeline_worker, run_pipeline, scripted_stage
from tests.kit.kit_pipelines import Patient, Researched
from tests.kit.kit_stages import FACT, IDEA, decide, research
from tests.support import failure, start, until_waiting
from tests.support.surfaces import LogCapture, assert_not_seen, assert_seen, surfaces_of
from tests.support.tampering import answers, handoff_attacks, sealed_handoffs

START = PipelineInput(goal="Find a price")
DECIDED = BatonPatch(decision_log=["Kept the price"])

MakeWorker = Callable[..., AbstractAsyncContextManager[Worker]]


class TestScriptedStages:
    async def test_a_pipeline_runs_with_a_scripted_stage(
        self, baton_worker: MakeWorker, baton_scripts: Scripts
    ) -> None:
        """The stage gets the fact of the stage before it in its contract, and is called once."""
        stand_in = baton_scripts.stage(decide, Expect(DECIDED, sees=[FACT, "DATA ONLY"], lacks=[IDEA]))

        async with baton_worker([Researched], [research, stand_in]) as worker:
            run = await run_pipeline(worker, Researched.run, START)

        assert run.baton.decision_log == ["Kept the price"]

    async def test_a_script_that_is_not_followed_ends_the_run_at_once(self, baton_worker: MakeWorker) -> None:
        """There are no retries, and the run's failure has the reason."""
        stand_in = scripted_stage(decide, Expect(DECIDED, sees=["another fact"]))

        async with baton_worker([Researched], [research, stand_in]) as worker:
            handle = await start(worker, Researched.run)
            reason = await failure(handle)

        assert "the prompt lacks 'another fact'" in reason
        with pytest.raises(AssertionError, match="call 1 of 'decide': the prompt lacks 'another fact'"):
            stand_in.script.assert_used_up()


class TestCassettes:
    async def test_a_recorded_run_is_played_without_a_model(self, baton_worker: MakeWorker, tmp_path: Path) -> None:
        """In a run with other ids, times and tags; a changed prompt ends the run with a diff."""
        prompts = []

        async def model() -> str:
            prompts.append("once")
            return "Kept the price"

        async def run(goal: str, cassette: Cassette) -> list[str]:
            @stage(name="decide")
            async def recorded(context: StageContext[Baton]) -> BatonPatch:
                answer = await cassette.answer("decide", context.prompt, model)
                return BatonPatch(decision_log=[str(answer)])

            async with baton_worker([Researched], [research, recorded]) as worker:
                return (await run_pipeline(worker, Researched.run, PipelineInput(goal=goal))).baton.decision_log

        file = tmp_path / "decide.json"
        first = await run("Find a price", Cassette(file, record=True))
        second = await run("Find a price", Cassette(file))
        changed = Cassette(file)
        with pytest.raises(WorkflowFailureError):
            await run("Find two prices", changed)

        assert (first, second, prompts) == (["Kept the price"], ["Kept the price"], ["once"])
        with pytest.raises(AssertionError, match=r"-\*\*Goal:\*\* Find a price\n\+\*\*Goal:\*\* Find two prices"):
            changed.assert_no_misses()


class TestSurfacesOf:
    async def test_what_must_not_cross_is_nowhere_that_the_receiver_reads(
        self, server: DevServer, baton_scripts: Scripts, tmp_path: Path
    ) -> None:
        """A brainstorm and an excluded fact are in their stage's own journal only, not even in the history.

        A stale fact stays in the history of who retrieved it; prompts, ledger, logs and pages are without it. A fact
        that may cross is found in each, so the search would have found the others.

        S5-compiler-b, S5-compiler-c, S5-compiler-d, S5-prob-b, S5-prob-c.
        """
        safeguards, store = Safeguards.development(tmp_path), MemoryArtifactStore()
        plugin = BatonPlugin(WorkerParts(artifacts=store), safeguards=safeguards)
        client = await Client.connect(server.address, plugins=[plugin])
        stand_in = baton_scripts.stage(decide, DECIDED)
        with LogCapture() as logs:
            async with pipeline_worker(client, [Researched], [research, stand_in]) as worker:
                run = await run_pipeline(worker, Researched.run, START)
        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            surfaces = await surfaces_of(
                client,
                run.handle.id,
                prompts=baton_scripts.prompts,
                logs=logs,
                ledger=ledger,
                artifacts=store,
                folders=[tmp_path],
            )

        for kept_back in ("canary-4f1c", "canary-93bc"):
            assert_seen(kept_back, surfaces.only("artifact/*"))
            assert_not_seen(kept_back, surfaces.without("artifact/*"))
        assert_seen("canary-51aa", surfaces.only("history/*"))
        assert_not_seen("canary-51aa", surfaces.only("prompt/*", "ledger/*", "log/*", "page/*", "record/*", "file/*"))
        for kind in ("prompt/decide/*", "history/*", "ledger/*"):
            assert_seen("canary-8d2e", surfaces.only(kind))


class TestSealedHandoffs:
    async def test_a_runs_own_handoffs_can_be_attacked(self, server: DevServer, tmp_path: Path) -> None:
        """They are the signed bytes, and every change is refused (S3-13.1-e)."""
        safeguards = Safeguards.development(tmp_path)
        plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, [Researched], [research, decide]) as worker:
            run = await run_pipeline(worker, Researched.run, START)

        first, second = await sealed_handoffs(run.handle, client)

        assert open_sealed(first, safeguards.keyring).message["toAgent"]["agentType"] == "research"
        assert open_sealed(second, safeguards.keyring).message["toAgent"]["agentType"] == "decide"
        for raw in handoff_attacks(second, first).values():
            with pytest.raises(SealError):
                open_sealed(raw, safeguards.keyring)

    async def test_a_receiver_is_asked_what_it_makes_of_them(self, server: DevServer, tmp_path: Path) -> None:
        """A replay of the same bytes is answered as before, once on record; all else is refused as not genuine.

        S3-13.1-e, S3-6.2-a.
        """
        safeguards = Safeguards.development(tmp_path)
        plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, [Researched], [research, decide]) as worker:
            run = await run_pipeline(worker, Researched.run, START)
        [_, raw] = await sealed_handoffs(run.handle, client)
        own = replace(safeguards, ledger=tmp_path / "receiver.db", witness=None, vault=None)

        first, again, *others = await answers(own, decide, raw, raw, *handoff_attacks(raw).values())
        [elsewhere] = await answers(own, decide, raw, task_id="another-task")

        assert first.verdict
        assert again.verdict
        assert again.anchor == first.anchor
        assert {one.verdict.reason for one in (*others, elsewhere)} == {Code.SIGNATURE_INVALID}


class TestTime:
    async def test_a_run_of_a_month_takes_a_moment(self, baton_worker: MakeWorker, baton_time: TimeSkipper) -> None:
        """On the real server, for the runs that this client starts."""
        async with baton_worker([Patient], [research, decide], client=baton_time.client) as worker:
            run = await run_pipeline(worker, Patient.run, START, within=timedelta(days=60))

        assert run.record.began is not None
        assert run.record.ended is not None
        assert run.record.ended - run.record.began > timedelta(days=30)

    async def test_one_runs_clock_is_moved_to_just_before_a_deadline(
        self, baton_worker: MakeWorker, baton_client: Client, baton_time: TimeSkipper
    ) -> None:
        """A person can still decide then."""
        async with baton_worker([Researched], [research, decide]) as worker:
            handle = await worker.client.start_workflow(
                Researched.run,
                START.model_copy(update={"params": {"approved": True}}),
                id=f"approved-{worker.task_queue}",
                task_queue=worker.task_queue,
                execution_timeout=timedelta(days=10),
            )
            await until_waiting(handle, "release manager")
            assert await baton_time.fast_forward(handle, timedelta(hours=47))
            await until_waiting(handle, "release manager")
            await approve(
                baton_client, handle.id, Answer(question="release manager", choice="approve", who="ann", why="tested")
            )
            await handle.result()
