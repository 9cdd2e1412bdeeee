"""Handoff to another pipeline: one takes an order, starts another that checks the risk, and continues with its verdict.

The message is signed by its sender, validated and recorded by its receiver, and sent again until it is answered.
"""

from datetime import timedelta

from temporalio import workflow

import baton
from baton import (
    Baton,
    BatonPatch,
    Exchange,
    Pipeline,
    Receiver,
    ReceiverRequirements,
    StageContext,
    pipeline,
    stage,
)

SOON = timedelta(minutes=5)


@stage
async def check(context: StageContext[Baton]) -> BatonPatch:
    """Decide what the risk of an order is."""
    goal = context.input("order", dict[str, object])["goal"]
    return BatonPatch(current_state=["Low risk: a known customer"], decision_log=[f"Accept: {goal}"])


@pipeline
async def order(p: Pipeline) -> object:
    """Hand the task on, and receive it back."""
    exchange = Exchange(p, agent="sales")
    checker = Receiver(f"{workflow.info().workflow_id}-risk", "risk", starts="risk")
    await exchange.hand_off(checker, "Check the risk of this order", within=SOON)
    back = await exchange.receive(ReceiverRequirements("sales", "1.0.0"), within=SOON)
    return {"checked_by": back.sender, "risk": back.state["current_state"]}


@pipeline
async def risk(p: Pipeline) -> object:
    """Receive a task, decide, and hand it back."""
    exchange = Exchange(p, agent="risk")
    received = await exchange.receive(ReceiverRequirements("risk", "1.0.0"), within=SOON)
    await p.stage(check, inputs={"order": received.state})
    sender = Receiver(received.reply_to or "", received.sender)
    return (await exchange.hand_off(sender, "Here is the verdict", within=SOON)).accepted


if __name__ == "__main__":
    print(baton.run(order, goal="Sell 200 bicycles to c-1").output)
