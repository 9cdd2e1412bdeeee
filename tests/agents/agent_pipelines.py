"""Pipelines whose stages agents do; the agents themselves are made by each test and stand in its worker."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineResult, Retries
from baton.core.messages import PipelineInput
from baton.core.stages import StageSpec

SOON = Retries(attempts=3, first=timedelta(milliseconds=20))
"""The retries of these stages."""


@dataclass(frozen=True)
class Named:
    """A stage by its name and terms, as a pipeline sees it."""

    spec: StageSpec


FIND = Named(StageSpec("find", retries=SOON, tools=frozenset({"crm.lookup", "email.send"})))
DECIDE = Named(StageSpec("decide", retries=SOON, forbids=frozenset({"email.send"})))
CODE = Named(StageSpec("code", retries=SOON))


@workflow.defn
class ByAgents:
    """One agent finds out, one decides, one writes code; each sees a contract."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(granted=frozenset({"crm.lookup"})))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        names = start.params.get("stages", ["find", "decide", "code"])
        outputs = [
            (await self.pipeline.stage(stage)).output
            for stage in (FIND, DECIDE, CODE)
            if isinstance(names, list) and stage.spec.name in names
        ]
        return self.pipeline.result(outputs)


OFFER = Named(StageSpec("offer", retries=SOON, tools=frozenset({"clerk", "lookup"})))


@workflow.defn
class Asks:
    """One agent asks another, and then one writes down what came of it."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        for stage in (OFFER, CODE):
            await self.pipeline.stage(stage)
        return self.pipeline.result()


AGENT_PIPELINES = [ByAgents]
