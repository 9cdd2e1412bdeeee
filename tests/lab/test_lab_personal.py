"""Personal data in the lab: sealed in the cohort as in the run, opened by the stage alone, gone with the person."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput
from baton.client import Vault
from baton.client.faces import ArtifactStore
from baton.handoff.store_safeguards import Safeguards
from baton.lab import Case, Cohort, LabOptions, Lane, Outcome, Overrides, read_cases, run_lab
from baton.testing import pipeline_worker, run_pipeline
from tests.lab.people import ADDRESS, SEEN, mail_to, register, silent, writing


@pytest.fixture
async def office(sealed: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(sealed, [mail_to], [register, writing, silent]) as worker:
        yield worker


@pytest.fixture
async def subject(office: Worker) -> str:
    """Return a person of whom a run has data."""
    name = f"person-{uuid4().hex[:6]}"
    await run_pipeline(office, mail_to, PipelineInput(goal="Write", params={"subject": name}), id=f"mail-{name}")
    SEEN.clear()
    return name


async def case_of(worker: Worker, subject: str, stage: str, kept: ArtifactStore) -> Case:
    [case] = await read_cases(worker.client, f"mail-{subject}", stage, store=kept)
    return case


async def run_case(worker: Worker, case: Case, *lanes: Lane, **options: Any) -> Outcome:
    """Return what a case comes to in its last lane."""
    results = await run_lab(worker.client, Cohort(name="mail", cases=[case]), lanes, LabOptions(**options))
    return results.outcomes(case.id, results.lanes[-1].name)[0]


async def test_a_cohort_has_it_sealed_and_the_lab_opens_it_for_the_stage(
    office: Worker, subject: str, kept: ArtifactStore, safeguards: Safeguards
) -> None:
    """Nothing that the stage writes is sealed, and nothing that it read is in the file or the results."""
    case = await case_of(office, subject, "write", kept)
    assert case.given["personal_data"]
    assert ADDRESS.encode() not in Cohort(name="mail", cases=[case]).to_bytes()
    assert safeguards.vault is not None
    async with Vault(safeguards.vault, safeguards.keyring) as vault:
        before = await vault.where_is(subject)
        outcome = await run_case(office, case)
        assert (outcome.failure, outcome.output, SEEN) == ("", "1 written", [ADDRESS])
        assert await vault.where_is(subject) == before
    assert outcome.prompt is None
    assert ADDRESS not in outcome.model_dump_json()


async def test_an_erased_person_is_gone_from_the_cohort_too(
    office: Worker, subject: str, kept: ArtifactStore, safeguards: Safeguards
) -> None:
    case = await case_of(office, subject, "write", kept)
    assert safeguards.vault is not None
    async with Vault(safeguards.vault, safeguards.keyring) as vault:
        await vault.erase(subject, f"request-{subject}")
    await run_case(office, case)
    assert SEEN == ["erased"]


async def test_a_stage_that_keeps_no_transcript_drops_it(office: Worker, subject: str, kept: ArtifactStore) -> None:
    """Also where the file is changed by hand: its worker does not open it."""
    case = await case_of(office, subject, "silent", kept)
    assert "personal_data" not in case.given
    assert len(case.dropped) == 1
    sealed = (await case_of(office, subject, "write", kept)).given["personal_data"]
    forged = case.model_copy(update={"given": {**case.given, "personal_data": sealed}})
    assert "no vault" in (await run_case(office, forged)).failure
    assert SEEN == []


async def test_another_model_gets_none_unless_somebody_says_so(
    office: Worker, subject: str, kept: ArtifactStore
) -> None:
    case, other = await case_of(office, subject, "write", kept), Lane(name="other", overrides=Overrides(model="other"))
    refused = await run_case(office, case, other)
    assert "does not give to another model" in refused.failure
    assert SEEN == [ADDRESS]  # by the baseline
    assert (await run_case(office, case, other, allow=["write"])).failure == ""


async def test_a_whole_run_has_it_sealed(office: Worker, subject: str, kept: ArtifactStore) -> None:
    case = await case_of(office, subject, "write..write", kept)
    outcome = await run_case(office, case)
    assert (outcome.failure, SEEN) == ("", [ADDRESS])
