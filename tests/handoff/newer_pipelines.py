"""Pipelines that answer like those of a later release, with a member that this release does not know."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import Exchange, Outside, Pipeline, PipelineInput, PipelineResult
from baton.exchange.external import QUERY_OUTSIDE
from baton.wire.names import MEMO_QUESTIONS

with workflow.unsafe.imports_passed_through():
    from tests.handoff.handoff_stages import analyse, score


@workflow.defn
class OutsideOfLater:
    """Hands the task to an agent outside."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.outside = Outside(Exchange(self.pipeline, agent="legal"))
        workflow.set_query_handler(QUERY_OUTSIDE, self.waiting)

    def waiting(self) -> list[dict[str, Any]]:
        return [{**handoff.model_dump(mode="json"), "urgent": True} for handoff in self.outside._open.open()]

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.outside.hand_off("reviewer", "Review the contract", within=timedelta(minutes=1))
        return self.pipeline.result()


@workflow.defn
class InboxOfLater:
    """Analyses, and scores; a `poisoned` one asks a person."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.board = self.pipeline._run.board
        self.board._publish = self.publish  # type: ignore[method-assign]

    def publish(self, id: str) -> None:
        [question] = self.board.open_now()
        workflow.upsert_memo({MEMO_QUESTIONS: {"questions": [{**question.model_dump(mode="json"), "urgent": True}]}})

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(analyse)
        await self.pipeline.stage(score)
        return self.pipeline.result()
