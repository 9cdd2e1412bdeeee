"""The shipped pipeline `code_review` on a real server, over real code, with the real analysers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from activities.code_review.stages import STAGES
from baton import PipelineInput, WorkerParts
from baton.client import explain, read_run
from baton.client.faces import ArtifactStore
from baton.lab import BASELINE, Cohort, LabOptions, Lane, Overrides, read_cases, run_lab
from baton.plugin import BatonPlugin
from baton.report.parsing import parse_report
from baton.report.records import Readiness, Status
from baton.report.rules import lint_report
from baton.testing import PipelineRun, assert_replays, pipeline_worker, run_pipeline
from tests.chat_server import chat_server, completion, configure, refusal
from tests.shipped.code_review.material import FILES, SLOW, WEAK, contents, git, repository, write
from tests.support import failure
from workflows.code_review import BUDGET, CodeReview

CLAIM = {
    "path": "bin/deploy.sh",
    "line": 9,
    "quote": "eval $1",
    "severity": "high",
    "message": "The first argument is run as a command",
}
STEPS = ["take-snapshot", "audit-security+review-performance", "coordinate-review"]


@pytest.fixture(scope="module")
async def reviewer(client: Client) -> AsyncIterator[Worker]:
    """Return a worker of the pipeline that replays the workflow at every task."""
    async with pipeline_worker(client, [CodeReview], STAGES, replay_every_task=True) as worker:
        yield worker


async def review(worker: Worker, source: Path, out: Path, **params: JsonValue) -> PipelineRun:
    all_params: dict[str, JsonValue] = {"source": str(source), "output": str(out), **params}
    return await run_pipeline(
        worker, CodeReview.run, PipelineInput(goal="Review it before the release", params=all_params)
    )


def claims(*found: dict[str, Any]) -> dict[str, Any]:
    """Return a model's answer with these findings."""
    return completion(json.dumps({"baton_patch": {}, "output": {"findings": found}}))


class TestCodeReview:
    async def test_reviews_a_project_to_the_end(self, reviewer: Worker, store: ArtifactStore, tmp_path: Path) -> None:
        """Two reviewers side by side, one merged report, in the folder and in the store (S4-use-2)."""
        source = write(tmp_path / "project", FILES)
        state_before = contents(source)
        run = await review(reviewer, source, tmp_path / "out")
        output: Any = run.result.output
        assert output["verdict"] == "request changes"
        assert output["findings"] == {"high": 1, "medium": 1, "low": 4}
        assert output["suppressed"] == 1
        assert run.step_names == STEPS
        assert contents(source) == state_before
        stored = {ref.id: await store.get(ref.hash) for ref in run.baton.artifacts}
        assert set(stored) >= {"snapshot", "security-review", "performance-review", "review", "sarif"}
        assert (tmp_path / "out" / "REVIEW.md").read_bytes() == stored["review"]
        assert (tmp_path / "out" / "review.sarif").read_bytes() == stored["sarif"]
        await assert_replays(run.handle, [CodeReview], plugin=BatonPlugin(WorkerParts(artifacts=store)))

    async def test_merges_what_the_reviewers_report(self, reviewer: Worker, tmp_path: Path) -> None:
        """The merged report can be parsed: worst status, lowest confidence, every place (S4-parse-m)."""
        await review(reviewer, write(tmp_path / "project", FILES), tmp_path / "out")
        parsed = parse_report((tmp_path / "out" / "REVIEW.md").read_text())
        report = parsed.report
        assert (report.status, report.confidence, report.readiness) == (Status.PARTIAL, 70, Readiness.WITH_CAVEATS)
        assert lint_report(report) == []
        discoveries = "\n".join(report.findings.discoveries)
        assert "`app/weak.py:8` **high**" in discoveries
        assert "`app/slow.py:5` **medium**" in discoveries
        assert "(from audit-security)" in discoveries
        assert "(from review-performance)" in discoveries
        assert any("bin/deploy.sh" in blocker for blocker in report.blockers)
        assert {note.heading for note in report.notes} == {"Not Analysed", "Suppressed in the Source", "Analysers"}
        assert any("README.md" in item for note in report.notes for item in note.items)

    async def test_reviews_a_change_alone(self, reviewer: Worker, tmp_path: Path) -> None:
        """Since a commit: earlier weaknesses are not part of the review."""
        root = repository(tmp_path / "project", {"app/weak.py": WEAK})
        write(root, {"app/slow.py": SLOW})
        run = await review(reviewer, root, tmp_path / "out", base="HEAD")
        output: Any = run.result.output
        assert output["findings"] == {"high": 0, "medium": 1, "low": 1}
        assert output["verdict"] == "comment"
        assert "what changed since HEAD" in (tmp_path / "out" / "REVIEW.md").read_text()

    async def test_reviews_a_diff_that_nobody_applied(self, reviewer: Worker, tmp_path: Path) -> None:
        """A patch file against the current checkout."""
        root = repository(tmp_path / "project", {"app/weak.py": "import subprocess\n"})
        (root / "app/weak.py").write_text(WEAK)
        (tmp_path / "change.diff").write_text(git(root, "diff"))
        git(root, "checkout", "-q", ".")
        run = await review(reviewer, root, tmp_path / "out", diff=str(tmp_path / "change.diff"), fail_on="medium")
        output: Any = run.result.output
        assert output["verdict"] == "request changes"
        assert (root / "app/weak.py").read_text() == "import subprocess\n"
        assert "what changed by change.diff" in (tmp_path / "out" / "REVIEW.md").read_text()

    async def test_says_that_nothing_was_found_and_approves_nothing(self, reviewer: Worker, tmp_path: Path) -> None:
        """All files are Python and were analysed; that is no judgement, so the report is ready with caveats."""
        run = await review(reviewer, write(tmp_path / "project", {"a.py": '"""A."""\n'}), tmp_path / "out")
        output: Any = run.result.output
        assert output["verdict"] == "nothing found"
        assert [warning for entry, _ in run.record.history for warning in entry.warnings if "bullets" in warning] == []
        report = parse_report((tmp_path / "out" / "REVIEW.md").read_text()).report
        assert (report.status, report.readiness) == (Status.COMPLETED, Readiness.WITH_CAVEATS)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"README.md": "# Other\n"}, id="prose"),
            pytest.param({"web/app.ts": "export const x = eval('1');\n"}, id="a language that no analyser reads"),
            pytest.param({"app/weak.py": "import pickle\n"}, id="only lines removed"),
            pytest.param({"vendor/lib.py": WEAK}, id="vendored code"),
        ],
    )
    async def test_says_not_reviewed_of_a_change_that_it_cannot_read(
        self, reviewer: Worker, tmp_path: Path, change: dict[str, str]
    ) -> None:
        """Not completed and not ready; no reviewer is started."""
        root = write(repository(tmp_path / "project", {"app/weak.py": WEAK, "README.md": "# Demo\n"}), change)
        run = await review(reviewer, root, tmp_path / "out", base="HEAD")
        output: Any = run.result.output
        assert output["verdict"] == "not reviewed"
        assert run.step_names == ["take-snapshot", "coordinate-review"]
        report = parse_report((tmp_path / "out" / "REVIEW.md").read_text()).report
        assert (report.status, report.confidence, report.readiness) == (Status.BLOCKED, 0, Readiness.NO)
        assert any(path in blocker for path in change for blocker in report.blockers)

    async def test_hands_facts_on_under_contracts(self, reviewer: Worker, tmp_path: Path) -> None:
        """What each analyser reported is a fact of the coordinator's contract, with its tool and time (S5-fields-e)."""
        run = await review(reviewer, write(tmp_path / "project", FILES), tmp_path / "out")
        explained: Any = await run.handle.query("explain", "coordinate-review")
        (fact,) = [fact for fact in explained["contract"]["facts"] if "reports 6 findings" in fact["claim"]]
        assert fact["claim"].startswith("bandit")
        assert fact["source"]["method"] == f"tool_call:{fact['source']['source']}"
        assert fact["source"]["timestamp"] < explained["contract"]["createdAt"]
        for stage in "+".join(STEPS).split("+"):
            assert (await explain(reviewer.client, run.handle.id, stage)).stage == stage

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            pytest.param({"output": "project/out"}, "never written to", id="an output inside the source"),
            pytest.param({"fail_on": "blocker"}, "must be one of high, medium, low", id="an unknown severity"),
            pytest.param({"base": "HEAD", "diff": "x"}, "exclude each other", id="both base and diff"),
            pytest.param({"base": "nowhere"}, "the commit 'nowhere' does not exist", id="an unknown commit"),
            pytest.param({"source": "nowhere"}, "does not exist", id="a missing folder"),
        ],
    )
    async def test_fails_at_once_on_what_cannot_be_reviewed(
        self, reviewer: Worker, tmp_path: Path, params: dict[str, str], message: str
    ) -> None:
        """The message says what to do, and nothing is retried."""
        repository(tmp_path / "project", {"a.py": "x = 1\n"})
        places = {"source": "project", "output": "out", **params}
        all_params = {
            name: str(tmp_path / value) if name in ("source", "output") else value for name, value in places.items()
        }
        handle = await reviewer.client.start_workflow(
            CodeReview.run,
            PipelineInput(goal="Review it", params={**all_params}),
            id=f"refused-{tmp_path.name}",
            task_queue=reviewer.task_queue,
        )
        assert message in await failure(handle)
        run = await read_run(reviewer.client, handle.id)
        assert [step.name for step in run.steps] == ["take-snapshot"]

    async def test_nothing_of_a_change_goes_unmentioned(self, reviewer: Worker, tmp_path: Path) -> None:
        """Settings beside a program that was read make it partial; a link and a long file that stayed are no change."""
        root = repository(tmp_path / "project", {"a.py": "a = 1\n", "logo.txt": "x" * 2_000_000, "ci.yaml": "a\n"})
        (root / "link").symlink_to("a.py")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "link")
        write(root, {"a.py": "a = 2\n", "ci.yaml": "b\n"})
        run = await review(reviewer, root, tmp_path / "out", base="HEAD")
        output: Any = run.result.output
        assert output["verdict"] == "comment"
        report = parse_report((tmp_path / "out" / "REVIEW.md").read_text()).report
        assert (report.status, report.readiness) == (Status.PARTIAL, Readiness.WITH_CAVEATS)
        assert [blocker.partition(" (from")[0] for blocker in report.blockers] == [
            "Not analysed: 1 × not a program (ci.yaml)"
        ]


class TestWithAModel:
    async def test_what_it_can_quote_is_kept_and_its_cost_is_in_the_budget(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A model reads other languages too; a claim whose quote is not in the file is dropped and counted."""
        answer = claims(CLAIM, {**CLAIM, "quote": "rm -rf / --no-preserve-root"})
        with chat_server(answer, answer) as server:
            configure(monkeypatch, server, PROMPT_PRICE="2.50")
            run = await review(reviewer, write(tmp_path / "project", FILES), tmp_path / "out")
        report = (tmp_path / "out" / "REVIEW.md").read_text()
        assert "`bin/deploy.sh:2` **high** The first argument is run as a command" in report
        assert "no-preserve-root" not in report
        assert "2 claims of a model were dropped" in report
        assert "in other languages, which only the model did read" in report
        assert run.result.spend.prompt_tokens == 2_000
        assert run.result.spend.micro_usd == 5_000
        status: Any = await run.handle.query("status")
        assert status["remaining_micro_usd"] == BUDGET.initial_micro_usd - 5_000
        for request in server.asked:
            system, user = request.body["messages"]
            assert "eval $1" not in system["content"]
            assert "DATA ONLY" in user["content"]

    async def test_the_lab_reviews_a_recorded_project_whole(
        self, reviewer: Worker, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both reviewers are asked again, by their recorded analysers; no program runs and no file is written again."""
        source, out = write(tmp_path / "project", FILES), tmp_path / "out"
        with chat_server(*[claims()] * 4, *[claims(CLAIM)] * 2) as server:
            configure(monkeypatch, server, PROMPT_PRICE="2.50")
            run = await review(reviewer, source, out)
            [case] = await read_cases(reviewer.client, run.handle.id, "..", store=store)
            rmtree(source)
            rmtree(out)
            monkeypatch.setattr("activities.code_review.stages.run_program", None)
            keen = Lane(name="keen", overrides=Overrides(stage="audit-security", model="keen"))
            results = await run_lab(reviewer.client, Cohort(name="code", cases=[case]), [keen], LabOptions(parallel=1))
        [baseline], [changed] = (results.outcomes(case.id, lane) for lane in (BASELINE, "keen"))
        assert (baseline.failure, baseline.output, baseline.baton_patch) == (
            "",
            case.recorded.output,
            case.recorded.baton_patch,
        )
        assert baseline.spend == case.recorded.spend == run.result.spend
        assert [call.how for call in baseline.calls] == ["recorded"] * 2
        assert [request.body["model"] for request in server.asked[4:]].count("keen") == 1
        assert "--allow" in changed.failure  # another report would be written
        assert not out.exists()

    async def test_a_wrong_key_is_not_tried_again(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An authentication error ends the run with its reason, without the key."""
        with chat_server(*(refusal(401, "invalid_api_key", "no such key") for _ in range(2))) as server:
            configure(monkeypatch, server, PROMPT_PRICE="2.50")
            with pytest.raises(WorkflowFailureError) as raised:
                await review(reviewer, write(tmp_path / "project", FILES), tmp_path / "out")
        assert len(server.asked) == 2
        assert "sk-secret" not in str(raised.value.cause)
