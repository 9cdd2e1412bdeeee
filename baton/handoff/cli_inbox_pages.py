"""How handoffs that wait for a person look: the list, one on a page, and the text that was found unsafe.

All of it is text from elsewhere, some of it known to be hostile: control characters are made visible, no markup is
obeyed, and what stood in the message stands inside the fence that says "data only".
"""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from baton.cli.output import Command, block, format_age, format_time, json_text, make_table, plain, stack
from baton.client import WaitingHandoff
from baton.core.verdict import Code, Disposition, Finding
from baton.handoff.pending import HandoffAction, HandoffDecision, PendingHandoff
from baton.runs.client_handoffs import text_at, without_envelope
from baton.wire.money import format_usd
from baton.wire.text import fence

_LONGEST_EXCERPT = 2_000
_FEWEST_SIGNS = 8
_NAME_AT_LEAST = 18

_OPTIONS = {HandoffAction.TOP_UP: " --usd 5.00", HandoffAction.EDIT: " --patch @fix.json"}
_DONE = {
    HandoffAction.RELEASE: "released",
    HandoffAction.TOP_UP: "topped up",
    HandoffAction.REQUEUE: "requeued",
    HandoffAction.EDIT: "edited",
    HandoffAction.ABANDON: "abandoned",
}


def inbox_table(waiting: Sequence[WaitingHandoff], now: datetime) -> Table:
    """Return the list of handoffs that wait, a line for each."""
    longest = max((len(one.workflow_id) for one in waiting), default=0)
    whole = ("since", "deadline")
    table = make_table("run", "step", "since", "deadline", "from → to, why", whole=whole, leading=longest)
    words = [1]
    for one in waiting:
        pending = one.handoff
        between = f"{pending.sender} → {pending.receiver}" if pending else f"? → {one.stage or '?'}"
        why = Text.assemble(plain(between), ", ", plain(reason(pending) if pending else "unreadable", "red"))
        words.extend(map(len, why.plain.split()))
        table.add_row(
            plain(one.workflow_id, "bold"),
            str(pending.seq) if pending else "?",
            format_age(pending.since, now) if pending else "",
            format_time(pending.until, now) if pending else "",
            why,
        )
    table.columns[-1].min_width = min(max(words), _NAME_AT_LEAST)
    return table


def reason(pending: PendingHandoff) -> str:
    """Return why a handoff waits in a word or two: its code, or that its receiver failed."""
    if pending.reason is not None:
        return pending.reason.value
    return "receiver failed" if pending.fate is Disposition.ESCALATE else pending.fate.value


def handoff_page(
    one: WaitingHandoff, pending: PendingHandoff, message: Mapping[str, Any] | None, baton: Mapping[str, Any]
) -> RenderableType:
    """Return one handoff on a page: why it waits, everything that was found, the message, what can be decided."""
    return stack(
        handoff_card(one, pending, message),
        "",
        *_message_rows(message, baton),
        "",
        *_decision_rows(one, pending),
    )


def handoff_card(one: WaitingHandoff, pending: PendingHandoff, message: Mapping[str, Any] | None) -> RenderableType:
    """Return why a handoff waits, with all findings and the texts that were found unsafe."""
    until = f", until {format_time(pending.until)}" if pending.until else ""
    sent = f", sent {pending.attempts} times" if pending.attempts > 1 else ""
    rows: list[RenderableType] = [
        Text.assemble(
            plain(one.workflow_id, "bold cyan"),
            f"  step {pending.seq}: ",
            plain(f"{pending.sender} → {pending.receiver}", "bold"),
        ),
        Text.assemble(plain(reason(pending), "bold red"), f" ({pending.fate.value}): ", plain(pending.details)),
        plain(f"waits since {format_time(pending.since)}{until}{sent}", "dim"),
        plain(f"handoff {pending.handoff_id}", "dim"),
    ]
    for finding in pending.findings:
        rows.append(_finding(finding))
        text = text_at(message, finding.at) if message and finding.code is Code.SAFETY_VIOLATION else None
        if text is not None:
            rows.append(Padding(_fenced(text[:_LONGEST_EXCERPT]), (0, 0, 0, 4)))
    return stack(*rows)


def decided_line(pending: PendingHandoff, decided: HandoffDecision) -> Text:
    """Return what was decided, by whom and why."""
    why = f": {decided.why}" if decided.why else ""
    return Text.assemble(
        (_DONE[decided.action], "red" if decided.action is HandoffAction.ABANDON else "green"),
        plain(f" the handoff {pending.sender} → {pending.receiver} by {decided.who}{why}"),
    )


@dataclass(frozen=True)
class Balance:
    """What a budget has after a top-up.

    Attributes:
        micro_usd: The budget; None of a run whose budget came with a handoff.
        left_micro_usd: What is left of it.
        missing_micro_usd: What the handoff still lacks.
    """

    micro_usd: int | None
    left_micro_usd: int | None
    missing_micro_usd: int


def balance_line(balance: Balance, workflow_id: str) -> Text:
    """Return the new balance, and whether it is enough."""
    told = ""
    if balance.micro_usd is not None and balance.left_micro_usd is not None:
        told = f"the budget is {format_usd(balance.micro_usd)} now, {format_usd(balance.left_micro_usd)} of it left: "
    if not balance.missing_micro_usd:
        return plain(f"{told}enough, the handoff is sent", "green")
    again = f"baton inbox top-up {shlex.quote(workflow_id)} --usd …"
    return plain(f"{told}{format_usd(balance.missing_micro_usd)} more is needed: {again}", "yellow")


def named(waiting: Sequence[PendingHandoff]) -> str:
    """Return the handoffs that wait in one line, for a message."""
    return ", ".join(f"{one.handoff_id} (to {one.receiver!r})" for one in waiting) or "none"


def chosen(waiting: Sequence[PendingHandoff], handoff: str | None) -> list[PendingHandoff]:
    """Return the handoffs that a person means."""
    if handoff is None:
        return [*waiting]
    whole = [one for one in waiting if one.handoff_id == handoff]
    begins = [one for one in waiting if len(handoff) >= _FEWEST_SIGNS and one.handoff_id.startswith(handoff)]
    return whole or begins


def _finding(finding: Finding) -> Text:
    """Return one thing that was found, on a line."""
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
    """Return what was handed on, or the baton that it would have been made of."""
    if message is None:
        heading = "The message is not in the run's history (it was never sent). Its baton:"
        return [plain(heading, "bold"), _fenced(json_text(baton))]
    heading = "The message as it was sent, without its envelope:"
    return [plain(heading, "bold"), _fenced(json_text(without_envelope(message)))]


def _decision_rows(one: WaitingHandoff, pending: PendingHandoff) -> list[RenderableType]:
    """Return what can be decided, as commands."""
    if not one.answered:
        why = f"{one.trouble}: nothing can be decided from here" if one.trouble else ""
        return [plain(why or "no worker answers: nothing can be decided until one does", "yellow")]
    target = shlex.quote(one.workflow_id)
    rows: list[RenderableType] = [plain("What you can decide:", "bold")]
    for action in pending.actions:
        word = action.value.replace("_", "-")
        line = f"baton inbox {word} {target} {pending.handoff_id[:_FEWEST_SIGNS]}{_OPTIONS.get(action, '')} --why '…'"
        rows += [plain(f"  {action.meaning}:", "dim"), Command(f"    {line}", "")]
    return rows


def _fenced(text: str) -> Text:
    """Return ``text`` inside the fence that nothing in it can end, for the terminal."""
    return block(fence(text, secrets.token_hex(8)).rstrip("\n"))
