"""The shipped pipeline `contract_review` on a real server: four agents over contracts of three formats."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from activities.contract_review.clauses import read_document
from activities.contract_review.records import ContractBaton, Report
from activities.contract_review.report import find_untraceable
from activities.contract_review.stages import STAGES
from baton import Budget, PipelineInput, WorkerParts
from baton.client import read_run
from baton.client.faces import ArtifactStore
from baton.lab import BASELINE, Cohort, LabOptions, Lane, Overrides, read_cases, run_lab
from baton.plugin import BatonPlugin
from baton.testing import PipelineRun, assert_replays, pipeline_worker, run_pipeline
from tests.chat_server import Reply, chat_server, completion, configure
from tests.shipped.contract_review.material import NDA, SAAS, SERVICES, pdf_of
from tests.support import failure
from workflows.contract_review import ContractReview

PRICES = {"PROMPT_PRICE": "2.50", "COMPLETION_PRICE": "10"}
SIDE: JsonValue = {"party": "Customer"}
CLAIM: dict[str, JsonValue] = {
    "quote": "Support answers requests within 2 business days.",
    "title": "Support is slow",
    "why": "A stop of the plant costs more than the service.",
    "action": "Ask for an answer within a day.",
    "likelihood": 4,
    "consequence": 4,
}
STEPS = ["extract-clauses", "analyse-clauses", "score-risk", "write-summary"]


@pytest.fixture(scope="module")
async def reviewer(client: Client) -> AsyncIterator[Worker]:
    """Return a worker of the pipeline that replays the workflow at every task."""
    async with pipeline_worker(client, [ContractReview], STAGES, replay_every_task=True) as worker:
        yield worker


def files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


async def review(worker: Worker, source: Path, out: Path, **params: JsonValue) -> PipelineRun:
    all_params: dict[str, JsonValue] = {"source": str(source), "output": str(out), **params}
    return await run_pipeline(
        worker, ContractReview.run, PipelineInput(goal="Review it for the customer", params=all_params)
    )


class TestContractReview:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("services_agreement.md", id="Markdown"),
            pytest.param("nda.txt", id="text"),
            pytest.param("terms.pdf", id="PDF"),
        ],
    )
    async def test_reviews_a_contract_to_the_end(
        self, reviewer: Worker, store: ArtifactStore, tmp_path: Path, name: str
    ) -> None:
        """Four agents, one task, one decision each; the report is in the folder and in the store, and can be traced."""
        source = pdf_of(SAAS.read_text(), tmp_path / name) if name == "terms.pdf" else SERVICES.parent / name
        run = await review(reviewer, source, tmp_path / "out")
        output: Any = run.result.output
        assert (output["verdict"], output["risks"]) == ("not judged", 0)
        assert output["passages"] > 5
        assert any("For which side is the review" in question for question in run.baton.open_questions)
        assert run.step_names == STEPS
        assert [step.attempts for step in run.record.steps] == [1, 1, 1, 1]
        assert [warning for entry, _ in run.record.history for warning in entry.warnings if "bullets" in warning] == []
        assert len(run.baton.decision_log) == 4
        data = (tmp_path / "out" / "report.json").read_bytes()
        stored = {ref.id: await store.get(ref.hash) for ref in run.baton.artifacts}
        assert stored["report-data"] == data
        assert stored["report"] == (tmp_path / "out" / "REPORT.md").read_bytes()
        assert find_untraceable(Report.model_validate_json(data), read_document(source)) == []
        await assert_replays(run.handle, [ContractReview], plugin=BatonPlugin(WorkerParts(artifacts=store)))

    async def test_refuses_a_side_that_the_contract_does_not_name(self, reviewer: Worker, tmp_path: Path) -> None:
        """It names those that it has."""
        params: dict[str, JsonValue] = {"source": str(SERVICES), "output": str(tmp_path), "policy": {"party": "Buyer"}}
        handle = await reviewer.client.start_workflow(
            ContractReview.run,
            PipelineInput(goal="Review it", params=params),
            id=f"side-{tmp_path.name}",
            task_queue=reviewer.task_queue,
        )
        assert "names in it: 'Agreement', 'Supplier', 'Customer'" in await failure(handle)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            pytest.param(b"", "is empty", id="an empty file"),
            pytest.param(b"%PDF-1.7\nrubbish", "not a PDF that can be read", id="a broken PDF"),
        ],
    )
    async def test_fails_at_once_on_what_cannot_be_read(
        self, reviewer: Worker, tmp_path: Path, content: bytes, message: str
    ) -> None:
        """A wrong file is not retried."""
        (tmp_path / "contract.pdf").write_bytes(content)
        params: dict[str, JsonValue] = {"source": str(tmp_path / "contract.pdf"), "output": str(tmp_path / "out")}
        handle = await reviewer.client.start_workflow(
            ContractReview.run,
            PipelineInput(goal="Review it", params=params),
            id=f"broken-{tmp_path.name}-{len(content)}",
            task_queue=reviewer.task_queue,
        )
        assert message in await failure(handle)
        run = await read_run(reviewer.client, handle.id)
        assert [step.name for step in run.steps] == ["extract-clauses"]
        assert not (tmp_path / "out").exists()

    async def test_says_of_a_form_that_it_is_no_contract(self, reviewer: Worker, tmp_path: Path) -> None:
        """A text that is not a contract has no missing clauses, and no report is written."""
        (tmp_path / "form.txt").write_text("APPLICATION FORM\nName and address of the child, please tick a box. " * 10)
        handle = await reviewer.client.start_workflow(
            ContractReview.run,
            PipelineInput(goal="g", params={"source": str(tmp_path / "form.txt"), "output": str(tmp_path / "out")}),
            id=f"form-{tmp_path.name}",
            task_queue=reviewer.task_queue,
        )
        assert "does not read as a contract" in await failure(handle)
        assert not (tmp_path / "out").exists()

    async def test_explains_what_each_agent_was_given(self, reviewer: Worker, tmp_path: Path) -> None:
        """Every stage has a contract, so `baton explain` has an answer for each."""
        run = await review(reviewer, NDA, tmp_path)
        for step in STEPS:
            assert await run.handle.query("explain", step)


class TestWithAModel:
    async def test_asks_once_and_sends_the_bill(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer is charged; findings carry the contract's words; clauses and risks travel (S3-5.2-n)."""
        claims = {"findings": [CLAIM, {**CLAIM, "quote": "The Provider pays everything."}]}
        with chat_server(answer(claims)) as server:
            configure(monkeypatch, server, **PRICES)
            run = await review(reviewer, SAAS, tmp_path, policy=SIDE)
        by_rules = run.record.history[0][0].spend + run.record.history[2][0].spend
        assert run.result.spend.micro_usd == 3_500
        assert by_rules.micro_usd == 0
        report = Report.model_validate_json((tmp_path / "report.json").read_bytes())
        assert [(finding.clause, finding.score) for finding in report.findings] == [("line 25", 16)]
        assert (report.rejected, report.verdict, report.party) == (1, "do not sign", "Customer")
        assert report.summary[-1].by == "model"
        baton = run.result.final_baton(ContractBaton)
        assert {key.id: key.topic for key in baton.extracted_clauses}["line 57"] == "liability"
        assert [(flag.clause, flag.score) for flag in baton.risk_flags] == [("line 25", 16)]
        assert "scoringFramework:iso31000" in baton.constraints
        prompts = [request.body["messages"][1]["content"] for request in server.asked]
        assert all("CONTEXT FROM PREVIOUS AGENT" in prompt for prompt in prompts)

    async def test_the_lab_asks_another_model_about_a_recorded_contract(
        self, reviewer: Worker, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The analyst is asked again by another name and task; who writes files is not run."""
        found = [answer({"findings": findings}) for findings in ([], [], [CLAIM])]
        with chat_server(*found) as server:
            configure(monkeypatch, server, **PRICES)
            run = await review(reviewer, SAAS, tmp_path, policy=SIDE)
            cases = await read_cases(reviewer.client, run.handle.id, "analyse-clauses", store=store)
            cases += await read_cases(reviewer.client, run.handle.id, "write-summary", store=store)
            cohort = Cohort(name="contracts").with_cases([case.model_copy(update={"id": case.stage}) for case in cases])
            other = Lane(name="large", overrides=Overrides(model="large", prompt="Name every risk."))
            results = await run_lab(reviewer.client, cohort, [other], LabOptions(parallel=1))
        asked = [(request.body["model"], request.body["messages"][0]["content"]) for request in server.asked]
        assert [model for model, _ in asked] == ["small", "small", "large"]
        assert asked[2][1].startswith("Name every risk.")
        [baseline], [large] = (results.outcomes("analyse-clauses", lane) for lane in (BASELINE, "large"))
        recorded = cohort.case("analyse-clauses").recorded
        assert (baseline.output, baseline.failed) == (recorded.output, "")
        assert len(large.baton_patch["risk_flags"]) == 1  # type: ignore[arg-type]
        [written] = results.outcomes("write-summary", BASELINE)
        assert "--allow" in written.failure

    async def test_the_lab_reviews_a_recorded_contract_whole(
        self, reviewer: Worker, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its code runs again, the analyst is asked again, and no file is written again."""
        found = [answer({"findings": []}) for _ in range(2)]
        with chat_server(*found) as server:
            configure(monkeypatch, server, **PRICES)
            run = await review(reviewer, SAAS, tmp_path, policy=SIDE)
            [case] = await read_cases(reviewer.client, run.handle.id, "..", store=store)
            written = files_in(tmp_path)
            for file in written:
                file.unlink()
            all_of_them = Lane(name="large", overrides=Overrides(model="large"))
            results = await run_lab(reviewer.client, Cohort(name="contracts", cases=[case]), [all_of_them])
        [baseline], [changed] = (results.outcomes(case.id, lane) for lane in (BASELINE, "large"))
        assert (baseline.failure, baseline.output, baseline.baton_patch) == (
            "",
            case.recorded.output,
            case.recorded.baton_patch,
        )
        assert (len(server.asked), baseline.spend) == (2, case.recorded.spend)
        assert written
        assert files_in(tmp_path) == []
        assert "`stage=`" in changed.failure  # the record has no answer of a changed agent that the lab does not run

    async def test_judges_for_nobody_in_particular(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a side the model is not asked, and nothing is judged."""
        with chat_server() as server:
            configure(monkeypatch, server, **PRICES)
            run = await review(reviewer, SAAS, tmp_path)
        output: Any = run.result.output
        assert (len(server.asked), output["verdict"]) == (0, "not judged")

    async def test_a_useless_answer_is_paid_and_a_budget_stops_it(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Useless answers are charged, up to the budget of the run."""
        with chat_server(*[Reply(completion("{}", read=100_000, written=1_000)) for _ in range(20)]) as server:
            configure(monkeypatch, server, **PRICES)
            handle = await reviewer.client.start_workflow(
                ContractReview.run,
                PipelineInput(
                    goal="Review it",
                    params={"source": str(SAAS), "output": str(tmp_path / "out"), "policy": SIDE},
                    budget=Budget(initial_micro_usd=1_000_000),
                ),
                id=f"useless-{tmp_path.name}",
                task_queue=reviewer.task_queue,
            )
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            request_count = len(server.asked)
        run = await read_run(reviewer.client, handle.id)
        assert 1 <= request_count < 10
        assert run.billed.micro_usd >= request_count * 260_000

    async def test_does_not_try_a_wrong_key_again(
        self, reviewer: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An authentication error ends the run with its reason, without the key."""
        with chat_server(Reply(b"no such key: sk-secret", status=401)) as server:
            configure(monkeypatch, server, **PRICES)
            with pytest.raises(WorkflowFailureError) as raised:
                await review(reviewer, SAAS, tmp_path, policy=SIDE)
        assert len(server.asked) == 1
        assert "401" in str(raised.value.cause)
        assert "sk-secret" not in str(raised.value.cause)


def answer(output: dict[str, Any]) -> Reply:
    return Reply(completion(json.dumps({"baton_patch": {}, "output": output}), read=1_000, written=100))
