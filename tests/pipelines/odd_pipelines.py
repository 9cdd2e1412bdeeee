"""A pipeline and a stage that raise odd errors."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import Baton, Pipeline, PipelineInput, PipelineResult, Retries, StageContext, StageResult, stage

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.odd_errors import odd_error


@stage(retries=Retries(attempts=1))
async def raises_oddly(context: StageContext[Baton]) -> StageResult:
    """Raise the odd error `how`."""
    how: Any = context.params["how"]
    raise odd_error(how)


@workflow.defn
class RaisesOddly:
    """Raises the odd error `how`; parameter `where`: in its `code`, a `branch`, a `stage` or a message's handler."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        match params["where"]:
            case "code":
                raise odd_error(params["how"])
            case "branch":
                await asyncio.gather(self._branch(), self.pipeline.sleep(timedelta(minutes=1)))
            case "stage":
                await self.pipeline.stage(raises_oddly)
            case _:
                await self.pipeline.sleep(timedelta(minutes=1))
        return self.pipeline.result()

    async def _branch(self) -> None:
        self._raise()

    @workflow.signal(name="signal")
    async def by_signal(self) -> None:
        """Raise it."""
        self._raise()

    @workflow.update(name="update")
    async def by_update(self) -> None:
        """Raise it."""
        self._raise()

    @workflow.query(name="query")
    def by_query(self) -> None:
        """Raise it."""
        self._raise()

    def _raise(self) -> None:
        how: Any = self.pipeline.params["how"]
        raise odd_error(how)
