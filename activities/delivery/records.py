"""What `delivery` is asked to do, and what its stages hand on, as frozen records."""

import json
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, JsonValue, ValidationError, model_validator

from baton.errors import BatonError
from baton.wire.records import Record
from baton.wire.text import describe_faults

_BRANCH = re.compile(r"(?![-./]|HEAD$)(?!.*(\.\.|//|/\.|\.lock(/|$)|/$|\.$))[A-Za-z0-9._/+-]{1,200}")


class DeliveryError(BatonError):
    """The repository, a parameter or a change cannot be used; the message says what to do."""


def _as_command(value: Any) -> Any:
    """Return a command's arguments; a text is a line for the shell, as a person would type it."""
    if isinstance(value, str):
        return ("sh", "-c", value) if value.strip() else ()
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a command is a text or a list of texts, not {json.dumps(value)}; put it in quotation marks")
    return tuple(value)


Command = Annotated[tuple[str, ...], BeforeValidator(_as_command), Field(min_length=1)]
"""A program and its arguments; in parameters also a line for the shell."""


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
    def _is_one(self) -> Self:
        if sum(one is not None for one in (self.patch, self.edits, self.command)) != 1:
            raise ValueError("a change is exactly one of 'patch', 'edits' and 'command'")
        return self

    def in_words(self) -> str:
        """Return what it does, on one line.

        Example:
            >>> Change.model_validate_json('{"command": ["ruff", "check", "--fix"]}').in_words()
            'run `ruff check --fix`'
        """
        if self.title:
            return " ".join(self.title.split())
        if self.command is not None:
            return f"run `{shown(self.command)}`"
        if self.edits is not None:
            return f"replace texts in {', '.join(dict.fromkeys(edit.path for edit in self.edits))}"
        return "apply a diff"


class Draft(Record):
    """What the implementer answers: edits of texts that occur once, or none for the change that was ordered."""

    title: str = Field(min_length=1, max_length=120)
    edits: list[Edit] = Field(default_factory=list, max_length=100)


class Order(Record):
    """The pipeline's parameters.

    Attributes:
        repository: A git checkout that the worker can reach; its working copy is never touched.
        base: The commit, branch or tag that the work starts from.
        branch: The branch to offer; named after the goal by default.
        patch: Short for one change that is a diff.
        edits: Short for one change that is a list of edits.
        command: Short for one change that a command makes.
        changes: The changes, one for each round: each is made on top of the one before, if tests or review failed.
        test: The command that tests the project; detected by default.
        prepare: A command to run before the tests, for example `npm ci`.
        test_seconds: How long preparing and testing may take, each.
        rounds: How often the implementer may try.
        paths: Patterns of the files that may change; all by default.
        most_lines: How many lines may be added and removed together.
        environment: Names of the worker's variables that commands may see.
        network: Whether commands may reach the network.
        approver: Who is asked before the branch is offered.
        approval_hours: How long the approver has.
    """

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
        """Return the order in a pipeline's parameters.

        Example:
            >>> Order.of({"repository": "/src/app", "command": "make format"}).all_changes[0].in_words()
            'run `make format`'
        """
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
        """The changes in the order in which they are tried."""
        short = (("patch", self.patch), ("edits", self.edits), ("command", self.command))
        first = [Change.model_validate({name: value}) for name, value in short if value is not None]
        return (*first, *self.changes)

    def branch_for(self, goal: str, task_id: str) -> str:
        """Return the branch's name.

        Example:
            >>> Order.of({"repository": "r"}).branch_for("Fix the login!", "0b7d4c1e-…")
            'baton/fix-the-login-0b7d4c1e'
        """
        slug = re.sub(r"[^a-z0-9]+", "-", goal.lower()).strip("-")[:40].strip("-")
        return self.branch or f"baton/{slug or 'change'}-{task_id[:8]}"


class Plan(Record):
    """What the planner decided; later stages read it and detect nothing a second time."""

    repository: str
    base: str
    branch: str
    changes: tuple[Change, ...]
    test: tuple[str, ...]
    order: Order


class TestRun(Record):
    """One run of the project's tests, or of the command that prepares them if that failed; code None: out of time."""

    __test__ = False

    commit: str
    command: tuple[str, ...]
    code: int | None
    seconds: int
    output: str
    prepared: bool = True

    @property
    def passed(self) -> bool:
        """Whether the tests passed."""
        return self.prepared and self.code == 0

    def in_words(self) -> str:
        """Return how it ended, on one line."""
        what = f"`{shown(self.command)}`" + ("" if self.prepared else ", which prepares the tests,")
        end = "was stopped for taking too long" if self.code is None else f"ended with exit code {self.code}"
        return f"{what} {end} on {self.commit[:12]}"


class Remark(Record):
    """A remark of the reviewer on a line of the new text; line 0 means the file as a whole."""

    path: str
    line: int = Field(default=0, ge=0)
    blocks: bool
    rule: str
    message: str

    @property
    def place(self) -> str:
        """File and line, as editors read them."""
        return f"{self.path}:{self.line}" if self.line else self.path


def shown(command: tuple[str, ...]) -> str:
    """Return a command as a person would type it.

    Example:
        >>> shown(("sh", "-c", "make test && make lint")), shown(("ruff", "check", "my file.py"))
        ('make test && make lint', "ruff check 'my file.py'")
    """
    return command[2] if command[:2] == ("sh", "-c") and len(command) == 3 else shlex.join(command)


def matches(path: str, pattern: str) -> bool:
    """Return whether a pattern means a path; `**` stands for any number of folders.

    Example:
        >>> matches("src/a/b.py", "src/**/*.py"), matches("src/b.py", "src/**/*.py"), matches("x/b.py", "*.py")
        (True, True, False)
    """
    return _fits(path.split("/"), pattern.split("/"))


def _fits(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_fits(parts[start:], patterns[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _fits(parts[1:], patterns[1:])
