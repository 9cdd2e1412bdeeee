"""A pipeline that runs given steps, to check what is charged for them."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import (
    ContinueAfter,
    Exchange,
    HandoffTerms,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Receiver,
    ReceiverRequirements,
)
from baton.errors import StageFailedError
from tests.patience import IN_TIME

with workflow.unsafe.imports_passed_through():
    from tests.budget.paying_stages import BY_NAME


@workflow.defn
class Takes:
    """Takes the `steps` of its parameters.

    A step is a stage's name, several to fan out, `sleep`, `ask`, `fail`, or `{"child": steps}`; what fails is passed
    over, but for `fail`. With `events` it continues as new after as many. With a name as `agent` it hands on as well:
    `{"to": id, "steps": steps}`, `receive`, and `back` to whom that came from. One that is `patient` gives people time.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events: Any = start.params.get("events")
        within = IN_TIME if start.params.get("patient") else timedelta(milliseconds=1)
        self.pipeline = Pipeline(
            start,
            continue_after=ContinueAfter(events=events) if events else None,
            handoffs=HandoffTerms(within=within),
        )
        if "agent" in start.params:
            self.exchange = Exchange(self.pipeline, agent=str(start.params["agent"]))
        self.sender = ""

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        steps: Any = self.pipeline.params["steps"]
        failed = [await self._step(step) for step in steps]
        return self.pipeline.result([failure for failure in failed if failure])

    async def _step(self, step: Any) -> str | None:
        if step == "fail":
            raise ValueError("it was told to")
        try:
            match step:
                case "sleep":
                    # A run may continue as new once a second.
                    await self.pipeline.sleep(timedelta(seconds=1 if self.pipeline.params.get("events") else 0.01))
                case "ask":
                    await self.pipeline.approve("release manager", within=IN_TIME)
                case {"child": steps}:
                    await self.pipeline.child(
                        Takes.run, "A part", name="part", params={**self.pipeline.params, "steps": steps}
                    )
                case {"to": id, "steps": steps}:
                    params = {**self.pipeline.params, "agent": "receiver", "steps": steps}
                    to = Receiver(id, "receiver", starts=Takes.run, params=params)
                    await self.exchange.hand_off(to, "Go on", within=IN_TIME)
                case "receive":
                    agent = str(self.pipeline.params["agent"])
                    received = await self.exchange.receive(ReceiverRequirements(agent, "1.0.0"), within=IN_TIME)
                    self.sender = received.reply_to or ""
                case "back":
                    await self.exchange.hand_off(Receiver(self.sender, "sender"), "Here it is", within=IN_TIME)
                case [*names]:
                    await self.pipeline.fan_out(*[BY_NAME[name] for name in names])
                case name:
                    await self.pipeline.stage(BY_NAME[name])
        except StageFailedError as error:
            return str(error)
        return None


@workflow.defn
class Alongside:
    """Takes a stage; another one begins in the workflow task that counts a person's answer about it."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, handoffs=HandoffTerms(within=IN_TIME))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await asyncio.gather(self.pipeline.stage(BY_NAME["dear"]), self._second())
        await self.pipeline.approve("release manager", within=IN_TIME)
        return self.pipeline.result()

    async def _second(self) -> None:
        await workflow.wait_condition(lambda: bool(self.pipeline._run.board.under_way()))
        await self.pipeline.stage(BY_NAME["second"])


PIPELINES: list[type] = [Takes, Alongside]
