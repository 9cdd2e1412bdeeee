"""One look at every file of a project: what it is, how long, its hash; and careful reading afterwards.

Each file is read once, within limits; what a limit leaves out is recorded, never silently dropped. No link
is followed, no pipe or device is opened, and nothing is ever written.
"""

import errno
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from activities.project_init.ignore import may_hold_secrets
from activities.project_init.listing import Omissions, Progress, files_of_checkout, list_with_git, walk
from activities.project_init.records import Listing, ProjectError, SourceFile

_MIB = 1024 * 1024
_BLOCK = 1 * _MIB
_LOOKED_AT_FOR_KIND = 8192
_EVERY = 250
_TEXT_BYTES = bytes(set(range(32, 256)) - {127} | {7, 8, 9, 10, 12, 13, 27})
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True)
class Limits:
    """How much of a project is looked at; beyond it, things are counted and named but not read.

    Attributes:
        files: Most files in the list; the least deep come first, so manifests always make it.
        entries: Most folder entries to look at while walking.
        text_bytes: Longest text whose content is analysed, in bytes.
        hash_bytes: Longest file that is hashed, in bytes.
        total_bytes: Most bytes read from all files together in one survey.
    """

    files: int = 50_000
    entries: int = 500_000
    text_bytes: int = 1 * _MIB
    hash_bytes: int = 32 * _MIB
    total_bytes: int = 1024 * _MIB


@dataclass(frozen=True)
class SourceTree:
    """A project's folder and the listing of it; texts are read on request, from the folder as it is now.

    The listing crosses process borders and holds no path of this machine; the root is given anew.
    """

    root: Path
    listing: Listing
    limits: Limits = Limits()

    @cached_property
    def by_path(self) -> dict[str, SourceFile]:
        """Every file under its path, in the listing's order."""
        return {file.path: file for file in self.listing.files}

    @cached_property
    def folders(self) -> frozenset[str]:
        """Every folder that holds a listed file, at any depth; the top is ""."""
        found = {""}
        for path in self.by_path:
            above = path.rpartition("/")[0]
            while above not in found:
                found.add(above)
                above = above.rpartition("/")[0]
        return frozenset(found)

    def named(self, *names: str) -> list[str]:
        """Return the paths whose file name is one of ``names``, least deep first."""
        wanted = set(names)
        return [path for path in self.by_path if path.rpartition("/")[2] in wanted]

    def text(self, path: str) -> str | None:
        """Return a listed text, with every line end as a newline.

        Args:
            path: A path of the listing.

        Returns:
            The text; None where the file is binary, too long, no longer readable, or where its name says
            that it holds secrets. Bytes that are not UTF-8 (or UTF-16 with a mark) become U+FFFD.
        """
        file = self.by_path.get(path)
        if file is None or file.kind != "text" or file.size > self.limits.text_bytes or may_hold_secrets(path):
            return None
        content = self.head(path, self.limits.text_bytes)
        return None if content is None else as_text(content)

    def head(self, path: str, most: int) -> bytes | None:
        """Return the first ``most`` bytes of a listed file; None where it cannot be read any more."""
        if path not in self.by_path:
            return None
        try:
            with _opened(self.root / path) as file:
                return file.read(most)
        except OSError:
            return None

    def anywhere(self, pattern: str) -> list[str]:
        """Return the paths that match a regular expression as a whole, in the listing's order."""
        compiled = re.compile(pattern)
        return [path for path in self.by_path if compiled.fullmatch(path)]


def as_text(content: bytes) -> str:
    """Return bytes as text: UTF-8 or marked UTF-16, every line end as a newline, faults as U+FFFD.

    Example:
        >>> as_text(bytes([97, 13, 10, 98, 255])).split()
        ['a', 'b�']
    """
    return decoded(content).replace("\r\n", "\n").replace("\r", "\n")


def decoded(content: bytes) -> str:
    """Return bytes as text, as `as_text` does, with their line ends as they are."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return content.decode(encoding, "replace")


def survey(root: Path, *, limits: Limits | None = None, progress: Progress | None = None) -> SourceTree:
    """List a project's files, with the hash, kind and length of each.

    Args:
        root: The project's folder. It is only read.
        limits: How much to look at.
        progress: Called every few hundred files; raising from it stops the survey.

    Returns:
        The tree. For the same folder and limits, the same listing.

    Raises:
        ProjectError: ``root`` is missing, is no folder, or cannot be read.
    """
    limits, report = limits or Limits(), progress or (lambda _: None)
    top = _checked_root(root)
    omissions = Omissions()
    tracked = list_with_git(top, omissions)
    if tracked is None:
        found = dict(walk(top, omissions, limits.entries, report))
    else:
        found = dict(files_of_checkout(top, tracked, omissions))
    ordered = sorted(found, key=lambda path: (path.count("/"), path))
    for path in ordered[limits.files :]:
        omissions.add(f"over the limit of {limits.files} files", path)
    files = _examine(top, {path: found[path] for path in ordered[: limits.files]}, limits, omissions, report)
    listing = Listing(
        name=_folder_name(top),
        method="walk" if tracked is None else "git",
        files=files,
        left_out=omissions.result(),
    )
    return SourceTree(top, listing, limits)


def _checked_root(root: Path) -> Path:
    try:
        top = root.resolve(strict=True)
        if not top.is_dir():
            raise ProjectError(f"{str(root)!r} is a file; name the folder that holds the project")
        os.scandir(top).close()
    except FileNotFoundError as error:
        raise ProjectError(f"{str(root)!r} does not exist; name the project's folder") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ProjectError(f"{str(root)!r} cannot be read ({error}); check its permissions") from error
    return top


def _folder_name(top: Path) -> str:
    return os.fsencode(top.name).decode("utf-8", "backslashreplace") or "root"


def _examine(
    top: Path, sizes: dict[str, int], limits: Limits, omissions: Omissions, report: Progress
) -> tuple[SourceFile, ...]:
    """Read each file once; where the total is limited, small files come first, so that texts are read."""
    affordable = _affordable(sizes, limits)
    files: list[SourceFile] = []
    for number, (path, size) in enumerate(sizes.items()):
        if number % _EVERY == 0:
            report(f"reading: {number} of {len(sizes)} files")
        file = SourceFile(path=path, size=size, kind="unread")
        if path not in affordable:
            limit = limits.hash_bytes if size > limits.hash_bytes else limits.total_bytes
            omissions.add(f"listed by size only: over the limit of {_in_words(limit)}", path)
        else:
            try:
                file = _read_once(top / path, path, limits.hash_bytes)
            except OSError as error:
                omissions.add(f"cannot be read ({error.strerror})", path)
        if file.kind == "text" and file.size > limits.text_bytes:
            omissions.add(f"content not analysed: text over {_in_words(limits.text_bytes)}", path)
        if may_hold_secrets(path):
            omissions.add("content not analysed: may hold secrets", path)
        files.append(file)
    return tuple(files)


def _affordable(sizes: dict[str, int], limits: Limits) -> set[str]:
    chosen: set[str] = set()
    budget = limits.total_bytes
    for path in sorted(sizes, key=lambda path: (sizes[path], path)):
        budget -= sizes[path]
        if budget < 0 or sizes[path] > limits.hash_bytes:
            break
        chosen.add(path)
    return chosen


def _opened(place: Path) -> BinaryIO:
    """Open a regular file; a link, pipe or device that took its place is refused, not waited for."""
    descriptor = os.open(place, _OPEN_FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _read_once(place: Path, path: str, most: int) -> SourceFile:
    digest = hashlib.sha256()
    size, line_ends, last, start = 0, 0, b"", b""
    with _opened(place) as file:
        while block := file.read(_BLOCK):
            start = start or block[:_LOOKED_AT_FOR_KIND]
            digest.update(block)
            size += len(block)
            line_ends += count_line_ends(block)
            last = block[-1:]
            if size > most:
                raise OSError(errno.EFBIG, "grew while it was read")
    if _is_binary(start):
        return SourceFile(path=path, size=size, kind="binary", sha256=digest.hexdigest())
    lines = line_ends + (1 if last not in (b"", b"\n", b"\r") else 0)
    return SourceFile(path=path, size=size, kind="text", lines=lines, sha256=digest.hexdigest())


def count_line_ends(content: bytes) -> int:
    r"""Return how many lines end in ``content``, by `\n`, `\r\n` or `\r`, as `as_text` reads them.

    Example:
        >>> count_line_ends(bytes([97, 13, 10, 98, 13, 99, 10]))
        3
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.count(b"\n")
    return content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")


def _is_binary(start: bytes) -> bool:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    controls = len(start.translate(None, _TEXT_BYTES))
    return b"\0" in start or controls * 10 > len(start)


def _in_words(size: int) -> str:
    return f"{size // _MIB} MiB" if size >= _MIB else f"{size} bytes"
