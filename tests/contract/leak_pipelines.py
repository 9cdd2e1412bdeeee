"""The pipelines of the leak tests."""

from typing import Any

from temporalio import workflow

from baton import ContractTerms, HandoffTerms, Pipeline, PipelineInput, PipelineResult
from baton.contract.draft import ContractPolicy
from baton.contract.registry import AgentEntry, AgentRegistry, OutputSchema, OutputSchemas
from baton.core.stages import HasSpec

with workflow.unsafe.imports_passed_through():
    from tests.contract.leak_stages import (
        answer_by_schema,
        ask_model,
        confide,
        disobey,
        long_task,
        tell_again,
        tell_all,
        too_new,
        unable,
        unheard_of,
    )

DECISION = {
    "type": "object",
    "required": ["approved"],
    "properties": {"approved": {"type": "boolean"}},
    "additionalProperties": False,
}
SCHEMAS = OutputSchemas([OutputSchema("Decision", "1.2", DECISION)])
AGENTS = AgentRegistry(
    [
        AgentEntry(name="tell_al1", version="1.0.0"),
        AgentEntry(name="disobey", version="1.0.0", tools=frozenset({"crm.lookup_customer"})),
        AgentEntry(name="sender", version="1.0.0", tools=frozenset({"crm.lookup_customer", "email.send"})),
        AgentEntry(name="too_new", version="1.0.0"),
        AgentEntry(name="unable", version="1.0.0", capability=frozenset({"summary"})),
    ]
)
ONE: dict[str, HasSpec] = {
    "tell_all": tell_all,
    "disobey": disobey,
    "answer_by_schema": answer_by_schema,
    "ask_model": ask_model,
    "long_task": long_task,
    "unheard_of": unheard_of,
    "too_new": too_new,
    "unable": unable,
}


@workflow.defn
class Confides:
    """A sender with secrets, and three receivers after it, one of them a model."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(schemas=SCHEMAS))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(confide)
        await self.pipeline.stage(tell_all)
        await self.pipeline.stage(ask_model)
        result = await self.pipeline.stage(tell_again)
        return self.pipeline.result(result.output)


@workflow.defn
class ConfidesTogether:
    """The same with sender and a bystander at once, and two receivers at once after them."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(schemas=SCHEMAS))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.fan_out(confide, tell_all)
        results = await self.pipeline.fan_out(tell_all, tell_again)
        output: Any = [item.output for item in results]
        return self.pipeline.result(output)


@workflow.defn
class SendsOne:
    """Run the sender, then the stage of the parameter `stage`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        agents = AGENTS if start.params.get("registered") else None
        self.pipeline = Pipeline(start, contracts=ContractTerms(schemas=SCHEMAS, agents=agents))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        ended = await self.pipeline.stage(ONE[str(start.params["stage"])])
        return self.pipeline.result(ended.output)


@workflow.defn
class Waits:
    """A receiver on a queue of its own, under a contract that may be used for one minute."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        terms = ContractTerms(policy=ContractPolicy(expires_after_minutes=1), schemas=SCHEMAS)
        self.pipeline = Pipeline(start, contracts=terms, handoffs=HandoffTerms(attempts=2))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(confide)
        result = await self.pipeline.stage(tell_all, task_queue=str(start.params["queue"]))
        return self.pipeline.result(result.output)


LEAK_PIPELINES: list[type] = [Confides, ConfidesTogether, SendsOne, Waits]
