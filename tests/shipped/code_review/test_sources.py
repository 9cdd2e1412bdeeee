"""The code under review: all of a project, what changed since a commit, or what a diff changes."""

import os
import subprocess
from pathlib import Path

import pytest

from activities.code_review.reports import CodeReviewError, Snapshot
from activities.code_review.sources import Tree, read_diff, read_tree, snapshot_changes, snapshot_diff, snapshot_project
from activities.source_files import decode_text, is_test_file
from tests.shipped.code_review.material import FILES, SLOW, WEAK, contents, git, repository, write


def tree_of(folder: Path) -> Tree:
    return read_tree(folder)


def passages(snapshot: Snapshot) -> dict[str, tuple[tuple[int, int], ...] | None]:
    return {file.path: file.changed for file in snapshot.files}


class TestSnapshotOfProject:
    def test_has_every_program_and_says_what_else_there_is(self, tmp_path: Path) -> None:
        """Prose is not a program, and is reported; a shell script is one, although no analyser reads it."""
        snapshot = snapshot_project(tree_of(write(tmp_path, FILES)))
        assert {file.path: file.language for file in snapshot.files} == {
            "app/broken.py": "Python",
            "app/slow.py": "Python",
            "app/weak.py": "Python",
            "bin/deploy.sh": "Shell",
            "tests/test_names.py": "Python",
        }
        assert [(entry.reason, entry.examples) for entry in snapshot.unread] == [("not a program", ("README.md",))]
        assert [file.path for file in snapshot.files if is_test_file(file.path)] == ["tests/test_names.py"]

    def test_leaves_out_other_peoples_and_generated_code_by_name(self, tmp_path: Path) -> None:
        """Such code is not maintained here."""
        files = {"vendor/lib.py": WEAK, "app/x_pb2.py": WEAK, "app/x.py": "x = 1\n"}
        snapshot = snapshot_project(tree_of(write(tmp_path, files)))
        assert [file.path for file in snapshot.files] == ["app/x.py"]
        reasons = {entry.reason for entry in snapshot.unread}
        assert reasons == {"vendored or generated code", "ignored, installed or built"}

    def test_a_program_with_a_null_byte_is_missed(self, tmp_path: Path) -> None:
        """It was not recognised as a program, and the review approved the rest."""
        write(tmp_path, {"a.py": "x = 1\n", "page.md": "\0", "data.bin": "\0", "b.js": "eval(name)\n/* \0 */\n"})
        snapshot = snapshot_project(tree_of(tmp_path))
        assert [file.path for file in snapshot.files] == ["a.py"]
        assert {entry.examples: entry.missed for entry in snapshot.unread} == {
            ("b.js",): True,
            ("data.bin", "page.md"): False,
        }

    def test_marks_programs_that_it_could_not_read(self, tmp_path: Path) -> None:
        """A file that is too large and one with an unreadable name count as missed; prose does not."""
        write(tmp_path, {"large.py": "x = 1\n" * 200_000, "README.md": "# Demo\n", "a.py": "x = 1\n"})
        for name in (b"odd\xff.py", b"odd\xff.md"):
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x = 1\n", encoding="utf-8")
        snapshot = snapshot_project(tree_of(tmp_path))
        assert {entry.reason: entry.missed for entry in snapshot.unread} == {
            "name is not UTF-8": True,
            "not a program": False,
            "too large, binary or unreadable": True,
        }


class TestSnapshotOfChanges:
    def test_marks_changed_and_added_lines_committed_or_not(self, tmp_path: Path) -> None:
        """A commit on the branch, an uncommitted edit and a new file count; unchanged files do not."""
        root = repository(tmp_path / "r", FILES)
        git(root, "checkout", "-q", "-b", "topic")
        (root / "app/weak.py").write_text(WEAK.replace("import subprocess\n", "import subprocess\nimport sys\n"))
        git(root, "commit", "-q", "-am", "second")
        (root / "app/slow.py").write_text(SLOW + "\n\nx = 1\n")
        write(root, {"app/new.py": "y = 2\n"})
        state_before = contents(root)
        snapshot = snapshot_changes(tree_of(root), "main")
        assert passages(snapshot) == {"app/new.py": ((1, 1),), "app/slow.py": ((13, 15),), "app/weak.py": ((3, 3),)}
        assert snapshot.compared_with.startswith("since main (")
        assert contents(root) == state_before

    def test_counts_from_where_the_branch_left(self, tmp_path: Path) -> None:
        """Later changes on the main branch are not under review."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n", "b.py": "b = 1\n"})
        git(root, "checkout", "-q", "-b", "topic")
        write(root, {"a.py": "a = 2\n"})
        git(root, "commit", "-q", "-am", "ours")
        git(root, "checkout", "-q", "main")
        write(root, {"b.py": "b = 2\n"})
        git(root, "commit", "-q", "-am", "theirs")
        git(root, "checkout", "-q", "topic")
        assert list(passages(snapshot_changes(tree_of(root), "main"))) == ["a.py"]

    def test_compares_a_moved_file_with_what_it_was(self, tmp_path: Path) -> None:
        """Committed or staged, in a subfolder: a moved file is not reviewed as a new one."""
        lines = "".join(f"a{number} = {number}\n" for number in range(20))
        root = repository(tmp_path / "project", {"top/one.py": lines, "top/two.py": lines.replace("a", "b")})
        git(root, "mv", "top/one.py", "top/größer.py")
        (root / "top" / "größer.py").write_text(lines + "new = 1\n", "utf-8")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "moved")
        git(root, "mv", "top/two.py", "top/moved.py")
        snapshot = snapshot_changes(tree_of(root / "top"), "HEAD~1")
        assert [(file.path, file.changed) for file in snapshot.files] == [("größer.py", ((21, 21),))]
        assert [(entry.reason, entry.examples) for entry in snapshot.unread] == []

    def test_marks_what_is_new_in_a_large_file_that_was_rewritten(self, tmp_path: Path) -> None:
        """Lines that the old text contains are not marked, nor are those before and after the change."""
        unchanged = "".join(f"k{number} = 0\n" for number in range(3_000))
        old = "".join(f"a{number} = 1\n" for number in range(6_000))
        new = old.replace(" = 1", " = 2").replace("a17 = 2", "a17 = 1")
        root = repository(tmp_path / "r", {"a.py": unchanged + old + unchanged})
        write(root, {"a.py": unchanged + new + unchanged})
        snapshot = snapshot_changes(tree_of(root), "HEAD")
        assert passages(snapshot) == {"a.py": ((3_001, 3_017), (3_019, 9_000))}

    def test_starts_no_program_that_the_checkout_names(self, tmp_path: Path) -> None:
        """Filters, monitors and external diffs of the checkout's configuration are not run."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n", ".gitattributes": "*.py filter=evil diff=evil\n"})
        trap = f"sh -c 'touch {tmp_path}/sprung; cat'"
        for name in ("filter.evil.clean", "filter.evil.smudge", "diff.evil.command", "diff.evil.textconv"):
            git(root, "config", name, trap)
        git(root, "config", "core.fsmonitor", trap)
        git(root, "config", "diff.external", trap)
        (root / "a.py").write_text("a = 2\n")
        assert list(passages(snapshot_changes(tree_of(root), "HEAD"))) == ["a.py"]
        assert not (tmp_path / "sprung").exists()

    def test_names_a_commit_that_is_not_there(self, tmp_path: Path) -> None:
        """A name that looks like an option is not used as one."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        for name in ("nowhere", "--all"):
            with pytest.raises(CodeReviewError, match=f"the commit '{name}' does not exist"):
                snapshot_changes(tree_of(root), name)

    def test_says_where_there_can_be_no_such_commit(self, tmp_path: Path) -> None:
        """A folder without git has no commits, and a shallow clone has only the last."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        write(root, {"a.py": "a = 2\n"})
        git(root, "commit", "-qam", "second")
        git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", "shallow")
        with pytest.raises(CodeReviewError, match=r"commit 'HEAD~1' does not exist .*`git fetch --unshallow`"):
            snapshot_changes(tree_of(tmp_path / "shallow"), "HEAD~1")
        with pytest.raises(CodeReviewError, match=r"commit 'HEAD' does not exist .* not a git checkout"):
            snapshot_changes(tree_of(write(tmp_path / "plain", {"a.py": "a = 1\n"})), "HEAD")

    @pytest.mark.parametrize(
        ("line", "whole"),
        [
            pytest.param("# coding: utf-7\n# +AAo-import os; os.system(input())\n", True, id="UTF-7"),
            pytest.param("# coding: raw_unicode_escape\n# \\u000aimport os; os.system(input())\n", True, id="escapes"),
            pytest.param(
                "# coding: unicode_escape\n# \\nimport os; os.system(input())\\\n\n", True, id="as many lines"
            ),
            pytest.param("# coding: punycode\n# a-\n", True, id="one that takes a minute for a megabyte"),
            pytest.param("# coding: latin-1\n# äöü\n", False, id="Latin 1"),
            pytest.param("# coding: nobody-knows\n# +AAo-x\n", True, id="one that Python refuses"),
        ],
    )
    def test_a_text_that_hides_lines_is_reviewed_whole(self, tmp_path: Path, line: str, whole: bool) -> None:
        """Python may run code in a comment on an unchanged line."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        write(root, {"a.py": f"{line}a = 1\n"})
        [found] = snapshot_changes(tree_of(root), "HEAD").files
        assert found.changed == (None if whole else ((1, 2),))

    def test_a_submodule_that_moved_is_missed(self, tmp_path: Path) -> None:
        """A submodule change is reported as missed, staged or not, and the rest of a diff is reviewed."""
        inner = repository(tmp_path / "inner", {"x.py": "x = 1\n"})
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "libs/inner")
        git(root, "commit", "-qm", "submodule")
        assert snapshot_changes(tree_of(root), "HEAD").unread == ()
        write(root, {"libs/inner/x.py": "eval(x)\n", "a.py": "a = 2\n"})
        git(root / "libs/inner", "commit", "-qam", "moved")
        of_diff = snapshot_diff(tree_of(root), git(root, "diff"), "c.diff")
        for snapshot in (of_diff, snapshot_changes(tree_of(root), "HEAD")):
            assert list(passages(snapshot)) == ["a.py"]
            assert [(entry.examples, entry.missed) for entry in snapshot.unread] == [(("libs/inner",), True)]
        git(root, "add", "-A")
        git(root, "commit", "-qm", "moved")
        assert [entry.missed for entry in snapshot_changes(tree_of(root), "HEAD~2").unread] == [True, True]


class TestSnapshotOfDiff:
    @pytest.mark.parametrize("outside", ["{folder}/outside.py", "../outside.py"])
    def test_a_file_outside_of_the_project_is_not_read_as_the_old_name_of_one(
        self, tmp_path: Path, outside: str
    ) -> None:
        """Otherwise a diff could read any file of the worker, and send it to a model."""
        write(tmp_path, {"outside.py": "token = 1\nx = 1\n"})
        old = outside.format(folder=tmp_path)
        diff = (
            f"diff --git a/{old} b/n.py\nsimilarity index 60%\nrename from {old}\nrename to n.py\n"
            f"--- a/{old}\n+++ b/n.py\n@@ -2,1 +2,1 @@\n-x = 1\n+x = 2\n"
        )
        with pytest.raises(CodeReviewError, match=r"it does not apply to 'n\.py'"):
            snapshot_diff(tree_of(repository(tmp_path / "r", FILES)), diff, "change.diff")

    @pytest.mark.parametrize("applied", [pytest.param(True, id="applied"), pytest.param(False, id="not applied")])
    def test_reads_the_text_with_the_diff_whether_it_is_applied_or_not(self, tmp_path: Path, applied: bool) -> None:
        """A patch can be reviewed before it is applied; the source stays unchanged."""
        root = repository(tmp_path / "r", FILES)
        changed = WEAK.replace('PASSWORD = "correct horse"\n', 'PASSWORD = "correct horse"\nTOKEN = eval("1")\n')
        write(root, {"app/weak.py": changed, "app/new.py": "z = 3\n"})
        git(root, "add", "-A", "-N")
        diff = git(root, "diff")
        if not applied:
            git(root, "reset", "-q", "--hard")
            (root / "app/new.py").unlink(missing_ok=True)
        state_before = contents(root)
        snapshot = snapshot_diff(tree_of(root), diff, "change.diff")
        assert passages(snapshot) == {"app/new.py": ((1, 1),), "app/weak.py": ((5, 5),)}
        assert {file.path: file.text for file in snapshot.files}["app/weak.py"] == changed
        assert contents(root) == state_before

    @pytest.mark.parametrize("applied", [pytest.param(True, id="applied"), pytest.param(False, id="not applied")])
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            pytest.param(b"a = 1\nb = 1", b"a = 1\nb = 2", id="no newline at the end"),
            pytest.param(b"\xef\xbb\xbfa = 1\nb = 1\n", b"\xef\xbb\xbfa = 1\nb = 2\n", id="a mark of the byte order"),
            pytest.param(b"a = 1\r\nb = 1\r\n", b"a = 1\r\nb = 2\r\n", id="line ends of Windows"),
        ],
    )
    def test_reads_what_editors_write(self, tmp_path: Path, before: bytes, after: bytes, applied: bool) -> None:
        """Byte order marks and final line ends are not part of a line."""
        root = repository(tmp_path / "r", {"README.md": "x\n"})
        (root / "a.py").write_bytes(before)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
        (root / "a.py").write_bytes(after)
        diff = decode_text(subprocess.run(["git", "diff"], cwd=root, check=True, capture_output=True).stdout)
        if not applied:
            git(root, "checkout", "-q", "a.py")
        assert passages(snapshot_diff(tree_of(root), diff, "change.diff")) == {"a.py": ((2, 2),)}

    @pytest.mark.parametrize("applied", [pytest.param(True, id="applied"), pytest.param(False, id="not applied")])
    @pytest.mark.parametrize(
        ("before", "after", "attributes", "why"),
        [
            pytest.param(b"a = 1\n", b"# see\reval(a)\n", "", "a carriage return", id="a line hidden in another"),
            pytest.param(b"a = 1\rb = 1\nc = 1\n", b"a = 1\rb = 1\nc = 2\n", "", "a carriage return", id="in front"),
            pytest.param(b"a = 1\n", b"a = eval(a)\n", "*.py -diff", "a binary file", id="a text hidden from diffs"),
            pytest.param(b"", b"#!/usr/bin/env python3\n# see\reval(a)\n", "", "a carriage return", id="a new script"),
        ],
    )
    def test_what_a_diff_does_not_show_is_missed(
        self, tmp_path: Path, before: bytes, after: bytes, attributes: str, why: str, applied: bool
    ) -> None:
        """Python ends a line where git does not, so the code behind it was never reviewed."""
        root = repository(tmp_path / "r", {"README.md": "x\n", ".git-attributes": attributes})
        git(root, "config", "core.attributesFile", ".git-attributes")
        name = "a.py" if before else "run"
        if before:
            (root / name).write_bytes(before)
            git(root, "add", "-A")
            git(root, "commit", "-q", "-m", "first")
        (root / name).write_bytes(after)
        git(root, "add", "-A")
        (tmp_path / "c.diff").write_bytes(subprocess.check_output(["git", "diff", "--cached"], cwd=root))
        if not applied:
            git(root, "reset", "-q", "--hard")
        snapshot = snapshot_diff(tree_of(root), read_diff(tmp_path / "c.diff"), "c.diff")
        assert [(why in entry.reason, entry.examples, entry.missed) for entry in snapshot.unread] == [
            (True, (name,), True)
        ]
        assert not snapshot.files

    def test_leaves_out_what_is_too_large_to_read(self, tmp_path: Path) -> None:
        """A large lock file in the diff is counted, and the rest of the diff is reviewed."""
        lock = "\n".join(f"package-{number} = {number}" for number in range(60_000))
        root = repository(tmp_path / "r", {"a.py": "a = 1\n", "some.lock": lock})
        write(root, {"a.py": "a = 2\n", "some.lock": lock.replace("package-7 = 7", "package-7 = 8")})
        snapshot = snapshot_diff(tree_of(root), git(root, "diff"), "change.diff")
        assert passages(snapshot) == {"a.py": ((1, 1),)}
        assert [entry.examples for entry in snapshot.unread] == [("some.lock",)]

    @pytest.mark.parametrize("applied", [True, False])
    def test_a_series_of_patches_counts_whole_in_a_file_that_it_comes_back_to(
        self, tmp_path: Path, applied: bool
    ) -> None:
        """All patches of a file count, not only the last."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\nb = 2\n"})
        for text in ("a = 1\nb = eval(a)\n", "import os\na = 1\nb = eval(a)\n", "import os\nb = eval(a)\n"):
            write(root, {"a.py": text, "new.py": text})
            git(root, "add", "-A")
            git(root, "commit", "-qm", "next")
        series = git(root, "format-patch", "--stdout", "HEAD~3")
        if not applied:
            git(root, "reset", "-q", "--hard", "HEAD~3")
        snapshot = snapshot_diff(tree_of(root), series, "series.mbox")
        assert {file.path: file.text for file in snapshot.files} == dict.fromkeys(("a.py", "new.py"), text)
        assert passages(snapshot) == {"a.py": ((1, 2),), "new.py": ((1, 2),)}

    def test_names_that_git_quotes_are_read(self, tmp_path: Path) -> None:
        """A name that is not ASCII is escaped in a diff."""
        root = repository(tmp_path / "r", {"grün ß.py": "a = 1\n"})
        write(root, {"grün ß.py": "a = 1\nb = 2\n"})
        snapshot = snapshot_diff(tree_of(root), git(root, "diff"), "c.diff")
        assert (passages(snapshot), snapshot.unread) == ({"grün ß.py": ((2, 2),)}, ())

    def test_refuses_a_diff_of_another_text(self, tmp_path: Path) -> None:
        """The file and line are named."""
        root = write(tmp_path, {"a.py": "a = 1\n"})
        with pytest.raises(CodeReviewError, match=r"'c\.diff' cannot be reviewed: it does not apply to 'a\.py'"):
            snapshot_diff(tree_of(root), "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-b\n+c\n", "c.diff")

    def test_says_what_a_diff_changes_that_is_no_program(self, tmp_path: Path) -> None:
        """Nothing is left out silently."""
        root = write(tmp_path, {"notes.md": "old\n"})
        snapshot = snapshot_diff(tree_of(root), "--- a/notes.md\n+++ b/notes.md\n@@ -1 +1 @@\n-old\n+new\n", "n")
        assert [(entry.reason, entry.count) for entry in snapshot.unread] == [("not a program", 1)]

    def test_refuses_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """The parameter is wrong, so nothing is retried."""
        with pytest.raises(CodeReviewError, match="cannot be read"):
            read_diff(tmp_path / "none.diff")
