"""Stage detect-tech-stack: languages, manifests, commands, declared and conventional, licences, and the conclusions."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import takewhile
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from activities.project_init.files import SourceTree, find_role
from activities.project_init.records import Command, Dependency, Evidence, Language, Manifest, Purpose, TechStack
from activities.source_files import LanguageKind, language_of, may_hold_secrets

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
        return {}
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


PURPOSES: tuple[Purpose, ...] = ("install", "run", "test", "lint", "format", "build", "release", "other")
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
_TOOLS: dict[str, Any] = tomllib.loads(files("activities.project_init").joinpath("tools.toml").read_text("utf-8"))
_PURPOSE_WORDS: dict[Purpose, str] = _TOOLS["purposes"]
_MANAGERS: dict[str, dict[str, str]] = _TOOLS["managers"]
_CONVENTIONS: dict[str, dict[Purpose, str]] = _TOOLS["conventions"]


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
        return "lint"  # a type check does not test
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
        commands.values(), key=lambda command: (PURPOSES.index(command.purpose), command.origin != "declared")
    )
    return tuple(ordered[:_MAX_ITEMS])


def best_command(stack: TechStack, purpose: Purpose) -> Command | None:
    """Return the best command for a purpose: top-level before subfolders, declared before conventional."""
    candidates = [command for command in stack.commands if command.purpose == purpose]

    def rank(command: Command) -> tuple[bool, bool, bool]:
        is_named = command.line.split()[-1] in _PURPOSE_WORDS.get(purpose, "").split()
        return command.line.startswith("cd "), command.origin != "declared", not is_named

    return min(candidates, key=rank, default=None)


def _in_folder(path: str, line: str) -> str:
    folder = path.rpartition("/")[0]
    return f"cd {quote(folder)} && {line}" if folder else line


def _make_targets(tree: SourceTree) -> Iterator[Command]:
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


_NOTE = re.compile(r"(?:#|//|/\*|--|<!--)\s*(TODO|FIXME|XXX|HACK)\b[:(]?\s*(.{0,120})")


@dataclass
class Structure:
    """How many lines each source file has, and the notes in all code as `path:line text`."""

    modules: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_structure(tree: SourceTree) -> Structure:
    """Read every source file once."""
    structure = Structure()
    for file in tree.listing.files:
        role, language = find_role(file.path), language_of(file.path)
        if language is None or language[1] != "programming" or role in ("generated", "vendored"):
            continue
        if role == "source":
            structure.modules[file.path] = file.lines
        for line, content in enumerate((tree.text(file.path) or "").split("\n"), 1):
            if note := _NOTE.search(content[:1000]):
                structure.notes.append(f"{file.path}:{line} {note[1]}: {note[2].strip()}")
    return structure


_LICENSE_FILE = re.compile(r"(?i)(licen[cs]e|copying|unlicense)([.-][\w.-]+)?")
_LOCK_FILE = re.compile(  # Pants lets projects name them
    r"(3rdparty/.*|[\w-]+)\.lockb?|pylock\.toml|(package-lock|npm-shrinkwrap)\.json|pnpm-lock\.yaml|go\.sum"
)
_ECOSYSTEM_NAMES = {"python": "Python", "node": "Node", "rust": "Rust", "go": "Go"}
_RUST_TEST = re.compile(r"#\[(\w+::)*test\b|#\[cfg\(test\)\]")
_KINDS = ("programming", "markup", "data", "prose")
_BUILD_LANGUAGES = ("Makefile", "CMake", "Meson", "Dockerfile", "Starlark")
_MAX_NAMED = 8


def detect(tree: SourceTree) -> TechStack:
    """Return the technologies of a project, each finding with its evidence."""
    manifests = read_manifests(tree)
    languages = _count_languages(tree)
    tests = tuple(test_files(tree))
    own = [manifest for manifest in manifests if "/" not in manifest.path]  # others describe a package each
    stack = TechStack(
        name=next((manifest.name for manifest in own if manifest.name), tree.listing.name),
        description=next((manifest.description for manifest in own if manifest.description), ""),
        languages=languages,
        manifests=manifests,
        commands=find_commands(tree, manifests, tests),
        license=next((manifest.license for manifest in own if manifest.license), ""),
        tests=tests,
    )
    return stack.model_copy(update=_draw_conclusions(tree, stack))


def test_files(tree: SourceTree) -> list[str]:
    """Return the test files: by name, or by content in Rust."""
    paths = []
    for path, file in tree.by_path.items():
        language = language_of(path) if file.kind == "text" else None
        if language and language[1] == "programming" and PurePosixPath(path).name not in ("__init__.py", "conftest.py"):
            is_rust_test = language[0] == "Rust" and _RUST_TEST.search(tree.text(path) or "")
            if find_role(path) == "test" or is_rust_test:
                paths.append(path)
    return paths


def _count_languages(tree: SourceTree) -> tuple[Language, ...]:
    """Count files and lines by language: programming languages first, then by lines."""
    files, lines = Counter[tuple[str, LanguageKind]](), Counter[tuple[str, LanguageKind]]()
    for file in tree.listing.files:
        start = b"" if "." in PurePosixPath(file.path).name else tree.head(file.path, 256) or b""
        if file.kind == "text" and (language := language_of(file.path, start)) is not None:
            files[language] += 1
            lines[language] += file.lines
    languages = [Language(name=key[0], kind=key[1], files=files[key], lines=lines[key]) for key in files]
    return tuple(
        sorted(
            languages,
            key=lambda language: (
                _KINDS.index(language.kind),
                language.name in _BUILD_LANGUAGES,
                -language.lines,
                language.name,
            ),
        )
    )


def _draw_conclusions(tree: SourceTree, stack: TechStack) -> dict[str, tuple[str, ...]]:
    if not tree.listing.files:
        return {
            "summary": ("Project directory is uninitialized, no source files found",),
            "decisions": ("Confirmed project is empty",),
            "open_questions": (
                "What is to be built, and for whom?",
                "Which language and framework should it be written in?",
                "Under which licence?",
            ),
        }
    return {
        "summary": tuple(_summarise(tree, stack)),
        "decisions": tuple(_list_decisions(tree, stack)),
        "constraints": tuple(_list_constraints(tree, stack)),
        "open_questions": tuple(_list_open_questions(tree, stack)),
    }


def _summarise(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    code = [language for language in stack.languages if language.kind == "programming"]
    lines = sum(language.lines for language in code)
    shares = ", ".join(
        f"{language.name} {language.lines / lines:.0%}" for language in code[:3] if language.lines * 100 >= lines > 0
    )
    size = f"{lines:,} lines of code ({shares})" if code else "none of them code"
    yield f"{stack.name}: {len(tree.listing.files):,} files, {size}"
    if packages := [manifest.name for manifest in stack.packages]:
        yield f"{len(packages)} packages: {_join_first(packages)}"
    dependencies = [dependency for manifest in stack.manifests for dependency in manifest.dependencies]
    if dependencies:
        locks = [path for path in tree.by_path if _LOCK_FILE.fullmatch(path)]
        pinned = f"lock files: {_join_first(locks)}" if locks else "no lock file found"
        own = {manifest.name for manifest in stack.manifests}
        runtime = (dependency.name for dependency in dependencies if dependency.group == "runtime")
        names = [name for name in dict.fromkeys(runtime) if name not in own]
        yield f"{len(dependencies)} dependencies declared ({pinned})" + (f": {_join_first(names)}" if names else "")
    command = best_command(stack, "test")
    run = f"`{command.line}` tests ({command.origin})" if command else "no command found that runs them"
    yield f"{len(stack.tests)} test files, {run}" if stack.tests else "No test files found"
    ci = [path for path in tree.by_path if _CI.fullmatch(path)]
    yield f"Workflows: {_join_first(ci)}" if ci else "No workflows found"
    texts = _join_first(license_files(tree))
    yield f"Licence: {stack.license or (f'its text is in {texts}' if texts else 'no file or manifest names it')}"


def _list_decisions(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    for ecosystem in dict.fromkeys(manifest.ecosystem for manifest in stack.manifests if not manifest.problem):
        first_manifest = next(manifest for manifest in stack.manifests if manifest.ecosystem == ecosystem)
        yield f"{_ECOSYSTEM_NAMES[ecosystem]} project: {first_manifest.path}"
    code = [language for language in stack.languages if language.kind == "programming"]
    if code:
        yield f"Most lines of code are {code[0].name}"
    if command := best_command(stack, "test"):
        yield f"Tests: `{command.line}` ({command.origin}, {command.evidence})"
    left_out = sum(omission.count for omission in tree.listing.left_out)
    files = f"{len(tree.listing.files)} files, {left_out} entries left out"
    yield f"Restricted analysis to what git lists of the {tree.listing.method}: {files}"


def _list_constraints(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    for runtime in dict.fromkeys(manifest.runtime for manifest in stack.manifests if manifest.runtime):
        yield f"{runtime} ({_join_first([item.path for item in stack.manifests if item.runtime == runtime], 2)})"
    if hooks := tree.named(".pre-commit-config.yaml"):
        yield f"The pre-commit hooks must pass ({hooks[0]})"
    if secrets := [path for path in tree.by_path if may_hold_secrets(path)]:
        yield f"Never quote the content of {_join_first(secrets)}: by name they may hold secrets"


def _list_open_questions(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    if not license_files(tree):
        declared = f"The manifest says {stack.license}, and no file has the text of the licence: add one?"
        yield (
            declared
            if stack.license
            else "No licence file or manifest entry was found: under which terms may others use this?"
        )
    has_code = any(language.kind == "programming" for language in stack.languages)
    if not stack.tests and has_code:
        yield "No test files were found: how is a change known to be right?"
    elif stack.tests and best_command(stack, "test") is None:
        yield "There are tests, and no command was found that runs them: which is it?"
    if not [path for path in tree.by_path if _CI.fullmatch(path)] and has_code:
        yield "No workflows were found: where are tests run before a release?"
    if not any(path.lower().startswith("readme") for path in tree.by_path):
        yield "No README was found at the top: what is the project for?"
    for manifest in stack.manifests:
        if manifest.problem:
            yield f"{manifest.path} cannot be read ({manifest.problem}): is it in use?"
    if not stack.manifests and has_code:
        yield "No manifest that is read here was found (Python, Node, Rust, Go): what does the code need?"
    for omission in tree.listing.left_out:
        if "limit" in omission.reason:
            yield f"{omission.count} entries left out ({omission.reason}): is anything missed?"


def license_files(tree: SourceTree) -> list[str]:
    """Return the licence files in the top folder."""
    return [path for path in tree.by_path if _LICENSE_FILE.fullmatch(path)]


def _join_first(names: list[str], most: int = _MAX_NAMED) -> str:
    omitted = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + omitted
