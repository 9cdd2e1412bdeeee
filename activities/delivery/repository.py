"""The repository under work: commits are made in a git directory of our own, which borrows the repository's objects.

Nothing of the repository's configuration is in force there: no hook, filter, monitor or alias of it can start. The
repository itself gets the branch in one step, when it has been approved, and is not touched before.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from unidiff import PatchSet
from unidiff.patch import Line

from activities.delivery.records import DeliveryError
from activities.delivery.sandbox import Ran, environment_for, remove_folder, run_program
from baton.errors import BatonError

_SECONDS, _MOST_BYTES = 120.0, 64_000_000
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "core.excludesFile": os.devnull,
    "core.attributesFile": os.devnull,
    "gc.auto": "0",
    "safe.directory": "*",
    "protocol.allow": "never",
}
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",  # what older versions know in place of protocol.allow
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_DIFF = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/")


class GitError(BatonError):
    """Git failed; the message has what it printed."""


@dataclass(frozen=True)
class FileDiff:
    """What a change does to one file."""

    path: str
    status: str  # A added, D deleted, M modified, T of another type
    added: tuple[tuple[int, str], ...] = ()
    removed: tuple[str, ...] = ()
    binary: bool = False


class Checkout:
    """The files of a commit in a folder of their own; what is written to `home` and `tmp` is in no commit."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.home, self.tmp = folder / "tree", folder / "home", folder / "tmp"
        self.index = folder / "index"


@dataclass(frozen=True)
class Repository:
    """A repository and the git directory in which one task works."""

    folder: Path
    common: Path  # the repository's git directory
    own: Path  # the task's, inside of it: any worker that reaches the repository finds it again

    @classmethod
    async def of(cls, folder: Path, task_id: str) -> "Repository":
        """Return the repository that a folder is a checkout of."""
        if not await asyncio.to_thread(folder.is_dir):
            raise DeliveryError(f"{str(folder)!r} is not a folder; name a git repository with --param repository=DIR")
        asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
        try:
            top, common = (Path(line) for line in (await git(folder, *asked)).output.decode().splitlines())
        except GitError as error:
            raise DeliveryError(f"{str(folder)!r} is not a checkout of a git repository ({error}); name one") from None
        return cls(top, common, common / "baton" / f"{task_id}.git")

    async def commit_of(self, name: str) -> str | None:
        """Return the full id of a commit, or None if it does not exist."""
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        ran = await git(self.folder, *asked, check=False)
        return ran.output.decode().strip() if ran.code == 0 else None

    async def open(self) -> None:
        """Make the task's git directory if it does not exist."""
        if await asyncio.to_thread((self.own / "objects" / "info" / "alternates").exists):
            return
        form = (await git(self.folder, "rev-parse", "--show-object-format")).output.decode().strip()
        try:
            await asyncio.to_thread(self.own.parent.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise DeliveryError(
                f"{str(self.own.parent)!r} cannot be made ({error.strerror}); let the worker write there"
            ) from None
        init = ("init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(self.own))
        await git(self.common, *init)
        await asyncio.to_thread(self._borrow)

    def _borrow(self) -> None:
        shallow = self.common / "shallow"
        if shallow.exists():
            (self.own / "shallow").write_bytes(shallow.read_bytes())
        (self.own / "objects" / "info").mkdir(exist_ok=True)
        (self.own / "objects" / "info" / "alternates").write_text(f"{self.common / 'objects'}\n", encoding="utf-8")

    async def run(
        self, *arguments: str, checkout: Checkout | None = None, check: bool = True, stdin: bytes = b""
    ) -> Ran:
        """Run git in the task's git directory, on the files of a checkout if one is given."""
        place = {"GIT_DIR": str(self.own)}
        if checkout is not None:
            place |= {"GIT_WORK_TREE": str(checkout.tree), "GIT_INDEX_FILE": str(checkout.index)}
        folder = self.own if checkout is None else checkout.tree
        return await git(folder, *arguments, check=check, stdin=stdin, further=place)

    @asynccontextmanager
    async def checkout(self, commit: str) -> AsyncIterator[Checkout]:
        """Provide the files of a commit in a temporary folder, which is removed afterwards."""
        top = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="baton-delivery-"))
        checkout = Checkout(top)
        try:
            for place in (checkout.tree, checkout.home, checkout.tmp):
                await asyncio.to_thread(place.mkdir)
            await self.open()
            await self.run("read-tree", commit, checkout=checkout)
            await self.run("checkout-index", "--all", "--force", "--index", checkout=checkout)
            yield checkout
        finally:
            await asyncio.shield(asyncio.to_thread(remove_folder, top))

    async def commit(self, checkout: Checkout, parent: str, message: str, when: datetime) -> str:
        """Commit the files of a checkout."""
        others = (await self.run("ls-files", "-z", "--others", "--exclude-standard", checkout=checkout)).output
        if inner := [path for path in others.decode("utf-8", "replace").split("\0") if path.endswith("/")]:
            raise DeliveryError(
                f"{message}: the change leaves a repository of its own in {', '.join(map(repr, inner[:5]))}; git "
                "would commit none of its files, so let the change remove the .git in there"
            )
        await self.run("add", "--all", checkout=checkout)
        tree = (await self.run("write-tree", checkout=checkout)).output.decode().strip()
        if tree == (await self.run("rev-parse", f"{parent}^{{tree}}")).output.decode().strip():
            raise DeliveryError(f"{message}: that changes nothing in {str(self.folder)!r}; there is nothing to offer")
        who = {"NAME": "Baton", "EMAIL": "baton@localhost", "DATE": f"{when.timestamp():.0f} +0000"}
        identity = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in who.items()}
        further = {"GIT_DIR": str(self.own), **identity}
        made = await git(
            self.own, "commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode(), further=further
        )
        return made.output.decode().strip()

    async def text(self, commit: str, path: str) -> str | None:
        """Return a file of a commit as text; None if it is not there or not text."""
        ran = await git(self.folder, "cat-file", "blob", f"{commit}:{path}", check=False, further=self._with_own())
        try:
            return ran.output.decode("utf-8-sig") if ran.code == 0 else None
        except UnicodeDecodeError:
            return None

    async def paths(self, commit: str) -> list[str]:
        """Return the paths of a commit's files."""
        listed = await git(self.folder, "ls-tree", "-r", "-z", "--name-only", commit, further=self._with_own())
        return [path for path in listed.output.decode("utf-8", "backslashreplace").split("\0") if path]

    def _with_own(self) -> dict[str, str]:
        """Return what lets git in the repository read the task's commits too, if there are any yet."""
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.own / "objects")}

    async def diff(self, base: str, commit: str) -> str:
        """Return the unified diff between two commits."""
        return (await self.run("diff", *_DIFF, "--find-renames", base, commit)).output.decode("utf-8", "replace")

    async def changes(self, base: str, commit: str) -> list[FileDiff]:
        """Return the difference between two commits by file; a renamed file is a deleted and an added one."""
        listed = (await self.run("diff", *_DIFF, "--no-renames", "--name-status", "-z", base, commit)).output
        fields = iter(listed.decode("utf-8", "backslashreplace").split("\0")[:-1])
        # `--text` shows lines also of files that attributes call binary; a real binary has a NUL in its first lines.
        shown = await self.run("diff", *_DIFF, "--no-renames", "--text", "--unified=0", base, commit)
        sections = iter(shown.output.decode("utf-8", "replace").split("\ndiff --git "))
        found = []
        for status, path in zip(fields, fields, strict=True):
            parts = [next(sections) for _ in range(2 if status == "T" else 1)]  # removed as one type, added as another
            lines = [line for part in parts for line in _lines(part)]
            added = tuple((line.target_line_no or 0, line.value.rstrip("\n")) for line in lines if line.is_added)
            removed = tuple(line.value.rstrip("\n") for line in lines if line.is_removed)
            found.append(FileDiff(path, status, added, removed, any("\0" in line.value for line in lines[:100])))
        return found

    async def offer(self, branch: str, base: str, commit: str) -> None:
        """Make the branch in the repository, with the commits since the base. Offering it again has no effect."""
        if await self.commit_of(f"refs/heads/{branch}") == commit:
            return
        revisions = f"{commit}\n^{base}\n".encode()
        packed = await self.run("pack-objects", "--revs", "--stdout", "--quiet", stdin=revisions)
        await git(self.common, "unpack-objects", "-q", stdin=packed.output)
        made = await git(
            self.common, "update-ref", "--stdin", stdin=f"create refs/heads/{branch} {commit}\n".encode(), check=False
        )
        if made.code != 0:
            raise DeliveryError(taken(branch, made))

    async def close(self) -> None:
        """Remove the task's git directory."""
        await asyncio.to_thread(remove_folder, self.own)
        await asyncio.to_thread(_remove_if_empty, self.own.parent)


def _lines(section: str) -> list[Line]:
    """Return the lines of one file's part of a diff; names in its header are not read, for `d b/x` looks like two."""
    _, begins, hunks = section.partition("\n@@ ")
    return [line for one in PatchSet(f"--- a\n+++ b{begins}{hunks}") for hunk in one for line in hunk]


def size(diffs: Sequence[FileDiff]) -> str:
    """Return the size of a change in words."""
    added, removed = sum(len(one.added) for one in diffs), sum(len(one.removed) for one in diffs)
    return f"{len(diffs):,} file{'s' if len(diffs) != 1 else ''}, +{added} -{removed}"


def taken(branch: str, ran: Ran | None = None) -> str:
    """Return why a branch cannot be made."""
    why = f" ({_said(ran)})" if ran else ""
    remedy = "there is one of that name, or one in its way; name another with --param branch=NAME"
    return f"the branch {branch!r} cannot be made{why}: {remedy}"


async def git(
    folder: Path, *arguments: str, check: bool = True, stdin: bytes = b"", further: dict[str, str] | None = None
) -> Ran:
    """Run git with nothing of anybody's configuration that could start a program."""
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    environment = environment_for(further={**_ENVIRONMENT, **(further or {})})
    command = ["git", *settings, *arguments]
    ran = await run_program(
        command, folder=folder, seconds=_SECONDS, environment=environment, stdin=stdin, most_bytes=_MOST_BYTES
    )
    if ran.code is None or ran.dropped:
        what = f"took longer than {_SECONDS:g} s" if ran.code is None else f"printed more than {_MOST_BYTES:,} bytes"
        raise GitError(f"git {arguments[0]} {what} in {str(folder)!r}; try a smaller repository or change")
    if check and ran.code != 0:
        raise GitError(f"git {arguments[0]} failed in {str(folder)!r}: {_said(ran)}")
    return ran


def _said(ran: Ran) -> str:
    """Return the most telling lines of what git printed."""
    lines = [line.strip() for line in ran.errors.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("error:", "fatal:"))] or lines
    return "; ".join(telling[:3])[:500] or f"exit code {ran.code}"


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
