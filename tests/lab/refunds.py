"""A pipeline of refunds whose model is scripted: what it decides is known by construction."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from baton import (
    Baton,
    BatonPatch,
    Pipeline,
    PipelineInput,
    Retries,
    Spend,
    StageContext,
    StageResult,
    pipeline,
    stage,
)
from baton.agents import AgentAnswer, AgentTool, AgentWork, Notes, agent_stage
from baton.client.faces import StageInput

EFFECTS: list[str] = []
"""What happened outside: sent, paid, written or signed."""


def lookup(order: int) -> dict[str, object]:
    """Return an order."""
    EFFECTS.append(f"looked up {order}")
    return {"order": order, "paid": order * 10, "late": order % 2 == 1}


def pay(order: int, amount: int) -> str:
    """Pay a refund."""
    EFFECTS.append(f"paid {amount}")
    return f"paid {amount} for {order}"


class Decider:
    """A scripted model: it looks an order up, and approves what is late, unless the candidate says otherwise."""

    name = "decide"
    lab_overrides = frozenset({"model", "prompt"})

    def __init__(self, chance: Callable[[AgentWork], bool] = lambda work: False) -> None:
        self._chance = chance

    async def run(self, work: AgentWork) -> AgentAnswer:
        order = int(work.context.params["order"])
        tools = {tool.name: tool for tool in work.tools}
        found: Any = await tools["lookup"].call({"order": order})
        model = work.overrides.model or "large"
        work.charge(Spend(micro_usd=100 if model == "small" else 1_000, prompt_tokens=50, completion_tokens=5), model)
        approve = found["late"]
        if (model == "small" and order % 8 == 7) or self._chance(work):
            approve = not approve
        if "pays itself" in work.instructions:
            await tools["pay"].call({"order": order, "amount": found["paid"]})
        amount = found["paid"] if approve else 0
        decided = f"{'Approve' if approve else 'Deny'} {amount}, because it {'is' if approve else 'is not'} late"
        verdict = "approve" if approve else "deny"
        return AgentAnswer(output={"verdict": verdict, "amount": amount}, notes=Notes(decided=[decided]))


def make_decide(agent: Any = None, stage: str = "decide", **terms: Any) -> Any:
    """Return the stage that decides."""
    tools: list[Any] = [AgentTool.of(lookup, repeatable=True), pay]
    return agent_stage(agent or Decider(), name=stage, answers=dict[str, Any], tools=tools, **terms)


decide = make_decide()
_SOON: Any = {"start_to_close_timeout": timedelta(seconds=20), "retry_policy": RetryPolicy(maximum_attempts=1)}


@stage(writes=["current_state"])
async def transfer(context: StageContext[Baton]) -> dict[str, Any]:
    """Pay what was approved; no model does it."""
    EFFECTS.append("transferred")
    return {"current_state": ["Transferred"]}


@pipeline
async def refund(p: Pipeline) -> object:
    """Decide, and pay."""
    decided = await p.stage(decide)
    await p.stage(transfer)
    return decided.output


@pipeline
async def reviewed(p: Pipeline) -> object:
    """Decide, wait a day, let a manager approve, and pay."""
    decided = await p.stage(decide)
    await p.sleep(timedelta(days=1) if p.params.get("sleeps") else timedelta(0))
    await p.approve("manager", within=timedelta(minutes=2), asks="Pay it?", shows=[decided])
    await p.stage(transfer, inputs={"decided": decided})
    return decided.output


@stage(writes=["current_state"])
async def book(context: StageContext[Baton]) -> StageResult:
    """Book a refund; the first attempt is refused, as it writes what it may not."""
    EFFECTS.append("booked")
    if context.attempt == 1:
        return StageResult(baton_patch=BatonPatch(open_questions=["Which account?"]), output="refused")
    return StageResult(baton_patch=BatonPatch(current_state=["Booked"]), output="booked")


@pipeline
async def booking(p: Pipeline) -> object:
    """Book a refund."""
    return (await p.stage(book)).output


LIMITS: list[int | None] = []
"""What each try to decide was told that it may cost."""


class Limited(Decider):
    """A decider that notes what it may cost, and heeds it only between its runs."""

    name = "try"

    async def run(self, work: AgentWork) -> AgentAnswer:
        LIMITS.append(work.limits.micro_usd)
        return await super().run(work)


tried = make_decide(Limited(), stage="try")


@pipeline
async def insisting(p: Pipeline) -> object:
    """Decide three times, whatever becomes of each."""
    for nth in range(3):
        with suppress(Exception):
            await p.stage(tried, name=f"try {nth}")
    return "decided"


once = make_decide(retries=Retries(attempts=1))


@pipeline
async def outsourced(p: Pipeline) -> object:
    """Decide on another task queue."""
    return (await p.stage(once, task_queue=str(p.params["queue"]))).output


IN_LAB = "baton.lab.transfer"
"""The name that the stage `transfer` has in the lab."""
WAYS = [
    "activity",
    "local activity",
    "child",
    "signal",
    "unheld stage",
    "stage with its own terms",
    "stage by its own name",
]
"""How a pipeline's own code may reach the outside without a stage."""


@pipeline
async def sneaking(p: Pipeline) -> object:
    """Try each way to the outside, whatever becomes of it, and say which ones opened."""
    await p.stage(decide)
    opened = []
    given = {"stage": "transfer", "seq": 9, "task_id": p.task_id, "baton": p.baton.to_json_object()}
    unheld, own = ({**given, "lab": lab} for lab in (None, {"allow": ["transfer"]}))
    tries: dict[str, Callable[[], Any]] = {
        "activity": lambda: workflow.execute_activity("send_mail", {}, **_SOON),
        "local activity": lambda: workflow.execute_local_activity("send_mail", {}, **_SOON),
        "child": lambda: workflow.execute_child_workflow("mailing", PipelineInput(goal="Mail")),
        "signal": lambda: workflow.get_external_workflow_handle(str(p.params["other"])).signal("mailed"),
        "unheld stage": lambda: workflow.execute_activity(IN_LAB, StageInput.model_validate(unheld), **_SOON),
        "stage with its own terms": lambda: workflow.execute_activity(IN_LAB, StageInput.model_validate(own), **_SOON),
        "stage by its own name": lambda: workflow.execute_activity("transfer", StageInput.model_validate(own), **_SOON),
    }
    for way, attempt in tries.items():
        try:
            await attempt()
            opened.append(way)
        except Exception:
            continue
    return {"opened": opened}


@pipeline
async def mailing(p: Pipeline) -> None:
    """Send a mail, in a child."""
    await workflow.execute_activity("send_mail", {}, **_SOON)


@workflow.defn
class Mails:
    """Send a mail; a plain workflow, which knows nothing of the lab."""

    @workflow.run
    async def run(self, start: dict[str, Any]) -> None:
        await workflow.execute_activity("send_mail", {}, **_SOON)


def chance(seed: int, rate: float) -> Callable[[AgentWork], bool]:
    """Return a coin of a rate, by the order, the handoff and a seed, for a candidate of the model `noisy`."""

    def toss(work: AgentWork) -> bool:
        if work.overrides.model != "noisy":
            return False
        drawn = hashlib.sha256(f"{seed} {work.handoff_id}".encode()).digest()
        return int.from_bytes(drawn[:4], "big") / 2**32 < rate

    return toss
