"""The exit codes, the options that every command takes, before its name or after it, and `--force`."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from baton.artifacts.records import DEFAULT_STORE


class ExitCode(IntEnum):
    """What the exit code of `baton` says."""

    OK = 0
    """Done."""
    FAILURE = 1
    """What was asked about failed, was refused or denied, or does not exist."""
    USAGE = 2
    """The command line cannot be understood."""
    UNREACHABLE = 3
    """No Temporal server answers, or it does not let us in."""
    UNVERIFIED = 4
    """Nothing is wrong with a record, and nothing proves it either."""
    INTERRUPTED = 130
    """Ctrl-C."""


EXIT_CODES_HELP = (
    "Exit codes: 0 done; 1 what was asked about failed, was refused or denied, or does not exist; "
    "2 wrong usage; 3 no server answers; 4 unverified (no proof either way); 130 Ctrl-C."
)
"""The exit codes for the end of `--help`."""


ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Write over a file that is there.")]


def refuse_overwrite(file: Path, force: bool, hint: str) -> None:
    """Refuse to overwrite a file without --force."""
    if file.exists() and not force:
        raise typer.BadParameter(f"{str(file)!r} is there already; --force writes over it", param_hint=hint)


@dataclass(frozen=True)
class OptionGroup:
    """A base for dataclasses whose fields are options of the commands that take one."""


def _connection(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel="Connection")


@dataclass(frozen=True)
class GlobalOptions(OptionGroup):
    """What the options of every command say; None is "not said"."""

    json: Annotated[bool, typer.Option("--json", help="Write JSON for programs, and nothing else, to the output.")] = (
        False
    )
    address: Annotated[str | None, _connection("--address", "HOST:PORT", "The Temporal server. [TEMPORAL_ADDRESS]")] = (
        None
    )
    namespace: Annotated[str | None, _connection("--namespace", "NAME", "Its namespace. [TEMPORAL_NAMESPACE]")] = None
    profile: Annotated[
        str | None, _connection("--profile", "NAME", "A profile of temporal.toml. [TEMPORAL_PROFILE]")
    ] = None
    config: Annotated[
        Path | None, _connection("--config", "FILE", "The temporal.toml to use. [TEMPORAL_CONFIG_FILE]")
    ] = None
    artifacts: Annotated[
        str | None,
        _connection(
            "--artifacts",
            "PATH|URL",
            f"The workers' artifact store, which also holds large payloads. [BATON_ARTIFACTS, {DEFAULT_STORE}]",
        ),
    ] = None

    @property
    def store(self) -> str:
        """The artifact store to use: the option, the environment variable, or the default."""
        return self.artifacts or os.environ.get("BATON_ARTIFACTS") or DEFAULT_STORE

    def overridden(self, later: Self) -> Self:
        """Return these options with what ``later`` says in place of what they say."""
        said: dict[str, Any] = {one.name: getattr(later, one.name) for one in fields(later)}
        return replace(self, **{name: value for name, value in said.items() if value not in (None, False)})


def with_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make each field of a parameter that is an `OptionGroup` an option of its own."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for one in inspect.signature(function).parameters.values():
        if not (isinstance(one.annotation, type) and issubclass(one.annotation, OptionGroup)):
            parameters.append(one)
            continue
        groups[one.name] = one.annotation
        parameters += [
            inspect.Parameter(option.name, one.kind, default=option.default, annotation=option.type)
            for option in fields(one.annotation)
        ]

    @wraps(function)
    def call(**given: Any) -> Any:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        return function(**given, **made)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call
