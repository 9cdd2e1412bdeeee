"""What the stages of `project_init` find, as frozen records that travel between them as JSON.

Every finding names its evidence, a file and where possible a line. Paths are relative to the project, with forward
slashes.
"""

from typing import Literal

from pydantic import Field

from activities.source_files import LanguageKind
from baton import BatonError
from baton.wire.records import Record, Sha256Hex

Purpose = Literal["install", "run", "test", "lint", "format", "build", "release", "other"]
Priority = Literal["P1", "P2", "P3"]


class ProjectError(BatonError):
    """The project or the output folder cannot be used; the message says what to do."""


class Evidence(Record):
    """Where a finding was read: a file, and the line where there is one."""

    path: str
    line: int | None = Field(default=None, ge=1)

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


class SourceFile(Record):
    """One regular file; `unread` is listed by name and size only, because a limit kept it from being read."""

    path: str
    size: int = Field(ge=0)
    kind: Literal["text", "binary", "unread"]
    lines: int = Field(default=0, ge=0)
    sha256: Sha256Hex | None = None


class LeftOut(Record):
    """How many entries were left out for one reason, with up to five examples."""

    reason: str
    count: int = Field(ge=1)
    examples: tuple[str, ...]


class Listing(Record):
    """Every file of a project, by depth and path, and what was left out."""

    name: str
    method: Literal["checkout", "folder"]
    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...] = ()


class Language(Record):
    """How much of the project is written in one language."""

    name: str
    kind: LanguageKind
    files: int
    lines: int


class Dependency(Record):
    """A package that a manifest asks for; `requirement` is empty if any version will do."""

    name: str
    requirement: str = ""
    group: Literal["runtime", "development", "optional", "build"] = "runtime"
    evidence: Evidence


class Manifest(Record):
    """What a manifest such as `pyproject.toml` or `package.json` declares, in one shape for every ecosystem."""

    path: str
    ecosystem: Literal["python", "node", "rust", "go"]
    name: str = ""
    description: str = ""
    license: str = ""
    runtime: str = ""
    pinned: bool = False
    dependencies: tuple[Dependency, ...] = ()
    programs: tuple[str, ...] = ()
    scripts: dict[str, str] = Field(default_factory=dict)
    problem: str = ""


class Command(Record):
    """A line to type in the project's folder."""

    line: str
    purpose: Purpose
    origin: Literal["declared", "conventional"] = "declared"
    about: str = ""
    evidence: Evidence


class TechStack(Record):
    """What stage `detect-tech-stack` finds."""

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


class RoadmapItem(Record):
    """A piece of work: P1 is a risk now or blocks others, P2 costs something every week, P3 is worth doing."""

    priority: Priority
    title: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=400)
    evidence: tuple[str, ...]


class WrittenFile(Record):
    """A file in the output folder."""

    path: str
    size: int
    sha256: Sha256Hex


class Documents(Record):
    """What stage `generate-docs` wrote."""

    files: tuple[WrittenFile, ...]
    roadmap: tuple[RoadmapItem, ...] = ()


class KnowledgeIndex(Record):
    """What stage `build-knowledge` built: chunks of text from files, and what was left out."""

    path: str
    sha256: Sha256Hex
    chunks: int
    files: int
    tokens: int
    left_out: tuple[LeftOut, ...] = ()


class Hit(Record):
    """An answer of the index."""

    score: float
    origin: Literal["source", "docs"]
    path: str
    title: str
    start: int
    end: int
    snippet: str


class Check(Record):
    """One claim that stage `verify-ready` checked; only a failed `error` makes the project not ready."""

    name: str
    ok: bool
    severity: Literal["error", "warning"] = "error"
    message: str


class Verification(Record):
    """What stage `verify-ready` concluded."""

    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        """Whether every check that matters holds."""
        return all(check.ok or check.severity == "warning" for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that do not hold, warnings included."""
        return tuple(check for check in self.checks if not check.ok)
