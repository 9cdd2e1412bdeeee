"""What the manifests of a project declare: Python, Node, Rust and Go, each read by its format's own library."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from activities.project_init.files import SourceTree
from activities.project_init.records import Dependency, EntryPoint, Evidence, Manifest

Group = Any  # one of the groups of `Dependency`

_MOST_MANIFESTS = 200
_REQUIREMENTS = re.compile(r"((requirements|constraints)[\w.-]*|requirements/[\w.-]+)\.txt")
_GO_REQUIRE = re.compile(r"^\s*(?:require\s+)?([\w.-]+\.[\w./~-]+)\s+(v[\w.+-]+)(\s*//\s*indirect)?", re.MULTILINE)
_WORD = re.compile(r"[\w.@/-]+")
_DEVELOPMENT = re.compile(r"(?i)dev|test|lint|doc|type")


@dataclass(frozen=True)
class Source:
    """A manifest's file: its text, and where things are in it."""

    path: str
    text: str

    @cached_property
    def _places(self) -> tuple[dict[str, int], dict[str, int]]:
        """The first line that starts with each word, and the first that has it."""
        starts, anywhere = dict[str, int](), dict[str, int]()
        for number, line in enumerate(self.text.split("\n"), 1):
            words = _WORD.findall(line)
            for word in words:
                anywhere.setdefault(word, number)
            starts.setdefault(words[0] if words else "", number)
        return starts, anywhere

    def at(self, word: str) -> Evidence:
        """Return the first line that starts with a word, else the first that has it; the file if no line has it."""
        starts, anywhere = self._places
        return Evidence(path=self.path, line=starts.get(word) or anywhere.get(word))

    def dependency(self, name: str, requirement: object, group: Group = "runtime") -> Dependency:
        """Return a dependency by its name and the version that is asked for."""
        wanted = requirement if isinstance(requirement, str) else ""
        if isinstance(requirement, Mapping) and isinstance(requirement.get("version"), str):
            wanted = str(requirement["version"])
        return Dependency(name=name, requirement="" if wanted == "*" else wanted, group=group, evidence=self.at(name))


def read_manifests(tree: SourceTree) -> tuple[Manifest, ...]:
    """Return every manifest that speaks for the project itself; one that cannot be read says why in `problem`."""
    paths = tree.named(*_READERS)
    paths += [path for path in tree.by_path if _REQUIREMENTS.fullmatch(path)]
    return tuple(
        manifest
        for path in paths[:_MOST_MANIFESTS]
        if (text := tree.text(path)) is not None and (manifest := _read(Source(path, text))) is not None
    )


def _read(source: Source) -> Manifest | None:
    reader = _READERS.get(source.path.rpartition("/")[2], _requirements)
    try:
        return reader(source)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        ecosystem = _ECOSYSTEMS.get(reader, "python")
        return Manifest(path=source.path, ecosystem=ecosystem, problem=" ".join(str(error).split())[:200])


def _pyproject(source: Source) -> Manifest | None:
    data = tomllib.loads(source.text)
    project, poetry = _table(data, "project"), _table(data, "tool", "poetry")
    if not project and not poetry and "build-system" not in data:
        return None  # settings of tools only
    name = str(project.get("name") or poetry.get("name") or "")
    scripts = _table(project, "scripts") or _table(poetry, "scripts")
    license = project.get("license", poetry.get("license", ""))
    dependencies = [*_pep_621(source, data), *_poetry(source, poetry)]
    python = project.get("requires-python") or _table(poetry, "dependencies").get("python") or ""
    return Manifest(
        path=source.path,
        ecosystem="python",
        name=name,
        description=_line(project.get("description") or poetry.get("description")),
        license=_line(license.get("text") if isinstance(license, Mapping) else license),
        runtime=f"Python {python}".strip() if python else "",
        dependencies=tuple(each for each in dependencies if each.name.lower() not in ("python", name.lower())),
        entry_points=tuple(
            EntryPoint(name=script, kind="console script", target=str(target), evidence=source.at(script))
            for script, target in scripts.items()
        ),
    )


def _pep_621(source: Source, data: Mapping[str, Any]) -> Iterator[Dependency]:
    """Yield the dependencies of `[project]`, `[build-system]` and `[dependency-groups]`."""
    project = _table(data, "project")
    groups: list[tuple[Group, object]] = [
        ("runtime", project.get("dependencies")),
        ("build", _table(data, "build-system").get("requires")),
    ]
    groups += [("optional", wanted) for wanted in _table(project, "optional-dependencies").values()]
    groups += [("development", wanted) for wanted in _table(data, "dependency-groups").values()]
    for group, wanted in groups:
        for each in wanted if isinstance(wanted, list) else ():
            if isinstance(each, str) and (found := _required(source, each, group)):
                yield found


def _poetry(source: Source, poetry: Mapping[str, Any]) -> Iterator[Dependency]:
    groups = {name: _table(group, "dependencies") for name, group in _table(poetry, "group").items()}
    for name, wanted in {"": _table(poetry, "dependencies"), **groups}.items():
        for package, requirement in wanted.items():
            yield source.dependency(package, requirement, "development" if name else "runtime")


def _required(source: Source, line: str, group: Group) -> Dependency | None:
    """Return a requirement as PEP 508 writes it; None for anything else, such as an option or a path."""
    try:
        wanted = Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:
        return None
    return source.dependency(wanted.name, str(wanted.specifier) or (wanted.url or ""), group)


def _requirements(source: Source) -> Manifest:
    group = "development" if _DEVELOPMENT.search(source.path) else "runtime"
    lines = [line.rstrip("\\ ") for line in source.text.split("\n") if not line.startswith(("#", " ", "\t", "-"))]
    found = [each for line in lines if (each := _required(source, line, group))]
    is_compiled = "--hash=sha256:" in source.text or "# via" in source.text
    return Manifest(
        path=source.path,
        ecosystem="python",
        pinned=is_compiled,
        dependencies=() if is_compiled else tuple(found),
    )


def _package_json(source: Source) -> Manifest:
    data = _table({"": json.loads(source.text)}, "")
    groups = {"dependencies": "runtime", "devDependencies": "development", "optionalDependencies": "optional"}
    bins = data.get("bin")
    bins = {str(data.get("name", "")): bins} if isinstance(bins, str) else _table(data, "bin")
    engine = _table(data, "engines").get("node")
    return Manifest(
        path=source.path,
        ecosystem="node",
        name=str(data.get("name", "")),
        description=_line(data.get("description")),
        license=_line(data.get("license")),
        runtime=f"Node {engine}" if engine else "",
        dependencies=tuple(
            source.dependency(name, wanted, group)
            for key, group in groups.items()
            for name, wanted in _table(data, key).items()
        ),
        entry_points=tuple(
            EntryPoint(name=name, kind="binary", target=str(target), evidence=source.at("bin"))
            for name, target in bins.items()
        ),
        scripts={name: body for name, body in _table(data, "scripts").items() if isinstance(body, str)},
    )


def _cargo(source: Source) -> Manifest:
    data = tomllib.loads(source.text)
    package = _table(data, "package") or _table(data, "workspace", "package")
    groups = {"dependencies": "runtime", "dev-dependencies": "development", "build-dependencies": "build"}
    runtime = package.get("rust-version")
    return Manifest(
        path=source.path,
        ecosystem="rust",
        name=_line(package.get("name")),
        description=_line(package.get("description")),
        license=_line(package.get("license")),
        runtime=f"Rust {runtime}" if isinstance(runtime, str) else "",
        dependencies=tuple(
            source.dependency(name, wanted, group)
            for key, group in groups.items()
            for name, wanted in _table(data, key).items()
        ),
        entry_points=tuple(
            EntryPoint(
                name=str(binary["name"]),
                kind="binary",
                target=str(binary.get("path", "")),
                evidence=source.at(str(binary["name"])),
            )
            for binary in data.get("bin", ())
            if isinstance(binary, Mapping) and "name" in binary
        ),
    )


def _go_mod(source: Source) -> Manifest:
    module = re.search(r"^module\s+(\S+)", source.text, re.MULTILINE)
    version = re.search(r"^go\s+([\d.]+)", source.text, re.MULTILINE)
    return Manifest(
        path=source.path,
        ecosystem="go",
        name=module[1] if module else "",
        runtime=f"Go {version[1]}" if version else "",
        dependencies=tuple(
            source.dependency(name, wanted)
            for name, wanted, indirect in _GO_REQUIRE.findall(source.text)
            if not indirect
        ),
    )


_READERS: dict[str, Callable[[Source], Manifest | None]] = {
    "pyproject.toml": _pyproject,
    "package.json": _package_json,
    "Cargo.toml": _cargo,
    "go.mod": _go_mod,
}
_ECOSYSTEMS: dict[Any, Any] = {_package_json: "node", _cargo: "rust", _go_mod: "go"}


def _table(data: object, *names: str) -> Mapping[str, Any]:
    """Return a table within a table; an empty one if it is missing or something else."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _line(value: object) -> str:
    """Return a text on one line; anything else as an empty one."""
    return " ".join(value.split())[:300] if isinstance(value, str) else ""
