"""How to install, run, test and build a project: what it declares, then what its tools' customs imply."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

import yaml

from activities.project_init.files import SourceTree, is_own
from activities.project_init.records import Command, Evidence, Manifest, Purpose, TechStack

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
