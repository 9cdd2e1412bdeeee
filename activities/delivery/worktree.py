"""The branch under work, in a worktree of its own: the user's working copy is never touched.

Branch and a reference `refs/baton/<task>`, which says whose it is, are made in one transaction. Every operation may
be repeated after a crash: what is there already is taken as it is, what is half done is done anew.
"""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from activities.delivery.records import DeliveryError, Plan
from activities.workbench.git import Git, GitError, paths_of, said
from activities.workbench.programs import make_writable, remove_tree
from baton.devserver.processes import ChildLock
from baton.errors import BatonError, ServerError

_IDENTITY = ["-c", "user.name=Baton", "-c", "user.email=baton@localhost"]
_STEP = "Baton-Step"
_MOST_NAMED = 5
_PATIENCE = 60.0  # seconds; a stage that was canceled learns of it within ten, and kills what it runs two later


class BusyError(BatonError):
    """Another stage of the same delivery is still at work in the worktree; another attempt may help."""


@dataclass(frozen=True)
class Worktree:
    """The place where one delivery works.

    Attributes:
        plan: What is to be done.
        task_id: The task, whose the branch is.
        git: Git in the worktree.
        main: Git in the repository.
    """

    plan: Plan
    task_id: str
    git: Git
    main: Git

    @classmethod
    def of(cls, plan: Plan, task_id: str) -> "Worktree":
        """Return the worktree of a task, whether it is there or not; its place follows from both."""
        key = hashlib.sha256(f"{plan.repository}\0{task_id}".encode()).hexdigest()[:16]
        # Each user has a place of their own, for nobody else may write there.
        folder = Path(tempfile.gettempdir()) / f"baton-delivery-{os.getuid()}" / key
        # What a project's tests do to the worktree's `.git` must not make git reset a repository around it.
        return cls(plan, task_id, Git(folder, is_top=True), Git(plan.folder))

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.git.folder

    @property
    def aside(self) -> Path:
        """Where the tests of the base run."""
        return self.folder.with_name(f"{self.folder.name}-base")

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the worktree to one stage at a time.

        A stage that was canceled, or that a roll-back left, works on until its worker is told, seconds later: it
        would write again what another stage takes away meanwhile.

        Raises:
            BusyError: Another stage does not end.
        """
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = await ChildLock.take(self._lock, _PATIENCE)
        except ServerError:
            raise BusyError(f"another stage of this delivery is still at work in {str(self.folder)!r}") from None
        with lock:
            yield

    async def open(self) -> None:
        """Make branch and worktree, if they are not there; leave the worktree as the branch is.

        Raises:
            DeliveryError: The branch belongs to somebody else.
            GitError: Git fails, or may not write into the repository.
        """
        plan = self.plan
        if await self.main.commit_of(self._mark) is None:
            orders = f"create refs/heads/{plan.branch} {plan.base}\ncreate {self._mark} {plan.base}\n"
            made = await self.main.ask("update-ref", "--stdin", given=orders.encode())
            # Git says so of both: "reference already exists", "'refs/heads/a' exists; cannot create 'refs/heads/a/b'".
            if made.code != 0 and b" exists" not in made.errors.replace(b"File exists", b""):
                raise GitError(f"the branch {plan.branch!r} cannot be made in {plan.repository!r}: {said(made)}")
            if made.code != 0:
                raise DeliveryError(
                    f"the branch {plan.branch!r} cannot be made in {plan.repository!r}: there is one of that name, or "
                    "one that is in its way; name another with --param branch=NAME"
                )
        if not await asyncio.to_thread((self.folder / ".git").exists):
            await asyncio.to_thread(self._clear)
            await self.main.run("worktree", "add", "--quiet", "--force", str(self.folder), plan.branch)
        await self.reset()

    async def reset(self) -> str:
        """Throw away whatever a command left in the worktree, and return the branch's commit.

        Raises:
            GitError: Git fails.
        """
        lock = Path(await self.git.line("rev-parse", "--path-format=absolute", "--git-path", "index.lock"))
        await asyncio.to_thread(lock.unlink, missing_ok=True)  # of a git that was killed; the worktree is ours alone
        await self.git.run("symbolic-ref", "HEAD", f"refs/heads/{self.plan.branch}")
        await self.git.run("reset", "--quiet", "--hard")
        if (await self.git.ask("clean", "--quiet", "-ffdx")).code != 0:
            await asyncio.to_thread(make_writable, self.folder)
            await self.git.run("clean", "--quiet", "-ffdx")
        return await self.git.line("rev-parse", "HEAD")

    async def done(self, step: str) -> str | None:
        """Return the branch's commit if it is that of a step, and None otherwise.

        Raises:
            GitError: Git fails.
        """
        head = await self.reset()
        mark = await self.git.line("log", "-1", f"--format=%(trailers:key={_STEP},valueonly)")
        return head if mark == f"{self.task_id}/{step}" else None

    async def commit(self, step: str, title: str, change: Callable[[], Awaitable[None]]) -> str:
        """Make a change and commit it, once: a step that has its commit already is not done again.

        Args:
            step: Names the step in the task; it is kept in the commit's message.
            title: The first line of the message.
            change: Changes the files.

        Returns:
            The commit.

        Raises:
            DeliveryError: The change changes nothing, or leaves a repository of its own in the worktree.
            GitError: Git fails.
        """
        done = await self.done(step)
        if done is not None:
            return done
        before = await self.reset()
        await change()
        await self.git.run("symbolic-ref", "HEAD", f"refs/heads/{self.plan.branch}")
        await self.git.run("reset", "--quiet", "--soft", before)  # a command that committed by itself has one commit
        if inner := await self._inner_repositories(before):
            named = ", ".join(repr(path) for path in inner[:_MOST_NAMED]) + (", …" if inner[_MOST_NAMED:] else "")
            raise DeliveryError(
                f"{title}: that leaves a repository of its own in {named}, of which git keeps no file; let the change "
                "take away the .git in there before it adds anything, or add it as a submodule (`git submodule add`)"
            )
        await self.git.run("add", "--all")
        if (await self.git.ask("diff", "--cached", "--quiet", "--no-ext-diff", before)).code == 0:
            raise DeliveryError(f"{title}: that changes nothing in {self.plan.repository!r}; there is nothing to offer")
        message = f"{title}\n\n{_STEP}: {self.task_id}/{step}\n"
        await self.git.run(*_IDENTITY, "commit", "--quiet", "--no-verify", "--file=-", given=message.encode())
        return await self.git.line("rev-parse", "HEAD")

    async def _inner_repositories(self, before: str) -> list[str]:
        """Return the folders that git would commit as a mere link to another repository's commit.

        A link that was in the commit before, and a submodule that `.gitmodules` tells of, are as they should be.
        """
        others = paths_of(await self.git.run("ls-files", "-z", "--others", "--exclude-standard"))
        found = {path.rstrip("/") for path in others if path.endswith("/")}  # git does not look into a repository
        # A command that added by itself has them in the index already: `:000000 160000 … A`, and then the path.
        added = paths_of(await self.git.run("diff", "--cached", "--raw", "-z", "--no-renames", "--no-ext-diff", before))
        links = {path for what, path in pairwise(added) if what.startswith(":") and what.split()[1] == "160000"}
        links -= {path for what, path in pairwise(added) if what.startswith(":160000")}
        told = await self.git.ask("config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
        return sorted((found | links) - {entry.partition("\n")[2] for entry in paths_of(told.output)})

    async def diff(self) -> str:
        """Return what the branch changes, as a unified diff, also of texts that attributes hide (`-diff`).

        Raises:
            GitError: Git fails.
        """
        options = (
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--submodule=short",
            "--find-renames",
            "--src-prefix=a/",
            "--dst-prefix=b/",
        )
        # Without a working copy git reads no attributes; from 2.43 on it does so in a tree, unless there is none.
        bare = Git(Path(await self.main.line("rev-parse", "--path-format=absolute", "--git-common-dir")))
        blind = ("--bare", "-c", "attr.tree=refs/baton/none")
        changed = await bare.run(*blind, "diff", *options, self.plan.base, f"refs/heads/{self.plan.branch}")
        return changed.decode("utf-8", "replace")

    async def head(self) -> str | None:
        """Return the branch's commit; None where the branch is gone."""
        return await self.main.commit_of(f"refs/heads/{self.plan.branch}")

    async def close(self, *, keep_branch: bool) -> bool:
        """Take the worktree away, and the branch too unless it is to be kept; what is gone already is gone.

        A branch that is not this task's stays, and so does one to which somebody else has committed.

        Returns:
            Whether there is such a branch afterwards.

        Raises:
            GitError: Git fails.
        """
        for folder in (self.folder, self.aside):  # the second is there where a worker was lost that tested the base
            await remove_worktree(self.main, folder)
        await asyncio.to_thread(self._lock.unlink, missing_ok=True)
        head = await self.head()
        if await self.main.commit_of(self._mark) is None:
            return head is not None
        orders = f"delete {self._mark}\n"
        drop = head is not None and not keep_branch and await self._is_ours_alone()
        if drop:
            orders += f"delete refs/heads/{self.plan.branch} {head}\n"
        await self.main.run("update-ref", "--stdin", given=orders.encode())
        return head is not None and not drop

    async def back_to(self, commit: str) -> bool:
        """Take the branch back to its base, or to a commit it came by, where all after that is this task's.

        Args:
            commit: The commit, after which a roll-back of the pipeline left others.

        Returns:
            Whether the branch is there now.

        Raises:
            GitError: Git fails.
        """
        head = await self.head()
        if head is None or head == commit:
            return head == commit
        is_base = commit == self.plan.base
        came_by = (await self.main.ask("merge-base", "--is-ancestor", commit, head)).code == 0
        is_ours = await self.main.commit_of(self._mark) is not None and await self._is_ours_alone()
        if not (is_base or came_by) or not is_ours:
            return False
        orders = f"update refs/heads/{self.plan.branch} {commit} {head}\n"
        if is_base:  # which is another one if the work was planned anew
            orders += f"update {self._mark} {commit}\n"
        await self.main.run("update-ref", "--stdin", given=orders.encode())
        return True

    async def made_in(self, step: str) -> str | None:
        """Return the branch's newest commit of a step, whichever run of the pipeline made it; None without one.

        Raises:
            GitError: Git fails.
        """
        name = f"{self.task_id}/{step}/"
        return next((commit for commit, mark in await self._commits() if f"{mark}/".startswith(name)), None)

    async def _is_ours_alone(self) -> bool:
        """Return whether every commit since the base was made by this task."""
        return all(mark.startswith(f"{self.task_id}/") for _, mark in await self._commits())

    async def _commits(self) -> list[tuple[str, str]]:
        """Return the branch's commits since it was made, the newest first, each with the step that it tells of."""
        marks = f"--format=%H %(trailers:key={_STEP},valueonly,separator=%x20)"
        log = await self.main.line("log", marks, f"{self._mark}..refs/heads/{self.plan.branch}")
        return [(commit, mark) for commit, _, mark in (line.partition(" ") for line in log.splitlines())]

    @property
    def _mark(self) -> str:
        return f"refs/baton/{self.task_id}"

    @property
    def _lock(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.lock")

    def _clear(self) -> None:
        """Take away what is left of the folder."""
        remove_tree(self.folder)
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


async def remove_worktree(git: Git, folder: Path) -> None:
    """Take a worktree away, if it is there, and what git remembers of it, whatever is there.

    Of no other: pruning would forget those that are not mounted now, and those of another worker.
    """
    await asyncio.to_thread(remove_tree, folder)
    await git.ask("worktree", "remove", "--force", "--force", str(folder))


async def repository_of(folder: Path) -> Git:
    """Return git in a repository's top folder.

    Raises:
        DeliveryError: It is no git repository, or one without a working copy.
    """
    if not await asyncio.to_thread(folder.is_dir):
        raise DeliveryError(f"{str(folder)!r} is no folder; name a git repository with --param repository=DIR")
    try:
        return Git(Path(await Git(folder).line("rev-parse", "--show-toplevel")))
    except GitError as error:
        raise DeliveryError(f"{str(folder)!r} is no checkout of a git repository ({error}); name one") from None
