"""The pipeline `delivery`: planner → implementer → tester → reviewer, in rounds, then a person decides (S2 L14-29)."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult
from baton.errors import ApprovalDeniedError, PipelineError, StageFailedError

with workflow.unsafe.imports_passed_through():
    from activities.delivery.stages import (
        implement_change,
        offer_branch,
        plan_change,
        review_change,
        test_change,
        withdraw_branch,
    )


@workflow.defn(name="delivery")
class Delivery:
    """Change a git repository on a branch of its own, test and review it, and offer the branch once a person agrees.

    Parameters: `repository`, and what to change: `patch`, `edits`, `command`, or `changes` for several rounds; see
    `activities.delivery.records.Order` for the others. The branch exists afterwards if it was approved, and only then.
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, freeze_goal=True, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Plan, work in rounds until tests and review pass, ask, and offer the branch or withdraw it."""
        planned: Any = (await self.pipeline.stage(plan_change)).output
        try:
            reviewed = await self._rounds(planned["rounds"])
            await self.pipeline.approve(
                planned["approver"],
                within=timedelta(seconds=planned["approval_seconds"]),
                asks=f"Offer branch {planned['branch']} at {reviewed['commit'][:12]} ({reviewed['size']})?",
            )
            offered = await self._with(offer_branch, commit=reviewed["commit"])
        except ApprovalDeniedError as denied:
            return self.pipeline.result(await self._with(withdraw_branch, why=str(denied)))
        except (PipelineError, StageFailedError, asyncio.CancelledError) as error:
            await self._with(withdraw_branch, why=str(error) or "the delivery was canceled")
            raise
        return self.pipeline.result(offered)

    async def _rounds(self, rounds: int) -> Any:
        """Implement, test and review until both are content; return what the reviewer said.

        Raises:
            PipelineError: They are not, after the last round.
        """
        why, told = "", ""
        for number in range(1, rounds + 1):
            made = await self._with(implement_change, round=number, why=told)
            tested = await self._with(test_change, round=number, commit=made["commit"])
            if not tested["passed"]:
                why = f"the tests fail: {tested['why']}"
                told = f"{why}\n{tested['said']}"
                continue
            reviewed = await self._with(review_change, round=number, commit=made["commit"])
            if reviewed["approved"]:
                return reviewed
            why = told = f"the review requests changes: {reviewed['why']}"
        raise PipelineError(f"after round {rounds} {why}")

    async def _with(self, stage: Any, **params: JsonValue) -> Any:
        """Run a stage with parameters of its own, and return its output."""
        return (await self.pipeline.stage(stage, params=params)).output
