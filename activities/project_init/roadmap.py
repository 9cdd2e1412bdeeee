"""What should be done next, derived from findings by rules: each item has a priority, a reason and its evidence."""

from collections.abc import Iterator

from activities.project_init.commands import best_command, ci_files
from activities.project_init.detect import has_lock
from activities.project_init.files import SourceTree, may_hold_secrets, role_of
from activities.project_init.records import Priority, RoadmapItem, TechStack
from activities.project_init.structure import LONG_FUNCTION, Structure

_LONG_FILE = 800
_MOST_EVIDENCE = 15

Finding = tuple[Priority, str, str, list[str]]
"""Priority, title, reason and evidence; without evidence there is nothing to do."""


def roadmap_by_rules(tree: SourceTree, stack: TechStack, structure: Structure) -> tuple[RoadmapItem, ...]:
    """Return the items that the findings call for, the most urgent first."""
    rules = (_of_project, _of_risks, _of_code) if tree.listing.files else (_of_an_empty_project,)
    items = [
        RoadmapItem(priority=priority, title=title, why=why, evidence=_cut(evidence))
        for rule in rules
        for priority, title, why, evidence in rule(tree, stack, structure)
        if evidence
    ]
    return tuple(sorted(items, key=lambda item: item.priority))


def _cut(evidence: list[str]) -> tuple[str, ...]:
    more = len(evidence) - _MOST_EVIDENCE
    return (*evidence[:_MOST_EVIDENCE], *([f"and {more} more"] if more > 0 else []))


def _of_an_empty_project(tree: SourceTree, stack: TechStack, structure: Structure) -> Iterator[Finding]:
    nothing = ["the folder holds no source files"]
    yield "P1", "Say what is to be built", "Nothing can be judged against a goal that is not written down.", nothing
    yield "P1", "Choose language, framework and licence", "Every later file depends on them.", nothing
    yield "P2", "Write the first test before the first feature", "It decides how the code is divided.", nothing


def _of_project(tree: SourceTree, stack: TechStack, structure: Structure) -> Iterator[Finding]:
    """Yield what a project should have and does not."""
    has_code = any(each.kind == "programming" for each in stack.languages)

    def lacks(*starts: str) -> bool:
        return not any(path.lower().startswith(starts) for path in tree.by_path)

    if has_code and not stack.tests:
        yield "P1", "Write tests", "No change can be shown to be right.", ["no test file"]
    if stack.tests and best_command(stack, "test") is None:
        yield "P1", "Say how the tests are run", "Tests without a known command are not run.", list(stack.tests)
    if has_code and not stack.manifests:
        yield "P1", "Add a manifest", "What is not declared cannot be installed.", ["no manifest"]
    if has_code and not ci_files(tree):
        yield "P2", "Run the checks on every change", "What is not run breaks unseen.", ["no CI definition"]
    if lacks("readme"):
        yield "P1", "Write a README", "A newcomer cannot tell what the project is for.", ["no README"]
    if not any(each.source == "text" for each in stack.licenses):
        yield "P1", "Add a licence text", "It is unknown on what terms the project may be used.", ["no LICENSE file"]
    if lacks("change", "history", "news"):
        yield "P3", "Keep a changelog", "Users cannot see what a version changes.", ["no CHANGELOG"]
    if lacks("contributing", ".github/contributing", "docs/contributing"):
        yield "P3", "Say how to contribute", "Contributors must guess.", ["no CONTRIBUTING file"]


def _of_risks(tree: SourceTree, stack: TechStack, structure: Structure) -> Iterator[Finding]:
    """Yield what may do harm today."""
    secrets = [path for path in tree.by_path if may_hold_secrets(path) and role_of(path) != "test"]
    yield "P1", "Remove files that may hold secrets", "What is committed once stays in the history.", secrets
    broken = [f"{each.path}: {each.problem}" for each in stack.manifests if each.problem]
    yield "P1", "Repair manifests that cannot be read", "Tools that read them fail too.", broken
    unlocked = [
        each.path for each in stack.manifests if each.dependencies and not has_lock(tree, stack, each.ecosystem)
    ]
    yield "P2", "Pin the dependencies in a lock file", "Two installations a week apart may differ.", unlocked
    loose = [
        f"{wanted.evidence} {wanted.name}"
        for manifest in stack.manifests
        for wanted in manifest.dependencies
        if not wanted.requirement
    ]
    yield "P3", "Give a version to dependencies that have none", "A release of somebody else can break a build.", loose


def _of_code(tree: SourceTree, stack: TechStack, structure: Structure) -> Iterator[Finding]:
    """Yield what the code itself shows."""
    broken = [f"{each.path}: {each.problem}" for each in structure.source if each.problem]
    yield "P1", "Repair files that cannot be parsed", "They fail when they are imported.", broken
    untested = [f"{each.path} ({each.lines} lines)" for each in structure.untested(stack.tests)]
    yield "P2", "Test the modules that no test imports", "What they do may change unseen.", untested
    circles = [" ↔ ".join(circle[:6]) for circle in structure.circles()]
    yield "P2", "Break import circles", "Such files can only be tested and moved together.", circles
    urgent = [note for note in structure.notes if "TODO:" not in note]
    yield "P2", "Settle FIXME, XXX and HACK comments", "Their authors thought them wrong already.", urgent
    todo = [note for note in structure.notes if "TODO:" in note]
    yield "P3", "Do or drop the TODO comments", "A note in code has no date and no owner.", todo
    why = f"A function of more than {LONG_FUNCTION} lines is hard to test and to change."
    yield "P3", "Split long functions", why, structure.long_functions
    long_files = [f"{each.path} ({each.lines} lines)" for each in structure.source if each.lines > _LONG_FILE]
    yield "P3", "Split long files", f"More than {_LONG_FILE} lines hold more than one idea.", long_files
    bare = [f"{each.path} ({each.undocumented})" for each in structure.source if each.undocumented > 5]
    yield "P3", "Write docstrings", "Public definitions do not say what they do.", bare
