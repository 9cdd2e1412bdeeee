"""What the stages of `project_init` find, as frozen records that cross process borders as JSON.

Every finding carries its evidence, a file and where possible a line, so that a reader can check it without
running anything. Paths are relative to the project, with forward slashes, on every system.
"""

from typing import Literal

from pydantic import Field

from baton.artifacts.records import Sha256Hex
from baton.errors import BatonError
from baton.wire.records import Record

FileKind = Literal["text", "binary", "unread"]
"""`unread`: listed by name and size alone, because reading it would break a limit."""

LanguageKind = Literal["programming", "markup", "data", "prose"]
DependencyGroup = Literal["runtime", "development", "optional", "build", "peer", "indirect"]
CommandOrigin = Literal["declared", "conventional"]
"""`declared`: the project names it. `conventional`: it follows from a manifest, by the tool's own custom."""

Purpose = Literal["install", "run", "test", "lint", "format", "build", "release", "other"]
Priority = Literal["P1", "P2", "P3"]
Severity = Literal["error", "warning", "info"]


class ProjectError(BatonError):
    """The project or the output folder cannot be used as asked; the message says what to do."""


class Evidence(Record):
    """Where a finding was read.

    Attributes:
        path: File, relative to the project.
        line: Line, counted from 1, or None for the file as a whole.

    Example:
        >>> str(Evidence(path="pyproject.toml", line=3))
        'pyproject.toml:3'
    """

    path: str
    line: int | None = Field(default=None, ge=1)

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


class SourceFile(Record):
    """One regular file of the project.

    Attributes:
        path: Relative to the project.
        size: Bytes.
        kind: Whether its content is text, binary, or was not read.
        lines: Lines of a text, 0 for anything else.
        sha256: Digest of the whole content; None where `kind` is `unread`.
    """

    path: str
    size: int = Field(ge=0)
    kind: FileKind
    lines: int = Field(default=0, ge=0)
    sha256: Sha256Hex | None = None


class LeftOut(Record):
    """Files or folders that were not looked at, for one reason.

    Attributes:
        reason: Why, as a short clause.
        count: How many entries; an unvisited folder counts as one.
        examples: Up to five of them.
    """

    reason: str
    count: int = Field(ge=1)
    examples: tuple[str, ...]


class Listing(Record):
    """Every file of a project and everything that was left out of the list.

    Attributes:
        name: The folder's own name.
        method: `git` where git said which files belong, `walk` where the folder was walked.
        files: Sorted by depth, then by path.
        left_out: Sorted by reason.
    """

    name: str
    method: Literal["git", "walk"]
    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...] = ()


class Language(Record):
    """How much of the project is written in one language."""

    name: str
    kind: LanguageKind
    files: int
    bytes: int
    lines: int


class Dependency(Record):
    """A package that a manifest asks for.

    Attributes:
        name: As the manifest spells it.
        requirement: The version asked for, as written, or "" where any version is accepted.
        group: What it is needed for.
        evidence: Where it is declared.
    """

    name: str
    requirement: str
    group: DependencyGroup
    evidence: Evidence


class Technology(Record):
    """A framework, library, tool or service that the project uses, and how that is known."""

    name: str
    category: str
    version: str = ""
    evidence: Evidence


class EntryPoint(Record):
    """Where the program starts.

    Attributes:
        name: What one calls it: a console script, a binary, a folder.
        kind: For example `console script`, `main module`, `binary`, `container command`.
        target: The module, file or command that is started.
        evidence: Where it is declared.
    """

    name: str
    kind: str
    target: str
    evidence: Evidence


class Script(Record):
    """A named task of a manifest or a task runner, with its body.

    Attributes:
        name: `test` in `npm run test` or `make test`.
        body: What it runs; "" where the runner does not say on one line.
        about: The author's own description, or "".
        evidence: Where it is declared.
    """

    name: str
    body: str
    evidence: Evidence
    about: str = ""


class Manifest(Record):
    """What one manifest (`pyproject.toml`, `package.json`, …) declares, in one shape for every ecosystem.

    Attributes:
        path: The manifest's file.
        ecosystem: `python`, `node`, `go`, `rust`, `jvm`, `ruby`, `php`, `dotnet`, `dart`, `elixir`, `cmake`,
            `autotools`, `meson`, `perl`.
        name: The project's or package's name.
        version: As declared.
        description: One line.
        license: As declared: an SPDX expression or the author's words.
        license_line: Where that stands.
        runtime: The platform version asked for, for example `Python >=3.11`.
        runtime_line: Where that stands.
        builder: The build backend or build tool.
        dependencies: Everything it asks for, indirect ones included.
        entry_points: What it installs to be run.
        scripts: Its named tasks.
        tools: Tools that it configures.
        problem: Why it could not be read; the other fields are then empty.
    """

    path: str
    ecosystem: str
    name: str = ""
    version: str = ""
    description: str = ""
    license: str = ""
    license_line: int | None = None
    runtime: str = ""
    runtime_line: int | None = None
    builder: str = ""
    dependencies: tuple[Dependency, ...] = ()
    entry_points: tuple[EntryPoint, ...] = ()
    scripts: tuple[Script, ...] = ()
    tools: tuple[Technology, ...] = ()
    problem: str = ""


class Command(Record):
    """One line to type in the project's folder.

    Attributes:
        line: The command itself.
        purpose: What it is for.
        origin: Whether the project declares it or a tool's custom implies it.
        about: What it does, where that is known.
        evidence: Where it was found, or what it follows from.
    """

    line: str
    purpose: Purpose
    origin: CommandOrigin
    about: str = ""
    evidence: Evidence


class License(Record):
    """A licence that the project names.

    Attributes:
        spdx: SPDX identifier or expression; `LicenseRef-unrecognised` for a text not known here.
        source: Whether it was recognised in a licence text, declared by a manifest, or named in file headers.
        files: In how many files it was found this way.
        evidence: The first of them.
    """

    spdx: str
    source: Literal["text", "manifest", "header"]
    files: int = 1
    evidence: Evidence


class TechStack(Record):
    """What stage `detect-tech-stack` finds (S1 L67-70).

    Attributes:
        name: The project's name, from its first manifest, else from its folder.
        description: One line from a manifest, or "".
        languages: By lines, programming languages first.
        manifests: Every manifest read that belongs to the project itself.
        technologies: Frameworks, libraries, tools and services worth naming.
        commands: How to install, run, test, build.
        ci: Commands that continuous integration runs, as written there.
        entry_points: Where programs start.
        licenses: Texts first, then manifests, then headers.
        summary: 3 to 8 sentences on what is true now (1 for an empty project).
        decisions: What was concluded, and from what.
        constraints: Hard rules that the project states.
        open_questions: What only a person can answer.
    """

    name: str
    description: str = ""
    languages: tuple[Language, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    technologies: tuple[Technology, ...] = ()
    commands: tuple[Command, ...] = ()
    ci: tuple[Script, ...] = ()
    entry_points: tuple[EntryPoint, ...] = ()
    licenses: tuple[License, ...] = ()
    summary: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()


class RoadmapItem(Record):
    """One piece of work that a finding calls for.

    Attributes:
        priority: P1 blocks others or is a risk now; P2 costs every week; P3 is worth doing.
        title: The work, as an imperative.
        why: What it costs to leave it.
        evidence: What it was derived from, first findings first.
        found: How many findings there are; `evidence` may show fewer.
    """

    priority: Priority
    title: str
    why: str
    evidence: tuple[str, ...]
    found: int = Field(ge=0)


class WrittenFile(Record):
    """A file written to the output folder; `path` is relative to that folder."""

    path: str
    size: int
    sha256: Sha256Hex


class Documents(Record):
    """What stage `generate-docs` wrote (S1 L71-74)."""

    files: tuple[WrittenFile, ...]
    roadmap: tuple[RoadmapItem, ...] = ()


class KnowledgeIndex(Record):
    """What stage `build-knowledge` built (S1 L75-77).

    Attributes:
        path: The SQLite file, relative to the output folder.
        sha256: Digest of that file.
        chunks: How many pieces of text can be found.
        files: How many files they come from.
        tokens: Estimated tokens of all chunks together.
        left_out: Files that were not indexed, by reason.
    """

    path: str
    sha256: Sha256Hex
    chunks: int
    files: int
    tokens: int
    left_out: tuple[LeftOut, ...] = ()


class Hit(Record):
    """One answer of the index.

    Attributes:
        score: BM25 relevance; higher is better. Comparable within one query only.
        origin: `source` for the project's own files, `docs` for the generated documents.
        path: The file, relative to the project or to the output folder.
        title: The heading or definition that the text stands under.
        start: First line, from 1.
        end: Last line, included.
        snippet: The lines that answer best, as they stand in the file: data, whatever they say.
    """

    score: float
    origin: Literal["source", "docs"]
    path: str
    title: str
    start: int
    end: int
    snippet: str


class Check(Record):
    """One thing that stage `verify-ready` proved or refuted.

    Attributes:
        name: What was checked.
        ok: Whether it holds.
        severity: What it means where it does not hold: only an `error` makes the project not ready.
        message: What was found and what was expected.
    """

    name: str
    ok: bool
    severity: Severity
    message: str


class Verification(Record):
    """What stage `verify-ready` concluded (S1 L78-81); true if no check of severity `error` failed."""

    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return self.ready

    @property
    def ready(self) -> bool:
        """Whether the project is initialized: every check that matters holds."""
        return all(check.ok or check.severity != "error" for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that do not hold, warnings included."""
        return tuple(check for check in self.checks if not check.ok)
