"""The shipped `worker.py` as a process: it works, ends when asked, and says why it cannot begin."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from tests.acceptance.operating import ROOT
from tests.support.processes import ran

LIMIT = 60
"""How many seconds a process may take that is expected to end."""

_HELD = """
import asyncio, sys, time
from temporalio import workflow
from baton import Baton, BatonPatch
from baton import stage
from baton.core.messages import PipelineInput, PipelineResult
from baton import Pipeline

def work():
    print("in the thread", file=sys.stderr, flush=True)
    time.sleep(3600)

@stage
async def hold(baton: Baton) -> BatonPatch:
    await asyncio.to_thread(work)
    return BatonPatch()

@workflow.defn
class Held:
    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(hold)
        return self.pipeline.result()
"""
"""A pipeline whose one stage is in a thread for an hour."""

_DEAF_LOOP = """
import asyncio, runpy, sys

class Deaf(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *_):
        raise NotImplementedError

class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Deaf

asyncio.set_event_loop_policy(Policy())
sys.path.insert(0, {root!r})
runpy.run_path({root!r} + "/worker.py", run_name="__main__")
"""
"""`worker.py` on an event loop that is like that of Windows."""


@pytest.fixture
def environment(server: DevServer, tmp_path: Path) -> dict[str, str]:
    """Return the settings of a worker in a new folder."""
    return {
        **os.environ,
        "TEMPORAL_ADDRESS": server.address,
        "BATON_TASK_QUEUE": f"worker-{uuid4()}",
        "BATON_LEDGER": str(tmp_path / "ledger.db"),
        "BATON_ARTIFACTS": str(tmp_path / "artifacts"),
    }


@asynccontextmanager
async def worker(environment: dict[str, str], folder: Path, code: str | None = None) -> AsyncIterator[Any]:
    """Run `worker.py`, or code around it, in a folder for the block."""
    command = [str(ROOT / "worker.py")] if code is None else ["-c", code]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command), cwd=folder, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class TestWorker:
    async def test_it_works_until_it_is_stopped(
        self, server: DevServer, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """It reports its start, runs a shipped pipeline on record, and exits cleanly."""
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        source = tmp_path / "source"
        source.mkdir()
        (source / "main.py").write_text("print('hello')\n", encoding="utf-8")
        async with worker(environment, tmp_path) as process, asyncio.timeout(LIMIT):
            async for line in process.stderr:
                if b"working for task queue" in line:
                    break
            else:
                raise AssertionError(f"the worker ended with code {await process.wait()} before it worked")
            result = await client.execute_workflow(
                "project_init",
                PipelineInput(goal="Know it", params={"source": str(source), "output": str(tmp_path / "output")}),
                id=f"init-{uuid4()}",
                task_queue=environment["BATON_TASK_QUEUE"],
            )
            process.send_signal(signal.SIGTERM)
            stderr = (await process.stderr.read()).decode()
            code = await process.wait()

        assert b": project_init, contract_review, " in line  # as `baton run` takes them
        assert result["baton"]["decision_log"]
        assert (code, stderr.splitlines()[-1].endswith("stopped")) == (0, True)
        async with Ledger(tmp_path / "ledger.db") as ledger:
            assert await ledger.newest(1)

    async def test_it_stops_while_it_waits_for_a_service_that_does_not_answer(
        self, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """It stops without waiting for the connection to fail, and exits cleanly."""
        called = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            called.set()
            await reader.read()
            writer.close()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with silent, worker({**environment, "TEMPORAL_ADDRESS": address}, tmp_path) as process:
            async with asyncio.timeout(LIMIT):
                await called.wait()
                process.send_signal(signal.SIGTERM)
                stderr = (await process.stderr.read()).decode()
                code = await process.wait()

        assert (code, stderr.splitlines()[-1].endswith("stopped before there was a connection")) == (0, True)

    async def test_it_stops_if_the_event_loop_has_no_signal_handlers(
        self, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """As on Windows, where an ordinary signal handler stops it."""
        code = _DEAF_LOOP.format(root=str(ROOT))
        async with worker(environment, tmp_path, code) as process, asyncio.timeout(LIMIT):
            async for line in process.stderr:
                if b"working for task queue" in line:
                    process.send_signal(signal.SIGTERM)
            ended = await process.wait()

        assert ended == 0

    async def test_it_stops_while_a_tool_blocks_a_thread(
        self, server: DevServer, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """After the grace period it exits cleanly; the stage is retried elsewhere."""
        (tmp_path / "held.py").write_text(_HELD, encoding="utf-8")
        code = "import held; from baton import run_worker; run_worker([held.Held], [held.hold])"
        own = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "BATON_GRACE_SECONDS": "0.5"}
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        async with worker({**environment, **own}, tmp_path, code) as process, asyncio.timeout(LIMIT):
            handle = await client.start_workflow(
                "Held", PipelineInput(goal="Hold"), id=f"held-{uuid4()}", task_queue=environment["BATON_TASK_QUEUE"]
            )
            while b"in the thread" not in (line := await process.stderr.readline()):
                assert line, "the worker ended before its stage began"
            process.send_signal(signal.SIGTERM)
            stderr = (await process.stderr.read()).decode()
            ended = await process.wait()
            await handle.terminate()

        assert (ended, stderr.splitlines()[-1].endswith("stopped")) == (0, True)

    async def test_it_collects_garbage_rarely(self, environment: dict[str, str], tmp_path: Path) -> None:
        """With Python's default a worker with agents spent a tenth of its time on it."""
        code = (
            "import gc; from baton import worker; worker.serve(worker.WorkerCode([], [])); "
            "print(gc.get_threshold()[0], worker.COLLECT_AFTER)"
        )
        nowhere = {**environment, "PYTHONPATH": str(ROOT), "TEMPORAL_ADDRESS": "127.0.0.1:1"}
        ended = await ran(sys.executable, "-c", code, folder=tmp_path, environment=nowhere)

        assert ended.said.split() == ["5000", "5000"], ended.beside

    @pytest.mark.parametrize(
        ("settings", "ends", "what"),
        [
            pytest.param({"BATON_LEDGER": "{folder}/text"}, 3, "the ledger at '{folder}/text' cannot", id="no ledger"),
            pytest.param({"BATON_COMPRESS": "maybe"}, 2, "BATON_COMPRESS", id="a setting that is none"),
            pytest.param({"BATON_LOG_LEVEL": "verbose"}, 2, "BATON_LOG_LEVEL", id="no level"),
            pytest.param({"BATON_GRACE_SECONDS": "inf"}, 2, "BATON_GRACE_SECONDS", id="no end"),
            pytest.param({"BATON_METRICS": "localhost:9464"}, 2, "expected an IP address", id="no IP address"),
            pytest.param({"BATON_ARTIFACTS": "ftp://host/folder"}, 2, "BATON_ARTIFACTS", id="no store"),
            pytest.param({"BATON_ARTIFACTS": "{folder}/text/artifacts"}, 2, "BATON_ARTIFACTS", id="no folder"),
            pytest.param({"BATON_LEDGER": "mysql://host/ledger"}, 2, "BATON_LEDGER", id="no database that is known"),
            pytest.param(
                {"BATON_LEDGER": "postgresql://a:secret#1@127.0.0.1/b"},
                2,
                "BATON_LEDGER: the address cannot be read",
                id="a password that ends the address",
            ),
            pytest.param({"BATON_KEYS": "{folder}/keys.toml"}, 2, "BATON_KEYS: cannot read the keys in", id="no keys"),
            pytest.param(
                {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "5000"},
                2,
                "the OTEL_… variables are invalid: max_export_batch_size",
                id="a batch of spans that is larger than what may wait",
            ),
            pytest.param({"TEMPORAL_NAMESPACE": "none"}, 2, "TEMPORAL_NAMESPACE", id="no namespace"),
            pytest.param({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, 3, "127.0.0.1:1", id="no server"),
        ],
    )
    async def test_it_exits_with_the_reason_if_it_cannot_start(
        self, environment: dict[str, str], tmp_path: Path, settings: dict[str, str], ends: int, what: str
    ) -> None:
        """It exits instead of waiting, and does not report that it is working."""
        (tmp_path / "text").write_text("This is no database. " * 1_000, encoding="utf-8")
        members = {name: value.format(folder=tmp_path) for name, value in settings.items()}
        async with worker({**environment, **members}, tmp_path) as process, asyncio.timeout(LIMIT):
            stderr = (await process.stderr.read()).decode()
            code = await process.wait()

        assert code == ends
        assert what.format(folder=tmp_path) in stderr
        assert "Traceback" not in stderr
        assert "working for" not in stderr


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("gone.py", 2, "there is no file 'gone.py'"),
        ("gone", 2, "there is no module 'gone' (gone)"),
        ("gone.py more", 2, "usage: python -m baton.worker FILE|PACKAGE"),
        ("nothing.py", 2, "nothing.py defines no pipeline and no stage; write @pipeline or @stage above a function"),
        ("nowhere_job.py", 2, "No module named 'nowhere'"),  # not: there is no module 'nowhere_job'
        ("team/nothing.py", 2, "team/nothing.py defines no pipeline"),
    ],
)
async def test_a_source_that_cannot_be_served(tmp_path: Path, source: str, code: int, message: str) -> None:
    """It exits with the reason; an error in the source is that source's own."""
    for folder in (tmp_path, tmp_path / "team"):
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "nothing.py").touch()
    (tmp_path / "__init__.py").unlink()
    (tmp_path / "nowhere_job.py").write_text("import nowhere\n")
    ended = await ran(sys.executable, "-m", "baton.worker", *source.split(), folder=tmp_path)
    assert (ended.code, message in ended.beside) == (code, True), ended.beside
