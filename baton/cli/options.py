"""The exit codes, the options that every command takes, before its name or after it, and `--force`."""

import os
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from baton.artifacts.records import DEFAULT_STORE


class ExitCode(IntEnum):
    """What the exit code of `baton` says."""

    OK = 0
    """Done."""
    NO = 1
    """What was asked about failed, was refused or denied, or does not exist."""
    USAGE = 2
    """The command line cannot be understood."""
    UNREACHABLE = 3
    """No Temporal server answers, or it does not let us in."""
    UNVERIFIED = 4
    """Nothing is wrong with a record, and nothing proves it either."""
    INTERRUPTED = 130
    """Ctrl-C."""


MEANINGS = (
    "Exit codes: 0 done; 1 what was asked about failed, was refused or denied, or does not exist; "
    "2 wrong usage; 3 no server answers; 4 unverified (no proof either way); 130 Ctrl-C."
)
"""The exit codes for the end of `--help`."""


_PANEL = "Connection"

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for programs, and nothing else, to the output.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="The Temporal server. [TEMPORAL_ADDRESS]", rich_help_panel=_PANEL
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Its namespace. [TEMPORAL_NAMESPACE]", rich_help_panel=_PANEL),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="A profile of temporal.toml. [TEMPORAL_PROFILE]", rich_help_panel=_PANEL
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The temporal.toml to use. [TEMPORAL_CONFIG_FILE]", rich_help_panel=_PANEL
    ),
]
ArtifactsOption = Annotated[
    str | None,
    typer.Option(
        "--artifacts",
        metavar="PATH|URL",
        help=f"The workers' artifact store, which also holds large payloads. [BATON_ARTIFACTS, {DEFAULT_STORE}]",
        rich_help_panel=_PANEL,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Write over a file that is there.")]


def check_new(file: Path, force: bool, hint: str) -> None:
    """Refuse to overwrite a file without --force."""
    if file.exists() and not force:
        raise typer.BadParameter(f"{str(file)!r} is there already; --force writes over it", param_hint=hint)


@dataclass(frozen=True)
class GlobalOptions:
    """What the options of every command say; None is "not said".

    Attributes:
        json: Whether the output is JSON.
        address: Host and port of the server.
        namespace: The namespace.
        profile: The profile in `temporal.toml`.
        config: The `temporal.toml` to use.
        artifacts: The artifact store.
    """

    json: bool = False
    address: str | None = None
    namespace: str | None = None
    profile: str | None = None
    config: Path | None = None
    artifacts: str | None = None

    @property
    def store(self) -> str:
        """The artifact store to use: the option, the environment variable, or the default."""
        return self.artifacts or os.environ.get("BATON_ARTIFACTS") or DEFAULT_STORE

    def overridden(self, later: Self) -> Self:
        """Return these options with what ``later`` says in place of what they say."""
        said: dict[str, Any] = {one.name: getattr(later, one.name) for one in fields(later)}
        return replace(self, **{name: value for name, value in said.items() if value not in (None, False)})
