"""Unified diffs: what `git diff` and `diff -u` write is read, applied and numbered; what is broken is refused."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.workbench.diffs import DiffError, apply_diff, is_applied, parse_diff, reverse_diff

_GIT = ["git", "-c", "core.quotePath=true", "diff", "--no-index", "--no-color"]


def diff_of(folder: Path, old: str, new: str, *options: str) -> str:
    """Return git's own diff of two texts."""
    (folder / "old").write_text(old)
    (folder / "new").write_text(new)
    done = subprocess.run([*_GIT, *options, "old", "new"], cwd=folder, capture_output=True, check=False, text=True)
    return done.stdout


class TestParseDiff:
    """What a diff says."""

    def test_numbers_the_added_lines_as_they_stand_in_the_new_text(self) -> None:
        """Two hunks, lines taken away before lines added; the numbers are those of the new file."""
        diff = (
            "diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n"
            "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -10,2 +10,3 @@ def f():\n j\n+jj\n k\n"
        )
        [one] = parse_diff(diff)
        assert one.added == [(2, "B"), (11, "jj")]
        assert one.removed == ["b"]

    @pytest.mark.parametrize(
        ("diff", "old", "new"),
        [
            pytest.param("--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n", None, "n.py", id="a new file"),
            pytest.param("--- a/o.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "o.py", None, id="a deleted file"),
            pytest.param(
                "--- o.py\t2026-01-01\n+++ o.py\t2026-01-02\n@@ -1 +1 @@\n-x\n+y\n", "o.py", "o.py", id="diff -u"
            ),
            pytest.param(
                "diff --git a/e.py b/e.py\nnew file mode 100644\nindex 0..1\n", None, "e.py", id="an empty file"
            ),
            pytest.param(
                "diff --git a/o.py b/n.py\nsimilarity index 100%\nrename from o.py\nrename to n.py\n",
                "o.py",
                "n.py",
                id="a renaming",
            ),
            pytest.param(
                'diff --git "a/\\303\\244.py" "b/\\303\\244.py"\n'
                '--- "a/\\303\\244.py"\n+++ "b/\\303\\244.py"\n@@ -1 +1 @@\n-x\n+y\n',
                "ä.py",
                "ä.py",
                id="a quoted name",
            ),
            pytest.param(
                'diff --git "c/\\303\\244.py" "w/\\303\\244.py"\nindex 1..2 100644\n'
                '--- "c/\\303\\244.py"\n+++ "w/\\303\\244.py"\n@@ -1 +1 @@\n-x\n+y\n',
                "ä.py",
                "ä.py",
                id="diff.mnemonicPrefix",
            ),
            pytest.param(
                "diff --git i/p.png w/p.png\nindex 1..2\nBinary files i/p.png and w/p.png differ\n",
                "p.png",
                "p.png",
                id="diff.mnemonicPrefix of a binary file",
            ),
            pytest.param(
                "diff --git c/x.py c/x.py\n--- c/x.py\n+++ c/x.py\n@@ -1 +1 @@\n-x\n+y\n",
                "c/x.py",
                "c/x.py",
                id="a folder that is no prefix",
            ),
            pytest.param(
                "diff --git c/p.png c/p.png\nindex 1..2\nBinary files c/p.png and c/p.png differ\n",
                "c/p.png",
                "c/p.png",
                id="diff.noprefix of a binary file",
            ),
            pytest.param(
                "diff --git a/o.py  b/o.py \n--- a/o.py \t\n+++ b/o.py \t\n@@ -1 +1 @@\n-x\n+y\n",
                "o.py ",
                "o.py ",
                id="a name that ends in a blank",
            ),
        ],
    )
    def test_names_the_file_before_and_after(self, diff: str, old: str | None, new: str | None) -> None:
        """None stands for a file that is not there."""
        [one] = parse_diff(diff)
        assert (one.old, one.new) == (old, new)

    def test_knows_a_binary_file_without_its_change(self) -> None:
        """There is nothing to read in it."""
        [one] = parse_diff("diff --git a/p.png b/p.png\nindex 1..2 100644\nBinary files a/p.png and b/p.png differ\n")
        assert (one.path, one.binary, one.hunks) == ("p.png", True, ())

    def test_passes_over_a_mail_around_it(self) -> None:
        """`git format-patch` writes one; the line that ends it looks like a removed line."""
        [one] = parse_diff(
            "From 1 Mon\nSubject: [PATCH] x\n\n---\n x.py | 2 +-\n\n"
            "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-x\n+y\n-- \n2.39\n"
        )
        assert one.added == [(1, "y")]

    def test_passes_over_a_message_about_submodules(self) -> None:
        """Only what git itself writes of them is no message."""
        message = "Submodule lib/in is gone\nSubmodule docs name 1f0c6e0..9b1dfa2 as the range\n"
        [one] = parse_diff(f"{message}--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-x\n+y\n")
        assert one.added == [(1, "y")]

    def test_reads_a_last_line_without_a_newline(self) -> None:
        """The remark on it stands in the middle of the hunk, and is no line of either text."""
        hunk = "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ Kein Zeilenumbruch am Dateiende.\n"
        [one] = parse_diff(f"--- a/x\n+++ b/x\n{hunk}")
        assert (one.removed, one.added) == (["a"], [(1, "b")])

    @pytest.mark.parametrize(
        ("diff", "message"),
        [
            pytest.param("hello\n", "no change", id="no diff"),
            pytest.param("\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n", "git diff --no-color", id="a coloured diff"),
            pytest.param("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n", "cut off", id="a hunk that ends too early"),
            pytest.param(
                "diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1,1 -1,1 +1,2 @@@\n  a\n++b\n",
                r"line 1: .*`git diff MERGE\^1 MERGE`",
                id="a merge's combined diff",
            ),
            *(
                pytest.param(
                    f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\nSubmodule lib/in {how}\n",
                    "line 7: .*`git diff --submodule=short`",
                    id=f"a submodule's move in words: {how}",
                )
                for how in (
                    "1f0c6e0..9b1dfa2:\n  > work",
                    "9b1dfa2...1f0c6e0 (rewind):",
                    "0000000...9b1dfa2 (new submodule)",
                    "9b1dfa2...0000000 (submodule deleted)",
                    "contains modified content",
                )
            ),
            pytest.param("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n", "no place inside", id="a way out"),
            pytest.param("--- /etc/x\n+++ /etc/x\n@@ -1 +1 @@\n-a\n+b\n", "no place inside", id="an absolute path"),
            pytest.param("--- a/.git/x\n+++ b/.git/x\n@@ -1 +1 @@\n-a\n+b\n", "no place inside", id="git's own folder"),
        ],
    )
    def test_refuses_what_is_no_diff(self, diff: str, message: str) -> None:
        """The message says what to do."""
        with pytest.raises(DiffError, match=message):
            parse_diff(diff)


class TestApplyDiff:
    """Diffs of git, applied without git."""

    @given(
        old=st.lists(st.sampled_from(["a", "b", "", "--- x", "+++ y", "@@ z", "\\ x"]), max_size=12),
        new=st.lists(st.sampled_from(["a", "b", "c", "", "-- ", "++"]), max_size=12),
        ends=st.tuples(st.sampled_from(["\n", ""]), st.sampled_from(["\n", ""])),
        context=st.sampled_from(["-U0", "-U3"]),
    )
    def test_makes_what_git_compared(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        old: list[str],
        new: list[str],
        ends: tuple[str, str],
        context: str,
    ) -> None:
        """Whatever the texts are, with a newline at their end or without, git's diff of them leads to and fro."""
        before, after = ("\n".join(lines) + end if lines else "" for lines, end in zip((old, new), ends, strict=True))
        diff = diff_of(tmp_path_factory.mktemp("d", numbered=True), before, after, context)
        if not diff:
            return
        [one] = parse_diff(diff)
        ended = "" if ends == ("\n", "\n") else "\n"  # what is at the end of the last line is not in the diff's lines
        assert apply_diff(one, before).rstrip(ended) == after.rstrip(ended)
        assert apply_diff(reverse_diff(one), after).rstrip(ended) == before.rstrip(ended)
        assert is_applied(one, after)
        lines = after.split("\n")
        assert all(lines[number - 1] == text for number, text in one.added)

    def test_refuses_a_text_that_it_was_not_made_from(self) -> None:
        """The place is named; no line is guessed."""
        [one] = parse_diff("--- a/x.py\n+++ b/x.py\n@@ -2 +2 @@\n-b\n+B\n")
        with pytest.raises(DiffError, match=r"x\.py:2: the diff does not fit"):
            apply_diff(one, "a\nB\n")
        assert is_applied(one, "a\nB\n")
