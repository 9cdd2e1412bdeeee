"""Stage detect-tech-stack: languages, manifests, commands, licences, and the conclusions."""

import ast
import configparser
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from activities.project_init.commands import (
    best_command,
    ci_files,
    find_commands,
    read_manifests,
)
from activities.project_init.files import Progress, SourceTree, find_role, may_hold_secrets
from activities.project_init.records import Language, TechStack
from activities.source_files import LanguageKind, language_of

_MAX_MODULES = 5_000
_NOTE = re.compile(r"(?:#|//|/\*|--|<!--)\s*(TODO|FIXME|XXX|HACK)\b[:(]?\s*(.{0,120})")


@dataclass
class Module:
    """A source file: of Python also the first line of its docstring, or why it cannot be parsed."""

    path: str
    lines: int
    about: str = ""
    problem: str = ""


@dataclass
class Structure:
    """The modules of a project by path, and their TODO notes as `path:line text`."""

    modules: dict[str, Module] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def source(self) -> list[Module]:
        """The modules that are neither tests nor examples."""
        return [module for module in self.modules.values() if find_role(module.path) == "source"]


def read_structure(tree: SourceTree, progress: Progress | None = None) -> Structure:
    """Read every source file once."""
    report, structure = progress or (lambda _: None), Structure()
    code = [
        (file, language[0])
        for file in tree.listing.files
        if file.kind == "text" and (language := language_of(file.path)) and language[1] == "programming"
        if find_role(file.path) not in ("generated", "vendored")
    ]
    for number, (file, name) in enumerate(code[:_MAX_MODULES]):
        if number % 100 == 0:
            report(f"structure: {number} of {len(code)} modules")
        text = tree.text(file.path)
        if text is None:
            continue
        module = structure.modules[file.path] = Module(file.path, file.lines)
        for line, content in enumerate(text.split("\n"), 1):
            if note := _NOTE.search(content[:1000]):
                structure.notes.append(f"{file.path}:{line} {note[1]}: {note[2].strip()}")
        if name == "Python":
            _read_python(module, text)
    return structure


def _read_python(module: Module, text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            syntax_tree = ast.parse(text)
        module.about = (ast.get_docstring(syntax_tree) or "").strip().split("\n")[0]
    except SyntaxError as error:
        module.problem = f"line {error.lineno}: {error.msg}"
    except (RecursionError, MemoryError, ValueError):
        module.problem = "nested too deeply"


_LICENSE_FILE = re.compile(r"(?i)(licen[cs]e|copying|unlicense)([.-][\w.-]+)?")
LOCKS = {
    "python": ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock"),
    "node": ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"),
    "rust": ("Cargo.lock",),
    "go": ("go.sum",),
}
_OTHER_LOCK = re.compile(r"(?:3rdparty/(?:\w+/)*)?[\w-]+\.lock(?:file)?")  # Pants lets projects name them
_ECOSYSTEM_NAMES = {"python": "Python", "node": "Node", "rust": "Rust", "go": "Go"}
_RUST_TEST = re.compile(r"#\[(\w+::)*test\b|#\[cfg\(test\)\]")
_KINDS = ("programming", "markup", "data", "prose")
_BUILD_LANGUAGES = ("Makefile", "CMake", "Meson", "Dockerfile", "Starlark")
_MAX_NAMED = 8


def detect(tree: SourceTree, progress: Progress | None = None) -> TechStack:
    """Return the technologies of a project, each finding with its evidence."""
    report = progress or (lambda _: None)
    report("reading manifests")
    manifests = read_manifests(tree)
    report("counting languages")
    languages = _count_languages(tree)
    report("looking for tests, commands and licences")
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
    """Return the test files: by name, by pytest's settings, or by content in Rust."""
    patterns = _read_pytest_patterns(tree)
    paths = []
    for path, file in tree.by_path.items():
        language = language_of(path) if file.kind == "text" else None
        name = PurePosixPath(path).name
        if language is None or language[1] != "programming" or name in ("__init__.py", "conftest.py"):
            continue
        is_python_test = language[0] == "Python" and any(fnmatchcase(name, pattern) for pattern in patterns)
        is_rust_test = language[0] == "Rust" and _RUST_TEST.search(tree.text(path) or "")
        if find_role(path) == "test" or is_python_test or is_rust_test:
            paths.append(path)
    return paths


def has_lock(tree: SourceTree, stack: TechStack, ecosystem: str) -> bool:
    """Return whether an ecosystem's dependencies are pinned by a lock file or exact versions."""
    own_manifests = [manifest for manifest in stack.manifests if manifest.ecosystem == ecosystem]
    exact = all(
        dependency.requirement.startswith("==") for manifest in own_manifests for dependency in manifest.dependencies
    )
    return exact or any(manifest.pinned for manifest in own_manifests) or bool(_find_locks(tree, ecosystem))


def _find_locks(tree: SourceTree, *ecosystems: str) -> list[str]:
    names = {name for ecosystem in ecosystems for name in LOCKS[ecosystem]}
    named = {path for path in tree.named(*names) if "/" not in path}
    return [path for path in tree.by_path if path in named or ("python" in ecosystems and _OTHER_LOCK.fullmatch(path))]


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


def _read_pytest_patterns(tree: SourceTree) -> list[str]:
    """Return pytest's `python_files` patterns."""
    patterns: list[str] = []
    for path in tree.named("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg"):
        text = tree.text(path) or ""
        setting: object = ""
        try:
            if path.endswith(".toml"):
                settings = tomllib.loads(text).get("tool", {}).get("pytest", {})
                setting = settings.get("ini_options", settings).get("python_files", "")
            else:
                parser = configparser.ConfigParser(interpolation=None, strict=False)
                parser.read_string(text)
                section = "tool:pytest" if path.endswith("setup.cfg") else "pytest"
                setting = parser.get(section, "python_files", fallback="")
        except (tomllib.TOMLDecodeError, configparser.Error, AttributeError):
            continue
        words = setting.split() if isinstance(setting, str) else setting if isinstance(setting, list) else []
        patterns += [word for word in words if isinstance(word, str)]
    return patterns


def _draw_conclusions(tree: SourceTree, stack: TechStack) -> dict[str, tuple[str, ...]]:
    """Return the four lists for the baton."""
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
        locks = _find_locks(tree, *{manifest.ecosystem: None for manifest in stack.manifests})
        pinned = f"lock files: {_join_first(locks)}" if locks else "no lock file found"
        own = {manifest.name for manifest in stack.manifests}
        runtime = (dependency.name for dependency in dependencies if dependency.group == "runtime")
        names = [name for name in dict.fromkeys(runtime) if name not in own]
        yield f"{len(dependencies)} dependencies declared, {pinned}" + (f": {_join_first(names)}" if names else "")
    command = best_command(stack, "test")
    run = f"`{command.line}` tests ({command.origin})" if command else "no command found that runs them"
    yield f"{len(stack.tests)} test files, {run}" if stack.tests else "No test files found"
    ci = ci_files(tree)
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
    for path in tree.named("pyproject.toml"):
        text = tree.text(path) or ""
        if width := re.search(r"^line[-_]length\s*=\s*(\d+)", text, re.MULTILINE):
            yield f"Lines have at most {width[1]} characters ({path}:{text.count(chr(10), 0, width.start()) + 1})"
    if hooks := tree.named(".pre-commit-config.yaml"):
        yield f"The pre-commit hooks must pass ({hooks[0]})"
    if secrets := [path for path in tree.by_path if may_hold_secrets(path)]:
        yield f"Never quote the content of {_join_first(secrets)}: by name they may hold secrets"


def _list_open_questions(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    if not license_files(tree):
        declared = f"The manifest says {stack.license}, and no file has the text of the licence: add one?"
        yield declared if stack.license else "No file or manifest for a licence: under which terms may others use this?"
    has_code = any(language.kind == "programming" for language in stack.languages)
    if not stack.tests and has_code:
        yield "No test files were found: how is a change known to be right?"
    elif stack.tests and best_command(stack, "test") is None:
        yield "There are tests, and no command was found that runs them: which is it?"
    if not ci_files(tree) and has_code:
        yield "No workflows were found: where are tests run before a release?"
    if not any(path.lower().startswith("readme") for path in tree.by_path):
        yield "No README was found at the top: what is the project for?"
    for ecosystem in dict.fromkeys(manifest.ecosystem for manifest in stack.manifests if manifest.dependencies):
        if not has_lock(tree, stack, ecosystem):
            yield f"No lock file was found for the {_ECOSYSTEM_NAMES[ecosystem]} dependencies: is that intended?"
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
    """Join the first names, and count the others."""
    omitted = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + omitted
