"""The branch under work: made once, worked on beside the user, and taken away whatever happened in between."""

import os
from pathlib import Path
from typing import Any

import pytest

from activities.delivery.changes import make_change
from activities.delivery.records import Change, DeliveryError, Order, Plan
from activities.delivery.stages import implement_change, offer_branch, plan_change, withdraw_branch
from activities.delivery.stages import test_change as run_the_tests
from activities.delivery.testing import run_tests_on_base
from activities.delivery.worktree import Worktree
from activities.workbench.diffs import parse_diff
from activities.workbench.git import GitError
from baton import Baton, StageContext
from baton.artifacts.store import MemoryArtifactStore
from tests.unit.code_review.material import git, write
from tests.unit.delivery.material import ADD, FIX, TEST, at, project, state

COMMIT = "git -c user.name=x -c user.email=x@x commit -qm mine"
"""A commit that a command makes by itself."""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository, and keep the worktrees in the test's own folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return project(tmp_path / "project")


def worktree(repo: Path, task: str = "t-1", **order: Any) -> Worktree:
    """Return the worktree of a task that applies the fix."""
    asked = Order.of({"repository": str(repo), "patch": FIX, "test": [*TEST], **order})
    base = git(repo, "rev-parse", "HEAD").strip()
    changes = (Change(patch=FIX),)
    plan = Plan(
        repository=str(repo),
        base=base,
        branch="b/x",
        changes=changes,
        test=tuple(TEST),
        test_origin="named",
        order=asked,
    )
    return Worktree.of(plan, task)


class TestWorktree:
    """One delivery's place to work."""

    async def test_commits_a_step_once(self, repo: Path) -> None:
        """A run of the stage after the one that was lost finds the commit, and changes nothing again."""
        tree = worktree(repo)
        done: list[int] = []

        async def change() -> None:
            done.append(1)
            await make_change(tree, tree.plan.changes[0])

        await tree.open()
        first = await tree.commit("round-1", "Fix", change)
        await tree.open()
        assert await tree.commit("round-1", "Fix", change) == first
        assert done == [1]

    async def test_starts_anew_from_what_a_crash_left(self, repo: Path) -> None:
        """Half a change, a lock of a git that was killed, a file nobody committed: none of it is in the commit."""
        tree = worktree(repo)
        await tree.open()
        (tree.folder / "app/sums.py").write_text("half a ch")
        (tree.folder / "rubbish.py").write_text("x")
        lock = git(tree.folder, "rev-parse", "--path-format=absolute", "--git-path", "index.lock").strip()
        write(Path(lock).parent, {"index.lock": ""})
        await tree.commit("round-1", "Fix", lambda: make_change(tree, tree.plan.changes[0]))
        assert at(repo, "b/x", "app/sums.py") == ADD.replace("one - two", "one + two")
        assert "rubbish.py" not in git(repo, "ls-tree", "-r", "--name-only", "b/x")

    async def test_finds_its_work_on_another_worker(self, repo: Path) -> None:
        """The folder is gone, the branch is not: the worktree is made again from it."""
        tree = worktree(repo)
        await tree.open()
        commit = await tree.commit("round-1", "Fix", lambda: make_change(tree, tree.plan.changes[0]))
        tree._clear()
        again = worktree(repo)
        await again.open()
        assert await again.done("round-1") == commit

    async def test_resets_no_repository_around_it(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tests took `.git` away, and the folder for temporary files is in the user's own checkout."""
        monkeypatch.setattr("tempfile.tempdir", str(repo))
        tree = worktree(repo)
        await tree.open()
        before = git(repo, "diff")
        (tree.folder / ".git").unlink()
        with pytest.raises(GitError, match="not a git repository"):
            await tree.reset()
        assert git(repo, "diff") == before
        assert git(repo, "symbolic-ref", "HEAD").strip() == "refs/heads/main"

    def test_has_a_place_for_each_user(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where one user's worker works, another's may not write."""
        mine = worktree(repo).folder
        monkeypatch.setattr("os.getuid", lambda: 4711)
        assert worktree(repo).folder.parent != mine.parent

    async def test_leaves_no_worktree_of_the_base(self, repo: Path) -> None:
        """A worker was lost while it tested the base, and the next one had no need to."""
        before = state(repo)
        tree = worktree(repo)
        await tree.open()
        git(repo, "worktree", "add", "--quiet", "--detach", str(tree.aside), "HEAD")
        await tree.close(keep_branch=False)
        assert state(repo) == before
        assert not tree.aside.exists()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
    async def test_takes_away_what_nobody_may_write_in(self, repo: Path) -> None:
        """As Go keeps modules: neither cleaning after the tests nor the end of the delivery fails on it."""
        tree = worktree(repo)
        await tree.open()
        for again in (True, False):
            inner = write(tree.folder / "pkg" / "mod", {"a.go": "x"})
            inner.chmod(0o555)
            await (tree.reset() if again else tree.close(keep_branch=False))
            assert not inner.exists()
        assert not tree.folder.exists()

    async def test_goes_back_over_commits_of_its_own_alone(self, repo: Path) -> None:
        """A round that a roll-back left is taken back; what somebody else committed stays."""
        tree = worktree(repo)
        await tree.open()
        first = await tree.commit("round-1/a", "Fix", lambda: make_change(tree, tree.plan.changes[0]))
        await tree.commit("round-2/a", "More", lambda: make_change(tree, Change(command=("touch", "more"))))
        assert await tree.made_in("round-1") == first
        assert await tree.back_to(first)
        assert git(repo, "rev-parse", "b/x").strip() == first
        theirs = git(repo, "commit-tree", "b/x^{tree}", "-p", "b/x", "-m", "mine").strip()
        git(repo, "update-ref", "refs/heads/b/x", theirs)
        assert not await tree.back_to(first)
        assert git(repo, "rev-parse", "b/x").strip() == theirs

    async def test_takes_a_command_that_commits_by_itself(self, repo: Path) -> None:
        """What it committed is in the step's one commit."""
        tree = worktree(repo)
        await tree.open()
        line = (
            "sed -i s/Sums/Adds/ app/sums.py && git -c user.name=x -c user.email=x@x commit -qam mine && touch new.txt"
        )
        await tree.commit("round-1", "Both", lambda: make_change(tree, Change(command=("sh", "-c", line))))
        assert git(repo, "log", "--format=%an %s", "HEAD..b/x").splitlines() == ["Baton Both"]
        assert git(repo, "diff", "--name-only", "HEAD", "b/x").splitlines() == ["app/sums.py", "new.txt"]

    @pytest.mark.parametrize(
        "line",
        [
            "git init -q inner && echo 1 > inner/a.txt",
            f"git init -q inner && echo 1 > inner/a.txt && cd inner && git add . && {COMMIT}",
            f"git init -q inner && echo 1 > inner/a.txt && cd inner && git add . && {COMMIT} && cd .. "
            f"&& git add . && {COMMIT}",
        ],
        ids=["without a commit", "with one", "committed by the command"],
    )
    async def test_refuses_a_repository_in_the_worktree(self, repo: Path, line: str) -> None:
        """Git would keep a link to a commit that nobody has, and none of its files; it is named instead."""
        tree = worktree(repo)
        await tree.open()
        with pytest.raises(DeliveryError, match=r"repository of its own in 'inner', of which .* take away the \.git"):
            await tree.commit("round-1", "Add", lambda: make_change(tree, Change(command=("sh", "-c", line))))
        await tree.open()
        assert not (tree.folder / "inner").exists()
        taken = Change(command=("sh", "-c", f"{line}; rm -rf '{tree.folder}/inner/.git'"))
        if "cd .." not in line:
            await tree.commit("round-1", "Add", lambda: make_change(tree, taken))
            assert at(repo, "b/x", "inner/a.txt") == "1\n"

    async def test_takes_a_submodule(self, repo: Path, tmp_path: Path) -> None:
        """One that `.gitmodules` tells of is a link on purpose, and may be moved to another commit later."""
        other = project(tmp_path / "other")
        git(other, "branch", "next", git(other, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "next").strip())
        tree = worktree(repo)
        await tree.open()
        add = f"git -c protocol.file.allow=always submodule --quiet add '{other}' lib/other"
        await tree.commit("round-1", "Add", lambda: make_change(tree, Change(command=("sh", "-c", add))))
        assert git(repo, "ls-tree", "b/x", "lib/other").startswith("160000 commit")
        move = f"cd lib/other && git checkout -q {git(other, 'rev-parse', 'next').strip()}"
        await tree.commit("round-2", "Move", lambda: make_change(tree, Change(command=("sh", "-c", move))))
        assert git(other, "rev-parse", "next").strip() in git(repo, "ls-tree", "b/x", "lib/other")

    async def test_runs_no_hook_of_the_repository(self, repo: Path) -> None:
        """Neither making the worktree nor committing starts one."""
        for name in ("post-checkout", "pre-commit", "commit-msg", "reference-transaction"):
            hook = repo / ".git" / "hooks" / name
            hook.write_text(f"#!/bin/sh\ntouch {repo.parent}/sprung\n")
            hook.chmod(0o755)
        tree = worktree(repo)
        await tree.open()
        await tree.commit("round-1", "Fix", lambda: make_change(tree, tree.plan.changes[0]))
        await tree.close(keep_branch=False)
        assert not (repo.parent / "sprung").exists()

    async def test_leaves_everything_as_it_was(self, repo: Path) -> None:
        """Also when it is closed twice, or was never opened."""
        before = state(repo)
        tree = worktree(repo)
        await tree.close(keep_branch=False)
        await tree.open()
        await tree.commit("round-1", "Fix", lambda: make_change(tree, tree.plan.changes[0]))
        assert await tree.close(keep_branch=False) is False
        assert await tree.close(keep_branch=False) is False
        assert state(repo) == before
        assert not tree.folder.exists()

    async def test_forgets_no_worktree_of_others(
        self, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One on a disk that is not mounted now, or of another worker's folder, can be used again afterwards."""
        mine, away, others = tmp_path / "mine", tmp_path / "away", tmp_path / "other-worker"
        git(repo, "worktree", "add", "-b", "mine", str(mine))
        mine.rename(away)
        here = worktree(repo)
        await here.open()
        await run_tests_on_base(here.plan, tmp_path / "on-base")
        monkeypatch.setattr("tempfile.tempdir", str(others))
        there = worktree(repo)
        await there.open()
        await there.close(keep_branch=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert git(here.folder, "rev-parse", "--is-inside-work-tree").strip() == "true"
        await here.close(keep_branch=False)
        away.rename(mine)
        assert git(mine, "rev-parse", "--abbrev-ref", "HEAD").strip() == "mine"
        assert git(repo, "worktree", "list").count("\n") == 2

    async def test_does_not_take_a_branch_of_somebody_else(self, repo: Path) -> None:
        """It is refused when work begins, and stays when the delivery is withdrawn."""
        git(repo, "branch", "b/x")
        tree = worktree(repo)
        with pytest.raises(DeliveryError, match="there is one of that name"):
            await tree.open()
        assert await tree.close(keep_branch=False) is True
        assert git(repo, "branch", "--list", "b/x").strip() == "b/x"

    @pytest.mark.parametrize(("taken", "message"), [("b", "in its way"), ("b/x.lock", "File exists")])
    async def test_says_why_no_branch_can_be_made(self, repo: Path, taken: str, message: str) -> None:
        """Only where a branch is in the way is another name of use."""
        if taken == "b":
            git(repo, "branch", taken)
        else:
            write(repo / ".git" / "refs" / "heads", {taken: ""})
        with pytest.raises((DeliveryError, GitError), match=message) as raised:
            await worktree(repo).open()
        assert isinstance(raised.value, DeliveryError if taken == "b" else GitError)

    async def test_reads_a_submodules_move_whatever_the_repository_shows(self, repo: Path, tmp_path: Path) -> None:
        """`diff.submodule` makes lines of it that are no diff."""
        git(repo, "config", "diff.submodule", "log")
        other = project(tmp_path / "other")
        tree = worktree(repo)
        await tree.open()
        add = f"git -c protocol.file.allow=always submodule --quiet add '{other}' lib/other"
        await tree.commit("round-1", "Add", lambda: make_change(tree, Change(command=("sh", "-c", add))))
        assert "lib/other" in [one.path for one in parse_diff(await tree.diff())]

    async def test_reads_texts_that_attributes_hide(self, repo: Path) -> None:
        """With `-diff` a text went for a binary file, in which no review finds anything."""
        write(repo, {".gitattributes": "*.py -diff\n"})
        git(repo, "add", ".gitattributes")
        tree = worktree(repo)
        await tree.open()
        await tree.commit("round-1", "Fix", lambda: make_change(tree, Change(patch=FIX)))
        [diff] = parse_diff(await tree.diff())
        assert (diff.binary, [text for _, text in diff.added]) == (False, ["    return one + two"])

    async def test_keeps_commits_of_somebody_else(self, repo: Path) -> None:
        """A branch that was committed to by another hand is not deleted with theirs."""
        tree = worktree(repo)
        await tree.open()
        tip = git(repo, "commit-tree", "b/x^{tree}", "-p", "b/x", "-m", "mine").strip()
        git(repo, "update-ref", "refs/heads/b/x", tip)
        assert await tree.close(keep_branch=False) is True
        assert git(repo, "rev-parse", "b/x").strip() == tip


class TestStages:
    """The stages as the functions they are, each run twice as after a lost worker."""

    async def test_may_be_repeated(self, repo: Path) -> None:
        """What a stage did is found and not done again (activity retries)."""
        store = MemoryArtifactStore()
        params: dict[str, Any] = {"repository": str(repo), "patch": FIX, "test": [*TEST], "branch": "b/x"}
        context = StageContext.for_test(Baton(goal="Fix"), params=params, artifacts=store)
        await plan_change(context)
        handed = Baton(goal="Fix", artifacts=context.artifacts.written)

        def again(**params: Any) -> StageContext[Baton]:
            return StageContext.for_test(handed, params=params, artifacts=store)

        outputs: list[Any] = [(await implement_change(again(round=1))).output for _ in range(2)]
        assert outputs[0] == outputs[1]
        offers: list[Any] = [(await offer_branch(again(commit=outputs[0]["commit"]))).output for _ in range(2)]
        assert offers[0] == offers[1]
        assert git(repo, "rev-list", "--count", "HEAD..b/x").strip() == "1"

    async def test_tests_only_what_the_implementer_made(self, repo: Path) -> None:
        """A branch that somebody moved between two stages is not tested in its place."""
        store = MemoryArtifactStore()
        params: dict[str, Any] = {"repository": str(repo), "patch": FIX, "test": [*TEST], "branch": "b/x"}
        context = StageContext.for_test(Baton(goal="Fix"), params=params, artifacts=store)
        await plan_change(context)
        handed = Baton(goal="Fix", artifacts=context.artifacts.written)
        made: Any = (await implement_change(StageContext.for_test(handed, params={"round": 1}, artifacts=store))).output
        git(repo, "update-ref", "refs/heads/b/x", "HEAD")
        moved = StageContext.for_test(handed, params={"round": 1, "commit": made["commit"]}, artifacts=store)
        with pytest.raises(DeliveryError, match="which the implementer made; somebody moved it"):
            await run_the_tests(moved)

    async def test_does_not_say_that_a_branch_of_somebody_else_is_withdrawn(self, repo: Path) -> None:
        """Whoever named a branch that is there reads that it stays."""
        store = MemoryArtifactStore()
        params: dict[str, Any] = {"repository": str(repo), "patch": FIX, "test": [*TEST], "branch": "mine"}
        git(repo, "branch", "mine")
        context = StageContext.for_test(Baton(goal="Fix"), params=params, artifacts=store)
        await plan_change(context)
        handed = Baton(goal="Fix", artifacts=context.artifacts.written)
        told: Any = await withdraw_branch(StageContext.for_test(handed, params={"why": "it is there"}, artifacts=store))
        assert told.baton_patch.current_state[:2] == [
            "Branch mine stays as it is, for it is not this delivery's alone; nothing is offered",
            "Why: it is there",
        ]
        assert git(repo, "branch", "--list", "mine").strip() == "mine"

    async def test_withdraws_twice(self, repo: Path) -> None:
        """The second time there is nothing left to do."""
        store = MemoryArtifactStore()
        params: dict[str, Any] = {"repository": str(repo), "patch": FIX, "test": [*TEST]}
        context = StageContext.for_test(Baton(goal="Fix"), params=params, artifacts=store)
        await plan_change(context)
        handed = Baton(goal="Fix", artifacts=context.artifacts.written)
        before = state(repo)
        await implement_change(StageContext.for_test(handed, params={"round": 1}, artifacts=store))
        for _ in range(2):
            await withdraw_branch(StageContext.for_test(handed, params={"why": "no"}, artifacts=store))
            assert state(repo) == before
