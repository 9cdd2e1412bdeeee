"""The `baton` application: its global options and the table of its commands.

A command's module is imported when the command is called, not for `baton --help` or shell completion, which cost what
Typer with Rich costs; the Temporal SDK and pydantic cost three times as much.
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
from baton.cli.options import EXIT_CODES_HELP, GlobalOptions, expand_option_groups


@dataclass(frozen=True)
class CommandEntry:
    """One command: its name, its module and its panel of `--help`. A name of two words is `GROUP COMMAND`."""

    name: str
    module: str
    panel: str

    @property
    def help(self) -> str:
        """The first line of the function's docstring, read from the source because importing the module is slow."""
        source = Path(__file__).with_name(f"{self.module}.py")
        pattern = rf'^(?:async def {self.function}\(|{self.function} = ).*?^    """([^"\n]+)'
        match = re.search(pattern, source.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        return match[1] if match else ""

    @property
    def function(self) -> str:
        """The name of the command's function; those of `list` and `import` are `list_` and `import_`."""
        return f"{self.word}_" if self.word in ("list", "import") else self.word.replace("-", "_")

    @property
    def word(self) -> str:
        """The name without the group."""
        return self.name.rpartition(" ")[2]

    @property
    def group(self) -> str:
        """The group's name, or an empty string."""
        return self.name.rpartition(" ")[0]


_START, _LOOK, _DECIDE, _CHECK, _PROVE = "Start", "Look", "Decide and repair", "Check", "Prove and protect"

GROUPS = {
    "add": "Add a stage or a pipeline to a project that `baton new` made.",
    "inbox": "Handoffs that wait for a person: list, show, decide. Without a command, lists them.",
    "schedule": "Scheduled pipelines: `baton schedule PIPELINE --cron …`. Without a command, lists them.",
    "handoff": "Orders to pipelines of other companies, in files: export, accept, confirm.",
    "artifact": "The work products of a run: list, print, save; and put back what the store has lost.",
    "lab": "Recorded cases run again: what would a change have done to them?",
    "audit": "The audit ledger: trace a task, verify and export its records.",
    "keys": "The keys that seal, sign and encrypt.",
}
"""The command groups and their `--help` texts."""

COMMANDS = (
    CommandEntry("new", "new", _START),
    CommandEntry("add stage", "new", _START),
    CommandEntry("add pipeline", "new", _START),
    CommandEntry("dev", "dev", _START),
    CommandEntry("console", "dev", _START),
    CommandEntry("run", "run", _START),
    CommandEntry("import", "importing", _START),
    CommandEntry("schedule add", "run", _START),
    CommandEntry("schedule list", "run", _START),
    CommandEntry("schedule delete", "run", _START),
    CommandEntry("serve", "serve", _START),
    CommandEntry("mcp", "outside", _START),
    CommandEntry("list", "listing", _LOOK),
    CommandEntry("show", "show", _LOOK),
    CommandEntry("history", "history", _LOOK),
    CommandEntry("diff", "history", _LOOK),
    CommandEntry("explain", "explanation", _LOOK),
    CommandEntry("why", "explanation", _LOOK),
    CommandEntry("report", "dev", _LOOK),
    CommandEntry("bill", "listing", _LOOK),
    CommandEntry("watch", "watch", _LOOK),
    CommandEntry("artifact list", "artifacts", _LOOK),
    CommandEntry("artifact cat", "artifacts", _LOOK),
    CommandEntry("artifact save", "artifacts", _LOOK),
    CommandEntry("artifact put", "artifacts", _LOOK),
    CommandEntry("approve", "decide", _DECIDE),
    CommandEntry("cancel", "rollback", _DECIDE),
    CommandEntry("deny", "decide", _DECIDE),
    CommandEntry("rollback", "rollback", _DECIDE),
    CommandEntry("fork", "run", _DECIDE),
    CommandEntry("pause", "rollback", _DECIDE),
    CommandEntry("unpause", "rollback", _DECIDE),
    CommandEntry("steer", "steer", _DECIDE),
    CommandEntry("inbox list", "inbox", _DECIDE),
    CommandEntry("inbox show", "inbox", _DECIDE),
    CommandEntry("inbox release", "inbox", _DECIDE),
    CommandEntry("inbox requeue", "inbox", _DECIDE),
    CommandEntry("inbox edit", "inbox", _DECIDE),
    CommandEntry("inbox top-up", "inbox", _DECIDE),
    CommandEntry("inbox abandon", "inbox", _DECIDE),
    CommandEntry("handoff export", "handoff", _DECIDE),
    CommandEntry("handoff accept", "handoff", _DECIDE),
    CommandEntry("handoff confirm", "handoff", _DECIDE),
    CommandEntry("replay", "replay", _CHECK),
    CommandEntry("export", "replay", _CHECK),
    CommandEntry("draw", "draw", _CHECK),
    CommandEntry("schema", "replay", _CHECK),
    CommandEntry("lab new", "lab", _CHECK),
    CommandEntry("lab add", "lab", _CHECK),
    CommandEntry("lab answer", "lab", _CHECK),
    CommandEntry("lab pack", "lab", _CHECK),
    CommandEntry("lab run", "lab_runs", _CHECK),
    CommandEntry("lab show", "lab_runs", _CHECK),
    CommandEntry("lab gate", "lab_runs", _CHECK),
    CommandEntry("lab contract", "lab", _CHECK),
    CommandEntry("doctor", "doctor", _CHECK),
    CommandEntry("audit trace", "audit", _PROVE),
    CommandEntry("audit verify", "audit", _PROVE),
    CommandEntry("audit export", "audit", _PROVE),
    CommandEntry("audit checkpoint", "audit", _PROVE),
    CommandEntry("audit archive", "audit", _PROVE),
    CommandEntry("audit migrate", "audit", _PROVE),
    CommandEntry("erase", "personal", _PROVE),
    CommandEntry("keys new", "keys", _PROVE),
    CommandEntry("keys decider", "keys", _PROVE),
    CommandEntry("keys list", "keys", _PROVE),
    CommandEntry("keys rotate", "keys", _PROVE),
    CommandEntry("keys rewrap", "audit", _PROVE),
    CommandEntry("keys public", "keys", _PROVE),
)
"""Every command, in the order of `--help`."""


class _LazyCommand(TyperCommand):
    """A command whose module is imported when it is called."""

    entry: CommandEntry

    @cached_property
    def _command(self) -> Any:
        module = import_module(f"baton.cli.{self.entry.module}")
        app = typer.Typer(add_completion=False)
        function = getattr(module, self.entry.function)
        app.command(self.entry.word, help=_unwrap(getdoc(function) or ""))(function)
        return get_command(app)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the context of the real command, which typer then runs."""
        return self._command.make_context(*args, **kwargs)


def _unwrap(text: str) -> str:
    """Return a docstring with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))


class _ListGroup(TyperGroup):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` if no command is named, except for help and completion."""
        has_command = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if has_command or ctx.resilient_parsing else ["list", *args])


class _ScheduleGroup(_ListGroup):
    """The group `schedule`: `baton schedule PIPELINE` is `baton schedule add PIPELINE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `add` before a name that is not a command of the group."""
        adds = bool(args) and not args[0].startswith("-") and args[0] not in self.commands
        return super().parse_args(ctx, ["add", *args] if adds and not ctx.resilient_parsing else args)


def _register(app: typer.Typer, entry: CommandEntry) -> None:
    lazy_command = type(f"_LazyCommand_{entry.function}", (_LazyCommand,), {"entry": entry})
    panel = None if entry.group else entry.panel
    app.command(entry.word, help=entry.help, rich_help_panel=panel, cls=lazy_command)(lambda: None)


def _print_version(requested: bool) -> None:
    if requested:
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
    @expand_option_groups
    def options(
        ctx: typer.Context,
        global_options: GlobalOptions,
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
        ] = False,
    ) -> None:
        ctx.obj = global_options

    groups = {name: typer.Typer(name=name, help=text, no_args_is_help=True) for name, text in GROUPS.items()}
    groups["inbox"] = typer.Typer(name="inbox", help=GROUPS["inbox"], cls=_ListGroup)
    groups["schedule"] = typer.Typer(name="schedule", help=GROUPS["schedule"], cls=_ScheduleGroup)
    panels = {entry.group: entry.panel for entry in COMMANDS}
    for entry in COMMANDS:
        _register(groups.get(entry.group, app), entry)
    for name, group in groups.items():
        app.add_typer(group, rich_help_panel=panels[name])
    return app
