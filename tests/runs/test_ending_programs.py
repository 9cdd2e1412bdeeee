"""`run_and_exit`, the last line of a script: its exit codes and its output."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from temporalio.client import Client

from baton import BatonPlugin, PipelineInput
from baton.devserver import DevServer
from tests.support.processes import ROOT, heard

PROGRAM = """
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from baton.client import run_and_exit


async def main() -> None:
    raise {raised}

run_and_exit(main())
"""

SERVICE = """
import asyncio
import sys

from temporalio import activity
from temporalio.worker import Worker

from baton import Baton, BatonPatch, BatonPlugin, Pipeline, pipeline, stage
from baton.client import connect, run_and_exit

@stage
async def hold(baton: Baton) -> BatonPatch:
    print("began", flush=True)
    await activity.wait_for_worker_shutdown()
    await asyncio.sleep(0.2)  # a worker without a grace period cancels it here
    print("finished", flush=True)
    return BatonPatch()

@pipeline
async def holding(p: Pipeline) -> None:
    await p.stage(hold)

async def main() -> None:
    client = await connect(plugins=[BatonPlugin()])
    try:
        async with Worker(client, task_queue=sys.argv[1], workflows=[holding], activities=[hold]):
            print("working", flush=True)
            await asyncio.Event().wait()
    finally:
        print("stopped", flush=True)

if __name__ == "__main__":
    run_and_exit(main())
"""
"""A program with a worker of its own, whose stage ends a little after the worker is asked to stop."""


def run_program(raised: str) -> tuple[int, str]:
    """Return the exit code of a program that raises, and its last line of output."""
    process = subprocess.run([sys.executable, "-c", PROGRAM.format(raised=raised)], capture_output=True, text=True)
    return process.returncode, process.stderr.splitlines()[-1] if process.stderr else ""


class TestRunAndLeave:
    """`run_and_exit`."""

    def test_the_last_line_says_why_a_run_failed(self) -> None:
        """Temporal's own exception has no reason."""
        cause = "ApplicationError('stage \\'check\\' failed', type='StageFailedError')"

        assert run_program(f"WorkflowFailureError(cause={cause})") == (1, "StageFailedError: stage 'check' failed")

    def test_another_exception_is_printed_unchanged(self) -> None:
        """As Python prints it."""
        assert run_program("KeyError('x')") == (1, "KeyError: 'x'")

    def test_ctrl_c_leaves_no_traceback(self) -> None:
        """The exit code is the shell's own."""
        assert run_program("KeyboardInterrupt") == (130, "")

    async def test_a_worker_of_its_own_lets_its_stage_finish(self, server: DevServer, tmp_path: Path) -> None:
        """On SIGTERM, by default as `worker.py` does."""
        (tmp_path / "service.py").write_text(SERVICE, encoding="utf-8")
        queue = f"service-{uuid4()}"
        inherited = {name: value for name, value in os.environ.items() if name != "BATON_GRACE_SECONDS"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "service.py", queue),
            cwd=tmp_path,
            env={**inherited, "TEMPORAL_ADDRESS": server.address, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        handle = await client.start_workflow("holding", PipelineInput(goal="Hold"), id=queue, task_queue=queue)
        await heard(process, "began")
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
        await handle.terminate()

        assert output.split() == [b"finished", b"stopped"]
        assert process.returncode == 128 + signal.SIGTERM
