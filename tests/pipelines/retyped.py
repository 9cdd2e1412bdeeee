"""A pipeline whose baton type changes between releases."""

from contextlib import suppress

from pydantic import Field
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from baton import Baton, BatonPatch, ContinueAfter, Pipeline, PipelineInput, PipelineResult, stage


class Labelled(Baton):
    """A baton with one label."""

    label: str = ""


class ManyLabels(Baton):
    """A baton with several labels."""

    label: list[str] = Field(default_factory=list)


class LabelPatch(BatonPatch):
    """A patch with a label."""

    label: str | None = None


@stage
async def mark(baton: Labelled) -> LabelPatch:
    """Set a label."""
    return LabelPatch(label="secret-label")


@stage
async def report(baton: Baton) -> BatonPatch:
    """Do something else."""
    return BatonPatch(current_state=["Reported"])


@workflow.defn(name="Retyped")
class Before:
    """The old release."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, baton_type=Labelled, continue_after=ContinueAfter(events=8))
        self._goes_on = False

    @workflow.signal
    def go_on(self) -> None:
        """Let it go on."""
        self._goes_on = True

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(mark)
        await workflow.wait_condition(lambda: self._goes_on or start.continued > 0)
        await self.pipeline.stage(report)
        return self.pipeline.result()


@workflow.defn(name="Retyped")
class After:
    """The new release, in which the label is a list."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, baton_type=ManyLabels, continue_after=ContinueAfter(events=8))
        self._goes_on = False

    @workflow.signal
    def go_on(self) -> None:
        """Let it go on."""
        self._goes_on = True

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(mark)
        await workflow.wait_condition(lambda: self._goes_on or start.continued > 0)
        await self.pipeline.stage(report)
        return self.pipeline.result()


@workflow.defn(name="Retyped")
class Peeks:
    """A release with that type that reads the baton between two steps, and goes on whatever comes of it."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, baton_type=ManyLabels)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(mark)
        with suppress(Exception):
            _ = self.pipeline.baton
        return self.pipeline.result()
