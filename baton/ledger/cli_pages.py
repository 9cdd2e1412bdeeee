"""How records, traces and verdicts look on a terminal."""

from rich.console import RenderableType
from rich.text import Text

from baton.cli.output import dollars, json_text, make_table, moment, plain, stack
from baton.ledger.chain import ChainReport, Verdict
from baton.ledger.evidence import EvidenceReport
from baton.ledger.proof import LedgerReport
from baton.ledger.records import AuditHeader, AuditRecord
from baton.ledger.trace import TaskCost, Trace
from baton.wire.text import quantity

_STYLES = {
    Verdict.VALID: "bold green",
    Verdict.UNANCHORED: "bold yellow",
    Verdict.UNVERIFIED: "bold yellow",
    Verdict.INVALID: "bold red",
}
_UNANCHORED = "  records cut off behind these would not be noticed: give what was kept outside (--anchors, --run)"
_NAME_AT_LEAST = 18
_NAMED = 3  # tasks of a bundle
_UNSIGNED = "  not signed as a whole: who passed it on can have left out whole chains"
_STATUSES = {"ACCEPTED": "green", "REJECTED": "red", "COMPLETED": "green"}


def chain_page(report: ChainReport) -> RenderableType:
    """Return the verdict on a task's chain, and what it rests on."""
    proved = [f"signed through {report.signed_through}"] if report.signed_through else []
    proved += [f"anchored through {report.anchored_through}"] if report.anchored_through else []
    # Not "completed": a run that waits for a person, or was terminated, has a record like that last as well.
    ending = "ends with a completion" if report.completed else "ends with no completion"
    facts = [quantity(report.records, "record"), *proved, ending]
    return stack(
        _title(report.verdict, f"task {report.task_id}"),
        plain("  " + " · ".join(facts), "dim"),
        plain(f"  record {report.sequence or report.records}: {report.reason}") if report.reason else None,
        _unanchored(report.verdict, report.records - report.anchored_through, "record"),
    )


def ledger_page(report: LedgerReport, where: str) -> RenderableType:
    """Return the verdict on a whole ledger, with the chains that are not valid."""
    facts = [quantity(report.records, "record"), quantity(report.tasks, "task")]
    if report.checkpointed_through:
        facts.append(f"checkpoint at {report.checkpointed_through:,}")
    more = report.flaws - len(report.flawed)
    return stack(
        _title(report.verdict, f"ledger {report.ledger} in {where}"),
        plain("  " + " · ".join(facts), "dim"),
        plain("  it has no records, and nothing that knows of any") if not report.records else None,
        *(plain(f"  {reason}") for reason in report.reasons),
        *(_flawed(one) for one in report.flawed),
        plain(f"  and {quantity(more, 'task')} more", "dim") if more else None,
        _unanchored(report.verdict, report.unanchored, "task"),
    )


def bundle_page(report: EvidenceReport, file: str) -> RenderableType:
    """Return the verdict on a bundle, with the tasks that it is of: its name may say another one."""
    vouched = [f"signed by key {report.signed_by}"] if report.signed_by else []
    made = [f"made {moment(report.created_at)}"] if report.created_at else []
    others = report.tasks - _NAMED
    named = ", ".join(report.task_ids[:_NAMED]) + (f" and {quantity(others, 'task')} more" if others > 0 else "")
    proved = [f"{quantity(len(report.witnessed), 'task')} proved to stand in a checkpoint"] if report.witnessed else []
    return stack(
        ledger_page(report, file),
        plain(f"  of {named}") if named else None,
        plain("  " + " · ".join([*made, *vouched, *proved]), "dim") if made else None,
        plain(_UNSIGNED, "yellow") if report.verdict is not Verdict.INVALID and not report.signed_by else None,
    )


def trace_page(trace: Trace) -> RenderableType:
    """Return everything that happened to a task, on a page."""
    table = make_table("#", "recorded", "what", "spent", "from → to, why", right=("#", "spent"), whole=("recorded",))
    names = [name for header in trace.headers for name in _who(header).split(" ")]
    table.columns[4].min_width = min(max(map(len, names), default=0), _NAME_AT_LEAST)
    began = trace.headers[0].recorded_at if trace.headers else None
    for header in trace.headers:
        why = " ".join(one for one in (header.reason, _first_line(header.details)) if one)
        table.add_row(
            str(header.sequence),
            moment(header.recorded_at, began),
            _what(header),
            dollars(header.cost.spent_micro_usd) if header.cost else "",
            stack(*(plain(one) for one in (_who(header), why) if one)),
        )
    output = trace.output
    return stack(
        chain_page(trace.report),
        plain(f"  begun {moment(began)}", "dim") if began else None,
        "",
        table,
        "",
        _cost(trace.cost),
        *(plain(f"! {finding}", "yellow") for finding in trace.cost.findings),
        None if output is None else Text.assemble(("Output: ", "bold"), plain(json_text(output, lines=True))),
    )


def record_line(record: AuditRecord, *, as_json: bool) -> str:
    """Return a record on one line: its header as JSON, or what matters of it in words."""
    if record.absence is not None:
        where = record.claims.task_id if record.claims else "?"
        line = {"position": record.position, "taskId": where, "absence": record.absence}
        return json_text(line, lines=True) + "\n" if as_json else plain(f"? {where} {record.absence}").plain + "\n"
    if as_json:
        return json_text({"position": record.position} | record.members, lines=True) + "\n"
    header = record.fields
    parts = [moment(header.recorded_at), header.task_id, f"#{header.sequence}", header.kind, header.status]
    return plain(" ".join([*parts, _who(header), header.reason or ""]).rstrip()).plain + "\n"


def _title(verdict: Verdict, what: str) -> Text:
    first, comma, rest = verdict.value.partition(",")
    return Text.assemble((f"{first.upper()}{comma}{rest}", _STYLES[verdict]), "  ", plain(what, "bold"))


def _unanchored(verdict: Verdict, count: int, what: str) -> RenderableType | None:
    if verdict is not Verdict.UNANCHORED:
        return None
    ends = "the last" if what == "record" else "the end of"
    found = f"  {ends} {quantity(count, what)} was not compared with anything outside"
    return stack(plain(found, "yellow"), plain(_UNANCHORED, "yellow"))


def _flawed(report: ChainReport) -> Text:
    where = f"  task {report.task_id}, record {report.sequence}: "
    return Text.assemble(plain(where, _STYLES[report.verdict]), plain(report.reason or ""))


def _what(header: AuditHeader) -> Text:
    attempt = f", attempt {header.attempt}" if header.attempt > 1 else ""
    return Text.assemble(
        plain(f"{header.kind} "), plain(header.status, _STATUSES.get(header.status, "")), plain(attempt, "dim")
    )


def _who(header: AuditHeader) -> str:
    """Return who handed to whom, or who decided."""
    hop = " → ".join(one for one in (header.from_agent, header.to_agent) if one)
    return f"{hop} by {header.actor}".strip() if header.actor else hop


def _cost(cost: TaskCost) -> RenderableType:
    """Return what the task cost and who spent it."""
    by_agent = ", ".join(f"{agent} ${amount.normalize():f}" for agent, amount in cost.by_agent.items() if amount)
    so_far = "" if cost.complete else " so far"
    tokens = f", {cost.prompt_tokens:,} tokens read, {cost.completion_tokens:,} written" if cost.prompt_tokens else ""
    return Text.assemble(
        ("Cost: ", "bold"),
        plain(f"{dollars(cost.micro_usd)}{so_far}{tokens}{f' ({by_agent})' if by_agent else ''}"),
    )


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]
