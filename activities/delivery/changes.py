"""Make a change in a worktree: apply a diff, replace texts, or run a command."""

import asyncio
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from activities.delivery.records import Change, DeliveryError, Edit, Order, shown
from activities.delivery.worktree import Worktree
from activities.workbench.diffs import DiffError, parse_diff
from activities.workbench.git import GitError, paths_of
from activities.workbench.programs import environment_for, run_program
from activities.workbench.words import counted

_COMMAND_SECONDS = 1_800.0
_LONGEST_TAIL = 1_000
_MOST_BYTES = 16_000_000


async def make_change(tree: Worktree, change: Change) -> None:
    """Make one change in a worktree.

    Args:
        tree: The worktree, as its branch is.
        change: The change; a diff is given as its text.

    Raises:
        DeliveryError: It cannot be made; the message says why.
    """
    if change.patch is not None:
        await _apply(tree, change.patch)
    elif change.edits is not None:
        paths = paths_of(await tree.git.run("ls-files", "-z"))
        await asyncio.to_thread(_edit, tree.folder, paths, change.edits)
        new = [f":(top,literal){edit.path}" for edit in change.edits if not edit.find]
        if new:  # also what the project ignores: it was ordered by name
            await tree.git.run("add", "--force", "--", *new)
    elif change.command is not None:
        environment = environment_of(tree.plan.folder, tree.folder, tree.plan.order)
        ran = await run_program(
            change.command, folder=tree.folder, seconds=_COMMAND_SECONDS, environment=environment, together=True
        )
        if ran.code != 0:
            end = f"takes longer than {_COMMAND_SECONDS:g} s" if ran.code is None else f"fails (exit code {ran.code})"
            said = ran.output.decode("utf-8", "replace").strip()[-_LONGEST_TAIL:]
            raise DeliveryError(f"the command `{shown(change.command)}` {end}: {said}")


def read_patch(given: str) -> str:
    """Return the text of a diff that is given as such, or as the path of its file.

    Raises:
        DeliveryError: It can be neither read nor understood.
    """
    text = given if "\n" in given else _text_of(Path(given))
    try:
        parse_diff(text)
    except DiffError as error:
        raise DeliveryError(f"the parameter 'patch' cannot be used: {error}") from None
    return text


def _text_of(place: Path) -> str:
    """Return the text of a diff's file, to the letter.

    Raises:
        DeliveryError: It cannot be read whole.
    """
    try:
        with place.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DeliveryError(f"the diff {str(place)!r} cannot be read ({error.strerror}); name a file") from None
    if len(content) > _MOST_BYTES:
        raise DeliveryError(f"the diff {str(place)!r} is larger than {_MOST_BYTES:,} bytes; deliver it in parts")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise DeliveryError(
            f"the diff {str(place)!r} is not UTF-8, so its lines would be changed on the way; let git apply it: "
            f"--param command='git apply {place}'"
        ) from None


def environment_of(repository: Path, folder: Path, order: Order) -> dict[str, str]:
    """Return the environment of the project's own commands.

    The repository's virtual environment comes first on the path, and Python imports from the worktree before it
    looks at what is installed: else an editable install would test the user's working copy.

    Args:
        repository: The repository, for its virtual environment.
        folder: The worktree.
        order: What was asked for.
    """
    environment = environment_for(order.environment)
    own = [repository / name / "bin" for name in (".venv", "venv")]
    path = [*(str(place) for place in own if place.is_dir()), environment.get("PATH", os.defpath)]
    # Last of all the worker's own Python, for projects that need no more than a test runner.
    environment["PATH"] = os.pathsep.join([*path, str(Path(sys.executable).parent)])
    sources = [str(place) for place in (folder / "src", folder) if place.is_dir()]
    environment |= {"PYTHONPATH": os.pathsep.join(sources), "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return environment


async def _apply(tree: Worktree, patch: str) -> None:
    """Apply a diff as git does, whole or not at all."""
    text = patch if patch.endswith("\n") else f"{patch}\n"
    try:
        await tree.git.run("apply", "--index", "--whitespace=nowarn", "-", given=text.encode())
    except GitError as error:
        raise DeliveryError(
            f"the diff does not apply to {tree.plan.base[:12]}: {error}; make it anew, or name another base"
        ) from None


def _edit(folder: Path, paths: Sequence[str], edits: tuple[Edit, ...]) -> None:
    """Replace texts in tracked files; links are not followed."""
    for edit in edits:
        if not edit.find:
            _write_new(folder, edit)
            continue
        found = 0
        for path in paths:
            place = folder / path
            if not matches(path, edit.path) or place.is_symlink() or not place.is_file():
                continue
            try:
                text = place.read_bytes().decode()
            except UnicodeDecodeError:
                continue
            old, new = (_ended_as(text, words) for words in (edit.find, edit.replace))
            count = text.count(old)
            found += count
            if count:
                place.write_bytes(text.replace(old, new).encode())
        if found != edit.expect if edit.expect else not found:
            expected = counted(edit.expect, "time") if edit.expect else "at least once"
            finds = f"finds its text {counted(found, 'time')}, and must find it {expected}"
            raise DeliveryError(f"an edit of {edit.path!r} {finds}; mend the edit")


def _ended_as(text: str, words: str) -> str:
    r"""Return words with the line ends of a text, where all of its lines end as on Windows.

    Example:
        >>> _ended_as("a\r\nb\r\n", "b\nc"), _ended_as("a\r\nb\n", "b\nc")
        ('b\r\nc', 'b\nc')
    """
    is_windows = 0 < text.count("\r\n") == text.count("\n")
    return words.replace("\r\n", "\n").replace("\n", "\r\n") if is_windows else words


def _write_new(folder: Path, edit: Edit) -> None:
    """Write a file that is not there yet, inside the worktree."""
    place = folder / edit.path
    parts = edit.path.split("/")
    if edit.path.startswith("/") or ".." in parts or ".git" in parts or "*" in edit.path:
        raise DeliveryError(f"an edit is to write {edit.path!r}, which is no place in the repository; mend the edit")
    # A link that leads nowhere does not exist, and is written through.
    if place.exists() or place.is_symlink() or not place.parent.resolve().is_relative_to(folder.resolve()):
        raise DeliveryError(f"an edit is to write {edit.path!r}, which is there already; say what to find in it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(edit.replace.encode())
    except OSError as error:
        raise DeliveryError(f"an edit cannot write {edit.path!r} ({error.strerror}); mend the edit") from None


def matches(path: str, pattern: str) -> bool:
    """Return whether a path is meant by a pattern; `**` stands for any number of folders.

    Example:
        >>> matches("src/a/b.py", "src/**/*.py"), matches("src/b.py", "src/**/*.py"), matches("x/b.py", "*.py")
        (True, True, False)
    """
    parts, patterns = path.split("/"), pattern.split("/")
    return _fits(parts, patterns)


def _fits(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_fits(parts[start:], patterns[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _fits(parts[1:], patterns[1:])
