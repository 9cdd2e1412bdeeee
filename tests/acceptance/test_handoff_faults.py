"""The fault matrix of handoffs (security.md 4.2) on the real server, with workers that are killed, stopped and starved.

Whatever fails: no handoff is lost, none is executed before its acceptance is on record, each is accepted once, and none
is executed again but where Temporal itself runs an attempt again whose result was lost; the chain of the task verifies
with the heads that the run's own history has kept. `whole` asserts that, after every fault.
"""

import asyncio
import contextlib
import resource
import signal
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from baton.client import read_run
from baton.devserver import DevServer
from baton.keys.store_keyring import KeyFile, Keyring, write_file
from baton.keys.store_keys import Key, Purpose
from tests.acceptance.disturbing import (
    Cable,
    alive_for,
    attempts,
    errand,
    failing,
    pipelines,
    process,
    returned,
    warm_up,
    whole,
)
from tests.acceptance.handoff_errands import (
    STAY,
    journal,
    safeguards,
    trace_of,
)
from tests.support.processes import heard


class TestLedgerDown:
    """The ledger is not writable: the handoff fails, nothing runs, and the run continues once it is back."""

    async def test_its_folder_is_gone(self, server: DevServer, tmp_path: Path) -> None:
        """The worker has the deleted file open, but does not write to it (S3-11-f, F13, P9)."""
        queue = f"gone-{uuid4()}"
        async with pipelines(server, tmp_path) as worker, process(server.address, queue, tmp_path):
            await warm_up(worker, tmp_path, queue)
            (tmp_path / "ledger").rename(tmp_path / "elsewhere")
            handle = await errand(worker, tmp_path, queue)
            await failing(handle, "was removed or replaced")
            assert journal(tmp_path) == []
            (tmp_path / "elsewhere").rename(tmp_path / "ledger")

            _, task = await whole(worker.client, handle, tmp_path)
        assert {record.fields.status for record in task.records} == {"ACCEPTED", "RETURNED"}

    async def test_another_file_is_in_its_place(self, server: DevServer, tmp_path: Path) -> None:
        """A worker that opened the old ledger records nothing in a new one at the same path (F13)."""
        queue, ledger = f"replaced-{uuid4()}", tmp_path / "ledger"
        async with pipelines(server, tmp_path) as worker, process(server.address, queue, tmp_path):
            await warm_up(worker, tmp_path, queue)
            ledger.rename(tmp_path / "elsewhere")
            async with safeguards(tmp_path).opened():
                handle = await errand(worker, tmp_path, queue)
                await failing(handle, "was removed or replaced")
            assert journal(tmp_path) == []
            ledger.rename(tmp_path / "new")
            (tmp_path / "elsewhere").rename(ledger)

            await whole(worker.client, handle, tmp_path)

    async def test_another_process_holds_its_lock(self, server: DevServer, tmp_path: Path) -> None:
        """The attempt waits for as long as needed, and is executed once (F13)."""
        queue = f"locked-{uuid4()}"
        async with pipelines(server, tmp_path) as worker, process(server.address, queue, tmp_path):
            await warm_up(worker, tmp_path, queue)
            with contextlib.closing(
                sqlite3.connect(tmp_path / "ledger" / "ledger.db", isolation_level=None)
            ) as connection:
                connection.execute("BEGIN IMMEDIATE")
                handle = await errand(worker, tmp_path, queue)
                await alive_for(handle, timedelta(seconds=1.5))  # half as long again as until it counts as lost
                assert journal(tmp_path) == []
                connection.execute("COMMIT")

            await whole(worker.client, handle, tmp_path)
        assert await attempts(handle) == {"draft": 1, "build": 1, "verify": 1}

    async def test_the_disk_is_full(self, server: DevServer, tmp_path: Path) -> None:
        """An interrupted write leaves no partial record, and nothing runs without a record (F13)."""
        queue, log = f"full-{uuid4()}", tmp_path / "ledger" / "ledger.db-wal"
        async with pipelines(server, tmp_path) as worker, process(server.address, queue, tmp_path) as starved:
            await warm_up(worker, tmp_path, queue)
            usual = resource.prlimit(starved.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(starved.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 50, usual[1]))
            handle = await errand(worker, tmp_path, queue)
            await failing(handle, "LedgerUnavailableError")
            assert journal(tmp_path) == []
            task_id = (await read_run(worker.client, handle.id)).start.task_id or ""
            assert (await trace_of(tmp_path, task_id)).records == ()
            resource.prlimit(starved.pid, resource.RLIMIT_FSIZE, usual)

            await whole(worker.client, handle, tmp_path)


class TestKilledWorkers:
    async def test_between_record_and_execution(self, server: DevServer, tmp_path: Path) -> None:
        """Accepted but not started: the next worker executes it, under the same record.

        The ledger has the acceptance before anything runs, and the workflow's own history is the outbox that sends it
        again (S3-7.1.5-a, S3-7.1.5-b, S3-7.1.5-c, S3-7.2-k; F1, P9).
        """
        queue = f"accepted-{uuid4()}"
        async with pipelines(server, tmp_path) as worker:
            handle = await errand(worker, tmp_path, queue)
            async with process(server.address, queue, tmp_path, **{STAY: "build:begun"}) as doomed:
                await heard(doomed, "build:begun")
                assert [act["accepted"] for act in journal(tmp_path)] == [1, 1, 1]
            assert [act["what"] for act in journal(tmp_path) if act["stage"] == "build"] == ["begun"]
            async with process(server.address, queue, tmp_path):
                await whole(worker.client, handle, tmp_path, {"build": 2})

        assert [act["what"] for act in journal(tmp_path) if act["stage"] == "build"] == ["begun", "begun", "done"]
        assert (await attempts(handle))["build"] == 2

    async def test_between_execution_and_its_record(self, server: DevServer, tmp_path: Path) -> None:
        """Done but not recorded: Temporal's second attempt repeats it, and its answer counts.

        What the lost one had done by then is discarded (S3-3.1-d).
        """
        queue = f"executed-{uuid4()}"
        async with pipelines(server, tmp_path) as worker:
            handle = await errand(worker, tmp_path, queue)
            async with process(server.address, queue, tmp_path, **{STAY: "build:done"}) as doomed:
                await heard(doomed, "build:done")
            async with process(server.address, queue, tmp_path):
                _, task = await whole(worker.client, handle, tmp_path, {"build": 2})

        assert [record.fields.status for record in task.records if record.fields.from_agent == "build"].count(
            "RETURNED"
        ) == 1
        assert (await attempts(handle))["build"] == 2

    async def test_between_its_record_and_the_server(self, server: DevServer, tmp_path: Path) -> None:
        """Done and recorded, but lost on the way: the second answer differs; both are recorded (F5)."""
        queue = f"lost-{uuid4()}"
        async with pipelines(server, tmp_path) as worker, Cable(server.address) as cable:
            handle = await errand(worker, tmp_path, queue)
            async with process(cable.address, queue, tmp_path, **{STAY: "build:done"}) as doomed:
                await heard(doomed, "build:done")
                await cable.cut()
                (tmp_path / "go").touch()
                await returned(tmp_path, handle, worker.client, 1)
            async with process(server.address, queue, tmp_path):
                run, task = await whole(worker.client, handle, tmp_path, {"build": 2})

        bodies = [
            record.body
            for record in task.records
            if (record.fields.from_agent, record.fields.status) == ("build", "RETURNED")
        ]
        assert len(bodies) == 2
        answers = [body["baton_patch"]["decision_log"][0] for body in bodies]
        assert answers[0] != answers[1]
        assert run.baton.decision_log[1] == answers[1], "what counts is what reached the pipeline"

    async def test_one_that_comes_back_after_it_was_given_up(self, server: DevServer, tmp_path: Path) -> None:
        """Two workers have the same handoff: the late answer of the first is recorded and changes nothing (F6)."""
        queue = f"zombie-{uuid4()}"
        async with pipelines(server, tmp_path) as worker:
            handle = await errand(worker, tmp_path, queue)
            async with process(server.address, queue, tmp_path, **{STAY: "build:done"}) as zombie:
                await heard(zombie, "build:done")
                zombie.send_signal(signal.SIGSTOP)
                async with process(server.address, queue, tmp_path):
                    await whole(worker.client, handle, tmp_path)
                    (tmp_path / "go").touch()
                    zombie.send_signal(signal.SIGCONT)
                    await returned(tmp_path, handle, worker.client, 2)
            run, task = await whole(worker.client, handle, tmp_path)

        bodies = [
            record.body
            for record in task.records
            if (record.fields.from_agent, record.fields.status) == ("build", "RETURNED")
        ]
        answers = [body["baton_patch"]["decision_log"][0] for body in bodies]
        assert len(answers) >= 2
        assert sum(answer in run.baton.decision_log for answer in answers) == 1

    async def test_one_of_two_with_many_pipelines_under_way(self, server: DevServer, tmp_path: Path) -> None:
        """Two workers share one ledger; the second completes the stages of the killed one.

        Checkpoint and dispatch are one transaction of the server, so no handoff is without its checkpoint, nor the
        other way round: each hands on the baton as history has it (S3-6.3-h, S3-7.1.6-a, S3-7.1.6-b, S3-11-a; F14, T6).
        """
        queue = f"two-{uuid4()}"
        async with (
            pipelines(server, tmp_path) as worker,
            process(server.address, queue, tmp_path) as doomed,
            process(server.address, queue, tmp_path),
        ):
            handles = await asyncio.gather(*(errand(worker, tmp_path, queue) for _ in range(20)))
            for _ in range(5):
                await heard(doomed, "build:begun")
            doomed.kill()
            for handle in handles:
                run, task = await whole(worker.client, handle, tmp_path)
                checkpoints = [run.state.initial, *(entry for _, entry in run.history)][:-1]
                states = [record.body["currentState"] for record in task.records if record.fields.status == "ACCEPTED"]
                assert states == [checkpoint.to_json_object() for checkpoint in checkpoints]


class TestMissingKey:
    async def test_the_run_waits_until_it_is_back(self, server: DevServer, tmp_path: Path) -> None:
        """Nothing runs meanwhile, nothing fails permanently, and then the run continues (F11, `security.md` 3.2)."""
        file, queue = tmp_path / "keys.toml", f"keyless-{uuid4()}"
        keys = {key.purpose: key for key in Keyring.development(tmp_path).all_keys()}
        async with pipelines(server, tmp_path, encrypt=True) as worker:
            async with process(server.address, queue, tmp_path, "stages+encrypt", **{STAY: "build:begun"}) as first:
                handle = await errand(worker, tmp_path, queue)
                await heard(first, "build:begun")
            other_keys = {**keys, Purpose.ENCRYPT: Key.generate(Purpose.ENCRYPT, datetime.now(UTC))}
            write_file(file, KeyFile(tuple(other_keys.values()), is_development=True), replace=True)
            meanwhile = replace(other_keys[Purpose.ENCRYPT], retired_at=datetime.now(UTC))
            async with process(server.address, queue, tmp_path, "stages+encrypt"):
                await failing(handle, "Encoded failure")  # it is encrypted as well
                assert len(journal(tmp_path)) == 3
                write_file(file, KeyFile((*keys.values(), meanwhile), is_development=True), replace=True)
                await whole(worker.client, handle, tmp_path, {"build": 2})
