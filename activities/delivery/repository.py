"""The repository: commits are made in a git directory of their own, without the repository's configuration."""

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
from activities.delivery.sandbox import environment_for, remove_folder
from activities.programs import ProgramResult, run_program
from activities.source_files import GIT_ENVIRONMENT
from baton.errors import BatonError

_TIMEOUT_SECONDS, _MAX_OUTPUT_BYTES = 120.0, 64_000_000
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
_ENVIRONMENT = {**GIT_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": "", "GIT_TERMINAL_PROMPT": "0"}
_DIFF_OPTIONS = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)


class GitError(BatonError):
    """Git failed; the message has its error output."""


@dataclass(frozen=True)
class FileDiff:
    """The change of one file."""

    path: str
    status: str  # A added, D deleted, M modified, T type changed
    added: tuple[tuple[int, str], ...] = ()
    removed: tuple[str, ...] = ()
    binary: bool = False


class Checkout:
    """The files of a commit in a temporary folder; files in `home` and `tmp` are never committed."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.home, self.tmp = folder / "tree", folder / "home", folder / "tmp"
        self.index = folder / "index"


@dataclass(frozen=True)
class Repository:
    """A repository, and the git directory of one task."""

    folder: Path
    common: Path  # the repository's git directory
    own: Path  # the task's git directory, inside `common`, so that any worker with the repository finds it

    @classmethod
    async def of(cls, folder: Path, task_id: str) -> "Repository":
        """Return the repository of a checkout."""
        if not await asyncio.to_thread(folder.is_dir):
            raise DeliveryError(f"{str(folder)!r} is not a folder; name a git repository with --param repository=DIR")
        arguments = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
        try:
            top, common = (Path(line) for line in (await git(folder, *arguments)).output.decode().splitlines())
        except GitError as error:
            raise DeliveryError(f"{str(folder)!r} is not a checkout of a git repository ({error}); name one") from None
        return cls(top, common, common / "baton" / f"{task_id}.git")

    async def commit_of(self, name: str) -> str | None:
        """Return the full id of a commit, or None if it does not exist."""
        arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        result = await git(self.folder, *arguments, check=False)
        return result.output.decode().strip() if result.code == 0 else None

    async def open(self) -> None:
        """Create the task's git directory if it does not exist."""
        if await asyncio.to_thread((self.own / "objects" / "info" / "alternates").exists):
            return
        object_format = (await git(self.folder, "rev-parse", "--show-object-format")).output.decode().strip()
        try:
            await asyncio.to_thread(self.own.parent.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise DeliveryError(
                f"{str(self.own.parent)!r} cannot be created ({error.strerror}); let the worker write there"
            ) from None
        init = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(self.own))
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
    ) -> ProgramResult:
        """Run git in the task's git directory, optionally on a checkout."""
        variables = {"GIT_DIR": str(self.own)}
        if checkout is not None:
            variables |= {"GIT_WORK_TREE": str(checkout.tree), "GIT_INDEX_FILE": str(checkout.index)}
        folder = self.own if checkout is None else checkout.tree
        return await git(folder, *arguments, check=check, stdin=stdin, variables=variables)

    @asynccontextmanager
    async def checkout(self, commit: str) -> AsyncIterator[Checkout]:
        """Check a commit out into a temporary folder."""
        top = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="baton-delivery-"))
        checkout = Checkout(top)
        try:
            for folder in (checkout.tree, checkout.home, checkout.tmp):
                await asyncio.to_thread(folder.mkdir)
            await self.open()
            await self.run("read-tree", commit, checkout=checkout)
            await self.run("checkout-index", "--all", "--force", "--index", checkout=checkout)
            yield checkout
        finally:
            await asyncio.shield(asyncio.to_thread(remove_folder, top))

    async def commit(self, checkout: Checkout, parent: str, message: str, when: datetime) -> str:
        """Commit the files of a checkout."""
        untracked = (await self.run("ls-files", "-z", "--others", "--exclude-standard", checkout=checkout)).output
        if nested := [path for path in untracked.decode("utf-8", "replace").split("\0") if path.endswith("/")]:
            raise DeliveryError(
                f"{message}: the change leaves a repository of its own in {', '.join(map(repr, nested[:5]))}; git "
                "would commit none of its files, so let the change remove the .git in there"
            )
        await self.run("add", "--all", checkout=checkout)
        tree = (await self.run("write-tree", checkout=checkout)).output.decode().strip()
        if tree == (await self.run("rev-parse", f"{parent}^{{tree}}")).output.decode().strip():
            raise DeliveryError(f"{message}: that changes nothing in {str(self.folder)!r}; there is nothing to offer")
        person = {"NAME": "Baton", "EMAIL": "baton@localhost", "DATE": f"{when.timestamp():.0f} +0000"}
        identity = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in person.items()}
        variables = {"GIT_DIR": str(self.own), **identity}
        result = await git(
            self.own, "commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode(), variables=variables
        )
        return result.output.decode().strip()

    async def text(self, commit: str, path: str) -> str | None:
        """Return a file of a commit as text, or None if it is missing or not text."""
        result = await git(self.folder, "cat-file", "blob", f"{commit}:{path}", check=False, variables=self._with_own())
        try:
            return result.output.decode("utf-8-sig") if result.code == 0 else None
        except UnicodeDecodeError:
            return None

    async def paths(self, commit: str) -> list[str]:
        """Return the paths of a commit's files."""
        listed = await git(self.folder, "ls-tree", "-r", "-z", "--name-only", commit, variables=self._with_own())
        return [path for path in listed.output.decode("utf-8", "backslashreplace").split("\0") if path]

    def _with_own(self) -> dict[str, str]:
        """Return the variable that makes the task's commits readable in the repository."""
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.own / "objects")}

    async def diff(self, base: str, commit: str) -> str:
        """Return the unified diff between two commits."""
        return (await self.run("diff", *_DIFF_OPTIONS, "--find-renames", base, commit)).output.decode(
            "utf-8", "replace"
        )

    async def changes(self, base: str, commit: str) -> list[FileDiff]:
        """Return the changes between two commits by file; a rename is a deletion and an addition."""
        listed = (await self.run("diff", *_DIFF_OPTIONS, "--no-renames", "--name-status", "-z", base, commit)).output
        fields = iter(listed.decode("utf-8", "backslashreplace").split("\0")[:-1])
        # `--text` also shows files that attributes mark as binary; a real binary has a NUL in its first lines.
        content = await self.run("diff", *_DIFF_OPTIONS, "--no-renames", "--text", "--unified=0", base, commit)
        sections = iter(content.output.decode("utf-8", "replace").split("\ndiff --git "))
        diffs = []
        for status, path in zip(fields, fields, strict=True):
            parts = [next(sections) for _ in range(2 if status == "T" else 1)]  # a deletion and an addition
            lines = [line for part in parts for line in _parse_lines(part)]
            added = tuple((line.target_line_no or 0, line.value.rstrip("\n")) for line in lines if line.is_added)
            removed = tuple(line.value.rstrip("\n") for line in lines if line.is_removed)
            diffs.append(FileDiff(path, status, added, removed, any("\0" in line.value for line in lines[:100])))
        return diffs

    async def offer(self, branch: str, base: str, commit: str) -> None:
        """Create the branch in the repository, with the commits since the base. Repeating it has no effect."""
        if await self.commit_of(f"refs/heads/{branch}") == commit:
            return
        revisions = f"{commit}\n^{base}\n".encode()
        pack = await self.run("pack-objects", "--revs", "--stdout", "--quiet", stdin=revisions)
        await git(self.common, "unpack-objects", "-q", stdin=pack.output)
        result = await git(
            self.common, "update-ref", "--stdin", stdin=f"create refs/heads/{branch} {commit}\n".encode(), check=False
        )
        if result.code != 0:
            raise DeliveryError(explain_refused_branch(branch, result))

    async def close(self) -> None:
        """Remove the task's git directory."""
        await asyncio.to_thread(remove_folder, self.own)
        await asyncio.to_thread(_remove_if_empty, self.own.parent)


def _parse_lines(section: str) -> list[Line]:
    """Return the lines of one file's section of a diff; the header is skipped, because its names are ambiguous."""
    _, separator, hunks = section.partition("\n@@ ")
    return [line for file in PatchSet(f"--- a\n+++ b{separator}{hunks}") for hunk in file for line in hunk]


def size(diffs: Sequence[FileDiff]) -> str:
    """Return the size of a change as text."""
    added, removed = sum(len(diff.added) for diff in diffs), sum(len(diff.removed) for diff in diffs)
    return f"{len(diffs):,} file{'s' if len(diffs) != 1 else ''}, +{added} -{removed}"


def explain_refused_branch(branch: str, result: ProgramResult | None = None) -> str:
    """Return the error message for a branch that cannot be created."""
    cause = f" ({_summarise_errors(result)})" if result else ""
    remedy = "its name exists or conflicts with another; choose one with --param branch=NAME"
    return f"the branch {branch!r} cannot be created{cause}: {remedy}"


async def git(
    folder: Path, *arguments: str, check: bool = True, stdin: bytes = b"", variables: dict[str, str] | None = None
) -> ProgramResult:
    """Run git without any configuration that could start a program."""
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    environment = environment_for(extra={**_ENVIRONMENT, **(variables or {})})
    command = ["git", *settings, *arguments]
    result = await run_program(
        command,
        folder=folder,
        seconds=_TIMEOUT_SECONDS,
        environment=environment,
        stdin=stdin,
        max_bytes=_MAX_OUTPUT_BYTES,
    )
    if result.code is None or result.dropped:
        problem = (
            f"took longer than {_TIMEOUT_SECONDS:g} s"
            if result.code is None
            else f"printed more than {_MAX_OUTPUT_BYTES:,} bytes"
        )
        raise GitError(f"git {arguments[0]} {problem} in {str(folder)!r}; try a smaller repository or change")
    if check and result.code != 0:
        raise GitError(f"git {arguments[0]} failed in {str(folder)!r}: {_summarise_errors(result)}")
    return result


def _summarise_errors(result: ProgramResult) -> str:
    lines = [line.strip() for line in result.errors.decode("utf-8", "replace").splitlines() if line.strip()]
    error_lines = [line for line in lines if line.startswith(("error:", "fatal:"))] or lines
    return "; ".join(error_lines[:3])[:500] or f"exit code {result.code}"


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
