"""Two pipelines of which one hands its task on to the other."""

from datetime import timedelta

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult
from baton.core.receivers import ReceiverRequirements
from baton.exchange.workflow import Exchange
from baton.exchange.workflow_messages import Receiver

_PATIENCE = timedelta(minutes=1)


@workflow.defn
class HandsOff:
    """Hands on, once it is told to, to the pipeline that the parameter `to` names; it ends when that has answered."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="planner")
        self.told = False

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Hand on; the output is the answer."""
        await workflow.wait_condition(lambda: self.told)
        to = Receiver(str(self.pipeline.params["to"]), "reviewer")
        answer = await self.exchange.hand_off(to, "Review the plan", within=_PATIENCE)
        return self.pipeline.result(answer.to_json_object())

    @workflow.signal
    def go(self) -> None:
        """Hand on now."""
        self.told = True


@workflow.defn
class Receives:
    """Receives one handoff."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="reviewer")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Receive; the output is what came, with how long it had been on its way to the gate's answer."""
        received = await self.exchange.receive(ReceiverRequirements("reviewer", "1.0.0"), within=_PATIENCE)
        return self.pipeline.result(received.model_dump(mode="json"))
