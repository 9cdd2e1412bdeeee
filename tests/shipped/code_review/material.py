"""Code to review: real files with known weaknesses, in folders and git repositories of their own."""

import subprocess
from pathlib import Path

WEAK = """\
import pickle
import subprocess

PASSWORD = "correct horse"


def listing(folder):
    subprocess.call("ls " + folder, shell=True)


def load(raw):
    return pickle.loads(raw)  # nosec
"""
SLOW = """\
import time


async def wait():
    time.sleep(1)


def names(ids, db):
    found = []
    for id in ids:
        found.append(db.execute("select name from users where id = ?", id))
    return found
"""
TEST = """\
def test_names():
    assert 1 + 1 == 2
"""
BROKEN = "def (:\n"
SHELL = "#!/bin/sh\neval $1\n"

FILES = {
    "app/weak.py": WEAK,
    "app/slow.py": SLOW,
    "app/broken.py": BROKEN,
    "tests/test_names.py": TEST,
    "bin/deploy.sh": SHELL,
    "README.md": "# Demo\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files into a new folder and return it."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git as a developer does, and return its output."""
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]
    result = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, check=True, text=True)
    return result.stdout


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a git repository with one commit of these files."""
    write(folder, files)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by path, including git's own."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
