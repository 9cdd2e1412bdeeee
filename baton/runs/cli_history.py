"""`baton history`, `baton diff` and `baton explain`: how the baton came to be what it is."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from baton.cli.output import format_time, make_grid, make_table, plain, stack
from baton.cli.session import STAGE_HELP, RunArgument, Session, Target, command
from baton.client import RunRecord, Step, StepStatus, read_run
from baton.core.history import HistoryEntry, StepKind
from baton.handoff.pending import HandoffDecision
from baton.runs.cli_show import glyph, heading, repair_hints, verdict
from baton.runs.client_changes import Before, Change, changes, compare, remarks, with_before
from baton.runs.client_explanation import explain_run
from baton.runs.client_record import NOW, START
from baton.wire.money import format_usd
from baton.wire.text import elapsed, format_duration


@command
async def history(session: Session, run: RunArgument) -> None:
    """Show who changed what, and when.

    A row for each step: when it ended, how long it took and how many attempts were refused before, who approved or
    denied where a person decided, and every entry of the baton that came (+) or went (-). Below it stand warnings, and
    what the branches of a fan-out disagreed about.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    if session.json:
        session.write_json(history_as_json(record))
        return
    session.show(heading(record), "", history_table(record))
    for at, decision in record.decided:
        session.show(_decided(at, decision, record))
    if hints := repair_hints(record):
        session.show("", *hints)


def history_table(record: RunRecord) -> Any:
    """Return the table of all changes."""
    table = make_table("", "#", "step", "when", "took", "what changed", right=("#", "took"), whole=("when", "took"))
    steps = {step.seq: step for step in record.steps}
    told: set[int] = set()
    for entry, before in _merges_first(record):
        step = None if entry.kind is StepKind.EDIT else steps.get(entry.seq)
        is_branch = entry.kind is StepKind.BRANCH
        told.add(entry.seq)
        table.add_row(
            "" if step is None or is_branch else glyph(step),
            "" if is_branch or step is None else str(entry.seq),
            stack(_name(entry), _kind(entry, step)),
            "" if is_branch else format_time(_ended(entry, step), record.began),
            "" if step is None or is_branch else format_duration(_took(step)),
            hanging(_what(entry, before)),
        )
    for step in record.steps:
        if step.seq not in told:
            table.add_row(*_unfinished(step, record))
    return table


def _merges_first(record: RunRecord) -> list[tuple[HistoryEntry, Before]]:
    """Return the entries with the baton before each; a merge stands above the branches it was made of."""
    pairs = [*with_before(record)]
    places = {entry.seq: place for place, (entry, _) in enumerate(pairs) if entry.kind is StepKind.MERGE}
    order = [places.get(entry.seq, place) for place, (entry, _) in enumerate(pairs)]
    kinds = [entry.kind is not StepKind.MERGE for entry, _ in pairs]
    return [pairs[place] for place in sorted(range(len(pairs)), key=lambda place: (order[place], kinds[place], place))]


def _name(entry: HistoryEntry) -> Text:
    """Return the step's name; a branch's stands below its merge, so it is indented."""
    attempts = f" ×{entry.attempt}" if entry.attempt > 1 else ""
    indent = "  " if entry.kind is StepKind.BRANCH else ""
    return Text.assemble(indent, plain(entry.stage_id, "" if indent else "bold"), (attempts, "yellow"))


def _kind(entry: HistoryEntry, step: Step | None) -> Text | None:
    """Return what kind of step it was, who decided and how; nothing for an ordinary stage."""
    by = f" by {entry.by}" if entry.by else ""
    if step is not None and step.approved is not None:
        return plain(f"{verdict(step)}{by}", "dim" if step.approved else "red")
    if entry.kind in (StepKind.STAGE, StepKind.BRANCH):
        return None
    return plain(f"{entry.kind.value}{by}", "dim")


def _what(entry: HistoryEntry, before: Before) -> list[Text]:
    """Return what an entry did, in words."""
    lines = [plain(f"“{entry.why}”", "italic")] if entry.why else []
    lines += change_lines([*changes(entry, before), *remarks(entry)])
    spend = entry.spend
    if spend.micro_usd or spend.prompt_tokens or spend.completion_tokens:
        cost = (
            f"{format_usd(spend.micro_usd)}, {spend.prompt_tokens:,} tokens read, {spend.completion_tokens:,} written"
        )
        lines.append(Text(cost, "dim"))
    return lines


def _decided(at: datetime, decision: HandoffDecision, record: RunRecord) -> Text:
    """Return in a line who decided what about a handoff that waited, and why."""
    amount = f" by {format_usd(decision.micro_usd)}" if decision.micro_usd else ""
    why = f": “{decision.why}”" if decision.why else ""
    told = f"{format_time(at, record.began)} {decision.who}: {decision.action.value.replace('_', ' ')}{amount}"
    return plain(f"{told}, handoff {decision.handoff_id[:8]}{why}", "yellow")


def _unfinished(step: Step, record: RunRecord) -> list[Any]:
    """Return the row of a step that changed nothing yet, or never will."""
    attempts = f" ×{step.attempts}" if step.attempts > 1 else ""
    state = "waits for a decision" if step.kind is StepKind.APPROVAL else "at work"
    if step.status is StepStatus.FAILED:
        state = "the run ended before it did"
    what = plain(step.failure, "red") if step.failure else Text(state, "dim")
    return [
        glyph(step),
        str(step.seq),
        stack(
            Text.assemble(plain(step.name, "bold"), (attempts, "yellow")),
            None if step.kind is StepKind.STAGE else Text(step.kind.value, "dim"),
        ),
        format_time(step.ended or step.began, record.began),
        format_duration(_took(step)),
        what,
    ]


def _ended(entry: HistoryEntry, step: Step | None) -> datetime:
    return step.ended if step is not None and step.ended is not None else entry.timestamp


def _took(step: Step) -> timedelta | None:
    """Return how long a step took in this run; what was taken over took no time."""
    return None if step.status is StepStatus.TAKEN_OVER else elapsed(step.began, step.ended)


def history_as_json(record: RunRecord) -> dict[str, Any]:
    """Return the history as JSON: the run, and one object for each change and each unfinished step."""
    steps = {step.seq: step for step in record.steps}
    rows = []
    for entry, after in record.history:
        step = None if entry.kind is StepKind.EDIT else steps.get(entry.seq)
        took = _took(step) if step else None
        rows.append(
            {
                "seq": entry.seq,
                "stage_id": entry.stage_id,
                "kind": entry.kind.value,
                "status": step.status.value if step else StepStatus.DONE.value,
                "timestamp": _ended(entry, step).isoformat(),
                "seconds": None if took is None else took.total_seconds(),
                "attempt": entry.attempt,
                "by": entry.by,
                "why": entry.why,
                "approved": step.approved if step else None,
                "patch": entry.patch,
                "change": entry.effective,
                "warnings": entry.warnings,
                "removed_constraints": entry.removed_constraints,
                "conflicts": [one.model_dump(mode="json") for one in entry.conflicts],
                "spend": dict(entry.spend),
                "digest": after.digest,
            }
        )
    run = record.to_json_object()
    return {**{key: run[key] for key in run if key != "baton"}, "history": rows, "decided": _decisions(record)}


def _decisions(record: RunRecord) -> list[dict[str, Any]]:
    """Return what people decided about handoffs, as JSON."""
    return [{"at": at.isoformat(), **decision.model_dump(mode="json")} for at, decision in record.decided]


@command
async def diff(
    session: Session,
    run: RunArgument,
    first: Annotated[
        str,
        typer.Argument(metavar="STAGE", help=f"A stage: {STAGE_HELP}; or `{START}`."),
    ] = START,
    second: Annotated[
        str,
        typer.Argument(metavar="STAGE", help=f"Another stage; `{NOW}` is the baton as it is, or at the end."),
    ] = NOW,
) -> None:
    """Compare the batons after two stages, field by field.

    Each baton is taken as it was right after the stage; `start` is the one before the first stage.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    (title, before), (later_title, after) = record.point(first), record.point(second)
    fields = compare(before, after)
    if session.json:
        old, new = before.to_json_object(), after.to_json_object()
        members = {one.name: _difference_as_json(old.get(one.name), new.get(one.name)) for one in fields}
        session.write_json({"run_id": record.run_id, "from": title, "to": later_title, "fields": members})
        return
    session.show(
        Text.assemble(
            plain(record.workflow_id, "bold cyan"), ": ", (f"- {title}", "red"), "  ", (f"+ {later_title}", "green")
        )
    )
    if not fields:
        session.show("the batons are the same")
    for field in fields:
        session.show("", plain(field.name, "bold"), *change_lines(field.changes))
        if field.kept:
            session.show(Text(f"  {field.kept} unchanged", "dim"))


def _difference_as_json(old: Any, new: Any) -> dict[str, Any]:
    """Return what came to a field and what went."""
    if isinstance(old, list | None) and isinstance(new, list | None):
        before, after = old or [], new or []
        return {
            "removed": [one for one in before if one not in after],
            "added": [one for one in after if one not in before],
        }
    return {"removed": [] if old is None else [old], "added": [] if new is None else [new]}


_STYLES = {"+": ("green", ""), "-": ("red", ""), "!": ("yellow", "yellow"), "=": ("dim", "dim")}


def change_lines(shown: Iterable[Change]) -> list[Text]:
    """Return changes and remarks, each as a line in the colours of its sign."""
    return [_line(one) for one in shown]


def _line(change: Change) -> Text:
    sign, text = _STYLES.get(change.sign, ("dim", "dim"))
    label = plain(f"{change.label}: " if change.label else "", "dim")
    return Text.assemble((f"{change.sign} " if change.sign else "", sign), label, plain(change.text, text))


def hanging(lines: Iterable[Text]) -> Table:
    """Return the lines, each with its sign in a column of its own, so that long ones stay apart."""
    table = make_grid()
    for line in lines:
        signed = line.plain[1:2] == " "
        table.add_row(line[:1] if signed else "", line[2:] if signed else line)
    return table


StageArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STAGE", help="The stage: its name, its step's number, or name:2 for the second. By default the last."
    ),
]


@command
async def explain(session: Session, run: RunArgument, stage: StageArgument = None) -> None:
    """Explain a stage: what its agent saw, what was left out and why.

    Each fact is listed with its source and its confidence, then the tools and the cost in tokens. Reads the run's
    history: no worker is needed, and ended runs are explained too. What was left out is named by event and reason,
    never by its content.

    The exit code is 1 if no stage was given a contract or made a prompt.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        found = await explain_run(client, target.workflow_id, target.run_id, stage)
    if session.json:
        session.write_json({**found.model_dump(mode="json"), "times_fewer": found.times_fewer})
    elif session.out.is_terminal:
        session.show(Markdown(found.to_markdown()))
    else:
        session.write(found.to_markdown())
