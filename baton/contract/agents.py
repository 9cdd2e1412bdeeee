"""The registry of agents: who there is, what each can do and use, and what it costs (S5-fm-e).

A contract is routed by name, so before anything is sent the name is looked up here: a receiver that nobody knows, or
that cannot do what is asked, is refused with the ones that come near (S5-fields-b).
"""

from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from baton.artifacts.records import Name
from baton.contract.errors import UnknownAgentError
from baton.contract.shelf import Shelf
from baton.contract.tool_names import tool_key, tool_keys
from baton.handoff.routing import ReceiverRequirements
from baton.wire.pricing import Price
from baton.wire.records import CompactRecord
from baton.wire.values import AgentVersion, Count
from baton.wire.versions import newest_first


def _as_set(value: Any) -> Any:
    """Read a list of names as the set that it means."""
    return frozenset(value) if isinstance(value, list | tuple | set) else value


Names = Annotated[frozenset[Name], BeforeValidator(_as_set)]
"""Names, each once; on the wire a list."""


class AgentEntry(CompactRecord):
    """An agent of the registry.

    Attributes:
        name: Its name; contracts name it as `receivingAgent`.
        version: Its version, by semver.org.
        capability: The kinds of task that it can do, for example `"compliance.review"`.
        window: How many tokens its context window holds; None if nobody said.
        price: What its model costs.
        requires: The members of the state that it needs.
        tools: The tools that it is able to use; a contract never allows others.

    Example:
        >>> AgentEntry(name="ComplianceReviewAgent", version="1.2.0", tools=["policy.search"]).tools
        frozenset({'policy.search'})
    """

    name: Name
    version: AgentVersion
    capability: Names = frozenset()
    window: Annotated[Count, Field(ge=1)] | None = None
    price: Price = Price(input=0, output=0)
    requires: Names = frozenset()
    tools: Names = frozenset()

    def requirements(self) -> ReceiverRequirements:
        """Return what the agent needs of a handoff message, for the gate that receives it."""
        return ReceiverRequirements(self.name, self.version, self.requires)


class AgentRegistry:
    """Agents by name and version; immutable.

    Args:
        entries: The agents.
        latest: Whether a name without a version means the newest one where several are registered (C-46).

    Raises:
        ValueError: Two entries have the same name and version.

    Example:
        >>> agents = AgentRegistry([AgentEntry(name="ComplianceReviewAgent", version="1.2.0")])
        >>> agents.find("ComplianceReviewAgent").version
        '1.2.0'
        >>> agents.find("ComplianceAgent")
        Traceback (most recent call last):
        baton.contract.errors.UnknownAgentError: there is no agent 'ComplianceAgent'; did you mean ...
    """

    def __init__(self, entries: Iterable[AgentEntry] = (), *, latest: bool = False) -> None:
        self._shelf: Shelf[AgentEntry] = Shelf("agent", UnknownAgentError, newest_first, latest=latest)
        for entry in entries:
            self._shelf.add(entry.name, entry.version, entry)

    @property
    def entries(self) -> list[AgentEntry]:
        """Every agent, by name, and of each name the newest first."""
        return list(self._shelf)

    def find(self, name: str, version: str | None = None) -> AgentEntry:
        """Return an agent by its exact name and version (C-46).

        Args:
            name: Its name.
            version: Its version. None takes the only one; of several the newest, if the registry allows that.

        Raises:
            UnknownAgentError: There is none, or several and no version is named.
        """
        return self._shelf.find(name, version)

    def route(
        self,
        name: str,
        version: str | None = None,
        *,
        capability: Collection[str] = (),
        tools: Collection[str] = (),
    ) -> AgentEntry:
        """Return the agent that a handoff goes to, if it can do what is asked; ask before anything is sent (S5-fm-e).

        Args:
            name: Its name.
            version: Its version, as for `find`.
            capability: The kinds of task that it has to be able to do.
            tools: The tools that it has to be able to use.

        Raises:
            UnknownAgentError: There is no such agent, or it cannot do all that; the message names who can.

        Example:
            >>> agents = AgentRegistry([AgentEntry(name="a", version="1.0.0", capability=["review"])])
            >>> agents.route("a", capability=["translate"])
            Traceback (most recent call last):
            baton.contract.errors.UnknownAgentError: the agent 'a' 1.0.0 cannot do 'translate'; no agent can
        """
        entry = self.find(name, version)
        if lack := _lacking(entry, capability, tools):
            able = [f"{one.name!r} {one.version}" for one in self.entries if not _lacking(one, capability, tools)]
            hint = f"able are {', '.join(able[:5])}" if able else "no agent can"
            raise UnknownAgentError(f"the agent {entry.name!r} {entry.version} cannot {lack}; {hint}")
        return entry


def _lacking(entry: AgentEntry, capability: Collection[str], tools: Collection[str]) -> str:
    """Return what an agent cannot do or use of what is asked; nothing, if it can."""
    undone = sorted(set(capability) - entry.capability)
    able = tool_keys(entry.tools)
    unused = sorted(tool for tool in tools if tool_key(tool) not in able)
    told = {"do": undone, "use": unused}
    return " or ".join(f"{what} {', '.join(map(repr, names))}" for what, names in told.items() if names)
