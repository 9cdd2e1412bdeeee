"""Git, careful: it runs nothing that a checkout names, and says in one line why it refuses."""

from pathlib import Path

import pytest

from activities.workbench.git import Git, GitError, paths_of
from tests.unit.code_review.material import git, repository


class TestGit:
    """Git in one folder."""

    async def test_says_why_it_refuses(self, tmp_path: Path) -> None:
        """What git said, without its advice."""
        with pytest.raises(GitError, match=r"git rev-parse fails in .*: fatal: not a git repository"):
            await Git(tmp_path).run("rev-parse", "HEAD")

    async def test_finds_commits_by_any_name_and_nothing_else(self, tmp_path: Path) -> None:
        """A file, a tree or an option is no commit."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        head = git(root, "rev-parse", "HEAD").strip()
        tool = Git(root)
        assert [await tool.commit_of(name) for name in ("HEAD", "main", head[:10])] == [head] * 3
        assert [await tool.commit_of(name) for name in ("HEAD:a.py", "a.py", "--all", "")] == [None] * 4

    async def test_reads_the_configuration_of_nobody(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither the user's file nor variables of the worker change what it answers."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        (tmp_path / ".gitconfig").write_text("[alias]\n\tstatus = !touch sprung\n[core]\n\tquotePath = true\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("GIT_DIR", "/nowhere")
        (root / "ä.py").write_text("")
        assert await Git(root).line("status", "--porcelain") == "?? ä.py"

    async def test_fetches_nothing(self, tmp_path: Path) -> None:
        """A checkout may say that content is missing, and name the program that would fetch it."""
        root = repository(tmp_path / "r", {"a.py": "a = 1\n"})
        git(root, "config", "remote.origin.url", str(repository(tmp_path / "other", {"a.py": "a = 2\n"})))
        git(root, "config", "remote.origin.uploadpack", f"touch {tmp_path}/sprung; git-upload-pack")
        with pytest.raises(GitError, match="transport 'file' not allowed"):
            await Git(root).run("fetch", "origin")
        assert not (tmp_path / "sprung").exists()

    def test_reads_names_that_are_no_text(self) -> None:
        """They are shown, and break nothing."""
        assert paths_of(b"a\xff.py\0b c.py\0") == ["a\\xff.py", "b c.py"]
