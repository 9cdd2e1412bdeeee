"""The order of `delivery`, and the records of its stages."""

import json
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, ValidationError, model_validator

from baton.errors import BatonError
from baton.wire.records import Record
from baton.wire.text import describe_faults

_BRANCH = re.compile(r"(?![-./]|HEAD$)(?!.*(\.\.|//|/\.|\.lock(/|$)|/$|\.$))[A-Za-z0-9._/+-]{1,200}")

TestOutcome = Literal[
    "the tests pass",
    "the tests fail",
    "no test could run",
    "the tests did not end in time",
    "the tests could not be prepared",
]
_NOT_RUNNABLE, _PYTEST_RAN_NOTHING = (126, 127), (3, 4, 5)  # a shell's exit codes, and pytest's
_MAKE_ERROR = re.compile(r"(?m)^g?make(?:\[1\])?: \*\*\* .*\bError (\d+)$")
_RAN_NOTHING = re.compile(  # what unittest says of no tests, and Python of a runner that is not installed
    r"(?s)\A(?!.*^Ran [1-9]).*^(?:Ran 0 tests in |\S*python[\d.]*: No module named \S+(?:\ng?make\b[^\n]*)*\s*\Z)",
    re.MULTILINE,
)


class DeliveryError(BatonError):
    """The repository, a parameter or a change cannot be used; the message says what to do."""


def _as_command(value: Any) -> Any:
    if isinstance(value, str):
        return ("sh", "-c", value) if value.strip() else ()
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a command is a text or a list of texts, not {json.dumps(value)}; quote it")
    return tuple(value)


Command = Annotated[tuple[str, ...], BeforeValidator(_as_command), Field(min_length=1)]
"""A program and its arguments; parameters may give a shell command line instead."""


class Edit(Record):
    """Replace a text in the files of a path or pattern (`src/**/*.py`), or write a new file if `find` is empty."""

    path: str = Field(min_length=1, max_length=500)
    find: str = ""
    replace: str
    expect: int | None = Field(default=None, ge=1)


class Change(Record):
    """One change: exactly one of a unified diff, a list of edits, and a command that makes it."""

    patch: str | None = None
    edits: tuple[Edit, ...] | None = Field(default=None, min_length=1)
    command: Command | None = None
    title: str = ""

    @model_validator(mode="after")
    def _require_one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.patch, self.edits, self.command)) != 1:
            raise ValueError("a change is exactly one of 'patch', 'edits' and 'command'")
        return self

    def describe(self) -> str:
        """Describe it on one line."""
        if self.title:
            return " ".join(self.title.split())
        if self.command is not None:
            return f"run `{render_command(self.command)}`"
        if self.edits is not None:
            return f"replace texts in {', '.join(dict.fromkeys(edit.path for edit in self.edits))}"
        return "apply a diff"


class Draft(Record):
    """The implementer's answer: edits of texts that occur once, or none for the ordered change."""

    title: str = Field(min_length=1, max_length=120)
    edits: list[Edit] = Field(default_factory=list, max_length=100)


class Order(Record):
    """The pipeline's parameters, as docs/pipelines.md describes them."""

    repository: str = Field(min_length=1)
    base: str = Field(default="HEAD", min_length=1)
    branch: str | None = None
    patch: str | None = None
    edits: tuple[Edit, ...] | None = None
    command: Command | None = None
    changes: tuple[Change, ...] = ()
    test: Command | None = None
    prepare: Command | None = None
    test_seconds: float = Field(default=600, gt=0, le=6 * 3600)
    rounds: int = Field(default=3, ge=1, le=20)
    paths: tuple[str, ...] = ()
    most_lines: int = Field(default=2_000, ge=1)
    environment: tuple[str, ...] = ()
    network: bool = False
    approver: str = Field(default="maintainer", min_length=1)
    approval_hours: float = Field(default=48, gt=0, le=87_600)

    @classmethod
    def of(cls, params: Mapping[str, JsonValue]) -> Self:
        """Return the order in a pipeline's parameters."""
        try:
            order = cls.model_validate_json(json.dumps(params))
            order.all_changes  # noqa: B018 - validates the short forms
        except ValidationError as error:
            raise DeliveryError(
                f"delivery cannot use these parameters: {describe_faults(error)}. Start it with: baton run delivery "
                "--goal … --param repository=DIR and one of --param patch=FILE, edits=[…] or command=…"
            ) from None
        if order.branch is not None and not _BRANCH.fullmatch(order.branch):
            raise DeliveryError(f"the parameter 'branch' is {order.branch!r}, which is not a valid branch name")
        return order

    @property
    def all_changes(self) -> tuple[Change, ...]:
        """All changes, in the order of the rounds."""
        short_forms = (("patch", self.patch), ("edits", self.edits), ("command", self.command))
        short_changes = [Change.model_validate({name: value}) for name, value in short_forms if value is not None]
        return (*short_changes, *self.changes)

    def branch_for(self, goal: str, task_id: str) -> str:
        """Return the branch's name."""
        slug = re.sub(r"[^a-z0-9]+", "-", goal.lower()).strip("-")[:40].strip("-")
        return self.branch or f"baton/{slug or 'change'}-{task_id[:8]}"


class Plan(Record):
    """The planner's decisions; later stages read them instead of detecting them again."""

    repository: str
    base: str
    branch: str
    changes: tuple[Change, ...]
    test: tuple[str, ...]
    order: Order


class TestRun(Record):
    """A run of the project's tests, or of the preparing command if that failed; the code is None after a timeout."""

    __test__ = False

    commit: str
    command: tuple[str, ...]
    code: int | None
    seconds: int
    output: str
    prepared: bool = True

    @property
    def outcome(self) -> TestOutcome:
        """What the run proves about the tests: only tests that ran can pass or fail."""
        if not self.prepared:
            return "the tests could not be prepared"
        if self.code is None:
            return "the tests did not end in time"
        code = int(made[1]) if (made := _MAKE_ERROR.search(self.output)) and self.code == 2 else self.code
        is_pytest = re.search(r"\bpytest\b", f"{render_command(self.command)}\n{self.output}") is not None
        if code in _NOT_RUNNABLE or (is_pytest and code in _PYTEST_RAN_NOTHING) or _RAN_NOTHING.search(self.output):
            return "no test could run"
        return "the tests fail" if self.code else "the tests pass"

    @property
    def passed(self) -> bool:
        """Whether the tests passed."""
        return self.outcome == "the tests pass"

    def describe(self) -> str:
        """Describe the result on one line."""
        ended = "was stopped" if self.code is None else f"ended with exit code {self.code}"
        return f"{self.outcome}: `{render_command(self.command)}` {ended} on {self.commit[:12]}"


class Remark(Record):
    """A remark of the reviewer on a line of the new text; line 0 means the whole file."""

    path: str
    line: int = Field(default=0, ge=0)
    blocks: bool
    rule: str
    message: str

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{self.path}:{self.line}" if self.line else self.path


def render_command(command: tuple[str, ...]) -> str:
    """Return a command as typed in a shell."""
    return command[2] if command[:2] == ("sh", "-c") and len(command) == 3 else shlex.join(command)


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches a pattern; `**` matches any number of folders."""
    return _match_parts(path.split("/"), pattern.split("/"))


def _match_parts(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_match_parts(parts[start:], patterns[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _match_parts(parts[1:], patterns[1:])
