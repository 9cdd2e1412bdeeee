"""Pipelines that ask people."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import HandoffTerms, Pipeline, pipeline
from baton.core.pending import PendingHandoff
from baton.core.verdict import Disposition

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel

REFUSED = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
"""The handoff about which `asks_about_a_handoff` asks."""
LONG = "A clause of the contract. " * 400


class Terms(BaseModel):
    """The answer of an approval."""

    limit: int


@pipeline
async def asks_two(p: Pipeline) -> object:
    """Ask two people for one answer."""
    decided = await p.approve(
        "release manager", within=timedelta(minutes=2), asks="Publish?", shows=[LONG], answer=Terms, needs=2
    )
    return decided.who


@pipeline
async def asks_one(p: Pipeline) -> object:
    """Ask one person."""
    decided = await p.approve("release manager", within=timedelta(minutes=2), asks="Publish?")
    return [decided.who, decided.via]


@pipeline
async def asks_many(p: Pipeline) -> object:
    """Ask many things at once, the nearest deadline last."""
    titles = [f"person {number}" for number in range(8)]
    deadlines = [timedelta(minutes=3) - timedelta(seconds=number) for number in range(8)]
    asking = [p.approve(title, within=within, asks=LONG[:800]) for title, within in zip(titles, deadlines, strict=True)]
    decided = await asyncio.gather(*asking)
    return [answer.who for answer in decided]


@pipeline
async def asks_about_a_handoff(p: Pipeline) -> object:
    """Ask a person about a handoff that another pipeline refused."""
    within = timedelta(minutes=2)
    pending = PendingHandoff(
        handoff_id=REFUSED,
        sender="legal",
        receiver="finance",
        fate=Disposition.ESCALATE,
        details="refused",
    )
    return (await p.ask(pending, within)).choice


@pipeline(handoffs=HandoffTerms(needs=2, who=["ann", "bob", "carol"]))
async def asks_two_about_a_handoff(p: Pipeline) -> object:
    """Ask two people about a handoff."""
    pending = PendingHandoff(
        handoff_id="h", sender="legal", receiver="finance", fate=Disposition.ESCALATE, details="refused"
    )
    settled = await p.ask(pending, timedelta(minutes=2))
    return [settled.choice, settled.who, settled.via]


@pipeline
async def asks_on_and_on(p: Pipeline) -> object:
    """Ask about eight handoffs in turn; return what the next run would get of the answers."""
    for _ in range(8):
        pending = PendingHandoff(
            handoff_id=str(workflow.uuid4()),
            sender="legal",
            receiver="finance",
            fate=Disposition.ESCALATE,
            details="refused",
        )
        await p.ask(pending, timedelta(minutes=2))
    carried: dict[str, Any] = p._handoffs.carried()
    return sorted(name for name in carried if carried[name])


PIPELINES = [asks_two, asks_one, asks_many, asks_about_a_handoff, asks_on_and_on, asks_two_about_a_handoff]
