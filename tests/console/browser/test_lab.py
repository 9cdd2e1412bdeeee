"""The pages of the lab in a real browser, at a phone's, a laptop's and a large width, in light and in dark."""

from dataclasses import replace
from pathlib import Path

from playwright.async_api import Browser
from temporalio.worker import Worker

from baton.console.sources import Sources, TemporalUi
from baton.lab import Cohort, RecordedCall, Should
from tests.console.browser.conftest import Office, Person, begun
from tests.console.browser.desk_pipelines import asks
from tests.console.browser.test_deciding import fits
from tests.console.browser.test_looks import assert_clean
from tests.console.test_lab import fill
from tests.lab.test_lab_judging import make_cohort

PAGES = {
    "cohorts": "/lab",
    "cohort": "/lab/cohort?cohort=refunds",
    "case": "/lab/case?cohort=refunds&case=case-3",
    "choose": "/lab/choose",
}


def rich(cohort: Cohort) -> Cohort:
    """Return a cohort with outputs, tool calls and what a case should have come to."""
    output = {
        "verdict": "approve",
        "amount": 40,
        "why": "It is late, and the customer has waited for three weeks. " * 4,
    }
    calls = [RecordedCall(tool="lookup", result={"order": 7, "late": True}, shown='{"order":7}')]
    should = Should(values={"/output/verdict": "deny"}, why="It was our fault")
    more = {"recorded": cohort.cases[0].recorded.model_copy(update={"output": output}), "tool_calls": calls}
    dropped = {
        "dropped": ["personal data, because its stage keeps no transcript"],
        "should": should,
        "path": "decide..",
    }
    return Cohort(name=cohort.name, cases=[case.model_copy(update={**more, **dropped}) for case in cohort.cases])


async def test_31_the_lab_is_for_everybody(
    chromium_browser: Browser, desk_worker: Worker, screenshots: Path, quiet: list[Person], tmp_path: Path
) -> None:
    """Axe finds nothing, and no page is wider than its window."""
    fill(tmp_path, rich(make_cohort(6)))
    seen = await begun(desk_worker, asks, "lab-seen")

    async def connect() -> object:
        return desk_worker.client

    sources = Sources(connect, temporal_ui=TemporalUi(None, desk_worker.client.namespace))  # type: ignore[arg-type]
    office = Office(chromium_browser, replace(sources, lab=tmp_path), screenshots)
    ann = await office.person()
    quiet.append(ann)
    for width in (390, 1280, 1920):
        await ann.page.set_viewport_size({"width": width, "height": 900})
        for name, path in PAGES.items():
            await ann.open(path)
            while name == "choose" and not await ann.page.get_by_text("lab-seen").count():
                await ann.open(path)  # the server's index lags behind
            await fits(ann)
            await assert_clean(ann, f"31-lab-{name}-{width}")
    await office.close()
    await seen.terminate()
