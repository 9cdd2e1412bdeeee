"""Scripts: the answers of a test's agents and stages, call by call, and the calls that they expect.

An unexpected call or prompt fails the run at once, and is reported again when the test ends, since a pipeline may
hide the first failure.
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


def non_retryable(error: Exception) -> Exception:
    """Return the error, in an activity as one that Temporal does not retry."""
    if activity.in_activity():
        return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)
    return error


class ScriptError(AssertionError):
    """A script was not followed: another prompt than expected, or too many or too few calls."""


@dataclass(frozen=True)
class Expect:
    """One expected call of a scripted agent, and its answer.

    Attributes:
        answer: The answer: a value; an exception, which is raised; or a function of the `StageContext` or `AgentWork`,
            async or not, that returns either. A failed assertion in it fails the script.
        sees: Texts that the prompt must contain.
        lacks: Texts that the prompt must not contain.
        check: A function that raises AssertionError for a wrong prompt.

    Example:
        >>> Expect({"current_state": ["Planned"]}, sees=["Add login"]).refusal("## Baton: Add logout")
        "the prompt lacks 'Add login'"
    """

    answer: Any = None
    sees: tuple[str, ...] | list[str] = ()
    lacks: tuple[str, ...] | list[str] = ()
    check: Callable[[str], None] | None = None

    def refusal(self, prompt: str) -> str | None:
        """Return why a prompt is not the expected one, or None."""
        faults = [f"the prompt lacks {text!r}" for text in self.sees if text not in prompt]
        faults += [f"the prompt has {text!r}" for text in self.lacks if text in prompt]
        if not faults and self.check is not None:
            try:
                self.check(prompt)
            except AssertionError as error:
                faults.append(str(error) or "its check failed")
        return "; ".join(faults) or None


class Script:
    """The expected calls of an agent, in order. Use it as a context manager, or call `assert_used_up` at the end.

    Attributes:
        name: The agent's or stage's name, for messages.
        prompts: The prompts so far.
        failures: The failures so far.

    Example:
        >>> with Script("planner", ["plan A", Expect("plan B", sees=["too slow"])]) as script:
        ...     script.next("Add login"), script.next("plan A was too slow")
        ('plan A', 'plan B')
    """

    def __init__(self, name: str, calls: Iterable[Any]) -> None:
        """Create a script.

        Args:
            name: The agent's or stage's name.
            calls: The calls: each an `Expect`, or an answer to any prompt.
        """
        self.name = name
        self.prompts: list[str] = []
        self.failures: list[str] = []
        self._last_error = ""
        self._calls = [call if isinstance(call, Expect) else Expect(call) for call in calls]

    @property
    def left(self) -> int:
        """The number of calls that have not come yet."""
        return max(0, len(self._calls) - len(self.prompts))

    def next(self, prompt: str, argument: object = None) -> Any:
        """Return the answer to the next call, or raise it.

        Args:
            prompt: The agent's prompt.
            argument: The argument of an answer that is a function; the prompt by default.

        Raises:
            ScriptError: The script has no next call, or expects another prompt. In an activity it is an
                `ApplicationError` that is not retried.
        """
        number = len(self.prompts)
        self.prompts.append(prompt)
        if number >= len(self._calls):
            raise self._fail(f"{self._call_count}{self._last_error}. The prompt was:\n{prompt}")
        expected = self._calls[number]
        if refusal := expected.refusal(prompt):
            raise self._fail(f"call {number + 1} of {self.name!r}: {refusal}. The prompt was:\n{prompt}")
        answer = expected.answer
        if callable(answer) and not isinstance(answer, type):
            with self._report_errors(number + 1):
                answer = answer(prompt if argument is None else argument)
        return self._return_or_raise(answer, number + 1)

    async def answer(self, prompt: str, argument: object = None) -> Any:
        """Like `next`, but await an answer that is an async function."""
        answer = self.next(prompt, argument)
        number = len(self.prompts)
        if not inspect.isawaitable(answer):
            return answer
        with self._report_errors(number):
            answer = await answer
        return self._return_or_raise(answer, number)

    @contextmanager
    def _report_errors(self, number: int) -> Iterator[None]:
        """Turn a failed assertion in an answer's function into a failure; remember other errors."""
        try:
            yield
        except AssertionError as error:
            raise self._fail(f"call {number} of {self.name!r}: {error or 'its assertion failed'}") from error
        except Exception as error:
            self._last_error = f"; call {number} raised {type(error).__name__}: {error}"
            raise

    def _return_or_raise(self, answer: Any, number: int) -> Any:
        """Return the answer, or raise and remember it if it is an exception."""
        if isinstance(answer, BaseException):
            self._last_error = f"; call {number} raised {type(answer).__name__}: {answer}"
            raise answer
        return answer

    @property
    def _call_count(self) -> str:
        """The number of calls so far and of expected calls, as a sentence."""
        calls, expected = quantity(len(self.prompts), "time"), quantity(len(self._calls), "call")
        return f"{self.name!r} was called {calls}; its script has {expected}"

    def fault(self) -> str | None:
        """Return the failures, assuming that no more calls come, or None."""
        faults = list(self.failures)
        if self.left:
            faults.append(self._call_count)
        return "\n".join(faults) or None

    def assert_used_up(self) -> None:
        """Assert that every call came, and as expected.

        Raises:
            ScriptError: Some did not.
        """
        if (fault := self.fault()) is not None:
            raise ScriptError(fault)

    def _fail(self, reason: str) -> Exception:
        """Record a failure and return the error to raise."""
        self.failures.append(reason)
        return non_retryable(ScriptError(reason))

    def __enter__(self) -> Self:
        """Return the script."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Assert that the script was used up; add its failures as a note to an error of the block."""
        if error is None:
            self.assert_used_up()
        elif self.failures:
            error.add_note("\n".join(self.failures))


class Scripted:
    """Base class for what answers from a script, as a context manager that asserts that the script was used up."""

    script: Script

    def __enter__(self) -> Self:
        """Return the agent or stage."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Assert that its script was used up; see `Script`."""
        self.script.__exit__(kind, error, trace)


class ScriptedStage(Scripted, Stage[StageContext[Any], Any]):
    """A stand-in for a stage that answers from a script; see `scripted_stage`.

    Attributes:
        script: The script; its `prompts` are those that the stage's agent would have got.
    """

    def __init__(self, stage: Stage[Any, Any], calls: Iterable[Any]) -> None:
        script = Script(stage.spec.name, calls)

        async def answer(context: StageContext[Any]) -> Any:
            return await script.answer(await context.prompt_with_inputs(), context)

        answer.__annotations__["context"] = StageContext[stage.baton_type]  # type: ignore[name-defined]  # a type at run time
        super().__init__(answer, stage.spec)
        self.script = script


def scripted_stage(stage: Stage[Any, Any], *calls: Any) -> ScriptedStage:
    """Return a stand-in for a stage, with its name and options, that answers from a script.

    Pass it to the worker instead of the stage; the pipeline's code does not change. Its prompt is rendered at every
    call, as for an agent.

    Args:
        stage: The stage to replace.
        calls: The answers in order: each a patch, a `StageResult`, an exception, a function of the `StageContext`,
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
    """An agent that answers from a script.

    Its calls are answers in order: an `AgentAnswer`; a patch; a text, which is parsed as a model's final answer; an
    exception; a function of the `AgentWork`, async if it calls tools; or an `Expect` with one of these. Expected
    texts are searched in the instructions and the user turn.

    Args:
        name: The agent's name.
        calls: The calls.

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

    lab_overrides = frozenset({"model", "prompt"})  # its answers may look at `work.overrides`

    def __init__(self, name: str, *calls: Any) -> None:
        self.name = name
        self.script = Script(name, calls)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer the next call.

        Raises:
            ScriptError: The call was not expected; see `Script.next`.
        """
        answer = await self.script.answer(f"{work.instructions}\n{work.user_turn()}", work)
        if isinstance(answer, AgentAnswer):
            return answer
        if isinstance(answer, str):
            return work.read(answer)
        if answer is None or isinstance(answer, BatonPatch | Mapping):
            return AgentAnswer(patch=answer)
        raise TypeError(
            f"the script of {self.name!r} answers with {type(answer).__name__}; expected an AgentAnswer, a patch, "
            "a text or None"
        )

    def assert_used_up(self) -> None:
        """Assert that every call came, and as expected."""
        self.script.assert_used_up()


class Scripts:
    """Creates scripted agents and stages and checks that all their calls came; the fixture `baton_scripts`.

    Example:
        >>> scripts = Scripts()
        >>> _ = scripts.agent("plan", {"current_state": ["Planned"]})
        >>> scripts.assert_used_up()
        Traceback (most recent call last):
        ...
        baton.testing.scripts.ScriptError: 'plan' was called 0 times; its script has 1 call
    """

    def __init__(self) -> None:
        self._scripts: list[Script] = []

    def agent(self, name: str, *calls: Any) -> ScriptedAgent:
        """Return an agent that answers from a script; see `ScriptedAgent`."""
        agent = ScriptedAgent(name, *calls)
        self._scripts.append(agent.script)
        return agent

    def stage(self, stage: Stage[Any, Any], *calls: Any) -> ScriptedStage:
        """Return a stand-in for a stage; see `scripted_stage`."""
        scripted = scripted_stage(stage, *calls)
        self._scripts.append(scripted.script)
        return scripted

    @property
    def prompts(self) -> dict[str, list[str]]:
        """The prompts so far, by name."""
        prompts: dict[str, list[str]] = {}
        for script in self._scripts:
            prompts.setdefault(script.name, []).extend(script.prompts)
        return prompts

    def assert_used_up(self) -> None:
        """Assert that every call of every script came, and as expected.

        Raises:
            ScriptError: Some did not; the message lists all failures.
        """
        faults = [fault for script in self._scripts if (fault := script.fault()) is not None]
        if faults:
            raise ScriptError("\n".join(faults))
