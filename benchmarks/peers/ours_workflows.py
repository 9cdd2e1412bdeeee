"""Baton's pipelines of the same agents."""

from temporalio import workflow

from baton import PipelineInput, PipelineResult
from baton.workflow import Pipeline
from baton.workflow.contracting import ContractTerms

with workflow.unsafe.imports_passed_through():
    # The stages by name: a module taken from its package would be loaded anew at every start.
    from benchmarks.peers.ours_langgraph import STAGES as NODES
    from benchmarks.peers.ours_openai_agents import STAGES as SDK_AGENTS
    from benchmarks.peers.ours_pydantic_ai import STAGES as PYDANTIC_AI_AGENTS
    from benchmarks.peers.ours_scripted import STAGES as SCRIPTED


@workflow.defn
class PydanticAIStages:
    """Four stages by agents of pydantic-ai, with contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for one in PYDANTIC_AI_AGENTS:
            await self.pipeline.stage(one)
        return self.pipeline.result()


@workflow.defn
class OpenAIAgentsStages:
    """Four stages by agents of the OpenAI Agents SDK, with contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for one in SDK_AGENTS:
            await self.pipeline.stage(one)
        return self.pipeline.result()


@workflow.defn
class LangGraphStages:
    """Four stages by nodes of LangGraph, with contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for one in NODES:
            await self.pipeline.stage(one)
        return self.pipeline.result()


@workflow.defn
class ScriptedStages:
    """Four stages by agents that are scripts, with contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for one in SCRIPTED:
            await self.pipeline.stage(one)
        return self.pipeline.result()


@workflow.defn
class PydanticAIAlone:
    """Four stages by agents of pydantic-ai, without contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for one in PYDANTIC_AI_AGENTS:
            await self.pipeline.stage(one)
        return self.pipeline.result()
