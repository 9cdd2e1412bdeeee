"""The records of `project_init`. Every finding names its evidence, a file and where possible a line."""

from typing import Literal

from pydantic import Field

from activities.source_files import LanguageKind
from baton import BatonError
from baton.wire.records import Record, Sha256Hex

Purpose = Literal["install", "run", "test", "lint", "format", "build", "release", "other"]


class ProjectError(BatonError):
    """The project or the output folder cannot be used; the message says what to do."""


class Evidence(Record):
    """The file of a finding, and the line if there is one."""

    path: str
    line: int | None = Field(default=None, ge=1)

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


class SourceFile(Record):
    """A regular file; an `unread` one exceeds a limit and has only name and size."""

    path: str
    size: int = Field(ge=0)
    kind: Literal["text", "binary", "unread"]
    lines: int = Field(default=0, ge=0)
    sha256: Sha256Hex | None = None


class LeftOut(Record):
    """The number of entries omitted for one reason, with up to five examples."""

    reason: str
    count: int = Field(ge=1)
    examples: tuple[str, ...]


class Listing(Record):
    """The files of a project by depth and path, and the omissions."""

    name: str
    method: Literal["checkout", "folder"]
    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...] = ()


class Language(Record):
    """The files and lines in one language."""

    name: str
    kind: LanguageKind
    files: int
    lines: int


class Dependency(Record):
    """A dependency in a manifest; `requirement` is empty for any version."""

    name: str
    requirement: str = ""
    group: Literal["runtime", "development", "optional", "build"] = "runtime"
    evidence: Evidence


class Manifest(Record):
    """The content of a manifest such as `pyproject.toml` or `package.json`."""

    path: str
    ecosystem: Literal["python", "node", "rust", "go"]
    name: str = ""
    description: str = ""
    license: str = ""
    runtime: str = ""
    dependencies: tuple[Dependency, ...] = ()
    programs: tuple[str, ...] = ()
    scripts: dict[str, str] = Field(default_factory=dict)
    problem: str = ""


class Command(Record):
    """A shell command to run in the project's folder."""

    line: str
    purpose: Purpose
    origin: Literal["declared", "conventional"] = "declared"
    about: str = ""
    evidence: Evidence


class TechStack(Record):
    """The result of stage `detect-tech-stack`."""

    name: str
    description: str = ""
    languages: tuple[Language, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    commands: tuple[Command, ...] = ()
    license: str = ""
    tests: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()

    @property
    def packages(self) -> list[Manifest]:
        """The manifests of named packages below the project's folder."""
        return [manifest for manifest in self.manifests if manifest.name and "/" in manifest.path]


class RoadmapItem(Record):
    """Something to do; which matters most, a rule cannot know."""

    title: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=400)
    evidence: tuple[str, ...]


class WrittenFile(Record):
    """A file in the output folder."""

    path: str
    size: int
    sha256: Sha256Hex


class Documents(Record):
    """The result of stage `generate-docs`."""

    files: tuple[WrittenFile, ...]
    roadmap: tuple[RoadmapItem, ...] = ()


class KnowledgeIndex(Record):
    """The result of stage `build-knowledge`."""

    path: str
    sha256: Sha256Hex
    chunks: int
    files: int
    tokens: int
    left_out: tuple[LeftOut, ...] = ()


class Hit(Record):
    """A search result."""

    origin: Literal["source", "docs"]
    path: str
    title: str
    start: int
    end: int
    snippet: str


class Check(Record):
    """A check of stage `verify-ready`."""

    name: str
    ok: bool
    message: str


class Verification(Record):
    """The result of stage `verify-ready`: the checks of the documents, and what of the project nothing examined."""

    checks: tuple[Check, ...]
    not_examined: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Check, ...]:
        """The failed checks."""
        return tuple(check for check in self.checks if not check.ok)
