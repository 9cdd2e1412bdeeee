"""The pipelines of the handoff tests."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import Compensations, ContinueAfter, HandoffTerms, MergeStrategy, Pipeline, PipelineInput, PipelineResult
from baton.errors import StageFailedError
from tests.patience import IN_TIME

with workflow.unsafe.imports_passed_through():
    from tests.handoff.handoff_stages import (
        analyse,
        breaks,
        bystander,
        correct,
        dear,
        extract,
        forgetful,
        listen,
        look_up,
        miscounts,
        nosy,
        notify,
        pays,
        register,
        scoped,
        score,
        summarise,
        talk,
        tell,
    )


@workflow.defn
class FourAgents:
    """Four agents, one after the other, so three handoffs."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, handoffs=HandoffTerms(constraints=("scoringFramework:iso31000",)))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        for stage in (extract, analyse, score, summarise):
            await self.pipeline.stage(stage)
        return self.pipeline.result()


@workflow.defn
class Works:
    """A worker with two agents."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        done = await self.pipeline.stage(score)
        return self.pipeline.result({"scored": done.output})


@workflow.defn
class Supervises:
    """A supervisor without a stage of its own before its two workers."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.child(Works.run, "Review one half", name="one")
        await self.pipeline.child(Works.run, "Review the other", name="other")
        return self.pipeline.result("both halves are reviewed")


@workflow.defn
class WorksInPart:
    """A worker whose first agent works; then it raises, or waits for a person with the parameter `waits`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        if not self.pipeline.params.get("waits"):
            raise ValueError("the annex is missing")
        await self.pipeline.approve("release manager", within=IN_TIME)
        return self.pipeline.result()


@workflow.defn
class Replaces:
    """A supervisor whose worker fails; with the parameter `anyway` it has its own agents do the work."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        try:
            await self.pipeline.child(WorksInPart.run, "Review it", name="worker", params=self.pipeline.params)
        except (StageFailedError, asyncio.CancelledError):
            if not self.pipeline.params.get("anyway"):
                raise
        await self.pipeline.stage(analyse)
        await self.pipeline.stage(score)
        return self.pipeline.result("reviewed by its own agents")


@workflow.defn
class SignedOff:
    """Two agents, a person's approval between them."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, handoffs=HandoffTerms(constraints=("scoringFramework:iso31000",)))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        await self.pipeline.approve("release manager", within=IN_TIME)
        await self.pipeline.stage(analyse)
        return self.pipeline.result()


@workflow.defn
class Forgets:
    """A sender that omits what its receiver requires."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(forgetful)
        await self.pipeline.stage(scoped)
        return self.pipeline.result()


@workflow.defn
class Breaks:
    """A receiver that fails right after accepting."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        terms = HandoffTerms(ask_when_failed=True, within=IN_TIME)
        self.pipeline = Pipeline(start, handoffs=terms)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        await self.pipeline.stage(breaks)
        return self.pipeline.result()


@workflow.defn
class BreaksAndGoesOn:
    """A receiver that fails right after accepting, which the pipeline handles."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        try:
            await self.pipeline.stage(breaks)
        except StageFailedError:
            await self.pipeline.stage(extract)
        return self.pipeline.result()


@workflow.defn
class Miscounts:
    """A stage whose first answer cannot be recorded."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        counted = await self.pipeline.stage(miscounts)
        return self.pipeline.result(counted.output)


@workflow.defn
class Spends:
    """A stage that costs more than is left."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        await self.pipeline.stage(dear)
        return self.pipeline.result()


@workflow.defn
class FansOutSealed:
    """Two receivers of the same handoff at once."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        await self.pipeline.fan_out(analyse, score)
        await self.pipeline.stage(summarise)
        return self.pipeline.result()


@workflow.defn
class Elsewhere:
    """A stage on another worker's queue."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract, task_queue=str(start.params["queue"]))
        return self.pipeline.result()


@workflow.defn
class Talks:
    """A long conversation for a small window; parameters: `terms`, a `pause`, the `events` after which it continues."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        terms: Any = start.params.get("terms", {})
        events: Any = start.params.get("events", ContinueAfter().events)
        self.pipeline = Pipeline(start, handoffs=HandoffTerms(**terms), continue_after=ContinueAfter(events=events))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(talk)
        if "pause" in start.params:
            pause: Any = start.params["pause"]
            await self.pipeline.sleep(timedelta(seconds=pause))
        heard = await self.pipeline.stage(listen)
        return self.pipeline.result(heard.output)


@workflow.defn
class Personal:
    """Stages that handle personal data, and one that does not."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(register)
        passed = await self.pipeline.stage(bystander)
        if start.params.get("wait"):
            await self.pipeline.approve("go on", within=IN_TIME)
        notified = await self.pipeline.stage(notify)
        return self.pipeline.result([passed.output, notified.output])


@workflow.defn
class PersonalBranches:
    """Stages that write personal data of one person at the same time."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(register)
        await self.pipeline.fan_out(correct, look_up, merge={"current_state": MergeStrategy.LAST})
        result = await self.pipeline.stage(tell)
        return self.pipeline.result(result.output)


@workflow.defn
class LooksUp:
    """A child that reads personal data of its parent, and writes more."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        result = await self.pipeline.stage(tell)
        await self.pipeline.stage(look_up)
        return self.pipeline.result(result.output)


@workflow.defn
class PersonalParent:
    """A pipeline that has a child work with personal data."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(correct)
        child = await self.pipeline.child(LooksUp.run, "Look it up")
        result = await self.pipeline.stage(tell)
        return self.pipeline.result([child.output, result.output])


@workflow.defn
class Nosy:
    """A stage that asks for more than it declared."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(register)
        await self.pipeline.stage(nosy)
        return self.pipeline.result()


@workflow.defn
class Undoes:
    """A block whose last stage fails."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        try:
            async with Compensations(self.pipeline) as undo:
                await self.pipeline.stage(extract)
                undo.later(summarise)
                await self.pipeline.stage(analyse)
                undo.later(breaks)
                undo.later(score)
                await self.pipeline.stage(breaks)
        except StageFailedError as error:
            return self.pipeline.result(str(error))
        return self.pipeline.result()


@workflow.defn
class Pays:
    """A stage that charges at once, and may raise afterwards."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        try:
            await self.pipeline.stage(pays)
        except StageFailedError as error:
            return self.pipeline.result(str(error))
        return self.pipeline.result()


PIPELINES: list[type] = [
    Supervises,
    Works,
    WorksInPart,
    Replaces,
    Pays,
    Undoes,
    Talks,
    Personal,
    PersonalBranches,
    PersonalParent,
    LooksUp,
    Nosy,
    FourAgents,
    SignedOff,
    Forgets,
    Breaks,
    BreaksAndGoesOn,
    Miscounts,
    Spends,
    FansOutSealed,
]
