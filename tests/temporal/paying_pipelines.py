"""A pipeline that takes the steps that it is told to, to see what is charged for them."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import PipelineInput, PipelineResult
from baton.protocol.errors import StageFailedError
from baton.workflow import ContinueAfter, HandoffTerms, Pipeline

with workflow.unsafe.imports_passed_through():
    from tests.temporal.paying_stages import BY_NAME


@workflow.defn
class Takes:
    """Takes the `steps` of its parameters.

    A step is a stage's name, several to fan out, `sleep`, `fail`, or `{"child": steps}`; what fails is passed over,
    but for `fail`. With `events` it continues as new after as many.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events: Any = start.params.get("events")
        self.pipeline = Pipeline(
            start,
            continue_after=ContinueAfter(events=events) if events else None,
            handoffs=HandoffTerms(within=timedelta(milliseconds=1)),
        )

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Take them."""
        steps: Any = self.pipeline.params["steps"]
        failed = [await self._step(step) for step in steps]
        return self.pipeline.result([one for one in failed if one])

    async def _step(self, step: Any) -> str | None:
        if step == "fail":
            raise ValueError("it was told to")
        try:
            match step:
                case "sleep":
                    await self.pipeline.sleep(timedelta(seconds=1))
                case {"child": steps}:
                    await self.pipeline.child(
                        Takes.run, "A part", name="part", params={**self.pipeline.params, "steps": steps}
                    )
                case [*names]:
                    await self.pipeline.fan_out(*[BY_NAME[name] for name in names])
                case name:
                    await self.pipeline.stage(BY_NAME[name])
        except StageFailedError as error:
            return str(error)
        return None


PIPELINES: list[type] = [Takes]
