"""Python's manifests: pyproject.toml (PEP 621, PEP 735, Poetry), setup.cfg, setup.py, Pipfile, requirements."""

import ast
import configparser
import re
from collections.abc import Iterator
from typing import Any

from activities.project_init.parsing import (
    Lines,
    UnreadableError,
    parse_python,
    parse_toml,
    string,
    strings,
    table,
)
from activities.project_init.records import (
    Dependency,
    DependencyGroup,
    EntryPoint,
    Evidence,
    Manifest,
    Technology,
)

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?\s*([^;#]*)")
_TOOL_HEADING = re.compile(r"\s*\[+\s*tool\.[\"']?([\w-]+)")
COMPILED = "compiled pins"
"""The builder of a requirements file that a tool wrote: it is a lock file by another name."""

_DEVELOPMENT = re.compile(
    r"(?<![a-z])(dev|devel|develop|development|tests?|testing|pytest|lint|linters?|linting|docs?|documentation|types?|typing"
    r"|typecheck|mypy|ci|checks?|checking|bench|benchmarks?|format|formatters?|formatting)(?![a-z])"
)
"""Matches a word, in the lower-case name of an extra or a file, that says: not for those who use the program."""

_LICENSE_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


def parse_requirement(written: str) -> tuple[str, str] | None:
    """Return name and version asked for by one requirement line (PEP 508), or None where it names no package.

    Extras and environment markers are dropped; of a direct reference (`name @ url`) the version is "@".

    Example:
        >>> parse_requirement("uvicorn[standard]>=0.30,<1 ; python_version > '3.8'"), parse_requirement("-e .")
        (('uvicorn', '>=0.30,<1'), None)
    """
    found = _REQUIREMENT.match(written)
    if found is None or written.lstrip().startswith("-") or "://" in written.split("@")[0]:
        return None
    version = found[3].strip().removeprefix("(").removesuffix(")")
    return found[1], "@" if version.startswith("@") else " ".join(version.split())


def _dependency(
    written: str, group: DependencyGroup, path: str, lines: Lines, after: str | None
) -> Iterator[Dependency]:
    parsed = parse_requirement(written)
    if parsed is not None:
        name, version = parsed
        line = lines.of_quoted(written, after=after) or lines.of(name, after=after)
        evidence = Evidence(path=path, line=line)
        yield Dependency(name=name, requirement=version, group=group, evidence=evidence)


def _group_named(name: str) -> DependencyGroup:
    return "development" if _DEVELOPMENT.search(name.lower()) else "optional"


def read_pyproject(path: str, text: str) -> Manifest:
    """Read a `pyproject.toml`: the standard tables first, Poetry's where a project uses those instead."""
    data = parse_toml(text)
    lines = Lines(text)
    project, poetry = table(data, "project"), table(data, "tool", "poetry")
    facts = project or poetry
    license_name = _license(facts)
    runtime = string(project.get("requires-python")) or string(table(poetry, "dependencies").get("python"))
    return Manifest(
        path=path,
        ecosystem="python",
        name=string(facts.get("name")),
        version=string(facts.get("version")),
        description=string(facts.get("description")),
        license=license_name,
        license_line=lines.of("license") if license_name else None,
        runtime=f"Python {runtime}" if runtime else "",
        runtime_line=lines.of("requires-python") or lines.of("python", after="tool.poetry.dependencies"),
        builder=string(table(data, "build-system").get("build-backend")),
        dependencies=(*_standard(path, data, lines), *_poetry(path, poetry, lines)),
        entry_points=tuple(_entry_points(path, project, poetry, lines)),
        tools=tuple(_tools(path, data, text)),
    )


def _tools(path: str, data: dict[str, Any], text: str) -> Iterator[Technology]:
    headings: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        found = _TOOL_HEADING.match(line)
        if found:
            headings.setdefault(found[1], number)
    for name in table(data, "tool"):
        yield Technology(name=name, category="tool", evidence=Evidence(path=path, line=headings.get(name)))


def _license(facts: dict[str, Any]) -> str:
    declared = facts.get("license")
    if isinstance(declared, str):
        return string(declared)
    words = string(table(declared).get("text"))
    if words and len(words) < 80:
        return words
    for classifier in strings(facts.get("classifiers")):
        if classifier.startswith("License :: "):
            name = classifier.rpartition(" :: ")[2]
            return _LICENSE_CLASSIFIERS.get(name, name)
    return ""


def _standard(path: str, data: dict[str, Any], lines: Lines) -> Iterator[Dependency]:
    project = table(data, "project")
    for written in strings(project.get("dependencies")):
        yield from _dependency(written, "runtime", path, lines, "dependencies")
    for name, extra in table(project, "optional-dependencies").items():
        for written in strings(extra):
            yield from _dependency(written, _group_named(name), path, lines, "project.optional-dependencies")
    for group in table(data, "dependency-groups").values():
        for written in strings(group):
            yield from _dependency(written, "development", path, lines, "dependency-groups")
    for written in strings(table(data, "tool", "uv").get("dev-dependencies")):
        yield from _dependency(written, "development", path, lines, "dev-dependencies")
    for group in table(data, "tool", "pdm", "dev-dependencies").values():
        for written in strings(group):
            yield from _dependency(written, "development", path, lines, "tool.pdm.dev-dependencies")
    for written in strings(table(data, "build-system").get("requires")):
        yield from _dependency(written, "build", path, lines, "build-system")


def _poetry(path: str, poetry: dict[str, Any], lines: Lines) -> Iterator[Dependency]:
    groups: list[tuple[str, DependencyGroup, dict[str, Any]]] = [
        ("tool.poetry.dependencies", "runtime", table(poetry, "dependencies")),
        ("tool.poetry.dev-dependencies", "development", table(poetry, "dev-dependencies")),
    ]
    for name in table(poetry, "group"):
        wanted = table(poetry, "group", name, "dependencies")
        groups.append((f"tool.poetry.group.{name}.dependencies", "development", wanted))
    for heading, group, wanted in groups:
        for name, version in wanted.items():
            if name != "python":
                asked = string(version) or string(table(version).get("version"))
                evidence = Evidence(path=path, line=lines.of(name, after=heading))
                requirement = "" if asked == "*" else asked
                yield Dependency(name=name, requirement=requirement, group=group, evidence=evidence)


def _entry_points(path: str, project: dict[str, Any], poetry: dict[str, Any], lines: Lines) -> Iterator[EntryPoint]:
    groups = [
        ("console script", "project.scripts", table(project, "scripts")),
        ("GUI script", "project.gui-scripts", table(project, "gui-scripts")),
        ("console script", "tool.poetry.scripts", table(poetry, "scripts")),
    ]
    for group, members in table(project, "entry-points").items():
        groups.append((f"plugin for {group}", f"project.entry-points.{group}", table(members)))
    for kind, heading, members in groups:
        for name, target in members.items():
            if isinstance(target, str):
                evidence = Evidence(path=path, line=lines.of(name, after=heading))
                yield EntryPoint(name=name, kind=kind, target=target, evidence=evidence)


def read_setup_cfg(path: str, text: str) -> Manifest:
    """Read a `setup.cfg`; one without a `[metadata]` name is a tool's settings and gives an empty manifest."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read_string(text)
    except configparser.Error as error:
        raise UnreadableError(f"not INI: {type(error).__name__}") from None
    lines = Lines(text)
    wanted: list[Dependency] = []
    for written in config.get("options", "install_requires", fallback="").splitlines():
        wanted.extend(_dependency(written, "runtime", path, lines, "install_requires"))
    extras = config["options.extras_require"] if config.has_section("options.extras_require") else {}
    for name, listed in extras.items():
        for written in listed.splitlines():
            wanted.extend(_dependency(written, _group_named(name), path, lines, "options.extras_require"))
    scripts = config.get("options.entry_points", "console_scripts", fallback="")
    runtime = config.get("options", "python_requires", fallback="")
    return Manifest(
        path=path,
        ecosystem="python",
        name=string(config.get("metadata", "name", fallback="")),
        version=string(config.get("metadata", "version", fallback="")),
        description=string(config.get("metadata", "description", fallback="")),
        license=string(config.get("metadata", "license", fallback="")),
        license_line=lines.of("license"),
        runtime=f"Python {string(runtime)}" if runtime else "",
        runtime_line=lines.of("python_requires"),
        dependencies=tuple(wanted),
        entry_points=tuple(_console_scripts(scripts.splitlines(), path, lines)),
        tools=tuple(
            Technology(
                name=name.removeprefix("tool:"),
                category="tool",
                evidence=Evidence(path=path, line=lines.of(name.removeprefix("tool:"))),
            )
            for name in config.sections()
            if not name.startswith(("options", "metadata"))
        ),
    )


def _console_scripts(written: list[str], path: str, lines: Lines) -> Iterator[EntryPoint]:
    for line in written:
        name, equals, target = (part.strip() for part in line.partition("="))
        if name and equals:
            evidence = Evidence(path=path, line=lines.of(name, after="console_scripts"))
            yield EntryPoint(name=name, kind="console script", target=target, evidence=evidence)


def read_setup_py(path: str, text: str) -> Manifest:
    """Read the arguments of `setup(...)` in a `setup.py`: literals, and constants of the file.

    What is computed there stays unknown.
    """
    lines = Lines(text)
    arguments: dict[str, Any] = {}
    tree = parse_python(text)
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            for keyword in node.keywords:
                value = keyword.value
                value = constants.get(value.id, value) if isinstance(value, ast.Name) else value
                try:
                    arguments[str(keyword.arg)] = ast.literal_eval(value)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    continue
    wanted: list[Dependency] = []
    for written in strings(_listed(arguments.get("install_requires"))):
        wanted.extend(_dependency(written, "runtime", path, lines, "install_requires"))
    for name, extra in table(arguments, "extras_require").items():
        for written in strings(_listed(extra)):
            wanted.extend(_dependency(written, _group_named(str(name)), path, lines, "extras_require"))
    scripts = strings(_listed(table(arguments, "entry_points").get("console_scripts")))
    runtime = string(arguments.get("python_requires"))
    return Manifest(
        path=path,
        ecosystem="python",
        name=string(arguments.get("name")),
        version=string(arguments.get("version")),
        description=string(arguments.get("description")),
        license=_license(arguments),
        license_line=lines.of("license"),
        runtime=f"Python {runtime}" if runtime else "",
        runtime_line=lines.of("python_requires"),
        builder="setuptools",
        dependencies=tuple(wanted),
        entry_points=tuple(_console_scripts(scripts, path, lines)),
    )


def _listed(value: Any) -> Any:
    if isinstance(value, str):
        return value.splitlines()
    return list(value) if isinstance(value, tuple) else value


def read_pipfile(path: str, text: str) -> Manifest:
    """Read a `Pipfile`."""
    data = parse_toml(text)
    lines = Lines(text)
    wanted: list[Dependency] = []
    groups: tuple[tuple[str, DependencyGroup], ...] = (
        ("packages", "runtime"),
        ("dev-packages", "development"),
    )
    for heading, group in groups:
        for name, version in table(data, heading).items():
            asked = string(version) or string(table(version).get("version"))
            evidence = Evidence(path=path, line=lines.of(name, after=heading))
            requirement = "" if asked == "*" else asked
            wanted.append(Dependency(name=name, requirement=requirement, group=group, evidence=evidence))
    runtime = string(table(data, "requires").get("python_version"))
    return Manifest(
        path=path,
        ecosystem="python",
        runtime=f"Python {runtime}" if runtime else "",
        runtime_line=lines.of("python_version"),
        builder="pipenv",
        dependencies=tuple(wanted),
    )


def read_requirements(path: str, text: str) -> Manifest:
    """Read a pip requirements file; options, other files and bare addresses are passed over.

    A file that a tool compiled pins what other manifests ask for: its packages count as indirect.
    """
    name = path.rpartition("/")[2]
    is_compiled = "autogenerated by" in text[:500] or " --hash=" in text
    group: DependencyGroup = "runtime" if _group_named(name) == "optional" else "development"
    group = "indirect" if is_compiled else group
    wanted: list[Dependency] = []
    for number, line in enumerate(text.split("\n"), 1):
        parsed = parse_requirement(line.split(" --hash")[0].rstrip("\\ "))
        if parsed is not None:
            evidence = Evidence(path=path, line=number)
            wanted.append(Dependency(name=parsed[0], requirement=parsed[1], group=group, evidence=evidence))
    builder = COMPILED if is_compiled else ""
    return Manifest(path=path, ecosystem="python", builder=builder, dependencies=tuple(wanted))
