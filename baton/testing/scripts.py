"""Scripts: what agents and stages of a test answer, call by call, and whether all calls came as expected.

A script that is asked for more than it has, or with another prompt than it expects, ends the run at once with the
reason, and tells it again when the test ends: in a pipeline the first one would be a failure among others.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from temporalio import activity
from temporalio.exceptions import ApplicationError

from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentWork
from baton.core.baton import BatonPatch
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import Stage
from baton.wire.text import quantity


def not_again(error: Exception) -> Exception:
    """Return what to raise where another run would do no better: in an activity what Temporal does not try again."""
    if activity.in_activity():
        return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)
    return error


class ScriptError(AssertionError):
    """A script was not followed: the prompt was another than expected, or the calls were more or fewer."""


@dataclass(frozen=True)
class Expect:
    """One call of a scripted agent: what it answers, and what it must have been asked.

    Attributes:
        answer: What the call answers: a value; an exception, which is raised; or a function, async or not, of
            whatever the agent was given (a `StageContext`, an `AgentWork`) that returns either. An assertion in it
            that does not hold fails the script.
        sees: Texts that the prompt must have.
        lacks: Texts that it must not have.
        check: A check of the whole prompt, which raises AssertionError.

    Example:
        >>> Expect({"current_state": ["Planned"]}, sees=["Add login"]).refusal("## Baton: Add logout")
        "the prompt lacks 'Add login'"
    """

    answer: Any = None
    sees: tuple[str, ...] | list[str] = ()
    lacks: tuple[str, ...] | list[str] = ()
    check: Callable[[str], None] | None = None

    def refusal(self, prompt: str) -> str | None:
        """Return what is wrong with a prompt, or None."""
        faults = [f"the prompt lacks {text!r}" for text in self.sees if text not in prompt]
        faults += [f"the prompt has {text!r}" for text in self.lacks if text in prompt]
        if not faults and self.check is not None:
            try:
                self.check(prompt)
            except AssertionError as error:
                faults.append(str(error) or "its check failed")
        return "; ".join(faults) or None


class Script:
    """A list of calls to come, in order; use it as a context manager, or call `assert_used_up` at the end.

    Attributes:
        name: Whose script it is, for messages.
        prompts: The prompts so far.
        failures: What went wrong so far.

    Example:
        >>> with Script("planner", ["plan A", Expect("plan B", sees=["too slow"])]) as script:
        ...     script.next("Add login"), script.next("plan A was too slow")
        ('plan A', 'plan B')
    """

    def __init__(self, name: str, calls: Iterable[Any]) -> None:
        """Set up a script.

        Args:
            name: Whose it is.
            calls: The calls; what is no `Expect` is an answer to any prompt.
        """
        self.name = name
        self.prompts: list[str] = []
        self.failures: list[str] = []
        self._raised = ""
        self._calls = [one if isinstance(one, Expect) else Expect(one) for one in calls]

    @property
    def left(self) -> int:
        """How many calls have not come yet."""
        return max(0, len(self._calls) - len(self.prompts))

    def next(self, prompt: str, given: object = None) -> Any:
        """Return the answer to the next call, or raise it.

        Args:
            prompt: What the agent is asked.
            given: What an answer that is a function is called with; the prompt by default.

        Raises:
            ScriptError: The script has no next call, or it expects another prompt. In an activity it is an
                `ApplicationError` that is not retried.
        """
        number = len(self.prompts)
        self.prompts.append(prompt)
        if number >= len(self._calls):
            raise self._failed(f"{self._called}{self._raised}. The prompt was:\n{prompt}")
        expected = self._calls[number]
        if refusal := expected.refusal(prompt):
            raise self._failed(f"call {number + 1} of {self.name!r}: {refusal}. The prompt was:\n{prompt}")
        answer = expected.answer
        if callable(answer) and not isinstance(answer, type):
            with self._asked(number + 1):
                answer = answer(prompt if given is None else given)
        return self._answered(answer, number + 1)

    async def answer(self, prompt: str, given: object = None) -> Any:
        """Return the answer to the next call as `next` does, that of an async function too, or raise it."""
        answer = self.next(prompt, given)
        number = len(self.prompts)
        if not inspect.isawaitable(answer):
            return answer
        with self._asked(number):
            answer = await answer
        return self._answered(answer, number)

    @contextmanager
    def _asked(self, number: int) -> Iterator[None]:
        """Fail for an assertion of a function that does not hold, and keep what else it raises."""
        try:
            yield
        except AssertionError as error:
            raise self._failed(f"call {number} of {self.name!r}: {error or 'its assertion failed'}") from error
        except Exception as error:
            self._raised = f"; call {number} raised {type(error).__name__}: {error}"
            raise

    def _answered(self, answer: Any, number: int) -> Any:
        """Return an answer; raise it if it is an exception, and keep that for a call too many, which may follow."""
        if isinstance(answer, BaseException):
            self._raised = f"; call {number} raised {type(answer).__name__}: {answer}"
            raise answer
        return answer

    @property
    def _called(self) -> str:
        """How often it was called, and how often it expects to be."""
        called, has = quantity(len(self.prompts), "time"), quantity(len(self._calls), "call")
        return f"{self.name!r} was called {called}; its script has {has}"

    def fault(self) -> str | None:
        """Return what is wrong with the calls so far if no more come, or None."""
        faults = list(self.failures)
        if self.left:
            faults.append(self._called)
        return "\n".join(faults) or None

    def assert_used_up(self) -> None:
        """Assert that every call came, and as expected.

        Raises:
            ScriptError: Some did not.
        """
        if (fault := self.fault()) is not None:
            raise ScriptError(fault)

    def _failed(self, reason: str) -> Exception:
        """Note a failure, and return what to raise."""
        self.failures.append(reason)
        return not_again(ScriptError(reason))

    def __enter__(self) -> Self:
        """Return the script."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Assert that it was used up; if the block raised, what the script knows of it is said with that."""
        if error is None:
            self.assert_used_up()
        elif self.failures:
            error.add_note("\n".join(self.failures))


class Scripted:
    """Anyone who answers by a script: at the end of a `with` block it has been asked for all of it."""

    script: Script

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Assert that its script was used up; see `Script`."""
        self.script.__exit__(kind, error, trace)


class ScriptedStage(Scripted, Stage[StageContext[Any], Any]):
    """A stage of another's name and terms, which answers by a script; `scripted_stage` makes it.

    Attributes:
        script: The script; its `prompts` are what the stage's agent would have been asked.
    """

    def __init__(self, stage: Stage[Any, Any], calls: Iterable[Any]) -> None:
        script = Script(stage.spec.name, calls)

        async def answer(context: StageContext[Any]) -> Any:
            return await script.answer(await context.prompt_with_inputs(), context)

        answer.__annotations__["context"] = StageContext[stage.baton_type]  # type: ignore[name-defined]  # made here
        super().__init__(answer, stage.spec)
        self.script = script


def scripted_stage(stage: Stage[Any, Any], *calls: Any) -> ScriptedStage:
    """Return a stand-in for a stage, of its name and terms, that answers by a script.

    The pipeline's code stays as it is: give the stand-in to the worker in the stage's place. Its prompt is rendered
    at every call, as for an agent.

    Args:
        stage: The stage that it stands for.
        calls: Its answers in order, each a patch, a `StageResult`, an exception, a function of the `StageContext`,
            async or not, or an `Expect` with one of these.

    Example:
        ```python
        with scripted_stage(plan, Expect(BatonPatch(current_state=["Planned"]), sees=["Add OAuth2"])) as planner:
            async with baton_worker([Delivery], [planner, implement]) as worker:
                await run_pipeline(worker, Delivery.run, PipelineInput(goal="Add OAuth2 login"))
        ```
    """
    return ScriptedStage(stage, calls)


class ScriptedAgent(Scripted):
    """An agent that answers by a script, and knows whether it was asked for all of it.

    Its calls are answers in order: an `AgentAnswer`; a patch; a text, which is read as a model's last word; an
    exception; a function of the `AgentWork`, async if it calls its tools; or an `Expect` with one of these. What is
    expected of the prompt is searched in the instructions and the whole user turn.

    Args:
        name: The agent's name.
        calls: Its calls.

    Attributes:
        script: The script, with the prompts so far.

    Example:
        >>> import asyncio
        >>> from baton.pipelines.activity_context import StageContext
        >>> from baton.agents.port import agent_stage
        >>> from baton.core.baton import Baton
        >>> from baton.testing import Expect
        >>> with ScriptedAgent("plan", Expect({"current_state": ["Planned"]}, sees=["Add login"])) as agent:
        ...     asyncio.run(agent_stage(agent)(StageContext.for_test(Baton(goal="Add login")))).baton_patch
        {'current_state': ['Planned']}
    """

    def __init__(self, name: str, *calls: Any) -> None:
        self.name = name
        self.script = Script(name, calls)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer the next call.

        Raises:
            ScriptError: The script has no such call; see `Script.next`.
        """
        answer = await self.script.answer(f"{work.instructions}\n{work.user_turn()}", work)
        if isinstance(answer, AgentAnswer):
            return answer
        if isinstance(answer, str):
            return work.read(answer)
        if answer is None or isinstance(answer, BatonPatch | Mapping):
            return AgentAnswer(patch=answer)
        raise TypeError(
            f"the script of {self.name!r} answers with {type(answer).__name__}; an agent answers with an AgentAnswer, "
            "a patch, a text or nothing"
        )

    def assert_used_up(self) -> None:
        """Assert that every call came, and as expected."""
        self.script.assert_used_up()


class Scripts:
    """Makes scripted agents and stages, and knows whether all their calls came; the fixture `baton_scripts`.

    Example:
        >>> scripts = Scripts()
        >>> _ = scripts.agent("plan", {"current_state": ["Planned"]})
        >>> scripts.assert_used_up()
        Traceback (most recent call last):
        ...
        baton.testing.scripts.ScriptError: 'plan' was called 0 times; its script has 1 call
    """

    def __init__(self) -> None:
        self._made: list[Script] = []

    def agent(self, name: str, *calls: Any) -> ScriptedAgent:
        """Return an agent that answers by a script; see `ScriptedAgent`."""
        made = ScriptedAgent(name, *calls)
        self._made.append(made.script)
        return made

    def stage(self, stage: Stage[Any, Any], *calls: Any) -> ScriptedStage:
        """Return a stand-in for a stage that answers by a script; see `scripted_stage`."""
        made = scripted_stage(stage, *calls)
        self._made.append(made.script)
        return made

    @property
    def prompts(self) -> dict[str, list[str]]:
        """What each of them was shown so far."""
        shown: dict[str, list[str]] = {}
        for one in self._made:
            shown.setdefault(one.name, []).extend(one.prompts)
        return shown

    def assert_used_up(self) -> None:
        """Assert that every call of every script came, and as expected.

        Raises:
            ScriptError: Some did not; the message has all mistakes.
        """
        faults = [fault for one in self._made if (fault := one.fault()) is not None]
        if faults:
            raise ScriptError("\n".join(faults))
