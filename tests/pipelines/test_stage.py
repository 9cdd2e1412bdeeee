"""`@stage`: a function that tests call, and an activity that workers run."""

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import Field, JsonValue, ValidationError
from temporalio.exceptions import ApplicationError

from baton import (
    Baton,
    BatonPatch,
    MemoryArtifactStore,
    OutputSchema,
    OutputSchemas,
    Retries,
    Spend,
    Stage,
    StageContext,
    StageResult,
    stage,
)
from baton.contract.records import ToolDeniedError
from baton.core.messages import StageInput, StageReturn
from baton.core.stages import DEFAULT_DECISIONS, HasSpec, spec_of
from baton.errors import ConfigurationError, PatchError, PipelineError
from baton.pipelines.activity_parts import WorkerParts, worker_parts


class ReviewBaton(Baton):
    """A derived baton."""

    quality_signals: dict[str, JsonValue] = Field(default_factory=dict)


@stage
async def plan(baton: Baton) -> BatonPatch:
    """Plan the work."""
    return BatonPatch(current_state=[f"Plan for: {baton.goal}"], decision_log=["Use JWT"])


def sent(name: str = "plan", **members: Any) -> StageInput:
    """Return the input of a stage."""
    return StageInput(**{"stage": name, "seq": 3, "task_id": "t", "baton": {"goal": "Add login"}, **members})


async def raising(error: Exception) -> None:
    """Raise the error as a task of a group."""
    raise error


async def answer(answers: Any, **terms: Any) -> StageReturn:
    """Return the result of a stage that returns or raises ``answers``."""

    @stage(**terms)
    async def scripted(context: StageContext[Baton]) -> Any:
        if isinstance(answers, Exception):
            raise answers
        return await answers(context) if callable(answers) else answers

    return await scripted(sent("scripted"))


class TestCall:
    """A stage that a test calls."""

    async def test_it_calls_the_function(self) -> None:
        """A test of a stage needs no server."""
        patch = await plan(Baton(goal="Add login"))

        assert patch == BatonPatch(current_state=["Plan for: Add login"], decision_log=["Use JWT"])

    async def test_a_call_without_an_argument_is_an_error_with_a_hint(self) -> None:
        """Authors write `stage(plan())`, and tests forget the baton."""
        called = plan()  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="passed uncalled; found the coroutine"):
            spec_of(called)
        with pytest.raises(TypeError, match="<stage plan> was called without an argument; pass a baton"):
            await called

    async def test_a_context_can_be_created_for_a_test(self) -> None:
        """For stages that need more than the baton."""

        @stage
        async def review(context: StageContext[Baton]) -> StageResult:
            return StageResult(output=[context.params["depth"], context.attempt, list(context.findings)])

        context = StageContext.for_test(Baton(goal="g"), params={"depth": 2}, findings=["goal: may not be cleared"])

        assert (await review(context)).output == [2, 2, ["goal: may not be cleared"]]

    def test_it_keeps_its_name_and_docstring(self) -> None:
        """People read what the stage's author wrote."""
        assert (plan.__name__, plan.__doc__, repr(plan)) == ("plan", "Plan the work.", "<stage plan>")
        assert isinstance(plan, HasSpec)


class TestRun:
    """A stage that a worker runs."""

    async def test_it_returns_the_patch_unchanged(self) -> None:
        """In the stage's record, with its step number (S1-patch-a, S1-patch-b, C-9)."""
        result = await plan(sent(attempt=2, branch=True))

        assert result == StageReturn(
            stage="plan",
            seq=3,
            attempt=2,
            branch=True,
            baton_patch={"current_state": ["Plan for: Add login"], "decision_log": ["Use JWT"]},
        )

    @pytest.mark.parametrize(
        ("returned", "patch"),
        [
            pytest.param(None, {}, id="nothing"),
            pytest.param({}, {}, id="an empty object"),
            pytest.param(BatonPatch(), {}, id="an empty patch"),
            pytest.param({"constraints": None}, {"constraints": None}, id="raw JSON"),
            pytest.param({"baton_patch": {"goal": "x"}}, {"goal": "x"}, id="the envelope"),
            pytest.param({"baton_patch": "x"}, {"baton_patch": "x"}, id="an envelope that will be refused"),
            pytest.param(StageResult(baton_patch={"goal": "x"}), {"goal": "x"}, id="a result"),
            pytest.param({"desicion_log": ["d"]}, {"desicion_log": ["d"]}, id="a patch that will be refused"),
        ],
    )
    async def test_every_form_of_answer_is_accepted(self, returned: Any, patch: dict[str, Any]) -> None:
        """No patch is a valid answer, and the workflow judges patches (S1-patch-b, C-9, C-10)."""
        result = await answer(returned)

        assert (result.baton_patch, result.findings) == (patch, [])

    async def test_output_and_spend_are_returned(self) -> None:
        """For the pipeline's code, and for its budget."""
        result = await answer(StageResult(output={"passed": 12}, spend=Spend(micro_usd=80_000)))

        assert (result.output, result.spend.micro_usd) == ({"passed": 12}, 80_000)

    async def test_a_malformed_patch_becomes_findings(self) -> None:
        """The stage may correct it; it is not an exception to retry (C-3; B4)."""

        async def bad(context: StageContext[Baton]) -> Any:
            return BatonPatch.model_validate({"current_state": "x", "desicion_log": []})

        result = await answer(bad)

        assert [finding.split(":")[0] for finding in result.findings] == ["current_state", "desicion_log"]
        assert result.findings[1].endswith(
            "BatonPatch has no such member; return a derived patch type that has it, or a dict"
        )
        assert result.baton_patch == {}

    @pytest.mark.parametrize(
        ("members", "finding"),
        [
            (
                {"baton_patch": {"due": datetime(2026, 11, 27, tzinfo=UTC)}},
                "baton_patch.due is a Python datetime; JSON has",
            ),
            ({"baton_patch": {"score": float("nan")}}, "baton_patch.score is nan; JSON has"),
            ({"baton_patch": {1: "x"}}, "baton_patch.1 is a Python int; a name in JSON is a text"),
            ({"output": {"tags": [{"a"}]}}, "output.tags.0 is a Python set; JSON has"),
            ({"turns": [{"content": object()}]}, "turns.0.content is a Python object; JSON has"),
        ],
        ids=["a time", "not a number", "a name that is a number", "a set in a list", "an object in a turn"],
    )
    async def test_a_value_that_is_not_json_is_a_finding(self, members: dict[str, Any], finding: str) -> None:
        """The agent can correct it; the worker has not failed (issue 33)."""

        async def not_json(context: StageContext[Baton]) -> StageResult:
            return StageResult(**members)

        [text] = (await answer(not_json)).findings
        assert text.startswith(finding)

    async def test_an_output_may_be_a_model(self) -> None:
        """As inputs may; it is kept as JSON."""

        async def model(context: StageContext[Baton]) -> StageResult:
            return StageResult(output=Spend(micro_usd=3))

        returned = await answer(model)
        assert StageResult(output=returned.output).output_as(Spend) == Spend(micro_usd=3)

    async def test_another_invalid_record_is_an_exception(self) -> None:
        """Only patches are answers; other errors are the stage's own."""

        async def bad(context: StageContext[Baton]) -> Any:
            return Baton.model_validate({})

        with pytest.raises(ValidationError):
            await answer(bad)

    @pytest.mark.parametrize(
        ("returned", "where"),
        [
            pytest.param({"current_state": ["whole", "half \ud83d"]}, "current_state.1", id="in the patch"),
            pytest.param({"constraints": ["x"], "\udfffx": 1}, "a member", id="in a member's name"),
            pytest.param(StageResult(output={"said": ["half \ud83d"]}), "output.said.0", id="in the output"),
        ],
    )
    async def test_half_a_surrogate_pair_is_a_finding(self, returned: Any, where: str) -> None:
        """JSON cannot represent it, so the answer is rejected and the agent may correct it."""
        result = await answer(returned)

        assert [finding.partition(":")[0] for finding in result.findings] == [where]
        assert "half a surrogate pair" in result.findings[0]
        assert (result.baton_patch, result.output, result.turns) == ({}, None, [])

    async def test_half_a_surrogate_pair_in_turns_is_repaired(self) -> None:
        """A tool or model produced it, so the agent cannot correct it."""
        result = await answer(StageResult(turns=[{"role": "assistant", "content": "done \ude00"}]))

        assert (result.findings, result.turns) == ([], [{"role": "assistant", "content": "done \ufffd"}])

    async def test_half_a_surrogate_pair_in_tool_calls_is_repaired(self) -> None:
        """The call is recorded; a stage does not fail because of a character in it."""

        async def looked(context: StageContext[Baton]) -> Any:
            context.session.tool_result("web.read", "half \ud83d", content="all of it: \ud83d")
            return BatonPatch()

        with worker_parts(WorkerParts(artifacts=MemoryArtifactStore())):
            [event] = (await answer(looked)).events

        assert event["content"] == "half \ufffd"

    async def test_exceptions_reach_temporal(self) -> None:
        """Temporal retries the stage by its retry policy."""
        with pytest.raises(ConnectionError, match="no route"):
            await answer(ConnectionError("no route"))

    async def test_refusals_are_never_retried(self) -> None:
        """Also if the stage's own `never` does not list them."""
        with pytest.raises(ApplicationError, match="TOOL_DENIED") as caught:
            await answer(ToolDeniedError("email.send", "h-1", allowed=[]), retries=Retries(never=("ValueError",)))

        assert caught.value.non_retryable

    async def test_a_single_exception_of_a_task_group_is_unwrapped(self) -> None:
        """The exception, not the group, decides on a retry."""

        async def grouped(context: StageContext[Baton]) -> Any:
            async with asyncio.TaskGroup() as group:
                group.create_task(raising(NotImplementedError("no such agent")))

        with pytest.raises(ApplicationError, match="no such agent") as caught:
            await answer(grouped)

        assert (caught.value.type, caught.value.non_retryable) == ("NotImplementedError", True)

    async def test_a_patch_error_in_a_task_group_becomes_findings(self) -> None:
        """The agent may correct its answer."""

        async def grouped(context: StageContext[Baton]) -> Any:
            async with asyncio.TaskGroup() as group:
                group.create_task(raising(PatchError(["current_state: too long"])))

        assert (await answer(grouped)).findings == ["current_state: too long"]

    async def test_all_exceptions_of_a_task_group_are_reported(self) -> None:
        """Instead of "2 sub-exceptions"; if one is permanent, none is retried."""
        error = ExceptionGroup("two agents", [OSError("disk full"), TypeError("no plan")])

        with pytest.raises(ApplicationError) as caught:
            await answer(error)

        assert caught.value.message == "two agents (2 sub-exceptions): OSError: disk full; TypeError: no plan"
        assert (caught.value.type, caught.value.non_retryable) == ("ExceptionGroup", True)

    async def test_a_message_that_cannot_be_stored_is_escaped(self) -> None:
        """Otherwise only the encoding error would be stored."""
        with pytest.raises(ApplicationError) as caught:
            await answer(ValueError("found half a pair: \ud800"))

        assert caught.value.message == r"found half a pair: \ud800"
        assert (caught.value.type, caught.value.__cause__) == ("ValueError", None)

    @pytest.mark.parametrize("returned", ["text", 7, ["x"], Baton(goal="g")], ids=repr)
    async def test_an_answer_of_another_type_is_not_retried(self, returned: Any) -> None:
        """The message lists the allowed types."""
        with pytest.raises(
            ApplicationError, match="a stage returns a BatonPatch, a dict, a StageResult, a HandoffReport or None"
        ) as caught:
            await answer(returned)

        assert caught.value.non_retryable
        assert caught.value.type == "TypeError"

    async def test_it_gets_the_fields_of_its_baton_type(self) -> None:
        """A stage for plain batons runs in a pipeline with a derived one."""
        result = await plan(sent(baton={"goal": "Add login", "quality_signals": {"craft": 6}}))

        assert result.findings == []

    async def test_it_gets_its_own_baton_type(self) -> None:
        """A stage for a derived baton has its fields."""

        @stage(reads=["quality_signals"], writes=["quality_signals"])
        async def score(baton: ReviewBaton) -> dict[str, Any]:
            return {"quality_signals": {"seen": baton.quality_signals["craft"]}}

        result = await score(sent("score", baton={"goal": "g", "quality_signals": {"craft": 6}}))

        assert score.baton_type is ReviewBaton
        assert result.baton_patch == {"quality_signals": {"seen": 6}}

    async def test_an_undeclared_field_is_a_finding(self) -> None:
        """A stage may write declared fields only (C-3)."""
        result = await answer({"goal": "x", "work_scope": ["src"]}, writes=["work_scope"])

        assert [finding.split(":")[0] for finding in result.findings] == ["goal"]
        assert result.baton_patch == {"goal": "x", "work_scope": ["src"]}


class TestOutputSchema:
    """The schema of a stage's output."""

    @pytest.mark.parametrize(
        ("schemas", "why"),
        [
            pytest.param(None, "this worker has no output schemas", id="no registry"),
            pytest.param(OutputSchemas(), "which this worker does not have: there is no output schema", id="no schema"),
            pytest.param(
                OutputSchemas([OutputSchema("Decision", "1", {"$ref": "#/$defs/none"})]),
                "is not JSON Schema 2020-12: Pointer '/\\$defs/none' does not exist$",
                id="no schema that can be used",
            ),
        ],
    )
    async def test_a_missing_schema_fails_before_any_work(self, schemas: OutputSchemas | None, why: str) -> None:
        """Otherwise an agent would be paid for answers that cannot be accepted (S5-fields-l)."""
        ran: list[str] = []

        @stage(output="Decision@1")
        async def decide(baton: Baton) -> StageResult:
            ran.append(baton.goal)
            return StageResult(output={})

        kinds = (ConfigurationError, PipelineError)
        with worker_parts(WorkerParts(schemas=schemas)), pytest.raises(kinds, match=why):
            await decide(sent("decide"))

        assert ran == []


class TestArtifacts:
    """Artifacts that a stage writes."""

    @staticmethod
    async def write(context: StageContext[Baton]) -> Any:
        """Write an artifact and return a patch without it."""
        await context.artifacts.write("plan", "# Plan", type="plan")
        return {"current_state": ["Planned"]}

    async def test_written_artifacts_are_added_to_the_references(self) -> None:
        """The baton has the reference with its hash, and no content (S1-fields-h, S1-fields-k, S1-design-j)."""
        with worker_parts(WorkerParts(artifacts=MemoryArtifactStore())):
            result = await answer(self.write)

        assert result.baton_patch["artifacts"] == [
            {"id": "plan", "type": "plan", "hash": hashlib.sha256(b"# Plan").hexdigest(), "size": 6}
        ]

    async def test_references_in_the_patch_are_unchanged(self) -> None:
        """A stage that sets the references decides (S1-patch-e)."""

        async def own(context: StageContext[Baton]) -> Any:
            return {**await self.write(context), "artifacts": []}

        with worker_parts(WorkerParts(artifacts=MemoryArtifactStore())):
            assert (await answer(own)).baton_patch["artifacts"] == []

    async def test_a_worker_without_a_store_says_what_to_do(self) -> None:
        """The error names the setting."""
        with pytest.raises(ConfigurationError, match=r"BatonPlugin\(WorkerParts\(artifacts="):
            await answer(self.write)

    async def test_the_selection_is_in_the_stages_result(self) -> None:
        """The history says why each artifact was included or not (S1-cmp-d, S1-cmp-h)."""
        store = MemoryArtifactStore()
        hash = await store.put(b"print()")

        async def choose(context: StageContext[Baton]) -> Any:
            return StageResult(output=list((await context.artifacts.select(100)).values()))

        @stage
        async def chooses(context: StageContext[Baton]) -> StageResult:
            result: StageResult = await choose(context)
            return result

        refs = [{"id": "code", "type": "code", "hash": hash}]
        with worker_parts(WorkerParts(artifacts=store)):
            returned = await chooses(sent("chooses", baton={"goal": "g", "artifacts": refs, "work_scope": ["code"]}))

        assert returned.output == ["print()"]
        assert [(choice.id, choice.included, choice.tokens) for choice in returned.selected] == [("code", True, 2)]


class TestDeclaration:
    """Declarations that `@stage` rejects."""

    @pytest.mark.parametrize("terms", [{"reads": ["desicion_log"]}, {"writes": ["desicion_log"]}], ids=repr)
    def test_an_unknown_field_is_an_error(self, terms: Any) -> None:
        """At import, not in production."""
        with pytest.raises(ValueError, match=r"\['desicion_log'\]: Baton has no such field"):
            stage(**terms)(plan._function)

    def test_a_function_that_is_not_async_is_an_error(self) -> None:
        """The error says what to write."""

        def plain(baton: Baton) -> BatonPatch:
            return BatonPatch()

        with pytest.raises(TypeError, match="write `async def`"):
            stage(plain)  # type: ignore[arg-type]

    def test_a_function_without_a_baton_is_an_error(self) -> None:
        """The annotation says which baton it takes."""

        async def untyped(x) -> BatonPatch:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the mistake itself
            return BatonPatch()

        async def two(baton: Baton, other: int) -> BatonPatch:
            return BatonPatch()

        for function in (untyped, two):
            with pytest.raises(TypeError, match="must take exactly one parameter, annotated as Baton"):
                stage(function)  # type: ignore[arg-type]

    def test_terms_are_in_the_spec(self) -> None:
        """The spec has the declared terms; None is kept where it has a meaning."""
        review: Stage[Any, Any] = stage(
            name="review", reads=["constraints"], decisions=None, heartbeat=None, attempts=1
        )(plan._function)

        assert (review.spec.name, review.spec.reads, review.spec.attempts) == (
            "review",
            frozenset({"constraints"}),
            1,
        )
        assert (review.spec.decisions, review.spec.heartbeat) == (None, None)
        assert plan.spec.decisions == DEFAULT_DECISIONS
