"""The registries as files, and the check of outputs against the schemas in them."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

import rfc8785
from pydantic import JsonValue, ValidationError
from pydantic_core import from_json

from baton.contract.records import OutputSchemaRef, RegistryError, UnknownSchemaError
from baton.contract.registry import AgentEntry, AgentRegistry, OutputSchema, OutputSchemas
from baton.errors import ConfigurationError, MalformedMessageError, PipelineError
from baton.handoff.store_gate import SchemaGate
from baton.wire.json_values import loads_strict
from baton.wire.text import mismatch


def output_check(schemas: OutputSchemas | None, named: str) -> Callable[[JsonValue], list[str]]:
    """Return a check that lists what is wrong with an output, for the agent that corrects it; empty if it fits."""
    if schemas is None:
        raise ConfigurationError(
            f"the stage's output is to fit {named!r}, and this worker has no output schemas; start it with "
            "BatonPlugin(WorkerParts(schemas=…)), or name a file by BATON_REGISTRY"
        )
    try:
        gate = _gate(rfc8785.dumps(schemas.find(OutputSchemaRef.parse(named))))
    except UnknownSchemaError as error:
        raise ConfigurationError(
            f"the stage's output is to fit {named!r}, which this worker does not have: {error}"
        ) from error
    except ValueError as error:
        why = str(error).partition("\n")[0]
        raise PipelineError(f"the output schema {named!r} is no JSON Schema of draft 2020-12: {why}") from None
    return lambda output: [f"output does not fit {named}: {finding.text}" for finding in gate(output)]


@lru_cache(maxsize=64)
def _gate(schema: bytes) -> SchemaGate:
    """Return the compiled gate of a schema, given as canonical JSON."""
    return SchemaGate(from_json(schema))


AGENTS_GROUP, SCHEMAS_GROUP = "baton.agents", "baton.output_schemas"
"""The groups of entry points: each names an entry, a list of entries, or a function that returns either."""

T = TypeVar("T", AgentEntry, OutputSchema)
_TABLES = {"agents", "output_schemas"}


@dataclass(frozen=True)
class Registries:
    """What a worker and its pipelines look names up in."""

    agents: AgentRegistry
    schemas: OutputSchemas


@dataclass(frozen=True)
class _Source:
    """What one source brings."""

    name: str
    agents: Sequence[AgentEntry] = ()
    schemas: Sequence[OutputSchema] = ()


def load_registries(
    *,
    agents: Iterable[AgentEntry] = (),
    schemas: Iterable[OutputSchema] = (),
    files: Iterable[Path | str] = (),
    installed: bool = False,
    latest: bool = False,
) -> Registries:
    """Return the registries, filled from all sources together."""
    sources = [_Source("code", list(agents), list(schemas)), *map(_read, map(Path, files))]
    if installed:
        sources += _installed()
    _check_once((source.name, f"agent {one.name!r} {one.version}") for source in sources for one in source.agents)
    _check_once(
        (source.name, f"output schema {one.name!r} {one.version}") for source in sources for one in source.schemas
    )
    for source in sources:
        for schema in source.schemas:
            _check_schema(source.name, schema)
    return Registries(
        AgentRegistry((one for source in sources for one in source.agents), latest=latest),
        OutputSchemas((one for source in sources for one in source.schemas), latest=latest),
    )


def _read(path: Path) -> _Source:
    """Return what a file registers."""
    tables = _tables(path)
    if not isinstance(tables, Mapping) or not tables.keys() <= _TABLES:
        found = sorted(tables.keys() - _TABLES) if isinstance(tables, Mapping) else "no object"
        raise RegistryError(f"{path}: expected `agents` and `output_schemas`, found {found}")
    agents = []
    for place, entry in _entries(path, tables, "agents"):
        try:
            agents.append(AgentEntry.model_validate(entry))
        except ValidationError as error:
            raise RegistryError(f"{path}: {place}: {mismatch(error)}") from None
    schemas = [_schema(path, place, entry) for place, entry in _entries(path, tables, "output_schemas")]
    return _Source(str(path), agents, schemas)


def _tables(path: Path) -> Any:
    """Return what is written in a TOML or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RegistryError(f"{path}: the file cannot be read: {error}") from error
    try:
        return loads_strict(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError, MalformedMessageError) as error:  # tomllib raises more than its own
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise RegistryError(f"{path}: not {kind}: {error}") from error


def _entries(path: Path, tables: Mapping[str, Any], table: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Go through the entries of a table, each with its place."""
    entries = tables.get(table, [])
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise RegistryError(f"{path}: `{table}` must be a list of tables; write [[{table}]] before each")
    yield from ((f"{table}[{number}]", one) for number, one in enumerate(entries))


def _schema(path: Path, place: str, entry: Mapping[str, Any]) -> OutputSchema:
    """Return the output schema that an entry of a file describes."""
    name, version = entry.get("name"), entry.get("version")
    given = entry.keys() - {"name", "version"}
    if not (isinstance(name, str) and name and isinstance(version, str) and version):
        raise RegistryError(f"{path}: {place}: `name` and `version` must be texts that say something")
    if given == {"file"} and isinstance(entry["file"], str):
        schema = _tables(path.parent / entry["file"])
    elif given == {"schema"}:
        schema = entry["schema"]
    else:
        raise RegistryError(f"{path}: {place}: expected either `schema` or `file`, found {sorted(given)}")
    if not isinstance(schema, Mapping):
        raise RegistryError(f"{path}: {place}: the schema of {name!r} {version} must be an object")
    return OutputSchema(name, version, schema)


def _installed() -> Iterator[_Source]:
    """Go through what the installed packages register."""
    for point in entry_points(group=AGENTS_GROUP):
        yield _Source(_named(point), agents=_loaded(point, AgentEntry))
    for point in entry_points(group=SCHEMAS_GROUP):
        yield _Source(_named(point), schemas=_loaded(point, OutputSchema))


def _loaded(point: EntryPoint, kind: type[T]) -> list[T]:
    """Return the entries that an entry point names."""
    try:
        found = point.load()
        if callable(found):
            found = found()
        entries = [found] if isinstance(found, kind) else list(found)
    except Exception as error:
        raise RegistryError(f"{_named(point)}: cannot be loaded: {type(error).__name__}: {error}") from error
    if wrong := next((one for one in entries if not isinstance(one, kind)), None):
        raise RegistryError(f"{_named(point)}: expected {kind.__name__}, found {type(wrong).__name__}")
    return entries


def _named(point: EntryPoint) -> str:
    """Return what an entry point is called in messages."""
    package = point.dist.name if point.dist else "a package"
    return f"the entry point {point.name!r} of {package} ({point.group})"


def _check_once(registered: Iterable[tuple[str, str]]) -> None:
    """Check that no two sources register the same thing."""
    seen: dict[str, str] = {}
    for source, thing in registered:
        if thing in seen:
            raise RegistryError(f"the {thing} is registered by {seen[thing]} and by {source}; register it once")
        seen[thing] = source


def _check_schema(source: str, schema: OutputSchema) -> None:
    """Check that a schema is one."""
    try:
        SchemaGate(schema.schema)
    except ValueError as error:
        raise RegistryError(
            f"{source}: the output schema {schema.name!r} {schema.version} is no JSON Schema of draft 2020-12: "
            f"{str(error)[:200]}"
        ) from None
