"""The reviewer's rules, each on a real change that breaks it."""

from pathlib import Path

import pytest

from activities.delivery.records import Order
from activities.delivery.reviewing import analyse_diff, review_diff
from activities.workbench.diffs import parse_diff
from tests.unit.code_review.material import git, repository, write

BEFORE = {
    "bare.py": "x = 1",
    "app/a.py": "x = 1\n",
    "tests/test_a.py": "def test_a():\n    assert 1\n\n\ndef test_b():\n    assert 1\n",
    "data.json": "{}\n",
}


def change(folder: Path, files: dict[str, str]) -> str:
    """Return the diff that these files are to the ones before."""
    root = repository(folder / "r", BEFORE)
    write(root, files)
    git(root, "add", "-A")
    return git(root, "diff", "--cached")


class TestReviewDiff:
    """What blocks, and where."""

    @pytest.mark.parametrize(
        ("files", "place", "rule"),
        [
            pytest.param({"app/a.py": "<<<<<<< HEAD\nx = 1\n"}, "app/a.py:1", "conflict", id="a mark of a conflict"),
            pytest.param({"app/a.py": "x = 1\nbreakpoint()\n"}, "app/a.py:2", "debugging", id="a stop for a debugger"),
            pytest.param({"app/a.py": "x = (\n"}, "app/a.py:1", "syntax", id="broken Python"),
            pytest.param({"data.json": '{"a" 1}\n'}, "data.json:1", "syntax", id="broken JSON"),
            pytest.param({"p.toml": "a = = 1\n"}, "p.toml", "syntax", id="broken TOML"),
            pytest.param({".env": "TOKEN=1\n"}, ".env", "secrets", id="a file with secrets"),
            pytest.param(
                {"app/k.py": 'K = """-----BEGIN PRIVATE KEY-----"""\n'}, "app/k.py:1", "private-key", id="a private key"
            ),
            pytest.param(
                {"tests/test_a.py": "import pytest\n\n\n@pytest.mark.skip\n" + BEFORE["tests/test_a.py"]},
                "tests/test_a.py:4",
                "test-skipped",
                id="a test switched off",
            ),
            pytest.param(
                {"tests/test_a.py": "def test_a():\n    assert 1\n"},
                "tests/test_a.py",
                "tests-removed",
                id="fewer tests",
            ),
            pytest.param({"app/b.py": "y = 1\n" * 60}, "app/b.py", "size", id="more than can be reviewed"),
            pytest.param({"docs/b.md": "b\n"}, "docs/b.md", "outside", id="a file that may not change"),
            pytest.param({"bare.py": "x = 1\nbreakpoint()"}, "bare.py:2", "debugging", id="a last line without an end"),
        ],
    )
    def test_blocks(self, tmp_path: Path, files: dict[str, str], place: str, rule: str) -> None:
        """With the rule's name and the place."""
        diffs = parse_diff(change(tmp_path, files))
        paths = ["app/*", "tests/*", "*.json", "*.toml", ".env"]
        order = Order.of({"repository": "r", "command": "x", "most_lines": 50, "paths": [*paths]})
        remarks = review_diff(diffs, tmp_path / "r", order)
        assert (place, rule) in [(one.place, one.rule) for one in remarks if one.blocks]

    @pytest.mark.parametrize(
        ("old", "new", "place", "rule"),
        [
            pytest.param("tests/test_a.py", "app/notes.txt", "app/notes.txt", "tests-removed", id="tests"),
            pytest.param("bare.py", "app/bare.py", "bare.py", "outside", id="what may not change"),
        ],
    )
    def test_sees_what_a_renaming_takes_away(self, tmp_path: Path, old: str, new: str, place: str, rule: str) -> None:
        """The diff has no line of it, and names the new place alone."""
        root = repository(tmp_path / "r", BEFORE)
        git(root, "mv", old, new)
        diffs = parse_diff(git(root, "diff", "--cached", "--find-renames"))
        order = Order.of({"repository": "r", "command": "x", "paths": ["app/*", "tests/*"]})
        blocking = [(one.place, one.rule) for one in review_diff(diffs, root, order) if one.blocks]
        assert blocking == [(place, rule)]

    def test_takes_no_line_under_a_title_for_a_conflict(self, tmp_path: Path) -> None:
        """Seven equals signs are as long as "Changes"; beside other marks they are one."""
        title = "Changes\n=======\n"
        order = Order.of({"repository": "r", "command": "x"})
        assert review_diff(parse_diff(change(tmp_path / "a", {"c.rst": title})), tmp_path / "a" / "r", order) == []
        both = parse_diff(change(tmp_path / "b", {"c.rst": f"<<<<<<< mine\n=======\n{title}"}))
        found = [one.place for one in review_diff(both, tmp_path / "b" / "r", order) if one.rule == "conflict"]
        assert found == ["c.rst:1", "c.rst:2", "c.rst:4"]

    def test_has_nothing_to_say_of_a_plain_change(self, tmp_path: Path) -> None:
        """More tests, a renamed file, a word like those it looks for: none of it blocks."""
        files = {"app/a.py": "debugger_name = '<<<<'\n", "tests/test_a.py": BEFORE["tests/test_a.py"] * 2}
        diffs = parse_diff(change(tmp_path, files))
        assert review_diff(diffs, tmp_path / "r", Order.of({"repository": "r", "command": "x"})) == []

    @pytest.mark.parametrize(
        ("path", "before", "after"),
        [
            pytest.param("old.py", 'print "x"\n', 'print "y"\n', id="Python 2"),
            pytest.param("{{name}}.json", '{"a": {{name}}}\n', '{"b": {{name}}}\n', id="a template"),
        ],
    )
    def test_does_not_block_for_what_was_broken_before(
        self, tmp_path: Path, path: str, before: str, after: str
    ) -> None:
        """The change has not broken it; that it is so is still said."""
        root = repository(tmp_path / "r", {path: before})
        write(root, {path: after})
        remarks = review_diff(parse_diff(git(root, "diff")), root, Order.of({"repository": "r", "command": "x"}))
        assert [(one.rule, one.blocks) for one in remarks] == [("syntax", False)]

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            pytest.param("app/a.py", "\ufeffx = 2\n", id="a mark of the byte order"),
            pytest.param("web/tsconfig.base.json", '{\n  // for the build\n  "strict": true,\n}\n', id="tsconfig"),
            pytest.param(".vscode/settings.json", '{\n  /* ours */\n  "a": 1\n}\n', id="an editor's settings"),
        ],
    )
    def test_knows_what_is_valid_where_it_stands(self, tmp_path: Path, path: str, text: str) -> None:
        """Files of editors and compilers are JSON with comments, and a mark at the beginning is no character."""
        diffs = parse_diff(change(tmp_path, {path: text}))
        assert review_diff(diffs, tmp_path / "r", Order.of({"repository": "r", "command": "x"})) == []


class TestAnalyseDiff:
    """The analysers of `code_review`, on the added lines."""

    async def test_blocks_a_grave_weakness_that_the_change_adds(self, tmp_path: Path) -> None:
        """A slight one is said, and does not block."""
        text = "import subprocess\n\n\ndef f(x):\n    return subprocess.call(x, shell=True)\n"
        diff = change(tmp_path, {"app/a.py": text})
        remarks, analysed = await analyse_diff(diff, tmp_path / "r")
        assert [(one.place, one.rule) for one in remarks if one.blocks] == [("app/a.py:5", "B602")]
        assert any(not one.blocks for one in remarks)
        assert analysed == "analysed by bandit, ruff, radon, loops"

    async def test_says_what_could_not_be_analysed(self, tmp_path: Path) -> None:
        """A line end that only Python knows hides what follows from the analysers: they were said to have read it."""
        root = repository(tmp_path / "r", BEFORE)
        (root / "app/a.py").write_bytes(b"# see\reval(x)\n")
        diff = "--- a/app/a.py\n+++ b/app/a.py\n@@ -1 +1 @@\n-x = 1\n+# see\reval(x)\n"
        [remark], _ = await analyse_diff(diff, root)
        assert (remark.path, remark.rule, remark.blocks) == ("app/a.py", "not-analysed", False)
        assert remark.message.startswith("not analysed: a carriage return within a line")
