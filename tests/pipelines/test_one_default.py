"""Safeguards are on everywhere, with the keys and ledger of `worker.py`, unless switched off."""

import asyncio
import os
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, Keyring, PipelineInput, PipelineResult, Safeguards
from baton.client import read_run
from baton.devserver import DevServer
from baton.keys.store_keyring import KeyringError
from baton.ledger.store import Ledger, LedgerOptions
from baton.testing import PipelineRun, assert_replays, connected, pipeline_worker, run_pipeline, temporary_plugin
from baton.worker import Settings, WorkerCode, plugin_for
from tests.pipelines import default_pipelines as they
from tests.support import failure, start
from tests.support.tampering import sealed_handoffs

START = PipelineInput(goal="Note it")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory without settings."""
    for name in os.environ:
        if name.startswith("BATON_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def is_on_record(file: Path, run: PipelineRun) -> bool:
    """Return whether a ledger has a run's task."""
    async with Ledger(file, LedgerOptions(create=False)) as ledger:
        return bool((await ledger.trace(run.result.task_id)).records)


def file_names(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


class TestPlugin:
    """`BatonPlugin()`."""

    async def test_a_client_creates_neither_keys_nor_ledger(self, server: DevServer, place: Path) -> None:
        """It starts, queries and reads a run of another process's worker."""
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        other = await connected(server.address)
        async with pipeline_worker(other, they.PIPELINES, they.STAGES) as worker:
            handle = await client.start_workflow(they.noted, START, id="a-client", task_queue=worker.task_queue)
            assert (await handle.result()).output == "noted"
        assert (await read_run(client, handle.id)).baton.decision_log == ["noted"]
        await assert_replays(handle, [they.noted])

        assert file_names(place) == set()

    async def test_its_worker_has_keys_and_a_ledger(self, server: DevServer, place: Path) -> None:
        """Created on first use where `worker.py` creates them; each reads the other's handoffs."""
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        shipped = await Client.connect(
            server.address, plugins=[await plugin_for(Settings.of(os.environ), WorkerCode([], []))]
        )
        pipelines = Worker(client, task_queue="sealing", workflows=they.PIPELINES, no_remote_activities=True)
        async with pipelines, pipeline_worker(shipped, [], they.STAGES, task_queue="sealing"):
            run = await run_pipeline(pipelines, they.noted, START)
        [raw] = await sealed_handoffs(run.handle, client)

        assert b'"signature"' in raw
        assert file_names(place / ".baton") >= {"keys.toml", "ledger.db", "vault.db"}
        assert await is_on_record(place / ".baton" / "ledger.db", run)

    async def test_the_environment_configures_them(
        self, server: DevServer, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Keys, ledger and encryption follow the `BATON_…` variables, for clients as well."""
        Keyring.development(place / "own")
        monkeypatch.setenv("BATON_KEYS", str(place / "own" / "keys.toml"))
        monkeypatch.setenv("BATON_LEDGER", str(place / "audit.db"))
        monkeypatch.setenv("BATON_ENCRYPT", "true")
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        reader = await Client.connect(server.address, plugins=[BatonPlugin()])
        blind = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
            run = await run_pipeline(worker, they.noted, PipelineInput(goal="hunter2"))
        result_handle = reader.get_workflow_handle(run.handle.id, result_type=PipelineResult)

        assert (await result_handle.result()).output == "noted"
        assert b"hunter2" not in (await run.handle.fetch_history()).to_json().encode()
        assert await is_on_record(place / "audit.db", run)
        with pytest.raises(Exception, match="there is no keyring: set BATON_KEYS"):
            await blind.get_workflow_handle(run.handle.id, result_type=PipelineResult).result()

    @pytest.mark.parametrize("by_variable", [False, True], ids=["in code", "in the environment"])
    async def test_one_word_switches_them_off(
        self, server: DevServer, place: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
    ) -> None:
        """Stages then start with plain inputs, and nothing is created."""
        if by_variable:
            monkeypatch.setenv("BATON_SAFEGUARDS", "off")
        plugin = BatonPlugin() if by_variable else BatonPlugin(safeguards="off")
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
            run = await run_pipeline(worker, they.noted, START)

        assert await sealed_handoffs(run.handle, client) == []
        assert file_names(place) == set()

    async def test_production_rejects_generated_keys(
        self, server: DevServer, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker says at once what is missing; a client, which needs no keys, works."""
        monkeypatch.setenv("BATON_ENV", "production")
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        handle = await client.start_workflow(they.noted, START, id="in-production", task_queue="nobody")
        with pytest.raises(KeyringError, match="no development keys are made"):
            Worker(client, task_queue="nobody", workflows=they.PIPELINES, activities=they.STAGES)
        await handle.terminate()

        assert file_names(place) == set()

    def test_another_word_is_rejected(self) -> None:
        """It would be mistaken for the default, or for off."""
        with pytest.raises(ValueError, match="safeguards is 'none'; expected Safeguards"):
            BatonPlugin(safeguards="none")  # type: ignore[arg-type]

    async def test_workers_on_two_event_loops_share_a_client(self, server: DevServer, place: Path) -> None:
        """As in tests with a loop each: every loop opens the ledger for itself."""
        client = await connected(server.address)

        async def one_run() -> str:
            async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
                return str((await run_pipeline(worker, they.noted, START)).result.output)

        async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
            elsewhere = await asyncio.to_thread(asyncio.run, one_run())
            here = (await run_pipeline(worker, they.noted, START)).result.output

        assert (here, elsewhere) == ("noted", "noted")


class TestKit:
    """`baton.testing`."""

    async def test_it_has_safeguards_and_leaves_nothing(self, server: DevServer, place: Path) -> None:
        """Handoffs are signed and recorded as in production, in a temporary folder."""
        client = await connected(server.address)
        async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
            run = await run_pipeline(worker, they.noted, START)

        assert len(await sealed_handoffs(run.handle, client)) == 1
        assert len(run.record.anchors) == 1, "the ledger's receipt"
        await assert_replays(run.handle, [they.noted])
        assert file_names(place) == set()

    async def test_a_replay_uses_the_clients_store(self, server: DevServer) -> None:
        """The handle's client has the plugin, so tests need not repeat it."""
        client = await connected(server.address)
        async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
            run = await run_pipeline(
                worker, they.noted, PipelineInput(goal="Note it", params={"x": os.urandom(400_000).hex()})
            )

        await assert_replays(run.handle, [they.noted])


PLACES = [(what, where) for what in they.ODD for where in ("output", "patch", "result", "params", "input")]


@pytest.mark.parametrize(("what", "where"), PLACES, ids=[" ".join(place) for place in PLACES])
async def test_output_rules_are_the_same_in_tests_and_production(
    server: DevServer, place: Path, what: str, where: str
) -> None:
    """With the same error for an inexact number and half a surrogate pair."""
    shipped = await plugin_for(Settings.of(os.environ), WorkerCode([], []))
    messages = []
    for plugin in (temporary_plugin(), BatonPlugin(), shipped, BatonPlugin(safeguards=Safeguards.development(place))):
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, they.PIPELINES, they.STAGES) as worker:
            messages.append(await failure(await start(worker, they.returns_odd, what=what, where=where)))

    assert len({*messages}) == 1, messages
    assert {"large": "2**53", "half": "half a surrogate pair"}[what] in messages[0]
