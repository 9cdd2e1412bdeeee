"""What follows from the findings: a summary, decisions, constraints and the questions only a person can answer.

These four lists are what stage `detect-tech-stack` puts in the baton (S1 L67-70); every sentence stands alone.
"""

from collections.abc import Iterator

from activities.project_init.commands import best_command
from activities.project_init.files import SourceTree
from activities.project_init.house_rules import find_rules
from activities.project_init.ignore import may_hold_secrets
from activities.project_init.languages import kind_of, language_of_file
from activities.project_init.licenses import UNRECOGNISED, names_license
from activities.project_init.manifests.python import COMPILED
from activities.project_init.records import License, Technology, TechStack
from activities.project_init.roles import holds_rust_tests, is_lock_file, is_test_code
from activities.project_init.technologies import built_with
from activities.workbench.words import counted

_TELLING = (
    "web framework",
    "jobs and messaging",
    "user interface",
    "language models",
    "machine learning",
    "data and science",
    "database",
    "API",
    "command line",
)
_MINOR_CATEGORIES = {
    "base image",
    "continuous integration",
    "task runner",
    "tests",
    "lint and types",
    "formatting",
    "build",
    "documentation",
}
_LOCK_FILES = {
    "python": ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock"),
    "node": ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"),
    "rust": ("Cargo.lock",),
    "go": ("go.sum",),
    "ruby": ("Gemfile.lock",),
    "php": ("composer.lock",),
}


def conclude(tree: SourceTree, stack: TechStack, unread: dict[str, int]) -> TechStack:
    """Return the findings with summary, decisions, constraints and open questions filled in.

    Args:
        tree: The surveyed project.
        stack: What was found.
        unread: What a limit kept out of the findings, and how much of it.
    """
    if not tree.listing.files:
        return stack.model_copy(update=_of_an_empty_project(tree))
    return stack.model_copy(
        update={
            "summary": tuple(_summary(tree, stack)),
            "decisions": tuple(_decisions(tree, stack)),
            "constraints": tuple(_constraints(tree, stack)),
            "open_questions": tuple(_open_questions(tree, stack, unread)),
        }
    )


def _of_an_empty_project(tree: SourceTree) -> dict[str, tuple[str, ...]]:
    left_out = sum(each.count for each in tree.listing.left_out)
    found = f"{counted(left_out, 'entry', 'entries')} left out" if left_out else "the folder holds nothing"
    return {
        "summary": ("Project directory is uninitialized, no source files found",),
        "decisions": (f"Confirmed project is empty: {found}",),
        "open_questions": (
            "What is to be built, and for whom?",
            "Which language and framework should it be written in?",
            "Under which licence?",
        ),
    }


def _summary(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    code = [each for each in stack.languages if each.kind == "programming"]
    lines = sum(each.lines for each in code)
    files = counted(len(tree.listing.files), "file")
    if code:
        shares = ", ".join(
            f"{each.name} {_percent(each.lines, lines)}" for each in code[:3] if each.lines * 100 >= lines
        )
        yield f"{stack.name}: {files}, {counted(lines, 'line')} of code ({shares})"
    else:
        yield f"{stack.name}: {files}, none of them a program"
    services = [each.name for each in stack.technologies if each.category.endswith("service")]
    shipped = built_with(stack.manifests)
    telling = [each for each in stack.technologies if each.category not in _MINOR_CATEGORIES and each.name in shipped]
    names = [each.name for each in sorted(telling, key=_weight) if each.name not in services]
    if names:
        yield f"Built with {_first(names, 8)}"
    yield from _dependency_summary(tree, stack)
    tests = len(test_files(tree))
    command = best_command(stack, "test")
    if tests:
        known = f", run with `{command.line}`" if command else ", no command known to run them"
        yield counted(tests, "test file") + known
    else:
        yield "No tests found"
    if services:
        yield f"Services in compose files: {_first(services, 8)}"
    ci = [each.name for each in stack.technologies if each.category == "continuous integration"]
    yield f"Continuous integration: {', '.join(ci)}" if ci else "No continuous integration found"
    agreed = agreed_license(stack)
    names = [agreed.spdx] if agreed else list(dict.fromkeys(each.spdx for each in stack.licenses))
    yield f"Licence: {', '.join(names)}" if names else "No licence found"


def _dependency_summary(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    declared = [each for manifest in stack.manifests for each in manifest.dependencies if each.group != "indirect"]
    if not declared:
        return
    runtime = sum(1 for each in declared if each.group == "runtime")
    locks = [path for path in tree.by_path if is_lock_file(path) and "/" not in path]
    locks += [each.path for each in stack.manifests if each.builder == COMPILED]
    unlocked = any(has_lock(tree, stack, each.ecosystem) is False for each in stack.manifests)
    pinned = f"; pinned by {', '.join(locks)}" if locks else "; no lock file" if unlocked else ""
    number = counted(len(declared), "dependency", "dependencies")
    yield f"{number} declared, {runtime} for run time{pinned}"


def test_files(tree: SourceTree) -> list[str]:
    """Return the files that hold tests: test modules, and Rust sources with tests inside."""
    found = []
    for path, file in tree.by_path.items():
        language = language_of_file(tree, file)
        if language is None or kind_of(language) != "programming":
            continue
        if is_test_code(path):
            found += [path] if path.rpartition("/")[2] not in ("__init__.py", "conftest.py") else []
        elif language == "Rust" and holds_rust_tests(tree.text(path) or ""):
            found.append(path)
    return found


def agreed_license(stack: TechStack) -> License | None:
    """Return the licence that texts and manifests agree on: a declared expression that names every text, or the text.

    None where nothing is stated, where several texts stand side by side unexplained, or where a text is not known.
    """
    texts = [each for each in stack.licenses if each.source == "text"]
    declared = [each for each in stack.licenses if each.source == "manifest"]
    for each in declared:
        if texts and all(names_license(each.spdx, text.spdx) for text in texts):
            return each if len(texts) > 1 else texts[0]
    if len({each.spdx for each in texts}) == 1:
        return texts[0] if texts[0].spdx != UNRECOGNISED and not declared else None
    return declared[0] if len(declared) == 1 and not texts else None


def _first(names: list[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _weight(technology: Technology) -> int:
    category = technology.category
    return _TELLING.index(category) if category in _TELLING else len(_TELLING)


def _percent(part: int, whole: int) -> str:
    return f"{part * 100 / whole:.0f}%" if whole else "0%"


def _decisions(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    seen: set[str] = set()
    for manifest in stack.manifests:
        if manifest.ecosystem not in seen and not manifest.problem:
            seen.add(manifest.ecosystem)
            builder = f" with {manifest.builder}" if manifest.builder else ""
            is_deep = manifest.path.count("/") > 1
            what = f"{_ECOSYSTEMS[manifest.ecosystem]} project: {manifest.path}{builder}"
            yield f"A part of it is a {what}" if is_deep else what
    code = [each for each in stack.languages if each.kind == "programming"]
    if code:
        share = _percent(code[0].lines, sum(each.lines for each in code))
        yield f"Main language is {code[0].name}: {share} of the lines of code"
    command = best_command(stack, "test")
    if command:
        yield f"Tests are run with `{command.line}` ({command.origin}, {command.evidence})"
    agreed = agreed_license(stack)
    if agreed:
        how = "recognised" if agreed.source == "text" else "declared"
        yield f"Licence is {agreed.spdx}, {how} in {agreed.evidence}"
    how = "git's list of files" if tree.listing.method == "git" else "a walk of the folder"
    left_out = sum(each.count for each in tree.listing.left_out)
    files = counted(len(tree.listing.files), "file")
    yield f"Restricted analysis to {how}: {files}; {counted(left_out, 'entry', 'entries')} left out"


_ECOSYSTEMS = {
    "python": "Python",
    "node": "Node",
    "go": "Go",
    "rust": "Rust",
    "jvm": "JVM",
    "ruby": "Ruby",
    "php": "PHP",
    "dotnet": ".NET",
    "dart": "Dart",
    "elixir": "Elixir",
    "cmake": "CMake",
    "autotools": "Autotools",
    "meson": "Meson",
    "perl": "Perl",
}


def _constraints(tree: SourceTree, stack: TechStack) -> Iterator[str]:
    for rule, evidence in find_rules(tree, stack.manifests):
        yield f"{rule} ({evidence})"
    agreed = agreed_license(stack)
    if agreed:
        yield f"Contributions are under {agreed.spdx} ({agreed.evidence})"
    secrets = [path for path in tree.by_path if may_hold_secrets(path)]
    if secrets:
        shown = _first(secrets, 3)
        yield f"Never quote the content of {shown}: by name they may hold secrets"


def _open_questions(tree: SourceTree, stack: TechStack, unread: dict[str, int]) -> Iterator[str]:
    yield from _license_questions(stack)
    if not test_files(tree):
        yield "There are no tests: how is a change known to be right?"
    elif best_command(stack, "test") is None:
        yield "There are tests, but no command is known to run them: which is it?"
    if not any(each.category == "continuous integration" for each in stack.technologies):
        yield "There is no continuous integration: where are tests run before a release?"
    if not any(path.lower().startswith("readme") for path in tree.by_path):
        yield "There is no README: what is the project for?"
    for ecosystem in dict.fromkeys(each.ecosystem for each in stack.manifests if each.dependencies):
        if has_lock(tree, stack, ecosystem) is False:
            yield f"No lock file pins the {_ECOSYSTEMS[ecosystem]} dependencies: is that meant?"
    unreadable = [each for each in stack.manifests if each.problem]
    for manifest in unreadable[:5]:
        yield f"{manifest.path} could not be read ({manifest.problem}): is it in use?"
    if len(unreadable) > 5:
        yield f"Nor could {counted(len(unreadable) - 5, 'further manifest')} be read: what is in use?"
    if not stack.manifests and any(each.kind == "programming" for each in stack.languages):
        yield "There is no manifest: which packages, and which versions, does the code need?"
    secrets = [path for path in tree.by_path if may_hold_secrets(path)]
    if secrets:
        yield f"{secrets[0]} may hold secrets by its name: is it meant to be among the project's files?"
    for what, count in unread.items():
        yield f"There are more {what} than are listed ({count:,}): is there a part of the project to analyse alone?"
    for each in tree.listing.left_out:
        if "limit" in each.reason:
            yield f"{counted(each.count, 'entry', 'entries')} left out ({each.reason}): is anything missed?"


def _license_questions(stack: TechStack) -> Iterator[str]:
    texts = [each for each in stack.licenses if each.source == "text"]
    declared = [each for each in stack.licenses if each.source == "manifest"]
    if not texts and not declared:
        yield "No licence is stated: under which terms may others use this?"
    elif not texts:
        yield f"{declared[0].evidence.path} declares {declared[0].spdx}, but there is no licence text: add one?"
    elif agreed_license(stack) is None:
        known = sorted({each.spdx for each in texts if each.spdx != UNRECOGNISED})
        if len(known) > 1:
            yield f"Several licence texts ({', '.join(known)}): is it a choice, or do they cover different parts?"
        for each in declared if len(known) == 1 else ():
            yield f"{each.evidence} declares {each.spdx}, but the licence text is {known[0]}: which holds?"
    for each in texts:
        if each.spdx == UNRECOGNISED:
            yield f"The text of {each.evidence.path} is no licence known here: which is it?"


def has_lock(tree: SourceTree, stack: TechStack, ecosystem: str) -> bool | None:
    """Return whether an ecosystem's dependencies are pinned; None where it knows no lock file.

    A compiled requirements file pins too, and so do manifests that ask for exact versions alone.
    """
    if ecosystem not in _LOCK_FILES:
        return None
    mine = [each for each in stack.manifests if each.ecosystem == ecosystem]
    exact = all(wanted.requirement.startswith("==") for each in mine for wanted in each.dependencies)
    return exact or any(each.builder == COMPILED for each in mine) or bool(tree.named(*_LOCK_FILES[ecosystem]))
