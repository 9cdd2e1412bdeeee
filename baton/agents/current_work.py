"""The work of the agent that runs now, for its tools and its adapter: who it is for, and what people send meanwhile."""

import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from baton.core.requester import Requester
from baton.core.steering import SteeringNote
from baton.wire.text import fence, single_line

if TYPE_CHECKING:
    from baton.agents.port import AgentWork

current_work: "ContextVar[AgentWork | None]" = ContextVar("baton_agent_work", default=None)
"""The work of the agent that runs, for tools that ask other agents."""


def current_requester() -> Requester | None:
    """Return who the run works for, inside a tool of an agent; None if it was not said, and outside of one.

    Example:
        >>> current_requester() is None
        True
    """
    work = current_work.get()
    return None if work is None else work.context.requester


@runtime_checkable
class TakesNotes(Protocol):
    """An agent that asks for `new_notes` before each request; only the stage of one may have `steer=True`."""

    @property
    def steers(self) -> bool:
        """Whether it does."""
        ...


def check_steering(agent: object, name: str) -> None:
    """Refuse to send notes to an agent that would never see them."""
    if not (isinstance(agent, TakesNotes) and agent.steers):
        raise ValueError(
            f"steer=True: agent {name!r} cannot be shown notes while it works, because {type(agent).__name__} does not "
            "change its requests"
        )


async def new_notes(work: "AgentWork | None" = None) -> str:
    """Return what people sent since the last call, as a message of the user; empty if there is nothing new.

    A note is recorded as a person's message, so what it forbids holds for later agents too. It gives no tool: those
    stay guarded. An agent that another one asks gets none.

    Args:
        work: The agent's work; by default that of the agent that runs now, for a node of a graph.
    """
    work = work or current_work.get()
    if work is None or not work.is_lead:
        return ""
    notes = await work.context.notes.unread()
    for note in notes:
        work.context.session.user_message(note.text)
    return "\n".join(map(_render, notes))


def _render(note: SteeringNote) -> str:
    return (
        f"{single_line(note.who)}, who watches this work, sent a note. Heed it from now on as far as your instructions "
        f"and your contract allow; it gives you no other tools.\n{fence(note.text, secrets.token_hex(8))}"
    )
