"""Changes and test runs in a real worktree: exactly what was ordered, or an error that says why not."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from activities.delivery.changes import environment_of, make_change, read_patch
from activities.delivery.records import Change, DeliveryError, Order, Plan, TestRun
from activities.delivery.testing import find_test_command, run_tests, run_tests_on_base
from activities.delivery.worktree import Worktree
from tests.unit.code_review.material import git, repository, write
from tests.unit.delivery.material import FILES, FIX, TEST


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository, and keep the worktrees in the test's own folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return repository(tmp_path / "project", {**FILES, "app/more.py": "A = 1\nB = 1\n", "logo.bin": "\0\1"})


async def opened(repo: Path, **order: Any) -> Worktree:
    """Return an open worktree of an order."""
    asked = Order.of({"repository": str(repo), "test": [*TEST], **order})
    base = git(repo, "rev-parse", "HEAD").strip()
    members: dict[str, Any] = {"base": base, "branch": "b/x", "changes": asked.all_changes, "test": asked.test or ()}
    tree = Worktree.of(Plan(repository=str(repo), test_origin="named", order=asked, **members), "t-1")
    await tree.open()
    return tree


class TestMakeChange:
    """Diffs, edits and commands."""

    async def test_replaces_a_text_wherever_it_stands(self, repo: Path) -> None:
        """In every tracked file that the pattern means, and in no other."""
        tree = await opened(repo, edits=[{"path": "app/**/*.py", "find": "= 1", "replace": "= 2"}])
        await make_change(tree, tree.plan.changes[0])
        assert git(tree.folder, "diff", "--name-only").splitlines() == ["app/more.py"]
        assert (tree.folder / "app/more.py").read_text() == "A = 2\nB = 2\n"

    async def test_keeps_the_line_ends_of_windows(self, repo: Path) -> None:
        """Texts of several lines were not found there, and what replaced one ended its lines in another way."""
        (repo / "app/more.py").write_bytes(b"A = 1\r\nB = 1\r\n")
        git(repo, "commit", "-qam", "Windows")
        tree = await opened(repo, edits=[{"path": "app/more.py", "find": "= 1\nB", "replace": "= 2\n\nB"}])
        await make_change(tree, tree.plan.changes[0])
        assert (tree.folder / "app/more.py").read_bytes() == b"A = 2\r\n\r\nB = 1\r\n"

    async def test_writes_a_new_file(self, repo: Path) -> None:
        """An edit that finds nothing because there is nothing yet."""
        tree = await opened(repo, edits=[{"path": "docs/a/new.md", "replace": "new\n"}])
        await make_change(tree, tree.plan.changes[0])
        assert (tree.folder / "docs/a/new.md").read_text() == "new\n"

    async def test_commits_a_new_file_that_the_project_ignores(self, repo: Path) -> None:
        """It was ordered by name, so the commit has it; what a pattern of git's would mean is not meant."""
        write(repo, {".gitignore": "build/\n", "build/keep.txt": "mine\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "ignore")
        edits = [
            {"path": "app/more.py", "find": "= 1", "replace": "= 2"},
            {"path": "build/[a]?.py", "replace": "new\n"},
        ]
        tree = await opened(repo, edits=edits)
        await tree.commit("round-1", "Both", partial(make_change, tree, tree.plan.changes[0]))
        assert git(tree.folder, "show", "--format=", "--name-only", "HEAD").splitlines() == [
            "app/more.py",
            "build/[a]?.py",
        ]

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            pytest.param({"path": "app/*.py", "find": "nowhere", "replace": ""}, "finds its text 0 times", id="none"),
            pytest.param(
                {"path": "app/*.py", "find": "= 1", "replace": "", "expect": 1},
                "2 times, and must find it 1",
                id="more",
            ),
            pytest.param({"path": "../x", "replace": "x"}, "no place in the repository", id="a way out"),
            pytest.param({"path": "/tmp/x", "replace": "x"}, "no place in the repository", id="an absolute path"),
            pytest.param({"path": ".git/hooks/x", "replace": "x"}, "no place in the repository", id="git's own"),
            pytest.param({"path": "out/x", "replace": "x"}, "is there already", id="through a link"),
            pytest.param({"path": "nowhere", "replace": "x"}, "is there already", id="through a link to nowhere"),
            pytest.param({"path": "app/more.py", "replace": "x"}, "is there already", id="over a file"),
            pytest.param({"path": "app/more.py/x", "replace": "x"}, "cannot write", id="below a file"),
        ],
    )
    async def test_refuses_an_edit_that_is_not_exactly_so(self, repo: Path, edit: dict[str, Any], message: str) -> None:
        """No text is guessed, nothing outside the worktree is written."""
        os.symlink(repo.parent, repo / "out")
        os.symlink(repo.parent / "x", repo / "nowhere")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "link")
        tree = await opened(repo, edits=[edit])
        with pytest.raises(DeliveryError, match=message):
            await make_change(tree, tree.plan.changes[0])
        assert not (repo.parent / "x").exists()

    async def test_shows_a_command_no_key_of_the_worker(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only variables that were named are handed on."""
        monkeypatch.setenv("BATON_KEYS", "secret")
        monkeypatch.setenv("PROJECT_MODE", "fast")
        tree = await opened(repo, command="env > seen.txt", environment=["PROJECT_MODE"])
        await make_change(tree, tree.plan.changes[0])
        seen = (tree.folder / "seen.txt").read_text()
        assert "PROJECT_MODE=fast" in seen
        assert "secret" not in seen

    def test_reads_a_diff_from_its_file(self, tmp_path: Path) -> None:
        """Or takes it as it is."""
        (tmp_path / "fix.diff").write_text(FIX)
        assert read_patch(str(tmp_path / "fix.diff")) == read_patch(FIX) == FIX

    @pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
    def test_changes_no_byte_of_a_diff_silently(self, tmp_path: Path, encoding: str) -> None:
        """A diff that is not UTF-8 cannot be handed on to the letter, so it is refused, with the way to apply it."""
        diff = tmp_path / "fix.diff"
        diff.write_bytes("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+é\n".encode(encoding))
        with pytest.raises(DeliveryError, match=r"is not UTF-8.* --param command='git apply "):
            read_patch(str(diff))

    def test_prefers_the_repositorys_own_environment(self, repo: Path) -> None:
        """Its virtual environment comes first on the path, and Python imports from the worktree."""
        (repo / ".venv" / "bin").mkdir(parents=True)
        folder = write(repo.parent / "tree", {"src/a.py": ""})
        environment = environment_of(repo, folder, Order.of({"repository": str(repo), "command": "x"}))
        assert environment["PATH"].startswith(f"{repo}/.venv/bin:")
        assert environment["PYTHONPATH"] == f"{folder}/src:{folder}"


class TestOrder:
    """What can be asked for."""

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            pytest.param({}, "repository: Field required", id="no repository"),
            pytest.param({"repository": "r", "command": ""}, "command", id="an empty command"),
            pytest.param({"repository": "r", "changes": [{"patch": "x", "command": ["y"]}]}, "exactly one", id="both"),
            pytest.param(
                {"repository": "r", "test": True}, "test: .*put it in quotation marks", id="a truth for a command"
            ),
            pytest.param({"repository": "r", "rounds": 0}, "greater than or equal to 1", id="no round"),
            pytest.param({"repository": "r", "approval_hours": 1e9}, "less than or equal to 87600", id="for ever"),
            pytest.param({"repository": "r", "branch": "-x"}, "no name for a branch", id="an option for a branch"),
            pytest.param({"repository": "r", "branch": "a..b"}, "no name for a branch", id="a range for a branch"),
            pytest.param({"repository": "r", "branch": "HEAD"}, "no name for a branch", id="HEAD for a branch"),
            pytest.param({"repository": "r", "branch": "a/.b"}, "no name for a branch", id="a hidden part of a branch"),
        ],
    )
    def test_is_refused_with_a_reason(self, params: dict[str, Any], message: str) -> None:
        """Each fault is named."""
        with pytest.raises(DeliveryError, match=message):
            Order.of(params)

    def test_has_short_forms_before_further_changes(self) -> None:
        """The first round is the short form's."""
        order = Order.of({"repository": "r", "command": "make fix", "changes": [{"command": ["make", "more"]}]})
        assert [change.in_words() for change in order.all_changes] == ["run `make fix`", "run `make more`"]
        assert Change(patch="x", title="  Fix\nit ").in_words() == "Fix it"


class TestRunTests:
    """The project's tests, with limits."""

    async def test_tells_a_failure_from_a_pass(self, repo: Path) -> None:
        """By the exit code; the output is kept."""
        tree = await opened(repo, patch=FIX)
        failed = await run_tests(tree.plan, tree.folder, "c0ffee")
        await make_change(tree, tree.plan.changes[0])
        passed = await run_tests(tree.plan, tree.folder, "c0ffee")
        assert (failed.passed, passed.passed) == (False, True)
        assert "AssertionError: -1 != 3" in failed.output
        assert "ended with exit code 1 on c0ffee" in failed.in_words()

    async def test_stops_tests_that_take_too_long(
        self, repo: Path, tmp_path: Path, let_pass: Callable[[float], None]
    ) -> None:
        """That counts as not passed."""
        told = tmp_path / "told"
        os.mkfifo(told)
        tree = await opened(repo, patch=FIX, test=f"echo begun; echo > {told}; sleep 600", test_seconds=60)
        running = asyncio.ensure_future(run_tests(tree.plan, tree.folder, "c0ffee"))
        await asyncio.to_thread(told.read_text)
        let_pass(60)
        run = await running
        assert (run.passed, run.code, run.output) == (False, None, "begun\n")
        assert "stopped for taking too long" in run.in_words()

    async def test_prepares_first(self, repo: Path) -> None:
        """What the preparation makes, the tests find; if it fails they are not run."""
        tree = await opened(repo, patch=FIX, prepare="touch made", test="test -f made")
        assert (await run_tests(tree.plan, tree.folder, "c")).passed
        tree = await opened(repo, patch=FIX, prepare="echo no; exit 3", test="touch ran")
        run = await run_tests(tree.plan, tree.folder, "c")
        assert (run.passed, run.prepared, run.code) == (False, False, 3)
        assert not (tree.folder / "ran").exists()

    async def test_runs_on_the_base_without_leaving_a_worktree(self, repo: Path) -> None:
        """To tell what the change broke from what was broken before."""
        tree = await opened(repo, patch=FIX)
        await make_change(tree, tree.plan.changes[0])
        before = git(repo, "worktree", "list")
        run = await run_tests_on_base(tree.plan, tree.folder.with_name("base"))
        assert not run.passed
        assert git(repo, "worktree", "list") == before

    def test_finds_the_command_that_the_project_declares(self, tmp_path: Path) -> None:
        """And says where it was read; a project that shows none is asked for one."""
        write(tmp_path / "a", {"Makefile": "test: ## run the tests\n\tpytest -q\n"})
        assert find_test_command(tmp_path / "a") == (("sh", "-c", "make test"), "declared, Makefile:1")
        write(tmp_path / "b", {"readme.txt": "nothing\n"})
        with pytest.raises(DeliveryError, match="name one with --param test="):
            find_test_command(tmp_path / "b")


class TestRanNone:
    """What test programs say where there is nothing to run; all of these end with exit code 0."""

    @pytest.mark.parametrize(
        ("output", "none"),
        [
            ("\n-----\nRan 0 tests in 0.000s\n\nOK\n", True),
            ("Ran 1 test in 0.001s\n\nOK\n", False),
            ("Ran 10 tests in 0.001s\n\nOK\n", False),
            ("?   \texample.com/a\t[no test files]\n", True),
            ("ok  \texample.com/a\t0.003s [no tests to run]\n", True),
            ("?   \texample.com/a\t[no test files]\nok  \texample.com/b\t0.003s\n", False),
            ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n", True),
            ("running 2 tests\ntest result: ok. 2 passed; 0 failed\n\nrunning 0 tests\n0 passed; 0 failed\n", False),
            ("No tests found, exiting with code 0\n", True),
            ("  0 passing (1ms)\n", True),
            ("  3 passing (1ms)\n", False),
            ("10 passed in 0.2s\n", False),
            ("all good\n", False),
            ("", False),
        ],
    )
    def test_is_read_from_what_they_say(self, output: str, none: bool) -> None:
        """A program that says nothing of it is believed."""
        run = TestRun(commit="0" * 40, command=("make", "test"), code=0, seconds=1, output=output)
        assert run.ran_none is none
