"""The commands and manifests of a project: what files of Python, Node, Rust and Go declare, and what customs imply."""

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

_MOST = 400
_REQUIREMENTS = re.compile(r"((requirements|constraints)[\w.-]*|requirements/[\w.-]+)\.txt")
_GO_REQUIRE = re.compile(r"^\s*(?:require\s+)?([\w.-]+\.[\w./~-]+)\s+(v[\w.+-]+)(\s*//\s*indirect)?", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A manifest's file: its text, and where things are in it."""

    path: str
    text: str

    def at(self, word: str) -> Evidence:
        """Return the first line that has a word; the file if no line has it."""
        lines = enumerate(self.text.split("\n"), 1) if word else ()
        return Evidence(path=self.path, line=next((number for number, line in lines if word in line), None))

    def dependencies(self, groups: Mapping[Any, Any]) -> Iterator[Dependency]:
        """Yield what tables of names and versions ask for, by group."""
        for group, wanted in groups.items():
            for name, version in wanted.items():
                asked = version.get("version") if isinstance(version, Mapping) else version
                asked = asked if isinstance(asked, str) and asked != "*" else ""
                yield Dependency(name=name, requirement=asked, group=group, evidence=self.at(name))


def read_manifests(tree: SourceTree) -> tuple[Manifest, ...]:
    """Return every manifest that speaks for the project itself; one that cannot be read says why in `problem`."""
    paths = [*tree.named(*_READERS), *(path for path in tree.by_path if _REQUIREMENTS.fullmatch(path))]
    texts = ((path, tree.text(path)) for path in paths[:_MOST])
    found = (_read(Source(path, text)) for path, text in texts if text is not None)
    return tuple(manifest for manifest in found if manifest is not None)


def _read(source: Source) -> Manifest | None:
    ecosystem, reader = _READERS.get(source.path.rpartition("/")[2], ("python", _requirements))
    try:
        found = reader(source)
        return None if found is None else Manifest(path=source.path, ecosystem=ecosystem, **found)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Manifest(path=source.path, ecosystem=ecosystem, problem=" ".join(str(error).split())[:200])


Found = dict[str, Any] | None
"""The members of a manifest; None where the file is none."""


def _pyproject(source: Source) -> Found:
    data = tomllib.loads(source.text)
    project = _table(data, "project")
    if not project and "build-system" not in data:
        return None  # settings of tools only
    groups: list[tuple[Any, Any]] = [("runtime", project.get("dependencies"))]
    groups += [("build", _table(data, "build-system").get("requires"))]
    groups += [("optional", wanted) for wanted in _table(project, "optional-dependencies").values()]
    groups += [("development", wanted) for wanted in _table(data, "dependency-groups").values()]
    license, python = project.get("license"), project.get("requires-python")
    return {
        **_described(project),
        "license": _line(license.get("text") if isinstance(license, Mapping) else license),
        "runtime": f"Python {python}" if python else "",
        "dependencies": tuple(found for group, wanted in groups for found in _required(source, wanted or (), group)),
        "programs": tuple(_table(project, "scripts")),
    }


def _required(source: Source, wanted: Iterable[Any], group: Any) -> Iterator[Dependency]:
    """Yield the requirements as PEP 508 writes them; anything else, such as an option or a path, is passed over."""
    for line in wanted:
        try:
            found = Requirement(str(line).partition(" #")[0].rstrip("\\ ").strip())
        except InvalidRequirement:
            continue
        version = str(found.specifier) or (found.url or "")
        yield Dependency(name=found.name, requirement=version, group=group, evidence=source.at(found.name))


def _requirements(source: Source) -> Found:
    if "--hash=sha256:" in source.text or "# via" in source.text:
        return {"pinned": True}
    return {"dependencies": tuple(_required(source, source.text.split("\n"), "runtime"))}


def _package_json(source: Source) -> Found:
    data = _table({"": json.loads(source.text)}, "")
    engine = _table(data, "engines").get("node")
    groups = {"runtime": _table(data, "dependencies"), "development": _table(data, "devDependencies")}
    return {
        **_described(data),
        "runtime": f"Node {engine}" if engine else "",
        "dependencies": tuple(source.dependencies(groups)),
        "scripts": {name: body for name, body in _table(data, "scripts").items() if isinstance(body, str)},
    }


def _cargo(source: Source) -> Found:
    data = tomllib.loads(source.text)
    package = _table(data, "package") or _table(data, "workspace", "package")
    groups = {"runtime": _table(data, "dependencies"), "development": _table(data, "dev-dependencies")}
    runtime = package.get("rust-version")
    return {
        **_described(package),
        "runtime": f"Rust {runtime}" if isinstance(runtime, str) else "",
        "dependencies": tuple(source.dependencies(groups)),
    }


def _go_mod(source: Source) -> Found:
    module = re.search(r"^module\s+(\S+)", source.text, re.MULTILINE)
    version = re.search(r"^go\s+([\d.]+)", source.text, re.MULTILINE)
    wanted = {name: version for name, version, indirect in _GO_REQUIRE.findall(source.text) if not indirect}
    return {
        "name": module[1] if module else "",
        "runtime": f"Go {version[1]}" if version else "",
        "dependencies": tuple(source.dependencies({"runtime": wanted})),
    }


_READERS: dict[str, tuple[Any, Callable[[Source], Found]]] = {
    "pyproject.toml": ("python", _pyproject),
    "package.json": ("node", _package_json),
    "Cargo.toml": ("rust", _cargo),
    "go.mod": ("go", _go_mod),
}


def _described(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: _line(data.get(name)) for name in ("name", "description", "license")}


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
    "build": "build compile bundle dist package all wheel generate",
    "run": "run start serve server dev up watch worker demo preview",
    "release": "release publish deploy version push upload",
}
_ORDER: tuple[Purpose, ...] = ("install", "run", "test", "lint", "format", "build", "release", "other")
_TARGET = re.compile(r"(?P<name>[A-Za-z0-9_][\w-]*)\s*::?(?![:=])[^#\n]*(?:##\s*(?P<about>.*))?")
_NPM_HOOK = re.compile(r"(pre|post)(install|publish|pack|version|test|start|build)|prepare|prepublishOnly")
_CI = re.compile(r"\.(github|forgejo|gitea)/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|\.ci/[^/]+")
_MANAGERS = {
    "python": {"uv.lock": "uv", "poetry.lock": "poetry", "": "pip"},
    "node": {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "": "npm"},
}
"""Which program manages the packages of an ecosystem, by the lock file that it leaves."""
_CUSTOMS: dict[str, dict[Purpose, str]] = {
    "uv": {"install": "uv sync", "run": "uv run {}", "test": "uv run python -m pytest"},
    "poetry": {"install": "poetry install", "run": "poetry run {}", "test": "poetry run python -m pytest"},
    "pip": {"install": "python -m pip install {}", "run": "{}", "test": "python -m pytest"},
    "npm": {"install": "npm install"},
    "pnpm": {"install": "pnpm install"},
    "yarn": {"install": "yarn install"},
    "rust": {"build": "cargo build", "test": "cargo test"},
    "go": {"build": "go build ./...", "test": "go test ./..."},
}


def purpose_of(name: str) -> Purpose:
    """Return what a task is for, judged by the words of its name."""
    for word in re.split(r"[:._/\- ]+", name.lower()):
        for purpose, known in _WORDS.items():
            if word in known.split():
                return purpose
    return "other"


def find_commands(tree: SourceTree, manifests: tuple[Manifest, ...], tests: tuple[str, ...]) -> tuple[Command, ...]:
    """Return the commands of a project, each once: by purpose, the declared ones first."""
    found: dict[str, Command] = {}
    for command in (*_of_make(tree), *_of_scripts(tree, manifests), *_conventional(tree, manifests, tests)):
        if command.line.isprintable():
            found.setdefault(command.line, command)
    ordered = sorted(found.values(), key=lambda one: (_ORDER.index(one.purpose), one.origin != "declared"))
    return tuple(ordered[:_MOST])


def best_command(stack: TechStack, purpose: Purpose) -> Command | None:
    """Return the command to name first for a purpose: at the top before a folder's, declared before conventional."""
    found = [each for each in stack.commands if each.purpose == purpose]

    def rank(command: Command) -> tuple[bool, bool, bool]:
        named = command.line.split()[-1] in _WORDS.get(purpose, "").split()
        return command.line.startswith("cd "), command.origin != "declared", not named

    return min(found, key=rank, default=None)


def ci_files(tree: SourceTree) -> list[str]:
    """Return the files that define continuous integration."""
    return [path for path in tree.by_path if _CI.fullmatch(path)]


def _in_folder(path: str, line: str) -> str:
    folder = path.rpartition("/")[0]
    return f"cd {quote(folder)} && {line}" if folder else line


def _of_make(tree: SourceTree) -> Iterator[Command]:
    """Yield the targets of make that are not files."""
    for path in tree.named("Makefile", "GNUmakefile", "makefile"):
        lines = [*(tree.text(path) or "").split("\n"), ""]
        for number, line in enumerate(lines, 1):
            found = _TARGET.match(line[:1000])
            if found is None or f"{path.rpartition('/')[0]}/{found['name']}".lstrip("/") in tree.by_path:
                continue
            body = lines[number].strip().lstrip("@-") if lines[number][:1].isspace() else ""
            yield Command(
                line=_in_folder(path, f"make {quote(found['name'])}"),
                purpose=purpose_of(found["name"]),
                about=found["about"] or (f"runs `{body}`" if body else ""),
                evidence=Evidence(path=path, line=number),
            )


def _of_scripts(tree: SourceTree, manifests: tuple[Manifest, ...]) -> Iterator[Command]:
    """Yield the scripts of `package.json`."""
    for manifest in manifests:
        source = Source(manifest.path, tree.text(manifest.path) or "")
        for name, body in list(manifest.scripts.items())[:_MOST]:
            if not _NPM_HOOK.fullmatch(name):
                yield Command(
                    line=_in_folder(manifest.path, f"{_manager(tree, 'node')} run {quote(name)}"),
                    purpose=purpose_of(name),
                    about=f"runs `{body}`" if body else "",
                    evidence=source.at(f'"{name}":'),
                )


def _manager(tree: SourceTree, ecosystem: str) -> str:
    found = (name for lock, name in _MANAGERS.get(ecosystem, {}).items() if not lock or lock in tree.by_path)
    return next(found, ecosystem)


def _conventional(tree: SourceTree, manifests: tuple[Manifest, ...], tests: tuple[str, ...]) -> Iterator[Command]:
    """Yield what customs imply for the first manifest of each ecosystem, and for Python's tests without one."""
    tops = {each.ecosystem: each for each in reversed(manifests) if not each.problem}
    python_tests = [path for path in tests if path.endswith(".py")]
    for ecosystem, manifest in reversed(tops.items()):
        name = PurePosixPath(manifest.path).name
        package = f"-r {quote(name)}" if name.endswith(".txt") else "-e ."
        for purpose, line in _CUSTOMS[_manager(tree, ecosystem)].items():
            if purpose == "test" and ecosystem == "python" and not python_tests:
                continue
            for value in map(quote, manifest.programs) if purpose == "run" else (package,):
                yield _custom(manifest.path, purpose, _in_folder(manifest.path, line.format(value)))
    if python_tests and "python" not in tops:
        yield _custom(python_tests[0], "test", "python -m pytest")


def _custom(path: str, purpose: Purpose, line: str) -> Command:
    return Command(line=line, purpose=purpose, origin="conventional", evidence=Evidence(path=path))
