"""Transcripts of stages that handle personal data: sealed, opened on record, gone with the person."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import (
    Baton,
    BatonPatch,
    BatonPlugin,
    Pipeline,
    PipelineInput,
    Safeguards,
    StageContext,
    WorkerParts,
    open_store,
    pipeline,
    stage,
)
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.client import Erase, Erased, Ledger, LedgerOptions, Vault, explain
from baton.client.faces import read_transcripts
from baton.devserver import DevServer
from baton.keys.store_keyring import DEVELOPMENT_FILE
from baton.personal.records import ForeignCiphertextError
from baton.personal.store_texts import open_text, seal_text
from baton.testing import PipelineRun, pipeline_worker, run_pipeline
from tests.acceptance.operating import Operator
from tests.personal.material import MARKER, SUBJECT, TASK
from tests.support.surfaces import assert_not_seen, surfaces_of

THOUGHT = f"I would write to {MARKER} first."


class Writer:
    """An agent that reads an e-mail address, and thinks aloud about it."""

    name = "write"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Think and answer."""
        await work.context.personal.read("email")
        work.context.session.internal_note(THOUGHT)
        return AgentAnswer(patch={"current_state": ["Written"]})


@stage(personal_data=["email"])
async def register(context: StageContext[Baton]) -> BatonPatch:
    """Seal the address of a person."""
    await context.personal.write(str(context.params["subject"]), {"email": MARKER})
    return BatonPatch(current_state=["Registered"])


class Careful:
    """An agent whose texts are sealed although it handles no personal data."""

    name = "weigh"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Think and answer."""
        work.context.session.internal_note("They will not pay more than ninety.")
        return AgentAnswer(patch={"current_state": ["Weighed"]})


writing = agent_stage(Writer(), personal_data=["email"], notes=False)
weighing = agent_stage(Careful(), transcript="sealed", notes=False)


@pipeline
async def letter(p: Pipeline) -> object:
    """Register, weigh, write."""
    await p.stage(register)
    await p.stage(weighing)
    await p.stage(writing)
    return None


@dataclass(frozen=True)
class Office:
    """A worker with ledger, vault and store in a folder, and an operator at a terminal."""

    worker: Worker
    operator: Operator
    safeguards: Safeguards
    folder: Path


@pytest.fixture(scope="module")
async def office(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """Return a running office."""
    folder = tmp_path_factory.mktemp("letters")
    safeguards = Safeguards.development(folder / "keys")
    parts = WorkerParts(artifacts=open_store(str(folder / "artifacts")))
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    variables = {
        "TEMPORAL_ADDRESS": server.address,
        "BATON_KEYS": str(folder / "keys" / DEVELOPMENT_FILE),
        "BATON_VAULT": str(safeguards.vault),
        "BATON_LEDGER": str(safeguards.ledger),
        "COLUMNS": "200",
    }
    async with pipeline_worker(client, [letter], [register, writing, weighing]) as worker:
        yield Office(worker, Operator(folder, variables), safeguards, folder)


async def written(office: Office, subject: str) -> PipelineRun:
    """Return a run about a person."""
    start = PipelineInput(goal="Write a letter", params={"subject": subject})
    return await run_pipeline(office.worker, letter, start)


async def openings(office: Office, run: PipelineRun) -> list[tuple[str | None, str | None]]:
    """Return who opened something of a task, and why."""
    options = LedgerOptions(signer=office.safeguards.keyring.signer(), create=False)
    async with Ledger(office.safeguards.ledger, options) as ledger:
        trace = await ledger.trace(run.result.task_id, verifier=office.safeguards.keyring.public())
    headers = [record.fields for record in trace.linked]
    return [(header.actor, header.details) for header in headers if header.status == "PERSONAL_DATA_OPENED"]


async def test_what_an_agent_was_told_of_a_person_is_in_clear_nowhere(office: Office) -> None:
    """Neither in the history nor in any file, thoughts included (S3-12.3-b)."""
    run = await written(office, "customer-1")
    explanation = await explain(office.worker.client, run.handle.id, "write")
    [read] = await read_transcripts(open_store(str(office.folder / "artifacts")), explanation.transcripts)
    surfaces = await surfaces_of(office.worker.client, run.handle.id, folders=[office.folder])

    assert (read.transcript, read.is_sealed) == (None, True)
    assert_not_seen(MARKER, surfaces)
    assert_not_seen("more than ninety", surfaces)  # of a stage that only says so


async def test_the_command_opens_it_on_record_until_the_person_is_erased(office: Office) -> None:
    """With a reason, by whom; the erasure destroys a share of the key (S3-12.3-d)."""
    run = await written(office, "customer-2")
    operator, words = office.operator, ("explain", run.handle.id, "write")
    sealed = await operator(*words)
    refused = await operator.refused(*words, "--open", code=2)
    opened = await operator(*words, "--open", "--why", "a complaint", "--by", "dpo")
    await operator("erase", "customer-2", "--yes")
    erased = await operator(*words, "--open", "--why", "another one", "--by", "dpo")

    assert MARKER not in sealed
    assert "--open --why" in sealed
    assert "say why" in refused
    assert f"│ {THOUGHT}" in opened
    assert MARKER not in erased
    assert "was erased by request" in erased
    assert await openings(office, run) == [("dpo", "a complaint")]


async def test_a_stage_of_no_person_is_sealed_for_its_task(office: Office) -> None:
    """Which can be erased like a person."""
    run = await written(office, "customer-3")
    words = ("explain", run.handle.id, "weigh", "--open", "--why", "an audit")
    opened = await office.operator(*words)
    await office.operator("erase", f"task {run.result.task_id}", "--yes")

    assert "not pay more than ninety" in opened
    assert "not pay more than ninety" not in await office.operator(*words)


class TestSealedText:
    async def test_it_is_readable_while_nobody_in_it_was_erased(self, vault: Vault) -> None:
        """A text that speaks of two people is lost with either."""
        people = {await vault.pseudonym(name) for name in (SUBJECT, "customer-12")}
        for name in (SUBJECT, "customer-12"):
            await vault.seal(name, TASK, {"email": MARKER})
        sealed = await seal_text(vault, TASK, people, THOUGHT)
        before = await open_text(vault, TASK, sealed)
        await Erase(vault, "customer-12", "request-1").commit(by="dpo")
        after = await open_text(vault, TASK, sealed)

        assert (before, {*sealed.payload}) == (THOUGHT, people)
        assert MARKER not in sealed.model_dump_json()
        assert isinstance(after, Erased)
        assert after.subject == await vault.pseudonym("customer-12")

    async def test_it_belongs_to_its_task(self, vault: Vault) -> None:
        """Moved into another one, it does not open."""
        sealed = await seal_text(vault, TASK, [], THOUGHT)

        with pytest.raises(ForeignCiphertextError):
            await open_text(vault, "another", sealed)

    async def test_a_changed_text_is_refused(self, vault: Vault) -> None:
        """By its tag."""
        sealed = await seal_text(vault, TASK, [], THOUGHT)
        changed = sealed.model_copy(update={"nonce": "AAAAAAAAAAAAAAAA"})

        with pytest.raises(ForeignCiphertextError, match="does not belong to task"):
            await open_text(vault, TASK, changed)
