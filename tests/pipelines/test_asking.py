"""People see what they decide on: with the command as a process, on a real server."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.worker import Worker

from baton import BatonPlugin, PipelineInput, Safeguards, WorkerParts, open_store
from baton.client import Ledger, LedgerOptions, decide, read_run
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.keys.store_keyring import read_file
from baton.ledger.records import Kind
from baton.runs.client_decide import sign_answer
from baton.runtime import workflow_questions
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import ANSWER, QUERY_DETAILS
from tests.acceptance.operating import Operator
from tests.pipelines.asking_pipelines import ASKING, Pays, Publishes
from tests.pipelines.asking_stages import KEYS, STAGES
from tests.support import GOAL, Handle, answer_to, failure, most_activities, overview, until, until_waiting

WHY = ("--why", "as I see it", "--yes")


@dataclass(frozen=True)
class Office:
    """A worker with a ledger, an artifact store and a file of deciders, and an operator at a terminal."""

    worker: Worker
    operator: Operator
    deciders: Path
    safeguards: Safeguards

    async def start(self, pipeline: Any, **params: Any) -> Handle:
        handle: Handle = await self.worker.client.start_workflow(
            pipeline.run,
            PipelineInput(goal=GOAL, params=params),
            id=f"{pipeline.__name__.lower()}-{os.urandom(4).hex()}",
            task_queue=self.worker.task_queue,
        )
        return handle

    async def key_of(self, name: str) -> str:
        """Create a person's key and return its file; the file of deciders has the public half."""
        file = self.operator.folder / f"{name}.toml"
        if not file.exists():
            entry = await self.operator("keys", "decider", name, str(file))
            self.deciders.write_text(self.deciders.read_text() + "\n" + entry)
        return str(file)


@pytest.fixture(scope="module")
async def office(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    deciders = folder / "deciders.toml"
    deciders.write_text('groups = { leads = ["ann", "bob"], legal = ["carol"] }\n')
    parts = WorkerParts(artifacts=open_store(str(folder / "artifacts")), deciders=deciders)
    safeguards = Safeguards.development(folder / "keys")
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    async with pipeline_worker(client, ASKING, STAGES) as worker:
        yield Office(worker, Operator(folder, {"TEMPORAL_ADDRESS": server.address}), deciders, safeguards)


class TestShown:
    async def test_everything_shown_is_readable_text(self, office: Office) -> None:
        """`approve`, `show`, `inbox` and the details show all of it, and the digest covers all of it."""
        handle = await office.start(Publishes)
        await until_waiting(handle, "release manager")
        shown = await office.operator("show", handle.id)
        _, prompt = await office.operator.both("approve", handle.id, *WHY)

        for page in (shown, prompt):
            for text in ("All is well.", "-two", "+2", "| ink | 3 |", "12.50 USD", "Publish?", "plan"):
                assert text in page
        assert "step two" in prompt, "the artifact's content"
        await assert_replays(handle, ASKING)

    async def test_a_long_text_names_the_command_for_the_rest(self, office: Office) -> None:
        """That command shows all of it."""
        handle = await office.start(Publishes, length=9_000)
        await until_waiting(handle, "release manager")
        page = await office.operator("show", handle.id)
        assert f"baton show {handle.id} --asked" in page
        assert "END" not in page
        assert "END" in await office.operator("show", handle.id, "--asked")
        details = await handle.query(QUERY_DETAILS)
        assert "All is well" in details
        assert f"baton show {handle.id} --asked" in details
        listed = await office.operator("inbox", "list")
        assert handle.id in listed
        assert "Publish?" in listed
        rows = await office.operator.json("inbox", "list")
        [row] = [each for each in rows if each["workflow_id"] == handle.id]
        asked = row["question"]
        assert (row["kind"], asked["title"], asked["asks"]) == ("approval", "release manager", "Publish?")
        stderr = await office.operator.refused("inbox", "show", handle.id)
        assert f"open: 'release manager'; `baton show {handle.id} --asked` shows approvals" in stderr
        assert "there is nothing to explain" in await office.operator.refused("explain", handle.id, code=1)
        await handle.terminate()

    async def test_a_service_reads_the_full_texts_and_decides(self, office: Office) -> None:
        """The digest is of exactly these texts; after the decision the history has the answer."""
        handle, client = await office.start(Publishes, length=9_000), office.worker.client
        await until_waiting(handle, "release manager")
        before = await read_run(client, handle.id)
        [question] = before.questions
        assert question.shows[0].text.endswith("END")
        assert question.digest == question.digest_with(before.baton.digest)
        assert before.answer_to(question.id) is None

        settled = await decide(client, handle.id, question.answer("approve", who="ann", why="ok"))
        await handle.result()
        run = await read_run(client, handle.id)
        assert run.answer_to(question.id) == settled
        assert run.answer_to("1:other") is None

    async def test_what_is_shown_is_in_the_history_once(self, office: Office) -> None:
        """However many people vote: 200 times 256 KiB would be more than the server lets a history have."""
        handle = await office.start(Publishes, length=50_000, needs=3)
        for who in ("ann", "bob"):
            decision = await answer_to(handle, "release manager", yes=True)
            assert (await decide(office.worker.client, handle.id, decision.model_copy(update={"who": who}))).missing
        sizes = [
            len(event.activity_task_scheduled_event_attributes.input.payloads[0].data)
            async for event in handle.fetch_history_events()
            if event.activity_task_scheduled_event_attributes.activity_type.name == "baton.asked"
        ]
        assert len(sizes) == 3
        assert max(sizes[1:]) < sizes[0] / 2  # compressed
        [asked] = (await read_run(office.worker.client, handle.id)).questions
        assert (len(asked.shows[0].text), len(asked.votes)) == (asked.shows[0].length, 2)
        await handle.terminate()
        await assert_replays(handle, ASKING)

    async def test_too_many_exhibits_are_an_error(self, office: Office) -> None:
        """Nobody is asked about what they cannot read in full."""
        handle = await office.start(Publishes, length=300_000)
        assert "an approval shows at most 262,144 bytes" in await failure(handle)


class TestAnswer:
    async def test_the_workflow_gets_the_form_typed(self, office: Office) -> None:
        """By `--set`; without a terminal a missing field is an error, and the run names a wrong one."""
        handle = await office.start(Pays)
        now = await until_waiting(handle, "budget")
        schema: Any = now.questions[0].form
        assert schema["properties"]["amount"]["type"] == "integer"
        assert "lacks amount" in await office.operator.refused("approve", handle.id, *WHY, code=2)
        assert "amount" in await office.operator.refused("approve", handle.id, "--set", "amount=much", *WHY)
        await office.operator("approve", handle.id, "--set", "amount=40", "--set", "reference=12", *WHY)
        await until_waiting(handle, "payment")
        _, prompt = await office.operator.both("approve", handle.id, *WHY)
        assert '"amount": 40' in prompt
        result = await handle.result()
        assert result.output == {"amount": 40, "reference": "12"}
        assert len(KEYS[handle.id]) == 2, "tried twice"
        assert len({*KEYS[handle.id]}) == 1, "under one key"

    @pytest.mark.parametrize("branch", [False, True])
    async def test_a_stage_runs_only_with_the_approved_arguments(self, office: Office, branch: bool) -> None:
        """Other parameters than those of `then` are rejected before any cost, also in a fan-out."""
        handle = await office.start(Pays, swap=True, branch=branch)
        await office.operator("approve", handle.id, "budget", "--set", "amount=40", *WHY)
        await until_waiting(handle, "payment")
        await office.operator("approve", handle.id, *WHY)
        assert "approved stage 'pay' with other params or inputs" in await failure(handle)
        assert not KEYS[handle.id]


class TestPeople:
    async def test_a_quorum_may_be_of_a_group(self, office: Office) -> None:
        """Two different leads; the same one twice, or somebody else, does not count."""
        handle = await office.start(Publishes, needs=2, who=["group:leads", "group:legal"])
        await until_waiting(handle, "release manager")
        first = await office.operator.json("approve", handle.id, "--who", "ann", *WHY)
        assert first["missing"] == 1
        assert await office.operator.json("approve", handle.id, "--who", "ann", *WHY) == first
        refused = await office.operator.refused("approve", handle.id, "--who", "eve", *WHY)
        assert "'eve' may not decide" in " ".join(refused.split())
        assert "approved by ann" in await office.operator("show", handle.id)
        await office.operator("approve", handle.id, "--who", "carol", *WHY)
        result = await handle.result()
        assert result.output["who"] == "ann, carol"
        await assert_replays(handle, ASKING)

    async def test_nobody_decides_as_a_group(self, office: Office) -> None:
        """A decision in the name of the group itself is rejected, by update and by signal, however it is spelled."""
        handle = await office.start(Publishes, who=["group:leads"])
        decision = await answer_to(handle, "release manager", yes=True)
        for name in ("group:leads", " GROUP:leads"):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update(ANSWER, decision.model_copy(update={"who": name}))
            assert "is the name of a group" in str(refused.value.cause)
        await handle.signal(ANSWER, decision.model_copy(update={"who": "group:leads"}))
        await until(handle, lambda now: len(now.notes) == 1)
        await handle.terminate()

    async def test_a_flood_of_decisions_is_checked_in_turn(
        self, office: Office, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Anybody who reaches the server can send them; the server rejects a task with 2,001 checks for ever."""
        monkeypatch.setattr(workflow_questions, "_MAX_CHECKS", 3)
        client, queue = office.worker.client, f"flooded-{os.urandom(4).hex()}"
        start = PipelineInput(goal=GOAL, params={"who": ["group:leads"]})
        async with pipeline_worker(client, ASKING, STAGES, task_queue=queue):
            handle: Handle = await client.start_workflow(Publishes.run, start, id=queue, task_queue=queue)
            decision = await answer_to(handle, "release manager", yes=False)
        for number in range(20):
            await handle.signal(ANSWER, decision.model_copy(update={"who": f"eve {number}"}))
        async with pipeline_worker(client, ASKING, STAGES, task_queue=queue):
            await until(handle, lambda now: len(now.notes) == 20)
        assert await most_activities(handle) == 3
        await handle.terminate()
        await assert_replays(handle, ASKING)

    async def test_with_proof_only_a_signature_counts(self, office: Office) -> None:
        """No signature, another person's, an unknown key and a changed decision are rejected."""
        ann, bob = await office.key_of("ann"), await office.key_of("bob")
        handle = await office.start(Publishes, proof=True, who=["group:leads"])
        await until_waiting(handle, "release manager")
        plain = await office.operator.refused("approve", handle.id, "--who", "ann", *WHY)
        assert "needs a signed decision" in " ".join(plain.split())
        other = await office.operator.refused("approve", handle.id, "--who", "ann", "--key", bob, *WHY)
        assert "belongs to bob" in " ".join(other.split())
        stranger = str(office.operator.folder / "stranger.toml")
        await office.operator("keys", "decider", "ann", stranger)
        unknown = await office.operator.refused("approve", handle.id, "--key", stranger, *WHY)
        assert "is not in the workers' file" in " ".join(unknown.split())

        await office.operator("deny", handle.id, "--key", ann, "--why", "not yet", "--yes")
        assert await failure(handle) == "'release manager' was denied by ann: not yet"
        [vote] = await self._votes(office, handle)
        assert (vote["who"], vote["key"], vote["choice"]) == ("ann", read_file(Path(ann)).keys[0].id, "deny")
        assert vote["signature"]

    async def test_a_signature_covers_the_whole_decision(self, office: Office) -> None:
        """A signed no counts neither as a yes, nor for another question, nor twice."""
        key = read_file(Path(await office.key_of("ann"))).keys[0]
        handle = await office.start(Publishes, proof=True)
        other = await office.start(Publishes, proof=True)
        no = await answer_to(handle, yes=False)

        for forged in (
            sign_answer(no, key).model_copy(update={"choice": "approve"}),
            sign_answer(no, key).model_copy(update={"why": "other"}),
            sign_answer(await answer_to(other), key).model_copy(update={"question": no.question, "digest": no.digest}),
        ):
            with pytest.raises(PipelineError, match="the signature over this decision is not by ann"):
                await decide(office.worker.client, handle.id, forged)
            await handle.signal(ANSWER, forged)
        notes = (await until(handle, lambda now: len(now.notes) == 3)).notes
        assert all("the signature over this decision is not by ann" in note for note in notes)
        assert (await overview(handle)).waiting_for
        yes = await decide(office.worker.client, handle.id, no.model_copy(update={"choice": "approve"}), key=key)
        assert yes.votes[0].key == key.id
        assert (
            await decide(office.worker.client, handle.id, sign_answer(no.model_copy(update={"choice": "approve"}), key))
        ) == yes
        await handle.result()
        await other.terminate()

    async def test_a_decision_that_was_refused_does_not_replace_a_later_one(self, office: Office) -> None:
        """Whoever reads the history has it, its signature included, and could send it again."""
        handle = await office.start(Pays, needs=2, who=["group:leads"])
        asked = await answer_to(handle, "budget")
        first, second = (asked.model_copy(update={"who": "ann", "data": {"amount": amount}}) for amount in (900, 9))
        away = office.deciders.rename(office.deciders.with_suffix(".away"))
        with pytest.raises(PipelineError):
            await decide(office.worker.client, handle.id, first)
        away.rename(office.deciders)
        assert (await decide(office.worker.client, handle.id, second)).missing == 1
        with pytest.raises(PipelineError, match="ann has replaced this answer"):
            await decide(office.worker.client, handle.id, first)
        await handle.terminate()
        await assert_replays(handle, ASKING)

    async def test_a_late_decision_is_rejected_with_a_hint(self, office: Office) -> None:
        """It says how to ask again."""
        handle = await office.start(Pays)
        late = (await answer_to(handle, "budget")).model_copy(update={"data": {"amount": 1}})
        await office.operator("approve", handle.id, "--set", "amount=2", *WHY)
        await until_waiting(handle, "payment")
        with pytest.raises(PipelineError, match=r"later decision changes nothing.* baton rollback RUN --to 1"):
            await decide(office.worker.client, handle.id, late)
        await handle.terminate()
        refusal = await office.operator.refused("approve", handle.id, *WHY)
        assert "no longer waits for a decision" in " ".join(refusal.split())

    async def _votes(self, office: Office, handle: Handle) -> list[dict[str, Any]]:
        """Return the ledger's votes on a run's decision."""
        task_id = (await overview(handle)).task_id
        async with Ledger(office.safeguards.ledger, LedgerOptions(create=False)) as ledger:
            trace = await ledger.trace(task_id)
        [record] = [each for each in trace.records if each.fields.kind == Kind.DECISION]
        return list(record.body["votes"])
