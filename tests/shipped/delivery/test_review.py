"""The reviewer's rules, each on a real change that breaks it."""

from pathlib import Path
from typing import Any

from activities.delivery.changes import review
from activities.delivery.records import Order, Remark
from activities.delivery.repository import Repository
from tests.shipped.delivery.material import git, repository, write

BEFORE = {
    "bare.py": "x = 1",
    "app/a.py": "x = 1\n",
    "old.py": 'print "x"\n',
    "tests/test_a.py": "def test_a():\n    assert 1\n\n\ndef test_b():\n    assert 1\n",
    "data.json": "{}\n",
}


async def reviewed(folder: Path, files: dict[str, str], gone: tuple[str, ...] = (), **order: Any) -> list[Remark]:
    root = repository(folder, BEFORE)
    write(root, files)
    for path in gone:
        (root / path).unlink()
    git(root, "add", "-A")
    git(root, "commit", "-qm", "change")
    opened = await Repository.of(root, "t-1")
    await opened.open()
    params: dict[str, Any] = {"repository": "r", "command": "x", **order}
    base, commit = git(root, "rev-parse", "HEAD~", "HEAD").split()
    return await review(opened, Order.of(params), base, commit)


async def test_what_blocks_is_named_with_rule_and_place(tmp_path: Path) -> None:
    """One change for each rule."""
    tests = BEFORE["tests/test_a.py"]
    limits: dict[str, Any] = {"most_lines": 50, "paths": ["app/*", "tests/*", "*.json", "*.toml", "*.py", ".env"]}
    for number, (files, place, rule) in enumerate(
        (
            ({"app/a.py": "<<<<<<< HEAD\nx = 1\n"}, "app/a.py:1", "conflict"),
            ({"app/a.py": "x = 1\nbreakpoint()\n"}, "app/a.py:2", "debugging"),
            ({"bare.py": "x = 1\nbreakpoint()"}, "bare.py:2", "debugging"),
            ({"app/a.py": "x = (\n"}, "app/a.py:1", "syntax"),
            ({"data.json": '{"a" 1}\n'}, "data.json:1", "syntax"),
            ({"p.toml": "a = = 1\n"}, "p.toml", "syntax"),
            ({".env": "TOKEN=1\n"}, ".env", "secrets"),
            ({"app/k.py": 'K = """-----BEGIN PRIVATE KEY-----"""\n'}, "app/k.py:1", "private-key"),
            ({"tests/test_a.py": f"@pytest.mark.skip\n{tests}"}, "tests/test_a.py:1", "test-skipped"),
            ({"tests/test_a.py": "def test_a():\n    assert 1\n"}, "tests/test_a.py", "tests-removed"),
            ({"app/b.py": "y = 1\n" * 60}, "app/b.py", "size"),
            ({"docs/b.md": "b\n"}, "docs/b.md", "outside"),
        )
    ):
        remarks = await reviewed(tmp_path / str(number), files, **limits)
        assert (place, rule) in [(remark.place, remark.rule) for remark in remarks if remark.blocks], rule


async def test_a_renaming_hides_nothing(tmp_path: Path) -> None:
    """Tests moved to where they never run count as removed; a file that may not change may not move."""
    moved = {"app/notes.txt": BEFORE["tests/test_a.py"]}
    remarks = await reviewed(tmp_path / "a", moved, gone=("tests/test_a.py",))
    assert [(remark.place, remark.rule) for remark in remarks] == [("tests/test_a.py", "tests-removed")]
    remarks = await reviewed(tmp_path / "b", {"app/bare.py": "x = 1"}, gone=("bare.py",), paths=["app/*"])
    assert [(remark.place, remark.rule) for remark in remarks] == [("bare.py", "outside")]


async def test_an_ordinary_change_has_no_remarks(tmp_path: Path) -> None:
    """More tests, a title, JSON with comments, a byte order mark, words like those that the rules look for."""
    files = {
        "app/a.py": "\ufeffdebugger_name = '<<<<'\n",
        "tests/test_a.py": BEFORE["tests/test_a.py"] * 2,
        "c.rst": "Changes\n=======\n",
        "web/tsconfig.base.json": '{\n  // for the build\n  "strict": true,\n}\n',
    }
    assert await reviewed(tmp_path / "r", files) == []


async def test_what_was_broken_before_does_not_block(tmp_path: Path) -> None:
    """The change did not break it, so the remark does not block."""
    remarks = await reviewed(tmp_path / "r", {"old.py": 'print "y"\n'})
    assert [(remark.rule, remark.blocks) for remark in remarks] == [("syntax", False)]
