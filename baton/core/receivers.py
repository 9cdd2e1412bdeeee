"""What a receiver of handoffs accepts, and which of several a handoff is for."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from baton.errors import RoutingError
from baton.wire.schemas import format_pointer
from baton.wire.versions import newest_first, satisfies

RELEASED = ("2.0",)
"""All released versions, oldest first."""
CURRENT = RELEASED[-1]
"""The version that this release of Baton writes."""


@dataclass(frozen=True)
class ReceiverRequirements:
    """An agent's requirements for a handoff: its entry in the registry of agents.

    Attributes:
        agent_type: The kind of agent; a handoff's `toAgent.agentType` names it.
        agent_version: Its version, by semver.org.
        state: The members that it needs in `currentState`, not empty: names, or JSON pointers such as `/review/score`
            and `/clauses/0`.
        expects_work: Whether a handoff without completed subtasks is a likely error.
        schema_version: The version of the message schema that it reads.

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
    def state_paths(self) -> tuple[tuple[str, str], ...]:
        """The members that it needs in `currentState`, each with its JSON pointer."""
        return tuple((name, name if name.startswith("/") else format_pointer([name])) for name in sorted(self.state))


def choose_receiver(agent_type: str, versions: str, known: Iterable[ReceiverRequirements]) -> ReceiverRequirements:
    """Return the newest known agent of a type in a range of versions."""
    agents = list(known)
    of_type = {agent.agent_version: agent for agent in agents if agent.agent_type == agent_type}
    if not of_type:
        types = sorted({agent.agent_type for agent in agents})
        similar = difflib.get_close_matches(agent_type, types, n=1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"there are {', '.join(types) or 'none'}"
        raise RoutingError(f"there is no agent {agent_type!r}; {hint}")
    matching = [version for version in newest_first(of_type) if satisfies(version, versions)]
    if not matching:
        raise RoutingError(
            f"no version of {agent_type!r} is in {versions!r}; there are {', '.join(newest_first(of_type))}"
        )
    return of_type[matching[0]]


def misdelivery(agent_type: str, version_range: str, receivers: Iterable[str], own: ReceiverRequirements) -> str | None:
    """Return why a message is not for an agent, or None if it is."""
    if agent_type != own.agent_type:
        if own.agent_type in receivers:
            return None
        return f"meant for {agent_type!r}, received by {own.agent_type!r}; send it to the agent it names"
    if not satisfies(own.agent_version, version_range):
        return (
            f"asks for {agent_type!r} {version_range!r}, received by its version {own.agent_version}; "
            "start that version, or widen the range"
        )
    return None
