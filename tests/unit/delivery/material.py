"""Small projects to change: real git repositories with tests that really run."""

import sys
from pathlib import Path

from tests.unit.code_review.material import git, repository

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


def project(folder: Path) -> Path:
    """Make a repository whose one test fails, with something that is not committed in its working copy."""
    repository(folder, FILES)
    (folder / "notes.txt").write_text("mine\n")
    (folder / "app" / "sums.py").write_text(ADD + "# my own work in progress\n")
    return folder


def state(folder: Path) -> tuple[str, str, str, str]:
    """Return what a delivery must not change: the working copy, its branch, the branches and the worktrees."""
    return (
        git(folder, "status", "--porcelain=v2", "--branch"),
        git(folder, "diff"),
        git(folder, "for-each-ref", "--format=%(refname) %(objectname)"),
        git(folder, "worktree", "list", "--porcelain"),
    )


def at(folder: Path, commit: str, path: str) -> str:
    """Return a file as a commit has it."""
    return git(folder, "show", f"{commit}:{path}")
