"""The pipeline `contract_review`: extract clauses → analyse → score risk to ISO 31000 → executive summary."""

from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from activities.contract_review.records import ContractBaton
    from activities.contract_review.stages import analyse_clauses, extract_clauses, score_risk, write_summary


@workflow.defn(name="contract_review")
class ContractReview:
    """Review a contract in text, Markdown or PDF with four agents.

    Parameters: `source`, the contract's file, and `output`, the folder for the report, both on the worker's machine.
    Optional is `policy`, the side that the review is for and what it accepts. Without a configured model, and without a
    side, clauses are found and quoted, and nothing is judged.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(
            start, baton_type=ContractBaton, protected=["goal", "constraints"], contracts=ContractTerms()
        )

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the four agents in sequence."""
        await self.pipeline.stage(extract_clauses)
        await self.pipeline.stage(analyse_clauses)
        await self.pipeline.stage(score_risk)
        summary = await self.pipeline.stage(write_summary)
        return self.pipeline.result(summary.output)
