"""Which files belong to a project: asked of git in a checkout, else found by walking; links never followed.

Git runs with the user's configuration out of sight and with hooks and monitors off: a project's own
`.git/config` must not be able to start a program, and the answer must not depend on who asks.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from activities.project_init.ignore import IgnoreRules, skipped_folder
from activities.project_init.records import LeftOut
from activities.workbench.programs import environment_for

Progress = Callable[[str], None]
"""Called every few hundred files with a line on how far the work is; raising from it cancels the work."""

_GIT_SECONDS = 60
_EXAMPLES = 5
_UNMENTIONED = ("version control", "Baton's own output")
_IGNORE_FILE_BYTES = 256 * 1024


@dataclass
class Omissions:
    """Counts what is left out, by reason, and keeps the first few examples of each."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, path: str, count: int = 1) -> None:
        """Record that ``path`` was left out for ``reason``.

        Version control and Baton's own output are no part of any project, and are not mentioned: the
        first run could not mention an output folder that the second run finds.
        """
        if reason in _UNMENTIONED:
            return
        self.counts[reason] = self.counts.get(reason, 0) + count
        seen = self.examples.setdefault(reason, [])
        if len(seen) < _EXAMPLES:
            seen.append(path)

    def result(self) -> tuple[LeftOut, ...]:
        """Return everything recorded, sorted by reason."""
        return tuple(
            LeftOut(reason=reason, count=self.counts[reason], examples=tuple(self.examples[reason]))
            for reason in sorted(self.counts)
        )


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _run_git(root: Path, *arguments: str) -> bytes | None:
    program = shutil.which("git")
    if program is None:
        return None
    environment = environment_for(
        further={
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
    )
    safe = ["-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.excludesFile="]
    try:
        done = subprocess.run(
            [program, *safe, "-C", str(root), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def list_with_git(root: Path, omissions: Omissions) -> list[bytes] | None:
    """Return the paths that git counts as the project's (tracked, or untracked and not ignored), sorted.

    Args:
        root: Folder to list; it may be a folder inside a checkout.
        omissions: Takes what git ignores.

    Returns:
        Paths relative to ``root`` as raw bytes; None where git is missing, refuses, or where ``root`` is
        itself ignored by the checkout around it, so that the folder must be walked.
    """
    listed = _run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None or _run_git(root, "check-ignore", "-q", ".") is not None:
        return None
    ignored = _run_git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    for raw in sorted(filter(None, (ignored or b"").split(b"\0"))):
        name = _shown(raw).rstrip("/").rpartition("/")[2]
        omissions.add(skipped_folder(name, in_git=True) or "ignored by .gitignore", _shown(raw))
    return sorted({raw for raw in listed.split(b"\0") if raw})


class _Folders:
    """Remembers which folders are really inside the project, so that no path leads out through a link."""

    def __init__(self, root: Path, omissions: Omissions) -> None:
        self._root = root
        self._omissions = omissions
        self._verdicts: dict[str, bool] = {"": True}

    def usable(self, folder: str) -> bool:
        """Return whether ``folder`` and everything above it is a real folder that is not skipped."""
        known = self._verdicts.get(folder)
        if known is not None:
            return known
        here, verdict = "", True
        for name in folder.split("/"):
            here = f"{here}/{name}" if here else name
            if here not in self._verdicts:
                self._verdicts[here] = verdict and self._is_source(here, name)
            verdict = self._verdicts[here]
        return verdict

    def _is_source(self, folder: str, name: str) -> bool:
        place = self._root / folder
        try:
            is_folder = stat.S_ISDIR(place.lstat().st_mode)
            environment = ("pyvenv.cfg",) if is_folder and (place / "pyvenv.cfg").exists() else ()
        except OSError:
            return False
        if not is_folder:
            self._omissions.add("symbolic link, not followed", folder)
            return False
        reason = skipped_folder(name, environment, in_git=True)
        if reason is not None:
            self._omissions.add(reason, folder + "/")
        return reason is None


def files_of_checkout(root: Path, paths: list[bytes], omissions: Omissions) -> Iterator[tuple[str, int]]:
    """Yield path and size of each regular file among ``paths``, and record why the others are left out."""
    folders = _Folders(root, omissions)
    for raw in paths:
        try:
            path = raw.decode("utf-8")
        except UnicodeDecodeError:
            omissions.add("name is not UTF-8", _shown(raw))
            continue
        if path.endswith("/"):
            omissions.add("nested git repository", path)
            continue
        if not folders.usable(path.rpartition("/")[0]):
            continue
        size = _regular_size(root / path, path, omissions)
        if size is not None:
            yield path, size


def _regular_size(place: Path, path: str, omissions: Omissions) -> int | None:
    try:
        found = place.lstat()
    except OSError:
        omissions.add("tracked by git but missing", path)
        return None
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    if stat.S_ISLNK(found.st_mode):
        omissions.add("symbolic link, not followed", path)
    elif stat.S_ISDIR(found.st_mode):
        omissions.add("nested git repository", path + "/")
    else:
        omissions.add("not a regular file", path)
    return None


def walk(root: Path, omissions: Omissions, most: int, progress: Progress) -> Iterator[tuple[str, int]]:
    """Yield path and size of each file below ``root``, level by level, in a fixed order.

    Args:
        root: Folder to walk.
        omissions: Takes what is skipped, and why.
        most: Entries to look at before the walk stops.
        progress: Called for each folder level.
    """
    level: list[tuple[str, IgnoreRules]] = [("", IgnoreRules())]
    looked_at = 0
    while level:
        progress(f"listing: {looked_at} entries")
        below: list[tuple[str, IgnoreRules]] = []
        for folder, rules in level:
            if looked_at > most:
                omissions.add(f"over the limit of {most} entries", folder + "/")
                continue
            entries = _entries(root, folder, omissions)
            looked_at += len(entries)
            if looked_at % 1000 < len(entries):
                progress(f"listing: {looked_at} entries")
            names = {entry.name for entry in entries}
            reason = skipped_folder(folder.rpartition("/")[2], names, in_git=False) if folder else None
            if reason is not None:
                omissions.add(reason, folder + "/")
                continue
            if ".gitignore" in names:
                rules = rules.extended(folder, _ignore_text(root / folder / ".gitignore"))
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                yield from _visit(entry, path, rules, below, omissions)
        level = below


def _entries(root: Path, folder: str, omissions: Omissions) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(root / folder) as found:
            return sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        omissions.add(f"folder cannot be read ({error.strerror})", folder + "/")
        return []


def _ignore_text(place: Path) -> str:
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            return ""
        with place.open("rb") as file:
            return file.read(_IGNORE_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _visit(
    entry: "os.DirEntry[str]",
    path: str,
    rules: IgnoreRules,
    below: list[tuple[str, IgnoreRules]],
    omissions: Omissions,
) -> Iterator[tuple[str, int]]:
    """Yield the entry if it is a file of the project; add it to ``below`` if it is a folder to enter."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        omissions.add("name is not UTF-8", _shown(os.fsencode(path)))
        return
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.is_symlink():
            omissions.add("symbolic link, not followed", path)
        elif is_folder and (reason := skipped_folder(entry.name, in_git=True)) is not None:
            omissions.add(reason, path + "/")
        elif rules.ignores(path, is_folder=is_folder):
            omissions.add("ignored by .gitignore", path + ("/" if is_folder else ""))
        elif is_folder:
            below.append((path, rules))
        elif entry.is_file(follow_symlinks=False):
            yield path, entry.stat(follow_symlinks=False).st_size
        else:
            omissions.add("not a regular file", path)
    except OSError as error:
        omissions.add(f"cannot be examined ({error.strerror})", path)
