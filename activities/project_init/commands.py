"""The commands and manifests of a Python, Node, Rust or Go project, both declared and conventional."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
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

    def at(self, word: str, after: str = "") -> Evidence:
        """Return the first line with a whole word, below the first one that has ``after``, or else the file."""
        lines = self.text.split("\n")
        first = next((number for number, line in enumerate(lines) if after and _has_word(line, after)), 0)
        numbers = (number for number, line in enumerate(lines[first:], first + 1) if word and _has_word(line, word))
        return Evidence(path=self.path, line=next(numbers, None))

    def dependencies(self, groups: Mapping[Any, Any], sections: Mapping[Any, str]) -> Iterator[Dependency]:
        """Yield the dependencies of tables of names and versions, by group; ``sections`` are their headings."""
        for group, packages in groups.items():
            for name, version in packages.items():
                requirement = version.get("version") if isinstance(version, Mapping) else version
                requirement = requirement if isinstance(requirement, str) and requirement != "*" else ""
                evidence = self.at(name, sections.get(group, ""))
                yield Dependency(name=name, requirement=requirement, group=group, evidence=evidence)


def _has_word(line: str, word: str) -> bool:
    """Return whether a line has a word that is not a part of a longer name."""
    return re.search(rf"(?<![\w@/.-]){re.escape(word)}(?![\w/-]|\.\w)", line) is not None


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


_SECTIONS = {
    "runtime": "dependencies",
    "build": "requires",
    "optional": "optional-dependencies",
    "development": "dependency-groups",
}
"""Above which word `pyproject.toml` has the requirements of a group."""

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
        evidence = source.at(requirement.name, _SECTIONS.get(group, "") if source.path.endswith(".toml") else "")
        yield Dependency(name=requirement.name, requirement=version, group=group, evidence=evidence)


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
        "dependencies": tuple(
            source.dependencies(groups, {"runtime": '"dependencies"', "development": '"devDependencies"'})
        ),
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
        "dependencies": tuple(
            source.dependencies(groups, {"runtime": "[dependencies]", "development": "[dev-dependencies]"})
        ),
    }


def _read_go_mod(source: Source) -> Members:
    module = re.search(r"^module\s+(\S+)", source.text, re.MULTILINE)
    version = re.search(r"^go\s+([\d.]+)", source.text, re.MULTILINE)
    packages = {name: version for name, version, indirect in _GO_REQUIRE.findall(source.text) if not indirect}
    return {
        "name": module[1] if module else "",
        "runtime": f"Go {version[1]}" if version else "",
        "dependencies": tuple(source.dependencies({"runtime": packages}, {})),
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
    "test": "test tests spec e2e integration unit coverage cov acceptance",
    "lint": "lint linter typecheck types tsc mypy ruff eslint clippy vet audit",
    "format": "fmt format prettier black fix",
    "build": "build compile bundle dist package all wheel generate",
    "run": "run start serve server dev up worker demo preview",
    "release": "release publish deploy version push upload",
}
_PURPOSE_ORDER: tuple[Purpose, ...] = ("install", "run", "test", "lint", "format", "build", "release", "other")
_RUNNER = re.compile(
    r"\b(?:pytest|unittest|tox|nox|vitest|jest|mocha|ava|jasmine|karma|playwright|cypress|rspec|phpunit|ctest|gotestsum"
    r"|(?:go|cargo|bun|deno|dotnet|pants|bazel|mvn|gradlew?|make|npm|pnpm|yarn)(?: run)? test|node (?:\S+ )*--test)\b"
)
"""What runs tests: of a task called `check` or `verify` its body says whether it does."""
_CHECKER = re.compile(
    r"\s*(?:(?:npx|bunx|pnpm exec|yarn|python -m|uv run) )?(?:tsc|vue-tsc|svelte-check|attw|tsd|eslint|oxlint|biome"
    r"|prettier|mypy|pyright|ruff|flake8|golangci-lint)\b"
)
_NO_TEST = re.compile(r"no tests? specified")
_TARGET = re.compile(r"(?P<name>[A-Za-z0-9_][\w-]*)\s*::?(?![:=])[^#\n]*(?:##\s*(?P<about>.*))?")
_NPM_HOOK = re.compile(r"(pre|post)(install|publish|pack|version|test|start|build)|prepare|prepublishOnly")
_CI = re.compile(r"\.(github|forgejo|gitea)/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|\.ci/[^/]+")
_MANAGERS = {
    "python": {"pants.toml": "pants", "uv.lock": "uv", "poetry.lock": "poetry", "": "pip"},
    "node": {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun", "": "npm"},
}
"""The package managers of an ecosystem by the file that shows them."""
_CONVENTIONS: dict[str, dict[Purpose, str]] = {
    "uv": {"install": "uv sync", "run": "uv run {}", "test": "uv run python -m pytest"},
    "poetry": {"install": "poetry install", "run": "poetry run {}", "test": "poetry run python -m pytest"},
    "pip": {"install": "python -m pip install {}", "run": "{}", "test": "python -m pytest"},
    "pants": {"test": "pants test ::", "lint": "pants lint ::", "format": "pants fmt ::"},
    "npm": {"install": "npm install"},
    "pnpm": {"install": "pnpm install"},
    "yarn": {"install": "yarn install"},
    "bun": {"install": "bun install"},
    "rust": {"build": "cargo build", "test": "cargo test"},
    "go": {"build": "go build ./...", "test": "go test ./..."},
}


def find_purpose(name: str, body: str = "") -> Purpose:
    """Guess the purpose of a task from its name, and from what it runs whether it tests."""
    words = re.split(r"[:._/\- ]+", name.lower())
    known = {word: purpose for purpose, names in _PURPOSE_WORDS.items() for word in reversed(names.split())}
    purpose = next((known[word] for word in words if word in known), None)
    if name.lower() in ("check", "verify", "ci"):  # a part of other names, these words mean many things
        return "test" if _RUNNER.search(body) else "lint"
    runs = [part for part in re.split(r"&&|\|\||[;|\n]", body) if part.strip()]
    checks = {*words} & {"lint", "types", "typecheck", "tsc", "eslint", "mypy"} and not _RUNNER.search(body)
    if purpose == "test" and _NO_TEST.search(body):
        return "other"
    if purpose == "test" and (checks or (runs and all(map(_CHECKER.match, runs)))):
        return "lint"  # a type check is no test
    return purpose or "other"


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
            recipe = "\n".join(takewhile(lambda line: line[:1].isspace(), lines[number:]))
            body = recipe.strip().partition("\n")[0].lstrip("@-")
            yield Command(
                line=_in_folder(path, f"make {quote(match['name'])}"),
                purpose=find_purpose(match["name"], recipe),
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
                    purpose=find_purpose(name, body),
                    about=f"runs `{body}`" if body else "",
                    evidence=source.at(f'"{name}"', '"scripts"'),
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
        manager = _find_manager(tree, ecosystem)
        path = "pants.toml" if manager == "pants" else manifest.path
        for purpose, line in _CONVENTIONS[manager].items():
            if purpose == "test" and ecosystem == "python" and not python_tests:
                continue
            for value in map(quote, manifest.programs) if purpose == "run" else (package,):
                yield _make_conventional(path, purpose, _in_folder(path, line.format(value)))
    if python_tests and "python" not in first_manifests:
        yield _make_conventional(python_tests[0], "test", "python -m pytest")


def _make_conventional(path: str, purpose: Purpose, line: str) -> Command:
    return Command(line=line, purpose=purpose, origin="conventional", evidence=Evidence(path=path))
