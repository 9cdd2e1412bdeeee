"""Read the real diff of a branch, and say what must not be offered with it, and what its reader should look at.

The rules are about the change, not about taste. Where the analysers of `code_review` are installed, what they find
in the added lines is said too, and a grave weakness blocks.
"""

import ast
import asyncio
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from activities.code_review.analysers import ANALYSERS, review_of
from activities.code_review.laying_out import check_installed
from activities.code_review.records import CodeReviewError, Concern, Snapshot
from activities.code_review.sources import snapshot_of_diff
from activities.delivery.changes import matches
from activities.delivery.records import Order, Remark
from activities.project_init.files import as_text, survey
from activities.project_init.ignore import may_hold_secrets
from activities.project_init.roles import role_of
from activities.workbench.diffs import DiffError, FileDiff, apply_diff, reverse_diff
from activities.workbench.words import counted

_CONFLICT = re.compile(r"(<{7}|>{7}|\|{7}) ")
_BETWEEN = re.compile(r"={7}$")  # also under a title of seven letters, so it is a mark beside others alone
_DEBUGGING = re.compile(r"\bbreakpoint\(\)|\b(pdb|ipdb|pudb)\.set_trace\(|^\s*debugger;?\s*$|\bbinding\.pry\b")
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
_SKIPPED = re.compile(
    r"pytest\.mark\.(skip|xfail)|pytest\.skip\(|unittest\.skip|\b(it|describe|test)\.(skip|only)\(|\bx(it|describe)\("
    r"|#\[ignore\]|\bt\.Skip\("
)
_WITH_COMMENTS = re.compile(r"(^|/)((ts|js)config[^/]*|\.?devcontainer|\.eslintrc|\.swcrc)\.json$|(^|/)\.vscode/")
_A_TEST = re.compile(r"^\s*(async )?def test\w*\(|\b(it|test)\(['\"`]|^\s*func Test\w+\(|#\[test\]|@Test\b")
_CONCERNS: tuple[Concern, ...] = ("security", "performance")


def review_diff(diffs: Sequence[FileDiff], folder: Path, order: Order) -> list[Remark]:
    """Return what the rules say of a change.

    Args:
        diffs: The change.
        folder: The files as they are with it.
        order: What was asked for: which files may change, and how much.

    Returns:
        What blocks first, then by place.
    """
    added = sum(len(diff.added) for diff in diffs)
    removed = sum(len(diff.removed) for diff in diffs)
    remarks = [remark for diff in diffs for remark in _file(diff, folder, order)]
    if added + removed > order.most_lines:
        changed = f"{counted(added, 'line')} {'is' if added == 1 else 'are'} added and {removed:,} taken away"
        message = f"{changed}; more than {order.most_lines} cannot be reviewed"
        remarks.append(Remark(path=diffs[0].path, blocks=True, rule="size", message=message))
    counts = [_tests(diff, folder) for diff in diffs]
    gone, come = sum(one for one, _ in counts), sum(one for _, one in counts)
    if gone > come:
        first = next(diff.path for diff, (fewer, _) in zip(diffs, counts, strict=True) if fewer)
        message = f"{gone} tests are taken away and {come} added: a change must not pass by testing less"
        remarks.append(Remark(path=first, blocks=True, rule="tests-removed", message=message))
    return sorted(remarks, key=lambda one: (not one.blocks, one.path, one.line))


async def analyse_diff(diff: str, folder: Path) -> tuple[list[Remark], str]:
    """Return what the analysers of `code_review` find in the lines that a diff adds, and which they were.

    Args:
        diff: The change, as a unified diff.
        folder: The files as they are with it.

    Returns:
        The remarks, also on what could not be analysed; and the analysers, or why there were none.
    """
    try:
        check_installed()
        snapshot: Snapshot = await asyncio.to_thread(lambda: snapshot_of_diff(survey(folder), diff, "the branch"))
    except CodeReviewError as error:
        return [], f"not analysed: {error}"
    remarks = [
        Remark(path=path, blocks=False, rule="not-analysed", message=f"not analysed: {one.reason}")
        for one in snapshot.unread
        if one.missed
        for path in one.examples
    ]
    for concern in _CONCERNS:
        review = review_of(concern, snapshot, [await analyse(snapshot) for analyse in ANALYSERS[concern].values()])
        remarks += [
            Remark(
                path=one.path,
                line=one.line,
                blocks=one.severity == "high" and concern == "security",
                rule=one.rule,
                message=f"{one.severity}: {one.message}",
            )
            for one in review.open
        ]
    names = ", ".join(dict.fromkeys(name for concern in _CONCERNS for name in ANALYSERS[concern]))
    return remarks, f"analysed by {names}"


def _file(diff: FileDiff, folder: Path, order: Order) -> Iterator[Remark]:
    """Yield the remarks on one file."""
    path = diff.path
    for one in dict.fromkeys(name for name in (diff.old, diff.new) if name):  # what is renamed is gone where it was
        if order.paths and not any(matches(one, pattern) for pattern in order.paths):
            yield Remark(path=one, blocks=True, rule="outside", message=f"only {', '.join(order.paths)} may change")
    if diff.new and may_hold_secrets(path):
        yield Remark(path=path, blocks=True, rule="secrets", message="a file of this name may hold secrets")
    if diff.binary:
        yield Remark(path=path, blocks=False, rule="binary", message="the change of a binary file cannot be read")
    is_conflict = any(_CONFLICT.match(line) for _, line in diff.added)
    for number, line in diff.added:
        yield from _line(path, number, line, is_test=_is_test(diff), is_conflict=is_conflict)
    text = _text_of(folder / diff.new) if diff.new else None
    fault = _syntax_fault(path, text) if text is not None else None
    if fault and text is not None:
        yield Remark(path=path, line=fault[0], blocks=not _was_broken(diff, text), rule="syntax", message=fault[1])


def _line(path: str, number: int, line: str, *, is_test: bool, is_conflict: bool) -> Iterator[Remark]:
    """Yield the remarks on one added line."""
    rules = (
        ("conflict", _CONFLICT.match(line) or (is_conflict and _BETWEEN.match(line)), "a mark of a conflict is left"),
        ("debugging", _DEBUGGING.search(line), "a stop for a debugger is left"),
        ("private-key", _PRIVATE_KEY.search(line), "a private key is added"),
        ("test-skipped", is_test and _SKIPPED.search(line), "a test is switched off, or all others are"),
    )
    for rule, found, message in rules:
        if found:
            yield Remark(path=path, line=number, blocks=True, rule=rule, message=message)


def _tests(diff: FileDiff, folder: Path) -> tuple[int, int]:
    """Return how many tests a diff takes away, and how many it adds; a renamed file may be none of tests any more."""
    removed = sum(_A_TEST.search(line) is not None for line in diff.removed)
    added = sum(_A_TEST.search(line) is not None for _, line in diff.added)
    was, is_now = (name is not None and role_of(name) == "test" for name in (diff.old, diff.new))
    if was == is_now or diff.old is None or diff.new is None:
        return (removed, added) if was or is_now else (0, 0)
    there = sum(_A_TEST.search(line) is not None for line in (_text_of(folder / diff.new) or "").split("\n"))
    return (there - added + removed, 0) if was else (0, there)


def _is_test(diff: FileDiff) -> bool:
    return role_of(diff.path) == "test"


def _text_of(place: Path) -> str | None:
    """Return a file's text, as the diff's lines are read; None where it is none."""
    if place.is_symlink() or not place.is_file():
        return None
    text = as_text(place.read_bytes())
    return None if "\ufffd" in text else text


def _was_broken(diff: FileDiff, text: str) -> bool:
    """Return whether a file was broken before the change, which then has not broken it."""
    try:
        return diff.old is not None and _syntax_fault(diff.old, apply_diff(reverse_diff(diff), text)) is not None
    except DiffError:
        return False


def _syntax_fault(path: str, text: str) -> tuple[int, str] | None:
    """Return line and reason where a text is broken that can be checked without running anything."""
    suffix = Path(path).suffix
    try:
        if suffix in (".py", ".pyi"):
            ast.parse(text)
        elif suffix == ".json" and not _WITH_COMMENTS.search(path):
            json.loads(text)
        elif suffix == ".toml":
            tomllib.loads(text)
    except SyntaxError as error:
        return error.lineno or 0, f"this is no valid Python: {error.msg}"
    except json.JSONDecodeError as error:
        return error.lineno, f"this is no valid JSON: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return 0, f"this is no valid {suffix.removeprefix('.').upper()}: {type(error).__name__}"
    return None
