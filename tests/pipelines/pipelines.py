"""The pipelines of these tests: each shows one thing that a pipeline can do.

They stand in a file of their own because a workflow is loaded again in its sandbox, by the name of its module.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import ContinueAfter, MergeStrategy, Pipeline, PipelineInput, PipelineResult
from tests.pipelines.mishaps import MISHAPS

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.stages import (
        AuditedBaton,
        answer,
        assess,
        check,
        conclude,
        count,
        discuss,
        document,
        hold,
        implement,
        plan,
        rest,
        review,
        sort,
        swell,
        tidy,
    )


@workflow.defn
class Linear:
    """Three stages, one after the other."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(implement)
        await self.pipeline.stage(review)
        return self.pipeline.result()


@workflow.defn
class FansOut:
    """Three stages at once between two others."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, merge={"acceptance": MergeStrategy.LAST})

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        tested, *_ = await self.pipeline.fan_out(check, document, review)
        await self.pipeline.stage(conclude)
        return self.pipeline.result({"passed": tested.output})


@workflow.defn
class Disagrees:
    """Two concurrent stages with given patches: `patch` of `hold`, `answers` of `answer`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        second = hold if self.pipeline.params.get("twice") else answer
        await self.pipeline.fan_out(hold, second)
        return self.pipeline.result()


@workflow.defn
class Gated:
    """A person decides between two stages; parameters: `seconds` to decide, `default`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        await self.pipeline.stage(plan)
        within = timedelta(seconds=params.get("seconds", 60))
        decided = await self.pipeline.approve(
            "release manager", within=within, asks="Ship it?", default=params.get("default", False)
        )
        await self.pipeline.stage(conclude)
        return self.pipeline.result(decided.model_dump(mode="json"))


@workflow.defn
class Announced(Gated):
    """The same with its own details."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)
        workflow.set_current_details("Before the summer")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        return await super().run(start)


@workflow.defn
class AsksWhileWorking:
    """A stage runs while two people are asked; parameters: `gate` and `patch` of the stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await asyncio.gather(
            self.pipeline.stage(hold),
            self.pipeline.approve("security", within=timedelta(minutes=1)),
            self.pipeline.approve("legal", within=timedelta(minutes=1)),
        )
        return self.pipeline.result()


@workflow.defn
class Parent:
    """Runs a child; parameters: its type as `child`, its `params`, what is `taken`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        await self.pipeline.stage(plan)
        options: Any = {"takes": lambda baton, result: params["taken"]} if "taken" in params else {}
        result = await self.pipeline.child(
            params.get("child", "Linear"), "Do the first half", name="half", params=params.get("params"), **options
        )
        await self.pipeline.stage(conclude)
        return self.pipeline.result(result.steps)


@workflow.defn(name="first-half")
class FirstHalf:
    """A pipeline whose type is not the name of its class."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        return self.pipeline.result()


@workflow.defn
class Delegates:
    """Leaves all work to a child, named by its run method."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        self.pipeline.baton.decision_log.append("Nobody decided this")
        await self.pipeline.child(FirstHalf.run, "Do the first half")
        return self.pipeline.result()


@workflow.defn
class Together:
    """Concurrent stages by `asyncio.gather`; parameters: `patches` by gate."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        patches: Any = self.pipeline.params["patches"]
        await self.pipeline.stage(plan)
        await asyncio.gather(
            *(self.pipeline.stage(hold, params={"gate": gate, "patch": patch}) for gate, patch in patches.items())
        )
        await self.pipeline.stage(conclude)
        return self.pipeline.result()


@workflow.defn
class ThreeLines:
    """Three concurrent lines of stages that write the same field."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        async def line(*stages: Any) -> None:
            for stage in stages:
                await self.pipeline.stage(stage)

        await asyncio.gather(line(check, tidy), line(tidy, document), line(sort, review))
        return self.pipeline.result()


@workflow.defn
class Long:
    """Every kind of step, then rounds; continues as new in the middle; parameter: `rounds`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=30))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        rounds: Any = self.pipeline.params.get("rounds", 3)
        await self.pipeline.stage(plan)
        await self.pipeline.fan_out(check, document)
        await self.pipeline.approve("release manager", within=timedelta(minutes=1))
        await asyncio.gather(self.pipeline.stage(review), self.pipeline.stage(implement))
        await self.pipeline.stage(tidy)
        await self.pipeline.stage(rest)
        for _ in range(rounds):
            await self.pipeline.stage(count)
        return self.pipeline.result()


@workflow.defn
class Discusses:
    """Four stages that read earlier turns; parameter: the `events` after which it continues as new."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events: Any = start.params["events"]
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=events))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Discuss, two at once in the end, and return what the last of them heard."""
        await self.pipeline.stage(discuss)
        await self.pipeline.stage(rest)
        await self.pipeline.stage(discuss)
        await self.pipeline.fan_out(discuss, check)
        return self.pipeline.result((await self.pipeline.stage(discuss)).output)


@workflow.defn
class Bulky:
    """A stage and the pipeline return a text of the length `size`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        swollen = await self.pipeline.stage(swell)
        await self.pipeline.stage(plan)
        return self.pipeline.result(swollen.output)


@workflow.defn
class Circles:
    """Two rounds of concurrent stages in a task group; parameter: the `events` after which it continues as new."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events: Any = start.params.get("events")
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=events))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                group.create_task(self.pipeline.stage(rest))
                group.create_task(self.pipeline.stage(tidy))
            async with asyncio.TaskGroup() as group:
                group.create_task(self.pipeline.stage(count))
        return self.pipeline.result()


@workflow.defn
class Counts:
    """One stage, again and again, in two runs; parameter: the `rounds` of the first."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=4))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        rounds: Any = start.params.get("rounds")
        for _ in range(rounds):
            await self.pipeline.stage(count)
        await self.pipeline.sleep(timedelta(seconds=1.1), name="no run is shorter than a second")
        await self.pipeline.stage(count)
        return self.pipeline.result()


@workflow.defn
class Audited:
    """A baton with additional fields."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, baton_type=AuditedBaton)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(assess)
        await self.pipeline.stage(assess)
        return self.pipeline.result()


PIPELINES: list[type] = [
    Linear,
    FansOut,
    Disagrees,
    Gated,
    Announced,
    AsksWhileWorking,
    Parent,
    FirstHalf,
    Delegates,
    Together,
    Long,
    ThreeLines,
    Bulky,
    Discusses,
    Circles,
    Counts,
    Audited,
    *MISHAPS,
]
