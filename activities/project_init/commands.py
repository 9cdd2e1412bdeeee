"""The commands and manifests of a Python, Node, Rust or Go project, both declared and conventional."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from activities.project_init.files import SourceTree
from activities.project_init.records import Command, Dependency, Evidence, Manifest, Purpose, TechStack

_MAX_ITEMS = 400
_REQUIREMENTS = re.compile(r"((requirements|constraints)[\w.-]*|requirements/[\w.-]+)\.txt")
_GO_REQUIRE = re.compile(r"^\s*(?:require\s+)?([\w.-]+\.[\w./~-]+)\s+(v[\w.+-]+)(\s*//\s*indirect)?", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """The text of a manifest file."""

    path: str
    text: str

    def at(self, word: str) -> Evidence:
        """Return the first line that contains a word, or else the file."""
        lines = enumerate(self.text.split("\n"), 1) if word else ()
        return Evidence(path=self.path, line=next((number for number, line in lines if word in line), None))

    def dependencies(self, groups: Mapping[Any, Any]) -> Iterator[Dependency]:
        """Yield the dependencies of tables of names and versions, by group."""
        for group, packages in groups.items():
            for name, version in packages.items():
                requirement = version.get("version") if isinstance(version, Mapping) else version
                requirement = requirement if isinstance(requirement, str) and requirement != "*" else ""
                yield Dependency(name=name, requirement=requirement, group=group, evidence=self.at(name))


def read_manifests(tree: SourceTree) -> tuple[Manifest, ...]:
    """Return the manifests of the project itself; `problem` says why one is unreadable."""
    paths = [*tree.named(*_READERS), *(path for path in tree.by_path if _REQUIREMENTS.fullmatch(path))]
    texts = ((path, tree.text(path)) for path in paths[:_MAX_ITEMS])
    manifests = (_read_manifest(Source(path, text)) for path, text in texts if text is not None)
    return tuple(manifest for manifest in manifests if manifest is not None)


def _read_manifest(source: Source) -> Manifest | None:
    ecosystem, reader = _READERS.get(source.path.rpartition("/")[2], ("python", _read_requirements))
    try:
        members = reader(source)
        return None if members is None else Manifest(path=source.path, ecosystem=ecosystem, **members)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Manifest(path=source.path, ecosystem=ecosystem, problem=" ".join(str(error).split())[:200])


Members = dict[str, Any] | None
"""The members of a manifest, or None if the file is not one."""


def _read_pyproject(source: Source) -> Members:
    data = tomllib.loads(source.text)
    project = _find_table(data, "project")
    if not project and "build-system" not in data:
        return None  # only tool settings
    groups: list[tuple[Any, Any]] = [("runtime", project.get("dependencies"))]
    groups += [("build", _find_table(data, "build-system").get("requires"))]
    groups += [("optional", requirements) for requirements in _find_table(project, "optional-dependencies").values()]
    groups += [("development", requirements) for requirements in _find_table(data, "dependency-groups").values()]
    license, python = project.get("license"), project.get("requires-python")
    return {
        **_read_description(project),
        "license": _as_line(license.get("text") if isinstance(license, Mapping) else license),
        "runtime": f"Python {python}" if python else "",
        "dependencies": tuple(
            dependency
            for group, requirements in groups
            for dependency in _parse_requirements(source, requirements or (), group)
        ),
        "programs": tuple(_find_table(project, "scripts")),
    }


def _parse_requirements(source: Source, lines: Iterable[Any], group: Any) -> Iterator[Dependency]:
    """Yield the PEP 508 requirements; other lines, such as options and paths, are skipped."""
    for line in lines:
        try:
            requirement = Requirement(str(line).partition(" #")[0].rstrip("\\ ").strip())
        except InvalidRequirement:
            continue
        version = str(requirement.specifier) or (requirement.url or "")
        yield Dependency(name=requirement.name, requirement=version, group=group, evidence=source.at(requirement.name))


def _read_requirements(source: Source) -> Members:
    if "--hash=sha256:" in source.text or "# via" in source.text:
        return {"pinned": True}
    return {"dependencies": tuple(_parse_requirements(source, source.text.split("\n"), "runtime"))}


def _read_package_json(source: Source) -> Members:
    data = _find_table({"": json.loads(source.text)}, "")
    engine = _find_table(data, "engines").get("node")
    groups = {"runtime": _find_table(data, "dependencies"), "development": _find_table(data, "devDependencies")}
    return {
        **_read_description(data),
        "runtime": f"Node {engine}" if engine else "",
        "dependencies": tuple(source.dependencies(groups)),
        "scripts": {name: body for name, body in _find_table(data, "scripts").items() if isinstance(body, str)},
    }


def _read_cargo(source: Source) -> Members:
    data = tomllib.loads(source.text)
    package = _find_table(data, "package") or _find_table(data, "workspace", "package")
    groups = {"runtime": _find_table(data, "dependencies"), "development": _find_table(data, "dev-dependencies")}
    runtime = package.get("rust-version")
    return {
        **_read_description(package),
        "runtime": f"Rust {runtime}" if isinstance(runtime, str) else "",
        "dependencies": tuple(source.dependencies(groups)),
    }


def _read_go_mod(source: Source) -> Members:
    module = re.search(r"^module\s+(\S+)", source.text, re.MULTILINE)
    version = re.search(r"^go\s+([\d.]+)", source.text, re.MULTILINE)
    packages = {name: version for name, version, indirect in _GO_REQUIRE.findall(source.text) if not indirect}
    return {
        "name": module[1] if module else "",
        "runtime": f"Go {version[1]}" if version else "",
        "dependencies": tuple(source.dependencies({"runtime": packages})),
    }


_READERS: dict[str, tuple[Any, Callable[[Source], Members]]] = {
    "pyproject.toml": ("python", _read_pyproject),
    "package.json": ("node", _read_package_json),
    "Cargo.toml": ("rust", _read_cargo),
    "go.mod": ("go", _read_go_mod),
}


def _read_description(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: _as_line(data.get(name)) for name in ("name", "description", "license")}


def _find_table(data: object, *names: str) -> Mapping[str, Any]:
    """Return a nested table, or an empty one if it is missing or not a table."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _as_line(value: object) -> str:
    """Return a text on one line, or an empty text for any other value."""
    return " ".join(value.split())[:300] if isinstance(value, str) else ""


_PURPOSE_WORDS: dict[Purpose, str] = {
    "install": "install setup deps dependencies bootstrap sync init",
    "test": "test tests spec check verify e2e integration unit coverage cov ci acceptance",
    "lint": "lint linter typecheck types tsc mypy ruff eslint clippy vet audit",
    "format": "fmt format prettier black fix",
    "build": "build compile bundle dist package all wheel generate",
    "run": "run start serve server dev up watch worker demo preview",
    "release": "release publish deploy version push upload",
}
_PURPOSE_ORDER: tuple[Purpose, ...] = ("install", "run", "test", "lint", "format", "build", "release", "other")
_TARGET = re.compile(r"(?P<name>[A-Za-z0-9_][\w-]*)\s*::?(?![:=])[^#\n]*(?:##\s*(?P<about>.*))?")
_NPM_HOOK = re.compile(r"(pre|post)(install|publish|pack|version|test|start|build)|prepare|prepublishOnly")
_CI = re.compile(r"\.(github|forgejo|gitea)/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|\.ci/[^/]+")
_MANAGERS = {
    "python": {"uv.lock": "uv", "poetry.lock": "poetry", "": "pip"},
    "node": {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "": "npm"},
}
"""The package managers of an ecosystem by their lock file."""
_CONVENTIONS: dict[str, dict[Purpose, str]] = {
    "uv": {"install": "uv sync", "run": "uv run {}", "test": "uv run python -m pytest"},
    "poetry": {"install": "poetry install", "run": "poetry run {}", "test": "poetry run python -m pytest"},
    "pip": {"install": "python -m pip install {}", "run": "{}", "test": "python -m pytest"},
    "npm": {"install": "npm install"},
    "pnpm": {"install": "pnpm install"},
    "yarn": {"install": "yarn install"},
    "rust": {"build": "cargo build", "test": "cargo test"},
    "go": {"build": "go build ./...", "test": "go test ./..."},
}


def find_purpose(name: str) -> Purpose:
    """Guess the purpose of a task from its name."""
    for word in re.split(r"[:._/\- ]+", name.lower()):
        for purpose, words in _PURPOSE_WORDS.items():
            if word in words.split():
                return purpose
    return "other"


def find_commands(tree: SourceTree, manifests: tuple[Manifest, ...], tests: tuple[str, ...]) -> tuple[Command, ...]:
    """Return the distinct commands of a project by purpose, declared ones first."""
    commands: dict[str, Command] = {}
    for command in (
        *_make_targets(tree),
        *_package_scripts(tree, manifests),
        *_conventional_commands(tree, manifests, tests),
    ):
        if command.line.isprintable():
            commands.setdefault(command.line, command)
    ordered = sorted(
        commands.values(), key=lambda command: (_PURPOSE_ORDER.index(command.purpose), command.origin != "declared")
    )
    return tuple(ordered[:_MAX_ITEMS])


def best_command(stack: TechStack, purpose: Purpose) -> Command | None:
    """Return the best command for a purpose: top-level before subfolders, declared before conventional."""
    candidates = [command for command in stack.commands if command.purpose == purpose]

    def rank(command: Command) -> tuple[bool, bool, bool]:
        is_named = command.line.split()[-1] in _PURPOSE_WORDS.get(purpose, "").split()
        return command.line.startswith("cd "), command.origin != "declared", not is_named

    return min(candidates, key=rank, default=None)


def ci_files(tree: SourceTree) -> list[str]:
    """Return the files that define continuous integration."""
    return [path for path in tree.by_path if _CI.fullmatch(path)]


def _in_folder(path: str, line: str) -> str:
    folder = path.rpartition("/")[0]
    return f"cd {quote(folder)} && {line}" if folder else line


def _make_targets(tree: SourceTree) -> Iterator[Command]:
    """Yield the make targets that are not files."""
    for path in tree.named("Makefile", "GNUmakefile", "makefile"):
        lines = [*(tree.text(path) or "").split("\n"), ""]
        for number, line in enumerate(lines, 1):
            match = _TARGET.match(line[:1000])
            if match is None or f"{path.rpartition('/')[0]}/{match['name']}".lstrip("/") in tree.by_path:
                continue
            body = lines[number].strip().lstrip("@-") if lines[number][:1].isspace() else ""
            yield Command(
                line=_in_folder(path, f"make {quote(match['name'])}"),
                purpose=find_purpose(match["name"]),
                about=match["about"] or (f"runs `{body}`" if body else ""),
                evidence=Evidence(path=path, line=number),
            )


def _package_scripts(tree: SourceTree, manifests: tuple[Manifest, ...]) -> Iterator[Command]:
    """Yield the scripts of `package.json`."""
    for manifest in manifests:
        source = Source(manifest.path, tree.text(manifest.path) or "")
        for name, body in list(manifest.scripts.items())[:_MAX_ITEMS]:
            if not _NPM_HOOK.fullmatch(name):
                yield Command(
                    line=_in_folder(manifest.path, f"{_find_manager(tree, 'node')} run {quote(name)}"),
                    purpose=find_purpose(name),
                    about=f"runs `{body}`" if body else "",
                    evidence=source.at(f'"{name}":'),
                )


def _find_manager(tree: SourceTree, ecosystem: str) -> str:
    managers = (name for lock, name in _MANAGERS.get(ecosystem, {}).items() if not lock or lock in tree.by_path)
    return next(managers, ecosystem)


def _conventional_commands(
    tree: SourceTree, manifests: tuple[Manifest, ...], tests: tuple[str, ...]
) -> Iterator[Command]:
    """Yield the conventional commands of each ecosystem's first manifest, and of Python tests without one."""
    first_manifests = {manifest.ecosystem: manifest for manifest in reversed(manifests) if not manifest.problem}
    python_tests = [path for path in tests if path.endswith(".py")]
    for ecosystem, manifest in reversed(first_manifests.items()):
        name = PurePosixPath(manifest.path).name
        package = f"-r {quote(name)}" if name.endswith(".txt") else "-e ."
        for purpose, line in _CONVENTIONS[_find_manager(tree, ecosystem)].items():
            if purpose == "test" and ecosystem == "python" and not python_tests:
                continue
            for value in map(quote, manifest.programs) if purpose == "run" else (package,):
                yield _make_conventional(manifest.path, purpose, _in_folder(manifest.path, line.format(value)))
    if python_tests and "python" not in first_manifests:
        yield _make_conventional(python_tests[0], "test", "python -m pytest")


def _make_conventional(path: str, purpose: Purpose, line: str) -> Command:
    return Command(line=line, purpose=purpose, origin="conventional", evidence=Evidence(path=path))
