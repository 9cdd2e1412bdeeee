"""The pipeline `project_init`: detect-tech-stack → generate-docs → build-knowledge → verify-ready."""

from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from activities.project_init.stages import build_knowledge, detect_tech_stack, generate_docs, verify_ready


@workflow.defn(name="project_init")
class ProjectInit:
    """Read any project, write its documentation, index it for search, and verify the result.

    Parameters: `source`, the folder to read, and `output`, the folder to write to, both on the worker's machine.
    No model is needed, and nothing is ever written into the source.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, protected=["goal"], contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the four stages in sequence."""
        await self.pipeline.stage(detect_tech_stack)
        await self.pipeline.stage(generate_docs)
        await self.pipeline.stage(build_knowledge)
        verified = await self.pipeline.stage(verify_ready)
        return self.pipeline.result(verified.output)
