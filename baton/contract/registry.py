"""The registries of agents and output schemas, and the names of tools.

Names that look alike to a person or are one to a provider are the same tool: forbidding `git.log` also forbids
`Git_Log` and `mcp__git.log`, and the spelling with a soft hyphen or a Cyrillic letter.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator

from baton.contract.records import OutputSchemaRef, UnknownAgentError, UnknownSchemaError
from baton.wire.records import AgentVersion, CompactRecord, Name
from baton.wire.text import fold_appearance
from baton.wire.versions import newest_first

_PATTERN = re.compile(r"[*?\[\]{}|^$]")
_MCP_PREFIX = "mcp__"


@lru_cache(maxsize=4096)
def tool_key(name: str) -> str:
    """Return the key by which tool names are compared: the letters and digits that a reader sees, without `mcp__`."""
    folded = fold_appearance(name).strip()
    return "".join(filter(str.isalnum, folded.removeprefix(_MCP_PREFIX))) or folded


def tool_keys(names: Iterable[str]) -> frozenset[str]:
    """Return the keys of tool names."""
    return frozenset(map(tool_key, names))


def tool_set(
    names: Iterable[str], list_name: str, known_tools: Iterable[str] = (), *, complete: bool = False
) -> frozenset[str]:
    """Return tool names as a set; reject strings, patterns, blank names and likely misspellings of known tools.

    Args:
        names: The names.
        list_name: What they are, for messages.
        known_tools: Tools that exist.
        complete: Whether no others exist, so that any other name is an error.
    """
    if isinstance(names, str):
        raise TypeError(f"{list_name}={names!r} is one string; write {list_name}=frozenset({{{names!r}}})")
    tools = frozenset(names)
    known = {tool_key(tool): tool for tool in sorted(known_tools)}
    for name in sorted(tools, key=str):
        if not isinstance(name, str):
            raise TypeError(f"{list_name}: {name!r} is not a tool name; expected a string")
        if not name.strip():
            raise ValueError(f"{list_name}: {name!r} is blank; expected a tool name")
        if _PATTERN.search(name):
            raise ValueError(f"{list_name}: {name!r} is a pattern; list each tool by name")
        key = tool_key(name)
        matches = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
        if key not in known and (matches or complete):
            hint = f"did you mean {known[matches[0]]!r}?" if matches else f"there are {_name_some(known.values())}"
            raise ValueError(f"{list_name}: there is no tool {name!r}; {hint}")
    return tools


def check_distinct_tools(names: Iterable[str], list_name: str) -> None:
    """Raise `ValueError` for two names of one tool, between which no contract could tell."""
    spellings: dict[str, str] = {}
    for name in sorted(names):
        if (other := spellings.setdefault(tool_key(name), name)) != name:
            raise ValueError(f"{list_name}: {other!r} and {name!r} are the same name of a tool; rename one")


T = TypeVar("T")
_MAX_NAMED = 5


def _name_some(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    ordered = sorted(names)
    omitted = f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    return ", ".join(ordered[:_MAX_NAMED]) + omitted if ordered else "none"


class Registry(Generic[T]):
    """Items of one kind, by name and version."""

    def __init__(
        self,
        kind: str,
        error: type[Exception],
        newest_first: Callable[[Iterable[str]], list[str]],
        *,
        latest: bool = False,
    ) -> None:
        self._kind = kind
        self._error = error
        self._newest_first = newest_first
        self._latest = latest
        self._items: dict[str, dict[str, T]] = {}

    def add(self, name: str, version: str, item: T) -> None:
        """Register an item."""
        versions = self._items.setdefault(name, {})
        if version in versions:
            raise ValueError(f"the {self._kind} {name!r} {version} is registered twice; register it once")
        versions[version] = item

    def find(self, name: str, version: str | None) -> T:
        """Return the item with this exact name and version."""
        if name not in self._items:
            matches = difflib.get_close_matches(name, self._items, n=3)
            available = _name_some(self._items)
            hint = f"did you mean {' or '.join(map(repr, matches))}?" if matches else f"there are {available}"
            raise self._error(f"there is no {self._kind} {name!r}; {hint}")
        versions = self._items[name]
        ordered = self._newest_first(versions)
        if version is None and (len(versions) == 1 or self._latest):
            return versions[ordered[0]]
        if version is None or version not in versions:
            problem = "several versions and none is named" if version is None else f"no version {version!r}"
            raise self._error(f"of the {self._kind} {name!r} there is {problem}; there are {', '.join(ordered)}")
        return versions[version]

    def __iter__(self) -> Iterator[T]:
        """Yield all items by name, newest version first."""
        for _, versions in sorted(self._items.items()):
            for version in self._newest_first(versions):
                yield versions[version]


def _parse_set(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list | tuple | set) else value


Names = Annotated[frozenset[Name], BeforeValidator(_parse_set)]
"""A set of names; in JSON a list."""


class AgentEntry(CompactRecord):
    """A registered agent; a contract never allows other tools than its own."""

    name: Name
    version: AgentVersion
    capability: Names = frozenset()
    tools: Names = frozenset()


class AgentRegistry:
    """Agents by name and version; immutable."""

    def __init__(self, entries: Iterable[AgentEntry] = (), *, latest: bool = False) -> None:
        self._agents: Registry[AgentEntry] = Registry("agent", UnknownAgentError, newest_first, latest=latest)
        for entry in entries:
            self._agents.add(entry.name, entry.version, entry)

    @property
    def entries(self) -> list[AgentEntry]:
        """All agents by name, newest version first."""
        return list(self._agents)

    def find(self, name: str, version: str | None = None) -> AgentEntry:
        """Return the agent with this exact name and version."""
        return self._agents.find(name, version)

    def route(
        self,
        name: str,
        version: str | None = None,
        *,
        capability: Collection[str] = (),
        tools: Collection[str] = (),
    ) -> AgentEntry:
        """Return the agent with this name if it has the capabilities and tools, else raise `UnknownAgentError`."""
        entry = self.find(name, version)
        if missing := _find_missing(entry, capability, tools):
            capable = [
                f"{other.name!r} {other.version}"
                for other in self.entries
                if not _find_missing(other, capability, tools)
            ]
            hint = f"{', '.join(capable[:5])} can" if capable else "no agent can"
            raise UnknownAgentError(f"the agent {entry.name!r} {entry.version} cannot {missing}; {hint}")
        return entry


def _find_missing(entry: AgentEntry, capability: Collection[str], tools: Collection[str]) -> str:
    """Describe the capabilities and tools that an agent lacks; empty if none."""
    missing_capabilities = sorted(set(capability) - entry.capability)
    known_tools = tool_keys(entry.tools)
    missing_tools = sorted(tool for tool in tools if tool_key(tool) not in known_tools)
    missing = {"do": missing_capabilities, "use": missing_tools}
    return " or ".join(f"{verb} {', '.join(map(repr, names))}" for verb, names in missing.items() if names)


@dataclass(frozen=True)
class OutputSchema:
    """A registered output schema.

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

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Mapping):
            raise TypeError(
                f"the schema of {self.name!r} is {self.schema!r}; expected a JSON Schema as a dict. Of a model, "
                "make it with OutputSchema.of(Model, version)"
            )

    @classmethod
    def of(cls, record_type: type[BaseModel], version: str, name: str | None = None) -> "OutputSchema":
        """Return the schema of a pydantic model."""
        return cls(name or record_type.__name__, version, record_type.model_json_schema(mode="validation"))

    def ref(self) -> OutputSchemaRef:
        """Return the reference for contracts."""
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
        self._latest = latest
        self._schemas: Registry[OutputSchema] = Registry(
            "output schema", UnknownSchemaError, _newest_first, latest=latest
        )
        for schema in schemas:
            self._schemas.add(schema.name, schema.version, schema)

    @property
    def schemas(self) -> list[OutputSchema]:
        """All schemas by name, newest version first."""
        return list(self._schemas)

    def including(self, schemas: Iterable[OutputSchema]) -> "OutputSchemas":
        """Return a registry that has these schemas as well."""
        further = [schema for schema in schemas if schema not in self.schemas]
        return OutputSchemas([*self.schemas, *further], latest=self._latest) if further else self

    def find(self, ref: OutputSchemaRef) -> dict[str, Any]:
        """Return the JSON Schema of this exact version."""
        return deepcopy(dict(self._schemas.find(ref.schema_name, ref.version).schema))

    def ref(self, name: str, version: str | None = None) -> OutputSchemaRef:
        """Return the reference to a registered schema."""
        return self._schemas.find(name, version).ref()


def _newest_first(versions: Iterable[str]) -> list[str]:
    """Sort versions such as 1.2 and 1.10, highest first."""

    def numbers(version: str) -> tuple[list[int], str]:
        return [int(part) for part in re.findall(r"[0-9]+", version)[:8]], version

    return sorted(versions, key=numbers, reverse=True)
