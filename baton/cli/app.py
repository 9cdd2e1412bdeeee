"""The command `baton`: what it is called with, and the map of its commands.

The module of a command is imported when it is called, and not for `baton --help` or the completion of a
command's name: the Temporal SDK behind them takes as long to load as all the rest (measured: 0.25 s of
processor time without it, 0.4 to 0.5 s with it).
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from baton import __version__
from baton.cli.exits import MEANINGS
from baton.cli.options import (
    AddressOption,
    ArtifactsOption,
    ConfigOption,
    GlobalOptions,
    JsonOption,
    NamespaceOption,
    ProfileOption,
)


@dataclass(frozen=True)
class Listed:
    """One command: its name, which is its function's name too, where it is, and what `--help` says of it."""

    name: str
    module: str
    panel: str
    help: str

    @property
    def function(self) -> str:
        """The function's name; `list` is taken, so that one has `_` behind it."""
        return f"{self.name}_" if self.name == "list" else self.name


_START, _LOOK, _DECIDE, _CHECK = "Start", "Look", "Decide and repair", "Check"

COMMANDS = (
    Listed("dev", "dev", _START, "Run a Temporal server with its UI and your worker, until Ctrl-C."),
    Listed("run", "starting", _START, "Start a pipeline."),
    Listed("list", "listing", _LOOK, "List runs, those that go on first."),
    Listed("show", "showing", _LOOK, "Show a run: its baton, how it stands, and what it waits for."),
    Listed("history", "telling", _LOOK, "Tell who changed what, and when."),
    Listed("diff", "telling", _LOOK, "Compare the batons after two stages, field by field."),
    Listed("watch", "watching", _LOOK, "Follow a run while it happens, to its end."),
    Listed("approve", "deciding", _DECIDE, "Say yes to what a run asks for."),
    Listed("deny", "deciding", _DECIDE, "Say no to what a run asks for."),
    Listed("rollback", "repairing", _DECIDE, "Take a run back to right before a stage, and let it go on from there."),
    Listed("fork", "starting", _DECIDE, "Start a new run that takes over everything before a stage."),
    Listed("replay", "replaying", _CHECK, "Check that the code of today still fits histories of yesterday."),
    Listed("export", "replaying", _CHECK, "Save a run's history as JSON, to replay it later."),
    Listed("schema", "publishing", _CHECK, "Print the JSON Schema of a record."),
    Listed("doctor", "doctor", _CHECK, "Check the installation, the server and the namespace."),
    Listed("version", "publishing", _CHECK, "Print the versions of Baton and what it stands on."),
)
"""Every command, in the order of `--help`."""


class _Deferred(TyperCommand):
    """A command that is known by name and help, and imported once it is called."""

    listed: Listed

    @cached_property
    def _command(self) -> Any:
        module = import_module(f"baton.cli.{self.listed.module}")
        single = typer.Typer(add_completion=False)
        single.command(self.listed.name)(getattr(module, self.listed.function))
        return get_command(single)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the context of the real command, which then is what runs."""
        return self._command.make_context(*args, **kwargs)


def _register(app: typer.Typer, listed: Listed) -> None:
    """Make the command known to the application."""
    stands_in = type(f"_Deferred_{listed.name}", (_Deferred,), {"listed": listed})
    app.command(listed.name, help=listed.help, rich_help_panel=listed.panel, cls=stands_in)(lambda: None)


def _print_version(wanted: bool) -> None:
    """Print the version, if that is what is wanted, and exit."""
    if wanted:
        print(f"baton {__version__}")
        raise typer.Exit


def make_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="baton",
        help="Durable multi-agent pipelines on Temporal: start, watch, decide, repair.",
        epilog=MEANINGS,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        ctx: typer.Context,
        json: JsonOption = False,
        address: AddressOption = None,
        namespace: NamespaceOption = None,
        profile: ProfileOption = None,
        config: ConfigOption = None,
        artifacts: ArtifactsOption = None,
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
        ] = False,
    ) -> None:
        ctx.obj = GlobalOptions(json, address, namespace, profile, config, artifacts)

    for listed in COMMANDS:
        _register(app, listed)
    return app
