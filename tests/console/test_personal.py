"""Personal data in the console: sealed, until an operator opens it, which is on record first."""

import asyncio
import html
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.worker import Worker

from baton import BatonError, Safeguards
from baton.client import Ledger, LedgerOptions, Role, RunRecord, Vault, read_run
from baton.console.app import console_app
from baton.console.security import Access, Links
from baton.console.sources import Evidence, Sources
from baton.keys.store_keyring import DEVELOPMENT_FILE
from tests.console.conftest import Browser, started, token_in
from tests.console.console_pipelines import EMAIL, registers

_MARKER = "jane.marker"
_WHY = "a complaint <i>of hers</i>"


async def _registered(worker: Worker, id: str) -> RunRecord:
    handle = await started(worker, registers, id, "Register a person")
    await handle.result()
    return await read_run(worker.client, id)


async def _signed_in(sources: Sources, role: Role) -> Browser:
    links = Links("ann", role)
    return await Browser(console_app(sources, Access(links=links)), links).sign_in()


async def _openings(sources: Sources, run: RunRecord) -> list[tuple[str | None, str | None, object]]:
    assert run.task_id is not None
    trace = await sources.trace(run.task_id, [run])
    return [
        (header.actor, header.details, record.body)
        for record, header in zip(trace.linked, trace.headers, strict=True)
        if header.status == "PERSONAL_DATA_OPENED"
    ]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.DECIDER])
async def test_others_see_it_sealed(sources: Sources, worker: Worker, role: Role) -> None:
    """They see whose data there is; the operator's form is refused."""
    run = await _registered(worker, f"sealed-{role.name}")
    browser = await _signed_in(sources, role)
    page = f"/run/personal?id={run.workflow_id}"
    response = (await browser.get(page)).text
    refused = await browser.post(page, {"csrf": "", "why": _WHY})

    assert "email" in response
    assert "sealed" in response
    assert "<form" not in response.split("<h1>")[1]
    assert refused.status_code == 403
    assert "requires the role operator" in refused.text
    assert _MARKER not in response + refused.text
    assert await _openings(sources, run) == []


async def test_an_operator_opens_it_and_the_trace_has_the_record(
    sources: Sources, browser: Browser, worker: Worker, console_folder: Path, tmp_path: Path
) -> None:
    """Who, why and which fields, in a chain that still verifies, without the values."""
    run = await _registered(worker, "opened-1")
    page = f"/run/personal?id={run.workflow_id}"
    run_page = (await browser.get(f"/run?id={run.workflow_id}")).text
    before = (await browser.get(page)).text
    response = await browser.post(page, {"csrf": token_in(before), "why": _WHY})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "baton", "audit", "trace", str(run.task_id)),
        *("--ledger", str(console_folder / "ledger.db"), "--json"),
        cwd=tmp_path,  # no witness of another ledger lies there
        env={**os.environ, "BATON_KEYS": str(console_folder / DEVELOPMENT_FILE)},
        stdout=asyncio.subprocess.PIPE,
    )
    report = (await process.communicate())[0].decode()
    audit = (await browser.get(f"/audit?task={run.task_id}")).text

    assert "/run/personal?" in run_page
    assert _MARKER not in run_page + before
    assert html.escape(EMAIL) in response.text
    assert EMAIL not in response.text
    assert await _openings(sources, run) == [("ann", _WHY, {"opened": {who: ["email"] for who in run.personal_data}})]
    assert process.returncode == 0
    assert "PERSONAL_DATA_OPENED" in report
    assert _WHY in report
    assert html.escape(_WHY) in audit
    assert _MARKER not in report + audit


async def test_without_a_reason_nothing_is_opened(sources: Sources, browser: Browser, worker: Worker) -> None:
    """Nor with a wrong token."""
    run = await _registered(worker, "opened-without")
    page = f"/run/personal?id={run.workflow_id}"
    token = token_in((await browser.get(page)).text)
    answers = [
        await browser.post(page, {"csrf": token, "why": " "}),
        await browser.post(page, {"csrf": "", "why": "x"}),
    ]

    assert [answer.status_code for answer in answers] == [422, 403]
    assert all(_MARKER not in answer.text for answer in answers)
    assert await _openings(sources, run) == []


def _gone(safeguards: Safeguards) -> Ledger:
    return Ledger(Path(safeguards.ledger).with_name("gone.db"), LedgerOptions(create=False))


def _without_keys(safeguards: Safeguards) -> Ledger:
    return Ledger(safeguards.ledger, LedgerOptions(create=False))


@pytest.mark.parametrize("broken", [_gone, _without_keys])
async def test_what_cannot_be_recorded_is_not_opened(
    sources: Sources, worker: Worker, safeguards: Safeguards, broken: Callable[[Safeguards], Ledger]
) -> None:
    """The ledger is missing, or takes no record from a writer without its keys."""
    run = await _registered(worker, f"opened{broken.__name__}")
    assert sources.evidence is not None
    evidence: Evidence = replace(sources.evidence, open=lambda: broken(safeguards))
    unrecorded = Sources(sources.connect, sources.artifacts, sources.temporal_ui, evidence, sources.vault)
    browser = await _signed_in(unrecorded, Role.OPERATOR)
    page = f"/run/personal?id={run.workflow_id}"
    answer = await browser.post(page, {"csrf": token_in((await browser.get(page)).text), "why": _WHY})
    with pytest.raises(BatonError):
        await unrecorded.disclose(run, "ann", _WHY)
    await unrecorded.close()

    assert answer.status_code == 409
    assert _MARKER not in answer.text
    assert await _openings(sources, run) == []


async def test_an_erased_person_is_shown_as_erased(
    sources: Sources, browser: Browser, worker: Worker, safeguards: Safeguards
) -> None:
    """Nothing was opened, so there is no record of an opening."""
    run = await _registered(worker, "opened-erased")
    assert safeguards.vault is not None
    async with Vault(safeguards.vault, safeguards.keyring) as vault:
        await vault.erase(f"jane-{run.task_id}", "request-9", "dpo")
        page = f"/run/personal?id={run.workflow_id}"
        response = await browser.post(page, {"csrf": token_in((await browser.get(page)).text), "why": _WHY})

    assert "request-9" in response.text
    assert _MARKER not in response.text
    assert await _openings(sources, run) == []
