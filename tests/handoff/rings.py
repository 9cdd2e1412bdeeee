"""Pipelines that hand a task around in a ring; in their own module because the sandbox loads a workflow again."""

from typing import Any

from temporalio import workflow

from baton import (
    Baton,
    BatonPatch,
    Exchange,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Receiver,
    ReceiverRequirements,
    stage,
)
from tests.patience import IN_TIME


@stage
async def look(baton: Baton) -> BatonPatch:
    """Look at it, and decide nothing."""
    return BatonPatch(current_state=["Looked at"])


@workflow.defn
class HandsRound:
    """Receives, looks, hands on to the next of the `ring`, and starts it; parameters: `ring`, `nth`, `id`, `child`.

    A `child` pipeline of it may do the handing on, as `is_child` tells that.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        ring, nth = self.whose()
        self.exchange = Exchange(self.pipeline, agent=ring[nth % len(ring)])

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        ring, nth = self.whose()
        if nth and not params.get("is_child"):
            await self.exchange.receive(ReceiverRequirements(ring[nth % len(ring)], "1.0.0"), within=IN_TIME)
        await self.pipeline.stage(look)
        if params.get("child") and not params.get("is_child"):
            await self.pipeline.child(HandsRound.run, "Hand it on", params={**params, "is_child": True})
        else:
            params_of_next = {**params, "nth": nth + 1, "is_child": False}
            to = Receiver(
                f"{params['id']}-{nth + 1}", ring[(nth + 1) % len(ring)], starts=HandsRound.run, params=params_of_next
            )
            await self.exchange.hand_off(to, "Look at it", within=IN_TIME)
        return self.pipeline.result(nth)

    def whose(self) -> tuple[list[str], int]:
        """Return the ring, and how many were there before."""
        params: Any = self.pipeline.params
        return params["ring"], params["nth"]
