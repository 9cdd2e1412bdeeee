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
        """One answer for each call, whatever was asked."""
        with Script("planner", ["A", "B"]) as script:
            assert [script.next("first"), script.next("second")] == ["A", "B"]

        assert script.prompts == ["first", "second"]

    def test_calls_that_did_not_come_fail_it(self) -> None:
        """A script that was not used up is a test that did not see what it was written for."""
        with pytest.raises(ScriptError, match="'planner' was called 1 time; its script has 3 calls"):  # noqa: SIM117
            with Script("planner", ["A", "B", "C"]) as script:
                script.next("first")

    def test_one_call_too_many_fails_at_once_and_in_the_end(self) -> None:
        """In a pipeline the first error may be swallowed by a retry or a fallback; the end tells it again."""
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
    def test_another_prompt_than_expected_is_told_with_the_prompt(self, expected: Expect, reason: str) -> None:
        """The reason comes first, then all that was asked."""
        script = Script("planner", [expected])

        with pytest.raises(ScriptError, match=rf"call 1 of 'planner': the prompt {reason}.*\n(.*\n)*Add OAuth2 login"):
            script.next("Goal:\nAdd OAuth2 login")

    def test_a_check_of_ones_own_is_part_of_the_reason(self) -> None:
        """It raises AssertionError as every assertion does."""

        def short(prompt: str) -> None:
            raise AssertionError(f"{len(prompt)} characters are too many")

        with pytest.raises(ScriptError, match="5 characters are too many"):
            Script("planner", [Expect("A", check=short)]).next("12345")

    def test_an_exception_is_raised_and_a_function_is_asked(self) -> None:
        """A function gets whatever the agent was given, or the prompt."""
        script = Script("planner", [TimeoutError("slow"), str.upper, lambda given: ValueError(given)])

        with pytest.raises(TimeoutError, match="slow"):
            script.next("first")
        assert script.next("second") == "SECOND"
        with pytest.raises(ValueError, match="42"):
            script.next("third", 42)
        script.assert_used_up()

    def test_an_assertion_in_a_function_fails_the_script(self) -> None:
        """A retry would ask once more than there are calls, and that alone would be told."""

        def answer(prompt: str) -> str:
            assert prompt == "second", "asked too early"
            return "A"

        script = Script("planner", [answer])

        for ask in (lambda: script.next("first"), script.assert_used_up):
            with pytest.raises(ScriptError, match="call 1 of 'planner': asked too early"):
                ask()

    def test_a_call_too_many_is_told_with_what_led_to_it(self) -> None:
        """What the call before raised, and what stands in the prompt: why an answer was refused."""
        script = Script("planner", [lambda given: {}[given]])
        with pytest.raises(KeyError):
            script.next("first", 42)

        with pytest.raises(
            ScriptError, match=r"has 1 call; call 1 raised KeyError: 42\. The prompt was:\nit was refused"
        ):
            script.next("it was refused")

    def test_what_it_knows_is_said_with_the_error_of_the_block(self) -> None:
        """The pipeline's failure hides the reason; the note has it."""
        with pytest.raises(RuntimeError) as raised, Script("planner", []) as script:  # noqa: PT012
            with pytest.raises(ScriptError):
                script.next("first")
            raise RuntimeError("the pipeline failed")

        assert raised.value.__notes__ == ["'planner' was called 1 time; its script has 0 calls. The prompt was:\nfirst"]


class TestScriptedStage:
    """`scripted_stage`."""

    async def test_it_has_the_name_and_terms_of_the_stage_it_stands_for(self) -> None:
        """The pipeline's code finds it where the stage was."""
        stand_in = scripted_stage(plan, BatonPatch(current_state=["Planned"]))

        assert stand_in.spec == plan.spec
        answer = await stand_in(StageContext.for_test(Baton(goal="Add login")))
        assert answer == BatonPatch(current_state=["Planned"])
        stand_in.script.assert_used_up()

    async def test_it_is_shown_what_an_agent_would_be_shown(self) -> None:
        """The fenced prompt, goal and findings in it."""
        with scripted_stage(plan, Expect(StageResult(), sees=["DATA ONLY", "Add login", "too vague"])) as stand_in:
            await stand_in(StageContext.for_test(Baton(goal="Add login"), findings=["too vague"]))

        assert len(stand_in.script.prompts) == 1

    async def test_it_is_shown_the_inputs_as_an_agent_would_be(self) -> None:
        """What a call hands on stands in the prompt under its name."""
        with scripted_stage(plan, Expect(StageResult(), sees=["draft", "Dear Acme"])) as stand_in:
            await stand_in(StageContext.for_test(Baton(goal="Add login"), inputs={"draft": "Dear Acme"}))

    async def test_a_function_gets_the_context(self) -> None:
        """So a scripted stage can do what a real one does: artifacts, charges, session events."""

        def answer(context: StageContext[Baton]) -> BatonPatch:
            return BatonPatch(current_state=[f"attempt {context.attempt}"])

        stand_in = scripted_stage(plan, answer)
        assert await stand_in(StageContext.for_test(Baton(goal="x"), findings=["no"])) == BatonPatch(
            current_state=["attempt 2"]
        )

    async def test_an_async_function_may_call_tools(self) -> None:
        """As a real stage would; what it asserts and what it raises is told as of any function."""

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
