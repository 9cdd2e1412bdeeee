"""Pipelines that receive a handoff, in a run of their own or in one that continued as new, and act on it."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import (
    Baton,
    BatonPatch,
    ContinueAfter,
    HandoffTerms,
    Pipeline,
    PipelineInput,
    PipelineResult,
    ReceiverRequirements,
    StageContext,
    stage,
)
from baton.errors import StageFailedError
from baton.exchange.workflow import Exchange
from baton.handoff.sealed import UnverifiedHandoff
from tests.patience import IN_TIME

ACTED: list[str] = []
"""The runs whose stage ran."""


@stage
async def act(context: StageContext[Baton]) -> BatonPatch:
    """Pay."""
    ACTED.append(str(context.params["run"]))
    return BatonPatch(current_state=["Paid"])


@workflow.defn
class ActsOn:
    """Receives and acts; parameters: `within`, `waits` for an approval before, `later` for one after, `continues`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events = 10 if start.params.get("continues") else 10_000
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=events))
        self.exchange = Exchange(self.pipeline, agent="risk")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        if params.get("waits"):
            await self.pipeline.approve("begin", within=IN_TIME)
        if params.get("continues"):
            await self.pipeline.sleep(timedelta(seconds=1))  # a shorter run does not continue as new
        try:
            await self.exchange.receive(ReceiverRequirements("risk", "1.0.0"), within=timedelta(**params["within"]))
        except StageFailedError:
            return self.pipeline.result("nothing")
        await self.pipeline.stage(act, params={"run": workflow.info().run_id})
        if params.get("later"):
            await self.pipeline.approve("later", within=IN_TIME)
        return self.pipeline.result("acted")


@workflow.defn
class Expires:
    """Hands on to a stage for so short a time that it always arrives too late."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        terms = HandoffTerms(expires=timedelta(microseconds=1), within=IN_TIME)
        self.pipeline = Pipeline(start, handoffs=terms)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(act, params={"run": workflow.info().run_id})
        return self.pipeline.result()


@workflow.defn
class PlaysStage:
    """An attacker's workflow: it has a stage run with the bytes of another run's handoff."""

    @workflow.run
    async def run(self, copied: str) -> Any:
        return await workflow.execute_activity(
            "act", UnverifiedHandoff(copied.encode()), start_to_close_timeout=IN_TIME
        )
