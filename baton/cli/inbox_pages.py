"""How pending handoffs are rendered: the list, the page of one, and the texts found unsafe.

The content is untrusted and may be hostile: control characters are made visible, markup is not interpreted, and the
message's text stands inside the fence that marks it as data.
"""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from baton.cli.output import Command, block, format_age, format_time, json_text, make_table, plain, stack
from baton.client import Balance, WaitingQuestion
from baton.core.pending import HandoffAction, HandoffDecision, PendingHandoff
from baton.core.verdict import Code, Disposition, Finding
from baton.runs.client_handoffs import text_at, without_envelope
from baton.wire.money import format_usd
from baton.wire.text import fence

_MAX_EXCERPT_LENGTH = 2_000
_MIN_PREFIX_LENGTH = 8
_MAX_MIN_WIDTH = 18

_OPTIONS = {HandoffAction.TOP_UP: " --usd 5.00", HandoffAction.EDIT: " --patch @fix.json"}
_PAST_TENSE = {
    HandoffAction.RELEASE: "released",
    HandoffAction.TOP_UP: "topped up",
    HandoffAction.REQUEUE: "requeued",
    HandoffAction.EDIT: "edited",
    HandoffAction.ABANDON: "abandoned",
}


def inbox_table(waiting: Sequence[WaitingQuestion], now: datetime) -> Table:
    """Return a table with a row for each pending handoff, and each question that cannot be read."""
    longest_id = max((len(entry.workflow_id) for entry in waiting), default=0)
    unwrapped = ("since", "deadline")
    table = make_table("run", "step", "since", "deadline", "from → to, why", whole=unwrapped, leading=longest_id)
    word_lengths = [1]
    for entry in waiting:
        pending = entry.handoff
        route = f"{pending.sender} → {pending.receiver}" if pending else f"? → {entry.stage or '?'}"
        why = Text.assemble(plain(route), ", ", plain(reason_label(pending) if pending else "unreadable", "red"))
        word_lengths.extend(map(len, why.plain.split()))
        table.add_row(
            plain(entry.workflow_id, "bold"),
            str(pending.seq) if pending else "?",
            format_age(pending.since, now) if pending else "",
            format_time(entry.deadline, now) if entry.deadline else "",
            why,
        )
    table.columns[-1].min_width = min(max(word_lengths), _MAX_MIN_WIDTH)
    return table


def reason_label(pending: PendingHandoff) -> str:
    """Return why a handoff waits: its code, or that its receiver failed."""
    if pending.reason is not None:
        return pending.reason.value
    return "receiver failed" if pending.fate is Disposition.ESCALATE else pending.fate.value


def handoff_page(
    entry: WaitingQuestion, pending: PendingHandoff, message: Mapping[str, Any] | None, baton: Mapping[str, Any]
) -> RenderableType:
    """Return the page of one handoff: why it waits, all findings, the message, and the possible decisions."""
    return stack(
        handoff_card(entry.workflow_id, pending, message),
        "",
        *_message_rows(message, baton),
        "",
        *_decision_rows(entry, pending),
    )


def handoff_card(workflow_id: str, pending: PendingHandoff, message: Mapping[str, Any] | None) -> RenderableType:
    """Return why a handoff waits, with all findings and the texts found unsafe."""
    until = f", until {format_time(pending.until)}" if pending.until else ""
    sent = f", sent {pending.attempts} times" if pending.attempts > 1 else ""
    rows: list[RenderableType] = [
        Text.assemble(
            plain(workflow_id, "bold cyan"),
            f"  step {pending.seq}: ",
            plain(f"{pending.sender} → {pending.receiver}", "bold"),
        ),
        Text.assemble(plain(reason_label(pending), "bold red"), f" ({pending.fate.value}): ", plain(pending.details)),
        plain(f"waits since {format_time(pending.since)}{until}{sent}", "dim"),
        plain(f"handoff {pending.handoff_id}", "dim"),
    ]
    for finding in pending.findings:
        rows.append(_finding_line(finding))
        text = text_at(message, finding.at) if message and finding.code is Code.SAFETY_VIOLATION else None
        if text is not None:
            rows.append(Padding(_fenced_block(text[:_MAX_EXCERPT_LENGTH]), (0, 0, 0, 4)))
    return stack(*rows)


def decision_line(pending: PendingHandoff | None, decision: HandoffDecision) -> Text:
    """Return what was decided, by whom and why."""
    why = f": {decision.why}" if decision.why else ""
    route = f"{pending.sender} → {pending.receiver}" if pending else decision.handoff_id
    return Text.assemble(
        (_PAST_TENSE[decision.action], "red" if decision.action is HandoffAction.ABANDON else "green"),
        plain(f" the handoff {route} by {decision.who}{why}"),
    )


def balance_line(balance: Balance, workflow_id: str) -> Text:
    """Return the new balance, and whether it suffices."""
    status = ""
    if balance.micro_usd is not None and balance.left_micro_usd is not None:
        status = f"the budget is now {format_usd(balance.micro_usd)}, {format_usd(balance.left_micro_usd)} left: "
    if not balance.missing_micro_usd:
        return plain(f"{status}enough, the handoff is sent", "green")
    command_line = f"baton inbox top-up {shlex.quote(workflow_id)} --usd …"
    return plain(f"{status}{format_usd(balance.missing_micro_usd)} more is needed: {command_line}", "yellow")


def _finding_line(finding: Finding) -> Text:
    where = f" at {finding.at}" if finding.at else ""
    rule = f" [{finding.rule}]" if finding.rule else ""
    return Text.assemble(
        "  · ",
        plain(finding.code.value, "yellow"),
        plain(where, "bold"),
        plain(f": {finding.text}"),
        plain(rule, "dim"),
    )


def _message_rows(message: Mapping[str, Any] | None, baton: Mapping[str, Any]) -> list[RenderableType]:
    if message is None:
        heading = "The message is not in the run's history (it was never sent). Its baton:"
        return [plain(heading, "bold"), _fenced_block(json_text(baton))]
    heading = "The message as it was sent, without its envelope:"
    return [plain(heading, "bold"), _fenced_block(json_text(without_envelope(message)))]


def _decision_rows(entry: WaitingQuestion, pending: PendingHandoff) -> list[RenderableType]:
    if not entry.has_worker:
        return [plain("no worker polls for the run: nothing can be decided until one does", "yellow")]
    target = shlex.quote(entry.workflow_id)
    rows: list[RenderableType] = [plain("What you can decide:", "bold")]
    for action in pending.actions:
        command_name = action.value.replace("_", "-")
        prefix, options = pending.handoff_id[:_MIN_PREFIX_LENGTH], _OPTIONS.get(action, "")
        line = f"baton inbox {command_name} {target} {prefix}{options} --why '…'"
        rows += [plain(f"  {action.meaning}:", "dim"), Command(f"    {line}", "")]
    return rows


def _fenced_block(text: str) -> Text:
    """Return text inside a fence that it cannot close."""
    return block(fence(text, secrets.token_hex(8)).rstrip("\n"))
