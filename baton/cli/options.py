"""The exit codes, the options that every command takes, and `--force`."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from baton.client.faces import DEFAULT_STORE


class ExitCode(IntEnum):
    """The exit codes of `baton`."""

    OK = 0
    """Success."""
    FAILURE = 1
    """The operation failed, was refused or denied, or its target does not exist."""
    USAGE = 2
    """Wrong usage."""
    UNREACHABLE = 3
    """No Temporal server answers, or it denies access."""
    UNVERIFIED = 4
    """A record was proved neither valid nor invalid, or no worker has answered a decision yet."""
    UNREADABLE = 5
    """A run has malformed records; everything else was read, and nothing else is wrong."""
    INTERRUPTED = 130
    """Ctrl-C."""


EXIT_CODES_HELP = (
    "Exit codes: 0 success; 1 the operation failed, was refused or denied, or its target does not exist; "
    "2 wrong usage; 3 no server answers; 4 unverified (no proof either way); 5 a run has malformed "
    "records, all else was read; 130 Ctrl-C."
)
"""The last lines of `--help`."""


VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log the worker's whole tracebacks and debugging messages.")
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")]


def refuse_overwrite(file: Path, force: bool, hint: str) -> None:
    """Raise a usage error if the file exists and --force was not given."""
    if file.exists() and not force:
        raise typer.BadParameter(f"{str(file)!r} exists; --force overwrites it", param_hint=hint)


@dataclass(frozen=True)
class OptionGroup:
    """Base class for dataclasses whose fields become options of a command."""


def _connection(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel="Connection")


@dataclass(frozen=True)
class GlobalOptions(OptionGroup):
    """The options that every command takes. None means not given."""

    json: Annotated[bool, typer.Option("--json", help="Write only JSON to the output.")] = False
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
        """The artifact store: from the option, the environment variable, or the default."""
        return self.artifacts or os.environ.get("BATON_ARTIFACTS") or DEFAULT_STORE

    def merge(self, overrides: Self) -> Self:
        """Return these options, replaced by those that ``overrides`` sets."""
        values: dict[str, Any] = {option.name: getattr(overrides, option.name) for option in fields(overrides)}
        return replace(self, **{name: value for name, value in values.items() if value not in (None, False)})


def expand_option_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each parameter that is an `OptionGroup` by one option for each of its fields."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if not (isinstance(parameter.annotation, type) and issubclass(parameter.annotation, OptionGroup)):
            parameters.append(parameter)
            continue
        groups[parameter.name] = parameter.annotation
        parameters += [
            inspect.Parameter(option.name, parameter.kind, default=option.default, annotation=option.type)
            for option in fields(parameter.annotation)
        ]

    @wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        for name, group in groups.items():
            kwargs[name] = group(**{option.name: kwargs.pop(option.name) for option in fields(group)})
        return function(**kwargs)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
