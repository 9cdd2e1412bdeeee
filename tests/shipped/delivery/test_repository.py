"""Changes in real repositories: exactly what was ordered, nothing before it is approved, nothing of their own runs."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.delivery.changes import command_environment, find_test_command, make_change, read_patch, run_tests
from activities.delivery.records import Change, DeliveryError, Order, Plan
from activities.delivery.repository import Checkout, Repository
from tests.shipped.delivery.material import FILES, FIX, TEST, at, git, has_sandbox, repository, state, write

NOW = datetime(2026, 11, 26, tzinfo=UTC)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository, and keep checkouts in the test's own folder; do without a sandbox where none works."""
    if not has_sandbox():
        monkeypatch.setenv("BATON_DELIVERY_SANDBOX", "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return repository(tmp_path / "project", {**FILES, "app/more.py": "A = 1\nB = 1\n"})


def plan_of(repo: Path, **order: Any) -> Plan:
    parsed_order = Order.of({"repository": str(repo), "test": [*TEST], **order})
    base = git(repo, "rev-parse", "HEAD").strip()
    changes = parsed_order.all_changes
    return Plan(
        repository=str(repo), base=base, branch="b/x", changes=changes, test=parsed_order.test or (), order=parsed_order
    )


async def made(repo: Path, **order: Any) -> tuple[Repository, Plan, str]:
    """Make the first change of an order and commit it."""
    plan = plan_of(repo, **order)
    opened = await Repository.of(repo, "t-1")
    async with opened.checkout(plan.base) as checkout:
        await make_change(opened, checkout, plan, plan.changes[0])
        return opened, plan, await opened.commit(checkout, plan.base, "Change", NOW)


class TestMakeChange:
    async def test_replaces_texts(self, repo: Path) -> None:
        """In every tracked file that the pattern means."""
        opened, _, commit = await made(repo, edits=[{"path": "app/**/*.py", "find": "= 1", "replace": "= 2"}])
        assert await opened.text(commit, "app/more.py") == "A = 2\nB = 2\n"

    async def test_writes_new_files_also_ignored_ones(self, repo: Path) -> None:
        """They were ordered by name; pattern characters in a new name are literal."""
        write(repo, {".gitignore": "build/\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "ignore")
        edits = [{"path": "build/[a]?.py", "replace": "new\n"}, {"path": "docs/a/new.md", "replace": "new\n"}]
        opened, plan, commit = await made(repo, edits=edits)
        changed = [diff.path for diff in await opened.changes(plan.base, commit)]
        assert changed == ["build/[a]?.py", "docs/a/new.md"]

    async def test_refuses_an_edit_that_is_not_exactly_so(self, repo: Path) -> None:
        """No text is guessed, nothing outside of the checkout is written."""
        os.symlink(repo.parent, repo / "out")
        os.symlink(repo.parent / "x", repo / "nowhere")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "link")
        for edit, message in (
            ({"path": "app/*.py", "find": "absent", "replace": ""}, "matches 0 times"),
            ({"path": "app/*.py", "find": "= 1", "replace": "", "expect": 1}, "1 times, but matches 2 times"),
            ({"path": "../x", "replace": "x"}, "not a path in the repository"),
            ({"path": "/tmp/x", "replace": "x"}, "not a path in the repository"),
            ({"path": ".git/hooks/x", "replace": "x"}, "not a path in the repository"),
            ({"path": "out/x", "replace": "x"}, "already exists"),
            ({"path": "nowhere", "replace": "x"}, "already exists"),
            ({"path": "app/more.py", "replace": "x"}, "already exists"),
            ({"path": "app/more.py/x", "replace": "x"}, "cannot write"),
        ):
            with pytest.raises(DeliveryError, match=message):
                await made(repo, edits=[edit])
        assert not (repo.parent / "x").exists()

    async def test_gives_a_command_a_home_and_no_key(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it leaves beside the files is in no commit."""
        monkeypatch.setenv("PROJECT_MODE", "fast")
        line = "env > seen.txt; echo x > $HOME/.cache-of-mine; echo x > $TMPDIR/t"
        opened, plan, commit = await made(repo, command=line, environment=["PROJECT_MODE"])
        visible = await opened.text(commit, "seen.txt") or ""
        assert "PROJECT_MODE=fast" in visible
        assert "BATON" not in visible
        assert [diff.path for diff in await opened.changes(plan.base, commit)] == ["seen.txt"]

    async def test_refuses_what_cannot_be_committed(self, repo: Path) -> None:
        """A nested repository, of which git would keep only a link; and a change without an effect."""
        for line, message in (
            ("git init -q inner && echo 1 > inner/a.txt", "repository of its own in 'inner/'"),
            ("true", "changes nothing"),
            ("exit 7", "exit code 7"),
        ):
            with pytest.raises(DeliveryError, match=message):
                await made(repo, command=line)

    async def test_reads_a_diff_from_its_file_or_as_text(self, tmp_path: Path) -> None:
        """One that is not UTF-8 cannot be passed on to the letter, so it is refused."""
        (tmp_path / "fix.diff").write_text(FIX)
        assert await read_patch(str(tmp_path / "fix.diff")) == await read_patch(FIX) == FIX
        (tmp_path / "latin.diff").write_bytes("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+é\n".encode("latin-1"))
        with pytest.raises(DeliveryError, match="not UTF-8"):
            await read_patch(str(tmp_path / "latin.diff"))


class TestRepository:
    async def test_touches_nothing_before_it_offers(self, repo: Path) -> None:
        """The same change at the same time is the same commit, so a stage may be repeated."""
        state_before = state(repo)
        opened, plan, commit = await made(repo, patch=FIX)
        repeated = (await made(repo, patch=FIX))[2]
        assert repeated == commit
        assert state(repo)[:4] == state_before[:4]
        await opened.offer("b/x", plan.base, commit)
        await opened.offer("b/x", plan.base, commit)
        await opened.close()
        assert git(repo, "log", "--format=%an %s", "HEAD..b/x").splitlines() == ["Baton Change"]
        assert "one + two" in at(repo, "b/x", "app/sums.py")
        assert state(repo)[4] == state_before[4]
        assert not [*repo.parent.glob("baton-delivery-*")]

    async def test_takes_no_branch_of_somebody_else(self, repo: Path) -> None:
        """A branch of that name, or a conflicting one, that was created meanwhile."""
        opened, plan, commit = await made(repo, patch=FIX)
        for existing in ("b/x", "b"):
            git(repo, "branch", existing)
            with pytest.raises(DeliveryError, match="choose one with --param branch"):
                await opened.offer("b/x", plan.base, commit)
            assert git(repo, "rev-parse", existing).strip() == plan.base
            git(repo, "branch", "-D", existing)

    async def test_runs_nothing_that_the_repository_configures(self, repo: Path, tmp_path: Path) -> None:
        """No hook, filter, monitor or diff program of any configuration."""
        sprung = tmp_path / "sprung"
        for name in ("post-checkout", "pre-commit", "commit-msg", "reference-transaction", "post-index-change"):
            hook = repo / ".git" / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(f"#!/bin/sh\ntouch {sprung}\n")
            hook.chmod(0o755)
        write(repo, {".gitattributes": "*.py filter=evil diff=evil\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "attributes", "--no-verify")
        sprung.unlink(missing_ok=True)
        spring = f"sh -c 'touch {sprung}; cat'"
        for name in ("filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv"):
            git(repo, "config", name, spring)
        for name in ("core.fsmonitor", "diff.external", "diff.evil.command", "core.pager"):
            git(repo, "config", name, f"touch {sprung}")
        git(repo, "config", "filter.evil.required", "true")
        (repo / ".git" / "info" / "attributes").write_text("* filter=evil\n")
        sprung.unlink(missing_ok=True)
        opened, plan, commit = await made(repo, patch=FIX)
        await opened.changes(plan.base, commit)
        await opened.diff(plan.base, commit)
        await opened.text(commit, "app/sums.py")
        await opened.offer("b/x", plan.base, commit)
        await opened.close()
        assert not sprung.exists()

    @pytest.mark.skipif(not has_sandbox(), reason="no sandbox works here")
    async def test_a_command_cannot_set_up_what_git_runs_later(self, repo: Path, tmp_path: Path) -> None:
        """It can access neither the task's git directory nor the repository's."""
        sprung = tmp_path / "sprung"
        line = (
            f"mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch {sprung}\\n' > .git/hooks/pre-commit; "
            f"chmod +x .git/hooks/pre-commit; printf '[core]\\nfsmonitor = touch {sprung}\\n' > .git/config; "
            f"echo x >> {repo}/.git/config; echo 2 > b.txt"
        )
        config_before = (repo / ".git" / "config").read_text()
        opened, plan, commit = await made(repo, command=line)
        assert [diff.path for diff in await opened.changes(plan.base, commit)] == ["b.txt"]
        assert (repo / ".git" / "config").read_text() == config_before
        assert not sprung.exists()

    @pytest.mark.skipif(not has_sandbox(), reason="no sandbox works here")
    async def test_a_command_cannot_put_a_link_in_the_files_place(self, repo: Path, tmp_path: Path) -> None:
        """Otherwise the worker would commit the target of the link, possibly a secret."""
        secret = tmp_path / "worker" / "keys.toml"
        secret.parent.mkdir()
        secret.write_text("secret")
        line = f"echo x > new.txt; cd ..; mv tree aside && ln -s {secret.parent} tree; true"
        opened, plan, commit = await made(repo, command=line)
        assert "keys.toml" not in await opened.paths(commit)
        assert "secret" not in await opened.diff(plan.base, commit)

    async def test_reads_differences_to_the_line(self, repo: Path) -> None:
        """Names with spaces, texts that attributes hide, binaries, deletions, changes of type and mode."""
        write(repo, {".gitattributes": "*.py -diff\n", "x y.txt": "1\n2\n3\n", "kind": "file\n", "gone.txt": "a\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "more")
        line = (
            "sed -i 's/2/two\\n--- a/' 'x y.txt'; printf '\\0\\1' > logo.bin; rm kind gone.txt; ln -s app kind; "
            "chmod +x app/sums.py; echo C=1 >> app/more.py"
        )
        opened, plan, commit = await made(repo, command=line)
        diffs = {diff.path: diff for diff in await opened.changes(plan.base, commit)}
        assert [(path, diffs[path].status) for path in sorted(diffs)] == [
            ("app/more.py", "M"),
            ("app/sums.py", "M"),
            ("gone.txt", "D"),
            ("kind", "T"),
            ("logo.bin", "A"),
            ("x y.txt", "M"),
        ]
        assert diffs["x y.txt"].added == ((2, "two"), (3, "--- a"))
        assert diffs["x y.txt"].removed == ("2",)
        assert diffs["app/more.py"].added == ((3, "C=1"),)
        assert diffs["gone.txt"].removed == ("a",)
        assert diffs["logo.bin"].binary

    async def test_no_name_of_a_file_hides_what_changes(self, repo: Path) -> None:
        """A folder `d b` makes the diff header ambiguous."""
        write(repo, {"d b/x.py": "x = 1\n", "z.py": "z = 1\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "more")
        opened, plan, commit = await made(repo, command="echo 'y = 1' | tee -a 'd b/x.py' z.py > 'd b/new.py'")
        diffs = await opened.changes(plan.base, commit)
        assert {diff.path: diff.added for diff in diffs} == {
            "d b/new.py": ((1, "y = 1"),),
            "d b/x.py": ((2, "y = 1"),),
            "z.py": ((2, "y = 1"),),
        }

    async def test_works_in_a_linked_worktree_and_a_shallow_clone(self, repo: Path, tmp_path: Path) -> None:
        """Where `.git` is a file, or history ends early."""
        git(repo, "worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"))
        git(repo, "commit", "-qm", "second", "--allow-empty")
        git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", "shallow")
        for place in (tmp_path / "linked", tmp_path / "shallow"):
            opened, plan, commit = await made(place, patch=FIX)
            await opened.offer("b/x", plan.base, commit)
            assert "one + two" in at(place, "b/x", "app/sums.py")
            git(place, "branch", "-D", "b/x")

    async def test_refuses_what_is_not_a_checkout(self, tmp_path: Path) -> None:
        """A folder without a repository, and no folder at all."""
        for place in (tmp_path, tmp_path / "none"):
            with pytest.raises(DeliveryError, match=r"--param repository=DIR|name one"):
                await Repository.of(place, "t-1")


class TestRunTests:
    async def test_tells_a_failure_from_a_pass(self, repo: Path) -> None:
        """By the exit code; the output is kept."""
        opened, plan, commit = await made(repo, patch=FIX)
        failed, passed = [await run_tests(opened, plan, item) for item in (plan.base, commit)]
        assert (failed.passed, passed.passed) == (False, True)
        assert "AssertionError: -1 != 3" in failed.output

    async def test_prepares_first(self, repo: Path) -> None:
        """What the preparation makes, the tests find; if it fails they do not run."""
        for prepare, test, outcome in (
            ("touch made", "test -f made", (True, True, 0)),
            ("echo no; exit 3", "exit 9", (False, False, 3)),
        ):
            plan = plan_of(repo, patch=FIX, prepare=prepare, test=test)
            run = await run_tests(await Repository.of(repo, "t-1"), plan, plan.base)
            assert (run.passed, run.prepared, run.code) == outcome

    async def test_only_tests_that_ran_fail_or_pass(self, repo: Path) -> None:
        """Not a runner that is missing, that was called wrongly, that found no test or that was stopped."""
        (repo / "no_test.py").write_text("")
        (repo / "Makefile").write_text("gone:\n\tno-such-runner\nfails:\n\tfalse\n")
        (repo / "test_bad.py").write_text("def test_bad():\n    assert False\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "more")
        python = [sys.executable, "-m"]
        for test, outcome in (
            ("no-such-runner", "no test could run"),
            ("./app/sums.py", "no test could run"),
            ("make gone", "no test could run"),
            ([*python, "no_such_runner"], "no test could run"),
            ([*python, "unittest", "no_test"], "no test could run"),
            ([*python, "pytest", "no_test.py"], "no test could run"),
            ([*python, "pytest", "--no-such-option"], "no test could run"),
            ([*python, "pytest", "test_bad.py"], "the tests fail"),
            ("make fails", "the tests fail"),
            ("exit 4", "the tests fail"),
            ("true", "the tests pass"),
        ):
            plan = plan_of(repo, patch=FIX, test=test)
            run = await run_tests(await Repository.of(repo, "t-1"), plan, plan.base)
            assert run.outcome == outcome, (test, run.output)
        for changes, outcome in (({"code": None}, "did not end in time"), ({"prepared": False}, "not be prepared")):
            assert run.model_copy(update=changes).outcome.endswith(outcome)

    async def test_the_workers_plugins_stay_out_of_the_tested_project(
        self, repo: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where its Python runs the project; a project's own environment keeps its plugins."""
        sees = "def test_sees(request):\n    assert not request.config.pluginmanager.has_plugin('timeout')\n"
        (repo / "test_sees.py").write_text(sees)
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "more")
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        plan = plan_of(repo, patch=FIX, test="python -m pytest -p no:cacheprovider test_sees.py")
        run = await run_tests(await Repository.of(repo, "t-1"), plan, plan.base)
        assert run.outcome == "the tests pass", run.output
        write(repo, {".venv/bin/python": "", ".venv/bin/pytest": ""})
        for name in ("python", "pytest"):
            (repo / ".venv" / "bin" / name).chmod(0o755)
        assert "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in command_environment(plan, Checkout(repo.parent / "work"))

    async def test_tests_the_change_and_not_what_is_installed(self, repo: Path) -> None:
        """The repository's virtual environment is first on the path, imports come from the checkout."""
        (repo / ".venv" / "bin").mkdir(parents=True)
        plan, checkout = plan_of(repo, patch=FIX), Checkout(repo.parent / "work")
        environment = command_environment(plan, checkout)
        assert environment["PATH"].startswith(f"{repo}/.venv/bin:")
        assert environment["PYTHONPATH"].split(":")[0] == f"{checkout.tree}/src"

    async def test_finds_the_command_that_the_project_shows(self, tmp_path: Path) -> None:
        """Without one the error asks for it."""
        for number, (files, line) in enumerate(
            (
                ({"Makefile": "all:\n\ntest: all\n\tpytest -q\n"}, "make test"),
                ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
                ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python -m pytest"),
                ({"go.mod": "module x\n"}, "go test ./..."),
            )
        ):
            opened = await Repository.of(repository(tmp_path / str(number), files), "t-1")
            assert await find_test_command(opened, "HEAD") == ("sh", "-c", line)
        opened = await Repository.of(repository(tmp_path / "none", {"readme.txt": "nothing\n"}), "t-1")
        with pytest.raises(DeliveryError, match="name one with --param test="):
            await find_test_command(opened, "HEAD")


class TestOrder:
    def test_is_refused_with_a_reason(self) -> None:
        """Each fault is named."""
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "repository: Field required"),
            ({"command": ""}, "command"),
            ({"changes": [{"patch": "x", "command": ["y"]}]}, "exactly one"),
            ({"test": True}, "test: .*quote it"),
            ({"rounds": 0}, "greater than or equal to 1"),
            ({"tests": "x"}, "tests: Extra inputs"),
            ({"branch": "-x"}, "not a valid branch name"),
            ({"branch": "a..b"}, "not a valid branch name"),
        )
        for order, message in cases:
            with pytest.raises(DeliveryError, match=message):
                Order.of(order and {"repository": "r", **order})

    def test_has_short_forms_before_further_changes(self) -> None:
        """The first round is the short form's."""
        order = Order.of({"repository": "r", "command": "make fix", "changes": [{"command": ["make", "more"]}]})
        assert [change.describe() for change in order.all_changes] == ["run `make fix`", "run `make more`"]
        assert Change(patch="x", title="  Fix\nit ").describe() == "Fix it"
