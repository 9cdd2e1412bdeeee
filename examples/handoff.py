"""Handoff to another pipeline: one takes an order, starts another that checks its risk, and returns the verdict.

The sender signs the message and resends it until it is answered. The receiver validates and records it.
"""

from datetime import timedelta

from temporalio import workflow

import baton
from baton import Baton, BatonPatch, Exchange, Pipeline, Receiver, ReceiverRequirements, StageContext, pipeline, stage

TIMEOUT = timedelta(minutes=5)


@stage
async def check(context: StageContext[Baton]) -> BatonPatch:
    """Assess the risk of an order."""
    goal = context.input("order", dict[str, object])["goal"]
    return BatonPatch(current_state=["Low risk: a known customer"], decision_log=[f"Accept: {goal}"])


@pipeline
async def order(p: Pipeline) -> object:
    """Hand the order to the risk pipeline, and receive its verdict."""
    exchange = Exchange(p, agent="sales")
    checker = Receiver(f"{workflow.info().workflow_id}-risk", "risk", starts="risk")
    await exchange.hand_off(checker, "Check the risk of this order", within=TIMEOUT)
    reply = await exchange.receive(ReceiverRequirements("sales", "1.0.0"), within=TIMEOUT)
    return {"checked_by": reply.sender, "risk": reply.state["current_state"]}


@pipeline
async def risk(p: Pipeline) -> object:
    """Receive an order, assess it, and hand the verdict back."""
    exchange = Exchange(p, agent="risk")
    request = await exchange.receive(ReceiverRequirements("risk", "1.0.0"), within=TIMEOUT)
    await p.stage(check, inputs={"order": request.state})
    sender = Receiver(request.reply_to or "", request.sender)
    return (await exchange.hand_off(sender, "Here is the verdict", within=TIMEOUT)).accepted


if __name__ == "__main__":
    print(baton.run(order, goal="Sell 200 bicycles to c-1").output)
