"""Pipelines whose agents report in Markdown: a chain, a merge, and a subagent that returns to its parent."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult
from baton.report.merging import merge_reports
from baton.report.records import HandoffReport

with workflow.unsafe.imports_passed_through():
    from tests.report.report_stages import auditor, explorer, profiler


@workflow.defn
class Reviewed:
    """Explores, then audits and profiles at once, and merges what they report."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(explorer)
        results = await self.pipeline.fan_out(auditor, profiler)
        reports = [HandoffReport.from_json_object(dict(result.output)) for result in results]
        merged = merge_reports(reports, sender="code-reviewer", receiver="parent")
        return self.pipeline.result(merged.to_json_object())


@workflow.defn
class Delegates:
    """Delegates the exploration to a subagent: a pipeline of its own that returns its report."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        below = PipelineInput(goal="Explore the authentication")
        returned = await workflow.execute_child_workflow(Explores.run, below, id=f"{workflow.info().workflow_id}-below")
        return self.pipeline.result(returned.output)


@workflow.defn
class Explores:
    """The subagent."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        result = await self.pipeline.stage(explorer)
        return self.pipeline.result(result.output)


REPORTING = [Reviewed, Delegates, Explores]
"""Every pipeline of this file."""
