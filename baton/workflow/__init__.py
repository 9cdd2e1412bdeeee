"""What a workflow constructs: `Pipeline`. Everything in here runs in the workflow sandbox.

```python
@workflow.defn
class Delivery:
    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.fan_out(test, review)
        await self.pipeline.approve("release manager", within=timedelta(days=2))
        return self.pipeline.result()
```

A stage costs one activity and nothing else; an approval, fan-out or child adds one small event, so that a
reader of the history needs no worker to know how it ended.
"""

from baton.protocol.relay import HandoffTerms
from baton.workflow.compensating import Compensations
from baton.workflow.contracting import ContractTerms
from baton.workflow.pipeline import Pipeline
from baton.workflow.resuming import ContinueAfter

__all__ = ["Compensations", "ContinueAfter", "ContractTerms", "HandoffTerms", "Pipeline"]
