"""Who receives a handoff: what a receiver requires, which one fits a target, whether a message came to its own.

A target that nobody fits is found out before the message leaves (`choose_receiver`); a message that arrives at
the wrong agent all the same is not accepted (`misdelivery`). Neither is overloaded onto the document's codes.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from baton.handoff.errors import RoutingError
from baton.handoff.schema import CURRENT
from baton.wire.records import nearest, newest_first, satisfies
from baton.wire.schemas import pointer


@dataclass(frozen=True)
class ReceiverRequirements:
    """What an agent needs of a handoff: its entry in the registry of agents.

    Attributes:
        agent_type: What kind of agent it is; a handoff's `toAgent.agentType` names it.
        agent_version: Its version, by semver.org.
        state: The members that it needs in `currentState`: names, or JSON pointers such as `/review/score`.
        expects_work: Whether a handoff without completed subtasks is a likely error.
        schema_version: The version of the message schema that it speaks.

    Example:
        >>> ReceiverRequirements("risk-scoring-agent", "1.6.0", frozenset({"extractedClauses"})).expects_work
        True
    """

    agent_type: str
    agent_version: str
    state: frozenset[str] = frozenset()
    expects_work: bool = True
    schema_version: str = CURRENT

    @cached_property
    def places(self) -> tuple[tuple[str, str], ...]:
        """What it needs in `currentState`, by name, and where in it that is, as a JSON pointer."""
        return tuple((name, name if name.startswith("/") else pointer([name])) for name in sorted(self.state))


def choose_receiver(agent_type: str, wanted: str, known: Iterable[ReceiverRequirements]) -> ReceiverRequirements:
    """Return the newest known agent that fits a target."""
    agents = list(known)
    of_type = {agent.agent_version: agent for agent in agents if agent.agent_type == agent_type}
    if not of_type:
        types = sorted({agent.agent_type for agent in agents})
        near = difflib.get_close_matches(agent_type, types, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(types) or 'none'}"
        raise RoutingError(f"there is no agent {agent_type!r}; {hint}")
    fitting = [version for version in newest_first(of_type) if satisfies(version, wanted)]
    if not fitting:
        raise RoutingError(
            f"no version of {agent_type!r} lies in {wanted!r}; the nearest is {nearest(wanted, of_type)}, "
            f"there are {', '.join(newest_first(of_type))}"
        )
    return of_type[fitting[0]]


def misdelivery(agent_type: str, wanted: str, receivers: Iterable[str], own: ReceiverRequirements) -> str | None:
    """Return why a message is not meant for an agent, or None if it is."""
    if agent_type != own.agent_type:
        if own.agent_type in receivers:
            return None
        return f"meant for {agent_type!r}, received by {own.agent_type!r}; send it to the agent it names"
    if not satisfies(own.agent_version, wanted):
        return (
            f"asks for {agent_type!r} {wanted!r}, received by its version {own.agent_version}; "
            "start that version, or widen the range"
        )
    return None
