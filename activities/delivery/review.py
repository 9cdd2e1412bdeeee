"""Review a change by rules: remarks that block it, and others for its reader."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from activities.delivery.records import Order, Remark, matches
from activities.delivery.repository import FileDiff, Repository
from activities.source_files import is_test_file, may_hold_secrets

_LINE_RULES: tuple[tuple[str, str, str, str], ...] = (
    ("conflict", "any", r"(<{7}|>{7}|\|{7}) ", "a conflict marker is left"),
    (
        "debugging",
        "any",
        r".*?(\bbreakpoint\(\)|\b(pdb|ipdb|pudb)\.set_trace\(|^\s*debugger;?\s*$|\bbinding\.pry\b)",
        "a debugger's breakpoint is left",
    ),
    ("private-key", "any", r".*?-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----", "a private key is added"),
    (
        "test-skipped",
        "test",
        r".*?(pytest\.mark\.(skip|xfail)|pytest\.skip\(|unittest\.skip|\b(it|describe|test)\.(skip|only)\("
        r"|\bx(it|describe)\(|#\[ignore\]|\bt\.Skip\()",
        "a test is switched off, or all others are",
    ),
)
"""Rules for added lines that block a change: name, files, pattern, message."""
_TEST = re.compile(r"^\s*(async )?def test\w*\(|\b(it|test)\(['\"`]|^\s*func Test\w+\(|#\[test\]|@Test\b")
_JSON_WITH_COMMENTS = re.compile(r"(^|/)((ts|js)config[^/]*|\.?devcontainer|\.eslintrc|\.swcrc)\.json$|(^|/)\.vscode/")


async def review(repository: Repository, order: Order, base: str, commit: str) -> list[Remark]:
    """Return the remarks on a change: blocking ones first, then by place."""
    diffs = await repository.changes(base, commit)
    remarks = [remark for diff in diffs for remark in file_remarks(diff, order)]
    for diff in diffs:
        new = None if diff.status == "D" else await repository.text(commit, diff.path)
        if new is not None and (fault := syntax_fault(diff.path, new)):
            old = None if diff.status == "A" else await repository.text(base, diff.path)
            was_broken = old is not None and syntax_fault(diff.path, old) is not None
            line, message = fault
            remarks.append(Remark(path=diff.path, line=line, blocks=not was_broken, rule="syntax", message=message))
    remarks += change_remarks(diffs, order)
    return sorted(remarks, key=lambda remark: (not remark.blocks, remark.path, remark.line))


def file_remarks(diff: FileDiff, order: Order) -> Iterator[Remark]:
    """Yield the remarks on a file's name and added lines."""
    if order.paths and not any(matches(diff.path, pattern) for pattern in order.paths):
        message = f"only {', '.join(order.paths)} may change"
        yield Remark(path=diff.path, blocks=True, rule="outside", message=message)
    if diff.status != "D" and may_hold_secrets(diff.path):
        yield Remark(path=diff.path, blocks=True, rule="secrets", message="a file of this name can hold secrets")
    if diff.binary:
        yield Remark(path=diff.path, blocks=False, rule="binary", message="a binary file cannot be reviewed")
        return
    for number, line in diff.added:
        for rule, scope, pattern, message in _LINE_RULES:
            if (scope == "any" or is_test_file(diff.path)) and re.match(pattern, line):
                yield Remark(path=diff.path, line=number, blocks=True, rule=rule, message=message)


def change_remarks(diffs: Sequence[FileDiff], order: Order) -> Iterator[Remark]:
    """Yield the remarks on the size of a change and on removed tests."""
    added, removed = sum(len(diff.added) for diff in diffs), sum(len(diff.removed) for diff in diffs)
    if added + removed > order.most_lines:
        message = f"{added:,} lines are added and {removed:,} removed; more than {order.most_lines} cannot be reviewed"
        yield Remark(path=diffs[0].path, blocks=True, rule="size", message=message)
    test_diffs = [diff for diff in diffs if is_test_file(diff.path)]
    removed_tests = {diff.path: sum(_TEST.search(line) is not None for line in diff.removed) for diff in test_diffs}
    added_tests = sum(_TEST.search(line) is not None for diff in test_diffs for _, line in diff.added)
    if (removed_count := sum(removed_tests.values())) > added_tests:
        first = next(path for path, count in removed_tests.items() if count)
        message = f"{removed_count} tests are removed and {added_tests} added: a change must not pass by testing less"
        yield Remark(path=first, blocks=True, rule="tests-removed", message=message)


def syntax_fault(path: str, text: str) -> tuple[int, str] | None:
    """Return the line and reason of a syntax error, or None if the file is valid or not checked.

    Example:
        >>> syntax_fault("a.json", '{"a": }'), syntax_fault("a.txt", "(")
        ((1, 'this is not valid JSON: Expecting value'), None)
    """
    suffix = Path(path).suffix
    try:
        if suffix in (".py", ".pyi"):
            ast.parse(text)
        elif suffix == ".json" and not _JSON_WITH_COMMENTS.search(path):
            json.loads(text)
        elif suffix == ".toml":
            tomllib.loads(text)
    except SyntaxError as error:
        return error.lineno or 0, f"this is not valid Python: {error.msg}"
    except json.JSONDecodeError as error:
        return error.lineno, f"this is not valid JSON: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return 0, f"this is not valid {suffix.removeprefix('.').upper()}: {type(error).__name__}"
    return None
