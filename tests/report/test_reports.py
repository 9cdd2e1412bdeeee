"""Agents defined by files hand over by reports."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.report.records import HandoffReport, Readiness, Status
from baton.report.rendering import FORMAT
from baton.testing import assert_replays, pipeline_worker
from tests.report.report_pipelines import REPORTING, Delegates, Reviewed
from tests.report.report_stages import REPORT_STAGES, REPORTS, SEEN
from tests.support import start


@pytest.fixture(scope="module")
async def reporting(client: Client) -> AsyncIterator[Worker]:
    """Return a worker for the pipelines of reports."""
    async with pipeline_worker(client, REPORTING, REPORT_STAGES) as running:
        yield running


class TestPhases:
    async def test_a_report_is_asked_for_and_becomes_the_next_agents_baton(self, reporting: Worker) -> None:
        """S4-int-a, S4-int-d, S4-purpose-a, S4-use-1: the definition's output style asks for it."""
        handle = await start(reporting, Reviewed.run)
        result = await handle.result()
        prompts = {name: text for (task, name), text in SEEN.items() if task == result.task_id}

        assert "Explore; change nothing." in prompts["code-explorer"]
        for line in ("## Agent Handoff Report", "### Blockers / Open Questions", "**Ready for Next Phase:**"):
            assert line in FORMAT
            assert line in prompts["code-explorer"]
        for text in ("Extend NextAuth — because it is there", "Which providers?", "Sessions in `src/auth.ts:1-45`"):
            assert text in prompts["security-auditor"]
            assert text in prompts["performance-opt"]
        await assert_replays(handle, REPORTING)

    async def test_parallel_reports_are_merged_in_the_workflow(self, reporting: Worker) -> None:
        """S4-use-2: pure code, so it replays; worst status, lowest confidence, every entry with its author."""
        result = await (await start(reporting, Reviewed.run)).result()
        merged = HandoffReport.from_json_object(result.output)

        assert (merged.status, merged.confidence, merged.readiness) == (Status.PARTIAL, 60, Readiness.WITH_CAVEATS)
        assert merged.findings.discoveries == [
            "A key in `src/auth.ts:7` (from security-auditor)",
            "A slow loop in `src/auth.ts:30` (from performance-opt)",
        ]
        assert {"A key in `src/auth.ts:7`", "A slow loop in `src/auth.ts:30`"} <= set(result.baton["current_state"])


class TestSubagent:
    async def test_the_parent_gets_the_report_as_data(self, reporting: Worker) -> None:
        """S4-int-b, S4-int-c, S4-purpose-a, S4-use-3, S4-parse-m: a subagent returns structured results."""
        result = await (await start(reporting, Delegates.run)).result()

        assert HandoffReport.from_json_object(result.output) == REPORTS["code-explorer"]
