"""How to install, run, test, check and build a project: the commands it declares, then those custom implies."""

import re
from collections.abc import Iterator
from shlex import quote

from activities.project_init.conventions import Place, conventional_commands, in_folder, node_manager, python_runner
from activities.project_init.files import SourceTree
from activities.project_init.records import (
    Command,
    EntryPoint,
    Evidence,
    Manifest,
    Purpose,
    Script,
    Technology,
    TechStack,
)
from activities.project_init.runners import Tasks
from activities.project_init.services import compose_files, container_files

_WORDS: tuple[tuple[Purpose, str], ...] = (
    ("install", "install setup deps dependencies bootstrap sync init prepare"),
    ("test", "test tests spec specs check verify e2e integration unit coverage cov ci acceptance all-tests"),
    ("lint", "lint lints linter typecheck types tsc mypy ruff eslint clippy vet type style analyze flake8 audit"),
    ("format", "fmt format prettier black fix pretty"),
    ("build", "build compile bundle dist package pack assemble wheel image docker generate codegen"),
    ("run", "run start serve server dev up watch worker demo preview shell repl"),
    ("release", "release publish deploy version tag push upload"),
)
_ORDER: tuple[Purpose, ...] = ("install", "run", "test", "lint", "format", "build", "release", "other")
_NPM_OWN = ("test", "start")
# In a longer name these say what it is about.
_ALONE = ("shell", "repl", "up", "init", "version", "style", "type", "image")
_LONGEST_NAME = 4
_FETCHING = re.compile(
    r"\b(pip3?|uv|poetry|pdm|pipenv|conda|npm|pnpm|yarn|bun|bundle|gem|composer|cargo|go|mix|dotnet|mvn|gradle|cpanm|apt|apt-get"
    r"|brew|venv|virtualenv|pre-commit|git submodule|requirements|setup\.py develop|bootstrap|vendor|deps)\b"
)
_SCRIPTS = ("JavaScript", "TypeScript", "Vue", "Svelte", "Astro", "CoffeeScript")
_LANGUAGES_OF = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _SCRIPTS),
    **dict.fromkeys(
        ("python", "uv", "poetry", "pdm", "pipenv", "tox", "nox"), ("Python", "Cython", "Jupyter Notebook")
    ),
    "go": ("Go",),
    "cargo": ("Rust",),
    "composer": ("PHP",),
    "bundle": ("Ruby",),
}
"""Languages whose projects are worked on with a tool; what others start with it serves a part, the pages perhaps."""

_ONE_OF_MANY = re.compile(r"\b(tox -e|nox -s) .*(\bpy\d\.?\d|\bpypy|\{|\b(combine|report|docs?)\b)")
"""A part of a matrix that needs an interpreter of its own, what only ends one, and what tests the pages."""

_HOOKS = re.compile(r"(pre|post)(install|publish|pack|version|test|start|build|prepare)|prepare|prepublishOnly")
_MOST = 400


def purpose_of(name: str) -> Purpose:
    """Return what a task is for, judged by the words in its name.

    Example:
        >>> purpose_of("test:unit"), purpose_of("docker-build"), purpose_of("clean")
        ('test', 'build', 'other')
    """
    words = [word for word in re.split(r"[:._/\- ]", name.lower()) if word]
    telling = words if len(words) == 1 else [word for word in words if word not in _ALONE]
    for purpose, known in _WORDS:
        if words and words[0] in telling and words[0] in known.split():
            return purpose
    for purpose, known in _WORDS if len(words) <= _LONGEST_NAME else ():
        if any(word in known.split() for word in telling):
            return purpose
    return "test" if re.fullmatch(r"py(py)?\d*", name) else "other"


def find_commands(
    tree: SourceTree,
    manifests: tuple[Manifest, ...],
    technologies: tuple[Technology, ...],
    entry_points: tuple[EntryPoint, ...],
    tasks: Tasks,
) -> tuple[tuple[Command, ...], int]:
    """Return the commands of a project, by purpose; in each purpose the declared ones first.

    Returns:
        The commands, and how many more there are: beyond the limit, or with characters that nobody can type.
    """
    found: dict[str, Command] = {}
    every = [
        *_of_tasks(tree, tasks, manifests),
        *_of_scripts(tree, manifests),
        *conventional_commands(tree, manifests, technologies, entry_points),
        *_of_containers(tree),
    ]
    for command in every:
        found.setdefault(command.line, command)
    typeable = [each for each in found.values() if each.line.isprintable()]
    ordered = sorted(typeable, key=lambda each: (_ORDER.index(each.purpose), each.origin != "declared"))
    return tuple(ordered[:_MOST]), len(found) - min(len(ordered), _MOST)


def _of_tasks(tree: SourceTree, tasks: Tasks, manifests: tuple[Manifest, ...]) -> Iterator[Command]:
    calls = {"make": "make {}", "just": "just {}", "task": "task {}", "tox": "tox -e {}", "nox": "nox -s {}"}
    root = next((each for each in manifests if each.path in ("pyproject.toml", "Pipfile", "setup.py")), None)
    run = python_runner(Place("", root, frozenset(), (), tree)) if root else ""
    for runner, folders in tasks.items():
        for folder, scripts in folders.items():
            copies = any(_copies(script) for script in scripts)
            for script in scripts:
                call = calls[runner].format(quote(script.name))
                line = in_folder(folder, run + call if runner in ("tox", "nox") and not folder else call)
                yield _declared(line, script, _purpose_in(runner, script, copies))


def _purpose_in(runner: str, script: Script, copies: bool) -> Purpose | None:
    """Return what a task is for where its name alone misleads, else None.

    No environment of tox sets a project up; one called after dependencies tests with them.

    `make all` compiles. `make install` usually copies what was built into the system; it sets a project up only
    where it fetches something. One without a recipe is what the others of its Makefile are.
    """
    if runner != "make":
        return "other" if runner == "tox" and purpose_of(script.name) == "install" else None
    if script.name == "all":
        return "build"
    return "other" if _copies(script) or (copies and _installs(script) and not script.body) else None


def _installs(script: Script) -> bool:
    return "install" in re.split(r"[._-]", script.name)


def _copies(script: Script) -> bool:
    return _installs(script) and bool(script.body) and not _FETCHING.search(script.body)


def _of_scripts(tree: SourceTree, manifests: tuple[Manifest, ...]) -> Iterator[Command]:
    managers: dict[str, str] = {}
    for manifest in manifests:
        folder = manifest.path.rpartition("/")[0]
        if manifest.ecosystem == "node":
            manager = node_manager(Place(folder, manifest, frozenset(), (), tree))
            inherited = next((managers[above] for above in _above(folder) if above in managers), "npm")
            managers[folder] = manager if manager != "npm" else inherited
        for script in manifest.scripts:
            if manifest.ecosystem == "php":
                yield _declared(in_folder(folder, f"composer run {quote(script.name)}"), script)
            elif not _HOOKS.fullmatch(script.name):
                own = managers[folder] == "npm" and script.name in _NPM_OWN
                call = f"npm {script.name}" if own else f"{managers[folder]} run {quote(script.name)}"
                yield _declared(in_folder(folder, call), script)


def _above(folder: str) -> Iterator[str]:
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _declared(line: str, script: Script, purpose: Purpose | None = None) -> Command:
    about = script.about or (f"runs `{script.body}`" if script.body else "")
    purpose = purpose or purpose_of(script.name)
    if purpose == "format" and re.search(r"\s--(check|diff|check-only|dry-run)\b", script.body):
        purpose = "lint"  # it changes nothing
    return Command(line=line, purpose=purpose, origin="declared", about=about, evidence=script.evidence)


def _of_containers(tree: SourceTree) -> Iterator[Command]:
    for path in compose_files(tree):
        folder, _, name = path.rpartition("/")
        usual = name in ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
        options = "" if usual else f" -f {quote(name)}"
        yield Command(
            line=in_folder(folder, f"docker compose{options} up -d"),
            purpose="run",
            origin="conventional",
            about=f"starts the services of {path}",
            evidence=Evidence(path=path),
        )
    for path in container_files(tree):
        yield Command(
            line=f"docker build -f {quote(path)} ." if path != "Dockerfile" else "docker build .",
            purpose="build",
            origin="conventional",
            about=f"builds the image of {path}",
            evidence=Evidence(path=path),
        )


def best_command(stack: TechStack, purpose: Purpose) -> Command | None:
    """Return the command to name first for a purpose, or None.

    One at the top goes before one in a folder, one of the main language's tools before those of another, one that
    runs where it is called before a part of a matrix, a declared one before a conventional, and among those one that
    is called what it does.
    """
    found = [each for each in stack.commands if each.purpose == purpose]
    main = next((each.name for each in stack.languages if each.kind == "programming"), "")
    words = {"test": ("test", "check"), "run": ("start", "run", "dev")}.get(purpose, (purpose,))

    def rank(command: Command) -> tuple[bool, bool, bool, bool, bool, int]:
        is_elsewhere = command.line.startswith("cd ")
        is_part = _ONE_OF_MANY.search(command.line) is not None
        is_foreign = main not in _LANGUAGES_OF.get(command.line.split()[0], (main,))
        named = command.line.split()[-1] in words
        return is_elsewhere, is_foreign, is_part, command.origin != "declared", not named, found.index(command)

    return min(found, key=rank) if found else None


def all_checks(stack: TechStack) -> list[Command]:
    """Return what to run before handing over a change: one formatter, the linters, one run of the tests.

    The linters are those of the same origin as the best one, so that `make lint` does not stand beside the
    tools that it calls.
    """
    lint = best_command(stack, "lint")
    linters = [each for each in stack.commands if each.purpose == "lint" and lint and each.origin == lint.origin]
    at_top = [each for each in linters if not each.line.startswith("cd ")]
    chosen = [best_command(stack, "format"), *(at_top or linters)[:3], best_command(stack, "test")]
    return [each for each in chosen if each is not None]
