"""The pipeline `code_review`: a security auditor and a performance reviewer side by side, and who merges (S4-use-2)."""

from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from activities.code_review.stages import audit_security, coordinate_review, review_performance, take_snapshot


@workflow.defn(name="code_review")
class CodeReview:
    """Review a project, or a change to it, for security and performance; write one report and a SARIF file.

    Parameters: `source`, the folder to review, and `output`, the folder for the report; both must be reachable for
    the worker. `base` reviews only what changed since a commit, `diff` only what a unified diff changes; `fail_on`
    says from which severity on changes are requested (`high`). Nothing is ever written into the source.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, freeze_goal=True, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Take the snapshot, have both look at it, and merge what they report."""
        await self.pipeline.stage(take_snapshot)
        await self.pipeline.fan_out(audit_security, review_performance)
        merged = await self.pipeline.stage(coordinate_review)
        return self.pipeline.result(merged.output)
