"""The survey: what is listed, what is left out and why, and reading within limits."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.files import Limits, as_text, survey
from activities.project_init.records import ProjectError

Project = Callable[[Mapping[str, str | bytes]], Path]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


class TestSurvey:
    """What the list holds."""

    def test_lists_files_with_kind_lines_and_hash(self, project: Project) -> None:
        """Texts are told from binaries, and every file has the hash of its bytes."""
        tree = survey(project({"a.py": "x\ny", "b.bin": b"\0\1\2", "empty": ""}))
        found = {file.path: (file.kind, file.lines, file.size) for file in tree.listing.files}
        assert found == {"a.py": ("text", 2, 3), "b.bin": ("binary", 0, 3), "empty": ("text", 0, 0)}
        assert tree.by_path["empty"].sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    def test_is_the_same_every_time(self, project: Project) -> None:
        """The same folder gives the same listing, whatever order the disk has."""
        folder = project({f"{name}/{name}.py": name for name in "zyxabc"})
        assert survey(folder).listing == survey(folder).listing
        assert [file.path for file in survey(folder).listing.files] == [f"{name}/{name}.py" for name in "abcxyz"]

    def test_least_deep_files_come_first(self, project: Project) -> None:
        """Where files are cut, manifests at the top are kept, and the cut is told."""
        tree = survey(project({"a/b/c.py": "", "a/b.py": "", "z.toml": ""}), limits=Limits(files=2))
        assert list(tree.by_path) == ["z.toml", "a/b.py"]
        assert [(each.reason, each.count, each.examples) for each in tree.listing.left_out] == [
            ("over the limit of 2 files", 1, ("a/b/c.py",))
        ]

    def test_an_empty_folder_has_no_files(self, tmp_path: Path) -> None:
        """An uninitialized project is no error."""
        assert survey(tmp_path).listing.files == ()

    @pytest.mark.parametrize(
        ("name", "message"),
        [pytest.param("gone", "does not exist", id="missing"), pytest.param("file", "is a file", id="a file")],
    )
    def test_refuses_what_is_no_folder(self, tmp_path: Path, name: str, message: str) -> None:
        """The error says what was found and what to do."""
        (tmp_path / "file").touch()
        with pytest.raises(ProjectError, match=message):
            survey(tmp_path / name)

    def test_never_follows_links_nor_opens_pipes(self, project: Project) -> None:
        """A link out of the project, a loop and a pipe are named and not entered."""
        folder = project({"a.py": ""})
        (folder / "out").symlink_to("/etc")
        (folder / "loop").symlink_to("loop")
        os.mkfifo(folder / "pipe")
        tree = survey(folder)
        assert list(tree.by_path) == ["a.py"]
        assert {each.reason: each.count for each in tree.listing.left_out} == {
            "symbolic link, not followed": 2,
            "not a regular file": 1,
        }

    def test_a_huge_file_is_listed_but_not_read(self, project: Project) -> None:
        """A sparse file of 5 GiB costs nothing."""
        folder = project({})
        with (folder / "huge.bin").open("wb") as file:
            file.truncate(5 * 1024**3)
        tree = survey(folder)
        assert (tree.by_path["huge.bin"].kind, tree.by_path["huge.bin"].sha256) == ("unread", None)
        assert tree.listing.left_out[0].reason == "listed by size only: over the limit of 32 MiB"

    def test_a_spent_total_leaves_the_largest_files_unread(self, project: Project) -> None:
        """Where not everything can be read, small files are, whatever their names."""
        tree = survey(project({"a": "x" * 50, "b": "x" * 5, "c": "x" * 5}), limits=Limits(total_bytes=20))
        assert {path: file.kind for path, file in tree.by_path.items()} == {"a": "unread", "b": "text", "c": "text"}

    def test_a_name_that_is_not_utf8_is_named_with_escapes(self, project: Project) -> None:
        """Such a file is left out in words, because no document could link to it."""
        folder = project({})
        try:
            (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py"))).touch()
        except OSError:
            pytest.skip("this file system refuses such names")
        assert survey(folder).listing.left_out[0].examples == ("\\xff.py",)

    def test_a_folder_too_deep_to_open_is_told(self, project: Project) -> None:
        """What the system cannot open is left out with the system's reason."""
        folder = project({"a.py": ""})
        here = os.open(folder, os.O_RDONLY)
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=here)
            below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        assert any(each.reason.startswith("folder cannot be read") for each in survey(folder).listing.left_out)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_an_unreadable_file_is_listed_and_told(self, project: Project) -> None:
        """A file without permission is there, by name and size."""
        folder = project({"a.py": "x"})
        (folder / "a.py").chmod(0)
        tree = survey(folder)
        assert tree.by_path["a.py"].kind == "unread"
        assert tree.listing.left_out[0].reason == "cannot be read (Permission denied)"

    def test_progress_is_called_and_can_stop_it(self, project: Project) -> None:
        """Raising from the callback ends the survey with that exception."""

        class StopError(Exception):
            pass

        def stop(_: str) -> None:
            raise StopError

        with pytest.raises(StopError):
            survey(project({"a.py": ""}), progress=stop)

    def test_writes_nothing(self, project: Project) -> None:
        """The project's folder is the same before and after, times included."""
        folder = project({"a/b.py": "x"})
        before = [(path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]
        survey(folder)
        assert [(path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))] == before


class TestWalk:
    """Folders that are no checkout."""

    def test_leaves_out_installed_packages_caches_and_ignored_files(self, project: Project) -> None:
        """Each left out folder counts once, with its reason."""
        tree = survey(
            project(
                {
                    "node_modules/x/i.js": "",
                    "pkg/__pycache__/a.pyc": b"\0",
                    "dist/a.whl": b"\0",
                    ".baton/x": "",
                    "secret.txt": "",
                    ".gitignore": "secret.txt\n",
                    "pkg/a.py": "",
                }
            )
        )
        assert list(tree.by_path) == [".gitignore", "pkg/a.py"]
        assert {each.reason: each.examples for each in tree.listing.left_out} == {
            "installed packages": ("node_modules/",),
            "cache": ("pkg/__pycache__/",),
            "build output": ("dist/",),
            "ignored by .gitignore": ("secret.txt",),
        }

    def test_stops_at_the_limit_of_entries(self, project: Project) -> None:
        """A folder of millions is walked no further than allowed, and that is told."""
        tree = survey(project({f"{a}/{b}.py": "" for a in "abc" for b in "xyz"}), limits=Limits(entries=4))
        assert any(each.reason == "over the limit of 4 entries" for each in tree.listing.left_out)
        assert 0 < len(tree.by_path) < 9


@needs_git
class TestGit:
    """Checkouts, where git says what belongs."""

    def test_lists_tracked_and_new_files_but_no_ignored_ones(self, project: Project) -> None:
        """What `.gitignore` excludes is left out with that reason; a tracked `build` is source."""
        folder = project({"a.py": "", "build/b.py": "", "x.log": "", ".gitignore": "*.log\nnode_modules\n"})
        git(folder, "init", "-q")
        git(folder, "add", "a.py", "build")
        (folder / "node_modules").mkdir()
        (folder / "node_modules/m.js").touch()
        tree = survey(folder)
        assert tree.listing.method == "git"
        assert list(tree.by_path) == [".gitignore", "a.py", "build/b.py"]
        assert {each.reason for each in tree.listing.left_out} == {"ignored by .gitignore", "installed packages"}

    def test_a_folder_that_the_checkout_around_it_ignores_is_walked(self, project: Project) -> None:
        """An installed package inside somebody's checkout can be analysed."""
        folder = project({".gitignore": "venv/\n", "venv/pkg/a.py": ""})
        git(folder, "init", "-q")
        tree = survey(folder / "venv/pkg")
        assert (tree.listing.method, list(tree.by_path)) == ("walk", ["a.py"])

    def test_a_tracked_path_through_a_link_is_not_followed(self, project: Project, tmp_path: Path) -> None:
        """A folder that was replaced by a link leads nowhere."""
        folder = project({"a/b.py": "mine"})
        git(folder, "init", "-q")
        git(folder, "add", ".")
        shutil.rmtree(folder / "a")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere/b.py").write_text("theirs")
        (folder / "a").symlink_to(tmp_path / "elsewhere")
        assert "a/b.py" not in survey(folder).by_path

    def test_missing_and_nested_checkouts_are_told(self, project: Project) -> None:
        """A deleted file and a repository inside are left out with their reasons."""
        folder = project({"gone.py": "", "inner/x.py": ""})
        git(folder, "init", "-q")
        git(folder, "add", "gone.py")
        git(folder / "inner", "init", "-q")
        (folder / "gone.py").unlink()
        assert {each.reason: each.examples for each in survey(folder).listing.left_out} == {
            "tracked by git but missing": ("gone.py",),
            "nested git repository": ("inner/",),
        }

    def test_the_projects_own_git_settings_start_nothing(self, project: Project, tmp_path: Path) -> None:
        """A monitor that a hostile `.git/config` names is not run."""
        folder = project({"a.py": ""})
        git(folder, "init", "-q")
        trap = tmp_path / "trap.sh"
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
        trap.chmod(0o755)
        git(folder, "config", "core.fsmonitor", str(trap))
        survey(folder)
        assert not (tmp_path / "sprung").exists()


class TestSourceTree:
    """Reading after the survey."""

    def test_text_has_plain_line_ends_and_replaces_faults(self, project: Project) -> None:
        """Carriage returns, marks and bytes that are not UTF-8 come out as one would read them."""
        tree = survey(
            project(
                {"crlf": b"a\r\nb\rc", "latin": b"caf\xe9", "wide": "héllo".encode("utf-16"), "mark": b"\xef\xbb\xbfx"}
            )
        )
        assert [tree.text(name) for name in ("crlf", "latin", "wide", "mark")] == ["a\nb\nc", "caf\ufffd", "héllo", "x"]
        assert tree.by_path["crlf"].lines == 3

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            pytest.param("a.bin", b"\0", id="binary"),
            pytest.param("a.txt", b"x" * 200, id="too long"),
            pytest.param(".env", b"KEY=1", id="may hold secrets"),
        ],
    )
    def test_text_is_none_for_what_must_not_be_analysed(self, project: Project, name: str, content: bytes) -> None:
        """Such content is never quoted, and the listing says so for texts."""
        tree = survey(project({name: content}), limits=Limits(text_bytes=100))
        assert tree.text(name) is None
        assert tree.text("not listed") is None

    def test_a_file_that_became_a_link_is_not_read(self, project: Project, tmp_path: Path) -> None:
        """Between survey and reading, a file cannot be swapped for a way out."""
        folder = project({"a.py": "mine"})
        tree = survey(folder)
        (tmp_path / "secret").write_text("theirs")
        (folder / "a.py").unlink()
        (folder / "a.py").symlink_to(tmp_path / "secret")
        assert tree.text("a.py") is None

    def test_as_text_never_fails(self) -> None:
        """Any bytes are some text."""
        assert as_text(bytes(range(256))).startswith("\x00")
