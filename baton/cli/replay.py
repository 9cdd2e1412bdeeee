"""`baton replay` and `baton export`, which replay recorded histories against the current code, and `baton schema`."""

import json
import os
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.text import Text
from temporalio.client import WorkflowHistory
from temporalio.worker import Plugin

from baton import BatonPlugin, WorkerParts
from baton.cli.options import ExitCode, ForceOption, refuse_overwrite
from baton.cli.output import plain
from baton.cli.session import RunArgument, Session, Target, command
from baton.client import RunFilter, list_runs, schema_of
from baton.client.faces import MESSAGES, SCHEMAS, Replayed, replay_history
from baton.codec.conversion import data_converter
from baton.errors import BatonError
from baton.wire.text import quantity
from baton.worker import SettingError, collect_pipelines, with_submodules

_DURABLE_MODULE = "baton.agents.pydantic_ai_durable"  # its pipelines only load with its worker plugin


@dataclass(frozen=True)
class _Verdict:
    """The result of one history; `ended` is for runs that `--last` found closed, which new code does not affect."""

    source: str
    replayed: Replayed
    ended: bool = False

    @property
    def fits(self) -> bool:
        """Whether the code can continue the run."""
        return self.replayed.problem is None

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON."""
        pipeline, events, problem = self.replayed.pipeline, self.replayed.events, self.replayed.problem
        members = {"source": self.source, "pipeline": pipeline, "events": events, "fits": self.fits}
        return {**members, "problem": problem, "ended": self.ended}


@command
async def replay(
    session: Session,
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|FILE",
            help="Runs, or files that `baton export` or the Temporal CLI saved.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help="Also the newest N runs of these pipelines, open ones first."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module",
            "-m",
            metavar="MODULE",
            help="A module with pipelines, or a package with all its modules; required, may be repeated.",
        ),
    ] = None,
    path: Annotated[
        Path, typer.Option("--path", metavar="DIR", exists=True, file_okay=False, help="Where to import from.")
    ] = Path("."),
) -> None:
    """Replay recorded histories against the current code.

    Each history is replayed in the workflow sandbox: no stage is executed and nothing is written. The exit code
    is 1 if the code does not match one of the histories. Before a deployment, `--last 200` replays the open runs
    and those that ended last; of these a misfit is only reported.
    """
    sources = source or []
    if not sources and last is None:
        raise typer.BadParameter("name runs or files, or ask for the newest runs with --last", param_hint="RUN|FILE")
    if not module:
        raise typer.BadParameter(
            "name the module of the pipelines to replay with, e.g. -m workflows.delivery, once for each module",
            param_hint="--module",
        )
    workflows = _load_workflows(path, module)
    with session.progress("getting the histories"):
        newest = await _list_newest(session, [*workflows], last) if last else {}
        histories = await _load_histories(session, [*dict.fromkeys([*sources, *newest])])
    if not histories:
        session.note(f"there are no runs of {', '.join(sorted(workflows))}")
    verdicts = []
    for name, history in histories:
        with session.progress(f"replaying {name}"):
            verdict = await _replay(session, name, history, workflows)
            verdicts.append(replace(verdict, ended=name not in sources and newest[name]))
    if session.json:
        session.write_json(verdicts)
    else:
        _print(session, verdicts)
    if not all(verdict.fits or verdict.ended for verdict in verdicts):
        raise typer.Exit(ExitCode.FAILURE)


@command
async def export(
    session: Session,
    run: RunArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="The file to write; `-` for the output.")
    ],
    force: ForceOption = False,
) -> None:
    """Save a run's history as JSON, to replay it later.

    The format is that of the Temporal CLI and UI. Payloads are saved as in the history: compressed or encrypted,
    and as references if they are in the artifact store.
    """
    target = Target.of(run)
    to_output = str(file) == "-"
    if not to_output:
        refuse_overwrite(file, force, "FILE")
    client = await session.client()
    with session.progress("reading the history"):
        history = await client.get_workflow_handle(target.workflow_id, run_id=target.run_id).fetch_history()
    if to_output:
        session.write(history.to_json() + "\n")
        return
    try:
        _write_atomically(file, history.to_json() + "\n")
    except OSError as error:
        raise BatonError(f"{str(file)!r} cannot be written: {error.strerror or error}") from error
    if session.json:
        session.write_json({"workflow_id": target.workflow_id, "events": len(history.events), "file": str(file)})
    else:
        session.show(plain(f"{len(history.events)} events of {target} are in {file}"))


def _write_atomically(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _load_workflows(path: Path, modules: list[str]) -> dict[str, type]:
    """Return every workflow class of the modules, by its type's name."""
    sys.path.insert(0, str(path.resolve()))
    loaded: list[ModuleType] = []
    for name in modules:
        try:
            loaded += with_submodules(import_module(name))
        except Exception as error:  # the module is the user's own code
            kind = type(error).__name__
            raise typer.BadParameter(
                f"{name!r} cannot be imported from {str(path)!r}: {kind}: {error}", param_hint="--module"
            ) from error
    try:
        workflows = collect_pipelines(loaded)
    except SettingError as error:
        raise typer.BadParameter(str(error), param_hint="--module") from error
    if not workflows:
        raise typer.BadParameter(f"there is no @workflow.defn class in {', '.join(modules)}", param_hint="--module")
    return workflows


async def _list_newest(session: Session, pipelines: list[str], limit: int) -> dict[str, bool]:
    """Return the newest runs of the pipelines, open runs first, and whether each has ended."""
    client = await session.client()
    runs = [run for name in pipelines async for run in list_runs(client, RunFilter(name, every=True), limit=limit)]
    runs.sort(key=lambda run: run.ended or run.began, reverse=True)
    runs.sort(key=lambda run: run.ended is not None)
    return {f"{run.workflow_id}/{run.run_id}": run.ended is not None for run in runs[:limit]}


async def _load_histories(session: Session, sources: list[str]) -> list[tuple[str, WorkflowHistory]]:
    """Return each history with its name, from files or from the server."""
    files = set(filter(os.path.isfile, sources))
    for source in sources:
        if source.endswith(".json") and source not in files:
            raise BatonError(f"there is no file {source!r}; `baton export RUN {source}` makes one")
    client = None if files.issuperset(sources) else await session.client()
    histories = []
    for source in sources:
        if client is None or source in files:
            histories.append((source, _load_file(Path(source))))
        else:
            target = Target.of(source)
            handle = client.get_workflow_handle(target.workflow_id, run_id=target.run_id)
            histories.append((source, await handle.fetch_history()))
    return histories


def _load_file(file: Path) -> WorkflowHistory:
    try:
        history = WorkflowHistory.from_json(file.stem, json.loads(file.read_bytes()))
        if not history.events[0].HasField("workflow_execution_started_event_attributes"):
            raise ValueError("its first event does not start a workflow")
    except Exception as error:  # the parser raises errors of any type
        raise BatonError(f"{str(file)!r} is not an event history: {error or type(error).__name__}") from error
    return history


async def _replay(session: Session, name: str, history: WorkflowHistory, workflows: dict[str, type]) -> _Verdict:
    plugins: list[Plugin] = [BatonPlugin(WorkerParts(artifacts=session.artifacts), keyring=session.keyring)]
    if (durable := sys.modules.get(_DURABLE_MODULE)) is not None:  # loaded by a module with such an agent
        plugins.append(durable.DurableAgentsPlugin())
    converter = data_converter(session.artifacts, keyring=session.keyring)
    replayed = await replay_history(history, workflows, plugins=plugins, converter=converter, runtime=session.runtime)
    return _Verdict(name, replayed)


def _print(session: Session, verdicts: list[_Verdict]) -> None:
    for verdict in verdicts:
        sign, style = ("✓", "green") if verdict.fits else ("✗", "yellow" if verdict.ended else "bold red")
        about = f"  {verdict.replayed.pipeline}, {verdict.replayed.events} events"
        session.show(Text.assemble((f"{sign} ", style), plain(verdict.source, "bold"), (about, "dim")))
        if verdict.replayed.problem:
            session.show(plain(f"    {verdict.replayed.problem}", "red"))
    misfits = [verdict for verdict in verdicts if verdict.replayed.is_misfit]
    if ended := sum(verdict.ended for verdict in misfits):
        session.note(f"{quantity(ended, 'ended run')} would need other code only to be rolled back")
    if open_ := len(misfits) - ended:
        session.note(
            f"{open_} of {len(verdicts)} cannot continue with this code: bring the old code back, or guard the change "
            "by a parameter that only new runs get (docs/deploys.md)"
        )


@command
async def schema(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The record's name; without it, lists all."),
    ] = None,
) -> None:
    """Print the JSON Schema of a record or a message."""
    names = [*MESSAGES, *SCHEMAS]
    if name is None:
        session.write_json(names) if session.json else session.show(*names)
        return
    if name not in names:
        raise typer.BadParameter(f"there is no schema {name!r}; the schemas are {', '.join(names)}", param_hint="NAME")
    session.write_json(schema_of(name))
