"""The registries of agents and output schemas, and the names of tools.

Two spellings that a reader takes for the same tool are the same tool: a list that forbids `email.send` is worth nothing
if `Email.Send` passes it, nor if it can match no tool at all.
"""

import difflib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator

from baton.contract.records import OutputSchemaRef, UnknownAgentError, UnknownSchemaError
from baton.wire.records import AgentVersion, CompactRecord, Name, newest_first

_PATTERN = re.compile(r"[*?\[\]{}|^$]")


@lru_cache(maxsize=4096)
def tool_key(name: str) -> str:
    """Return what a tool's name is compared by: without case, outer blanks and compatibility forms."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def tool_keys(names: Iterable[str]) -> frozenset[str]:
    """Return the keys of several names."""
    return frozenset(map(tool_key, names))


def tool_set(names: Iterable[str], what: str, known: Iterable[str] = ()) -> frozenset[str]:
    """Return names of tools as a set, after checking that each can be the name of a tool."""
    if isinstance(names, str):
        raise TypeError(f"{what}={names!r} is one string; write {what}=frozenset({{{names!r}}})")
    found = frozenset(names)
    keys = tool_keys(known)
    for name in sorted(found, key=str):
        if not isinstance(name, str):
            raise TypeError(f"{what}: {name!r} is not the name of a tool; expected a string")
        if not name.strip():
            raise ValueError(f"{what}: {name!r} is blank; write the name of a tool")
        if _PATTERN.search(name):
            raise ValueError(f"{what}: {name!r} is a pattern; tools are listed by name: name each of them")
        near = difflib.get_close_matches(tool_key(name), keys, n=1, cutoff=0.85)
        if near and tool_key(name) not in keys:
            raise ValueError(f"{what}: there is no tool {name!r}; did you mean {near[0]!r}?")
    return found


T = TypeVar("T")
_NAMED = 5


class Shelf(Generic[T]):
    """Things of one kind by name and version."""

    def __init__(
        self,
        what: str,
        error: type[Exception],
        newest_first: Callable[[Iterable[str]], list[str]],
        *,
        latest: bool = False,
    ) -> None:
        self._what = what
        self._error = error
        self._newest_first = newest_first
        self._latest = latest
        self._things: dict[str, dict[str, T]] = {}

    def add(self, name: str, version: str, thing: T) -> None:
        """Put a thing in."""
        versions = self._things.setdefault(name, {})
        if version in versions:
            raise ValueError(f"the {self._what} {name!r} {version} is registered twice; register it once")
        versions[version] = thing

    def find(self, name: str, version: str | None) -> T:
        """Return the thing of exactly that name and version."""
        if name not in self._things:
            near = difflib.get_close_matches(name, self._things, n=3)
            known = sorted(self._things)
            more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
            there = ", ".join(known[:_NAMED]) + more if known else "none"
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {there}"
            raise self._error(f"there is no {self._what} {name!r}; {hint}")
        versions = self._things[name]
        ordered = self._newest_first(versions)
        if version is None and (len(versions) == 1 or self._latest):
            return versions[ordered[0]]
        if version is None or version not in versions:
            wanted = "several versions and none is named" if version is None else f"no version {version!r}"
            raise self._error(f"of the {self._what} {name!r} there is {wanted}; there are {', '.join(ordered)}")
        return versions[version]

    def __iter__(self) -> Iterator[T]:
        """Go through all, by name, and of each name the newest first."""
        for _, versions in sorted(self._things.items()):
            for version in self._newest_first(versions):
                yield versions[version]


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
        tools: The tools that it is able to use; a contract never allows others.
    """

    name: Name
    version: AgentVersion
    capability: Names = frozenset()
    tools: Names = frozenset()


class AgentRegistry:
    """Agents by name and version; immutable."""

    def __init__(self, entries: Iterable[AgentEntry] = (), *, latest: bool = False) -> None:
        self._shelf: Shelf[AgentEntry] = Shelf("agent", UnknownAgentError, newest_first, latest=latest)
        for entry in entries:
            self._shelf.add(entry.name, entry.version, entry)

    @property
    def entries(self) -> list[AgentEntry]:
        """Every agent, by name, and of each name the newest first."""
        return list(self._shelf)

    def find(self, name: str, version: str | None = None) -> AgentEntry:
        """Return an agent by its exact name and version."""
        return self._shelf.find(name, version)

    def route(
        self,
        name: str,
        version: str | None = None,
        *,
        capability: Collection[str] = (),
        tools: Collection[str] = (),
    ) -> AgentEntry:
        """Return the agent that a handoff goes to, if it can do what is asked; ask before anything is sent."""
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


@dataclass(frozen=True)
class OutputSchema:
    """A registered shape of an output.

    Attributes:
        name: Its name.
        version: Its version, for example `"1.2"`.
        schema: The JSON Schema, draft 2020-12.

    Example:
        >>> class Decision(BaseModel):
        ...     approved: bool
        >>> OutputSchema.of(Decision, "1.2").ref()
        OutputSchemaRef(schema_name='Decision', version='1.2')
    """

    name: str
    version: str
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, kind: type[BaseModel], version: str, name: str | None = None) -> "OutputSchema":
        """Return the shape of a record."""
        return cls(name or kind.__name__, version, kind.model_json_schema(mode="validation"))

    def ref(self) -> OutputSchemaRef:
        """Return what a contract refers to it by."""
        return OutputSchemaRef(schema_name=self.name, version=self.version)


class OutputSchemas:
    """Output schemas by name and version; immutable.

    Example:
        >>> schemas = OutputSchemas([OutputSchema("ComplianceDecisionV1", "1.2", {"type": "object"})])
        >>> schemas.find(OutputSchemaRef.parse("ComplianceDecisionV1@1.2"))
        {'type': 'object'}
        >>> schemas.find(OutputSchemaRef.parse("ComplianceDecisionV1@1.3"))
        Traceback (most recent call last):
        baton.contract.records.UnknownSchemaError: of the output schema 'ComplianceDecisionV1' there is no ...
    """

    def __init__(self, schemas: Iterable[OutputSchema] = (), *, latest: bool = False) -> None:
        self._shelf: Shelf[OutputSchema] = Shelf("output schema", UnknownSchemaError, _newest_first, latest=latest)
        for schema in schemas:
            self._shelf.add(schema.name, schema.version, schema)

    @property
    def schemas(self) -> list[OutputSchema]:
        """Every schema, by name, and of each name the newest first."""
        return list(self._shelf)

    def find(self, ref: OutputSchemaRef) -> dict[str, Any]:
        """Return the JSON Schema that a contract refers to, exactly that version."""
        return deepcopy(dict(self._shelf.find(ref.schema_name, ref.version).schema))

    def ref(self, name: str, version: str | None = None) -> OutputSchemaRef:
        """Return the reference to a registered schema."""
        return self._shelf.find(name, version).ref()


def _newest_first(versions: Iterable[str]) -> list[str]:
    """Return versions such as 1.2 and 1.10 with the highest numbers first."""

    def numbers(version: str) -> tuple[list[int], str]:
        return [int(part) for part in re.findall(r"[0-9]+", version)[:8]], version

    return sorted(versions, key=numbers, reverse=True)
