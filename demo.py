"""A demonstration of Baton in under a minute: `make demo`.

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

from baton import BatonPlugin, Budget, PipelineInput, WorkerParts, open_store
from baton.cli.ledger_sources import Anchors
from baton.cli.output import make_console
from baton.cli.supervision import worker_environment
from baton.cli.watch import news_lines
from baton.client import (
    Answer,
    Ledger,
    LedgerOptions,
    News,
    NewsKind,
    RunRecord,
    RunStatus,
    decide,
    follow,
    read_run,
)
from baton.core.history import StepKind
from baton.devserver import DevServer, DevServerOptions
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead

ROOT = Path(__file__).resolve().parent
STATE, ARTIFACTS, KEYS = ROOT / ".baton" / "dev", ROOT / ".baton" / "artifacts", ROOT / ".baton"
DOCUMENT = "CHANGELOG.md"
KILLED_IN, KILLED_AFTER = "edit", 40  # characters
BUDGET = Budget(initial_micro_usd=500_000)
BATON = ".venv/bin/baton"


class Worker:
    """A worker of the pipeline in a separate process that can be killed."""

    def __init__(self, address: str) -> None:
        # The demonstration's own server, ledger and keys, not those configured on this machine.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        self._environment = worker_environment(
            environment, address=address, namespace="default", artifacts=str(ARTIFACTS)
        )
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> int:
        """Start the process, and return its id."""
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
        """End the process; killed, it cannot save or report anything."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            await self._process.wait()


class Narrator:
    """Prints a run's news, and the text of agents as they write it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._speaks = ""

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line of the demonstration itself."""
        self._end()
        self.console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)

    def news(self, news: News, run: RunRecord) -> None:
        """Print a piece of news."""
        if news.kind is NewsKind.TEXT:
            self.console.print(news.text, style="dim", end="", soft_wrap=True, markup=False, highlight=False)
            self._speaks = news.text
            return
        self._end()
        changes = [entry for entry in news.entries if entry.patch or entry.kind is StepKind.APPROVAL]
        for line in news_lines([replace(news, entries=changes)], run):
            self.console.print(line, soft_wrap=True)

    def _end(self) -> None:
        """End the line of an agent's text."""
        if self._speaks and not self._speaks.endswith("\n"):
            self.console.print()
        self._speaks = ""


async def main() -> int:
    """Run the demonstration; return the exit code."""
    STATE.mkdir(parents=True, exist_ok=True)
    narrator, name = Narrator(make_console()), f"demo-{datetime.now(UTC):%H%M%S}"
    model = os.environ.get("EXAMPLE_MODEL")
    narrator.line(f"Two agents summarise {DOCUMENT} for at most {dollars(BUDGET.ceiling_micro_usd)}.", "bold")
    source = f"{model} answers" if model else "Offline: a script answers for the models; EXAMPLE_MODEL names a real one"
    narrator.line(f"{source}.\n", "dim")
    async with DevServer(DevServerOptions(database=STATE / "temporal.db", ui_port=None)) as server:
        worker = Worker(server.address)
        try:
            await worker.start()
            # Not `connect`: it would use the profile or key of another service.
            plugin = BatonPlugin(WorkerParts(artifacts=open_store(ARTIFACTS)), keyring=Keyring.development(KEYS))
            client = await Client.connect(server.address, plugins=[plugin])
            start = PipelineInput(goal="What is new, for users", params={"document": DOCUMENT}, budget=BUDGET)
            handle: WorkflowHandle[Any, Any] = await client.start_workflow(
                "summary", start, id=name, task_queue="baton"
            )
            await watch(narrator, client, handle, worker)
            run = await read_run(client, name)
        finally:
            await worker.stop()
    if run.status is not RunStatus.COMPLETED:
        narrator.line(f"It did not complete: {run.failure}. The worker's log is .baton/dev/worker.log.", "red")
        return 1
    explain(narrator, run)
    await verify(narrator, run)
    narrator.console.print(Rule("next", style="dim"))
    narrator.line(f"{BATON} dev                        # the same run in Temporal's UI; leave it running")
    narrator.line(f"{BATON} explain {name} edit   # in another terminal: all that the editor saw")
    narrator.line(f"{BATON} new my-agents              # a project of your own")
    return 0


async def watch(narrator: Narrator, client: Client, handle: WorkflowHandle[Any, Any], worker: Worker) -> None:
    """Print the run's news to its end; kill the worker while the editor writes, and decide when the run asks."""
    heard_length, killed = 0, False
    async for update in follow(client, handle.id):
        for news in update.news:
            assert update.run is not None  # noqa: S101 - news has a run
            narrator.news(news, update.run)
            step = news.step.name if news.step else ""
            heard_length += len(news.text) if news.kind is NewsKind.TEXT and step == KILLED_IN else 0
            if heard_length >= KILLED_AFTER and not killed:
                killed = True
                await worker.stop(signal.SIGKILL)
                narrator.line("── killed the worker, in mid-sentence (SIGKILL) ──", "bold red")
                await worker.start()
                narrator.line("── another worker starts and takes over ──", "bold green")
            if news.kind is NewsKind.STEP_STARTED and step == "editor":
                narrator.line(f"   You would say: {BATON} approve {handle.id} --why 'it is right'")
                narrator.line("   The demo says yes by itself.")
                decision = Answer(question="editor", choice="approve", who="demo", why="it is right")
                await decide(client, handle.id, decision)


def explain(narrator: Narrator, run: RunRecord) -> None:
    """Print the run's output, what the editor saw, and the cost."""
    narrator.console.print(Rule("the result", style="dim"))
    narrator.line(str(run.result.output if run.result else ""))
    narrator.console.print(Rule("why", style="dim"))
    [prompt] = [parts for (_, stage), parts in run.prompts.items() if stage == "edit"]
    shown_parts = ", ".join(f"{part.name} ({part.why or 'whole'})" for part in prompt if part.shown)
    narrator.line(f"The editor saw {sum(part.shown for part in prompt):,} tokens: {shown_parts}.")
    narrator.line(f"It cost {dollars(run.billed.micro_usd)}; {dollars(run.left_micro_usd or 0)} of the budget is left.")


async def verify(narrator: Narrator, run: RunRecord) -> None:
    """Verify the run's records with the public keys and the heads in the history."""
    task_id = run.task_id or ""
    witness = Anchors.of(KEYS / "witness.jsonl")  # the worker keeps checkpoints there, outside the ledger
    anchors = [*witness.heads, *(ChainHead.from_anchor("baton", task_id, anchor) for anchor in run.anchors)]
    async with Ledger(KEYS / "ledger.db", LedgerOptions(create=False)) as ledger:
        keys = Keyring.development(KEYS).public()
        task = await ledger.trace(task_id, verifier=keys, anchors=anchors, checkpoints=witness.checkpoints)
    kinds = ", ".join(record.fields.kind.lower() for record in task.records)
    narrator.line(f"The audit of {len(task.records)} signed records ({kinds}): {task.report.verdict.value}.")


def dollars(micro_usd: int) -> str:
    """Return an amount in US dollars."""
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
