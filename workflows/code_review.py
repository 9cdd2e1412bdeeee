"""The pipeline `code_review`: a security auditor and a performance reviewer side by side, and a coordinator."""

from typing import Any

from temporalio import workflow

from baton import Budget, ContractTerms, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from activities.code_review.stages import audit_security, coordinate_review, review_performance, take_snapshot

BUDGET = Budget(initial_micro_usd=1_000_000)
"""The default budget of a review; when it is spent, the run waits for a top-up."""


@workflow.defn(name="code_review")
class CodeReview:
    """Review a project, or a change to it, for security and performance; write one report and a SARIF file.

    Parameters: `source`, the folder to review, and `output`, the folder for the report, both on the worker's machine.
    `base` limits the review to the changes since a commit, `diff` to those of a unified diff; `fail_on` is the lowest
    severity for which changes are requested (`high`). Nothing is ever written into the source.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        limited = start if start.budget else start.model_copy(update={"budget": BUDGET})
        self.pipeline = Pipeline(limited, protected=["goal"], contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Take a snapshot, have both reviewers review it if they can read any of it, and merge their reports."""
        snapshot: Any = (await self.pipeline.stage(take_snapshot)).output
        if snapshot["readable"]:
            await self.pipeline.fan_out(audit_security, review_performance)
            merged = await self.pipeline.stage(coordinate_review)
        else:
            merged = await self.pipeline.stage(coordinate_review, params={**start.params, "reviewed": False})
        return self.pipeline.result(merged.output)
