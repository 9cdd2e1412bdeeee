"""The entries of the ledger, and a task's trace and cost as its verified records show them.

A rejected message is recorded too, and it may hold anything. So a member that is missing or of a wrong type is left
out of the header; the message keeps it unchanged.

A record is hashed forever, so personal data never enters it in clear. A **commitment** replaces it: an HMAC under a
random salt that is stored elsewhere. With the salt and the value anybody can prove what was recorded. Without the
salt nobody can test a guess, which a plain hash of an e-mail address would allow. Erasing the salt (or the key of a
ciphertext) changes no byte of any record (EAAPL-MAG006 §12.3).
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import rfc8785

from baton.core.costs import NO_LIMIT
from baton.core.history import Spend
from baton.core.outline import Outline
from baton.core.pending import HandoffAction
from baton.core.verdict import HandoffStatus
from baton.ledger.proof import Report
from baton.ledger.records import FAILED, AuditCost, AuditEntry, AuditHeader, AuditRecord, Kind
from baton.wire.json_values import digest, format_digest, pae
from baton.wire.money import to_usd
from baton.wire.records import CamelRecord
from baton.wire.schemas import format_pointer, parse_pointer

PERSONAL_DATA = "/personalDataPayload"
"""Where a handoff message carries personal data (§12.3)."""
MIN_SALT_BYTES = 16

_COMMITMENT = "baton/commitment/v1"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class RedactionPolicy:
    """Which members of a message hold personal data.

    Attributes:
        fields: JSON pointers (RFC 6901); `*` matches every member or item. An object is redacted member by
            member, so that each member can have its own data subject.
        is_sealed: Whether a value is ciphertext of the vault and may stay; by default none is.
    """

    fields: frozenset[str] = frozenset({PERSONAL_DATA})
    is_sealed: Callable[[Any], bool] = lambda value: False


def redact(message: dict[str, Any], policy: RedactionPolicy, salt: Callable[[str], bytes]) -> dict[str, Any]:
    """Replace each value that the policy names with a commitment; ``salt`` returns the salt for a pointer."""
    redacted: dict[str, Any] = _copy_json(message)
    for parent, key, pointer in list(_find_clear_values(redacted, policy)):
        parent[key] = {"commitment": commitment(pointer, salt(pointer), parent[key])}
    return redacted


def in_clear(message: dict[str, Any], policy: RedactionPolicy) -> list[str]:
    """Return the pointers to personal data in clear; a message with any must not be recorded."""
    return [pointer for _, _, pointer in _find_clear_values(message, policy)]


def may_be_in_clear(message: bytes, policy: RedactionPolicy) -> bool:
    """Return whether a message may have a member that the policy names, without parsing it."""
    names = [name for field in policy.fields for name in parse_pointer(field)[:1]]
    if "*" in names or b"\\u" in message or b"\\/" in message:  # an escape can hide a name
        return True
    return any(json.dumps(name, ensure_ascii=False).encode() in message for name in names)


def commitment(pointer: str, salt: bytes, value: Any) -> str:
    """Return the commitment to a value at its place."""
    if len(salt) < MIN_SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes can be guessed: use {MIN_SALT_BYTES} random bytes")
    preimage = rfc8785.dumps({"at": pointer, "value": value})
    return format_digest(hmac.digest(salt, pae(_COMMITMENT, preimage), hashlib.sha256))


def is_commitment(value: Any) -> bool:
    """Return whether a value is exactly a commitment."""
    return (
        isinstance(value, dict) and value.keys() == {"commitment"} and bool(_DIGEST.fullmatch(str(value["commitment"])))
    )


def _find_clear_values(message: Any, policy: RedactionPolicy) -> Iterator[tuple[Any, Any, str]]:
    """Yield the parent, the key in it, and the pointer of each value in clear."""
    for field in sorted(policy.fields):
        for parent, key, pointer in _resolve_pointer(message, parse_pointer(field), ""):
            value = parent[key]
            if isinstance(value, dict) and not _is_safe(value, policy):
                places = [(value, member, pointer + format_pointer([member])) for member in value]
            else:
                places = [(parent, key, pointer)]
            yield from (place for place in places if not _is_safe(place[0][place[1]], policy))


def _resolve_pointer(parent: Any, path: list[str], pointer: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield every place that a pointer matches."""
    if not path:
        return
    first, *rest = path
    if isinstance(parent, dict):
        keys: list[Any] = list(parent) if first == "*" else [first] if first in parent else []
    elif isinstance(parent, list):
        keys = [index for index in range(len(parent)) if first in ("*", str(index))]
    else:
        return
    for key in keys:
        child_pointer = pointer + format_pointer([key])
        if rest:
            yield from _resolve_pointer(parent[key], rest, child_pointer)
        else:
            yield parent, key, child_pointer


def _is_safe(value: Any, policy: RedactionPolicy) -> bool:
    """Return whether a value reveals nothing."""
    return value in (None, {}, []) or is_commitment(value) or policy.is_sealed(value)


def _copy_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy_json(item) for name, item in value.items()}
    return [_copy_json(item) for item in value] if isinstance(value, list) else value


MAX_NAME_LENGTH = 255
_MAX_WORKFLOW_ID_LENGTH = 200  # Temporal accepts 1,000 characters; the ledger 255, with the run id
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_DETAILS_LENGTH = 16_000


def handoff_entry(
    message: dict[str, Any],
    *,
    task_id: str,
    status: HandoffStatus,
    timestamp: datetime,
    kind: str = Kind.HANDOFF,
    attempt: int = 1,
    reason: str | None = None,
    details: str | None = None,
    actor: str | None = None,
    run_id: str | None = None,
) -> AuditEntry:
    """Return the entry for a receiver's answer to a handoff (EAAPL-MAG006 §6.2, §7.2)."""
    outline = Outline.of(message)
    return AuditEntry(
        kind=kind,
        task_id=task_id,
        event_id=usable_name(outline.handoff_id) or digest(message),
        attempt=attempt,
        status=status,
        timestamp=timestamp,
        from_agent=usable_name(outline.from_agent.agent_id),
        to_agent=usable_name(outline.to_agent.agent_type),
        reason=reason,
        details=details if details is None else details[:MAX_DETAILS_LENGTH],
        actor=actor,
        run_id=run_id,
        cost=None if outline.cost_tracking is None else AuditCost.of(outline.cost_tracking),
        message=message,
    )


def erasure_entry(
    erasure_id: str,
    *,
    task_id: str,
    subject: str,
    removed: Mapping[str, int],
    timestamp: datetime,
    actor: str | None = None,
) -> AuditEntry:
    """Return the entry for the erasure of a data subject, in the chain of one task (§12.3)."""
    return AuditEntry(
        kind=Kind.ERASURE,
        task_id=task_id,
        event_id=erasure_id,
        status="ERASED",
        timestamp=timestamp,
        actor=actor,
        message={"removed": dict(removed), "subject": subject},
    )


def run_name(workflow_id: str, run_id: str | None = None) -> str:
    """Return the name of a workflow, and of its run, for a header: shortened, without control characters."""
    name = _CONTROL.sub("\ufffd", workflow_id[:_MAX_WORKFLOW_ID_LENGTH])
    return name if run_id is None else f"{name}/{run_id}"


def usable_name(name: str | None) -> str | None:
    """Return a sender's name if it is a valid one for a header, or None."""
    return name if name and len(name) <= MAX_NAME_LENGTH and name.isprintable() else None


@dataclass(frozen=True)
class Trace:
    """A task's records in order, with the report on their verification; check the report first.

    Attributes:
        task_id: The task.
        records: The whole chain, flawed records included.
        report: Whether the chain is complete and unchanged.
    """

    task_id: str
    records: tuple[AuditRecord, ...]
    report: Report

    @property
    def linked(self) -> Sequence[AuditRecord]:
        """The records before the first bad one."""
        return self.records[: self.report.linked]

    @cached_property
    def headers(self) -> tuple[AuditHeader, ...]:
        """The headers of the `linked` records."""
        return tuple(record.fields for record in self.linked)

    @property
    def handoffs(self) -> list[AuditRecord]:
        """The accepted handoffs: one for each boundary that the task crossed."""
        return [record for record, header in self._with_headers() if _is_accepted(header)]

    @cached_property
    def cost(self) -> "TaskCost":
        """The task's cost, by agent."""
        return task_cost(self.headers)

    @property
    def output(self) -> Any:
        """The final output; None while there is none, and if the last agent failed."""
        completions = [(record, header) for record, header in self._with_headers() if header.kind == Kind.COMPLETION]
        return completions[-1][0].body if completions and completions[-1][1].status != FAILED else None

    def to_json_object(self) -> dict[str, Any]:
        """Return the report, the cost, and each record's header and message in order."""
        return {
            "taskId": self.task_id,
            "report": self.report.to_json_object(),
            "cost": self.cost.to_json_object(),
            "records": [record.to_json_object() for record in self.linked],
        }

    def _with_headers(self) -> list[tuple[AuditRecord, AuditHeader]]:
        return list(zip(self.linked, self.headers, strict=True))


def _is_accepted(header: AuditHeader) -> bool:
    return header.kind == Kind.HANDOFF and header.status == HandoffStatus.ACCEPTED


_TOP_UP = HandoffAction.TOP_UP.value.upper()  # the status of a person's decision


class CostShare(CamelRecord):
    """What one record added to a task's cost."""

    sequence: int
    agent: str | None
    micro_usd: int
    prompt_tokens: int
    completion_tokens: int


class TaskCost(CamelRecord):
    """What a task has cost.

    Attributes:
        micro_usd: The total, in millionths of a US dollar.
        prompt_tokens: All tokens sent to models.
        completion_tokens: All tokens in the models' answers.
        shares: The same by record, in order.
        complete: Whether the last agent's own cost is included: its completion or its loss is on record.
        findings: What does not add up, one sentence each: a record that states more than the sum of the shares, or a
            budget that changed without a person's top-up on record.
    """

    micro_usd: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    shares: tuple[CostShare, ...] = ()
    complete: bool = False
    findings: tuple[str, ...] = ()

    @property
    def usd(self) -> Decimal:
        """The total in US dollars, exactly."""
        return to_usd(self.micro_usd)

    @property
    def by_agent(self) -> dict[str, Decimal]:
        """Each agent's own cost in US dollars; shares without an agent are left out."""
        micro: dict[str, int] = {}
        for share in self.shares:
            if share.agent is not None:
                micro[share.agent] = micro.get(share.agent, 0) + share.micro_usd
        return {agent: to_usd(amount) for agent, amount in micro.items()}


def task_cost(records: Iterable[AuditHeader]) -> TaskCost:
    """Return the cost of a task from the headers of its chain in order.

    It is the sum of what the agents say they spent themselves. A record that says only what the task has spent so far
    adds what none of these had stated before.
    """
    records = list(records)
    total, stated = Spend(), dict[tuple[str | None, str, int, str | None, bool], Spend]()
    shares, findings, most_spent = [], _budget_findings(records), 0
    for record in records:
        cost = record.cost
        if cost is None or not _states_cost(record):
            continue
        agent = record.to_agent if record.kind == Kind.ROLLBACK else record.from_agent
        if cost.own is None:
            added = cost.spent.minus(total)
        else:
            work = (agent, record.event_id, record.attempt, record.run_id, record.kind == Kind.SUMMARY)
            before = stated.get(work, Spend())  # by an earlier execution
            added = cost.own.minus(before)
            stated[work] = before + added
        shares.append(CostShare(sequence=record.sequence, agent=agent, **dict(added)))
        total += added
        most_spent = max(most_spent, cost.spent_micro_usd)
    if most_spent > total.micro_usd:
        findings.append(
            f"the shares add up to {to_usd(total.micro_usd)} USD, but a record says {to_usd(most_spent)} USD were spent"
        )
    return TaskCost(**dict(total), shares=tuple(shares), complete=_is_complete(records), findings=tuple(findings))


def _states_cost(record: AuditHeader) -> bool:
    """Return whether a record's cost counts; that of a rejected message, or of another one for its event, does not."""
    if record.cost is None or (record.kind == Kind.HANDOFF and record.status == HandoffStatus.REJECTED):
        return False
    return record.conflict is None or record.cost.own is not None


def _is_end(record: AuditHeader) -> bool:
    """Return whether a record ends an agent's work: it returned, failed, or was lost after it had spent."""
    return record.kind == Kind.COMPLETION or (record.kind == Kind.ROLLBACK and record.cost is not None)


def _is_complete(records: Sequence[AuditHeader]) -> bool:
    """Return whether the last agent, and every agent that received a handoff from the same sender, has ended."""
    costs = [record for record in records if record.kind != Kind.SUMMARY and _states_cost(record)]
    if not costs or not _is_end(costs[-1]):
        return False
    ended = {record.event_id for record in records if _is_end(record)}
    handoffs = {record.event_id: record for record in costs if not _is_end(record)}
    last = handoffs.get(costs[-1].event_id)  # None: a completion of the task itself
    return last is None or all(
        event in ended
        for event, record in handoffs.items()
        if (record.from_agent, record.run_id) == (last.from_agent, last.run_id)
    )


def _budget_text(micro_usd: int) -> str:
    return f"{to_usd(micro_usd)} USD" if micro_usd < NO_LIMIT else "no limit"


def _budget_findings(records: Sequence[AuditHeader]) -> list[str]:
    """Return where a run's budget shrank, or grew without a person's top-up on record."""
    findings, budgets, topped_up = [], dict[str | None, int](), False
    for record in records:
        topped_up = topped_up or (record.kind, record.status) == (Kind.DECISION, _TOP_UP)
        cost = record.cost
        if cost is None or record.status == HandoffStatus.REJECTED:
            continue
        remaining = cost.remaining_micro_usd
        budget = NO_LIMIT if remaining is None else cost.spent_micro_usd + remaining
        previous = budgets.setdefault(record.run_id, budget)
        if budget < previous or (budget > previous and not topped_up):
            findings.append(
                f"record {record.sequence}: the budget changed from {_budget_text(previous)} to {_budget_text(budget)}"
            )
        if budget > previous:
            topped_up = False
        budgets[record.run_id] = budget
    return findings
