"""The survey and the output folder: what is read, what is left out and why, and what is never touched."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.project_init.files import MARK, Limits, check_output, survey, write_bytes
from activities.project_init.records import ProjectError
from activities.source_files import decode_text
from tests.shipped.project_init.conftest import Files

Project = Callable[[Files], Path]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


class TestSurvey:
    def test_files_have_kind_lines_and_hash_in_a_fixed_order(self, project: Project) -> None:
        """The least deep files come first; a limit cuts the deepest, and says so."""
        folder = project({"b/deep/x.py": "", "b.bin": b"\0\1\2", "a.py": "x\ny", "b/y.py": "", "empty": ""})
        tree = survey(folder)
        matches = {file.path: (file.kind, file.lines, file.size) for file in tree.listing.files}
        assert matches == {
            "a.py": ("text", 2, 3),
            "b.bin": ("binary", 0, 3),
            "empty": ("text", 0, 0),
            "b/y.py": ("text", 0, 0),
            "b/deep/x.py": ("text", 0, 0),
        }
        assert list(tree.by_path) == list(matches)
        assert tree.by_path["empty"].sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        assert survey(folder) == tree
        limited = survey(folder, limits=Limits(files=4))
        assert [omission.examples for omission in limited.listing.left_out if "limit" in omission.reason] == [
            ("b/deep/x.py",)
        ]

    def test_what_is_not_a_folder_is_refused(self, tmp_path: Path) -> None:
        """The error says what was found."""
        (tmp_path / "file").touch()
        for name, message in (("gone", "does not exist"), ("file", "is a file")):
            with pytest.raises(ProjectError, match=message):
                survey(tmp_path / name)

    def test_links_and_pipes_are_not_entered_and_huge_files_not_read(self, project: Project) -> None:
        """They are named; a sparse file of 5 GiB costs nothing."""
        folder = project({"a.py": ""})
        (folder / "out").symlink_to("/etc")
        (folder / "loop").symlink_to("loop")
        os.mkfifo(folder / "pipe")
        with (folder / "huge.bin").open("wb") as file:
            file.truncate(5 * 1024**3)
        tree = survey(folder)
        assert {file.path: file.kind for file in tree.listing.files} == {"a.py": "text", "huge.bin": "unread"}
        reasons = {omission.reason: omission.count for omission in tree.listing.left_out}
        assert reasons["symbolic link, not followed"] == 2

    def test_a_folder_that_is_not_a_checkout_has_its_own_rules(self, project: Project) -> None:
        """Caches, packages and what a `.gitignore` excludes are left out with their reasons."""
        tree = survey(
            project(
                {
                    ".gitignore": "*.log\n/kept/*\n!/kept/this.txt\n",
                    "a.py": "",
                    "x.log": "",
                    "kept/this.txt": "",
                    "kept/that.txt": "",
                    "sub/.gitignore": "*.tmp\n",
                    "sub/b.tmp": "",
                    "sub/c.log": "",
                    "build/out.js": "",
                    "pkg/build/__init__.py": "",
                    "node_modules/m.js": "",
                }
            )
        )
        assert tree.listing.method == "folder"
        assert set(tree.by_path) == {".gitignore", "a.py", "kept/this.txt", "sub/.gitignore", "pkg/build/__init__.py"}
        assert {omission.reason: omission.count for omission in tree.listing.left_out} == {
            "ignored, installed or built": 6
        }

    def test_git_says_what_belongs_to_a_checkout(self, project: Project, tmp_path: Path) -> None:
        """A tracked `build` is source; a folder that became a link, a nested checkout and hostile settings are not."""
        folder = project({"a.py": "", "build/b.py": "", "x.log": "", ".gitignore": "*.log\n", "was/c.py": ""})
        git(folder, "init", "-q")
        git(folder, "add", "a.py", "build", "was")
        shutil.rmtree(folder / "was")
        (folder / "was").symlink_to(tmp_path)
        (folder / "inner").mkdir()
        git(folder / "inner", "init", "-q")
        (folder / "inner/x.py").touch()
        trap = tmp_path / "trap.sh"
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
        trap.chmod(0o755)
        git(folder, "config", "core.fsmonitor", str(trap))
        tree = survey(folder)
        assert (tree.listing.method, list(tree.by_path)) == ("checkout", [".gitignore", "a.py", "build/b.py"])
        assert {omission.reason for omission in tree.listing.left_out} == {
            "ignored, installed or built",
            "nested git repository",
            "symbolic link, not followed",
        }
        assert not (tmp_path / "sprung").exists()

    def test_texts_are_read_within_limits(self, project: Project, tmp_path: Path) -> None:
        """Line ends and encodings are made plain; secrets, long texts and swapped files are not read."""
        folder = project(
            {
                "crlf": b"a\r\nb\rc",
                "latin": b"caf\xe9 au lait",
                "wide": "héllo".encode("utf-16"),
                "mark": b"\xef\xbb\xbfx",
                ".env": b"KEY=1",
                "long": b"x" * 200,
                "swapped": b"mine",
            }
        )
        tree = survey(folder, limits=Limits(text_bytes=100))
        (folder / "swapped").unlink()
        (folder / "swapped").symlink_to(folder / "crlf")
        assert {name: tree.text(name) for name in tree.by_path} == {
            "crlf": "a\nb\nc",
            "latin": "caf\ufffd au lait",
            "wide": "héllo",
            "mark": "x",
            ".env": None,
            "long": None,
            "swapped": None,
        }
        assert decode_text(bytes(range(256))).startswith("\x00")


class TestOutput:
    def test_only_our_own_files_are_written_over(self, project: Project, tmp_path: Path) -> None:
        """Not in the project, a folder of it or a link to it; not a page of somebody else, and not into a file."""
        source = project({"a.py": ""})
        (tmp_path / "link").symlink_to(source)
        (tmp_path / "other").mkdir()
        (tmp_path / "other/PROJECT.md").write_text("mine")
        for wrong in (source, source / "docs", source / "x.baton/y", tmp_path / "link", tmp_path / "other"):
            with pytest.raises(ProjectError):
                check_output(source, wrong)
        with pytest.raises(ProjectError, match="cannot be written"):
            write_bytes(tmp_path / "other/PROJECT.md", "a.md", b"")
        assert (tmp_path / "other/PROJECT.md").read_text() == "mine"
        (tmp_path / "other/PROJECT.md").write_text(f"{MARK}\n")
        for right in (tmp_path / "deep/out", source / ".baton/init", tmp_path / "other"):
            check_output(source, right)
        assert [path.name for path in source.iterdir()] == ["a.py"]

    def test_files_are_replaced_whole_and_links_not_followed(self, tmp_path: Path) -> None:
        """A planted link in the output folder leads nowhere, and nothing is left behind."""
        (tmp_path / "victim").write_text("safe")
        (tmp_path / "out").mkdir()
        (tmp_path / "out/a.md").symlink_to(tmp_path / "victim")
        write_bytes(tmp_path / "out", "a.md", b"new")
        assert (tmp_path / "victim").read_text() == "safe"
        assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [("a.md", "new")]
        assert (tmp_path / "out/a.md").stat().st_mode & 0o777 == 0o644
