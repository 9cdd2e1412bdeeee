"""The next agent reads the report of the one before, and a report that is not ready stops the relay or asks people."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineResult
from baton.client import decide, fork, read_run
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.report.merging import MAX_DISPUTES
from baton.testing import assert_replays, pipeline_worker
from tests.report.relay_pipelines import (
    RELAY_STAGES,
    RELAYING,
    asked,
    compared,
    compared_long,
    continued,
    mapped_reports,
    overfilled,
    overseen,
    proven,
    relayed,
)
from tests.support import answer_to, approve, failure, start

QUESTION = "continue after looks (step 1)"


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a worker whose handoffs are signed, so that reports are read as they crossed."""
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, RELAYING, RELAY_STAGES) as it:
        yield it


async def prompt_of(worker: Worker, run: Any, **params: Any) -> tuple[str, PipelineResult]:
    """Return what the agent after the report was shown, and the result."""
    handle = await start(worker, run, **params)
    result: PipelineResult = await handle.result()
    await assert_replays(handle, RELAYING)
    return str(result.output), result


class TestNextAgent:
    async def test_it_reads_the_report_itself(self, worker: Worker) -> None:
        """Advice before findings, lines and reasons included (S4-purpose-b, S4-use-1)."""
        prompt, result = await prompt_of(worker, relayed)
        texts = [
            "**Status:** completed",
            "**Confidence:** 85",
            "**Ready for Next Phase:** Yes",
            "- [ ] Who owns the keys?",
            "1. Rotate the keys first",
            "npm test",
            "| `src/auth.ts` | 7-21 | it signs the tokens |",
            "12. looks saw `src/auth.ts:12`",
        ]

        report = prompt[prompt.index("## Agent Handoff Report") :]
        places = [report.index(text) for text in texts]
        assert places == sorted(places)
        assert result.baton["acceptance"] == ["npm test"]
        assert result.baton["open_questions"] == ["Who owns the keys?", "Next: Rotate the keys first"]
        assert result.baton["current_state"][0] == "looks: completed, confidence 85, ready: Yes"
        assert result.baton["current_state"][-1] == "(+8 more in the report)"
        assert len(result.baton["current_state"]) == 8

    async def test_of_a_long_one_it_reads_all_advice(self, worker: Worker) -> None:
        """Where 400 findings and 100 recommendations have no room together, findings are left out (S4-purpose-b)."""
        prompt, _ = await prompt_of(worker, relayed, long=True)
        report = prompt[prompt.index("## Agent Handoff Report") :]

        assert [number for number in range(2, 101) if f". Then do number {number}\n" not in report] == []
        for text in ("**Ready for Next Phase:** Yes", "- [ ] Who owns the keys?", "npm test", "`src/auth.ts` | 7-21"):
            assert text in report
        assert "1. looks saw" in report
        assert "400. looks saw" not in report

    async def test_it_reads_it_once(self, worker: Worker) -> None:
        """Also where the pipeline gives it as an input, which is shown as Markdown."""
        prompt, _ = await prompt_of(worker, relayed, named=True)

        assert "Input `findings`" in prompt
        assert prompt.count("## Agent Handoff Report") == 1

    async def test_one_that_declares_what_it_reads_gets_no_more(self, worker: Worker) -> None:
        """The report tells also of the fields that it may not see."""
        prompt, _ = await prompt_of(worker, relayed, little=True)

        assert "looks: completed" in prompt
        assert "## Agent Handoff Report" not in prompt


class TestOnReport:
    @pytest.mark.parametrize("status", ["failed", "blocked"])
    async def test_work_that_failed_stops_the_relay(self, worker: Worker, status: str) -> None:
        """The baton is unchanged, and the error says what the report says (S4-status-c, S4-status-d)."""
        handle = await start(worker, relayed, status=status, ready="No")

        why = await failure(handle)

        assert f"its report says {status}, confidence 10, ready: No. Looked at the login." in why
        assert "Who owns the keys?" in why
        assert (await read_run(worker.client, handle.id)).baton.decision_log == []
        await assert_replays(handle, RELAYING)

    @pytest.mark.parametrize(
        ("run", "said"),
        [
            pytest.param(relayed, {"ready": "No"}, id="not ready"),
            pytest.param(asked, {"ready": "No"}, id="not ready, where failures ask too"),
            pytest.param(asked, {"status": "failed", "ready": "No"}, id="failed"),
            pytest.param(asked, {"status": "blocked", "ready": "With caveats"}, id="blocked, with caveats"),
        ],
    )
    async def test_people_are_asked(self, worker: Worker, run: Any, said: dict[str, Any]) -> None:
        """With the report; the run continues or fails as they say, and a fork asks nobody again (C-29)."""
        handle = await start(worker, run, **said)
        decided = await approve(worker.client, handle, QUESTION)
        result = await handle.result()

        assert decided.approved
        assert "## Agent Handoff Report" in str(result.output)
        await assert_replays(handle, RELAYING)
        forked = await fork(worker.client, handle.id, at="reads", by="ann", why="again")
        assert "## Agent Handoff Report" in (await forked.result())["output"]

        refused = await start(worker, run, **said)
        await approve(worker.client, refused, QUESTION, yes=False)
        assert f"{QUESTION!r} was denied by ann" in await failure(refused)

    async def test_one_that_is_too_large_is_rejected(self, worker: Worker) -> None:
        """Its size would decide how long the workflow's code works."""
        assert "lines of text; at most 5,000 are allowed" in await failure(await start(worker, overfilled))

    async def test_the_people_of_the_handoffs_decide(self, worker: Worker) -> None:
        """Whether a pipeline goes on is decided by as many, and by whom, as about its handoffs."""
        handle = await start(worker, overseen, ready="No")
        yes = await answer_to(handle, QUESTION)
        with pytest.raises(PipelineError, match="'mallory' may not decide"):
            await decide(worker.client, handle.id, yes.model_copy(update={"who": "mallory"}))
        replies = [
            await decide(worker.client, handle.id, yes.model_copy(update={"who": who})) for who in ("ann", "bob")
        ]

        assert [reply.missing for reply in replies] == [1, 0]
        assert "## Agent Handoff Report" in str((await handle.result()).output)
        await assert_replays(handle, RELAYING)

    async def test_a_signature_counts_where_handoffs_need_one(self, worker: Worker) -> None:
        """The word of anybody does not."""
        handle = await start(worker, proven, ready="No")

        with pytest.raises(PipelineError, match="needs a signed decision"):
            await approve(worker.client, handle, QUESTION)
        await handle.terminate()

    async def test_the_code_may_decide(self, worker: Worker) -> None:
        """The report is the stage's output, and its history entry says how it went."""
        handle = await start(worker, continued, status="failed", ready="No")
        await handle.result()
        entry = (await read_run(worker.client, handle.id)).state.entries[0]

        assert str(entry.report) == "failed, confidence 10, ready: No"


class TestBranches:
    async def test_decisions_have_their_authors_and_a_rejected_one_is_a_conflict(self, worker: Worker) -> None:
        """Equal ones stand once, with both; the next agent reads one report (S4-use-2)."""
        prompt, result = await prompt_of(worker, compared)
        both = "looks, confidence 85; differs, confidence 85"

        assert result.baton["decision_log"] == [
            f"Keep the tests (from {both})",
            "Use JWT — because no store is shared (from looks, confidence 85)",
            "Use sessions (rejected: JWT, or no login at all) (from differs, confidence 85)",
        ]
        assert prompt.count("## Agent Handoff Report") == 1
        assert "looks decided 'Use JWT', and differs rejected it for 'Use sessions': which holds?" in prompt

    async def test_their_state_stays_short(self, worker: Worker) -> None:
        """Of S1's eight bullets each branch has some, and the report that the next agent reads has the rest."""
        prompt, result = await prompt_of(worker, compared)
        state = result.baton["current_state"]

        assert state[:2] == [f"{name}: completed, confidence 85, ready: Yes" for name in ("looks", "differs")]
        assert len(state) == 8
        assert "differs saw `src/auth.ts:12` (from differs)" in prompt

    async def test_the_items_of_a_map_are_authors(self, worker: Worker) -> None:
        """Of one agent that reports about many; an item that failed has none (S4-use-2)."""
        prompt, result = await prompt_of(worker, mapped_reports)
        both = "looks 1, confidence 85; looks 3, confidence 85"

        assert result.baton["decision_log"][0] == f"Keep the tests (from {both})"
        assert f"Keep the tests (from {both})" in prompt[prompt.index("## Agent Handoff Report") :]

    async def test_the_history_tells_the_conflict(self, worker: Worker) -> None:
        """With both decisions."""
        handle = await start(worker, compared)
        await handle.result()
        merge = (await read_run(worker.client, handle.id)).state.entries[2]

        [conflict] = [conflict for conflict in merge.conflicts if conflict.field == "decision_log"]
        assert conflict.values == {
            "looks": "Use JWT — because no store is shared",
            "differs": "Use sessions (rejected: JWT, or no login at all)",
        }

    async def test_hundreds_of_decisions_are_merged(self, worker: Worker) -> None:
        """The first disputes are conflicts, and a warning counts the others."""
        handle = await start(worker, compared_long)
        result = await handle.result()
        merge = (await read_run(worker.client, handle.id)).state.entries[2]

        assert "## Agent Handoff Report" in str(result.output)
        assert len([conflict for conflict in merge.conflicts if conflict.field == "decision_log"]) == MAX_DISPUTES
        assert any("more were rejected by another agent" in warning for warning in merge.warnings)
        await assert_replays(handle, RELAYING)

    async def test_a_branch_that_failed_fails_them(self, worker: Worker) -> None:
        """As one that raised does."""
        handle = await start(worker, compared, status="failed", ready="No")

        assert "its report says failed" in await failure(handle)
