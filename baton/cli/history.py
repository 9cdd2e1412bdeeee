"""`baton history` and `baton diff`: how the baton changed."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from baton import HistoryEntry, StepKind
from baton.cli.output import format_time, make_grid, make_table, plain, stack
from baton.cli.session import STAGE_HELP, RunArgument, Session, Target, command
from baton.cli.show import glyph, heading, repair_hints
from baton.client import RunRecord, Settled, Step, StepStatus, read_run
from baton.client.faces import Before, Change, changes, compare, remarks, with_before
from baton.wire.money import format_cost, format_usd
from baton.wire.text import cut_line, elapsed, format_duration

_START, _NOW = "start", "now"  # of `RunRecord.point`
_MAX_REASON_LENGTH = 200


@command
async def history(session: Session, run: RunArgument) -> None:
    """Show who changed what, and when.

    A row for each step: when it ended, how long it took, its attempts, who approved or denied it, and every entry of
    the baton that was added (+) or removed (-). Warnings and conflicts between the branches of a fan-out are below.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    if session.json:
        session.write_json(history_as_json(record))
        return
    session.show(heading(record), "", history_table(record))
    for settled in record.handoff_decisions:
        session.show(_decision_line(settled, record))
    if hints := repair_hints(record):
        session.show("", *hints)


def history_table(record: RunRecord) -> Any:
    """Return the table of all changes."""
    table = make_table("", "#", "step", "when", "took", "what changed", right=("#", "took"), whole=("when", "took"))
    steps = {step.seq: step for step in record.steps}
    shown: set[int] = set()
    failed, refused = _failed_before(record), record.refused
    for entry, before in _with_merges_first(record):
        for seq in failed.pop(entry.seq, ()):
            shown.add(seq)
            table.add_row(*_unfinished_row(steps[seq], record, refused))
        step = None if entry.kind is StepKind.EDIT else steps.get(entry.seq)
        is_branch = entry.kind is StepKind.BRANCH
        shown.add(entry.seq)
        table.add_row(
            "" if step is None or is_branch else glyph(step),
            "" if is_branch or step is None else str(entry.seq),
            stack(_name_cell(entry), _kind_cell(entry, step)),
            "" if is_branch else format_time(_end_time(entry, step), record.began),
            "" if step is None or is_branch else format_duration(_duration(step)),
            _hanging(
                [
                    *_retry_lines(step if not is_branch else None),
                    *_refusal_lines(entry.kind, refused.get((entry.seq, entry.stage_id))),
                    *_entry_lines(entry, before),
                ]
            ),
        )
    for step in record.steps:
        if step.seq not in shown:
            table.add_row(*_unfinished_row(step, record, refused))
    return table


def _failed_before(record: RunRecord) -> dict[int, list[int]]:
    """Return the steps that failed, by the step with the next change: what follows from a failure stands below it."""
    known = {step.seq for step in record.steps}
    failed: list[int] = []
    before: dict[int, list[int]] = {}
    for outcome in record.state.outcomes:
        if outcome.failure is not None:
            failed += [outcome.seq] if outcome.seq in known else []
        elif outcome.entries and failed:
            before.setdefault(outcome.seq, []).extend(failed)
            failed = []
    return before


def _with_merges_first(record: RunRecord) -> list[tuple[HistoryEntry, Before]]:
    """Return the entries with the old values of their fields; a merge comes before its branches."""
    pairs = [*with_before(record)]
    merges = {entry.seq: index for index, (entry, _) in enumerate(pairs) if entry.kind is StepKind.MERGE}

    def order(index: int) -> tuple[int, bool, int]:
        entry, _ = pairs[index]
        return merges.get(entry.seq, index), entry.kind is not StepKind.MERGE, index

    return [pairs[index] for index in sorted(range(len(pairs)), key=order)]


def _name_cell(entry: HistoryEntry) -> Text:
    attempts = f" ×{entry.attempt}" if entry.attempt > 1 else ""
    indent = "  " if entry.kind is StepKind.BRANCH else ""
    return Text.assemble(indent, plain(entry.stage_id, "" if indent else "bold"), (attempts, "yellow"))


def _kind_cell(entry: HistoryEntry, step: Step | None) -> Text | None:
    """Return the kind of step, or the decision and who made it; None for an ordinary stage."""
    by = f" by {entry.by}" if entry.by else ""
    if step is not None and step.approved is not None:
        return plain(f"{step.verdict}{by}", "dim" if step.approved else "red")
    if entry.kind in (StepKind.STAGE, StepKind.BRANCH):
        return None
    return plain(f"{entry.kind.value}{by}", "dim")


def _retry_lines(step: Step | None) -> list[Text]:
    if step is None or not step.retries:
        return []
    times = f" {step.retries} times" if step.retries > 1 else ""
    return [plain(f"retried{times}: {step.retried}", "yellow")]


def _entry_lines(entry: HistoryEntry, before: Before) -> list[Text]:
    lines = [plain(f"“{entry.why}”", "italic")] if entry.why else []
    lines += change_lines([*changes(entry, before), *remarks(entry)])
    spend = entry.spend
    if spend:
        cost = format_cost(spend.micro_usd, spend.tokens)
        tokens = f"{spend.prompt_tokens:,} tokens read, {spend.completion_tokens:,} written"
        lines.append(Text(f"{'cost ' if cost == 'unknown' else ''}{cost}, {tokens}", "dim"))
    return lines


def _refusal_lines(kind: StepKind, reasons: Iterable[str] | None) -> list[Text]:
    """Return why attempts of a stage were refused, each reason on a short line."""
    reasons = () if kind is StepKind.EDIT else reasons or ()
    return change_lines(Change("!", f"refused: {cut_line(reason, _MAX_REASON_LENGTH)}") for reason in reasons)


def _decision_line(settled: Settled, record: RunRecord) -> Text:
    amount = f" by {format_usd(settled.micro_usd)}" if settled.micro_usd else ""
    why = f": “{settled.why}”" if settled.why else ""
    summary = f"{format_time(settled.at, record.began)} {settled.who}: {settled.choice.replace('_', ' ')}{amount}"
    return plain(f"{summary}, handoff {(settled.handoff_id or '')[:8]}{why}", "yellow")


def _unfinished_row(step: Step, record: RunRecord, refused: Mapping[tuple[int, str], list[str]]) -> list[Any]:
    """Return the row of a step without a history entry; its failure is the last refusal."""
    attempts = f" ×{step.attempts}" if step.attempts > 1 else ""
    failure = step.failure or ""
    reasons = [reason for reason in refused.get((step.seq, step.name), ()) if reason not in failure]
    detail = plain(failure, "red") if failure else Text(_state_of(step, record), "dim")
    return [
        glyph(step),
        str(step.seq),
        stack(
            Text.assemble(plain(step.name, "bold"), (attempts, "yellow")),
            None if step.kind is StepKind.STAGE else Text(step.kind.value, "dim"),
        ),
        format_time(step.ended or step.began, record.began),
        format_duration(_duration(step)),
        stack(_hanging(_refusal_lines(step.kind, reasons)), detail) if reasons else detail,
    ]


def _state_of(step: Step, record: RunRecord) -> str:
    """Return what a step without a history entry does."""
    if step.status is StepStatus.FAILED:
        return "the run ended before it did"
    if record.suspended or step.seq in record.lacking:
        return "suspended"
    if step.kind is StepKind.APPROVAL or step.seq in {handoff.seq for handoff in record.pending_handoffs}:
        return "waits for a decision"
    return "sleeps" if step.kind is StepKind.SLEEP else "at work"


def _end_time(entry: HistoryEntry, step: Step | None) -> datetime:
    return step.ended if step is not None and step.ended is not None else entry.timestamp


def _duration(step: Step) -> timedelta | None:
    return None if step.status is StepStatus.REUSED else elapsed(step.began, step.ended)


def history_as_json(record: RunRecord) -> dict[str, Any]:
    """Return the history as JSON: the run, and one object for each change and each unfinished step."""
    steps, refused = {step.seq: step for step in record.steps}, record.refused
    rows = []
    for entry, baton in record.history:
        step = None if entry.kind is StepKind.EDIT else steps.get(entry.seq)
        took = _duration(step) if step else None
        rows.append(
            {
                "seq": entry.seq,
                "stage_id": entry.stage_id,
                "stage": entry.stage or (entry.stage_id if entry.kind in (StepKind.STAGE, StepKind.BRANCH) else None),
                "kind": entry.kind.value,
                "status": step.status.value if step else StepStatus.DONE.value,
                "timestamp": _end_time(entry, step).isoformat(),
                "seconds": None if took is None else took.total_seconds(),
                "attempt": entry.attempt,
                "retries": step.retries if step else 0,
                "by": entry.by,
                "why": entry.why,
                "approved": step.approved if step else None,
                "patch": entry.patch,
                "change": entry.effective,
                "warnings": entry.warnings,
                "removed_constraints": entry.removed_constraints,
                "failure": entry.failure,
                "refused": [] if entry.kind is StepKind.EDIT else refused.get((entry.seq, entry.stage_id), []),
                "steered": [note.to_json_object() for note in entry.steered],
                "agents": entry.agents,
                "conflicts": entry.conflicts,
                "report": entry.report,
                "spend": dict(entry.spend),
                "digest": baton.digest,
            }
        )
    run = record.to_json_object()
    decisions = record.handoff_decisions
    return {**{key: run[key] for key in run if key != "baton"}, "history": rows, "decided": decisions}


@command
async def diff(
    session: Session,
    run: RunArgument,
    first: Annotated[
        str,
        typer.Argument(metavar="STAGE", help=f"A stage: {STAGE_HELP}; or `{_START}`."),
    ] = _START,
    second: Annotated[
        str,
        typer.Argument(metavar="STAGE", help=f"Another stage; `{_NOW}` is the current or the last baton."),
    ] = _NOW,
) -> None:
    """Compare the batons after two stages, field by field.

    Each is the baton right after the stage; `start` is the baton before the first stage.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    (title, old_baton), (later_title, new_baton) = record.point(first), record.point(second)
    fields = compare(old_baton, new_baton)
    if session.json:
        old, new = old_baton.to_json_object(), new_baton.to_json_object()
        members = {field.name: _difference_as_json(old.get(field.name), new.get(field.name)) for field in fields}
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
    if isinstance(old, list | None) and isinstance(new, list | None):
        old_items, new_items = old or [], new or []
        return {
            "removed": [item for item in old_items if item not in new_items],
            "added": [item for item in new_items if item not in old_items],
        }
    return {"removed": [] if old is None else [old], "added": [] if new is None else [new]}


_STYLES = {"+": ("green", ""), "-": ("red", ""), "!": ("yellow", "yellow"), "=": ("dim", "dim")}


def change_lines(changes: Iterable[Change]) -> list[Text]:
    """Return changes and remarks as lines, coloured by sign."""
    return [_change_line(change) for change in changes]


def _change_line(change: Change) -> Text:
    sign, text = _STYLES.get(change.sign, ("dim", "dim"))
    label = plain(f"{change.label}: " if change.label else "", "dim")
    return Text.assemble((f"{change.sign} " if change.sign else "", sign), label, plain(change.text, text))


def _hanging(lines: Iterable[Text]) -> Table:
    """Return the lines with their signs in a separate column, so that long lines wrap beside them."""
    table = make_grid()
    for line in lines:
        has_sign = line.plain[1:2] == " "
        table.add_row(line[:1] if has_sign else "", line[2:] if has_sign else line)
    return table
