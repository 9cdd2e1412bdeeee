"""The command `baton`: what it is called with, and the map of its commands.

The module of a command is imported when it is called, and not for `baton --help` or the completion of a
command's name: the Temporal SDK behind them takes as long to load as all the rest (measured: 0.25 s of
processor time without it, 0.4 to 0.5 s with it).
"""

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from baton import __version__
from baton.cli.options import EXIT_CODES_HELP, GlobalOptions, with_groups


@dataclass(frozen=True)
class CommandEntry:
    """One command: its name, where it is, and its panel of `--help`; a name of two words is in a group."""

    name: str
    module: str
    panel: str

    @property
    def help(self) -> str:
        """The first line of its docstring, from the source: to load the module takes long."""
        source = Path(__file__).parents[1].joinpath(*self.module.split(".")).with_suffix(".py")
        pattern = rf'^(?:async def {self.function}\(|{self.function} = ).*?^    """([^"\n]+)'
        found = re.search(pattern, source.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        return found[1] if found else ""

    @property
    def function(self) -> str:
        """The function's name, the command's own; `list` and `import` are taken, so those have `_` behind them."""
        return f"{self.word}_" if self.word in ("list", "import") else self.word.replace("-", "_")

    @property
    def word(self) -> str:
        """The name within its group."""
        return self.name.rpartition(" ")[2]

    @property
    def group(self) -> str:
        """The group, or nothing."""
        return self.name.rpartition(" ")[0]


_START, _LOOK, _DECIDE, _CHECK, _PROVE = "Start", "Look", "Decide and repair", "Check", "Prove and protect"

GROUPS = {
    "add": "More of a project that `baton new` made: a stage, or a pipeline.",
    "inbox": "The handoffs that wait for a person: look at them, and decide. Alone, it lists them.",
    "schedule": "Pipelines that start by the clock: `baton schedule PIPELINE --cron …`. Alone, it lists them.",
    "outside": "Agents outside: the service from which they fetch handoffs, and to which they return them.",
    "artifact": "The work products of a run: list, print, save.",
    "audit": "The audit ledger: what happened to a task, and whether the record of it is whole.",
    "keys": "The keys that seal, sign and encrypt.",
}
"""The groups of commands, with what `--help` says of them."""

COMMANDS = (
    CommandEntry("new", "new.cli", _START),
    CommandEntry("add stage", "new.cli", _START),
    CommandEntry("add pipeline", "new.cli", _START),
    CommandEntry("dev", "cli.dev", _START),
    CommandEntry("console", "cli.dev", _START),
    CommandEntry("run", "runs.cli_run", _START),
    CommandEntry("schedule add", "runs.cli_run", _START),
    CommandEntry("schedule list", "runs.cli_run", _START),
    CommandEntry("schedule delete", "runs.cli_run", _START),
    CommandEntry("mcp", "exchange.cli", _START),
    CommandEntry("outside serve", "exchange.cli", _START),
    CommandEntry("list", "runs.cli_list", _LOOK),
    CommandEntry("show", "runs.cli_show", _LOOK),
    CommandEntry("history", "runs.cli_history", _LOOK),
    CommandEntry("diff", "runs.cli_history", _LOOK),
    CommandEntry("explain", "runs.cli_history", _LOOK),
    CommandEntry("report", "cli.dev", _LOOK),
    CommandEntry("bill", "runs.cli_list", _LOOK),
    CommandEntry("watch", "runs.cli_watch", _LOOK),
    CommandEntry("artifact list", "artifacts.cli", _LOOK),
    CommandEntry("artifact cat", "artifacts.cli", _LOOK),
    CommandEntry("artifact save", "artifacts.cli", _LOOK),
    CommandEntry("approve", "runs.cli_decide", _DECIDE),
    CommandEntry("cancel", "runs.cli_rollback", _DECIDE),
    CommandEntry("deny", "runs.cli_decide", _DECIDE),
    CommandEntry("rollback", "runs.cli_rollback", _DECIDE),
    CommandEntry("fork", "runs.cli_run", _DECIDE),
    CommandEntry("inbox list", "handoff.cli_inbox", _DECIDE),
    CommandEntry("inbox show", "handoff.cli_inbox", _DECIDE),
    CommandEntry("inbox release", "handoff.cli_inbox", _DECIDE),
    CommandEntry("inbox requeue", "handoff.cli_inbox", _DECIDE),
    CommandEntry("inbox edit", "handoff.cli_inbox", _DECIDE),
    CommandEntry("inbox top-up", "handoff.cli_inbox", _DECIDE),
    CommandEntry("inbox abandon", "handoff.cli_inbox", _DECIDE),
    CommandEntry("replay", "runs.cli_replay", _CHECK),
    CommandEntry("export", "runs.cli_replay", _CHECK),
    CommandEntry("schema", "cli.schema", _CHECK),
    CommandEntry("doctor", "cli.doctor", _CHECK),
    CommandEntry("audit trace", "ledger.cli", _PROVE),
    CommandEntry("audit verify", "ledger.cli", _PROVE),
    CommandEntry("audit export", "ledger.cli", _PROVE),
    CommandEntry("audit checkpoint", "ledger.cli", _PROVE),
    CommandEntry("audit archive", "ledger.cli", _PROVE),
    CommandEntry("audit migrate", "ledger.cli", _PROVE),
    CommandEntry("erase", "personal.cli", _PROVE),
    CommandEntry("keys new", "keys.cli", _PROVE),
    CommandEntry("keys decider", "keys.cli", _PROVE),
    CommandEntry("keys list", "keys.cli", _PROVE),
    CommandEntry("keys rotate", "keys.cli", _PROVE),
    CommandEntry("keys rewrap", "ledger.cli", _PROVE),
    CommandEntry("keys public", "keys.cli", _PROVE),
)
"""Every command, in the order of `--help`."""


class _Deferred(TyperCommand):
    """A command that is known by name and help, and imported once it is called."""

    listed: CommandEntry

    @cached_property
    def _command(self) -> Any:
        module = import_module(f"baton.{self.listed.module}")
        single = typer.Typer(add_completion=False)
        function = getattr(module, self.listed.function)
        single.command(self.listed.word, help=_flowing(getdoc(function) or ""))(function)
        return get_command(single)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the context of the real command, which then is what runs."""
        return self._command.make_context(*args, **kwargs)


def _flowing(text: str) -> str:
    """Return a docstring with its paragraphs in one line each, for a terminal of any width to break."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))


class _ListsByDefault(TyperGroup):
    """A group that lists where no command of it is named; options that stand there are those of `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `list` where a command's name should stand, except for help and completion."""
        named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named or ctx.resilient_parsing else ["list", *args])


class _Schedules(_ListsByDefault):
    """The group of schedules: where a pipeline stands in place of a command, it is to be scheduled."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `add` before a name that is not a command of the group."""
        adds = bool(args) and not args[0].startswith("-") and args[0] not in self.commands
        return super().parse_args(ctx, ["add", *args] if adds and not ctx.resilient_parsing else args)


def _register(app: typer.Typer, listed: CommandEntry) -> None:
    """Make the command known to the application."""
    stands_in = type(f"_Deferred_{listed.function}", (_Deferred,), {"listed": listed})
    panel = None if listed.group else listed.panel
    app.command(listed.word, help=listed.help, rich_help_panel=panel, cls=stands_in)(lambda: None)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"baton {__version__}")
        raise typer.Exit


def make_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="baton",
        help="Durable multi-agent pipelines on Temporal: start, watch, decide, repair.",
        epilog=EXIT_CODES_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    @with_groups
    def options(
        ctx: typer.Context,
        given: GlobalOptions,
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
        ] = False,
    ) -> None:
        ctx.obj = given

    groups = {name: typer.Typer(name=name, help=text, no_args_is_help=True) for name, text in GROUPS.items()}
    groups["inbox"] = typer.Typer(name="inbox", help=GROUPS["inbox"], cls=_ListsByDefault)
    groups["schedule"] = typer.Typer(name="schedule", help=GROUPS["schedule"], cls=_Schedules)
    panels = {listed.group: listed.panel for listed in COMMANDS}
    for listed in COMMANDS:
        _register(groups.get(listed.group, app), listed)
    for name, group in groups.items():
        app.add_typer(group, rich_help_panel=panels[name])
    return app
