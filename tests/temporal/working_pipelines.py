"""A pipeline that works while it is sent messages.

It stands in a file of its own because a workflow is loaded again in its sandbox, by the name of its module.
"""

from datetime import timedelta

from temporalio import workflow

from baton import PipelineInput, PipelineResult
from baton.protocol.routing import ReceiverRequirements
from baton.workflow import Pipeline
from baton.workflow.exchange import Exchange

with workflow.unsafe.imports_passed_through():
    from tests.temporal.stages import check, sort


@workflow.defn
class ReceivesAfterWork:
    """Runs light stages and others in turn, and only then receives; parameter: `times`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="risk")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Work, then receive."""
        times = start.params["times"]
        assert isinstance(times, int)
        for _ in range(times):
            await self.pipeline.stage(sort)
            await self.pipeline.stage(check)
        received = await self.exchange.receive(ReceiverRequirements("risk", "1.0.0"), within=timedelta(seconds=30))
        return self.pipeline.result(received.handoff_id)
