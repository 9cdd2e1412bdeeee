"""Whether a command that a document names exists: its target, script, module or tool, in the project as it is now.

Nothing is executed. A command resolves if the project still declares what it calls; whether the program is
installed on this machine is another matter, and told apart.
"""

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from activities.project_init.conventions import DOTNET
from activities.project_init.files import SourceTree
from activities.project_init.imports import PythonModules
from activities.project_init.listing import Progress
from activities.project_init.manifests.registry import read_manifests
from activities.project_init.runners import find_tasks

_WRAPPERS = (("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("bundle", "exec"))
_STANDARD_MODULES = ("pip", "unittest", "venv", "build", "http.server")
_TOOLS = ("ruff", "mypy", "pyright", "flake8", "black", "isort", "pylint", "pytest", "rspec", "rubocop", "rake")
_MANIFESTS = {
    "uv": ("pyproject.toml",),
    "poetry": ("pyproject.toml",),
    "pdm": ("pyproject.toml",),
    "pipenv": ("Pipfile",),
    "go": ("go.mod",),
    "gofmt": ("go.mod",),
    "golangci-lint": ("go.mod",),
    "cargo": ("Cargo.toml",),
    "mvn": ("pom.xml",),
    "./mvnw": ("pom.xml",),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    "./gradlew": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    "bundle": ("Gemfile",),
    "composer": ("composer.json",),
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "bun": ("package.json",),
    "dart": ("pubspec.yaml",),
    "flutter": ("pubspec.yaml",),
    "mix": ("mix.exs",),
    "cmake": ("CMakeLists.txt",),
    "ctest": ("CMakeLists.txt",),
    "autoreconf": ("configure.ac", "configure.in"),
    "./configure": ("configure", "configure.ac", "configure.in"),
    "meson": ("meson.build",),
    "cpanm": ("Makefile.PL", "Build.PL", "cpanfile"),
    "./Build": ("Build.PL",),
}
_MADE_BEFORE = ("./configure", "./Build")  # by the command that goes before them in the line
_MADE_TARGETS = {"check": ("Makefile.am",)}
"""What `make` knows in a Makefile that is still to be made from these files."""

_ENVIRONMENTS = (".venv/bin", ".venv/Scripts", "venv/bin", "venv/Scripts", "node_modules/.bin")
_COMPOSE_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")


@dataclass(frozen=True)
class Resolution:
    """Whether a command resolves.

    Attributes:
        fault: Why it does not, or "".
        missing: Programs that it needs and this machine does not have.
    """

    fault: str
    missing: tuple[str, ...]


class CommandResolver:
    """Resolves commands against what the project declares, read anew when this is constructed.

    Args:
        tree: The project as it is now.
        progress: Called regularly while the manifests are read.
    """

    def __init__(self, tree: SourceTree, progress: Progress) -> None:
        manifests, _ = read_manifests(tree, progress)
        paths = tuple(each.path for each in manifests if each.ecosystem == "python")
        self._tree = tree
        self._tasks = {
            (runner, folder): {script.name for script in scripts}
            for runner, folders in find_tasks(tree).items()
            for folder, scripts in folders.items()
        }
        self._modules = PythonModules(list(tree.by_path), paths, tree.listing.name)
        self._scripts = {(each.path.rpartition("/")[0], script.name) for each in manifests for script in each.scripts}
        self._programs = {entry.name for each in manifests for entry in each.entry_points}
        self._packages = {wanted.name.lower() for each in manifests for wanted in each.dependencies} | {
            tool.name.lower() for each in manifests for tool in each.tools
        }
        self._handlers: dict[str, Callable[[list[str], str], str]] = {
            "make": lambda words, folder: self._task("make", words[1:], folder),
            "just": lambda words, folder: self._task("just", words[1:], folder),
            "task": lambda words, folder: self._task("task", words[1:], folder),
            "tox": lambda words, folder: self._task("tox", words[2:], folder),
            "nox": lambda words, folder: self._task("nox", words[2:], folder),
            "python": self._python,
            "docker": self._docker,
            "dotnet": self._dotnet,
            "go": self._go,
            **dict.fromkeys(("perl", "php"), self._file),
            "prove": self._prove,
            **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "composer"), self._script),
        }

    def resolve(self, line: str) -> Resolution:
        """Return whether every part of a command line resolves.

        Args:
            line: Commands joined by `&&`, each with plain words; `cd` changes the folder for what follows.
        """
        try:
            words = shlex.split(line)
        except ValueError:
            return Resolution("it cannot be split into words", ())
        folder, missing = "", list[str]()
        for part in _parts(words):
            if part[0] == "cd" and len(part) == 2:
                folder = f"{folder}/{part[1]}".strip("/")
                if folder not in self._tree.folders:
                    return Resolution(f"there is no folder {folder!r}", ())
                continue
            fault = self._fault(part, folder)
            if fault:
                return Resolution(fault, ())
            missing += [each for each in self._needed(part) if not self._is_installed(each)]
        return Resolution("", tuple(dict.fromkeys(missing)))

    def _fault(self, words: list[str], folder: str) -> str:
        if tuple(words[:2]) in _WRAPPERS and len(words) > 2:
            fault = self._manifest(words[0], folder)
            return fault or self._fault(words[2:], folder)
        program = words[0]
        if program in _MANIFESTS:
            fault = self._manifest(program, folder)
            if fault:
                return fault
        if program in self._handlers:
            return self._handlers[program](words, folder)
        if program in _MANIFESTS or program in self._programs:
            return ""
        if program in _TOOLS or program.startswith("vendor/bin/"):
            name = program.rpartition("/")[2].removeprefix("simple-")  # as Symfony's bridge calls PHPUnit
            is_declared = any(name in package for package in self._packages)
            return "" if is_declared else f"{name!r} is declared by no manifest"
        if self._has(folder, program.removeprefix("./")):
            return ""
        return f"{program!r} is neither a program of the project nor a tool that it declares"

    def _needed(self, words: list[str]) -> list[str]:
        """Return the programs that must be installed, files of the project itself left out."""
        if tuple(words[:2]) in _WRAPPERS:
            return words[:1]
        return [] if "/" in words[0] else words[:1]

    def _is_installed(self, program: str) -> bool:
        """Return whether a program is on the path, or in an environment of the project itself."""
        places = [str(self._tree.root / folder) for folder in _ENVIRONMENTS]
        return shutil.which(program) is not None or shutil.which(program, path=os.pathsep.join(places)) is not None

    def _has(self, folder: str, name: str) -> bool:
        return (f"{folder}/{name}" if folder else name) in self._tree.by_path

    def _manifest(self, program: str, folder: str) -> str:
        names = _MANIFESTS[program]
        if program.startswith("./") and program not in _MADE_BEFORE and not self._has(folder, program[2:]):
            return f"there is no {program[2:]!r} in {folder or 'the top folder'}"
        if any(self._has(folder, name) for name in names):
            return ""
        return f"{program!r} needs {' or '.join(names)} in {folder or 'the top folder'}"

    def _task(self, runner: str, words: list[str], folder: str) -> str:
        known = self._tasks.get((runner, folder), set())
        if runner == "make":
            known = known | {
                target for target, files in _MADE_TARGETS.items() if any(self._has(folder, name) for name in files)
            }
        unknown = [word for word in words if word not in known and not word.startswith("-")]
        return f"{runner} knows no {unknown[0]!r} in {folder or 'the top folder'}" if unknown else ""

    def _script(self, words: list[str], folder: str) -> str:
        called = words[2] if words[1:2] == ["run"] and len(words) > 2 else words[1] if len(words) > 1 else "install"
        if called in ("install", "ci") and words[1:2] != ["run"]:
            return ""
        return "" if (folder, called) in self._scripts else f"{words[0]} knows no script {called!r}"

    def _python(self, words: list[str], folder: str) -> str:
        rest = words[1:]
        if rest[:3] == ["-m", "pip", "install"]:
            if rest[3:5] == ["-e", "."]:
                declared = ("pyproject.toml", "setup.py", "setup.cfg")
                found = any(self._has(folder, name) for name in declared)
                return "" if found else f"nothing to install: no {' or '.join(declared)}"
            return "" if rest[3:4] != ["-r"] or self._has(folder, rest[4]) else f"there is no {rest[4]!r}"
        if rest[:1] == ["-m"] and len(rest) > 1:
            module = rest[1]
            is_known = module in _STANDARD_MODULES or module in self._packages
            return "" if is_known or self._has_module(folder, module) else f"there is no module {module!r}"
        if rest and not rest[0].startswith("-"):
            is_here = self._has(folder, rest[0]) or self._has(folder, f"{rest[0]}/__main__.py")
            return "" if is_here else f"there is no {rest[0]!r}"
        return "" if not rest else f"python is called with {rest[0]!r} alone"

    def _has_module(self, folder: str, module: str) -> bool:
        """Return whether a module can be run in a folder: below the top, what is imported from there alone."""
        if not folder:
            return any(self._modules.path_of(name) for name in (module, f"{module}.__main__"))
        path = module.replace(".", "/")
        return any(self._has(folder, f"{base}{path}{end}") for base in ("", "src/") for end in (".py", "/__main__.py"))

    def _docker(self, words: list[str], folder: str) -> str:
        named = words[words.index("-f") + 1] if "-f" in words[:-1] else ""
        if words[1:2] == ["compose"]:
            found = self._has(folder, named) if named else any(self._has(folder, name) for name in _COMPOSE_NAMES)
            return "" if found else f"there is no {named or 'compose file'!r} in {folder or 'the top folder'}"
        found = self._has(folder, named or "Dockerfile")
        return "" if found else f"there is no {named or 'Dockerfile'!r} in {folder or 'the top folder'}"

    def _go(self, words: list[str], folder: str) -> str:
        if words[1:2] == ["run"] and len(words) > 2:
            target = f"{folder}/{words[2].removeprefix('./').rstrip('.')}".strip("/")
            return "" if target in self._tree.folders else f"there is no folder {target!r}"
        return ""

    def _file(self, words: list[str], folder: str) -> str:
        return "" if self._has(folder, words[1]) else f"there is no {words[1]!r}"

    def _prove(self, words: list[str], folder: str) -> str:
        target = f"{folder}/{words[-1]}".strip("/")
        return "" if target in self._tree.folders else f"there is no folder {target!r}"

    def _dotnet(self, words: list[str], folder: str) -> str:
        if "--project" in words[:-1]:
            named = words[words.index("--project") + 1]
            return "" if self._has(folder, named) else f"there is no {named!r}"
        if words[-1].endswith(DOTNET):
            return "" if self._has(folder, words[-1]) else f"there is no {words[-1]!r}"
        return "" if any(path.endswith(DOTNET) for path in self._tree.by_path) else "there is no .NET project"


def _parts(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]
