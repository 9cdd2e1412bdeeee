"""The commands and manifests of a project: what files of Python, Node, Rust and Go declare, and what customs imply."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

import yaml
from packaging.requirements import InvalidRequirement, Requirement

from activities.project_init.files import SourceTree, is_own
from activities.project_init.records import Command, Dependency, EntryPoint, Evidence, Manifest, Purpose, TechStack

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


_WORDS: dict[Purpose, str] = {
    "install": "install setup deps dependencies bootstrap sync init",
    "test": "test tests spec check verify e2e integration unit coverage cov ci acceptance",
    "lint": "lint linter typecheck types tsc mypy ruff eslint clippy vet audit",
    "format": "fmt format prettier black fix",
    "build": "build compile bundle dist package all wheel docker generate",
    "run": "run start serve server dev up watch worker demo preview",
    "release": "release publish deploy version push upload",
}
_ORDER: tuple[Purpose, ...] = ("install", "run", "test", "lint", "format", "build", "release", "other")
_MAKE = re.compile(r"(?P<name>[A-Za-z0-9_][\w-]*)\s*::?(?![:=])[^#\n]*(?:##\s*(?P<about>.*))?")
_JUST = re.compile(r"@?(?!(?:set|alias|export|import|mod)\b)(?P<name>[a-zA-Z_][\w-]*)[^:=\n]*:(?!=)(?P<about>)")
_TOX = re.compile(r"\[testenv:(?P<name>[\w.-]+)\](?P<about>)")
_RUNNERS = {
    **dict.fromkeys(("Makefile", "GNUmakefile", "makefile"), ("make", _MAKE)),
    **dict.fromkeys(("justfile", "Justfile"), ("just", _JUST)),
    "tox.ini": ("tox -e", _TOX),
}
"""How the tasks of a task runner's file are called, and how a line declares one."""

_NPM_HOOK = re.compile(r"(pre|post)(install|publish|pack|version|test|start|build)|prepare|prepublishOnly")
_NODE_MANAGERS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_CI = re.compile(r"\.(github|forgejo|gitea)/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|\.ci/[^/]+")
_CI_KEYS = ("run", "script", "before_script", "command")
_COMPOSE = re.compile(r"(.*/)?(docker-)?compose([.-][\w.-]+)?\.ya?ml")
_LONGEST_YAML = 256 * 1024
_MOST = 400


def purpose_of(name: str) -> Purpose:
    """Return what a task is for, judged by the words of its name.

    Example:
        >>> purpose_of("test:unit"), purpose_of("docker-build"), purpose_of("clean")
        ('test', 'build', 'other')
    """
    words = [word for word in re.split(r"[:._/\- ]", name.lower()) if word]
    for number in range(len(words)):
        for purpose, known in _WORDS.items():
            if words[number] in known.split() and (words[number] != "docker" or number == len(words) - 1):
                return purpose
    return "other"


def find_commands(tree: SourceTree, manifests: tuple[Manifest, ...], tests: tuple[str, ...]) -> tuple[Command, ...]:
    """Return the commands of a project, each once: by purpose, the declared ones first."""
    found: dict[str, Command] = {}
    every = (*_of_runners(tree), *_of_scripts(tree, manifests), *_conventional(tree, manifests, tests))
    for command in every:
        if command.line.isprintable():
            found.setdefault(command.line, command)
    ordered = sorted(found.values(), key=lambda one: (_ORDER.index(one.purpose), one.origin != "declared"))
    return tuple(ordered[:_MOST])


def best_command(stack: TechStack, purpose: Purpose) -> Command | None:
    """Return the command to name first for a purpose: at the top before a folder's, declared before conventional."""
    found = [each for each in stack.commands if each.purpose == purpose]

    def rank(command: Command) -> tuple[bool, bool, bool]:
        named = command.line.split()[-1] in _WORDS[purpose].split() if purpose != "other" else False
        return command.line.startswith("cd "), command.origin != "declared", not named

    return min(found, key=rank, default=None)


def find_ci(tree: SourceTree) -> tuple[Command, ...]:
    """Return what continuous integration runs, as written, each command once."""
    found: dict[str, Command] = {}
    for path in ci_files(tree):
        text = tree.text(path) or ""
        for line in _ci_lines(read_yaml(text)):
            first = line.strip().split("\n")[0]
            number = next((at for at, each in enumerate(text.split("\n"), 1) if first in each), None)
            found.setdefault(line, Command(line=line, purpose="other", evidence=Evidence(path=path, line=number)))
    return tuple(found.values())


def ci_files(tree: SourceTree) -> list[str]:
    """Return the files that define continuous integration."""
    return [path for path in tree.by_path if _CI.fullmatch(path)]


def compose_files(tree: SourceTree) -> list[str]:
    """Return the project's own compose files."""
    return [path for path in tree.by_path if _COMPOSE.fullmatch(path) and is_own(path)]


def read_yaml(text: str) -> Any:
    """Return what a YAML text holds; None if it is too long or cannot be read."""
    try:
        return yaml.safe_load(text) if len(text) <= _LONGEST_YAML else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _ci_lines(document: Any) -> Iterator[str]:
    waiting, seen = [document], set[int]()  # an alias is visited once
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if key in _CI_KEYS:
                yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
            waiting.append(value)


def _in_folder(path: str, line: str) -> str:
    folder = path.rpartition("/")[0]
    return f"cd {quote(folder)} && {line}" if folder else line


def _of_runners(tree: SourceTree) -> Iterator[Command]:
    """Yield the targets of make that are not files, the recipes of just, and the environments of tox."""
    for path in tree.named(*_RUNNERS):
        folder, _, file = path.rpartition("/")
        call, pattern = _RUNNERS[file]
        lines = [*(tree.text(path) or "").split("\n"), ""]
        for number, line in enumerate(lines, 1):
            found = pattern.match(line[:1000])
            if found is None or f"{folder}/{found['name']}".lstrip("/") in tree.by_path:
                continue
            body = lines[number].strip().lstrip("@-") if lines[number][:1].isspace() else ""
            yield Command(
                line=_in_folder(path, f"{call} {quote(found['name'])}"),
                purpose="build" if found["name"] == "all" else purpose_of(found["name"]),
                about=found["about"] or (f"runs `{body}`" if body else ""),
                evidence=Evidence(path=path, line=number),
            )


def _of_scripts(tree: SourceTree, manifests: tuple[Manifest, ...]) -> Iterator[Command]:
    """Yield the scripts of `package.json`."""
    for manifest in manifests:
        call = f"{_node_manager(tree)} run"
        text = tree.text(manifest.path) or ""
        start = max(text.find('"scripts"'), 0)
        for name, body in list(manifest.scripts.items())[:_MOST]:
            if not _NPM_HOOK.fullmatch(name):
                at = text.find(f'"{name}"', start)
                yield Command(
                    line=_in_folder(manifest.path, f"{call} {quote(name)}"),
                    purpose=purpose_of(name),
                    about=f"runs `{body}`" if body else "",
                    evidence=Evidence(path=manifest.path, line=text.count("\n", 0, at) + 1 if at >= 0 else None),
                )


def _node_manager(tree: SourceTree) -> str:
    return next((manager for lock, manager in _NODE_MANAGERS.items() if lock in tree.by_path), "npm")


def _conventional(tree: SourceTree, manifests: tuple[Manifest, ...], tests: tuple[str, ...]) -> Iterator[Command]:
    """Yield what the customs of a tool imply for each manifest that is not below another of its kind."""
    tops = {each.ecosystem: each for each in reversed(manifests) if not each.problem}
    for manifest in reversed(tops.values()):
        for purpose, line in _customs(tree, manifest, tests):
            yield Command(
                line=_in_folder(manifest.path, line),
                purpose=purpose,
                origin="conventional",
                evidence=Evidence(path=manifest.path),
            )
    python = [path for path in tests if path.endswith(".py")]
    if python and "python" not in tops:
        evidence = Evidence(path=python[0])
        yield Command(line="python -m pytest", purpose="test", origin="conventional", evidence=evidence)
    for path in compose_files(tree):
        yield Command(
            line=_in_folder(path, f"docker compose -f {quote(PurePosixPath(path).name)} up -d"),
            purpose="run",
            origin="conventional",
            about=f"starts the services of {path}",
            evidence=Evidence(path=path),
        )


def _customs(tree: SourceTree, manifest: Manifest, tests: tuple[str, ...]) -> Iterator[tuple[Purpose, str]]:
    if manifest.ecosystem == "python":
        manager = next((name for name in ("uv", "poetry", "pdm") if f"{name}.lock" in tree.by_path), "")
        run = f"{manager} run " if manager else ""
        is_list = manifest.path.endswith(".txt")
        plain = f"python -m pip install {f'-r {quote(PurePosixPath(manifest.path).name)}' if is_list else '-e .'}"
        yield "install", {"uv": "uv sync", "poetry": "poetry install", "pdm": "pdm install"}.get(manager, plain)
        yield from (("run", f"{run}{quote(entry.name)}") for entry in manifest.entry_points)
        if any(path.endswith(".py") for path in tests):
            yield "test", f"{run}python -m pytest"
    elif manifest.ecosystem == "node":
        manager = _node_manager(tree)
        yield "install", "npm ci" if "package-lock.json" in tree.by_path else f"{manager} install"
    elif manifest.ecosystem == "rust":
        yield from (("build", "cargo build"), ("test", "cargo test"))
    else:
        yield from (("build", "go build ./..."), ("test", "go test ./..."))
