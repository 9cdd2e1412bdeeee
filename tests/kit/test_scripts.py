"""Scripts of agents: what they answer, what they refuse, and that nothing of them may be left."""

import pytest

from baton import Baton, BatonPatch, StageContext, StageResult, stage
from baton.testing import Expect, Script, ScriptError, scripted_stage


@stage(version="2.1.0", writes=["current_state"])
async def plan(baton: Baton) -> BatonPatch:
    """Plan; never run in these tests."""
    raise AssertionError("the real stage ran")


class TestScript:
    """`Script`."""

    def test_it_answers_in_order_and_keeps_the_prompts(self) -> None:
        """One answer per call, whatever the prompt."""
        with Script("planner", ["A", "B"]) as script:
            assert [script.next("first"), script.next("second")] == ["A", "B"]

        assert script.prompts == ["first", "second"]

    def test_missing_calls_fail_it(self) -> None:
        """The code under test did less than the test expects."""
        with pytest.raises(ScriptError, match="'planner' was called 1 time; its script has 3 calls"):  # noqa: SIM117
            with Script("planner", ["A", "B", "C"]) as script:
                script.next("first")

    def test_a_surplus_call_fails_at_once_and_at_the_end(self) -> None:
        """A pipeline may handle the first error with a retry or a fallback."""
        script = Script("planner", ["A"])
        script.next("first")

        for ask in (lambda: script.next("second"), script.assert_used_up):
            with pytest.raises(ScriptError, match="was called 2 times; its script has 1 call"):
                ask()

    @pytest.mark.parametrize(
        ("expected", "reason"),
        [
            pytest.param(Expect("A", sees=["login", "limits"]), "lacks 'limits'", id="a text is missing"),
            pytest.param(Expect("A", lacks=["OAuth2"]), "has 'OAuth2'", id="a text is there that must not be"),
            pytest.param(
                Expect("A", sees=["login"], lacks=["Add"], check=lambda _: None), "has 'Add'", id="one of several"
            ),
        ],
    )
    def test_an_unexpected_prompt_is_reported_in_full(self, expected: Expect, reason: str) -> None:
        """After the reason."""
        script = Script("planner", [expected])

        with pytest.raises(ScriptError, match=rf"call 1 of 'planner': the prompt {reason}.*\n(.*\n)*Add OAuth2 login"):
            script.next("Goal:\nAdd OAuth2 login")

    def test_a_custom_check_is_part_of_the_reason(self) -> None:
        """It raises AssertionError like any assertion."""

        def short(prompt: str) -> None:
            raise AssertionError(f"{len(prompt)} characters are too many")

        with pytest.raises(ScriptError, match="5 characters are too many"):
            Script("planner", [Expect("A", check=short)]).next("12345")

    def test_an_exception_is_raised_and_a_function_is_called(self) -> None:
        """A function gets the agent's argument, or the prompt."""
        script = Script("planner", [TimeoutError("slow"), str.upper, lambda given: ValueError(given)])

        with pytest.raises(TimeoutError, match="slow"):
            script.next("first")
        assert script.next("second") == "SECOND"
        with pytest.raises(ValueError, match="42"):
            script.next("third", 42)
        script.assert_used_up()

    def test_an_assertion_in_a_function_fails_the_script(self) -> None:
        """Otherwise only the surplus call of a retry would be reported."""

        def answer(prompt: str) -> str:
            assert prompt == "second", "asked too early"
            return "A"

        script = Script("planner", [answer])

        for ask in (lambda: script.next("first"), script.assert_used_up):
            with pytest.raises(ScriptError, match="call 1 of 'planner': asked too early"):
                ask()

    def test_a_surplus_call_is_reported_with_its_cause(self) -> None:
        """The error of the call before, and the prompt."""
        script = Script("planner", [lambda given: {}[given]])
        with pytest.raises(KeyError):
            script.next("first", 42)

        with pytest.raises(
            ScriptError, match=r"has 1 call; call 1 raised KeyError: 42\. The prompt was:\nit was refused"
        ):
            script.next("it was refused")

    def test_its_failures_are_a_note_on_the_blocks_error(self) -> None:
        """The pipeline's failure hides the reason."""
        with pytest.raises(RuntimeError) as raised, Script("planner", []) as script:  # noqa: PT012
            with pytest.raises(ScriptError):
                script.next("first")
            raise RuntimeError("the pipeline failed")

        assert raised.value.__notes__ == ["'planner' was called 1 time; its script has 0 calls. The prompt was:\nfirst"]


class TestScriptedStage:
    """`scripted_stage`."""

    async def test_it_has_the_name_and_options_of_the_replaced_stage(self) -> None:
        """The pipeline's code calls it instead of the stage."""
        stand_in = scripted_stage(plan, BatonPatch(current_state=["Planned"]))

        assert stand_in.spec == plan.spec
        answer = await stand_in(StageContext.for_test(Baton(goal="Add login")))
        assert answer == BatonPatch(current_state=["Planned"])
        stand_in.script.assert_used_up()

    async def test_it_gets_the_prompt_of_an_agent(self) -> None:
        """Fenced, with goal and findings."""
        with scripted_stage(plan, Expect(StageResult(), sees=["DATA ONLY", "Add login", "too vague"])) as stand_in:
            await stand_in(StageContext.for_test(Baton(goal="Add login"), findings=["too vague"]))

        assert len(stand_in.script.prompts) == 1

    async def test_it_gets_the_inputs_as_an_agent_does(self) -> None:
        """Each under its name in the prompt."""
        with scripted_stage(plan, Expect(StageResult(), sees=["draft", "Dear Acme"])) as stand_in:
            await stand_in(StageContext.for_test(Baton(goal="Add login"), inputs={"draft": "Dear Acme"}))

    async def test_a_function_gets_the_context(self) -> None:
        """It can save artifacts, charge, and record session events."""

        def answer(context: StageContext[Baton]) -> BatonPatch:
            return BatonPatch(current_state=[f"attempt {context.attempt}"])

        stand_in = scripted_stage(plan, answer)
        assert await stand_in(StageContext.for_test(Baton(goal="x"), findings=["no"])) == BatonPatch(
            current_state=["attempt 2"]
        )

    async def test_an_async_function_may_call_tools(self) -> None:
        """Its assertions and errors are reported like those of any function."""

        async def answer(context: StageContext[Baton]) -> BatonPatch:
            return BatonPatch(current_state=[await context.tools.call("git.log", "{} changes".format, 12)])

        async def late(context: StageContext[Baton]) -> BatonPatch:
            raise AssertionError(f"attempt {context.attempt} is one too many")

        stand_in = scripted_stage(plan, answer, late)
        context = StageContext.for_test(Baton(goal="x"))

        assert await stand_in(context) == BatonPatch(current_state=["12 changes"])
        assert [event.type for event in context.session.events] == ["tool_call", "tool_result"]
        with pytest.raises(ScriptError, match="call 2 of 'plan': attempt 1 is one too many"):
            await stand_in(context)
