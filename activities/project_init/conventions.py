"""Commands that follow from a manifest by its tool's own custom, for each ecosystem.

Nothing here is declared by the project, so every command carries the file that implies it, and only those
are given whose tool the project shows signs of using.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote

from activities.project_init.calls import go_main, python_main
from activities.project_init.files import SourceTree
from activities.project_init.manifests.python import COMPILED
from activities.project_init.parsing import UnreadableError, parse_toml, table
from activities.project_init.python_tests import python_tests
from activities.project_init.records import Command, EntryPoint, Evidence, Manifest, Purpose, Technology
from activities.project_init.roles import is_test_code

DOTNET = (".sln", ".slnx", ".csproj", ".fsproj", ".vbproj")
"""Endings of what `dotnet` builds."""

Step = tuple[Purpose, str, str, *tuple[Evidence, ...]]
"""Purpose, command, what it does; and what shows it, where that is not the manifest as a whole."""


@dataclass(frozen=True)
class Place:
    """One folder that holds a manifest, and what is known about it.

    Attributes:
        folder: The folder, "" for the top.
        manifest: The manifest that speaks for it.
        tools: Names of the technologies in use anywhere in the project.
        entry_points: Where programs of the project start.
        tree: The project.

    Without a manifest, one of the code's files stands in its place, and implies nothing by itself.
    """

    folder: str
    manifest: Manifest
    tools: frozenset[str]
    entry_points: tuple[EntryPoint, ...]
    tree: SourceTree

    @property
    def prefix(self) -> str:
        """What every path below this folder begins with."""
        return f"{self.folder}/" if self.folder else ""

    def without_manifest(self, path: str) -> tuple[Evidence, ...]:
        """Return a file as what implies a command, where there is no manifest that does."""
        return (Evidence(path=path),) if self.manifest.path.endswith(".py") and not self.has("setup.py") else ()

    def has(self, *names: str) -> str:
        """Return the first of ``names`` that is a file of this folder, or ""."""
        return next((name for name in names if self.prefix + name in self.tree.by_path), "")

    def holds(self, folder: str) -> bool:
        """Return whether a folder is this one, or below it."""
        return f"{folder}/".startswith(self.prefix)

    def inside(self, folder: str) -> str:
        """Return a folder that this one holds as it is named from here; itself is ""."""
        return folder.removeprefix(self.folder).strip("/")

    def has_tests(self, *endings: str) -> bool:
        """Return whether there is a test with one of these endings in or below this folder."""
        return any(self.tests(*endings))

    def tests(self, *endings: str) -> Iterator[str]:
        """Yield the tests with one of these endings in and below this folder."""
        for path in self.tree.by_path:
            if path.endswith(endings) and path.startswith(self.prefix) and is_test_code(path):
                yield path


def python_runner(place: Place) -> str:
    """Return what to put before a command so that it runs in the project's environment, or ""."""
    if place.has("uv.lock"):
        return "uv run "
    if place.has("poetry.lock"):
        return "poetry run "
    if place.has("pdm.lock"):
        return "pdm run "
    return "pipenv run " if place.has("Pipfile.lock", "Pipfile") else ""


def _python_install(place: Place) -> Iterator[Step]:
    locked = {"uv.lock": "uv sync", "poetry.lock": "poetry install", "pdm.lock": "pdm install"}
    lock = place.has(*locked)
    if lock:
        yield "install", locked[lock], f"installs what {lock} pins"
        return
    if place.has("Pipfile"):
        yield "install", "pipenv install --dev", "installs what the Pipfile asks for"
        return
    if place.has("setup.py") or (place.has("pyproject.toml") and place.manifest.name):
        yield "install", "python -m pip install -e .", "installs the project itself, editable"
    for path in place.tree.by_path:
        folder, _, name = path.rpartition("/")
        if folder == place.folder and name.endswith(".txt") and "requirements" in name:
            yield "install", f"python -m pip install -r {quote(name)}", f"installs what {name} asks for"


def _python(place: Place) -> Iterator[Step]:
    yield from _python_install(place)
    run = python_runner(place)
    for entry in place.manifest.entry_points:
        if entry.kind == "console script":
            yield "run", f"{run}{quote(entry.name)}", f"starts `{entry.target}`", entry.evidence
    scripts = {entry.target.partition(":")[0].partition(".")[0] for entry in place.manifest.entry_points}
    for entry in place.entry_points:
        path = entry.evidence.path
        if entry.kind == "main module" and "/" in path:  # the top is no package to itself
            home, call = python_main(place.tree, path.rpartition("/")[0])
            if place.holds(home) and call.split()[-1] not in scripts:
                yield (
                    "run",
                    in_folder(place.inside(home), run + call),
                    f"starts `{path}`",
                    *place.without_manifest(path),
                )
    for entry in place.entry_points:
        folder, _, name = entry.evidence.path.rpartition("/")
        is_ours = entry.kind == "script" and entry.target.startswith("python ") and folder == place.folder
        if is_ours and name not in ("manage.py", "setup.py"):  # these do nothing without a word more
            path = entry.evidence.path
            yield "run", f"{run}python {quote(name)}", f"starts `{path}`", *place.without_manifest(path)
    if place.has("manage.py"):
        yield "run", f"{run}python manage.py runserver", "starts Django's development server"
    calls = python_tests(place.tree, place.folder, place.tests(".py"), with_pytest="pytest" in place.tools)
    if calls:
        shown = place.without_manifest(next(place.tests(".py"), place.manifest.path))
        yield "test", " && ".join(run + call for call in calls), "runs the tests", *shown
    checks = {"Ruff": "ruff check .", "mypy": _mypy(place), "Pyright": "pyright", "Flake8": "flake8"}
    for tool, command in checks.items():
        if tool in place.tools:
            yield "lint", run + command, f"checks with {tool}"
    formats = {"Ruff": "ruff format .", "Black": "black .", "isort": "isort ."}
    for tool, command in formats.items():
        if tool in place.tools:
            yield "format", run + command, f"formats with {tool}"
    if place.manifest.builder and place.manifest.builder not in ("pipenv", COMPILED):
        uses_uv = place.has("uv.lock") or place.manifest.builder == "uv_build"
        yield "build", "uv build" if uses_uv else "python -m build", "builds wheel and source distribution"


def _mypy(place: Place) -> str:
    text = place.tree.text(f"{place.prefix}pyproject.toml") or ""
    try:
        knows_its_files = {"files", "packages", "modules"} & set(table(parse_toml(text), "tool", "mypy"))
    except UnreadableError:
        return "mypy ."
    return "mypy" if knows_its_files else "mypy ."


def node_manager(place: Place) -> str:
    """Return the package manager of a Node folder: by lock file, else as declared, else npm."""
    for lock, manager in (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun")):
        if place.has(lock):
            return manager
    declared = place.manifest.builder
    return declared if declared in ("npm", "pnpm", "yarn", "bun") else "npm"


def _node(place: Place) -> Iterator[Step]:
    manager = node_manager(place)
    if manager == "npm":
        locked = place.has("package-lock.json", "npm-shrinkwrap.json")
        command = "npm ci" if locked else "npm install"
    else:
        locked = place.has("pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb")
        command = f"{manager} install --frozen-lockfile" if locked else f"{manager} install"
    yield "install", command, f"installs what {locked} pins" if locked else "installs what package.json asks for"


def _go(place: Place) -> Iterator[Step]:
    yield "install", "go mod download", "downloads the modules that go.mod asks for"
    for entry in place.entry_points:
        home, call = go_main(place.tree, entry.evidence.path.rpartition("/")[0])
        if entry.kind == "binary" and entry.evidence.path.endswith(".go") and place.holds(home):
            yield "run", in_folder(place.inside(home), call), f"starts `{entry.evidence.path}`"
    yield "build", "go build ./...", "compiles every package"
    if place.has_tests("_test.go"):
        yield "test", "go test ./...", "runs the tests of every package"
    yield "lint", "go vet ./...", "reports suspicious code"
    if place.has(".golangci.yml", ".golangci.yaml", ".golangci.toml"):
        yield "lint", "golangci-lint run", "runs the configured linters"
    yield "format", "gofmt -w .", "formats in place"


def _rust(place: Place) -> Iterator[Step]:
    yield "install", "cargo fetch", "fetches what Cargo.toml asks for"
    yield "build", "cargo build", "compiles"
    if place.has("src/main.rs"):
        yield "run", "cargo run", "starts `src/main.rs`"
    for entry in place.entry_points:
        folder, _, file = entry.evidence.path.rpartition("/")
        name = file.removesuffix(".rs")
        if entry.kind == "binary" and place.holds(folder) and "/bin/" in entry.evidence.path and name != "main":
            yield "run", f"cargo run --bin {quote(name)}", f"starts `{entry.evidence.path}`"
    yield "test", "cargo test", "runs unit, integration and documentation tests"
    yield "lint", "cargo clippy", "lints"
    yield "format", "cargo fmt", "formats in place"


def _jvm(place: Place) -> Iterator[Step]:
    plugins = {tool.name for tool in place.manifest.tools}
    if place.manifest.builder == "maven":
        maven = "./mvnw" if place.has("mvnw") else "mvn"
        yield "install", f"{maven} -B dependency:go-offline", "fetches what pom.xml asks for"
        yield "build", f"{maven} -B package", "compiles, tests and packages"
        yield "test", f"{maven} -B test", "runs the tests"
        if "spring-boot-maven-plugin" in plugins:
            yield "run", f"{maven} spring-boot:run", "starts the application"
    else:
        gradle = "./gradlew" if place.has("gradlew") else "gradle"
        yield "install", f"{gradle} dependencies", "fetches and lists what the build asks for"
        yield "build", f"{gradle} build", "compiles, tests and packages"
        yield "test", f"{gradle} test", "runs the tests"
        if "org.springframework.boot" in plugins:
            yield "run", f"{gradle} bootRun", "starts the application"
        elif "application" in plugins:
            yield "run", f"{gradle} run", "starts the application"


def _ruby(place: Place) -> Iterator[Step]:
    yield "install", "bundle install", "installs what the Gemfile asks for"
    if "RSpec" in place.tools:
        yield "test", "bundle exec rspec", "runs the specifications"
    elif place.has("Rakefile"):
        yield "test", "bundle exec rake test", "runs the tests"
    if "Rails" in place.tools and place.has("bin/rails"):
        yield "run", "bin/rails server", "starts the development server"
    if "RuboCop" in place.tools:
        yield "lint", "bundle exec rubocop", "lints"


def _php(place: Place) -> Iterator[Step]:
    yield "install", "composer install", "installs what composer.json asks for"
    if "PHPUnit" in place.tools:
        yield "test", "vendor/bin/phpunit", "runs the tests"
    elif "PHPUnit bridge" in place.tools:
        yield "test", "vendor/bin/simple-phpunit", "runs the tests"
    for entry in place.manifest.entry_points:
        yield "run", f"php {quote(entry.target)}", f"starts `{entry.target}`", entry.evidence
    if place.has("artisan"):
        yield "run", "php artisan serve", "starts Laravel's development server"


def _dotnet(place: Place) -> Iterator[Step]:
    here = [path for path in place.tree.by_path if path.endswith(DOTNET) and path.rpartition("/")[0] == place.folder]
    named = f" {quote(place.manifest.path.rpartition('/')[2])}" if len(here) > 1 else ""  # else it asks which
    yield "install", f"dotnet restore{named}", "restores the packages"
    yield "build", f"dotnet build{named}", "compiles"
    if {"xUnit", "NUnit", "MSTest"} & place.tools or place.has_tests(".cs", ".fs", ".vb"):
        yield "test", f"dotnet test{named}", "runs the tests"
    for entry in place.entry_points:
        if entry.target.endswith(DOTNET) and entry.target.startswith(place.prefix):
            project = entry.target.removeprefix(place.prefix)
            yield "run", f"dotnet run --project {quote(project)}", f"starts {entry.name}"


def _dart(place: Place) -> Iterator[Step]:
    tool = "flutter" if "Flutter" in place.tools else "dart"
    yield "install", f"{tool} pub get", "fetches what pubspec.yaml asks for"
    if place.has_tests(".dart"):
        yield "test", f"{tool} test", "runs the tests"
    yield "lint", f"{tool} analyze", "analyses the code"


def _elixir(place: Place) -> Iterator[Step]:
    yield "install", "mix deps.get", "fetches what mix.exs asks for"
    yield "build", "mix compile", "compiles"
    if place.has_tests(".exs"):
        yield "test", "mix test", "runs the tests"
    if "Phoenix" in place.tools:
        yield "run", "mix phx.server", "starts the server"


def _cmake(place: Place) -> Iterator[Step]:
    yield "build", "cmake -S . -B build && cmake --build build", "configures and compiles into build/"
    if "enable_testing" in (place.tree.text(f"{place.prefix}CMakeLists.txt") or ""):
        yield "test", "ctest --test-dir build", "runs the tests of the build"


def _autotools(place: Place) -> Iterator[Step]:
    configure = "./configure" if place.has("configure") else "autoreconf -i && ./configure"
    template = place.has("Makefile.am", "Makefile.in")
    if template or not place.has("Makefile", "GNUmakefile", "makefile"):  # one written by hand says how to build
        yield "build", f"{configure} && make", "configures for this machine and compiles"
    text = (place.tree.text(place.prefix + template) or "") if template else ""
    if re.search(r"^(TESTS\b|check_PROGRAMS\b|check(-local)?\s*:)", text, re.MULTILINE):
        yield "test", f"{configure} && make check", "configures, compiles and runs the tests"


def _meson(place: Place) -> Iterator[Step]:
    yield "build", "meson setup build && meson compile -C build", "configures and compiles into build/"
    files = [path for path in place.tree.named("meson.build") if path.startswith(place.prefix)]
    if any(re.search(r"^[ \t]*test\s*\(", place.tree.text(path) or "", re.MULTILINE) for path in files):
        yield "test", "meson test -C build", "runs the tests of the build"


def _perl(place: Place) -> Iterator[Step]:
    yield "install", "cpanm --installdeps .", "installs the modules that the project asks for"
    if place.has("Makefile.PL"):
        yield "build", "perl Makefile.PL && make", "prepares and builds it"
    elif place.has("Build.PL"):
        yield "build", "perl Build.PL && ./Build", "prepares and builds it"
    if place.has_tests(".t") and f"{place.prefix}t" in place.tree.folders:
        yield "test", "prove -lr t", "runs the tests"


_CUSTOMS: dict[str, Callable[[Place], Iterator[Step]]] = {
    "python": _python,
    "node": _node,
    "go": _go,
    "rust": _rust,
    "jvm": _jvm,
    "ruby": _ruby,
    "php": _php,
    "dotnet": _dotnet,
    "dart": _dart,
    "elixir": _elixir,
    "cmake": _cmake,
    "autotools": _autotools,
    "meson": _meson,
    "perl": _perl,
}
_MAIN_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg", "Pipfile")


def conventional_commands(
    tree: SourceTree,
    manifests: tuple[Manifest, ...],
    technologies: tuple[Technology, ...],
    entry_points: tuple[EntryPoint, ...],
) -> Iterator[Command]:
    """Yield the commands that custom implies, for the topmost manifests of each ecosystem.

    A manifest below another of its ecosystem is a member of that one's workspace, and built with it. Python
    without any manifest still has custom on its side.
    """
    tools = frozenset(each.name for each in technologies)
    places: dict[tuple[str, str], Manifest] = {}
    for manifest in sorted(manifests, key=_main_first):
        folder = _folder_of(manifest)
        covered = any((manifest.ecosystem, above) in places for above in _with_those_above(folder))
        beside = places.get((manifest.ecosystem, folder))
        if manifest.problem:
            continue
        if beside is not None and manifest.path.rpartition("/")[2] in _MAIN_MANIFESTS:
            places[manifest.ecosystem, folder] = _joined(beside, manifest)
        elif not covered:
            places[manifest.ecosystem, folder] = manifest
    if not any(ecosystem == "python" for ecosystem, _ in places):
        loose = next((path for path in tree.by_path if path.endswith(".py")), None)
        if loose is not None:
            places["python", ""] = Manifest(path=loose, ecosystem="python")
    paths = {manifest.path for manifest in manifests}
    for (ecosystem, folder), manifest in places.items():
        place = Place(folder, manifest, tools, entry_points, tree)
        for purpose, line, about, *declared in _CUSTOMS[ecosystem](place):
            yield Command(
                line=in_folder(folder, line),
                purpose=purpose,
                origin="declared" if declared and declared[0].path in paths else "conventional",
                about=about,
                evidence=declared[0] if declared else Evidence(path=manifest.path),
            )


def in_folder(folder: str, line: str) -> str:
    """Return a command for the project's folder that does what ``line`` does in ``folder``.

    Example:
        >>> in_folder("web app", "npm test"), in_folder("", "make")
        ("cd 'web app' && npm test", 'make')
    """
    return f"cd {quote(folder)} && {line}" if folder else line


def _joined(first: Manifest, second: Manifest) -> Manifest:
    """Return the first of two Python manifests of a folder, with what the second alone says: `setup.cfg` mostly."""
    known = {entry.name for entry in first.entry_points}
    others = tuple(entry for entry in second.entry_points if entry.name not in known)
    return first.model_copy(
        update={
            "name": first.name or second.name,
            "builder": first.builder or second.builder,
            "entry_points": (*first.entry_points, *others),
        }
    )


def _folder_of(manifest: Manifest) -> str:
    folder = manifest.path.rpartition("/")[0]
    return folder.rpartition("/")[0] if folder.rpartition("/")[2] == "requirements" else folder


def _with_those_above(folder: str) -> Iterator[str]:
    parts = folder.split("/") if folder else []
    for count in range(len(parts) + 1):
        yield "/".join(parts[:count])


def _main_first(manifest: Manifest) -> tuple[int, int, str]:
    name = manifest.path.rpartition("/")[2]
    rank = _MAIN_MANIFESTS.index(name) if name in _MAIN_MANIFESTS else len(_MAIN_MANIFESTS)
    is_first = name.startswith(("pom", "build")) or name.endswith((".sln", ".slnx"))
    return manifest.path.count("/"), 0 if is_first else rank, manifest.path
