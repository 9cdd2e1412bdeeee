"""The manifest of Node, Bun and their kin: package.json."""

from collections.abc import Iterator
from typing import Any

from activities.project_init.parsing import Lines, UnreadableError, parse_json, string, table
from activities.project_init.records import Dependency, DependencyGroup, EntryPoint, Evidence, Manifest, Script

_GROUPS: tuple[tuple[str, DependencyGroup], ...] = (
    ("dependencies", "runtime"),
    ("devDependencies", "development"),
    ("peerDependencies", "peer"),
    ("optionalDependencies", "optional"),
)


def read_package_json(path: str, text: str) -> Manifest:
    """Read a `package.json`."""
    data = parse_json(text)
    if not isinstance(data, dict):
        raise UnreadableError("not a JSON object")
    lines = Lines(text)
    node = string(table(data, "engines").get("node"))
    return Manifest(
        path=path,
        ecosystem="node",
        name=string(data.get("name")),
        version=string(data.get("version")),
        description=string(data.get("description")),
        license=string(data.get("license")) or string(table(data, "license").get("type")),
        license_line=lines.of("license"),
        runtime=f"Node.js {node}" if node else "",
        runtime_line=lines.of("node", after="engines"),
        builder=string(data.get("packageManager")).partition("@")[0],
        dependencies=tuple(_dependencies(path, data, lines)),
        entry_points=tuple(_entry_points(path, data, lines)),
        scripts=tuple(
            Script(name=name, body=string(body), evidence=Evidence(path=path, line=lines.of(name, after="scripts")))
            for name, body in table(data, "scripts").items()
        ),
    )


def _dependencies(path: str, data: dict[str, Any], lines: Lines) -> Iterator[Dependency]:
    for heading, group in _GROUPS:
        for name, version in table(data, heading).items():
            asked = string(version)
            yield Dependency(
                name=name,
                requirement="" if asked in ("*", "latest", "x") else asked,
                group=group,
                evidence=Evidence(path=path, line=lines.of(name, after=heading)),
            )


def _entry_points(path: str, data: dict[str, Any], lines: Lines) -> Iterator[EntryPoint]:
    programs = data.get("bin")
    named = {string(data.get("name")): programs} if isinstance(programs, str) else table(programs)
    for name, target in named.items():
        evidence = Evidence(path=path, line=lines.of("bin"))
        yield EntryPoint(name=name, kind="console script", target=string(target), evidence=evidence)
    main = string(data.get("main")) or string(data.get("module"))
    if main:
        evidence = Evidence(path=path, line=lines.of("main") or lines.of("module"))
        name = string(data.get("name")) or "main"
        yield EntryPoint(name=name, kind="library entry", target=main, evidence=evidence)
