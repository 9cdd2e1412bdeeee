"""A pipeline that asks people in every way that a test decides."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from baton import ApprovalDeniedError, Pipeline, pipeline


class Headline(BaseModel):
    """The form of an editor."""

    headline: str


WAYS: dict[str, dict[str, Any]] = {
    "open": {},
    "two": {"needs": 2},
    "named": {"needs": 2, "who": ["ann", "bob", "cem"]},
    "form": {"answer": Headline},
    "forms": {"answer": Headline, "needs": 2},
    "three": {"answer": Headline, "needs": 3},
}


@pipeline
async def asked(p: Pipeline) -> object:
    """Ask twice, and return who decided what."""
    told = []
    for _ in range(2):
        try:
            decided = await p.approve("ed", within=timedelta(days=1), shows=["a draft"], **WAYS[str(p.params["how"])])
        except ApprovalDeniedError:
            told.append("denied")
        else:
            told.append(decided.who + (f": {decided.answer_as(Headline).headline}" if decided.data else ""))
    return told
