"""Make a change in a checkout (a diff, text edits or a command), run the project's tests there, review it by rules."""

import ast
import asyncio
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from activities.delivery.records import (
    Change,
    DeliveryError,
    Draft,
    Edit,
    Order,
    Plan,
    Remark,
    TestRun,
    matches,
    render_command,
)
from activities.delivery.repository import Checkout, FileDiff, GitError, Repository, git
from activities.delivery.sandbox import Sandbox, environment_for
from activities.models import ask_model
from activities.programs import ProgramResult, run_program
from activities.source_files import is_test_file, may_hold_secrets
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentWork

_COMMAND_TIMEOUT_SECONDS = 1_800.0
_MAX_TAIL_LENGTH = 1_000
_MAX_PATCH_BYTES, _MAX_OUTPUT_BYTES = 16_000_000, 200_000

_TEST_COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("Makefile", r"^test\s*:", "make test"),
    ("package.json", r'"test"\s*:\s*"(?!echo .Error: no test specified)', "npm test"),
    ("pyproject.toml", r"pytest", "python -m pytest"),
    ("pytest.ini", "", "python -m pytest"),
    ("setup.cfg", r"pytest", "python -m pytest"),
    ("Cargo.toml", "", "cargo test"),
    ("go.mod", "", "go test ./..."),
    ("tests/__init__.py", "", "python -m unittest discover -s tests -t ."),
)
"""How to detect the test command: a file, a pattern in it, the command. The first match wins."""


async def find_test_command(repository: Repository, base: str) -> tuple[str, ...]:
    """Detect the command that tests the project."""
    for path, pattern, line in _TEST_COMMANDS:
        text = await repository.text(base, path)
        if text is not None and re.search(pattern, text, re.MULTILINE):
            return ("sh", "-c", line)
    raise DeliveryError(
        f"{str(repository.folder)!r} has no recognised test command; name one with --param test='make test'"
    )


async def read_patch(text_or_path: str) -> str:
    """Return a diff, given as text or as the path of a file."""
    text = text_or_path if "\n" in text_or_path else await asyncio.to_thread(_read_text_file, Path(text_or_path))
    text = text if text.endswith("\n") else f"{text}\n"
    try:
        await git(Path("/"), "apply", "--numstat", "-", stdin=text.encode())
    except GitError as error:
        raise DeliveryError(f"the parameter 'patch' is not a diff: {error}") from None
    return text


async def make_change(repository: Repository, checkout: Checkout, plan: Plan, change: Change) -> None:
    """Make one change in a checkout."""
    if change.patch is not None:
        try:
            await repository.run(
                *("apply", "--index", "--whitespace=nowarn", "-"), checkout=checkout, stdin=change.patch.encode()
            )
        except GitError as error:
            message = f"the diff does not apply to {plan.base[:12]}: {error}; recreate it there, or name another base"
            raise DeliveryError(message) from None
    elif change.edits is not None:
        listed = await repository.run("ls-files", "-z", checkout=checkout)
        paths = listed.output.decode("utf-8", "replace").split("\0")
        await asyncio.to_thread(_apply_edits, checkout.tree, paths, change.edits)
        if new := [f":(top,literal){edit.path}" for edit in change.edits if not edit.find]:
            await repository.run("add", "--force", "--", *new, checkout=checkout)  # also ignored files
    elif change.command is not None:
        result = await _run_in_sandbox(change.command, plan, checkout, _COMMAND_TIMEOUT_SECONDS)
        if result.code != 0:
            outcome = (
                f"takes longer than {_COMMAND_TIMEOUT_SECONDS:g} s"
                if result.code is None
                else f"fails (exit code {result.code})"
            )
            output = result.output.decode("utf-8", "replace").strip()[-_MAX_TAIL_LENGTH:]
            raise DeliveryError(f"the command `{render_command(change.command)}` {outcome}: {output}")


async def run_tests(repository: Repository, plan: Plan, commit: str) -> TestRun:
    """Run the project's tests on a commit, in a sandbox. A failing test is a result, not an error."""
    async with repository.checkout(commit) as checkout:
        command, result = plan.test, None
        if plan.order.prepare is not None:
            result = await _run_in_sandbox(plan.order.prepare, plan, checkout, plan.order.test_seconds)
        prepared = result is None or result.code == 0
        if result is None or prepared:
            result = await _run_in_sandbox(plan.test, plan, checkout, plan.order.test_seconds)
        else:
            command = plan.order.prepare or plan.test
    return TestRun(
        commit=commit,
        command=command,
        code=result.code,
        seconds=round(result.seconds),
        output=result.output.decode("utf-8", "replace"),
        prepared=prepared,
    )


def command_environment(plan: Plan, checkout: Checkout) -> dict[str, str]:
    """Return the environment for the project's commands: its own packages before installed ones."""
    environment = environment_for(plan.order.environment)
    virtual_environments = [str(folder / "bin") for folder in _find_virtual_environments(plan)]
    workers = str(Path(sys.executable).parent)
    path = os.pathsep.join([*virtual_environments, environment.get("PATH", os.defpath), workers])
    programs = (shutil.which(name, path=path) or "" for name in ("python", "pytest"))
    is_workers = any(os.path.dirname(program) == workers for program in (*programs, plan.test[0]))
    return environment | {
        **({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if is_workers else {}),
        "PATH": path,
        "PYTHONPATH": os.pathsep.join(str(checkout.tree / name) for name in ("src", "")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CI": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(checkout.home),
        "TMPDIR": str(checkout.tmp),
    }


async def _run_in_sandbox(command: tuple[str, ...], plan: Plan, checkout: Checkout, seconds: float) -> ProgramResult:
    environment = await asyncio.to_thread(command_environment, plan, checkout)
    write = (checkout.tree, checkout.home, checkout.tmp)
    sandbox = Sandbox(write, tuple(_find_virtual_environments(plan)), plan.order.network)
    wrapped = await asyncio.to_thread(sandbox.wrap, command, checkout.tree)
    return await run_program(
        wrapped,
        folder=checkout.tree,
        seconds=seconds,
        environment=environment,
        max_bytes=_MAX_OUTPUT_BYTES,
        merge_errors=True,
    )


def _find_virtual_environments(plan: Plan) -> list[Path]:
    folders = (Path(plan.repository, name) for name in (".venv", "venv"))
    return [folder for folder in folders if (folder / "bin").is_dir()]


def _read_text_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_PATCH_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise DeliveryError(f"the diff {str(path)!r} cannot be read ({error.strerror}); name a file") from None
    except UnicodeDecodeError:
        raise DeliveryError(f"the diff {str(path)!r} is not UTF-8; convert it, or order edits instead") from None
    if len(content) > _MAX_PATCH_BYTES:
        raise DeliveryError(f"the diff {str(path)!r} is larger than {_MAX_PATCH_BYTES:,} bytes; deliver it in parts")
    return text


def _apply_edits(folder: Path, paths: Sequence[str], edits: tuple[Edit, ...]) -> None:
    """Apply edits to tracked files; symbolic links are not followed."""
    for edit in edits:
        if not edit.find:
            _write_new_file(folder, edit)
            continue
        count = sum(_apply_edit(folder / path, edit) for path in paths if matches(path, edit.path))
        if count != edit.expect if edit.expect else not count:
            expected = f"{edit.expect} times" if edit.expect else "at least once"
            message = f"an edit of {json.dumps(edit.path)} must match {expected}, but matches {count} times"
            raise DeliveryError(f"{message}; correct its 'find'")


def _apply_edit(path: Path, edit: Edit) -> int:
    """Apply an edit to a file and return the number of replacements."""
    if path.is_symlink() or not path.is_file():
        return 0
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        return 0
    if count := text.count(edit.find):
        path.write_bytes(text.replace(edit.find, edit.replace).encode())
    return count


def _write_new_file(folder: Path, edit: Edit) -> None:
    full_path, parts = folder / edit.path, edit.path.split("/")
    if edit.path.startswith("/") or ".." in parts or ".git" in parts or "*" in edit.path:
        raise DeliveryError(f"an edit writes {edit.path!r}, which is not a path in the repository; correct it")
    # A dangling symbolic link does not exist, but writing would follow it.
    if full_path.exists() or full_path.is_symlink() or not full_path.parent.resolve().is_relative_to(folder.resolve()):
        raise DeliveryError(f"an edit writes {edit.path!r}, which already exists; set 'find'")
    try:
        full_path.parent.mkdir(parents=True, exist_ok=True)
        full_path.write_bytes(edit.replace.encode())
    except OSError as error:
        raise DeliveryError(f"an edit cannot write {edit.path!r} ({error.strerror}); correct it") from None


_TASK = (
    "You change a project so that the goal is reached and its tests pass. Answer with edits: each names a path, the "
    "text to find in it, word for word and only once in the file, and what to put there; for a new file leave 'find' "
    "empty. Change as little as possible, and never weaken a test."
)
_MAX_CHARACTERS, _MAX_FILE_LENGTH, _MAX_PATHS = 120_000, 40_000, 2_000


class Implementer:
    """The agent that drafts a round's change: the ordered one, or else a model's edits."""

    name = "draft-change"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with a `Draft`; without edits it means the ordered change."""
        context = work.context
        plan = Plan.model_validate_json(await context.artifacts.read("plan"))
        number = context.params["round"]
        if isinstance(number, int) and number <= len(plan.changes):
            draft = Draft(title=plan.changes[number - 1].describe()[:120])
            return AgentAnswer(output=draft.model_dump(mode="json"), claimed=False)
        answer = await ask_model(work, _TASK, await _model_input(work, plan), Draft)
        if answer is None or not answer.edits:
            raise DeliveryError(f"round {number} has no change; order one, or configure a model on the worker")
        for edit in answer.edits:
            allowed = not plan.order.paths or any(matches(edit.path, pattern) for pattern in plan.order.paths)
            if "*" in edit.path or not allowed:
                raise DeliveryError(f"the model may not change {edit.path!r}, which is outside the parameter 'paths'")
        return AgentAnswer(output=answer.model_dump(mode="json"))


async def _model_input(work: AgentWork, plan: Plan) -> JsonValue:
    """Return the model's input: the goal, the previous failure, and the project's files."""
    context = work.context
    repository = await Repository.of(Path(plan.repository), context.given.task_id)
    commit = str(context.params["parent"])
    paths = [path for path in await repository.paths(commit) if not may_hold_secrets(path)]
    return {
        "goal": context.baton.goal,
        "acceptance": [*context.baton.acceptance],
        "went wrong": context.params.get("why", ""),
        "paths": [*paths[:_MAX_PATHS]],
        "files": await _read_files(repository, commit, paths, [*plan.order.paths]),
    }


async def _read_files(repository: Repository, commit: str, paths: list[str], patterns: list[str]) -> list[JsonValue]:
    """Return the files that fit into a prompt, those that may change first."""

    def rank(path: str) -> tuple[bool, int]:
        return not any(matches(path, pattern) for pattern in patterns), path.count("/")

    files: list[JsonValue] = []
    characters_left = _MAX_CHARACTERS
    for path in sorted(paths, key=rank)[:_MAX_PATHS]:
        text = await repository.text(commit, path) if characters_left > 0 else None
        if text is not None and len(text) <= min(_MAX_FILE_LENGTH, characters_left):
            files.append({"path": path, "text": text})
            characters_left -= len(text)
    return files


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
    """Return the line and reason of a syntax error, or None if the file is valid or not checked."""
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
