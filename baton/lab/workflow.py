"""`LabRun`: runs recorded cases again, each in every lane, without an effect outside.

It schedules the stages' own activities on their workers, with their own timeouts and retries, or starts the pipeline of
a case of several stages, whose code the worker holds back. Nobody is asked, and no other run is touched. Each case has
a task of its own.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError, is_cancelled_exception

from baton.budget.billing import billed_before
from baton.contract.records import MAX_EXPIRY_MINUTES
from baton.core.costs import NO_LIMIT, CostTracking
from baton.core.history import Spend
from baton.core.lab import LAB_RUN, LAB_STAGE, USED_UP, LabPath, LabReport, LabTerms, find_lab_report
from baton.core.messages import PipelineResult, StageInput, StageReturn
from baton.core.past import Heir
from baton.core.stages import Retries, StageSpec
from baton.handoff.records import Handoff
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.workflow_delivery import retry_policy
from baton.handoff.workflow_failures import reason_of, refusal_of, spend_of
from baton.lab.records import Case, LabStart, Lane, Outcome, Ran, path_id
from baton.wire.names import SEALS

_ANY_VERSION = "0.0.0"  # of the stage's agent: today's, whatever it is
_MAX_EVENTS = 3_000  # of a run's history, after which it continues as new
_MAX_FINDINGS = 20
_NO_ACTIVITY = "NotFoundError"  # of Temporal's workers: this one does not know the lab


@workflow.defn(name=LAB_RUN)
class LabRun:
    """Runs the items of a lab run, so many at once, until they or the budget are used up."""

    @workflow.init
    def __init__(self, start: LabStart) -> None:
        """Take up what an earlier run of the chain has done."""
        self._start = start
        self._items = start.items
        self._ran = [*start.done]
        budget, spent = start.options.budget_micro_usd, sum(ran.spend.micro_usd for ran in start.done)
        self._free = None if budget is None else budget - spent  # neither spent nor granted to an item under way

    @workflow.run
    async def run(self, start: LabStart) -> list[Ran]:
        """Run the items that are left."""
        known = {ran.item for ran in self._ran}
        left = [item for item in range(len(self._items)) if item not in known]
        under_way: list[asyncio.Task[None]] = []
        while left or under_way:
            if self._is_long():
                break
            while left and len(under_way) < start.options.parallel and self._affords(left[0]):
                granted = self._grant(left[0], min(start.options.parallel - len(under_way), len(left)))
                under_way.append(asyncio.create_task(self._run_item(left.pop(0), granted)))
            if not under_way:
                break  # the budget is used up
            ended, under_way = await workflow.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        for task in under_way:
            await task
        if left and self._is_long():
            workflow.continue_as_new(start.model_copy(update={"done": self._ran}))
        return sorted([*self._ran, *(Ran(item=item) for item in left)], key=lambda ran: ran.item)

    def _is_long(self) -> bool:
        info = workflow.info()
        return info.get_current_history_length() >= _MAX_EVENTS or info.is_continue_as_new_suggested()

    def _affords(self, item: int) -> bool:
        """Return whether the budget allows another item, which may cost what it was recorded to cost."""
        return self._free is None or self._recorded(item) <= self._free

    def _grant(self, item: int, slots: int) -> int | None:
        """Set aside what an item may cost: as much as recorded, and its share of the rest; None without a budget."""
        if self._free is None:
            return None
        recorded = self._recorded(item)
        granted = max(1, recorded + (self._free - recorded) // slots)
        self._free -= granted
        return granted

    def _recorded(self, item: int) -> int:
        return self._start.cases[self._items[item][0]].recorded.spend.micro_usd

    async def _run_item(self, item: int, granted: int | None) -> None:
        place, _, lane = self._items[item]
        case, of = self._start.cases[place], self._start.lanes[lane]
        terms = self._terms(case, of, granted)
        outcome = await (self._run_path(item, case, of, terms) if case.path else self._run_case(case, of, terms))
        ran = Ran(item=item, outcome=outcome, spend=outcome.spend)
        if granted is not None:
            left = granted - outcome.spend.micro_usd
            self._free = (self._free or 0) + left
            if left < 0 or (outcome.failed and not left):  # the budget decided what came of it, not the lane
                ran = Ran(item=item, spend=outcome.spend)
        self._ran.append(ran)

    async def _run_case(self, case: Case, lane: Lane, terms: LabTerms) -> Outcome:
        """Run a case until its stage's patch is accepted, or its attempts or its budget are used up."""
        task_id, findings = str(workflow.uuid4()), list[str]()
        outcome, most = Outcome(attempts=0), terms.case_micro_usd
        while outcome.attempts < case.terms.attempts:
            if most is not None and outcome.attempts:
                if outcome.spend.micro_usd >= most:
                    return outcome.model_copy(update={"failure": USED_UP})
                terms = terms.model_copy(update={"case_micro_usd": most - outcome.spend.micro_usd})
            given = self._input(case, terms, task_id, outcome.attempts + 1, findings)
            try:
                returned = await self._execute(case, lane, given, task_id)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError("the lab run was cancelled") from error
                outcome = _after(outcome, spend_of(error), find_lab_report(getattr(error.cause, "details", ())))
                if (refusal := refusal_of(error)) is not None and (verdict := refusal.verdict) is not None:
                    found = [finding.text for finding in verdict.findings][:_MAX_FINDINGS]
                    update: dict[str, Any] = {"refused": str(verdict.reason), "findings": [*outcome.findings, *found]}
                    return outcome.model_copy(update=update)
                return outcome.model_copy(update={"failure": reason_of(error)})
            findings = returned.findings[:_MAX_FINDINGS]
            outcome = _after(outcome, returned.spend, returned.lab)
            update = {"baton_patch": returned.baton_patch, "output": returned.output}
            outcome = outcome.model_copy(update={**update, "findings": [*outcome.findings, *findings]})
            if not findings:
                return outcome
        return outcome.model_copy(update={"failure": f"refused {outcome.attempts} times: {'; '.join(findings)}"})

    def _input(self, case: Case, terms: LabTerms, task_id: str, attempt: int, findings: list[str]) -> StageInput:
        """Return the recorded input for the lab: with ids of its own, and a contract that has not expired."""
        recorded, handoff_id = case.stage_input, str(workflow.uuid4())
        contract = recorded.contract
        if contract is not None:
            contract = {
                **{name: value for name, value in contract.items() if name not in ("messageId", "traceparent")},
                **{"handoffId": handoff_id, "traceId": task_id, "createdAt": f"{workflow.now():%Y-%m-%dT%H:%M:%SZ}"},
                "expiresAfterMinutes": MAX_EXPIRY_MINUTES,
            }
        own = {"task_id": task_id, "handoff_id": handoff_id, "contract": contract, "lab": terms, "stream": False}
        again = {"attempt": attempt, "findings": findings or recorded.findings}
        return recorded.model_copy(update={**own, **again})

    def _terms(self, case: Case, lane: Lane, granted: int | None) -> LabTerms:
        options = self._start.options
        limits = [most for most in (options.case_micro_usd, granted) if most is not None]
        return LabTerms(
            answers=self._start.answers.get(case.id),
            unrecorded=options.unrecorded,
            allow=options.allow,
            overrides=lane.overrides,
            case_micro_usd=min(limits, default=None),
            sealed_for=case.source.task_id,
            hands_on=bool(case.path),
        )

    def _queue(self, case: Case, lane: Lane) -> str:
        return lane.task_queue or self._start.options.task_queue or case.terms.task_queue

    async def _run_path(self, item: int, case: Case, lane: Lane, terms: LabTerms) -> Outcome:
        """Run the pipeline of a case from its first step to its last; what came of it is in its history."""
        info, given = workflow.info(), case.pipeline_input
        id, path = path_id(info.workflow_id, item), given.lab or LabPath()
        kept = billed_before(given.model_copy(update={"outcomes": given.recorded(), "pages": []}))
        own: dict[str, Any] = {
            "task_id": str(workflow.uuid4()),
            "lab": path.model_copy(update={"terms": terms, "before_micro_usd": kept.micro_usd}),
            "heir": Heir(namespace=info.namespace, workflow_id=id, run_id=info.run_id),
        }
        try:
            result: PipelineResult = await workflow.execute_child_workflow(
                case.stage,
                given.model_copy(update=own),
                id=id,
                result_type=PipelineResult,
                task_queue=self._queue(case, lane),
                run_timeout=timedelta(seconds=case.terms.timeout),
                parent_close_policy=workflow.ParentClosePolicy.TERMINATE,
                static_summary=f"{case.id}: {lane.name}"[:200],
            )
        except ChildWorkflowError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError("the lab run was cancelled") from error
            return Outcome(spend=spend_of(error).minus(kept), failure=reason_of(error))
        return Outcome(spend=(result.billed or result.spend).minus(kept))

    async def _execute(self, case: Case, lane: Lane, given: StageInput, task_id: str) -> StageReturn:
        terms = case.terms
        first, longest = (timedelta(seconds=seconds) for seconds in (terms.first, max(terms.longest, terms.first)))
        policy = retry_policy(Retries(terms.tries, first, terms.factor, longest))
        policy.non_retryable_error_types = [*(policy.non_retryable_error_types or ()), _NO_ACTIVITY]
        returned: StageReturn = await workflow.execute_activity(
            LAB_STAGE + case.stage,
            _addressed(case, given, task_id),
            result_type=StageReturn,
            task_queue=self._queue(case, lane),
            start_to_close_timeout=timedelta(seconds=terms.timeout),
            heartbeat_timeout=timedelta(seconds=terms.heartbeat) if terms.heartbeat else None,
            retry_policy=policy,
            summary=f"{case.id}: {lane.name}"[:200],
        )
        return returned


def _addressed(case: Case, given: StageInput, task_id: str) -> StageInput | Handoff:
    """Return the stage's message: a handoff of its own, or its plain input if the lab's worker has no keys."""
    if SEALS not in workflow.extern_functions():
        return given
    info = workflow.info()
    relay = Relay(LAB_RUN, task_id, str(workflow.uuid4()), HandoffTerms())
    relay.personal_data = given.personal_data
    return relay.message(
        StageSpec(case.stage, version=_ANY_VERSION, personal_data=frozenset(given.personal_data)),
        given,
        CostTracking.of(Spend(), NO_LIMIT),
        handoff_id=given.handoff_id,
        now=workflow.now(),
        audience=info.workflow_id,
        audience_run=info.first_execution_run_id,
    )


def _after(outcome: Outcome, spend: Spend, report: LabReport | None) -> Outcome:
    """Return an outcome with what another attempt cost and did."""
    report = report or LabReport()
    update = {
        "attempts": outcome.attempts + 1,
        "spend": outcome.spend + spend,
        "milliseconds": outcome.milliseconds + report.milliseconds,
        "calls": [*outcome.calls, *report.calls],
        "prompt": report.prompt or outcome.prompt,
    }
    return outcome.model_copy(update=update)
