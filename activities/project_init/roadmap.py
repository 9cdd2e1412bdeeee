"""What a project should have done next, derived from findings alone: each item with priority, reason, evidence.

P1 blocks others or is a risk today, P2 costs something every week, P3 is worth doing when one passes by.
"""

import re
from collections.abc import Iterator

from activities.project_init.commands import best_command
from activities.project_init.conclusions import has_lock, test_files
from activities.project_init.files import SourceTree
from activities.project_init.ignore import may_hold_secrets
from activities.project_init.licenses import UNRECOGNISED
from activities.project_init.records import Dependency, Evidence, Priority, RoadmapItem, TechStack
from activities.project_init.roles import is_test_code, role_of
from activities.project_init.structure import IMPORTS_READ, LONG_FUNCTION, Module, Structure, cycles
from activities.workbench.words import counted

SHOWN = 15
"""Pieces of evidence that an item carries; `found` says how many there are."""

_CHANGELOG = re.compile(
    r"(docs?/|documentation/)?[\d_-]*(change[-_]?log|changes|history|news|release[-_]?notes|releases/|relnotes|whats[-_]?new)",
    re.IGNORECASE,
)
_BUILD_FILE = re.compile(
    r"(.*/)?(GNUm|M|m)akefile|configure|SConstruct|BUILD(\.bazel)?|MODULE\.bazel|build\.(zig|sbt|xml|sh)|Package\.swift"
    r"|.*\.(cabal|sln|xcodeproj/.*)|stack\.yaml|dune-project|rebar\.config|deps\.edn|project\.clj|Project\.toml|DESCRIPTION"
)
"""What says how to build, of tools whose manifests are not read here."""

_VERSIONS_ELSEWHERE = ("cmake", "jvm", "autotools", "meson", "perl")  # than in the manifest, by custom
_WITHOUT_TESTS = ("package-info.java", "module-info.java", "build.rs")  # no code, or code that the build runs
_LONG_FILE = 800
_TRIVIAL = 15


def derive_roadmap(tree: SourceTree, stack: TechStack, structure: Structure) -> tuple[RoadmapItem, ...]:
    """Return the items that the findings call for, the most urgent first.

    Args:
        tree: The surveyed project.
        stack: What was detected.
        structure: What was read in the code.
    """
    if not tree.listing.files:
        return _of_an_empty_project()
    items = [
        *_missing(tree, stack),
        *_risks(tree, stack),
        *_of_tests(stack, structure),
        *_of_code(structure),
        *_of_documentation(tree, structure),
    ]
    return tuple(sorted(items, key=lambda item: item.priority))


def _item(priority: Priority, title: str, why: str, evidence: list[str]) -> RoadmapItem:
    return RoadmapItem(
        priority=priority, title=title, why=why, evidence=tuple(evidence[:SHOWN]), found=max(1, len(evidence))
    )


def _of_an_empty_project() -> tuple[RoadmapItem, ...]:
    nothing = ["the folder holds no source files"]
    return (
        _item("P1", "Say what is to be built", "Nothing can be judged against a goal that is not written.", nothing),
        _item("P1", "Choose language, framework and licence", "Every later file depends on them.", nothing),
        _item("P1", "Put the folder under version control", "What is not recorded cannot be taken back.", nothing),
        _item("P2", "Write the first test before the first feature", "It decides how the code is cut.", nothing),
        _item("P2", "Run the tests on every change", "A test that nobody runs proves nothing.", nothing),
    )


def _missing(tree: SourceTree, stack: TechStack) -> Iterator[RoadmapItem]:
    code = [each for each in stack.languages if each.kind == "programming"]
    lines = sum(each.lines for each in code)
    if code and not test_files(tree):
        why = "No change can be shown to be right, so every change is a risk."
        yield _item("P1", "Write tests", why, [f"{counted(lines, 'line')} of code, no test file"])
    if not any(each.source == "text" for each in stack.licenses):
        declared = [f"{each.evidence} declares {each.spdx}" for each in stack.licenses[:1]]
        why = "Without a licence text nobody knows on what terms the project may be used."
        yield _item("P2" if declared else "P1", "Add a licence text", why, declared or ["no LICENSE or COPYING file"])
    if code and not any(each.category == "continuous integration" for each in stack.technologies):
        command = best_command(stack, "test")
        shown = f"nothing runs `{command.line}` on a change" if command else "no CI definition found"
        yield _item("P2", "Run the checks on every change", "What is not run on every change breaks unseen.", [shown])
    readmes = [path for path in tree.by_path if path.lower().startswith("readme")]
    if not readmes:
        why = "A newcomer cannot tell what the project is for, or how to start it."
        yield _item("P1", "Write a README", why, ["no README at the top"])
    elif tree.by_path[readmes[0]].lines < 10:
        found = [f"{readmes[0]} has {counted(tree.by_path[readmes[0]].lines, 'line')}"]
        yield _item("P2", "Say more in the README", "It is all that most people ever read.", found)
    if code and not stack.manifests and not any(_BUILD_FILE.fullmatch(path) for path in tree.by_path):
        why = "Nobody can install what is not declared."
        yield _item("P1", "Add a manifest", why, [f"{counted(code[0].files, f'{code[0].name} file')}, no manifest"])
    if ".gitignore" not in tree.by_path and tree.listing.method == "git":
        yield _item("P3", "Add a .gitignore", "Caches and builds get committed.", ["no .gitignore at the top"])


def _risks(tree: SourceTree, stack: TechStack) -> Iterator[RoadmapItem]:
    secrets = [path for path in tree.by_path if may_hold_secrets(path)]
    of_tests = [path for path in secrets if role_of(path) == "test"]
    serious = [path for path in secrets if path not in of_tests]
    if serious:
        why = "Files with such names hold keys or passwords; what is committed once stays in the history."
        yield _item("P1", "Take files that may hold secrets out of the project", why, serious)
    if of_tests:
        why = "Keys of tests are public with them; one that opens anything else must not be there."
        yield _item("P3", "Make sure that keys among the tests are good for tests alone", why, of_tests)
    broken = [f"{each.path}: {each.problem}" for each in stack.manifests if each.problem]
    if broken:
        yield _item("P1", "Repair manifests that cannot be read", "Tools that read them fail too.", broken)
    unknown = [str(each.evidence) for each in stack.licenses if each.spdx == UNRECOGNISED]
    if unknown:
        why = "Tools and lawyers look for a known licence; this text is none that is known here."
        yield _item("P3", "Name the licence by its SPDX identifier", why, unknown)
    loose = [_dependency(each) for each in _dependencies(stack) if not each.requirement and each.group != "peer"]
    unlocked = [
        ecosystem
        for ecosystem in dict.fromkeys(each.ecosystem for each in stack.manifests if each.dependencies)
        if has_lock(tree, stack, ecosystem) is False
    ]
    if unlocked:
        shown = [each.path for each in stack.manifests if each.ecosystem in unlocked and each.dependencies]
        why = "Two installations a week apart may differ, and nobody can say in what."
        yield _item("P2", "Pin the dependencies in a lock file", why, shown)
    if loose:
        why = "Any version is accepted, so a release of somebody else can break a build."
        yield _item("P2" if unlocked else "P3", "Give a version to dependencies that have none", why, loose)


def _dependencies(stack: TechStack) -> Iterator[Dependency]:
    """Yield what the manifests ask of others: no package of the project itself, which has the version that is there."""
    own = {(each.ecosystem, _package_name(each.name)) for each in stack.manifests}
    for manifest in stack.manifests:
        if manifest.ecosystem not in _VERSIONS_ELSEWHERE:
            for each in manifest.dependencies:
                if each.group != "indirect" and (manifest.ecosystem, _package_name(each.name)) not in own:
                    yield each


def _package_name(name: str) -> str:
    return name.lower().replace("_", "-")


def _dependency(dependency: Dependency) -> str:
    return f"{dependency.evidence} {dependency.name}"


def _of_tests(stack: TechStack, structure: Structure) -> Iterator[RoadmapItem]:
    tests = [module for module in structure.modules.values() if is_test_code(module.path)]
    if not tests:
        return
    if best_command(stack, "test") is None:
        why = "Tests that nobody knows how to run are not run."
        yield _item("P1", "Say how the tests are run", why, [module.path for module in tests])
    untested = untested_modules(structure, tests)
    if untested:
        shown = [f"{module.path} ({counted(module.lines, 'line')})" for module in untested]
        why = "No test imports them, itself or through others, or is named after them; what they do may change unseen."
        yield _item("P2", "Test the modules that no test touches", why, shown)


def untested_modules(structure: Structure, tests: list[Module]) -> list[Module]:
    """Return the source modules that no test imports, by itself or through others, or is named after.

    Longest first. Short files are passed over. This reads names and imports; it measures no coverage.
    """
    touched = _imported(structure, tests)
    stems = {_tested_name(test.path) for test in tests}
    folders = {test.path.rpartition("/")[0] for test in tests if test.path.endswith("_test.go")}
    found = [
        module
        for module in structure.modules.values()
        if module.role == "source"
        and module.language in IMPORTS_READ
        and module.path.rpartition("/")[2] not in _WITHOUT_TESTS
        and module.lines > _TRIVIAL
        and not module.has_own_tests
        and module.path not in touched
        and module.path.rpartition("/")[0] not in folders | touched
        and _stem(module.path) not in stems
    ]
    return sorted(found, key=lambda module: (-module.lines, module.path))


def _imported(structure: Structure, tests: list[Module]) -> set[str]:
    """Return what the tests import, by themselves or through others: files, and for Go folders."""
    parts: dict[str, set[str]] = {}
    for module in structure.modules.values():
        parts.setdefault(module.path.rpartition("/")[0], set()).update(module.imports.inside)
    touched: set[str] = set()
    waiting = [target for test in tests for target in test.imports.inside]
    while waiting:
        target = waiting.pop()
        if target not in touched:
            touched.add(target)
            known = structure.modules.get(target)
            waiting.extend(known.imports.inside if known else parts.get(target, ()))
    return touched


def _stem(path: str) -> str:
    name = path.rpartition("/")[2].partition(".")[0]
    return (path.split("/")[-2] if name in ("__init__", "index", "mod") and "/" in path else name).lower()


def _tested_name(path: str) -> str:
    name = path.rpartition("/")[2].partition(".")[0].lower()
    for mark in ("test_", "tests_"):
        name = name.removeprefix(mark)
    for mark in ("_test", "_tests", "_spec", "tests", "test", "spec"):
        name = name.removesuffix(mark)
    return name


def _of_code(structure: Structure) -> Iterator[RoadmapItem]:
    broken = [f"{module.path}: {module.problem}" for module in structure.modules.values() if module.problem]
    broken = [each for each in broken if structure.modules[each.partition(":")[0]].role == "source"]
    if broken:
        yield _item("P1", "Repair files that cannot be parsed", "They fail when they are imported.", broken)
    circles = [" ↔ ".join(group[:6]) + (" …" if len(group) > 6 else "") for group in cycles(structure)]
    if circles:
        why = "Files that import each other can only be understood, tested and moved together."
        yield _item("P2", "Break import circles", why, circles)
    urgent = [note for note in structure.notes if note.word in ("FIXME", "XXX", "HACK")]
    if urgent:
        shown = [f"{note.path}:{note.line} {note.word}: {note.text}" for note in urgent]
        yield _item("P2", "Settle FIXME, XXX and HACK comments", "Their authors thought them wrong already.", shown)
    later = [note for note in structure.notes if note.word == "TODO"]
    if later:
        shown = [f"{note.path}:{note.line} {note.word}: {note.text}" for note in later]
        yield _item("P3", "Do or drop the TODO comments", "A note in code has no date and no owner.", shown)
    long_ones = [each for each in structure.long_functions if structure.modules[each.path].role == "source"]
    if long_ones:
        shown = [f"{each.path}:{each.line} {each.name} ({each.lines} lines)" for each in long_ones]
        why = f"A function of more than {LONG_FUNCTION} lines is hard to test and to change."
        yield _item("P3", "Cut long functions", why, shown)
    files = [each for each in structure.modules.values() if each.role == "source" and each.lines > _LONG_FILE]
    if files:
        shown = [f"{each.path} ({counted(each.lines, 'line')})" for each in sorted(files, key=lambda each: -each.lines)]
        yield _item("P3", "Split long files", f"More than {_LONG_FILE} lines hold more than one idea.", shown)


def _of_documentation(tree: SourceTree, structure: Structure) -> Iterator[RoadmapItem]:
    python = [each for each in structure.modules.values() if each.language == "Python" and each.role == "source"]
    documented, public = (sum(each.documented[at] for each in python) for at in (0, 1))
    if public >= 10 and documented * 10 < public * 7:
        worst = sorted(python, key=lambda each: (each.documented[0] - each.documented[1], each.path))
        shown = [f"{each.path}: {each.documented[1] - each.documented[0]} of {each.documented[1]}" for each in worst]
        shown = [each for each in shown if ": 0 of" not in each]
        why = f"Only {documented} of {public} public definitions say what they do."
        yield _item("P3", "Write docstrings", why, shown)
    if not any(_CHANGELOG.match(path) for path in tree.by_path):
        why = "Users cannot see what a new version changes for them."
        yield _item("P3", "Keep a changelog", why, [str(Evidence(path="no CHANGELOG at the top"))])
    if not any(path.lower().rpartition("/")[2].startswith("contributing") for path in tree.by_path):
        why = "Contributors must guess how to set up, check and send a change."
        yield _item("P3", "Say how to contribute", why, ["no CONTRIBUTING file"])
