"""The lab in the console: cohorts, cases with differences first, the side by side, and choosing runs for a cohort."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.worker import Worker

from baton.client import Role
from baton.console.app import console_app
from baton.console.report import report
from baton.console.security import Access, Links
from baton.console.sources import Sources
from baton.lab import Cohort, list_cohorts, load_cohort, save_cohort, save_results
from tests.console.conftest import Browser, started, token_in
from tests.console.console_pipelines import registers
from tests.lab.test_lab_judging import AT, make_cohort, make_results


def fill(folder: Path, cohort: Cohort) -> None:
    """Keep a cohort with three lab runs: the candidate decides ever more cases otherwise."""
    file = str(folder / "refunds.json")
    save_cohort(file, cohort)
    for day in range(3):
        results = make_results(cohort, 3, lambda lane, nth, day=day: lane == "new" and nth >= 4 - day)  # type: ignore[misc]
        save_results(file, cohort, results.model_copy(update={"at": AT + timedelta(days=day)}))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    fill(tmp_path, make_cohort(4))
    return tmp_path


async def browse(sources: Sources, folder: Path, role: Role = Role.OPERATOR) -> Browser:
    """Return the browser of somebody whose console has a folder of cohorts."""
    links = Links("ann", role)
    return await Browser(console_app(replace(sources, lab=folder), Access(links=links)), links).sign_in()


async def test_cohorts_stand_with_the_gates_verdict(sources: Sources, lab: Path) -> None:
    (lab / "broken.json").write_text("{}")
    page = (await (await browse(sources, lab)).get("/lab")).text
    assert "refused" in page
    assert "case-2 differs (3 of 3)" in page
    assert "is not a file of the format" in page


async def test_cases_that_differ_stand_first_and_the_figure_has_a_time(sources: Sources, lab: Path) -> None:
    page = (await (await browse(sources, lab)).get("/lab/cohort?cohort=refunds")).text
    assert re.findall(r"data-row href=[^>]*><bdi>(case-\d)", page) == ["case-2", "case-3", "case-0", "case-1"]
    assert page.count('<circle class="passes"') == 1
    assert page.count('<circle class="refused"') == 2
    assert "Approve" in page
    assert "Deny" in page


async def test_a_case_stands_side_by_side_for_operators(sources: Sources, lab: Path) -> None:
    address = "/lab/case?cohort=refunds&case=case-3"
    page = (await (await browse(sources, lab)).get(address)).text
    sides = re.findall(r'<section class="card"><h2 class="first"><bdi>([^<]*)</bdi></h2>\s*<p><strong>([^<]*)', page)
    assert sides == [("recorded", "Approve, because"), ("baseline", "Approve, because"), ("new", "Deny, because")]
    assert (await (await browse(sources, lab, Role.VIEWER)).get(address)).status_code == 403
    for missing in ("case=none&cohort=refunds", "case=case-3&cohort=none", "case=case-3&cohort=../lab/refunds"):
        assert (await (await browse(sources, lab)).get(f"/lab/case?{missing}")).status_code == 404


async def test_runs_are_chosen_by_hand(sources: Sources, worker: Worker, tmp_path: Path) -> None:
    handles = [await started(worker, registers, f"lab-{nth}") for nth in range(2)]
    for handle in handles:
        await handle.result()
    browser = await browse(sources, tmp_path)
    while "pick lab-1" not in (chosen := (await browser.get("/lab/choose?pipeline=registers&status=completed")).text):
        pass  # the server's index lags behind
    form = {"csrf": token_in(chosen), "pick lab-1": "on", "name": "by-hand", "stage": ".."}
    for wrong in ({"name": "../by-hand"}, {"stage": "none"}, {"pick lab-1": None}):
        sent = {name: value for name, value in {**form, **wrong}.items() if value is not None}
        assert (await browser.post("/lab/new", sent)).status_code == 409
    assert list_cohorts(tmp_path) == []
    made = await browser.post("/lab/new", form)
    assert (made.status_code, made.url.path) == (200, "/lab/cohort")
    [case] = load_cohort(str(tmp_path / "by-hand.json")).cases
    assert (case.source.workflow_id, case.stage) == ("lab-1", "registers")
    assert (await browser.post("/lab/new", form)).status_code == 409  # it is there already
    viewer = await browse(sources, tmp_path, Role.VIEWER)
    assert (await viewer.get("/lab/choose")).status_code == 403


async def test_a_runs_report_has_what_the_lab_made_of_it(sources: Sources, worker: Worker, tmp_path: Path) -> None:
    handle = await started(worker, registers, "lab-reported")
    await handle.result()
    assert "In the lab" not in await report(replace(sources, lab=tmp_path), handle.id)
    cases = [
        case.model_copy(update={"source": case.source.model_copy(update={"workflow_id": handle.id})})
        for case in make_cohort(4).cases
    ]
    fill(tmp_path, Cohort(name="refunds", cases=cases))
    text = await report(replace(sources, lab=tmp_path), handle.id)
    assert "In the lab" in text
    assert text.count("new: differs (3 of 3)") == 2 or text.count("differs (3 of 3)") == 2
