"""Which file is a manifest, and the reading of all those that speak for the project itself."""

import re
from collections.abc import Callable

from activities.project_init.files import SourceTree
from activities.project_init.listing import Progress
from activities.project_init.manifests import jvm, native, node, others, python, rust_and_go
from activities.project_init.parsing import UnreadableError
from activities.project_init.records import Manifest
from activities.project_init.roles import belongs_to_project

MOST_MANIFESTS = 300
"""Manifests read at most; a repository of many packages names the rest in an open question."""

_BENCHMARKS = {"bench", "benches", "benchmark", "benchmarks"}
_MOST_DEPENDENCIES = 2000

Reader = Callable[[str, str], Manifest]

_BY_NAME: dict[str, tuple[str, Reader]] = {
    "pyproject.toml": ("python", python.read_pyproject),
    "setup.cfg": ("python", python.read_setup_cfg),
    "setup.py": ("python", python.read_setup_py),
    "Pipfile": ("python", python.read_pipfile),
    "package.json": ("node", node.read_package_json),
    "Cargo.toml": ("rust", rust_and_go.read_cargo_toml),
    "go.mod": ("go", rust_and_go.read_go_mod),
    "pom.xml": ("jvm", jvm.read_pom),
    "build.gradle": ("jvm", jvm.read_gradle),
    "build.gradle.kts": ("jvm", jvm.read_gradle),
    "libs.versions.toml": ("jvm", jvm.read_gradle_catalog),
    "settings.gradle": ("jvm", jvm.read_gradle_settings),
    "settings.gradle.kts": ("jvm", jvm.read_gradle_settings),
    "Gemfile": ("ruby", others.read_gemfile),
    "composer.json": ("php", others.read_composer),
    "pubspec.yaml": ("dart", others.read_pubspec),
    "mix.exs": ("elixir", others.read_mix),
    "CMakeLists.txt": ("cmake", native.read_cmake),
    "configure.ac": ("autotools", native.read_autotools),
    "configure.in": ("autotools", native.read_autotools),
    "meson.build": ("meson", native.read_meson),
    "Makefile.PL": ("perl", native.read_perl),
    "Build.PL": ("perl", native.read_perl),
    "cpanfile": ("perl", native.read_perl),
}
_BY_PATTERN: tuple[tuple[re.Pattern[str], str, Reader], ...] = (
    (
        re.compile(r"(.*/)?([\w.-]*requirements[\w.-]*\.(txt|in)|requirements/[\w.-]+\.(txt|in))"),
        "python",
        python.read_requirements,
    ),
    (re.compile(r".*\.(cs|fs|vb)proj"), "dotnet", others.read_dotnet_project),
    (re.compile(r".*\.slnx?"), "dotnet", others.read_dotnet_solution),
    (re.compile(r".*\.gemspec"), "ruby", others.read_gemspec),
)


def reader_for(path: str) -> tuple[str, Reader] | None:
    """Return ecosystem and reader of a manifest, or None for any other file.

    Example:
        >>> reader_for("requirements-dev.txt")[0], reader_for("src/app.py")
        ('python', None)
    """
    known = _BY_NAME.get(path.rpartition("/")[2])
    if known is not None:
        return known
    for pattern, ecosystem, reader in _BY_PATTERN:
        if pattern.fullmatch(path):
            return ecosystem, reader
    return None


def read_manifests(tree: SourceTree, progress: Progress) -> tuple[tuple[Manifest, ...], int]:
    """Read every manifest of the project, those of test data, examples and vendored code excepted.

    A manifest that cannot be read is returned with its `problem`.

    Returns:
        The manifests, least deep first, and how many more there are than are read.
    """
    paths = [path for path in tree.by_path if belongs_to_project(path) and reader_for(path) is not None]
    manifests: list[Manifest] = []
    for number, path in enumerate(paths[:MOST_MANIFESTS]):
        if number % 25 == 0:
            progress(f"manifests: {number} of {len(paths)}")
        manifests.append(_read(tree, path))
    return tuple(manifests), max(0, len(paths) - MOST_MANIFESTS)


def _read(tree: SourceTree, path: str) -> Manifest:
    known = reader_for(path)
    assert known is not None, path  # noqa: S101 - only such paths are given
    ecosystem, reader = known
    text = tree.text(path)
    if text is None:
        return Manifest(path=path, ecosystem=ecosystem, problem="not a readable text, or too long")
    try:
        manifest = reader(path, text)
    except UnreadableError as error:
        return Manifest(path=path, ecosystem=ecosystem, problem=str(error))
    if _BENCHMARKS & set(path.split("/")[:-1]):
        manifest = _for_development(manifest)
    if len(manifest.dependencies) > _MOST_DEPENDENCIES:
        few = manifest.dependencies[:_MOST_DEPENDENCIES]
        problem = f"only the first {_MOST_DEPENDENCIES} of {len(manifest.dependencies)} dependencies are kept"
        return manifest.model_copy(update={"dependencies": few, "problem": problem})
    return manifest


def _for_development(manifest: Manifest) -> Manifest:
    """Return a manifest whose packages are for development: the program runs without them."""
    kept = (
        each.model_copy(update={"group": "development"}) if each.group == "runtime" else each
        for each in manifest.dependencies
    )
    return manifest.model_copy(update={"dependencies": tuple(kept)})
