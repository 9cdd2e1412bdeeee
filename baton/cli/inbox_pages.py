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
from baton.cli.show import approval_rows, decider_rows
from baton.client import HandoffAction, PendingHandoff, Question, RunRecord, WaitingQuestion
from baton.client.faces import SOON, decision_commands, identity_option, text_at, without_envelope
from baton.wire.money import format_usd
from baton.wire.text import fence, format_until

_MAX_EXCERPT_LENGTH = 2_000
_MIN_PREFIX_LENGTH = 8
_MAX_MIN_WIDTH = 18
_UNSAFE, _ESCALATED = "SAFETY_VIOLATION", "escalate"  # a code of a finding, and a fate of a handoff

_OPTIONS = {HandoffAction.TOP_UP: " --usd 5.00", HandoffAction.EDIT: " --patch @fix.json"}


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
            str(entry.question.seq) if entry.question else "?",
            format_age(entry.question.since, now) if entry.question else "",
            deadline_text(entry.deadline, now),
            why,
        )
    table.columns[-1].min_width = min(max(word_lengths), _MAX_MIN_WIDTH)
    return table


def entry_rows(workflow_id: str, approval: Question, now: datetime) -> list[RenderableType]:
    """Return an open approval as an entry of the list, with the commands that show all of it and decide it."""
    target = shlex.quote(workflow_id)
    return [
        Text.assemble(
            plain(workflow_id, "bold"),
            " asks: ",
            plain(approval.title, "bold yellow"),
            (f"  {format_age(approval.since, now)}, until {format_time(approval.until)}, ", "dim"),
            deadline_text(approval.until, now),
        ),
        *approval_rows(workflow_id, approval),
        *([] if approval.is_whole else [Command(f"  baton show {target} --asked")]),
        Command(f"  {decision_commands(workflow_id, approval.title, approval)[0]}"),
    ]


def deadline_text(until: datetime | None, now: datetime) -> Text:
    """Return how long a deadline is away; red within the hour."""
    if until is None:
        return plain("")
    return plain(format_until(until - now), "bold red" if until - now <= SOON else "")


def reason_label(pending: PendingHandoff) -> str:
    """Return why a handoff waits: its code, or that its receiver failed."""
    if pending.reason is not None:
        return pending.reason.value
    return "receiver failed" if pending.fate.value == _ESCALATED else pending.fate.value


def handoff_page(
    entry: WaitingQuestion,
    question: Question,
    message: Mapping[str, Any] | None,
    baton: Mapping[str, Any],
    costs: Sequence[str] = (),
) -> RenderableType:
    """Return the page of one handoff: why it waits, all findings, the message, and the possible decisions."""
    return stack(
        handoff_card(entry.workflow_id, question, message),
        *cost_rows(costs),
        "",
        *_message_rows(message, baton),
        "",
        *_decision_rows(entry, question),
    )


def handoff_card(workflow_id: str, question: Question, message: Mapping[str, Any] | None) -> RenderableType:
    """Return why a handoff waits, with all findings and the texts found unsafe."""
    pending = question.handoff
    if pending is None:
        return stack()
    sent = f", sent {pending.attempts} times" if pending.attempts > 1 else ""
    rows: list[RenderableType] = [
        Text.assemble(
            plain(workflow_id, "bold cyan"),
            f"  step {question.seq}: ",
            plain(f"{pending.sender} → {pending.receiver}", "bold"),
        ),
        Text.assemble(plain(reason_label(pending), "bold red"), f" ({pending.fate.value}): ", plain(pending.details)),
        plain(f"waits since {format_time(question.since)}, until {format_time(question.until)}{sent}", "dim"),
        plain(f"handoff {pending.handoff_id}", "dim"),
    ]
    for finding in pending.findings:
        where, rule = f" at {finding.at}" if finding.at else "", f" [{finding.rule}]" if finding.rule else ""
        code, found = plain(finding.code.value, "yellow"), plain(f": {finding.text}")
        rows.append(Text.assemble("  · ", code, plain(where, "bold"), found, plain(rule, "dim")))
        text = text_at(message, finding.at) if message and finding.code.value == _UNSAFE else None
        if text is not None:
            rows.append(Padding(_fenced_block(text[:_MAX_EXCERPT_LENGTH]), (0, 0, 0, 4)))
    return stack(*rows, *decider_rows(question))


def cost_rows(clauses: Sequence[str]) -> list[Text]:
    """Return what a run has cost and an answer would, as far as known."""
    return [plain(f"  cost: {', '.join(clauses)}", "dim")] if clauses else []


def balance_line(run: RunRecord, missing_micro_usd: int) -> Text:
    """Return the balance after a top-up, and whether it suffices."""
    status = ""
    if run.ceiling_micro_usd is not None and run.left_micro_usd is not None:
        ceiling, left = format_usd(run.ceiling_micro_usd), format_usd(run.left_micro_usd)
        status = f"the budget is now {ceiling}, {left} left: "
    if not missing_micro_usd:
        return plain(f"{status}enough, the handoff is sent", "green")
    command_line = f"baton inbox top-up {shlex.quote(run.workflow_id)} --usd …"
    return plain(f"{status}{format_usd(missing_micro_usd)} more is needed: {command_line}", "yellow")


def _message_rows(message: Mapping[str, Any] | None, baton: Mapping[str, Any]) -> list[RenderableType]:
    if message is None:
        heading = "The message is not in the run's history (it was never sent). Its baton:"
        return [plain(heading, "bold"), _fenced_block(json_text(baton))]
    heading = "The message as it was sent, without its envelope:"
    return [plain(heading, "bold"), _fenced_block(json_text(without_envelope(message)))]


def _decision_rows(entry: WaitingQuestion, question: Question) -> list[RenderableType]:
    target = shlex.quote(entry.workflow_id)
    rows: list[RenderableType] = [plain("What you can decide:", "bold")]
    if not entry.has_worker:
        rows.append(plain("no worker polls for the run: what is decided takes effect once one does", "yellow"))
    prefix = question.handoff.handoff_id[:_MIN_PREFIX_LENGTH] if question.handoff else ""
    for action in question.handoff.actions if question.handoff else ():
        command_name, options = action.value.replace("_", "-"), _OPTIONS.get(action, "")
        line = f"baton inbox {command_name} {target} {prefix}{options}{identity_option(question)} --why '…'"
        rows += [plain(f"  {action.meaning}:", "dim"), Command(f"    {line}", "")]
    return rows


def _fenced_block(text: str) -> Text:
    """Return text inside a fence that it cannot close."""
    return block(fence(text, secrets.token_hex(8)).rstrip("\n"))
