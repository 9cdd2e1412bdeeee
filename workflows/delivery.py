"""The pipeline `delivery`: plan, then draft → implement → test → review in rounds, then a person decides."""

from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from baton import Compensations, ContractTerms, Pipeline, PipelineInput, PipelineResult
from baton.errors import ApprovalDeniedError, PipelineError

with workflow.unsafe.imports_passed_through():
    from activities.delivery.stages import (
        draft_change,
        implement_change,
        offer_branch,
        plan_change,
        review_change,
        test_change,
        withdraw_branch,
    )


@workflow.defn(name="delivery")
class Delivery:
    """Change a git repository: test and review the change, and offer it as a branch once a person approves.

    Parameters: `repository`, and the change: `patch`, `edits`, `command`, or `changes` for several rounds; see
    `activities.delivery.records.Order` for the others. The branch exists afterwards only if it was approved.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, protected=["goal"], contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Plan, work in rounds until tests and review pass, ask, and offer the branch or withdraw it."""
        plan: Any = (await self.pipeline.stage(plan_change)).output
        try:
            async with Compensations(self.pipeline) as undo:
                undo.later(withdraw_branch, params={})
                change = await self._run_rounds(plan["rounds"], plan["base"])
                await self.pipeline.approve(
                    plan["approver"],
                    within=timedelta(seconds=plan["approval_seconds"]),
                    asks=f"Offer branch {plan['branch']} at {change['commit'][:12]} ({change['size']})?",
                )
                offered = await self._run_stage(offer_branch, **change)
        except ApprovalDeniedError as denied:
            return self.pipeline.result({"offered": False, "branch": plan["branch"], "why": str(denied)})
        return self.pipeline.result(offered)

    async def _run_rounds(self, rounds: int, base: str) -> dict[str, str]:
        """Draft, implement, test and review until tests and review pass; return the commit and its size."""
        parent, reason, test_output = base, "", ""
        for number in range(1, rounds + 1):
            feedback = f"{reason}\n{test_output}".strip()
            draft = await self._run_stage(draft_change, round=number, parent=parent, why=feedback)
            change = await self._run_stage(implement_change, round=number, parent=parent, draft=draft)
            parent = change["commit"]
            tests = await self._run_stage(test_change, round=number, commit=parent)
            if not tests["passed"]:
                reason, test_output = tests["why"], tests["said"]
                continue
            review = await self._run_stage(review_change, round=number, commit=parent)
            if review["approved"]:
                return {"commit": parent, "size": review["size"]}
            reason, test_output = f"the review requests changes: {review['why']}", ""
        raise PipelineError(f"after round {rounds} {reason}")

    async def _run_stage(self, stage: Any, **params: JsonValue) -> Any:
        """Run a stage with its own parameters, and return its output."""
        return (await self.pipeline.stage(stage, params=params)).output
