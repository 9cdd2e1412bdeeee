"""What the compliance agent asks a model, and what may be taken from its answer.

A model reads the contract, as `context.prompt` shows it inside the data fence, and what the rules made of it. It may
add concerns, each with the facts that it rests on, and so hold an e-mail back for a person. It can clear nothing, so a
fact that talks a model into consent gains nothing by it.
"""

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.compliance_review.chat import Consultation
from activities.compliance_review.records import ComplianceDecision, Concern

_MOST = 10
_TASK = (
    "A proposed e-mail was checked against a policy, by the facts of the handoff contract. Name what a person should "
    "look at before it is sent and the outcomes do not say, each with the event ids of the facts it rests on. If there "
    "is nothing, answer with an empty list."
)


class Doubt(BaseModel):
    """A concern as a model states it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str = Field(min_length=1, max_length=300)
    facts: list[str]


class Concerns(BaseModel):
    """What a model answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    concerns: list[Doubt]


async def concerns_of(talk: Consultation, decision: ComplianceDecision, facts: dict[str, str]) -> tuple[Concern, ...]:
    """Return a model's concerns that rest on facts, the first ten.

    Args:
        talk: The talk with the model.
        decision: What the rules decided.
        facts: The sentences that it may rest on, by event.

    Raises:
        ModelAnswerError: The answer is not what was asked for.
        ModelUnavailableError: Another attempt may help.
        ModelRefusedError: None will.
    """
    outcomes: list[JsonValue] = [one.model_dump(mode="json") for one in decision.outcomes]
    told: dict[str, JsonValue] = dict(facts)
    answer = await talk.ask(_TASK, {"outcomes": outcomes, "facts": told}, Concerns)
    return tuple(
        Concern(text=" ".join(one.text.split()), facts=tuple(one.facts), by=talk.model.name)
        for one in answer.concerns
        if one.facts and set(one.facts) <= facts.keys()
    )[:_MOST]
