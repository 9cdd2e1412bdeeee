"""Makes, extends and upgrades projects with copier.

`templates` has a folder for each version of the template. A released folder never changes, because an upgrade is a
three-way merge of the old version's output, the new version's output and the project. Copier reads versions from the
tags of a git repository, so an upgrade makes a repository of these folders, inside the project's `.baton`.
"""

import os
import shutil
import subprocess
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baton.errors import BatonError
from baton.new.names import Addition, Template

try:
    import copier
    import copier.errors
    import yaml
    from packaging.version import Version
except ModuleNotFoundError as error:
    raise BatonError(f"`baton new` and `baton add` need {error.name}: pip install 'temporal-baton[new]'") from error

ANSWERS = ".copier-answers.yml"
"""The file that marks a project, with the version of its template."""
TEMPLATES = Path(__file__).with_name("templates")
ADDITIONS = Path(__file__).with_name("additions")
_REPOSITORY = Path(".baton/templates")  # as the answers name it


@dataclass(frozen=True)
class Upgrade:
    """The result of an upgrade: the template's versions, and the files with conflicts for a person to resolve."""

    before: str
    after: str
    conflicts: list[str]


def make(folder: Path, name: str, package: str, template: Template) -> list[str]:
    """Make a project, as a git repository unless it is inside one, and return its files.

    Raises:
        BatonError: The folder exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BatonError(f"{str(folder)!r} already exists and is not empty; choose another name")
    _copy(_list_versions()[-1], folder, {"name": name, "package": package, "template": template.value})
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if shutil.which("git") and _git(folder, "rev-parse", "--git-dir").returncode:
        _git(folder, "init", "--quiet")
    return files


def add(project: Path, addition: Addition, name: str) -> list[str]:
    """Add a stage or a pipeline, with its test, to a project; return the new files.

    Raises:
        BatonError: It is not a project of `baton new`, or one of the files already exists.
    """
    package = _read_answers(project)["package"]
    template = ADDITIONS / addition.value
    files = [
        path.relative_to(template).as_posix().replace("{{ package }}", package).replace("{{ name }}", name)
        for path in sorted(template.rglob("*.jinja"))
    ]
    new_files = [file.removesuffix(".jinja") for file in files]
    if existing := [file for file in new_files if (project / file).exists()]:
        raise BatonError(f"file {existing[0]!r} already exists; choose another name")
    _copy(template, project, {"name": name, "package": package})
    return new_files


def upgrade(project: Path) -> Upgrade:
    """Merge the changes of the newest template into a project.

    Raises:
        BatonError: It is not a project of `baton new`, has uncommitted changes, or git is missing.
    """
    before, versions = str(_read_answers(project)["_commit"]), _list_versions()
    after = versions[-1].name
    if before not in {version.name for version in versions}:
        raise BatonError(f"this Baton does not know version {before} of its template; update Baton first")
    if before == after:
        return Upgrade(before, after, [])
    if not shutil.which("git"):
        raise BatonError("an upgrade needs git; install it, or run this where it is")
    repository = project / _REPOSITORY
    try:
        _make_repository(repository, versions)
        with chdir(project):  # the answers have the repository's path relative to it
            copier.run_update(vcs_ref=after, defaults=True, overwrite=True, quiet=True)
    except copier.errors.CopierError as error:
        raise BatonError(str(error)) from error
    finally:
        shutil.rmtree(repository, ignore_errors=True)
    unmerged = _git(project, "diff", "--name-only", "--diff-filter=U", "--relative")
    return Upgrade(before, after, unmerged.stdout.splitlines())


def _list_versions() -> list[Path]:
    """Return the folders of the template, the newest version last."""
    return sorted((path for path in TEMPLATES.iterdir() if path.is_dir()), key=lambda path: Version(path.name))


def _copy(template: Path, folder: Path, answers: dict[str, str]) -> None:
    copier.run_copy(str(template), folder, answers, defaults=True, quiet=True)


def _read_answers(project: Path) -> dict[str, Any]:
    try:
        return dict(yaml.safe_load((project / ANSWERS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise BatonError(f"{str(project)!r} is not a project of `baton new`: it has no {ANSWERS}") from None


def _make_repository(repository: Path, versions: list[Path]) -> None:
    """Make a git repository with a commit and a tag for each version of the template."""
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    _git(repository, "init", "--quiet")
    for version in versions:
        for path in repository.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(version, repository, dirs_exist_ok=True)
        for arguments in (
            ["add", "--all", "--force"],
            ["commit", "--quiet", "--message", version.name],
            ["tag", version.name],
        ):
            result = _git(repository, *arguments)
            if result.returncode:
                raise BatonError(f"git {arguments[0]} failed: {result.stderr.strip()}")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git without the user's settings for commits."""
    settings = {
        "user.name": "Baton",
        "user.email": "baton@localhost",
        "commit.gpgSign": "false",
        "core.autocrlf": "false",
    }
    settings |= {"core.hooksPath": os.devnull, "core.safecrlf": "false", "tag.gpgSign": "false"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return subprocess.run(
        [shutil.which("git") or "git", *options, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
