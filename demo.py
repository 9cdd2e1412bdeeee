"""What Baton is for, in under a minute: `make demo`.

Two agents and a tool summarise the changelog of this repository under a budget, while you watch. Their worker is killed
in mid-sentence. A person decides. Then the run is explained, and its audit trail verified. It ends by itself and leaves
nothing running; the state stays in `.baton/dev`, where `baton dev` shows the same run in the Temporal UI.
"""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.rule import Rule
from temporalio.client import Client, WorkflowHandle

from baton import BatonPlugin, Budget, Decision, PipelineInput, WorkerParts, open_store
from baton.cli.output import make_console
from baton.cli.supervision import worker_environment
from baton.client import Ledger, LedgerOptions, News, NewsKind, RunRecord, RunStatus, decide, follow, read_run
from baton.core.history import StepKind
from baton.devserver import DevServer, DevServerOptions
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead
from baton.ledger.cli_sources import Anchors
from baton.runs.cli_watch import news_lines

ROOT = Path(__file__).resolve().parent
STATE, ARTIFACTS, KEYS = ROOT / ".baton" / "dev", ROOT / ".baton" / "artifacts", ROOT / ".baton"
DOCUMENT = "CHANGELOG.md"
KILLED_IN, KILLED_AFTER = "edit", 40  # characters
BUDGET = Budget(initial_micro_usd=500_000)
BATON = ".venv/bin/baton"


class Worker:
    """A worker of the pipeline in a process of its own, so that it can really be killed."""

    def __init__(self, address: str) -> None:
        # The demonstration's own server, ledger and keys, whatever this machine has set up otherwise.
        others = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        self._environment = worker_environment(others, address=address, namespace="default", artifacts=str(ARTIFACTS))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> int:
        """Start it, and return its process id."""
        with (STATE / "worker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "baton.worker", "examples/summary.py"),
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self._process.pid

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it; killed, it can save and report nothing."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            await self._process.wait()


class Telling:
    """Tells of a run as it happens: each thing once, and what agents say as they say it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._speaks = ""

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line of the demonstration's own."""
        self._end()
        self.console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)

    def news(self, news: News, run: RunRecord) -> None:
        """Write what happened."""
        if news.kind is NewsKind.TEXT:
            self.console.print(news.text, style="dim", end="", soft_wrap=True, markup=False, highlight=False)
            self._speaks = news.text
            return
        self._end()
        changes = [entry for entry in news.entries if entry.patch or entry.kind is StepKind.APPROVAL]
        for line in news_lines([replace(news, entries=changes)], run):
            self.console.print(line, soft_wrap=True)

    def _end(self) -> None:
        """End the line on which an agent spoke."""
        if self._speaks and not self._speaks.endswith("\n"):
            self.console.print()
        self._speaks = ""


async def main() -> int:
    """Run the demonstration; return the exit code."""
    STATE.mkdir(parents=True, exist_ok=True)
    telling, name = Telling(make_console()), f"demo-{datetime.now(UTC):%H%M%S}"
    model = os.environ.get("EXAMPLE_MODEL")
    telling.line(f"Two agents summarise {DOCUMENT} for at most {dollars(BUDGET.ceiling_micro_usd)}.", "bold")
    told = f"{model} answers" if model else "Offline: a script answers for the models; EXAMPLE_MODEL names a real one"
    telling.line(f"{told}.\n", "dim")
    async with DevServer(DevServerOptions(database=STATE / "temporal.db", ui_port=None)) as server:
        worker = Worker(server.address)
        try:
            await worker.start()
            # Not `connect`: a profile or a key of another service has no say in this connection.
            plugin = BatonPlugin(WorkerParts(artifacts=open_store(ARTIFACTS)), keyring=Keyring.development(KEYS))
            client = await Client.connect(server.address, plugins=[plugin])
            start = PipelineInput(goal="What is new, for users", params={"document": DOCUMENT}, budget=BUDGET)
            handle: WorkflowHandle[Any, Any] = await client.start_workflow(
                "summary", start, id=name, task_queue="baton"
            )
            await watched(telling, client, handle, worker)
            run = await read_run(client, name)
        finally:
            await worker.stop()
    if run.status is not RunStatus.COMPLETED:
        telling.line(f"It did not complete: {run.failure}. The worker's log is .baton/dev/worker.log.", "red")
        return 1
    explained(telling, run)
    await verified(telling, run)
    telling.console.print(Rule("next", style="dim"))
    telling.line(f"{BATON} dev                        # the same run in Temporal's UI; leave it running")
    telling.line(f"{BATON} explain {name} edit   # in another terminal: all that the editor saw")
    telling.line(f"{BATON} new my-agents              # a project of your own")
    return 0


async def watched(telling: Telling, client: Client, handle: WorkflowHandle[Any, Any], worker: Worker) -> None:
    """Tell of the run to its end; kill the worker while the editor speaks, and decide when the run asks."""
    heard, killed = 0, False
    async for update in follow(client, handle.id):
        for news in update.news:
            assert update.run is not None  # noqa: S101 - there is no news of no run
            telling.news(news, update.run)
            step = news.step.name if news.step else ""
            heard += len(news.text) if news.kind is NewsKind.TEXT and step == KILLED_IN else 0
            if heard >= KILLED_AFTER and not killed:
                killed = True
                await worker.stop(signal.SIGKILL)
                telling.line("── killed the worker, in mid-sentence (SIGKILL) ──", "bold red")
                await worker.start()
                telling.line("── another worker starts, and takes over ──", "bold green")
            if news.kind is NewsKind.STEP_STARTED and step == "editor":
                telling.line(f"   You would say: {BATON} approve {handle.id} --why 'it is right'")
                telling.line("   The demo says yes by itself.")
                yes = Decision(approval="editor", approved=True, who="demo", why="it is right")
                await decide(client, handle.id, yes)


def explained(telling: Telling, run: RunRecord) -> None:
    """Tell what the editor saw, what the run cost, and what came of it."""
    telling.console.print(Rule("what came of it", style="dim"))
    telling.line(str(run.result.output if run.result else ""))
    telling.console.print(Rule("why", style="dim"))
    [seen] = [parts for (_, stage), parts in run.prompts.items() if stage == "edit"]
    shown = ", ".join(f"{part.name} ({part.why or 'whole'})" for part in seen if part.shown)
    telling.line(f"The editor saw {sum(part.shown for part in seen):,} tokens: {shown}.")
    telling.line(f"It cost {dollars(run.billed.micro_usd)}; {dollars(run.left_micro_usd or 0)} of the budget is left.")


async def verified(telling: Telling, run: RunRecord) -> None:
    """Verify the run's records, by the public keys and the heads in the history."""
    task_id = run.task_id or ""
    kept = Anchors.of(KEYS / "witness.jsonl")  # the worker keeps checkpoints there, outside the ledger
    anchors = [*kept.heads, *(ChainHead.from_anchor("baton", task_id, anchor) for anchor in run.anchors)]
    async with Ledger(KEYS / "ledger.db", LedgerOptions(create=False)) as ledger:
        keys = Keyring.development(KEYS).public()
        task = await ledger.trace(task_id, verifier=keys, anchors=anchors, checkpoints=kept.checkpoints)
    kinds = ", ".join(it.fields.kind.lower() for it in task.records)
    telling.line(f"The audit of {len(task.records)} signed records ({kinds}): {task.report.verdict.value}.")


def dollars(micro_usd: int) -> str:
    """Return an amount as people write it."""
    return f"${micro_usd / 1_000_000:.4f}".removesuffix("00")


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
