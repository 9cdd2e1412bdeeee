"""Take a snapshot of the code under review: a whole project, what changed since a commit, or what a diff changes.

The source is only read. Git is asked for lists and contents alone, so no program that the checkout's own
configuration names is ever started.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from activities.code_review.passages import Passages, hides_lines, passages_between, passages_of
from activities.code_review.records import CodeReviewError, Snapshot, SourceText, Unread
from activities.project_init.files import SourceTree, as_text, decoded, survey
from activities.project_init.languages import kind_of, language_of, language_of_file
from activities.project_init.records import LeftOut, ProjectError, SourceFile
from activities.project_init.roles import role_of
from activities.workbench.diffs import DiffError, FileDiff, apply_diff, is_applied, parse_diff, reverse_diff
from activities.workbench.git import Git, paths_of

_MOST_BYTES = 32_000_000
_MOST_EXAMPLES = 5
_NOT_READ = ("cannot be ", "folder cannot be ", "over the limit", "listed by size only", "name is not UTF-8")
_DIFF_BYTES = 16_000_000
_POINTER = re.compile(r".Subproject commit [0-9a-f]{40,64}(-dirty)?")
_SUBMODULE = "a submodule, whose own changes are not shown; review it by itself"


class _Left:
    """Counts what is not reviewed, by reason."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._missed: set[str] = set()

    def add(self, reason: str, path: str, count: int = 1, *, missed: bool = False) -> None:
        """Record one file or several, and whether they should have been reviewed."""
        self._paths.setdefault(reason, []).append(path)
        self._counts[reason] = self._counts.get(reason, 0) + count
        if missed:
            self._missed.add(reason)

    def result(self) -> tuple[Unread, ...]:
        """Return what was recorded, sorted by reason."""
        return tuple(
            Unread(
                reason=reason,
                count=self._counts[reason],
                examples=tuple(sorted(paths)[:_MOST_EXAMPLES]),
                missed=reason in self._missed,
            )
            for reason, paths in sorted(self._paths.items())
        )


def snapshot_of_project(tree: SourceTree) -> Snapshot:
    """Return all of a project's programs, for a review of everything.

    Args:
        tree: The surveyed project.
    """
    return _snapshot(tree, _Scope("", None, {}, lambda path, text: None))


async def snapshot_of_changes(tree: SourceTree, base: str) -> Snapshot:
    """Return the programs of a checkout that differ from where it left a commit, changed lines marked.

    What is not committed yet counts as well. A file that was moved is compared with what it was, as git tells it
    of what is committed or staged.

    Args:
        tree: The surveyed checkout.
        base: A commit, branch or tag; its common ancestor with the checkout's own commit is compared with.

    Raises:
        CodeReviewError: There is no such commit, or the folder is no checkout.
        GitError: Git fails.
    """
    git = Git(tree.root)
    commit = await git.commit_of(base)
    if commit is None:
        raise CodeReviewError(f"there is no commit {base!r} in {str(tree.root)!r}; {await _remedy(git)}")
    forked = await git.ask("merge-base", commit, "HEAD")
    start = forked.output.decode().strip() if forked.code == 0 else commit
    blobs, links = await _contents(git, start)
    touched = await asyncio.to_thread(_touched, tree, blobs)
    moved = await _moved(git, start)
    origins = {path: origin for path in touched if (origin := path if path in blobs else moved.get(path)) in blobs}
    before = {path: as_text(await git.run("cat-file", "blob", blobs[origin])) for path, origin in origins.items()}

    def changed(path: str, text: str) -> Passages:
        return passages_between(before.get(path), text)

    unseen = dict.fromkeys([path for path, at in (await _submodules(git)).items() if at != links.get(path)], _SUBMODULE)
    scope = _Scope(f"since {base} ({start[:12]})", touched | unseen.keys(), {}, changed, unseen)
    return await asyncio.to_thread(_snapshot, tree, scope)


def snapshot_of_diff(tree: SourceTree, diff: str, name: str) -> Snapshot:
    """Return the programs that a diff touches, as they are with it, its added lines marked.

    Args:
        tree: The surveyed project, with the diff applied or without.
        diff: A unified diff.
        name: What to call the diff.

    Raises:
        CodeReviewError: It is no diff, or it fits the project neither way.
    """
    try:
        changes = _changes_of(parse_diff(diff))
        unseen = {path: why for path, each in changes.items() if (why := _why_unseen(tree, each))}
        read = {
            path: found
            for path, each in changes.items()
            if path not in unseen and (found := _with_diffs(tree, each)) is not None
        }
    except DiffError as error:
        raise CodeReviewError(f"the diff {name!r} cannot be reviewed: {error}") from None
    texts = {path: text for path, (text, _) in read.items()}
    new = unseen.keys() - tree.by_path.keys()  # of these the added lines tell in which language they are
    texts |= {path: "\n".join(line for one in changes[path] for _, line in one.added) for path in new}
    added = {path: passages for path, (_, passages) in read.items()}
    return _snapshot(tree, _Scope(f"by {name}", changes.keys(), texts, lambda path, text: added.get(path, ()), unseen))


def read_diff(path: Path) -> str:
    """Return the text of a diff's file.

    Raises:
        CodeReviewError: It is not there, or is larger than 16 MB.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_DIFF_BYTES + 1)
    except OSError as error:
        raise CodeReviewError(f"the diff {str(path)!r} cannot be read ({error.strerror}); name a file") from error
    if len(content) > _DIFF_BYTES:
        raise CodeReviewError(f"the diff {str(path)!r} is larger than {_DIFF_BYTES:,} bytes; review it in parts")
    return decoded(content)


def read_tree(root: Path, progress: Callable[[str], None]) -> SourceTree:
    """Return the survey of a project's folder.

    Raises:
        CodeReviewError: It is no folder that can be read.
    """
    try:
        return survey(root, progress=progress)
    except ProjectError as error:
        raise CodeReviewError(f"the source cannot be reviewed: {error}") from None


@dataclass(frozen=True)
class _Scope:
    """What is under review.

    Attributes:
        compared_with: What the changes are counted from, as `since main` or `by fix.diff`; "" for everything.
        touched: The paths that changed; None for all there are.
        texts: Texts that count instead of those in the folder.
        changed: Returns the passages of a text that changed; None for all of it.
        unseen: The paths of which nobody can say what changed, and why not.
    """

    compared_with: str
    touched: Set[str] | None
    texts: Mapping[str, str]
    changed: Callable[[str, str], Passages | None]
    unseen: Mapping[str, str] = field(default_factory=dict)


def _snapshot(tree: SourceTree, scope: _Scope) -> Snapshot:
    """Return the programs in the scope, within the limits; say of the other files why they are left out."""
    left = _Left()
    files: list[SourceText] = []
    size = 0
    listed = {file.path: file for file in tree.listing.files}
    for path in sorted(listed.keys() | scope.texts.keys() if scope.touched is None else scope.touched):
        if scope.unseen.get(path) == _SUBMODULE:
            left.add(_SUBMODULE, path, missed=True)
            continue
        text = scope.texts.get(path)
        language = _language(tree, listed.get(path), text, path)
        if language is None or kind_of(language) != "programming":
            left.add(f"no program, but {kind_of(language)}" if language else "no program", path)
            continue
        if role_of(path) in ("vendored", "generated"):
            left.add(f"{role_of(path)} code", path)
            continue
        if path in scope.unseen:
            left.add(scope.unseen[path], path, missed=True)
            continue
        text = tree.text(path) if text is None else text
        if text is None:
            left.add("too large, binary, unreadable, or may hold secrets", path, missed=True)
            continue
        passages = scope.changed(path, text)
        size += len(text)
        if passages == ():
            left.add("no added line", path)
            continue
        if language == "Python" and hides_lines(text):
            passages = None
        if size > _MOST_BYTES:
            left.add(f"over {_MOST_BYTES:,} characters", path, missed=True)
            continue
        files.append(
            SourceText(path=path, language=language, text=text, changed=passages, is_test=role_of(path) == "test")
        )
    for omission in tree.listing.left_out if scope.touched is None else ():
        left.add(omission.reason, ", ".join(omission.examples[:1]), omission.count, missed=_is_missed(omission))
    return Snapshot(name=tree.listing.name, compared_with=scope.compared_with, files=tuple(files), unread=left.result())


def _is_missed(omission: LeftOut) -> bool:
    """Return whether programs may be among what the survey could not read, or not all of."""
    return omission.reason.startswith(_NOT_READ) and any(
        path.endswith("/") or kind_of(language_of(path) or "") == "programming" for path in omission.examples
    )


def _language(tree: SourceTree, file: SourceFile | None, text: str | None, path: str) -> str | None:
    """Return the language of a file, or of the text that counts instead of it."""
    if text is not None:
        return language_of(path, text.partition("\n")[0])
    if file is not None and file.kind == "binary":
        return language_of(path)  # a program that holds a null byte would pass unread otherwise
    return language_of_file(tree, file) if file else None


def _changes_of(diffs: Iterable[FileDiff]) -> dict[str, list[FileDiff]]:
    """Return what leads to each file: several diffs where a series of patches comes back to it."""
    found: dict[str, list[FileDiff]] = {}
    for one in diffs:
        if one.new is None:
            found.pop(one.old or "", None)
        elif one.old == one.new:
            found.setdefault(one.new, []).append(one)
        else:
            found[one.new] = [one]
    return found


def _why_unseen(tree: SourceTree, diffs: list[FileDiff]) -> str | None:
    """Return why nobody can say which lines diffs add to a file; None where it can be said."""
    if any(one.binary for one in diffs):
        return "changed as a binary file, so the diff does not show how"
    lines = [line for one in diffs for hunk in one.hunks for line in hunk.lines]
    if lines and all(map(_POINTER.fullmatch, lines)):
        return _SUBMODULE
    # Programs end a line there, and git does not: what follows would be in no line that the diff adds.
    texts = [decoded(tree.head(path, tree.limits.text_bytes) or b"") for path in {diffs[0].old, diffs[-1].new} if path]
    if any("\r" in text.replace("\r\n", "\n") for text in (*lines, *texts)):
        return "a carriage return within a line of it, so the lines of the diff are not its own"
    return None


def _with_diffs(tree: SourceTree, diffs: list[FileDiff]) -> tuple[str, Passages] | None:
    """Return a file's text with its diffs applied, whether they are already or not, and what they add to it.

    None where nothing in it changes or it is not read.

    Raises:
        DiffError: They fit neither way, or there is no such file.
    """
    first, last = diffs[0], diffs[-1]
    steps = [one for one in diffs if one.hunks]
    if not steps:
        return None
    now = tree.text(last.new or "")
    if now is not None and is_applied(steps[-1], now):
        old = text = now
        for one in reversed(steps) if len(steps) > 1 else ():
            old = apply_diff(reverse_diff(one), old)
    else:
        read = tree.text(first.old) if first.old else ""
        if read is None:
            if {first.old, last.new} & tree.by_path.keys():
                return None  # too large, or may hold secrets
            raise DiffError(f"{first.old}: there is no such text in the project; review the diff beside its project")
        old = text = read
        for one in steps:
            text = apply_diff(one, text)
    if len(steps) > 1:
        return text, passages_between(old, text)
    return text, passages_of(number for number, _ in steps[0].added)


async def _remedy(git: Git) -> str:
    """Return what to do about a commit that is not there."""
    is_shallow = await git.ask("rev-parse", "--is-shallow-repository")
    if is_shallow.code != 0:
        return "it is no git checkout, so leave 'base' out"
    if is_shallow.output.strip() == b"true":
        return "it is a shallow clone: get the rest with `git fetch --unshallow`, or name one that it has"
    return "name one of that checkout"


async def _contents(git: Git, commit: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what git calls the contents of a commit, and the commits of its submodules, by path from the folder."""
    prefix = await git.line("rev-parse", "--show-prefix")
    listing = await git.run("ls-tree", "-r", "-z", "--full-tree", commit)
    found: dict[str, dict[str, str]] = {"blob": {}, "commit": {}}
    for entry in paths_of(listing):
        head, _, path = entry.partition("\t")
        _, kind, name = head.split(" ")
        if path.startswith(prefix):
            found[kind][path.removeprefix(prefix)] = name
    return found["blob"], found["commit"]


async def _submodules(git: Git) -> dict[str, str]:
    """Return the commits at which submodules are, checked out or as they are staged, by path from the folder."""
    found = {}
    for entry in paths_of(await git.run("ls-files", "-z", "--stage")):
        head, _, path = entry.partition("\t")
        mode, name, _ = head.split(" ")
        if mode == "160000":
            inner = git.folder / path
            is_there = await asyncio.to_thread((inner / ".git").exists)
            found[path] = (is_there and await Git(inner, is_top=True).commit_of("HEAD")) or name
    return found


async def _moved(git: Git, commit: str) -> dict[str, str]:
    """Return the paths from the folder that git takes for files of a commit under other names, with those names."""
    options = ("--cached", "--find-renames", "--diff-filter=R", "--name-status", "--relative", "-z")
    parts = (await git.ask("diff-index", *options, commit, "--")).output.decode("utf-8", "backslashreplace").split("\0")
    return dict(zip(parts[2::3], parts[1::3], strict=False))


def _touched(tree: SourceTree, blobs: Mapping[str, str]) -> Set[str]:
    """Return the paths whose content is not what the commit has.

    A content is hashed as git does; in a repository that hashes with SHA-256 all look touched, which costs only time.
    """
    found = set()
    for file in tree.listing.files:
        raw = tree.head(file.path, tree.limits.hash_bytes) if file.path in blobs else None
        ours = hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest() if raw else ""
        if ours != blobs.get(file.path) and (raw or file.size):
            found.add(file.path)
    return frozenset(found)
