"""Take a snapshot of the code under review: a whole project, what changed since a commit, or what a diff changes.

The source is only read. Git lists files and returns contents, but never compares with the working copy: that would
start the filters in the checkout's own configuration.
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

from activities.code_review.reports import CodeReviewError, Passages, Snapshot, SourceText, Unread
from activities.source_files import decode_text, git, language_of, list_files, open_regular_file

_VENDORED = re.compile(
    r"(^|/)(vendor|third_party|_vendor|node_modules|site-packages)/|_pb2(_grpc)?\.pyi?$|\.min\.js$|\.pb\.go$|_generated\.\w+$"
)
_ENCODING_DECLARATION = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
_PLAIN_ENCODINGS = ("utf8", "ascii", "usascii", "latin1", "iso88591", "iso885915", "cp1252")
_MAX_FILE_BYTES = 1024 * 1024
_MAX_CHARACTERS = 32_000_000
_MAX_DIFF_BYTES = 16_000_000
_MAX_COMPARED_LINES = 5_000
_REMOVED = "only lines removed, which no reviewer examines"
_SUBMODULE = "a submodule, whose own changes are not shown; review it by itself"


@dataclass
class Tree:
    """The files of the source, and those left out: paths by reason and by whether programs may be missed."""

    root: Path
    paths: list[str]
    left_out: dict[tuple[str, bool], list[str]] = field(default_factory=dict)

    def leave_out(self, reason: str, path: str, *, missed: bool = False) -> None:
        """Record a path that is not reviewed; ``missed`` if it may hold programs."""
        self.left_out.setdefault((reason, missed), []).append(path)

    def keep_missed(self) -> None:
        """Keep only the entries that may be missed programs: the others cannot be part of a change."""
        self.left_out = {(reason, missed): paths for (reason, missed), paths in self.left_out.items() if missed}

    def hash(self, path: str) -> str:
        """Return git's hash of a file, also of a long one or a link; an empty text if it cannot be read."""
        full_path = self.root / path
        try:
            content = os.fsencode(os.readlink(full_path)) if full_path.is_symlink() else full_path.read_bytes()
        except OSError:
            return ""
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    def unread(self) -> tuple[Unread, ...]:
        """Return the files that were left out, by reason."""
        return tuple(
            Unread(reason=reason, count=len(paths), examples=tuple(paths[:5]), missed=missed)
            for (reason, missed), paths in sorted(self.left_out.items())
        )

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None if it is too long or not a regular file in the folder."""
        full_path = self.root / path
        try:
            if full_path.resolve() != full_path or not full_path.is_relative_to(self.root):
                return None
            with open_regular_file(full_path) as file:
                content = file.read(_MAX_FILE_BYTES + 1)
            return content if len(content) <= _MAX_FILE_BYTES else None
        except OSError:
            return None


def read_tree(root: Path) -> Tree:
    """List the files of a project."""
    top = root.resolve()
    if not top.is_dir() or not os.access(top, os.R_OK):
        raise CodeReviewError(f"the source {str(root)!r} does not exist or is not a folder; name the project's folder")
    tree = Tree(top, [])

    def leave_out(reason: str, path: str) -> None:
        tree.leave_out(reason, path, missed="UTF-8" in reason and _find_language(path, "") is not None)

    tree.paths = list_files(top, leave_out)[0]
    return tree


def snapshot_project(tree: Tree) -> Snapshot:
    """Return a snapshot of all programs of a project."""
    return _build_snapshot(tree, tree.paths, "", {}, lambda path, text: None)


def snapshot_changes(tree: Tree, base: str) -> Snapshot:
    """Return the programs that differ from the merge base of a commit and HEAD, uncommitted ones too."""
    commit = git(tree.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    if commit is None:
        raise CodeReviewError(f"the commit {base!r} does not exist in {str(tree.root)!r}; {_suggest_remedy(tree.root)}")
    start = (git(tree.root, "merge-base", commit.decode().strip(), "HEAD") or commit).decode().strip()
    blobs, submodules = _list_commit(tree.root, start)
    old_names = _find_renames(tree.root, start)
    old_texts: dict[str, str] = {}
    changed_paths = []
    tree.keep_missed()
    for path in tree.paths:
        blob = blobs.get(path) or blobs.get(old_names.get(path, ""))
        if blob != tree.hash(path):
            changed_paths.append(path)
            old_texts[path] = decode_text(git(tree.root, "cat-file", "blob", blob) or b"") if blob else ""
    for path in sorted({*blobs} - {*old_names.values()}):
        if not os.path.lexists(tree.root / path):
            tree.leave_out(_REMOVED, path, missed=True)
    for path, submodule_commit in _find_submodules(tree.root).items():
        if submodule_commit != submodules.get(path):
            tree.leave_out(_SUBMODULE, path, missed=True)
            changed_paths = [other for other in changed_paths if other != path]
    return _build_snapshot(
        tree,
        changed_paths,
        f"since {base} ({start[:12]})",
        {},
        lambda path, text: passages_between(old_texts[path], text),
    )


def snapshot_diff(tree: Tree, diff: str, name: str) -> Snapshot:
    """Return the programs that a diff changes, with the diff applied, and the changed lines."""
    try:
        parsed = PatchSet(diff.replace("\r\n", "\n"))
    except UnidiffParseError as error:
        raise CodeReviewError(f"the diff {name!r} cannot be reviewed: {error}") from None
    if not parsed:
        raise CodeReviewError(f"the diff {name!r} has no change; expected a unified diff, as `git diff` writes it")
    changes: dict[str, list[PatchedFile]] = {}
    for patched_file in parsed:
        if len(patched_file) or patched_file.is_binary_file:
            changes.setdefault(_read_path(patched_file), []).append(patched_file)
    tree.keep_missed()
    texts: dict[str, str] = {}
    changed: dict[str, Passages] = {}
    for path, patches in changes.items():
        if patches[-1].is_removed_file:
            tree.leave_out(_REMOVED, path, missed=True)
            continue
        added = "".join(line.value for patch in patches for hunk in patch for line in hunk if line.is_added)
        is_program = (
            _find_language(path, added) is not None
            or _find_language(path, decode_text(tree.read(path) or b"")) is not None
        )
        reason = _explain_unreadable(tree, path, patches)
        if reason or not is_program:
            tree.leave_out(reason or "not a program", path, missed=True)
            continue
        old, new = _read_both_versions(tree, path, patches, name)
        texts[path], changed[path] = new, passages_between(old, new)
    return _build_snapshot(tree, sorted(texts), f"by {name}", texts, lambda path, text: changed[path])


def read_diff(path: Path) -> str:
    """Return the text of a diff's file."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_DIFF_BYTES + 1)
    except OSError as error:
        raise CodeReviewError(f"the diff {str(path)!r} cannot be read ({error.strerror}); name a file") from error
    if len(content) > _MAX_DIFF_BYTES:
        raise CodeReviewError(f"the diff {str(path)!r} is larger than {_MAX_DIFF_BYTES:,} bytes; review it in parts")
    return content.decode("utf-8-sig", "replace")


def passages_between(old: str, new: str) -> Passages:
    """Return the new or changed lines of ``new``."""
    old_lines, new_lines = _split_lines(old), _split_lines(new)
    shorter = min(len(old_lines), len(new_lines))
    head = next((index for index in range(shorter) if old_lines[index] != new_lines[index]), shorter)
    tail = next(
        (index for index in range(shorter - head) if old_lines[-1 - index] != new_lines[-1 - index]), shorter - head
    )
    old_lines, new_lines = old_lines[head : len(old_lines) - tail], new_lines[head : len(new_lines) - tail]
    if max(len(old_lines), len(new_lines)) <= _MAX_COMPARED_LINES:
        codes = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_opcodes()
        changed = [number for tag, _, _, low, high in codes if tag != "equal" for number in range(low, high)]
    else:  # comparing takes quadratic time: take the lines that the old text does not contain
        old_set = {*old_lines}
        changed = [number for number, line in enumerate(new_lines) if line not in old_set]
    passages: list[tuple[int, int]] = []
    for number in (head + index + 1 for index in changed):
        first = passages.pop()[0] if passages and passages[-1][1] == number - 1 else number
        passages.append((first, number))
    return tuple(passages)


def _split_lines(text: str) -> list[str]:
    """Split a text into lines as git does."""
    return text.removesuffix("\n").split("\n") if text else []


def _build_snapshot(
    tree: Tree,
    paths: Iterable[str],
    compared_with: str,
    texts: Mapping[str, str],
    changed: Callable[[str, str], Passages | None],
) -> Snapshot:
    """Return the programs among the paths, within the limits, and the reasons for omissions."""
    files: list[SourceText] = []
    size = 0
    for path in paths:
        content = tree.read(path)
        text = texts[path] if path in texts else decode_text(content or b"")
        language = _find_language(path, text)
        if language is None:
            tree.leave_out("not a program", path, missed=bool(compared_with))
        elif _VENDORED.search(path):
            tree.leave_out("vendored or generated code", path, missed=bool(compared_with))
        elif path not in texts and (content is None or b"\0" in content):
            tree.leave_out("too large, binary or unreadable", path, missed=True)
        elif (passages := changed(path, text)) == ():
            tree.leave_out(_REMOVED, path, missed=True)
        elif (size := size + len(text)) > _MAX_CHARACTERS:
            tree.leave_out(f"over {_MAX_CHARACTERS:,} characters", path, missed=True)
        else:
            passages = None if language == "Python" and _hides_lines(text) else passages
            files.append(SourceText(path=path, language=language, text=text, changed=passages))
    return Snapshot(name=tree.root.name, compared_with=compared_with, files=tuple(files), unread=tree.unread())


def _find_language(path: str, text: str) -> str | None:
    language = language_of(path, text[:256].encode())
    return language[0] if language and language[1] == "programming" else None


def _hides_lines(text: str) -> bool:
    """Return whether Python may see other lines than a reader: in UTF-7 a comment can hold a program."""
    found = [match[1] for line in text.split("\n", 2)[:2] if (match := _ENCODING_DECLARATION.match(line))]
    return any(re.sub(r"[-_]", "", name.lower()) not in _PLAIN_ENCODINGS for name in found)


def _split_entries(raw: bytes | None) -> list[bytes]:
    return [part for part in (raw or b"").split(b"\0") if part]


def _suggest_remedy(root: Path) -> str:
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        return "it is not a git checkout, so leave 'base' out"
    if shallow.strip() == b"true":
        return "it is a shallow clone: get the rest with `git fetch --unshallow`, or name a commit that it has"
    return "name one of that checkout"


def _list_commit(root: Path, commit: str) -> tuple[dict[str, str], dict[str, str]]:
    prefix = (git(root, "rev-parse", "--show-prefix") or b"").decode().rstrip("\n")
    objects: dict[str, dict[str, str]] = {"blob": {}, "commit": {}}
    for entry in _split_entries(git(root, "ls-tree", "-r", "-z", "--full-tree", commit)):
        head, _, path = entry.decode("utf-8", "backslashreplace").partition("\t")
        _, kind, name = head.split(" ")
        if path.startswith(prefix):
            objects[kind][path.removeprefix(prefix)] = name
    return objects["blob"], objects["commit"]


def _find_renames(root: Path, commit: str) -> dict[str, str]:
    options = ("--cached", "--find-renames", "--diff-filter=R", "--name-status", "--relative", "-z")
    parts = [
        part.decode("utf-8", "backslashreplace") for part in _split_entries(git(root, "diff-index", *options, commit))
    ]
    return dict(zip(parts[2::3], parts[1::3], strict=False))


def _find_submodules(root: Path) -> dict[str, str]:
    commits = {}
    for entry in _split_entries(git(root, "ls-files", "-z", "--stage")):
        head, _, path = entry.decode("utf-8", "backslashreplace").partition("\t")
        if head.startswith("160000 "):
            head_commit = git(root / path, "rev-parse", "HEAD") if (root / path / ".git").exists() else None
            commits[path] = head_commit.decode().strip() if head_commit else head.split(" ")[1]
    return commits


def _read_path(patch: PatchedFile) -> str:
    """Return the path in a diff; git quotes paths that are not ASCII."""
    path = str(patch.path)
    if path.startswith('"'):
        quoted = path.strip('"').removeprefix("b/").removeprefix("a/").encode("latin-1", "replace")
        path = quoted.decode("unicode_escape").encode("latin-1", "replace").decode("utf-8", "replace")
    if path.startswith("/") or ".." in path.split("/"):
        raise CodeReviewError(f"the diff names {path!r}, which is not a path of the project")
    return path


def _explain_unreadable(tree: Tree, path: str, patches: list[PatchedFile]) -> str | None:
    """Return why the lines that a diff changes cannot be known, or None if they can."""
    if any(patch.is_binary_file for patch in patches):
        return "changed as a binary file, so the diff does not show how"
    lines = [line.value for patch in patches for hunk in patch for line in hunk]
    if lines and all(line.startswith("Subproject commit ") for line in lines):
        return _SUBMODULE
    content = tree.read(path)
    if content is None and (tree.root / path).exists():
        return "too large, binary or unreadable"
    without_crlf = (content or b"").replace(b"\r\n", b"")
    if b"\r" in without_crlf or any("\r" in line for line in lines):  # a line ends there for programs, but not for git
        return "a carriage return within a line, so the lines of the diff are not the program's"
    return None


def _read_both_versions(tree: Tree, path: str, patches: list[PatchedFile], name: str) -> tuple[str, str]:
    """Return a file's text before and after a diff, which may already be applied."""
    content = tree.read(path)
    current = "" if content is None else decode_text(content)
    before = current
    for patch in reversed(patches):
        reversed_text = _apply_patch(before, patch, backwards=True)
        if reversed_text is None:
            break
        before = reversed_text
    else:
        return before, current
    origin = patches[0].source_file.removeprefix("a/") if patches[0].is_rename else path
    source = tree.read(origin)
    after: str | None = "" if source is None else decode_text(source)
    old = after or ""
    for patch in patches:
        after = _apply_patch(after, patch, backwards=False) if after is not None else None
    if after is None:
        raise CodeReviewError(f"the diff {name!r} cannot be reviewed: it does not apply to {path!r}; create a new one")
    return old, after


def _apply_patch(text: str, patch: PatchedFile, *, backwards: bool) -> str | None:
    """Apply or revert a diff; return None if a line that it keeps or removes is missing."""
    lines, result, position = _split_lines(text), list[str](), 0
    for hunk in patch:
        sides = {
            sign: [line.value.rstrip("\n").removeprefix("\ufeff") for line in hunk if line.line_type in (" ", sign)]
            for sign in ("-", "+")
        }
        old, new = (sides["+"], sides["-"]) if backwards else (sides["-"], sides["+"])
        start = (hunk.target_start if backwards else hunk.source_start) - (1 if old else 0)
        if start < position or lines[start : start + len(old)] != old:
            return None
        result += [*lines[position:start], *new]
        position = start + len(old)
    result += lines[position:]
    return "".join(f"{line}\n" for line in result)
