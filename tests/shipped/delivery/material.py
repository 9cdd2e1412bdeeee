"""Small projects to change: real git repositories with tests that really run."""

import os
import subprocess
import sys
from pathlib import Path

from activities.delivery import sandbox

ADD = '''\
"""Sums."""


def add(one, two):
    """Return the sum."""
    return one - two
'''
ADD_TEST = '''\
"""Tests of sums."""

import unittest

from app.sums import add


class TestAdd(unittest.TestCase):
    """Sums."""

    def test_adds(self):
        """Two numbers."""
        self.assertEqual(add(1, 2), 3)
'''
FIX = """\
--- a/app/sums.py
+++ b/app/sums.py
@@ -3,4 +3,4 @@

 def add(one, two):
     \"\"\"Return the sum.\"\"\"
-    return one - two
+    return one + two
"""
TEST = [sys.executable, "-m", "unittest", "discover", "-s", "tests", "-t", "."]
"""How these projects are tested."""

FILES = {"app/__init__.py": "", "app/sums.py": ADD, "tests/__init__.py": "", "tests/test_sums.py": ADD_TEST}


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files into a folder and return it."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git without any configuration and return its output."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a repository with one commit of files."""
    write(folder, files)
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "begin")
    return folder


def project(folder: Path) -> Path:
    """Make a repository whose one test fails, with something that is not committed in its working copy."""
    repository(folder, FILES)
    (folder / "notes.txt").write_text("mine\n")
    (folder / "app" / "sums.py").write_text(ADD + "# my own work in progress\n")
    return folder


def state(folder: Path) -> tuple[object, ...]:
    """Return the state that a delivery must not change: working copy, branch, references, worktrees, git directory."""
    return (
        git(folder, "status", "--porcelain=v2", "--branch"),
        git(folder, "diff"),
        git(folder, "for-each-ref", "--format=%(refname) %(objectname)"),
        git(folder, "worktree", "list", "--porcelain"),
        sorted(path.name for path in (folder / ".git").iterdir()),
    )


def at(folder: Path, commit: str, path: str) -> str:
    """Return a file as a commit has it."""
    return git(folder, "show", f"{commit}:{path}")


def has_sandbox() -> bool:
    """Return whether a sandbox works here; in a container usually none does."""
    return sandbox._find_sandbox() in ("bubblewrap", "landlock")
