"""The port: the work of an agent, and its answer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import agents
import pydantic_ai
import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from baton import Baton, BatonPatch, Spend, StageContext
from baton.agents import AgentAnswer, AgentLimits, AgentTool, AgentWork, AnswerForm, agent_stage
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest
from baton.contract.records import EventType, ToolDeniedError
from baton.core.verdict import Code
from baton.errors import AgentError, PatchError
from tests.agents.material import BATON, PATCH, context, lookup

CRM = AgentTool.of(lookup, name="crm.lookup")
MAIL = AgentTool.of(lambda: None, name="email.send", description="Send a mail.")


@dataclass
class Scripted:
    """A scripted agent that keeps its work."""

    do: Callable[[AgentWork], AgentAnswer] = lambda work: AgentAnswer(patch=PATCH)
    name: str = "plan"
    works: list[AgentWork] = field(default_factory=list)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer as scripted."""
        self.works.append(work)
        return self.do(work)


class TestWork:
    """The work that `agent_stage` gives its agent."""

    async def test_a_tool_that_the_contract_does_not_allow_is_not_given(self) -> None:
        """The agent sees only the tools of its contract (S5-fields-k)."""
        agent = Scripted()
        stage = agent_stage(agent, tools=[CRM, MAIL], notes=False)
        await stage(context())

        assert [tool.name for tool in agent.works[0].tools] == ["crm.lookup"]
        assert agent.works[0].withheld == {"email.send"}
        assert stage.spec.tools == {"crm.lookup", "email.send"}

    @pytest.mark.parametrize("name", ["email.send", "email_send"])
    async def test_calling_a_withheld_one_all_the_same_is_denied(self, name: str) -> None:
        """Whether the model was offered it or not; both spellings of the name count (S5-fields-k)."""

        def call(work: AgentWork) -> AgentAnswer:
            work.refuse_forbidden(["crm_lookup", "unheard_of"])
            work.refuse_forbidden([name])
            return AgentAnswer()

        with pytest.raises(ToolDeniedError, match=r"'email\.send'"):
            await agent_stage(Scripted(call), tools=[CRM, MAIL])(context())

    async def test_it_acts_under_the_handoff(self) -> None:
        """Every adapter sends it with its requests (S5-fields-a)."""
        agent = Scripted()
        await agent_stage(agent)(context())

        assert agent.works[0].handoff_id == agent.works[0].context.handoff_id != ""

    async def test_limits_are_completed_by_the_stages_terms(self) -> None:
        """The reservation limits the cost, and the time limit is a little below the stage's timeout."""
        agent = Scripted()
        terms = {"timeout": timedelta(seconds=100), "reserve_micro_usd": 5_000}
        await agent_stage(agent, limits=AgentLimits(tokens=9), **terms)(context())  # type: ignore[arg-type]

        assert agent.works[0].limits == AgentLimits(requests=30, tokens=9, micro_usd=5_000, seconds=95.0)

    async def test_a_second_attempt_is_told_why(self) -> None:
        """The findings are in the prompt, and separately for frameworks that need them."""
        agent = Scripted()
        await agent_stage(agent)(context(findings=["goal: may not be cleared"]))

        assert "goal: may not be cleared" in agent.works[0].user_turn()
        assert agent.works[0].findings == ["goal: may not be cleared"]


class TestAnswer:
    """The results of an answer."""

    async def test_a_log_that_it_sends_back_is_an_echo(self) -> None:
        """A model repeats what it was shown; its new decision is the answer."""
        answer = AgentAnswer(patch={"decision_log": ["Use JWT", "Failed", "Passed"]})
        shown = StageContext.for_test(Baton(goal="g", decision_log=["Plan", "Use JWT", "Failed"]))
        result = await agent_stage(Scripted(lambda work: answer))(shown)

        assert result.baton_patch == {"decision_log": ["Passed"]}

    async def test_a_patch_an_output_and_a_cost(self) -> None:
        """The stage returns the agent's answer."""
        answer = AgentAnswer(patch=BatonPatch(acceptance=["pytest"]), output={"passed": 3}, spend=Spend(micro_usd=7))
        result = await agent_stage(Scripted(lambda work: answer))(context())

        assert result.baton_patch == {"acceptance": ["pytest"]}
        assert (result.output, result.spend) == ({"passed": 3}, Spend(micro_usd=7))

    async def test_what_a_framework_returned_goes_on_as_json(self) -> None:
        """Enums, times and amounts have a JSON form."""
        output: Any = {"verdict": Code.BUDGET_EXHAUSTED, "at": datetime(2026, 11, 1, tzinfo=UTC), "usd": Decimal("0.5")}
        agent = Scripted(lambda work: AgentAnswer(patch={"current_state": ("Checked",)}, output=output))
        result = await agent_stage(agent)(context())

        assert result.baton_patch == {"current_state": ["Checked"]}
        assert result.output == {"verdict": "BUDGET_EXHAUSTED", "at": "2026-11-01T00:00:00Z", "usd": "0.5"}

    async def test_what_has_no_form_in_json_is_a_finding_and_is_paid(self) -> None:
        """The agent gets the finding and answers again."""
        output: Any = {"client": object()}
        agent = Scripted(lambda work: AgentAnswer(output=output, spend=Spend(micro_usd=700)))
        stage_context = context()

        with pytest.raises(PatchError, match="output cannot be written as JSON"):
            await agent_stage(agent)(stage_context)
        assert stage_context.charged == Spend(micro_usd=700)

    async def test_half_a_character_in_a_name_is_the_models_to_mend(self) -> None:
        """As in a text."""
        agent = Scripted(lambda work: AgentAnswer(patch={"\ud800": 1}))

        assert (await agent_stage(agent)(context())).baton_patch == {"\ud800": 1}

    async def test_a_report_goes_on_as_markdown(self) -> None:
        """The stage parses it, and findings lead to another attempt."""
        agent = Scripted(lambda work: work.read("## Agent Handoff Report\n…"))
        result = await agent_stage(agent, answers=AnswerForm.REPORT)(context())

        assert result.report == "## Agent Handoff Report\n…"
        assert agent.works[0].schema is None

    async def test_what_a_model_says_is_on_record_and_is_no_fact(self) -> None:
        """Its output is in the history as the stage's, so the record counts its tokens and does not repeat it."""
        answer = AgentAnswer(patch={}, output={"risk": "low"}, said=("The customer is an enterprise.",))
        stage_context = context()
        await agent_stage(Scripted(lambda work: answer))(stage_context)

        assert [(event.type, event.content) for event in stage_context.session.events] == [
            (EventType.ASSISTANT_MESSAGE, "The customer is an enterprise."),
            (EventType.ASSISTANT_MESSAGE, ""),
        ]
        assert all(event.tokens for event in stage_context.session.events)
        request = ContractRequest("h-2", "review", "Review the plan", "t-1", datetime.now(UTC), frozenset())
        contract = compile_contract(stage_context.session.events, request).contract
        assert (contract.facts, contract.excluded_counts) == ([], {"type:assistant_message": 2})

    async def test_a_derived_baton_is_handed_to_the_stage(self) -> None:
        """The stage is annotated with the pipeline's type."""

        class Wider(Baton):
            notes: str = ""

        assert agent_stage(Scripted(), baton_type=Wider).baton_type is Wider


class TestFailure:
    """The results of an agent's error."""

    @pytest.mark.parametrize("permanent", [True, False])
    async def test_temporal_is_told_whether_another_run_may_help(self, permanent: bool) -> None:
        """Temporal retries, the provider may choose the delay, and the cost is reported."""

        def fail(work: AgentWork) -> AgentAnswer:
            work.charge(Spend(micro_usd=40))
            try:
                raise ValueError("sk-secret")
            except ValueError as error:
                raise AgentError("the provider answered 429", permanent=permanent, retry_after=2) from error

        stage_context = context()
        with pytest.raises(ApplicationError) as raised:
            await agent_stage(Scripted(fail))(stage_context)

        error = raised.value
        assert (error.type, error.non_retryable, error.next_retry_delay) == (
            "AgentError",
            permanent,
            timedelta(seconds=2),
        )
        assert list(error.details) == stage_context.cost_details() != []
        assert error.__cause__ is None
        assert error.__suppress_context__

    @pytest.mark.parametrize(
        ("run", "retry_after", "waits"),
        [
            pytest.param(1, 2.0, timedelta(seconds=2), id="longer than the first pause"),
            pytest.param(4, 2.0, None, id="shorter than the fourth"),
            pytest.param(4, 9.0, timedelta(seconds=9), id="longer than the fourth"),
            pytest.param(5_000, 50.0, None, id="shorter than the longest"),
        ],
    )
    async def test_a_provider_may_only_have_us_wait_longer(
        self, run: int, retry_after: float, waits: timedelta | None
    ) -> None:
        """The stage's own delays grow even if the provider always asks for the same delay."""

        def fail(work: AgentWork) -> AgentAnswer:
            raise AgentError("the provider answered 429", retry_after=retry_after)

        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=run)
        with pytest.raises(ApplicationError) as raised:
            await environment.run(agent_stage(Scripted(fail)), context())

        assert raised.value.next_retry_delay == waits

    async def test_an_overload_is_waited_for_with_growing_pauses(self) -> None:
        """Seven attempts cover about half an hour; other failures are retried within two minutes."""

        def fail(work: AgentWork) -> AgentAnswer:
            raise AgentError("the provider answered 503", waits=True)

        pauses = []
        stage = agent_stage(Scripted(fail))
        for run in range(1, stage.spec.retries.attempts):
            environment = ActivityEnvironment()
            environment.info = replace(environment.info, attempt=run)
            with pytest.raises(ApplicationError) as raised:
                await environment.run(stage, context())
            assert raised.value.category is ApplicationErrorCategory.BENIGN
            pauses.append((raised.value.next_retry_delay or timedelta()).total_seconds())

        assert pauses == sorted(pauses)
        assert 1_000 < sum(pauses) < 2_000


class TestAgentStage:
    """`agent_stage`."""

    def test_its_terms_are_those_of_a_stage(self) -> None:
        """Name, writes, output and the other options."""
        stage = agent_stage(Scripted(), name="design", writes=["decision_log"], output="Plan@1.0", forbids=["rm"])

        assert (stage.spec.name, stage.spec.writes) == ("design", frozenset({"decision_log"}))
        assert (stage.spec.output, stage.spec.forbids) == ("Plan@1.0", frozenset({"rm"}))

    def test_a_field_that_the_baton_does_not_have_is_refused(self) -> None:
        """Immediately, where it was written."""
        with pytest.raises(ValueError, match="no such field"):
            agent_stage(Scripted(), writes=["desicion_log"])

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            pytest.param(pydantic_ai.Agent(name="plan"), "wrap it in .*PydanticAgent", id="Pydantic AI"),
            pytest.param(agents.Agent(name="plan"), "wrap it in .*OpenAIAgent", id="the OpenAI Agents SDK"),
            pytest.param(lookup, r"has a name, a str, and an async run\(work\); found function", id="a function"),
        ],
    )
    def test_an_object_that_is_not_an_agent_is_refused_with_a_remedy(self, value: Any, message: str) -> None:
        """Where it was written, instead of by an error of the framework."""
        with pytest.raises(TypeError, match=message):
            agent_stage(value)

    def test_a_teams_own_package_may_have_the_name_of_a_framework(self) -> None:
        """Many projects keep their agents in `agents`, like the Agents SDK."""
        own = type("Own", (Scripted,), {"__module__": "agents.planning"})

        assert agent_stage(own()).spec.name == Scripted().name

    def test_a_tool_named_like_one_that_the_agent_brings_is_refused(self) -> None:
        """Frameworks would call the wrong tool or refuse every run, because both have the same name for a model."""

        @dataclass
        class Equipped(Scripted):
            tool_names: frozenset[str] = frozenset({"crm_lookup", "files"})

        with pytest.raises(ValueError, match=r"'crm.lookup' .* 'crm_lookup', which agent 'plan' brings, are both"):
            agent_stage(Equipped(), tools=[CRM])
        assert agent_stage(Equipped(), tools=[MAIL]).spec.tools == {"crm_lookup", "files", "email.send"}

    async def test_without_a_contract_its_own_tools_are_allowed(self) -> None:
        """The stage's declaration is the limit then."""
        agent = Scripted()
        await agent_stage(agent, tools=[CRM], notes=False)(StageContext.for_test(BATON))

        assert [tool.name for tool in agent.works[0].tools] == ["crm.lookup"]

    async def test_what_is_no_answer_is_refused_for_good(self) -> None:
        """Its author's code is at fault: another run would be charged and return the same."""

        class Careless(Scripted):
            async def run(self, work: AgentWork) -> Any:
                return {"current_state": ["Done"]}

        with pytest.raises(ApplicationError, match="returned dict; return an AgentAnswer") as raised:
            await agent_stage(Careless())(StageContext.for_test(BATON))
        assert raised.value.non_retryable
