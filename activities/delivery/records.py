"""What `delivery` is asked to do, and what its stages find and hand on, as frozen records."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, ValidationError, model_validator

from baton.errors import BatonError
from baton.wire.misfit import misfit
from baton.wire.records import Record

_SLUG = re.compile(r"[^a-z0-9]+")
_BRANCH = re.compile(r"(?![-./]|HEAD$)(?!.*(\.\.|//|/\.|\.lock(/|$)|/$|\.$))[A-Za-z0-9._/+-]{1,200}")
_LONGEST_SLUG = 40
_NONE_RAN = re.compile(
    r"\b(?:0 (?:tests|passing|passed)|no tests? (?:ran|found|to run|files?)|collected 0 items)\b", re.IGNORECASE
)
"""How test programs that end with exit code 0 say so: unittest, `go test`, cargo, jest, mocha, dotnet."""
_SOME_RAN = re.compile(
    r"\b[1-9]\d* (?:tests?|passed|passing|examples?|specs?|assertions?)\b|^ok[ \t]+\S+[ \t]+(?!.*no test)|^ok \d"
    r"|Tests run: [1-9]",
    re.IGNORECASE | re.MULTILINE,
)


class DeliveryError(BatonError):
    """The repository, a parameter or a change is not what a delivery needs; the message says what to do."""


def _as_command(value: Any) -> Any:
    """Return a command's arguments; a text is a line for the shell, as a person would type it."""
    if isinstance(value, str):
        return ("sh", "-c", value) if value.strip() else ()
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a command is a text or a list of texts, not {json.dumps(value)}; put it in quotation marks")
    return tuple(value) if isinstance(value, list) else value


Command = Annotated[tuple[str, ...], BeforeValidator(_as_command), Field(min_length=1)]
"""A program and its arguments; on the wire also a line for the shell."""


class Edit(Record):
    """Replace a text, wherever it stands in some files; or write a new file.

    Attributes:
        path: Which files: a path in the repository, or a pattern such as `src/**/*.py`.
        find: The text as it stands there, to the letter but for how its lines end; empty to write a file that is not
            there yet.
        replace: What stands there afterwards.
        expect: How often it must be found; None for at least once.
    """

    path: str = Field(min_length=1)
    find: str = ""
    replace: str
    expect: int | None = Field(default=None, ge=1)


class Change(Record):
    """One change: a unified diff, a list of edits, or a command that makes it; exactly one of them.

    Attributes:
        patch: A unified diff, or the path of a file that holds one.
        edits: Texts to replace.
        command: What to run in the worktree, for example a formatter or a codemod.
        title: What to call it in the commit.
    """

    patch: str | None = None
    edits: tuple[Edit, ...] | None = Field(default=None, min_length=1)
    command: Command | None = None
    title: str = ""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(one is not None for one in (self.patch, self.edits, self.command)) != 1:
            raise ValueError("a change is exactly one of 'patch', 'edits' and 'command'")
        return self

    @property
    def kind(self) -> Literal["patch", "edits", "command"]:
        """Which of the three it is."""
        return "patch" if self.patch is not None else "edits" if self.edits is not None else "command"

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


class Order(Record):
    """What is to be delivered: the pipeline's parameters.

    Attributes:
        repository: A git repository that the worker can reach; its working copy is never touched.
        base: What the work starts from.
        branch: The branch that is offered; named after the goal by default.
        patch: Short for one change that is a diff.
        edits: Short for one change that is a list of edits.
        command: Short for one change that a command makes.
        changes: The changes, one for each round: the first, and what to try on top of it when tests or review fail.
        test: The command that tests the project; detected by default.
        prepare: A command to run in the worktree before the tests, for example `npm ci`.
        test_seconds: How long preparing and testing may take, each.
        rounds: How often the implementer may try, the first time included.
        paths: Patterns of the files that may change; all by default.
        most_lines: How many lines may be added and taken away together.
        environment: Names of the worker's variables that commands may see, beside the usual ones.
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
    approver: str = Field(default="maintainer", min_length=1)
    approval_hours: float = Field(default=48, gt=0, le=87_600)  # ten years; a date has an end

    @classmethod
    def of(cls, params: Mapping[str, JsonValue]) -> Self:
        """Return the order in a pipeline's parameters.

        Raises:
            DeliveryError: A parameter is missing, unknown or wrong; each is named.

        Example:
            >>> Order.of({"repository": "/src/app", "command": "make format"}).all_changes[0].kind
            'command'
        """
        try:
            order = cls.model_validate_json(json.dumps(params))
            order.all_changes  # noqa: B018 - asks whether the short forms make changes
        except ValidationError as error:
            raise DeliveryError(
                f"delivery cannot use these parameters: {misfit(error)}. Start it with: baton run delivery --goal … "
                "--param repository=DIR and one of --param patch=FILE, edits=[…] or command=…"
            ) from None
        if order.branch is not None and not _BRANCH.fullmatch(order.branch):
            raise DeliveryError(f"the parameter 'branch' is {order.branch!r}, which is no name for a branch")
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
        slug = _SLUG.sub("-", goal.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
        return self.branch or f"baton/{slug or 'change'}-{task_id[:8]}"


class Plan(Record):
    """What the planner settled: everything that the later stages need, so that nothing is found out twice.

    Attributes:
        repository: The repository's folder.
        base: The commit that the work starts from.
        branch: The branch to be offered.
        changes: The changes; diffs are here with their text.
        test: The test command.
        test_origin: Where it is from.
        order: What was asked for.
    """

    repository: str
    base: str
    branch: str
    changes: tuple[Change, ...]
    test: tuple[str, ...]
    test_origin: str
    order: Order

    @property
    def folder(self) -> Path:
        """The repository's folder."""
        return Path(self.repository)


class TestRun(Record):
    """One run of the project's tests.

    Attributes:
        commit: What was tested.
        command: How.
        code: The exit code; None where it was stopped for taking too long.
        seconds: How long it took, rounded.
        output: What it said, its middle left out where it is long.
        prepared: Whether the command before the tests ended well.
    """

    __test__ = False

    commit: str
    command: tuple[str, ...]
    code: int | None
    seconds: int
    output: str
    prepared: bool = True

    @property
    def passed(self) -> bool:
        """Whether it counts as passed: prepared, and ended by itself with exit code 0."""
        return self.prepared and self.code == 0

    @property
    def ran_none(self) -> bool:
        """Whether it says that there was no test to run, and of none that one did."""
        return bool(_NONE_RAN.search(self.output)) and not _SOME_RAN.search(self.output)

    def in_words(self) -> str:
        """Return how it ended, on one line."""
        what = f"`{shown(self.command)}`" + ("" if self.prepared else ", which prepares the tests,")
        end = "was stopped for taking too long" if self.code is None else f"ended with exit code {self.code}"
        return f"{what} {end} on {self.commit[:12]}"


class Remark(Record):
    """What the reviewer says of a place in the change.

    Attributes:
        path: The file.
        line: The line in the new text; 0 for the file as a whole.
        blocks: Whether the change must not be offered with it.
        rule: The rule's name.
        message: What is wrong, in one sentence.
    """

    path: str
    line: int = Field(default=0, ge=0)
    blocks: bool
    rule: str
    message: str

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{self.path}:{self.line}" if self.line else self.path


def shown(command: tuple[str, ...]) -> str:
    """Return a command as a person would type it.

    Example:
        >>> shown(("sh", "-c", "make test && make lint")), shown(("ruff", "check", "my file.py"))
        ('make test && make lint', "ruff check 'my file.py'")
    """
    return command[2] if command[:2] == ("sh", "-c") and len(command) == 3 else shlex.join(command)
