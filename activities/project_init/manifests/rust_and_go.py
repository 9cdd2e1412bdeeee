"""Manifests of Rust (Cargo.toml) and Go (go.mod)."""

import re
from collections.abc import Iterator
from typing import Any

from activities.project_init.parsing import Lines, UnreadableError, line_of, parse_toml, string, table
from activities.project_init.records import Dependency, DependencyGroup, EntryPoint, Evidence, Manifest

_CARGO_GROUPS: tuple[tuple[str, DependencyGroup], ...] = (
    ("dependencies", "runtime"),
    ("dev-dependencies", "development"),
    ("build-dependencies", "build"),
)
_GO_REQUIRE = re.compile(r"\s*(?:require\s+)?([\w./~-]+\.[\w./~-]+)\s+(v\S+)\s*(//\s*indirect)?")


def read_cargo_toml(path: str, text: str) -> Manifest:
    """Read a `Cargo.toml`, of a package or of a workspace."""
    data = parse_toml(text)
    lines = Lines(text)
    package = table(data, "package") or table(data, "workspace", "package")
    wanted = list(_cargo_dependencies(path, data, lines))
    wanted += _cargo_dependencies(path, table(data, "workspace"), lines)
    for target in table(data, "target").values():
        wanted += _cargo_dependencies(path, table(target), lines)
    version, edition = string(package.get("rust-version")), string(package.get("edition"))
    runtime = f"Rust >={version}" if version else f"Rust edition {edition}" if edition else ""
    return Manifest(
        path=path,
        ecosystem="rust",
        name=string(package.get("name")),
        version=string(package.get("version")),
        description=string(package.get("description")),
        license=string(package.get("license")),
        license_line=lines.of("license"),
        runtime=runtime,
        runtime_line=lines.of("rust-version") or lines.of("edition"),
        builder="cargo",
        dependencies=tuple(wanted),
        entry_points=tuple(_cargo_binaries(path, data, lines)),
    )


def _cargo_dependencies(path: str, data: dict[str, Any], lines: Lines) -> Iterator[Dependency]:
    for heading, group in _CARGO_GROUPS:
        for name, asked in table(data, heading).items():
            details = table(asked)
            where = "@" if details.get("path") or details.get("git") else ""
            version = string(asked) or string(details.get("version")) or where
            if details.get("workspace") is True:
                version = "workspace"
            evidence = Evidence(path=path, line=lines.of(name, after=heading))
            requirement = "" if version == "*" else version
            yield Dependency(name=name, requirement=requirement, group=group, evidence=evidence)


def _cargo_binaries(path: str, data: dict[str, Any], lines: Lines) -> Iterator[EntryPoint]:
    binaries = data.get("bin")
    for binary in binaries if isinstance(binaries, list) else []:
        name = string(table(binary).get("name"))
        if name:
            target = string(table(binary).get("path")) or f"src/bin/{name}.rs"
            evidence = Evidence(path=path, line=lines.of(name, after="bin"))
            yield EntryPoint(name=name, kind="binary", target=target, evidence=evidence)


def read_go_mod(path: str, text: str) -> Manifest:
    """Read a `go.mod`."""
    module = re.search(r"^module[ \t]+\"?([^\s\"]+)", text, re.MULTILINE)
    if module is None:
        raise UnreadableError("no module line")
    language = re.search(r"^go[ \t]+(\d[\w.]*)", text, re.MULTILINE)
    wanted: list[Dependency] = []
    block = ""
    for number, line in enumerate(text.split("\n"), 1):
        opened = re.match(r"\s*(require|replace|exclude|retract|tool|ignore)\s*\(", line)
        if opened:
            block = opened[1]
        elif line.strip() == ")":
            block = ""
        elif block == "require" or (not block and line.lstrip().startswith("require ")):
            found = _GO_REQUIRE.match(line)
            if found:
                group: DependencyGroup = "indirect" if found[3] else "runtime"
                evidence = Evidence(path=path, line=number)
                wanted.append(Dependency(name=found[1], requirement=found[2], group=group, evidence=evidence))
    return Manifest(
        path=path,
        ecosystem="go",
        name=module[1],
        runtime=f"Go >={language[1]}" if language else "",
        runtime_line=line_of(language),
        builder="go",
        dependencies=tuple(wanted),
    )
