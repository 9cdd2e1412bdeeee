"""Pipelines with faults."""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from baton import (
    ApprovalDeniedError,
    ContinueAfter,
    Exchange,
    Outside,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Receiver,
    ReceiverRequirements,
    StageFailedError,
    Streams,
    hand_off_to_all,
)
from baton.pipelines.workflow_compensation import Compensations

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.stages import (
        FIRST_NAMESAKES,
        NAMESAKES,
        SOON,
        answer,
        careful,
        check,
        conclude,
        count,
        document,
        fail,
        forgets,
        plan,
        rest,
        review,
        stumble,
    )


@workflow.defn
class AsksTwice:
    """Two people are asked at once under one title, which is a mistake."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        within = timedelta(minutes=1)
        await asyncio.gather(*(self.pipeline.approve("release manager", within=within) for _ in range(2)))
        return self.pipeline.result()


@workflow.defn
class Titled:
    """A person is asked; parameter: the `title`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        title: Any = self.pipeline.params["title"]
        await self.pipeline.approve(title, within=timedelta(minutes=1))
        return self.pipeline.result()


@workflow.defn
class Named:
    """Does one thing under a name; parameters: `what`, `name` (`"half"` stands for half a character), `times`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        name = "\ud800" if params["name"] == "half" else params["name"] * params.get("times", 1)
        match params["what"]:
            case "sleep":
                await self.pipeline.sleep(timedelta(milliseconds=10), name=name)
            case "approval":
                await self.pipeline.approve(name, within=timedelta(milliseconds=10), default=True)
            case "child":
                await self.pipeline.child(Delegate.run, "Do half", name=name)
            case "child's goal":
                await self.pipeline.child(Delegate.run, name)
            case "child's type":
                await self.pipeline.child(name, "Do half", name="half")
            case "child's queue":
                await self.pipeline.child(Delegate.run, "Do half", task_queue=name)
            case "stage's queue":
                await self.pipeline.stage(check, task_queue=name)
            case "branch's queue":
                await self.pipeline.fan_out(check, task_queue=name)
        return self.pipeline.result()


@workflow.defn
class Delegate:
    """Does nothing."""

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        return Pipeline(start).result()


@workflow.defn
class Rounds:
    """A person is asked again and again under one title, on the same baton; parameters: `rounds`, `events`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events: Any = start.params["events"]
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=events))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        rounds: Any = self.pipeline.params["rounds"]
        questions: list[JsonValue] = []
        for _ in range(rounds):
            decided = await self.pipeline.approve("go on", within=timedelta(minutes=2))
            questions.append(decided.question)
            await self.pipeline.sleep(timedelta(seconds=0.6))
        return self.pipeline.result(questions)


@workflow.defn
class Careless:
    """Runs a stage that forgets an `await`, or two stages of one name; parameter: `which` of them."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        which: Any = start.params["which"]
        if which in NAMESAKES:
            with suppress(StageFailedError):
                await self.pipeline.stage(FIRST_NAMESAKES[which])
            await self.pipeline.stage(NAMESAKES[which])
        await self.pipeline.stage(forgets)
        return self.pipeline.result()


@workflow.defn
class Twins:
    """Two children of one kind at once, whose goals and so whose code differ."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        goals = {"one": "Do the first half", "two": "Do the second half"}
        await asyncio.gather(*(self.pipeline.child("Linear", goal, name=name) for name, goal in goals.items()))
        return self.pipeline.result()


@workflow.defn
class Answers:
    """One stage, whose answers the parameters give; options as parameters too: `protected`, `stage`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        protected: Any = start.params.get("protected", [])
        self.pipeline = Pipeline(start, protected=protected)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(careful if self.pipeline.params.get("stage") == "careful" else answer)
        return self.pipeline.result()


@workflow.defn
class Stumbles:
    """A stage that fails twice, then succeeds, between two that do not."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(stumble)
        await self.pipeline.stage(review)
        return self.pipeline.result()


@workflow.defn
class FallsBack:
    """Goes another way when a stage, a fan-out, a child or an approval fails."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=20))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        failures: list[JsonValue] = []
        attempts: list[Any] = [
            lambda: self.pipeline.stage(fail),
            lambda: self.pipeline.fan_out(check, fail),
            lambda: self.pipeline.child("Raises", "Fail", name="nobody", params={"how": "unheard of"}),
            lambda: self.pipeline.approve("nobody", within=SOON),
        ]
        for attempt in attempts:
            try:
                await attempt()
            except (StageFailedError, ApprovalDeniedError) as error:
                failures.append(str(error))
        await self.pipeline.stage(rest)
        await self.pipeline.stage(count)
        return self.pipeline.result(failures)


@workflow.defn
class Impatient:
    """A step is given a tenth of a second; the parameter `step` says which: `stage`, `approval` or `child`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        in_time = True
        try:
            async with asyncio.timeout(0.1):
                match self.pipeline.params["step"]:
                    case "stage":
                        await self.pipeline.stage(rest)
                    case "approval":
                        await self.pipeline.approve("release manager", within=timedelta(minutes=1))
                    case "child":
                        await self.pipeline.child("Gated", "Do the first half", name="half")
        except TimeoutError:
            in_time = False
        await self.pipeline.stage(conclude)
        return self.pipeline.result(in_time)


class UnheardOf(Exception):  # noqa: N818 - a name no library knows
    """An exception type that is not registered."""


@workflow.defn
class Raises:
    """Code that fails; parameter: where and how, as `how`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        if start.params.get("how") == "init":
            raise UnheardOf("in the beginning")

    @workflow.signal
    def stumble(self) -> None:
        """Fail."""
        raise UnheardOf("a signal too many")

    @workflow.update
    async def trip(self) -> None:
        """Fail, and with it the update alone."""
        raise UnheardOf("an update too many")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        match self.pipeline.params["how"]:
            case "unheard of":
                raise UnheardOf("nobody knows me")
            case "no message":
                raise KeyError
            case "clock":
                self.pipeline.result(str(datetime.now()))  # noqa: DTZ005
            case "result":
                return object()  # type: ignore[return-value]
            case "signal":
                await workflow.wait_condition(lambda: False)
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.pipeline.stage(fail))
                    group.create_task(self.pipeline.stage(document))
        return self.pipeline.result()


@workflow.defn
class NeverAwaits:
    """Code that forgets an `await`, the second stage's by default; parameter: `which` step's.

    Or it makes a task of a stage and gives that up, which is in order: `"given up"`.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        match self.pipeline.params.get("which", "stage"):
            case "stage":
                self.pipeline.stage(review)  # type: ignore[unused-coroutine]
            case "fan_out":
                self.pipeline.fan_out(check, document)  # type: ignore[unused-coroutine]
            case "approve":
                self.pipeline.approve("release manager", within=SOON)  # type: ignore[unused-coroutine]
            case "sleep":
                self.pipeline.sleep(SOON)  # type: ignore[unused-coroutine]
            case "child":
                self.pipeline.child("Linear", "Do the first half")  # type: ignore[unused-coroutine]
            case "run":
                undo = Compensations(self.pipeline)
                undo.later(review)
                undo.run()  # type: ignore[unused-coroutine]
            case "given up":
                task = asyncio.create_task(self.pipeline.stage(review))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return self.pipeline.result()


@workflow.defn
class NeverHandsOn:
    """Code that forgets to await a handoff; parameter: `which`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline)
        self.outside = Outside(self.exchange)
        self.streams = Streams(self.exchange)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        to, within, risk = Receiver("nobody", "risk"), timedelta(minutes=1), ReceiverRequirements("risk", "1.0.0")
        match self.pipeline.params["which"]:
            case "hand_off":
                self.exchange.hand_off(to, "Score", within=within)  # type: ignore[unused-coroutine]
            case "receive":
                self.exchange.receive(risk, within=within)  # type: ignore[unused-coroutine]
            case "to all":
                hand_off_to_all(self.exchange, [to] * 9, "Score", within=within)  # type: ignore[unused-coroutine]
            case "outside":
                self.outside.hand_off("reviewer", "Review", within=within)  # type: ignore[unused-coroutine]
            case "send":
                self.streams.send(to, "Score", [], within=within)  # type: ignore[unused-coroutine]
            case "receive a stream":
                self.streams.receive(risk, within=within)  # type: ignore[unused-coroutine]
        return self.pipeline.result()


MISHAPS: list[type] = [
    AsksTwice,
    Titled,
    Named,
    Delegate,
    Rounds,
    Careless,
    Twins,
    Answers,
    Stumbles,
    FallsBack,
    Impatient,
    Raises,
    NeverAwaits,
    NeverHandsOn,
]
