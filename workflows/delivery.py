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
    """Change a git repository: test and review the change, and offer it as a branch once a person agrees.

    Parameters: `repository`, and what to change: `patch`, `edits`, `command`, or `changes` for several rounds; see
    `activities.delivery.records.Order` for the others. The branch exists afterwards if it was approved, and only then.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, freeze_goal=True, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Plan, work in rounds until tests and review pass, ask, and offer the branch or withdraw it."""
        plan: Any = (await self.pipeline.stage(plan_change)).output
        try:
            async with Compensations(self.pipeline) as undo:
                undo.later(withdraw_branch, params={})
                made = await self._rounds(plan["rounds"], plan["base"])
                await self.pipeline.approve(
                    plan["approver"],
                    within=timedelta(seconds=plan["approval_seconds"]),
                    asks=f"Offer branch {plan['branch']} at {made['commit'][:12]} ({made['size']})?",
                )
                offered = await self._with(offer_branch, **made)
        except ApprovalDeniedError as denied:
            return self.pipeline.result({"offered": False, "branch": plan["branch"], "why": str(denied)})
        return self.pipeline.result(offered)

    async def _rounds(self, rounds: int, base: str) -> dict[str, str]:
        """Draft, implement, test and review until tests and review pass; return the commit and its size."""
        parent, why, said = base, "", ""
        for number in range(1, rounds + 1):
            draft = await self._with(draft_change, round=number, parent=parent, why=f"{why}\n{said}".strip())
            made = await self._with(implement_change, round=number, parent=parent, draft=draft)
            parent = made["commit"]
            tested = await self._with(test_change, round=number, commit=parent)
            if not tested["passed"]:
                why, said = f"the tests fail: {tested['why']}", tested["said"]
                continue
            reviewed = await self._with(review_change, round=number, commit=parent)
            if reviewed["approved"]:
                return {"commit": parent, "size": reviewed["size"]}
            why, said = f"the review requests changes: {reviewed['why']}", ""
        raise PipelineError(f"after round {rounds} {why}")

    async def _with(self, stage: Any, **params: JsonValue) -> Any:
        """Run a stage with parameters of its own, and return its output."""
        return (await self.pipeline.stage(stage, params=params)).output
