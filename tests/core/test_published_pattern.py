"""The published pattern on a real server: four agents hand on one baton, stage by stage (S1, S2)."""

import json
from collections.abc import AsyncIterator

import pytest
from pydantic import JsonValue
from temporalio import workflow

from baton import (
    Baton,
    BatonPatch,
    Pipeline,
    PipelineInput,
    PipelineResult,
    StageContext,
    StageResult,
    apply_patch,
    estimate_tokens,
    merge_patch,
    stage,
)
from baton.devserver import DevServer
from baton.testing import PipelineRun, connected, pipeline_worker, run_pipeline

PUBLISHED = {
    "goal": "Add OAuth2 login flow",
    "current_state": ["Auth routes created", "Tests passing"],
    "decision_log": ["Chose JWT over sessions for statelessness"],
    "open_questions": ["Should refresh tokens expire?"],
    "constraints": ["Must support OAuth2", "No breaking changes"],
    "work_scope": ["src/auth/login.ts", "tests/auth.test.ts"],
    "acceptance": ["All auth tests green", "No regressions"],
}
"""The examples of the field table (S1 L17-32)."""

CODE = "function login() { /* … */ }\n" * 12_000
"""A work product of about 90,000 tokens."""


@stage
async def planner(context: StageContext[Baton]) -> StageResult:
    """Decide, with a reason."""
    plan = "Step one: routes. " * 300
    await context.artifacts.write("plan-1", plan, type="plan", path="docs/plan.md")
    patch = BatonPatch(
        current_state=["Plan written", "Three steps", "Nothing built yet"],
        decision_log=["Chose JWT over sessions for statelessness"],
        constraints=["Must support OAuth2", "No breaking changes"],
        open_questions=["Should refresh tokens expire?"],
        acceptance=["All auth tests green"],
        work_scope=["src/auth/*"],
    )
    return StageResult(baton_patch=patch, output=context.prompt)


@stage
async def implementer(context: StageContext[Baton]) -> StageResult:
    """Build, and answer the planner's open question."""
    await context.artifacts.write("code-1", CODE, type="code", path="src/auth/login.ts")
    patch = BatonPatch(
        current_state=["Auth routes created", "Tokens expire after a day", "Tests not run yet"],
        decision_log=["Refresh tokens expire after a day"],
        open_questions=[],
    )
    return StageResult(baton_patch=patch, output=context.prompt)


@stage
async def tester(context: StageContext[Baton]) -> StageResult:
    """Test, and wrongly contradict an earlier decision."""
    patch = BatonPatch(
        current_state=["Auth routes created", "Tests passing", "Review is open"],
        decision_log=["Sessions would have been simpler"],
    )
    return StageResult(baton_patch=patch, output=context.prompt)


@stage
async def reviewer(context: StageContext[Baton]) -> StageResult:
    """Review."""
    patch = BatonPatch(current_state=["Reviewed", "Reads well", "Ready to merge"])
    return StageResult(baton_patch=patch, output=context.prompt)


@workflow.defn
class Published:
    """Planner → Implementer → Tester → Reviewer."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        prompts = [await self.pipeline.stage(each) for each in (planner, implementer, tester, reviewer)]
        return self.pipeline.result([prompt.output for prompt in prompts])


@pytest.fixture(scope="module")
async def published_run(server: DevServer) -> AsyncIterator[PipelineRun]:
    client = await connected(server.address)
    async with pipeline_worker(client, [Published], [planner, implementer, tester, reviewer]) as worker:
        yield await run_pipeline(worker, Published.run, PipelineInput(goal="Add OAuth2 login flow"))


def prompts(run: PipelineRun) -> list[str]:
    assert isinstance(run.result.output, list)
    return [str(prompt) for prompt in run.result.output]


class TestWhatTheNextAgentKnows:
    async def test_it_reads_reasons_as_well(self, published_run: PipelineRun) -> None:
        """The implementer gets the planner's decisions, constraints and questions (S1-prob-d, S2-prob-b)."""
        for reason in (
            "Chose JWT over sessions for statelessness",
            "No breaking changes",
            "Should refresh tokens expire?",
        ):
            assert reason in prompts(published_run)[1]

    async def test_it_reads_what_was_done(self, published_run: PipelineRun) -> None:
        """The tester reads the results and answers, so it repeats neither (S1-prob-e, S2-prob-c)."""
        assert "Auth routes created" in prompts(published_run)[2]
        assert "Refresh tokens expire after a day" in prompts(published_run)[2]
        assert "Should refresh tokens expire?" not in prompts(published_run)[2]

    async def test_a_contradiction_does_not_replace_the_decision(self, published_run: PipelineRun) -> None:
        """The reviewer still reads the contradicted decision (S1-prob-f, S2-cmp-b)."""
        assert prompts(published_run)[3].index("Chose JWT over sessions") < prompts(published_run)[3].index(
            "Sessions would have been simpler"
        )

    async def test_work_products_cost_no_prompt_tokens(self, published_run: PipelineRun) -> None:
        """References stand for 90,000 tokens; the baton stays small (S1-cmp-a, S2-cmp-a, S2-prob-a, S2-ex-a)."""
        assert estimate_tokens(CODE) > 80_000
        assert "code-1 (code, " in prompts(published_run)[3]
        assert "function login" not in prompts(published_run)[3]
        assert all(estimate_tokens(prompt) <= 2_000 for prompt in prompts(published_run))


class TestTheRelay:
    async def test_each_stage_patches_the_baton(self, published_run: PipelineRun) -> None:
        """One entry for each stage with its patch, in order (S1-concept-b, S1-cmp-e)."""
        assert [entry.stage_id for entry, _ in published_run.record.history] == [
            "planner",
            "implementer",
            "tester",
            "reviewer",
        ]
        assert all(entry.patch for entry, _ in published_run.record.history)

    async def test_the_baton_passes_through_all_stages(self, published_run: PipelineRun) -> None:
        """Each stage gets the baton that the previous one left (S1-loop-b, S2-how-4)."""
        batons = [baton for _, baton in published_run.record.history]
        for baton, prompt in zip(batons, prompts(published_run)[1:], strict=False):
            assert all(bullet in prompt for bullet in baton.current_state)
        assert published_run.result.final_baton().current_state == ["Reviewed", "Reads well", "Ready to merge"]


class TestTheFields:
    @pytest.mark.parametrize("name", PUBLISHED)
    def test_the_published_examples_are_kept_verbatim(self, name: str) -> None:
        """Through JSON, word for word (S1-fields-c, S1-fields-e, S1-fields-f, S1-fields-g, S1-fields-j)."""
        baton = Baton.model_validate_json(json.dumps({"goal": "g", name: PUBLISHED[name]}))
        assert json.loads(baton.model_dump_json())[name] == PUBLISHED[name]

    def test_the_fields_have_the_published_names_and_order(self) -> None:
        """In JSON as well (S2-fields-a)."""
        page = "goal current_state decision_log constraints work_scope artifacts open_questions acceptance"
        assert list(Baton(goal="g").to_json_object()) == page.split()

    def test_a_patch_is_a_plain_merge_patch(self) -> None:
        """Without new decisions, RFC 7396 gives the same JSON (S2-simple-a)."""
        baton = Baton.model_validate_json(json.dumps(PUBLISHED))
        patch: dict[str, JsonValue] = {"current_state": ["Merged"], "open_questions": [], "goal": "Keep OAuth2 working"}
        assert apply_patch(baton, patch).to_json_object() == merge_patch(baton.to_json_object(), patch)
