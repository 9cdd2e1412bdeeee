"""The pipelines that live through troubles: `benchmarks.endurance` starts them, `baton.worker` serves them."""

from datetime import timedelta

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import noted

ASKED = "release"
STAGES_OF = {"Waiting": 2, "Steady": 3}
"""How many stages a run of each pipeline has once it has ended."""


@workflow.defn
class Waiting:
    """One stage, a question to a person, and one more stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run until a person has answered."""
        await self.pipeline.stage(noted)
        await self.pipeline.approve(ASKED, within=timedelta(days=1), asks="Ship it?", who=["ann"])
        await self.pipeline.stage(noted)
        return self.pipeline.result()


@workflow.defn
class Steady:
    """Three stages, one after the other."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the stages."""
        for _ in range(STAGES_OF["Steady"]):
            await self.pipeline.stage(noted)
        return self.pipeline.result()
