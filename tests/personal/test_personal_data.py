"""Personal data in a running pipeline: sealed at once, handed only to stages that declare it, erased for good."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Baton, PipelineInput, PipelineResult, StageContext, StageResult, WorkerParts, stage
from baton.client import fork, read_run
from baton.core.messages import StageInput
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.personal.records import SEALED_ONLY
from baton.personal.store import Vault, VaultOptions
from baton.pipelines.activity_parts import worker_parts
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker, run_pipeline
from tests.handoff.handoff_pipelines import PIPELINES, Nosy, Personal, PersonalBranches, PersonalParent
from tests.handoff.handoff_stages import MARKER, STAGES
from tests.pipelines.stages import EXECUTED
from tests.support import approve, failure, start, until_waiting
from tests.support.surfaces import assert_not_seen, surfaces_of

SUBJECT = "jane@example.org"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where keys, ledger and vault of these tests are."""
    return tmp_path_factory.mktemp("personal")


@pytest.fixture(scope="module")
def safeguards(folder: Path) -> Safeguards:
    return Safeguards.development(folder)


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


async def assert_in_clear_nowhere(client: Client, workflow_id: str, folder: Path) -> None:
    """Assert that the marker is neither in the history, raw or decoded, nor in a file of keys, ledger and vault."""
    surfaces = await surfaces_of(client, workflow_id, folders=[folder])
    assert_not_seen(MARKER, surfaces.only("history/*", "record/*", "page/*", "file/*"))


class TestPersonal:
    async def test_only_declaring_stages_get_it(self, worker: Worker, folder: Path, safeguards: Safeguards) -> None:
        """A stage that declares nothing gets nothing, and no plaintext is stored (S3-12.3-b)."""
        run = await run_pipeline(worker, Personal.run, PipelineInput(goal="Register"))

        assert run.result.output == [{"handed": 0}, [len(MARKER)]]
        await assert_in_clear_nowhere(worker.client, run.handle.id, folder)

    async def test_a_fork_keeps_personal_data(self, worker: Worker) -> None:
        """Data that an earlier stage wrote is carried over, still sealed."""
        once = await run_pipeline(worker, Personal.run, PipelineInput(goal="Register"))
        handle = await fork(worker.client, once.handle.id, once.record.steps[-1].name, by="ann", why="again")

        assert PipelineResult.model_validate(await handle.result()).output == once.result.output

    async def test_a_fork_of_a_run_that_a_service_without_baton_started_keeps_it_too(self, worker: Worker) -> None:
        """The pipeline named the task itself; the history has it, so data sealed for the task opens."""
        service = await Client.connect(worker.client.service_client.config.target_host)
        handle = await service.start_workflow(
            "Personal", {"goal": "Register"}, id=f"plain-{uuid4()}", task_queue=worker.task_queue
        )
        await handle.result()
        record = await read_run(worker.client, handle.id)
        forked = await fork(worker.client, handle.id, record.steps[-1].name, by="ann", why="again")

        assert PipelineResult.model_validate(await forked.result()).output == [{"handed": 0}, [len(MARKER)]]
        assert (await read_run(worker.client, forked.id)).task_id == record.task_id is not None

    async def test_parallel_stages_keep_each_others_data(self, worker: Worker) -> None:
        """About the same person, also in a fork; neither restores old values."""
        once = await run_pipeline(worker, PersonalBranches.run, PipelineInput(goal="Register"))
        forked = await fork(worker.client, once.handle.id, once.record.steps[-1].name, by="ann", why="again")

        assert once.result.output == [{"email": "new", "phone": "0170"}]
        [warning] = once.record.state.entries[-1].warnings
        assert "personal data in clear ('phone')" in warning
        assert PipelineResult.model_validate(await forked.result()).output == once.result.output

    async def test_a_child_shares_personal_data_with_its_parent(self, worker: Worker, safeguards: Safeguards) -> None:
        """Both belong to one task, so what is sealed for it opens in both, also in a fork after the child."""
        once = await run_pipeline(worker, PersonalParent.run, PipelineInput(goal="Register"))
        forked = await fork(worker.client, once.handle.id, once.record.steps[-1].name, by="ann", why="again")

        assert once.result.output == [[{"email": "new"}], [{"email": "new", "phone": "0170"}]]
        assert PipelineResult.model_validate(await forked.result()).output == once.result.output
        assert once.result.personal_data == {}
        await assert_replays(once.handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))

    async def test_a_childs_handoffs_follow_its_parents(self, worker: Worker, safeguards: Safeguards) -> None:
        """A task begins once, and each handoff names the one that brought the task to its sender."""
        run = await run_pipeline(worker, PersonalParent.run, PipelineInput(goal="Register"))
        async with Ledger(safeguards.ledger) as ledger:
            records = (await ledger.trace(run.result.task_id)).records
        handed = [record for record in records if record.members["status"] == "ACCEPTED"]

        assert [record.members["kind"] for record in handed] == ["start", "handoff", "handoff", "handoff"]
        ids = [record.body["handoffId"] for record in handed]
        assert [record.body["parentHandoffId"] for record in handed] == [None, *ids[:-1]]
        assert handed[1].body["completedSubtasks"]

    async def test_a_stage_that_asks_for_more_is_refused(self, worker: Worker) -> None:
        """It learns what to declare, and is not retried."""
        handle = await start(worker, Nosy.run)

        assert "declares none; declare each field" in await failure(handle)
        assert EXECUTED[handle.id, "nosy"] == 1

    async def test_erasure_while_it_runs(self, worker: Worker, folder: Path, safeguards: Safeguards) -> None:
        """The text is gone everywhere, the run goes on, the chain verifies, and the erasure is on record.

        S3-12.3-a, S3-12.3-c, S3-12.3-d, C-24.
        """
        handle = await start(worker, Personal.run, wait=True)
        options = LedgerOptions(signer=safeguards.keyring.signer(), policy=SEALED_ONLY)
        assert safeguards.vault is not None
        async with Ledger(safeguards.ledger, options) as ledger:
            await until_waiting(handle, "go on")
            async with Vault(safeguards.vault, safeguards.keyring, VaultOptions(ledger=ledger)) as vault:
                report = await vault.erase(SUBJECT, "request-1", "ann")
                assert (report.status, report.removed["keys"]) == ("ERASED", 1)
            await approve(worker.client, handle, "go on")
            result = PipelineResult.model_validate(await handle.result())

            assert result.output == [{"handed": 0}, [0]]
            task = await ledger.trace(result.task_id, verifier=safeguards.keyring.public())
            assert task.report.verdict == "valid, completeness not checked"
            assert "erasure" in [record.fields.kind for record in task.records]
        await assert_in_clear_nowhere(worker.client, handle.id, folder)
        await assert_replays(handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))


@stage(personal_data=["phone"])
async def careless(context: StageContext[Baton]) -> StageResult:
    """Put what was opened where the input says."""
    [person] = (await context.personal.read()).values()
    assert isinstance(person, dict)
    phone = str(person["phone"])
    match context.input("where"):
        case "patch":
            return StageResult(baton_patch={"current_state": [f"Called {phone}"]})
        case "output":
            return StageResult(output={"called": [phone]})
        case "turns":
            return StageResult(turns=[{"role": "assistant", "content": f"I called {phone}"}])
        case "note":
            context.session.internal_note(f"I called {phone}")
        case "tool":
            await context.tools.call("crm.call", lambda number: number, phone)
        case "stream":
            context.stream.text(phone)
    return StageResult()


@pytest.mark.parametrize("where", ["patch", "output", "turns", "note", "tool", "stream", "nowhere"])
async def test_a_stage_that_stores_what_it_opened_is_warned(tmp_path: Path, where: str) -> None:
    """Wherever it is stored in clear: in its result, its session, its tools' results and its stream."""
    async with Vault(tmp_path / "vault.db", Keyring.generate()) as vault:
        given = StageInput(
            stage="careless",
            seq=1,
            task_id="t-1",
            baton={"goal": "Call"},
            inputs={"where": where},
            stream=True,
            personal_data=await vault.seal("ann", "t-1", {"phone": "0170 1234"}),
        )
        with worker_parts(WorkerParts(vault=vault)):
            returned = await careless(given)

    assert returned.findings == []
    assert ["('phone')" in warning for warning in returned.warnings] == ([] if where == "nowhere" else [True])
