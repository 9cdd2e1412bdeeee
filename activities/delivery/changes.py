"""Make a change in a checkout: apply a diff, replace texts, or run a command; and run the project's tests there."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from activities.delivery.records import Change, DeliveryError, Draft, Edit, Plan, TestRun, matches, shown
from activities.delivery.repository import Checkout, GitError, Repository, git
from activities.delivery.review import may_hold_secrets
from activities.delivery.sandbox import Ran, Sandbox, environment_for, run_program
from activities.models import ask_model
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentWork

_COMMAND_SECONDS = 1_800.0
_LONGEST_TAIL = 1_000
_MOST_PATCH_BYTES, _MOST_OUTPUT_BYTES = 16_000_000, 200_000

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
"""How projects show their tests: a file, a pattern of its text, the command. The first that fits is taken."""


async def find_test_command(repository: Repository, base: str) -> tuple[str, ...]:
    """Return the command that tests the project."""
    for path, pattern, line in _TEST_COMMANDS:
        text = await repository.text(base, path)
        if text is not None and re.search(pattern, text, re.MULTILINE):
            return ("sh", "-c", line)
    raise DeliveryError(
        f"{str(repository.folder)!r} shows no command that runs its tests; name one with --param test='make test'"
    )


async def read_patch(given: str) -> str:
    """Return the text of a diff that is given as text or as the path of a file."""
    text = given if "\n" in given else await asyncio.to_thread(_file_text, Path(given))
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
            why = f"the diff does not apply to {plan.base[:12]}: {error}; make it from there, or name another base"
            raise DeliveryError(why) from None
    elif change.edits is not None:
        listed = await repository.run("ls-files", "-z", checkout=checkout)
        paths = listed.output.decode("utf-8", "replace").split("\0")
        await asyncio.to_thread(_edit, checkout.tree, paths, change.edits)
        if new := [f":(top,literal){edit.path}" for edit in change.edits if not edit.find]:
            await repository.run("add", "--force", "--", *new, checkout=checkout)  # also what the project ignores
    elif change.command is not None:
        ran = await _run(change.command, plan, checkout, _COMMAND_SECONDS)
        if ran.code != 0:
            end = f"takes longer than {_COMMAND_SECONDS:g} s" if ran.code is None else f"fails (exit code {ran.code})"
            said = ran.output.decode("utf-8", "replace").strip()[-_LONGEST_TAIL:]
            raise DeliveryError(f"the command `{shown(change.command)}` {end}: {said}")


async def run_tests(repository: Repository, plan: Plan, commit: str) -> TestRun:
    """Run the project's tests on a commit, in a sandbox. A failing test is a result, not an error."""
    async with repository.checkout(commit) as checkout:
        command, ran = plan.test, None
        if plan.order.prepare is not None:
            ran = await _run(plan.order.prepare, plan, checkout, plan.order.test_seconds)
        prepared = ran is None or ran.code == 0
        if ran is None or prepared:
            ran = await _run(plan.test, plan, checkout, plan.order.test_seconds)
        else:
            command = plan.order.prepare or plan.test
    return TestRun(
        commit=commit,
        command=command,
        code=ran.code,
        seconds=round(ran.seconds),
        output=ran.output.decode("utf-8", "replace"),
        prepared=prepared,
    )


def environment_of(plan: Plan, checkout: Checkout) -> dict[str, str]:
    """Return the environment of the project's commands.

    The repository's virtual environment is first on the path, and Python imports from the checkout before anything
    that is installed: an editable install would otherwise test the user's working copy.
    """
    environment = environment_for(plan.order.environment)
    own = [str(place / "bin") for place in _virtual_environments(plan)]
    path = [*own, environment.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    return environment | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(str(checkout.tree / name) for name in ("src", "")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CI": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(checkout.home),
        "TMPDIR": str(checkout.tmp),
    }


async def _run(command: tuple[str, ...], plan: Plan, checkout: Checkout, seconds: float) -> Ran:
    """Run a command of the project in a sandbox."""
    environment = await asyncio.to_thread(environment_of, plan, checkout)
    write = (checkout.tree, checkout.home, checkout.tmp)
    sandbox = Sandbox(write, tuple(_virtual_environments(plan)), plan.order.network)
    wrapped = await asyncio.to_thread(sandbox.wrap, command, checkout.tree)
    return await run_program(
        wrapped,
        folder=checkout.tree,
        seconds=seconds,
        environment=environment,
        most_bytes=_MOST_OUTPUT_BYTES,
        together=True,
    )


def _virtual_environments(plan: Plan) -> list[Path]:
    places = (Path(plan.repository, name) for name in (".venv", "venv"))
    return [place for place in places if (place / "bin").is_dir()]


def _file_text(place: Path) -> str:
    """Return the text of a diff's file."""
    try:
        with place.open("rb") as file:
            content = file.read(_MOST_PATCH_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise DeliveryError(f"the diff {str(place)!r} cannot be read ({error.strerror}); name a file") from None
    except UnicodeDecodeError:
        raise DeliveryError(f"the diff {str(place)!r} is not UTF-8; convert it, or order edits instead") from None
    if len(content) > _MOST_PATCH_BYTES:
        raise DeliveryError(f"the diff {str(place)!r} is larger than {_MOST_PATCH_BYTES:,} bytes; deliver it in parts")
    return text


def _edit(folder: Path, paths: Sequence[str], edits: tuple[Edit, ...]) -> None:
    """Replace texts in tracked files; links are not followed."""
    for edit in edits:
        if not edit.find:
            _write_new(folder, edit)
            continue
        found = sum(_replace(folder / path, edit) for path in paths if matches(path, edit.path))
        if found != edit.expect if edit.expect else not found:
            expected = f"{edit.expect} times" if edit.expect else "at least once"
            why = f"an edit of {json.dumps(edit.path)} must find its text {expected}, and finds it {found} times"
            raise DeliveryError(f"{why}; correct its 'find'")


def _replace(place: Path, edit: Edit) -> int:
    """Replace a text in a file and return how often it was found."""
    if place.is_symlink() or not place.is_file():
        return 0
    try:
        text = place.read_bytes().decode()
    except UnicodeDecodeError:
        return 0
    if count := text.count(edit.find):
        place.write_bytes(text.replace(edit.find, edit.replace).encode())
    return count


def _write_new(folder: Path, edit: Edit) -> None:
    """Write a file that does not exist yet, inside the checkout."""
    place, parts = folder / edit.path, edit.path.split("/")
    if edit.path.startswith("/") or ".." in parts or ".git" in parts or "*" in edit.path:
        raise DeliveryError(f"an edit writes {edit.path!r}, which is not a path in the repository; correct it")
    # A link that leads nowhere does not exist, and would be written through.
    if place.exists() or place.is_symlink() or not place.parent.resolve().is_relative_to(folder.resolve()):
        raise DeliveryError(f"an edit writes {edit.path!r}, which exists already; say what to find in it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(edit.replace.encode())
    except OSError as error:
        raise DeliveryError(f"an edit cannot write {edit.path!r} ({error.strerror}); correct it") from None


_TASK = (
    "You change a project so that the goal is reached and its tests pass. Answer with edits: each names a path, the "
    "text to find in it, word for word and only once in the file, and what to put there; for a new file leave 'find' "
    "empty. Change as little as possible, and never weaken a test."
)
_MOST_CHARACTERS, _LONGEST_FILE, _MOST_PATHS = 120_000, 40_000, 2_000


class Implementer:
    """The agent that decides what a round changes. Deterministic, unless the order has no change for the round."""

    name = "draft-change"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with a `Draft`; one without edits means the change that was ordered."""
        context = work.context
        plan = Plan.model_validate_json(await context.artifacts.read("plan"))
        number = context.params["round"]
        if isinstance(number, int) and number <= len(plan.changes):
            draft = Draft(title=plan.changes[number - 1].in_words()[:120])
            return AgentAnswer(output=draft.model_dump(mode="json"), claimed=False)
        answer = await ask_model(work, _TASK, await _material(work, plan), Draft)
        if answer is None or not answer.edits:
            raise DeliveryError(f"round {number} has no change; order one, or configure a model on the worker")
        for edit in answer.edits:
            allowed = not plan.order.paths or any(matches(edit.path, pattern) for pattern in plan.order.paths)
            if "*" in edit.path or not allowed:
                raise DeliveryError(f"the model wants to change {edit.path!r}, which it may not")
        return AgentAnswer(output=answer.model_dump(mode="json"))


async def _material(work: AgentWork, plan: Plan) -> JsonValue:
    """Return what the model works on: the goal, what went wrong, and the project's files."""
    context = work.context
    repository = await Repository.of(Path(plan.repository), context.given.task_id)
    commit = str(context.params["parent"])
    paths = [path for path in await repository.paths(commit) if not may_hold_secrets(path)]
    return {
        "goal": context.baton.goal,
        "acceptance": [*context.baton.acceptance],
        "went wrong": context.params.get("why", ""),
        "paths": [*paths[:_MOST_PATHS]],
        "files": await _files(repository, commit, paths, [*plan.order.paths]),
    }


async def _files(repository: Repository, commit: str, paths: list[str], wanted: list[str]) -> list[JsonValue]:
    """Return the texts that fit into a prompt, those that may change first."""
    found: list[JsonValue] = []
    left = _MOST_CHARACTERS
    for path in sorted(paths, key=lambda one: (not any(matches(one, it) for it in wanted), one.count("/")))[
        :_MOST_PATHS
    ]:
        text = await repository.text(commit, path) if left > 0 else None
        if text is not None and len(text) <= min(_LONGEST_FILE, left):
            found.append({"path": path, "text": text})
            left -= len(text)
    return found
