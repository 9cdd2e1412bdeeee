"""A pipeline that counts and measures, for the tests of metrics and traces."""

import contextlib
from decimal import Decimal

from temporalio import activity, workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError

from baton import PipelineStatus, Spend
from baton.core.costs import CostTracking, TokenSpent
from baton.core.messages import PipelineInput, StageInput, StageReturn
from baton.core.verdict import Disposition
from baton.handoff.records import Handoff, Sender, Target
from baton.handoff.relay import AgentState, build_handoff
from baton.telemetry.metrics import (
    COMPRESSED_AWAY,
    COMPRESSIONS,
    LATENCY,
    QUEUE_SECONDS,
    ROLLBACKS,
    SPENT,
    STAGE_SECONDS,
    Metrics,
    Transport,
)
from baton.wire.names import ATTRIBUTE_STATUS
from tests.patience import IN_TIME

STAGES_MEASURED = ("extract", "analyse", "score")
SPEND = Spend(micro_usd=1_500, prompt_tokens=420, completion_tokens=180)


class Measuring:
    """Activities that tell a worker's metrics of the handoffs they are given."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    @activity.defn
    async def measured(self, name: str) -> int:
        """Answer a handoff as a gate would, and count it."""
        self.metrics.handoff("ACCEPTED", "start", name)
        self.metrics.measure(LATENCY, 0.3, Transport.QUEUE, "start", name)
        self.metrics.measure(QUEUE_SECONDS, 0.002, name)
        self.metrics.measure(STAGE_SECONDS, 0.04, name)
        self.metrics.count(SPENT, name, by=SPEND.micro_usd)
        self.metrics.count(COMPRESSIONS, name)
        self.metrics.count(COMPRESSED_AWAY, name, by=7_000)
        return SPEND.micro_usd


@workflow.defn
class Measured:
    """Runs three stages, and counts a roll-back after each."""

    @workflow.run
    async def run(self) -> None:
        metrics = Metrics(workflow.metric_meter())
        metrics.begin(ROLLBACKS)
        for name in STAGES_MEASURED:
            await workflow.execute_activity("measured", name, start_to_close_timeout=IN_TIME)
            metrics.count(ROLLBACKS, Disposition.ESCALATE)


@activity.defn
async def metered(given: StageInput) -> StageReturn:
    """Cost something, or fail when told to."""
    if given.params.get("fails"):
        raise ApplicationError("as told", non_retryable=True)
    return StageReturn(stage=given.stage, seq=given.seq, spend=SPEND)


@activity.defn
async def bystander() -> None:
    """Do nothing; this is not a stage."""


@workflow.defn
class Metered:
    """Runs a successful stage, a failing one, and an activity that is not a stage."""

    @workflow.run
    async def run(self) -> None:
        members = StageInput(stage="metered", seq=1, task_id="t", baton={})
        await workflow.execute_activity(metered, members, start_to_close_timeout=IN_TIME)
        with contextlib.suppress(ActivityError):
            failing = members.model_copy(update={"params": {"fails": True}})
            await workflow.execute_activity(metered, failing, start_to_close_timeout=IN_TIME)
        await workflow.execute_activity(bystander, start_to_close_timeout=IN_TIME)


@workflow.defn
class Pending:
    """Waits as a pipeline waits whose handoff was not accepted."""

    def __init__(self) -> None:
        self.decided = False

    @workflow.run
    async def run(self) -> None:
        workflow.upsert_search_attributes(
            [SearchAttributeKey.for_keyword(ATTRIBUTE_STATUS).value_set(PipelineStatus.PENDING_HANDOFF.value)]
        )
        await workflow.wait_condition(lambda: self.decided)

    @workflow.signal
    def decide(self) -> None:
        """Decide about it."""
        self.decided = True


@activity.defn
async def traced(given: Handoff) -> StageReturn:
    """Return what it cost to read the handoff."""
    return StageReturn(stage="traced", seq=1, spend=SPEND)


def handed_on(start: PipelineInput, handoff_id: str, sender: str, receiver: str, previous: str | None) -> Handoff:
    """Return a handoff in the trace that a pipeline was started in."""
    state = AgentState(
        agent=Sender(agent_id=sender, agent_version="1.0.0", execution_id=str(workflow.uuid4())),
        task_id=str(start.task_id),
        task_description="Secret: sell the house",
        cost=CostTracking(
            cost_spent_so_far_usd=Decimal(0),
            cost_budget_remaining_usd=Decimal(1),
            token_spent=TokenSpent(prompt=0, completion=0),
        ),
        spend=Spend(),
        traceparent=str(start.traceparent),
        parent_handoff_id=previous,
    )
    target = Target(agent_type=receiver, agent_version=">=1.0.0")
    return build_handoff(state, target, [], handoff_id=handoff_id, timestamp=workflow.now())


@workflow.defn
class Traced:
    """Hands a task on twice, then on in a child pipeline, whose first handoff follows its own last one."""

    @workflow.run
    async def run(self, start: PipelineInput) -> None:
        previous = start.params.get("previous")
        sender = str(start.params.get("sender", "start"))
        handoff_id = None if previous is None else str(previous)
        for receiver in ("extract", "analyse"):
            before, handoff_id = handoff_id, str(workflow.uuid4())
            handoff = handed_on(start, handoff_id, sender, receiver, before)
            await workflow.execute_activity(traced, handoff, start_to_close_timeout=IN_TIME)
            sender = receiver
        if start.params.get("depth", 0):
            params = {"previous": handoff_id, "sender": sender}
            child = start.model_copy(update={"params": params})
            await workflow.execute_child_workflow(Traced.run, child)
