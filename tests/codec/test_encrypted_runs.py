"""Encryption on a real server: no clear text is stored, keys are rotated, a run waits for a missing key."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxRestrictions
from typer.testing import CliRunner

from baton import PipelineInput, WorkerParts, open_store
from baton.cli.app import make_app
from baton.codec.conversion import data_converter
from baton.codec.encryption import ENCODING, KEY_ID
from baton.devserver import DevServer
from baton.keys.store_keyring import Key, KeyFile, Keyring, Purpose, write_file
from baton.plugin import BatonPlugin
from baton.sdk.runner import WorkflowContextRunner
from baton.testing import pipeline_worker, run_pipeline
from tests.codec.secret_workflows import MARK, Secret, SecretChild, SecretFailure, work
from tests.pipelines.line_pipelines import Waits
from tests.pipelines.line_stages import STAGES
from tests.support import LIMIT, event
from tests.support.tampering import signal_raw

WORKFLOWS = [Secret, SecretChild, SecretFailure]
RUNNER = WorkflowContextRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("baton"))
AT = datetime(2026, 11, 21, tzinfo=UTC)
BOUND = b"\x01"
"""How the data of a payload begins that is bound to its workflow."""


async def connected(server: DevServer, keyring: Keyring) -> Client:
    return await Client.connect(server.address, data_converter=data_converter(keyring=keyring, encrypt=True))


@asynccontextmanager
async def working(client: Client, task_queue: str) -> AsyncIterator[Worker]:
    """Run a worker without a cache, which reads every history from its start."""
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=[work],
        workflow_runner=RUNNER,
        max_cached_workflows=0,
    ) as worker:
        yield worker


async def begun(client: Client, workflow: Any, queue: str, **more: Any) -> WorkflowHandle[Any, Any]:
    """Start a workflow with the marker and a timeout of half a minute."""
    return await client.start_workflow(
        workflow, MARK, id=f"secret-{uuid.uuid4()}", task_queue=queue, execution_timeout=LIMIT, **more
    )


async def stored(client: Client, handle: WorkflowHandle[Any, Any]) -> bytes:
    """Return everything that the server stores of a run: history and description."""
    described = await client.get_workflow_handle(handle.id).describe()
    history = await handle.fetch_history()
    return described.raw_description.SerializeToString() + b"".join(
        event.SerializeToString() for event in history.events
    )


def written(path: Path, keys: Mapping[str, Key]) -> Keyring:
    """Write a key file, and return its keyring."""
    write_file(path, KeyFile(tuple(keys.values())), replace=True)
    return Keyring.from_file(path)


class TestEncryption:
    async def test_nothing_is_stored_in_clear(self, server: DevServer) -> None:
        """Inputs, results, signals, updates, memos, summaries, heartbeats, children, failures and stack traces."""
        client, queue = await connected(server, Keyring.generate()), str(uuid.uuid4())
        more: dict[str, Any] = {"memo": {"first": f"memo {MARK}"}, "static_summary": MARK, "static_details": MARK}
        async with working(client, queue):
            handle = await begun(client, Secret.run, queue, **more)
            answer = await handle.execute_update(Secret.ask, MARK)
            await handle.signal(Secret.hear, MARK)
            output = await handle.result()
            heard = await handle.query(Secret.heard)
            memo = await (await handle.describe()).memo()
            failed = await begun(client, SecretFailure.run, queue)
            with pytest.raises(WorkflowFailureError) as raised:
                await failed.result()

        assert answer == f"answer to {MARK}"
        assert output[0] == f"result of input {MARK}"
        assert output[1] == f"failed: message fail {MARK}"
        assert output[2] == f"child result of signal {MARK}"
        assert f"child fail {MARK}" in output[3]
        assert heard == output[4:] == [f"heard {MARK}"]
        assert memo == {"first": f"memo {MARK}", "later": f"memo {MARK}"}
        cause = raised.value.cause
        assert isinstance(cause, ApplicationError)
        assert (cause.message, cause.details) == (f"message {MARK}", (f"details {MARK}",))
        assert "secret_workflows.py" in str(cause.failure)
        for run in (handle, failed):
            assert {payload.data[:1] for payload in _payloads(await run.fetch_history())} == {BOUND}
            everything = await stored(client, run)
            assert len(everything) > 2_000
            for part in (MARK.encode(), b"hunter2", b"secret_workflows.py", b"Traceback"):
                assert part not in everything

    async def test_a_payload_moved_from_another_run_is_not_read(self, server: DevServer) -> None:
        """An attacker who can send signals and read the store cannot replay a payload of another run."""
        client, queue = await connected(server, Keyring.generate()), str(uuid.uuid4())
        async with working(client, queue):
            first, second = await begun(client, Secret.run, queue), await begun(client, Secret.run, queue)
            await first.signal(Secret.hear, MARK)
            await first.result()
            sent = await event(first, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
            [stolen] = sent.workflow_execution_signaled_event_attributes.input.payloads
            await signal_raw(client, second, "hear", stolen)
            await second.signal(Secret.hear, "what is its own")
            output = await second.result()

        assert stolen.metadata["encoding"] == ENCODING
        assert output[4:] == ["heard what is its own"]

    async def test_keys_can_be_rotated_during_a_run(self, server: DevServer, tmp_path: Path) -> None:
        """Old payloads stay readable, and new ones use the new key."""
        keys = {purpose.value: Key.generate(purpose, AT) for purpose in Purpose}
        old, new = keys["encrypt"], Key.generate(Purpose.ENCRYPT, AT)
        path, queue = tmp_path / "keys.toml", str(uuid.uuid4())
        client = await connected(server, written(path, keys))
        async with working(client, queue):
            handle = await begun(client, Secret.run, queue)
            await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED)
            rotated = written(path, {**keys, "encrypt": replace(old, retired_at=AT), "new": new})
            sender = (await connected(server, rotated)).get_workflow_handle(handle.id)
            await sender.signal("hear", MARK)
            output = await handle.result()

        used = [payload.metadata[KEY_ID].decode() for payload in _payloads(await handle.fetch_history())]
        assert output[-1] == f"heard {MARK}"
        assert used[0] == old.id
        assert used[-1] == new.id  # the worker, which was not started again, took it up when it met it
        replayer = Replayer(
            workflows=WORKFLOWS, data_converter=data_converter(keyring=rotated, encrypt=True), workflow_runner=RUNNER
        )
        await replayer.replay_workflow(await handle.fetch_history())

    async def test_baton_replay_uses_the_keys_of_the_environment(
        self, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also for a file that is not named like the run."""
        keys = tmp_path / "keys.toml"
        ring = written(keys, {purpose.value: Key.generate(purpose, AT) for purpose in Purpose})
        client = await Client.connect(
            server.address, plugins=[BatonPlugin(safeguards="off", keyring=ring, encrypt=True)]
        )
        (tmp_path / "ledger").mkdir()
        start = PipelineInput(goal=MARK, params={"folder": str(tmp_path)})
        async with pipeline_worker(client, [Waits], STAGES) as worker:
            run = await run_pipeline(worker, Waits.run, start)
        (tmp_path / "kept.json").write_text((await run.handle.fetch_history()).to_json())
        monkeypatch.setenv("BATON_KEYS", str(keys))
        words = ["replay", str(tmp_path / "kept.json"), "-m", Waits.__module__]
        root = ["--path", str(Path(__file__).parents[2])]
        result = await asyncio.to_thread(CliRunner().invoke, make_app(), [*words, *root])

        assert (result.exit_code, "✓" in result.output) == (0, True), result.output

    async def test_a_worker_warns_once_of_a_run_in_clear(
        self, server: DevServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The warning names the run that was started without encryption, and no other."""
        parts = WorkerParts(artifacts=open_store(str(tmp_path / "artifacts")))
        plugin = BatonPlugin(parts, safeguards="off", keyring=Keyring.generate(), encrypt=True)
        client = await Client.connect(server.address, plugins=[plugin])
        forgot = await Client.connect(server.address, plugins=[BatonPlugin(parts)])
        params: dict[str, Any] = {"text": "long " * 60_000}
        for folder in ("one", "other"):
            (tmp_path / folder / "ledger").mkdir(parents=True)
        async with pipeline_worker(client, [Waits], STAGES) as worker:
            start = PipelineInput(goal=MARK, params=params | {"folder": str(tmp_path / "one")})
            await run_pipeline(worker, Waits.run, start)
            start = PipelineInput(goal=MARK, params=params | {"folder": str(tmp_path / "other")})
            handle = await forgot.start_workflow(
                Waits.run, start, id=f"in-clear-{uuid.uuid4()}", task_queue=worker.task_queue, execution_timeout=LIMIT
            )
            await client.get_workflow_handle(handle.id).result()

        [message] = [record.message for record in caplog.records if "in clear" in record.message]
        assert handle.id in message
        assert "Set BATON_ENCRYPT=true" in message

    async def test_a_run_waits_for_a_missing_key(self, server: DevServer, tmp_path: Path) -> None:
        """Its tasks fail and name the key; the run continues without a restart when the key is back."""
        own_keys = {purpose.value: Key.generate(purpose, AT) for purpose in Purpose}
        other_keys = {purpose.value: Key.generate(purpose, AT) for purpose in Purpose}
        path, queue = tmp_path / "keys.toml", str(uuid.uuid4())
        sender = await connected(server, Keyring(own_keys.values()))
        async with working(await connected(server, written(path, other_keys)), queue):
            handle = await begun(sender, Secret.run, queue, task_timeout=timedelta(seconds=1))
            await handle.signal(Secret.hear, MARK)
            failed = await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
            retired = replace(own_keys["encrypt"], retired_at=AT)
            written(path, {**other_keys, "back": retired})
            both = Keyring([*other_keys.values(), retired])
            output = await (await connected(server, both)).get_workflow_handle(handle.id).result()

        assert output[-1] == f"heard {MARK}"
        attributes = failed.workflow_task_failed_event_attributes
        assert attributes.failure.SerializeToString()


def _payloads(history: Any) -> list[Payload]:
    """Return the inputs and results of a history, in order."""
    payloads: list[Payload] = []
    for history_event in history.events:
        for attributes in (
            history_event.workflow_execution_started_event_attributes.input,
            history_event.activity_task_scheduled_event_attributes.input,
            history_event.activity_task_completed_event_attributes.result,
            history_event.workflow_execution_signaled_event_attributes.input,
            history_event.workflow_execution_completed_event_attributes.result,
        ):
            payloads += attributes.payloads
    return payloads
