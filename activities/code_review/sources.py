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

from activities.code_review.records import CodeReviewError, Passages, Snapshot, SourceText, Unread
from activities.source_files import as_text, git, language_of, list_files, opened

_OTHERS = re.compile(
    r"(^|/)(vendor|third_party|_vendor|node_modules|site-packages)/|_pb2(_grpc)?\.pyi?$|\.min\.js$|\.pb\.go$|_generated\.\w+$"
)
_CODED = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
_PLAIN = bytes(range(128)).replace(b"\\", rb"\n\u000a+AAo-.xn--a-ecp")
"""Only an encoding that hides nothing leaves it as it is."""
_LONGEST_FILE = 1024 * 1024
_MOST_CHARACTERS = 32_000_000
_LONGEST_DIFF = 16_000_000
_MOST_COMPARED = 5_000  # lines
_SUBMODULE = "a submodule, whose own changes are not shown; review it by itself"


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
        place = self.root / path
        try:
            if place.resolve() != place or not place.is_relative_to(self.root):
                return None
            with opened(place) as file:
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
    blobs, links = _contents(tree.root, start)
    moved = _moved(tree.root, start)
    before: dict[str, str] = {}
    touched = []
    tree.keep_missed()
    for path in tree.paths:
        content = tree.read(path) or b""
        blob = blobs.get(path) or blobs.get(moved.get(path, ""))
        if blob != hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest():
            touched.append(path)
            before[path] = as_text(git(tree.root, "cat-file", "blob", blob) or b"") if blob else ""
    for path, at in _submodules(tree.root).items():
        if at != links.get(path):
            tree.leave_out(_SUBMODULE, path, missed=True)
            touched = [each for each in touched if each != path]
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
    changes: dict[str, list[PatchedFile]] = {}
    for one in parsed:
        if len(one) or one.is_binary_file:
            changes.setdefault(_path(one), []).append(one)
    tree.keep_missed()
    texts: dict[str, str] = {}
    changed: dict[str, Passages] = {}
    for path, patches in changes.items():
        if patches[-1].is_removed_file:
            continue
        added = "".join(line.value for patch in patches for hunk in patch for line in hunk if line.is_added)
        is_program = _language(path, added) is not None or _language(path, as_text(tree.read(path) or b"")) is not None
        why = _why_unseen(tree, path, patches)
        if why or not is_program:
            tree.leave_out(why or "not a program", path, missed=why == _SUBMODULE or is_program)
            continue
        old, new = _both_sides(tree, path, patches, name)
        texts[path], changed[path] = new, passages_between(old, new)
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
    passages: list[tuple[int, int]] = []
    for number in (head + at + 1 for at in changed):
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
            passages = None if language == "Python" and _hides_lines(text) else passages
            files.append(SourceText(path=path, language=language, text=text, changed=passages))
    return Snapshot(name=tree.root.name, compared_with=compared_with, files=tuple(files), unread=tree.unread())


def _language(path: str, text: str) -> str | None:
    """Return the programming language of a file, or None."""
    found = language_of(path, text[:256].encode())
    return found[0] if found and found[1] == "programming" else None


def _hides_lines(text: str) -> bool:
    """Return whether Python may read other lines than everybody else, by the encoding that the text declares.

    With `coding: utf-7` a comment can hold the end of its line and a program after it.
    """
    named = next((found[1] for line in text.split("\n", 2)[:2] if (found := _CODED.match(line))), "utf-8")
    try:
        return _PLAIN.decode(named) != _PLAIN.decode()
    except ValueError:
        return True
    except LookupError:  # Python refuses the file
        return False


def _parts(raw: bytes | None) -> list[bytes]:
    return [part for part in (raw or b"").split(b"\0") if part]


def _remedy(root: Path) -> str:
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        return "it is not a git checkout, so leave 'base' out"
    if shallow.strip() == b"true":
        return "it is a shallow clone: get the rest with `git fetch --unshallow`, or name a commit that it has"
    return "name one of that checkout"


def _contents(root: Path, commit: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the blobs of a commit and the commits of its submodules, by path from the folder."""
    prefix = (git(root, "rev-parse", "--show-prefix") or b"").decode().rstrip("\n")
    found: dict[str, dict[str, str]] = {"blob": {}, "commit": {}}
    for entry in _parts(git(root, "ls-tree", "-r", "-z", "--full-tree", commit)):
        head, _, path = entry.decode("utf-8", "backslashreplace").partition("\t")
        _, kind, name = head.split(" ")
        if path.startswith(prefix):
            found[kind][path.removeprefix(prefix)] = name
    return found["blob"], found["commit"]


def _moved(root: Path, commit: str) -> dict[str, str]:
    """Return the names that renamed files had in a commit, by their names now."""
    options = ("--cached", "--find-renames", "--diff-filter=R", "--name-status", "--relative", "-z")
    parts = [part.decode("utf-8", "backslashreplace") for part in _parts(git(root, "diff-index", *options, commit))]
    return dict(zip(parts[2::3], parts[1::3], strict=False))


def _submodules(root: Path) -> dict[str, str]:
    """Return the commits at which submodules are, by path."""
    found = {}
    for entry in _parts(git(root, "ls-files", "-z", "--stage")):
        head, _, path = entry.decode("utf-8", "backslashreplace").partition("\t")
        if head.startswith("160000 "):
            own = git(root / path, "rev-parse", "HEAD") if (root / path / ".git").exists() else None
            found[path] = own.decode().strip() if own else head.split(" ")[1]
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


def _why_unseen(tree: Tree, path: str, patches: list[PatchedFile]) -> str | None:
    """Return why it is unknown which lines a diff changes; None if it is known."""
    if any(patch.is_binary_file for patch in patches):
        return "changed as a binary file, so the diff does not show how"
    lines = [line.value for patch in patches for hunk in patch for line in hunk]
    if lines and all(line.startswith("Subproject commit ") for line in lines):
        return _SUBMODULE
    content = tree.read(path)
    if content is None and (tree.root / path).exists():
        return "too large, binary or unreadable"
    here = (content or b"").replace(b"\r\n", b"")
    if b"\r" in here or any("\r" in line for line in lines):  # programs end a line there, and git does not
        return "a carriage return within a line, so the lines of the diff are not the program's"
    return None


def _both_sides(tree: Tree, path: str, patches: list[PatchedFile], name: str) -> tuple[str, str]:
    """Return a file's text before and after a diff, which may be applied already."""
    content = tree.read(path)
    now = "" if content is None else as_text(content)
    before = now
    for patch in reversed(patches):
        reversed_text = _applied(before, patch, backwards=True)
        if reversed_text is None:
            break
        before = reversed_text
    else:
        return before, now
    origin = patches[0].source_file.removeprefix("a/") if patches[0].is_rename else path
    source = tree.read(origin)
    after: str | None = "" if source is None else as_text(source)
    old = after or ""
    for patch in patches:
        after = _applied(after, patch, backwards=False) if after is not None else None
    if after is None:
        raise CodeReviewError(
            f"the diff {name!r} cannot be reviewed: it does not fit {path!r}; make a new one from that text"
        )
    return old, after


def _applied(text: str, patch: PatchedFile, *, backwards: bool) -> str | None:
    """Return a text with a diff applied or taken back; None if a line that it keeps or removes is not there."""
    lines, done, at = _lines(text), list[str](), 0
    for hunk in patch:
        sides = {
            sign: [line.value.rstrip("\n").removeprefix("\ufeff") for line in hunk if line.line_type in (" ", sign)]
            for sign in ("-", "+")
        }
        old, new = (sides["+"], sides["-"]) if backwards else (sides["-"], sides["+"])
        start = (hunk.target_start if backwards else hunk.source_start) - (1 if old else 0)
        if start < at or lines[start : start + len(old)] != old:
            return None
        done += [*lines[at:start], *new]
        at = start + len(old)
    done += lines[at:]
    return "".join(f"{line}\n" for line in done)
