"""`baton dev`: everything on one machine, started together, kept across restarts, and never left behind."""

import asyncio
import json
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from baton.codec.conversion import data_converter
from baton.codec.encryption import CompressionCodec
from baton.keys.store_keyring import Keyring
from tests.acceptance.operating import ROOT, WORKER, Operator

STUBBORN = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""

SLOW = """\
import asyncio, pathlib
from temporalio import workflow
from baton import Baton, BatonPatch, Pipeline, PipelineInput, PipelineResult, stage


@stage
async def slow(baton: Baton) -> BatonPatch:
    print("begun", flush=True)
    await asyncio.sleep(4)
    pathlib.Path("finished").touch()
    return BatonPatch(current_state=["Done"])


@workflow.defn
class Slow:
    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(slow)
        return self.pipeline.result()
"""
OWN_WORKER = """\
import asyncio
from temporalio.worker import Worker
from baton import WorkerParts
from baton.artifacts.store import open_store
from baton.client import connect, run_and_exit
from baton.plugin import BatonPlugin
from slow import Slow, slow


async def main() -> None:
    client = await connect(plugins=[BatonPlugin(WorkerParts(artifacts=open_store(".baton/artifacts")))])
    async with Worker(client, task_queue="baton", workflows=[Slow], activities=[slow]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    run_and_exit(main())
"""

Ready = tuple[asyncio.subprocess.Process, dict[str, Any]]
"""`baton dev`, and what it said when it was ready."""


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Return an operator with a new folder, and no server."""
    return Operator(tmp_path)


@asynccontextmanager
async def running(operator: Operator, *options: str) -> AsyncIterator[Ready]:
    """Run `baton dev`, and return the process and its ready message."""
    async with operator.started("dev", "--json", *options) as process:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, await process.communicate()
        yield process, json.loads(line)


async def stopped(process: asyncio.subprocess.Process, number: signal.Signals) -> tuple[int | None, str]:
    """Send a signal, and return exit code and output."""
    process.send_signal(number)
    async with asyncio.timeout(180):
        _, output = await process.communicate()
    return process.returncode, output.decode()


def left_behind(operator: Operator) -> list[str]:
    """Return the command lines of the operator's running processes."""
    mark = f"BATON_ARTIFACTS={operator.folder}/".encode()
    matches = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes() and (process / "cmdline").read_bytes():
                matches.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return matches


async def until_nothing_is_left(operator: Operator) -> None:
    """Wait until all processes of the operator have ended."""
    async with asyncio.timeout(180):
        while left_behind(operator):  # noqa: ASYNC110 - their parent is gone, so nobody is told
            await asyncio.sleep(0.05)


def get(url: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


class TestDev:
    async def test_runs_and_their_watchers_survive_a_restart(self, operator: Operator, port: int) -> None:
        """After the restart the waiting run and its watcher continue to the end."""
        options = ("--ui-port", "0", "--port", str(port), "--worker", str(WORKER))
        async with running(operator, *options) as (process, ready):
            second_operator = Operator(operator.folder, {"TEMPORAL_ADDRESS": ready["address"]})
            await second_operator("run", "Delivery", "-g", "Survive", "--id", "survivor")
            async with second_operator.started("watch", "survivor") as watching:
                await second_operator.until_asked("survivor")
                assert watching.stdout is not None
                first = await watching.stdout.readline()  # it has met the server before that ends
                ended = await stopped(process, signal.SIGTERM)
                nothing = await second_operator.refused("show", "survivor", code=3)
                async with running(operator, *options) as (again, told):
                    message = await second_operator.refused(
                        "dev", "--ephemeral", "--port", str(port), "--no-worker", code=3
                    )
                    await second_operator("approve", "survivor", "--yes", "--why", "it survived")
                    async with asyncio.timeout(180):
                        lines, beside = await watching.communicate()
                    await stopped(again, signal.SIGINT)

        assert ended[0] == again.returncode == 0
        assert "no Temporal server answers" in nothing
        assert told["database"] == ready["database"] == ".baton/dev/temporal.db"
        assert f"port {port} of 127.0.0.1 is taken" in message
        assert watching.returncode == 0, beside.decode()
        assert "the server is unreachable" in beside.decode()
        text = (first + lines).decode()
        assert text.count("1 plan: done") == text.count("5 release: done") == 1
        assert left_behind(operator) == []

    @pytest.mark.parametrize("option", ["--port", "--ui-port"])
    async def test_a_used_port_is_reported_with_the_option_that_changes_it(
        self, operator: Operator, option: str
    ) -> None:
        """Then neither server nor worker starts."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = str(listener.getsockname()[1])
            ports = {"--port": "0", "--ui-port": "0", option: port}
            words = [word for pair in ports.items() for word in pair]
            message = await operator.refused("dev", "--json", "--ephemeral", "--worker", str(WORKER), *words, code=3)

        assert f"port {port} of 127.0.0.1 is taken" in message
        assert f"({option} of a command)" in message
        assert message.count("\n") == 1
        assert left_behind(operator) == []

    async def test_the_ui_uses_the_codec_server(self, operator: Operator) -> None:
        """The UI uses the codec server, which decompresses the payloads.

        A service in another language asks the same, so where it is, is said.
        """
        async with running(operator, "--ephemeral", "--port", "0", "--ui-port", "0", "--no-worker") as (_, ready):
            settings = await asyncio.to_thread(get, f"{ready['ui']}/api/v1/settings")
            payload = Payload(metadata={"encoding": b"json/plain"}, data=b'"' + b"handoff " * 500 + b'"')
            sent = Payloads(payloads=await CompressionCodec().encode([payload]))
            body = json_format.MessageToJson(sent).encode()
            answer = await asyncio.to_thread(get, f"{ready['codec']}/decode", body)

        assert settings["Codec"]["Endpoint"] == ready["codec"]
        assert json_format.ParseDict(answer, Payloads()).payloads[0] == payload
        assert (ready["database"], ready["worker"]) == (None, None)

    async def test_the_ui_decrypts_with_the_keys_of_this_machine(self, operator: Operator) -> None:
        """The keys are created; the codec server and the workers in this folder use them."""
        secret = Operator(operator.folder, {"BATON_ENCRYPT": "true"})
        async with running(secret, "--ephemeral", "--port", "0", "--ui-port", "0", "--no-worker") as (_, ready):
            settings = await asyncio.to_thread(get, f"{ready['ui']}/api/v1/settings")
            keyring = Keyring.development(operator.folder / ".baton", {})
            [stored] = await data_converter(keyring=keyring, encrypt=True).encode([{"goal": "hunter2"}])
            body = json_format.MessageToJson(Payloads(payloads=[stored])).encode()
            answer = await asyncio.to_thread(get, f"{settings['Codec']['Endpoint']}/decode", body)

        assert ready["encrypted"] is True
        assert b"hunter2" not in stored.SerializeToString()
        assert json_format.ParseDict(answer, Payloads()).payloads[0].data == b'{"goal":"hunter2"}'

    async def test_production_gets_no_keys_of_this_machine(self, operator: Operator) -> None:
        """Nothing starts, and the message says what to do."""
        production = Operator(operator.folder, {"BATON_ENCRYPT": "true", "BATON_ENV": "production"})

        message = await production.refused("dev", "--no-worker", code=1)

        assert "baton keys new FILE" in message
        assert not (operator.folder / ".baton").exists()

    async def test_another_port_is_told_for_commands(self, operator: Operator) -> None:
        """A hint such as `baton list` would ask the default server."""
        options = ("--no-worker", "--ephemeral", "--port", "0", "--ui-port", "0", "--console-port", "0")
        async with operator.started("dev", *options) as process:
            assert process.stdout is not None
            while b"export TEMPORAL_ADDRESS=127.0.0.1:" not in (line := await process.stdout.readline()):
                assert line, await process.communicate()

    async def test_a_second_signal_does_not_wait_for_a_stubborn_worker(self, operator: Operator) -> None:
        """The first stops the worker gracefully, the second kills it; no process is left."""
        (operator.folder / "worker.py").write_text(STUBBORN, encoding="utf-8")
        async with running(operator, "--ephemeral", "--port", "0", "--ui-port", "0") as (process, ready):
            assert process.stderr is not None
            assert ready["worker"] == str(operator.folder / "worker.py")
            assert await process.stderr.readline() == b"up\n"
            process.send_signal(signal.SIGINT)
            assert (await process.stderr.readline()).startswith(b"stopping")
            code, output = await stopped(process, signal.SIGINT)

        assert (code, output) == (0, "stopped\n")
        assert left_behind(operator) == []

    async def test_ctrl_c_lets_running_stages_of_a_worker_finish(self, operator: Operator) -> None:
        """The README's worker, during a stage that takes some seconds."""
        (operator.folder / "slow.py").write_text(SLOW, encoding="utf-8")
        (operator.folder / "worker.py").write_text(OWN_WORKER, encoding="utf-8")
        operator_here = replace(operator, variables={"PYTHONPATH": f"{operator.folder}:{ROOT}"})
        async with running(operator_here, "--ephemeral", "--port", "0", "--ui-port", "0") as (process, ready):
            assert process.stderr is not None
            client = Operator(operator.folder, {"TEMPORAL_ADDRESS": ready["address"]})
            await client("run", "Slow", "-g", "Take some time")
            while b"begun" not in await process.stderr.readline():
                pass
            code, _ = await stopped(process, signal.SIGINT)

        assert code == 0
        assert (operator.folder / "finished").exists()
        assert left_behind(operator) == []

    async def test_closing_the_terminal_stops_everything(self, operator: Operator) -> None:
        """Nothing can be printed then; formerly server and worker continued without an owner."""
        code = await operator.hung_up("dev", "--port", "0", "--ui-port", "0", "--worker", str(WORKER), once="Ctrl-C")

        assert code == 0
        assert left_behind(operator) == []

    async def test_even_a_kill_leaves_nothing_behind(self, operator: Operator) -> None:
        """A killed process cannot clean up, so the kernel does it."""
        async with running(operator, "--port", "0", "--ui-port", "0", "--worker", str(WORKER)) as (process, _):
            await stopped(process, signal.SIGKILL)

        await until_nothing_is_left(operator)
