"""The main job on real input: `project_init` on this repository, on a real server, with a worker that is killed.

    make demo

It starts the embedded Temporal server and a worker, runs the pipeline, kills the worker in the middle of a
stage and starts another, shows every change as it comes, proves which worker ran what, and says what was produced and
where. It ends by itself and leaves nothing running; the state stays in `.baton/dev`, so that `baton dev` shows
the same run in the Temporal UI.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.rule import Rule
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import Client, WorkflowHandle

from activities.project_init.knowledge import query
from baton import PipelineInput, PipelineResult, WorkerParts
from baton.artifacts.store import open_store
from baton.cli.dev import worker_environment
from baton.cli.output import make_console
from baton.client import RunRecord, RunStatus, read_run
from baton.codec.encryption import CompressionCodec
from baton.codec.server import serve_codec
from baton.devserver import DevServer, DevServerOptions
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.runs.cli_pages import Page, news_lines
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_follow import Followed, follow
from baton.runs.client_news import NewsKind
from workflows.project_init import ProjectInit

ROOT = Path(__file__).resolve().parent
STATE = ROOT / ".baton" / "dev"
ARTIFACTS = ROOT / ".baton" / "artifacts"
KEYS = ROOT / ".baton"
LEDGER = KEYS / "ledger.db"
UI_PORT = 8233
NAMESPACE = "default"
KILLED_IN = "build-knowledge"
QUESTION = "how is a run rolled back to before a stage?"


class WorkerProcess:
    """A `worker.py` of this checkout in a process of its own, so that it can really be killed."""

    def __init__(self, address: str) -> None:
        # The demonstration's own server, ledger and keys, whatever this machine has set up otherwise.
        others = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        self._environment = worker_environment(others, address=address, namespace=NAMESPACE, artifacts=str(ARTIFACTS))
        self._log = (STATE / "worker.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start a worker and return its process id."""
        command = [sys.executable, str(ROOT / "worker.py")]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=self._log, stderr=self._log)
        return self._process.pid

    def kill(self) -> None:
        """Kill it with SIGKILL: it can save and report nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()


async def main() -> int:
    """Run the demonstration; return the exit code."""
    console = make_console()
    STATE.mkdir(parents=True, exist_ok=True)
    name = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    output = ROOT / ".baton" / "demo" / name
    async with embedded_server() as server:
        worker = WorkerProcess(server.address)
        try:
            console.print(
                f"Temporal server at {server.address}, its UI at {server.ui_url}; worker {worker.start()}",
                soft_wrap=True,
            )
            plugin = BatonPlugin(WorkerParts(artifacts=open_store(ARTIFACTS)))
            # Not `connect`: a profile or a key of another service has no say in this connection.
            client = await Client.connect(server.address, namespace=NAMESPACE, plugins=[plugin])
            start = PipelineInput(
                goal="Read this repository, document it, index it and verify the result",
                params={"source": str(ROOT), "output": str(output)},
            )
            handle = await client.start_workflow(ProjectInit.run, start, id=name, task_queue=DEFAULT_TASK_QUEUE)
            page = f"/namespaces/{NAMESPACE}/workflows/{name}/{handle.first_execution_run_id}/history"
            console.print(f"Pipeline project_init runs as {name}: {server.ui_url}{page}\n", soft_wrap=True)
            run = await watched(console, client, handle, worker)
            await closing(console, handle)
        finally:
            worker.stop()
    if run.status is not RunStatus.COMPLETED:
        console.print(
            f"The pipeline did not complete: {run.failure}. The worker's log is {STATE / 'worker.log'}.", soft_wrap=True
        )
        return 1
    produced(console, output)
    await recorded(console, run)
    console.print(
        "\nNothing is left running, and the state is kept. To look at the same run in the Temporal UI:", soft_wrap=True
    )
    console.print(f"    .venv/bin/baton dev\n    http://localhost:{UI_PORT}{page}", soft_wrap=True)
    console.print("While that runs, the record is checked again by", soft_wrap=True)
    console.print(f"    .venv/bin/baton audit verify {run.workflow_id} --run {run.workflow_id}", soft_wrap=True)
    return 0


@contextlib.asynccontextmanager
async def embedded_server() -> AsyncIterator[DevServer]:
    """Run the embedded server on the state that `baton dev` uses too, with a codec server for its UI."""
    origins = [f"http://{host}:{UI_PORT}" for host in ("localhost", "127.0.0.1")]
    async with serve_codec([CompressionCodec()], origins=origins) as codec:
        ui_port = UI_PORT if is_free(UI_PORT) else 0
        options = DevServerOptions(database=STATE / "temporal.db", ui_port=ui_port, codec_endpoint=codec)
        async with DevServer(options) as server:
            yield server


def is_free(port: int) -> bool:
    """Return whether nothing listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def watched(
    console: Console, client: Client, handle: WorkflowHandle[ProjectInit, PipelineResult], worker: WorkerProcess
) -> RunRecord:
    """Show the run while it happens, and kill its worker on the way."""
    page = Page(console)
    killing: asyncio.Task[None] | None = None
    with Live(page, console=console, refresh_per_second=4) if console.is_terminal else contextlib.nullcontext():
        async for update in follow(client, handle.id):
            page.take(update)
            if not console.is_terminal:
                for line in lines_of(update):
                    console.print(line, soft_wrap=True)
            begun = {one.step.name for one in update.news if one.step and one.kind is NewsKind.STEP_STARTED}
            if killing is None and KILLED_IN in begun:
                killing = asyncio.create_task(kill_and_restart(console, handle, worker))
    if killing is not None:
        await killing
    return await read_run(client, handle.id)


async def kill_and_restart(
    console: Console, handle: WorkflowHandle[ProjectInit, PipelineResult], worker: WorkerProcess
) -> None:
    """Kill the worker while the stage runs in it, and start another."""
    while True:
        pending = (await handle.describe()).raw_description.pending_activities
        if not pending or pending[0].state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
            break
    worker.kill()
    when = f"while {KILLED_IN} ran in it" if pending else f"just after {KILLED_IN} had ended"
    console.print(f"── killed the worker (SIGKILL) {when} ──", style="bold red", soft_wrap=True)
    await asyncio.sleep(1)
    restarted = f"── started another worker, {worker.start()}; it takes over once the heartbeat is overdue ──"
    console.print(restarted, style="bold", soft_wrap=True)


def lines_of(update: Followed) -> Iterator[object]:
    """Yield the lines of an update, for an output that is not a terminal."""
    if update.run is not None:
        yield from news_lines(update.news, update.run)


async def closing(console: Console, handle: WorkflowHandle[ProjectInit, PipelineResult]) -> None:
    """Show which worker ran what."""
    console.print(Rule("who ran what"))
    names: dict[int, str] = {}
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            lost = f": {started.last_failure.message}, so it ran again" if started.attempt > 1 else ""
            name = names[started.scheduled_event_id]
            console.print(
                f"  {name:18} worker {started.identity.split('@')[0]}, run {started.attempt}{lost}", soft_wrap=True
            )


async def recorded(console: Console, run: RunRecord) -> None:
    """Show what the ledger has of the run, and whether it is whole: by the public keys and the heads in the history."""
    task_id = (run.result.task_id if run.result else run.start.task_id) or ""
    anchors = [ChainHead.from_anchor("baton", task_id, anchor) for anchor in run.anchors]
    async with Ledger(LEDGER, LedgerOptions(create=False)) as ledger:
        task = await ledger.trace(task_id, verifier=Keyring.development(KEYS).public(), anchors=anchors)
    console.print(Rule("what is on record"))
    for record in task.records:
        it = record.fields
        route = f"{it.from_agent} → {it.to_agent}" if it.to_agent else it.from_agent
        console.print(f"  {it.sequence:2} {it.kind:10} {it.status:9} {route}", soft_wrap=True, markup=False)
    console.print(f"  The chain of {len(task.records)} records is {task.report.verdict.value}.", soft_wrap=True)


def produced(console: Console, output: Path) -> None:
    """Show what was produced, and ask the index a question."""
    console.print(Rule("what was produced"))
    for path in sorted(output.iterdir()):
        if path.is_file():
            console.print(f"  {path.relative_to(ROOT)}  {path.stat().st_size:,} bytes", soft_wrap=True)
    console.print(f"\nThe knowledge index, asked “{QUESTION}”:", soft_wrap=True)
    for hit in query(output / "knowledge.sqlite3", QUESTION, limit=3):
        console.print(f"  {hit.path}:{hit.start}-{hit.end}  {hit.title}", soft_wrap=True, markup=False)
    console.print(
        f"Ask it more: .venv/bin/python -m activities.project_init query {output.relative_to(ROOT)} '…'", soft_wrap=True
    )


if __name__ == "__main__":
    try:
        code = asyncio.run(main())
    except BatonError as error:
        print(f"demo: {error}", file=sys.stderr)
        code = 3
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # temporalio can abort while the interpreter ends, after all work is done
