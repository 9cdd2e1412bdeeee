"""Take a snapshot of the code under review: a whole project, what changed since a commit, or what a diff changes.

The source is only read. Git is asked for lists and contents, never for a comparison with the working copy: that would
start the filters that the checkout's own configuration names.
"""

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unidiff import PatchedFile, PatchSet
from unidiff.errors import UnidiffParseError
from unidiff.patch import Line

from activities.code_review.records import CodeReviewError, Passages, Snapshot, SourceText, Unread
from activities.source_files import as_text, git, language_of, list_files, opened

_OTHERS = re.compile(
    r"(^|/)(vendor|third_party|_vendor|node_modules|site-packages)/|_pb2(_grpc)?\.pyi?$|\.min\.js$|\.pb\.go$|_generated\.\w+$"
)
_LONGEST_FILE = 1024 * 1024
_MOST_CHARACTERS = 32_000_000
_LONGEST_DIFF = 16_000_000
_MOST_COMPARED = 5_000  # lines


@dataclass
class Tree:
    """The files of the source, and what was left out: paths by reason, with "!" before it if programs may be missed."""

    root: Path
    paths: list[str]
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, reason: str, path: str, *, missed: bool = False) -> None:
        """Record a path that is not reviewed."""
        self.left_out.setdefault("!" * missed + reason, []).append(path)

    def keep_missed(self) -> None:
        """Forget what was left out of the whole project and cannot be part of a change."""
        self.left_out = {reason: paths for reason, paths in self.left_out.items() if reason.startswith("!")}

    def unread(self) -> tuple[Unread, ...]:
        """Return what was left out, by reason."""
        return tuple(
            Unread(
                reason=reason.lstrip("!"), count=len(paths), examples=tuple(paths[:5]), missed=reason.startswith("!")
            )
            for reason, paths in sorted(self.left_out.items(), key=lambda each: each[0].lstrip("!"))
        )

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it is too long, or is not a regular file within the folder."""
        try:
            if (self.root / path).resolve() != self.root / path:
                return None
            with opened(self.root / path) as file:
                content = file.read(_LONGEST_FILE + 1)
            return content if len(content) <= _LONGEST_FILE else None
        except OSError:
            return None


def read_tree(root: Path) -> Tree:
    """Return the files of a project."""
    top = root.resolve()
    if not top.is_dir() or not os.access(top, os.R_OK):
        raise CodeReviewError(f"the source {str(root)!r} does not exist or is not a folder; name the project's folder")
    tree = Tree(top, [])

    def leave_out(reason: str, path: str) -> None:
        tree.leave_out(reason, path, missed="UTF-8" in reason and _language(path, "") is not None)

    tree.paths = list_files(top, leave_out)[0]
    return tree


def snapshot_of_project(tree: Tree) -> Snapshot:
    """Return all of a project's programs, for a review of everything."""
    return _snapshot(tree, tree.paths, "", {}, lambda path, text: None)


def snapshot_of_changes(tree: Tree, base: str) -> Snapshot:
    """Return the programs of a checkout that differ from where it left a commit, with the changed lines.

    What is not committed counts as well.
    """
    commit = git(tree.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    if commit is None:
        raise CodeReviewError(f"the commit {base!r} does not exist in {str(tree.root)!r}; {_remedy(tree.root)}")
    start = (git(tree.root, "merge-base", commit.decode().strip(), "HEAD") or commit).decode().strip()
    blobs = _blobs(tree.root, start)
    before: dict[str, str] = {}
    touched = []
    tree.keep_missed()
    for path in tree.paths:
        content = tree.read(path) or b""
        blob = blobs.get(path)
        if blob != hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest():
            touched.append(path)
            before[path] = as_text(git(tree.root, "cat-file", "blob", blob) or b"") if blob else ""
    return _snapshot(
        tree, touched, f"since {base} ({start[:12]})", {}, lambda path, text: passages_between(before[path], text)
    )


def snapshot_of_diff(tree: Tree, diff: str, name: str) -> Snapshot:
    """Return the programs that a diff changes, as they are with it, with the changed lines."""
    try:
        parsed = PatchSet(diff.replace("\r\n", "\n"))
    except UnidiffParseError as error:
        raise CodeReviewError(f"the diff {name!r} cannot be reviewed: {error}") from None
    if not parsed:
        raise CodeReviewError(f"the diff {name!r} has no change; give a unified diff, as `git diff` writes it")
    tree.keep_missed()
    texts: dict[str, str] = {}
    changed: dict[str, Passages] = {}
    for patch in parsed:
        path = _path(patch)
        if patch.is_removed_file or not (len(patch) or patch.is_binary_file):
            continue
        if path in texts:
            raise CodeReviewError(f"the diff {name!r} changes {path!r} twice; give one diff of all of it")
        now = as_text(tree.read(path) or b"")
        added = [line for hunk in patch for line in hunk if line.is_added]
        is_program = _language(path, now or "".join(line.value for line in added)) is not None
        if patch.is_binary_file or not is_program:
            why = "changed as a binary file, so the diff does not show how" if is_program else "not a program"
            tree.leave_out(why, path, missed=is_program)
            continue
        origin = as_text(tree.read(patch.source_file.removeprefix("a/")) or b"") if patch.is_rename else now
        after = _with_diff(now, origin, patch)
        if after is None:
            raise CodeReviewError(
                f"the diff {name!r} cannot be reviewed: it does not fit {path!r}; make a new one from that text"
            )
        texts[path] = after
        changed[path] = _passages(line.target_line_no or 1 for line in added)
    return _snapshot(tree, sorted(texts), f"by {name}", texts, lambda path, text: changed[path])


def read_diff(path: Path) -> str:
    """Return the text of a diff's file."""
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_DIFF + 1)
    except OSError as error:
        raise CodeReviewError(f"the diff {str(path)!r} cannot be read ({error.strerror}); name a file") from error
    if len(content) > _LONGEST_DIFF:
        raise CodeReviewError(f"the diff {str(path)!r} is larger than {_LONGEST_DIFF:,} bytes; review it in parts")
    return content.decode("utf-8-sig", "replace")


def passages_between(old: str, new: str) -> Passages:
    """Return the lines of a text that are new or changed."""
    before, after = _lines(old), _lines(new)
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    tail = next((at for at in range(shorter - head) if before[-1 - at] != after[-1 - at]), shorter - head)
    before, after = before[head : len(before) - tail], after[head : len(after) - tail]
    if max(len(before), len(after)) <= _MOST_COMPARED:
        codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        changed = [number for tag, _, _, low, high in codes if tag != "equal" for number in range(low, high)]
    else:  # a comparison takes the square of what changed: take the lines that the old text has nowhere
        known = {*before}
        changed = [number for number, line in enumerate(after) if line not in known]
    return _passages(head + at + 1 for at in changed)


def _passages(numbers: Iterable[int]) -> Passages:
    """Return line numbers as runs."""
    passages: list[tuple[int, int]] = []
    for number in numbers:
        first = passages.pop()[0] if passages and passages[-1][1] == number - 1 else number
        passages.append((first, number))
    return tuple(passages)


def _lines(text: str) -> list[str]:
    """Return the lines of a text, as git counts them."""
    return text.removesuffix("\n").split("\n") if text else []


def _snapshot(
    tree: Tree,
    paths: Iterable[str],
    compared_with: str,
    texts: Mapping[str, str],
    changed: Callable[[str, str], Passages | None],
) -> Snapshot:
    """Return the programs among the paths, within the limits, and why others are left out."""
    files: list[SourceText] = []
    size = 0
    for path in paths:
        content = tree.read(path)
        text = texts[path] if path in texts else as_text(content or b"")
        language = _language(path, text)
        if language is None:
            tree.leave_out("not a program", path)
        elif _OTHERS.search(path):
            tree.leave_out("vendored or generated code", path)
        elif path not in texts and (content is None or b"\0" in content):
            tree.leave_out("too large, binary or unreadable", path, missed=True)
        elif (passages := changed(path, text)) == ():
            tree.leave_out("no added line", path)
        elif (size := size + len(text)) > _MOST_CHARACTERS:
            tree.leave_out(f"over {_MOST_CHARACTERS:,} characters", path, missed=True)
        else:
            files.append(SourceText(path=path, language=language, text=text, changed=passages))
    return Snapshot(name=tree.root.name, compared_with=compared_with, files=tuple(files), unread=tree.unread())


def _language(path: str, text: str) -> str | None:
    """Return the programming language of a file, or None."""
    found = language_of(path, text[:256].encode())
    return found[0] if found and found[1] == "programming" else None


def _remedy(root: Path) -> str:
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        return "it is not a git checkout, so leave 'base' out"
    if shallow.strip() == b"true":
        return "it is a shallow clone: get the rest with `git fetch --unshallow`, or name a commit that it has"
    return "name one of that checkout"


def _blobs(root: Path, commit: str) -> dict[str, str]:
    """Return the blobs of a commit by path from the folder."""
    found = {}
    for entry in filter(None, (git(root, "ls-tree", "-r", "-z", commit) or b"").split(b"\0")):
        head, _, path = entry.decode("utf-8", "backslashreplace").partition("\t")
        if head.split(" ")[1] == "blob":
            found[path] = head.split(" ")[2]
    return found


def _path(patch: PatchedFile) -> str:
    """Return the path that a diff names, which git quotes if it is not ASCII."""
    path = str(patch.path)
    if path.startswith('"'):
        quoted = path.strip('"').removeprefix("b/").removeprefix("a/").encode("latin-1", "replace")
        path = quoted.decode("unicode_escape").encode("latin-1", "replace").decode("utf-8", "replace")
    if path.startswith("/") or ".." in path.split("/"):
        raise CodeReviewError(f"the diff names {path!r}, which is not a path of the project")
    return path


def _with_diff(now: str, origin: str, patch: PatchedFile) -> str | None:
    """Return a file's text with a diff, which may be applied already; None if the diff is of another text."""
    lines, done, at, is_applied = _lines(origin), list[str](), 0, True
    for hunk in patch:
        old, new = ([_line(line) for line in hunk if line.line_type in (" ", sign)] for sign in "-+")
        there = hunk.target_start - (1 if new else 0)
        is_applied = is_applied and _lines(now)[there : there + len(new)] == new
        start = hunk.source_start - (1 if old else 0)
        if start >= at and lines[start : start + len(old)] == old:
            done, at = [*done, *lines[at:start], *new], start + len(old)
        elif not is_applied:
            return None
    return now if is_applied else "".join(f"{line}\n" for line in [*done, *lines[at:]])


def _line(line: Line) -> str:
    """Return a line of a diff without the marks of the file's beginning and end."""
    return str(line.value).rstrip("\n").removeprefix("\ufeff")
