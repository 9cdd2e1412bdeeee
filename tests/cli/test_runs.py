"""The commands that start, read and decide runs, against a server of their own: what they refuse, and their tables."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowFailureError
from typer.testing import CliRunner, Result

from baton import (
    Baton,
    BatonPlugin,
    Pipeline,
    PipelineError,
    PipelineInput,
    Spend,
    StageContext,
    StageResult,
    WorkerParts,
    pipeline,
    stage,
)
from baton.cli.app import make_app
from baton.client import read_run
from baton.client.faces import LocalArtifactStore
from baton.devserver import DevServer
from baton.testing import local_server, pipeline_worker
from tests.support import until_waiting

RUN, LIMIT = "commanded", timedelta(minutes=5)


class Terms(BaseModel):
    """What an approver fills in."""

    amount: int
    accounts: list[str]
    note: str = ""


@stage(name="spends")
async def spends(context: StageContext[Baton]) -> StageResult:
    """Spend three dollars on a plan."""
    await context.artifacts.write("plan-1", "Use JWT.", type="plan", summary="How to log in")
    context.charge(Spend(prompt_tokens=100), model="local-1")
    return StageResult(spend=Spend(micro_usd=3_000_000, prompt_tokens=800, completion_tokens=100))


@pipeline
async def commanded(p: Pipeline) -> object:
    """One stage, then two people at once."""
    await p.stage(spends)
    await asyncio.gather(
        p.approve("legal", within=timedelta(days=1)),
        p.approve("budget", within=timedelta(days=1), answer=Terms, who=["ann"]),
    )
    return None


@pytest.fixture(scope="module")
async def own_server() -> AsyncIterator[DevServer]:
    """Return a server without other runs."""
    async with local_server() as running:
        yield running


@pytest.fixture(scope="module")
async def store(own_server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Return the artifact store of a worker, with a run that waits for two people."""
    folder = tmp_path_factory.mktemp("artifacts")
    plugin = BatonPlugin(WorkerParts(artifacts=LocalArtifactStore(folder)), safeguards="off")
    client = await Client.connect(own_server.address, plugins=[plugin])
    async with pipeline_worker(client, [commanded], [spends]) as worker:
        start = PipelineInput(goal="Pay the invoice")
        handle: Any = await client.start_workflow(
            "commanded", start, id=RUN, task_queue=worker.task_queue, execution_timeout=LIMIT
        )
        await until_waiting(handle, "legal", "budget")
        yield str(folder)
        await handle.terminate()


async def command(server: DevServer, *words: str) -> Result:
    """Run the command, as at a terminal without input."""
    env = {"COLUMNS": "200", "TEMPORAL_ADDRESS": server.address}
    return await asyncio.to_thread(CliRunner().invoke, make_app(), list(words), env=env)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"approve {RUN} --why ok --yes", "several are open, name one: 'legal', 'budget'"),
        (
            f"approve {RUN} tax --why ok --yes",
            f"'{RUN}' has no approval 'tax' that waits for a person now; open: 'legal', 'budget'",
        ),
        (f"approve {RUN} legal --why ok --yes --set a=1", "approval 'legal' asks for no answer"),
        (f"approve {RUN} budget --why ok --yes --set amount", "give each of these fields once, as NAME=VALUE: amount"),
        (f"approve {RUN} budget --why ok --yes", "the answer lacks amount, accounts; give each as NAME=VALUE"),
        ("run commanded --goal Pay --task-id 7e8f1c5e-ca0f-11f0-8de9-0242ac120002", "handoffs need a random UUID"),
        ("schedule delete nightly", "there is no schedule 'nightly'; `baton schedule list` shows the schedules"),
        ("schedule commanded --goal Pay --cron hourly", "--cron"),
        ("list --sort colour", "'colour' is not an order; the orders are began, ended"),
        ("list --columns colour", "'colour' is not a column; the columns are pipeline, status"),
        ("list --since soon", "'soon' is not a date, a time or an age, such as 2026-11-27"),
        ("list --min-spend much", "'much' is not an amount"),
        ("list --after nowhere", "begin with the first page"),
        ("bill --reconcile export.csv --group-by stage", "a provider's export only has models and days"),
        ("replay commanded --module json", "there is no @workflow.defn class in json"),
        ("console --host 0.0.0.0", "other machines can reach '0.0.0.0'; give its public address"),
        ("console --url nonsense", "'nonsense' is not an address such as https://baton.example.org"),
        ("console --people people.toml", "give the address by which browsers reach the proxy"),
        ("console --people people.toml --url https://b.example.org", "expected addresses = "),
        ("dev people.toml --no-worker", "FILE and NAME bring their own worker"),
    ],
)
async def test_a_command_that_cannot_be_done_says_why(
    own_server: DevServer, store: str, words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exits with 1 or 2, and changes nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "export.csv").write_text("model,cost\n")
    (tmp_path / "people.toml").write_text("addresses = []\n")
    result = await command(own_server, *words.split())
    assert result.exit_code in (1, 2), result.output
    assert message in " ".join(result.stderr.split()).replace("│ ", "")


async def test_the_command_for_a_form_names_its_fields(own_server: DevServer, store: str) -> None:
    """It can be filled in and run as it is printed, a list as JSON, by who may decide."""
    expected = f"""baton approve {RUN} budget --set 'amount=…' --set 'accounts=["…"]' --who ann --why '…'"""
    for words in (["inbox"], ["show", RUN]):
        assert expected in (await command(own_server, *words)).stdout


@pipeline
async def ended(p: Pipeline) -> None:
    """One step."""
    await p.sleep(timedelta(milliseconds=1))


async def test_the_gate_only_reports_runs_that_ended(own_server: DevServer, store: str, tmp_path: Path) -> None:
    """New code does not affect them; a run that is named counts, and so does an open one."""
    parts = WorkerParts(artifacts=LocalArtifactStore(Path(store)))
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(parts, safeguards="off")])
    async with pipeline_worker(client, [ended], []) as worker:
        await client.execute_workflow(
            "ended", PipelineInput(goal="Pay"), id="ended", task_queue=worker.task_queue, execution_timeout=LIMIT
        )
    changed = "from baton import Pipeline, pipeline\n\n\n@pipeline\nasync def ended(p: Pipeline) -> None:\n    pass\n"
    (tmp_path / "changed_gate.py").write_text(changed)
    code = ["-m", "changed_gate", "--path", str(tmp_path), "--artifacts", store]

    gate = await command(own_server, "replay", "--last", "10", *code)
    assert gate.exit_code == 0, gate.output
    assert "1 ended run would need other code only to be rolled back" in gate.stderr
    assert (await command(own_server, "replay", "ended", *code)).exit_code == 1


async def test_lists_say_when_they_are_empty(own_server: DevServer, store: str) -> None:
    """Instead of a table without rows."""
    assert "no schedule; `baton schedule PIPELINE" in (await command(own_server, "schedule", "list")).stderr
    assert "no such run; --all looks" in (await command(own_server, "list", "--pipeline", "none")).stderr
    assert "no such run" in (await command(own_server, "list", "--text", "unicorn")).stderr


@pipeline
async def fails(p: Pipeline) -> None:
    """Ask nobody, and fail."""
    raise PipelineError("the invoice is gone")


async def test_a_list_has_parts_counts_and_pages(own_server: DevServer, store: str) -> None:
    """What needs somebody, what failed, the others; so many of how many, and where the next page begins."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    async with pipeline_worker(client, [ended, fails], []) as worker:
        for number in range(3):
            kept = PipelineInput(goal=f"Keep {number}")
            await client.execute_workflow("ended", kept, id=f"kept-{number}", task_queue=worker.task_queue)
        handle = await client.start_workflow(
            "fails", PipelineInput(goal="Pay"), id="broken", task_queue=worker.task_queue
        )
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    while "kept-2" not in (result := await command(own_server, "list", "--artifacts", store)).stdout or (
        "broken" not in result.stdout
    ):
        pass
    needs, _, rest = result.stdout.partition("Failed and suspended (1)")
    trouble, _, others = rest.partition("Others (")
    assert needs.startswith("Needs you (1)")
    assert re.search(rf"{RUN} .*WAITING .*a decision: legal of anybody, for \d+ \w+ +in (24|23) h", needs)
    assert "the invoice is gone" in trouble
    assert "kept-2" in others
    assert "1 waiting" in result.stderr
    assert "1 failed" in result.stderr

    pages, after = list[str](), list[str]()
    while True:
        page = await command(own_server, "list", "--pipeline", "ended", "--limit", "2", "--json", *after)
        pages += [run["workflow_id"] for run in json.loads(page.stdout)]
        place = re.search(r"2 of (\d) runs; the next page: --after (\S+)", page.stderr)
        if place is None:
            break
        after = ["--after", place[2]]
        assert int(place[1]) >= 3
    assert {"kept-0", "kept-1", "kept-2"} <= {*pages}
    assert len(pages) == len({*pages})
    one = await command(own_server, "list", "--limit", "1", "--json")
    assert [run["workflow_id"] for run in json.loads(one.stdout)] == [RUN]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--text invoice", True),
        ("--text nothing", False),
        ("--person ANN", True),
        ("--person bob", False),
        ("--min-spend 3", True),
        ("--min-spend 3.01", False),
        ("--since 1h --status waiting --status failed", True),
        ("--before 1h", False),
        ("--sort -spent", True),
        ("--sort deadline", True),
    ],
)
async def test_a_list_is_filtered_and_sorted(own_server: DevServer, store: str, words: str, found: bool) -> None:
    """By time, text, person and spend; the order is that of what is asked."""
    listed = json.loads((await command(own_server, "list", *words.split(), "--json", "--artifacts", store)).stdout)
    assert (RUN in [run["workflow_id"] for run in listed]) is found
    if "--sort" in words:
        assert listed[0]["workflow_id"] == RUN


async def test_columns_are_chosen(own_server: DevServer, store: str) -> None:
    """In their order."""
    columns = ["--status", "waiting", "--columns", "goal,task,run-id", "--artifacts", store]
    heading, row, *_ = (await command(own_server, "list", *columns)).stdout.splitlines()
    assert heading.split() == ["run", "goal", "task", "run", "id"]
    assert row.split()[:4] == [RUN, "Pay", "the", "invoice"]


async def test_a_bill_is_a_table_beside_the_providers(own_server: DevServer, store: str, tmp_path: Path) -> None:
    """The exit code says whether they agree."""
    bill = await command(own_server, "bill")
    rows = [line.split() for line in bill.stdout.splitlines()]
    assert ["commanded", "$3.00", "900", "100"] in rows
    assert ["total", "$3.00", "900", "100"] in rows
    by_model = (await command(own_server, "bill", "--group-by", "model")).stdout
    assert ["local-1", "unknown", "100", "0"] in [line.split() for line in by_model.splitlines()]
    today = f"{(await read_run(await Client.connect(own_server.address), RUN)).began:%Y-%m-%d}"
    for cost, code, difference in (("3.00", 0, "$0.00"), ("2.50", 1, "+$0.50"), ("3.75", 1, "-$0.75")):
        export = tmp_path / "export.csv"
        export.write_text(f"date,cost_usd,input_tokens,output_tokens\n{today},{cost},900,100\n")
        result = await command(own_server, "bill", "--group-by", "day", "--reconcile", str(export))
        assert result.exit_code == code, result.output
        assert difference in result.stdout


async def test_artifacts_are_listed_and_saved(own_server: DevServer, store: str, tmp_path: Path) -> None:
    """As a table, and byte for byte."""
    listed = await command(own_server, "artifact", "list", RUN, "--artifacts", store)
    assert [line.split() for line in listed.stdout.splitlines()][-1] == [
        "plan-1",
        "plan",
        "8",
        "How",
        "to",
        "log",
        "in",
    ]
    file = tmp_path / "plan.md"
    saved = await command(
        own_server, "artifact", "save", RUN, "plan-1", "--artifacts", store, "-o", str(file), "--json"
    )
    assert json.loads(saved.stdout) == {"file": str(file), "hash": hashlib.sha256(b"Use JWT.").hexdigest()}
    assert file.read_text() == "Use JWT."


async def test_a_history_goes_to_the_output_or_a_file(own_server: DevServer, store: str, tmp_path: Path) -> None:
    """Both are what the Temporal CLI writes."""
    printed = json.loads((await command(own_server, "export", RUN, "-")).stdout)
    result = await command(own_server, "export", RUN, str(tmp_path / "h.json"), "--json")
    assert json.loads(result.stdout)["events"] == len(printed["events"])
    assert json.loads((tmp_path / "h.json").read_text()) == printed
    report = await command(own_server, "report", RUN, "--output", str(tmp_path / "r.html"), "--json")
    assert json.loads(report.stdout)["bytes"] == (tmp_path / "r.html").stat().st_size


async def test_several_runs_are_rolled_back_at_once(own_server: DevServer, store: str) -> None:
    """Those that have the stage; without one, nothing is asked."""
    words = ["rollback", "--all", "--status", "WAITING", "--why", "a test", "--yes"]
    none = await command(own_server, *words, "--to", "review")
    assert f"left out: run {RUN!r} has no step 'review'" in none.stderr
    assert "no selected run has a stage 'review'; `baton list` shows the runs" in none.stderr
    result = await command(own_server, *words, "--to", "spends")
    assert (result.exit_code, result.stdout) == (0, "1 run rolled back to before spends\n"), result.output
