"""A pipeline that is held in its first workflow task; the sandbox reads this anew for each run."""

from temporalio import workflow

from baton import PipelineInput, PipelineResult
from tests.temporal.exchange_pipelines import HandsOff

with workflow.unsafe.imports_passed_through():
    from tests.temporal.holding import stand_still


@workflow.defn
class HandsOffLater(HandsOff):
    """Hands on once it is let go."""

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Stand still, then hand on."""
        if not workflow.unsafe.is_replaying():
            with workflow.unsafe.sandbox_unrestricted():
                stand_still()
        return await super().run(start)
