"""The ledger's entries, made of what happened, and a task's trace and cost, read from its verified records alone.

A rejected message may be anything, and must be recorded all the same. So nothing here trusts it: a member that is
missing or of a wrong type is left out of the header, and stands in the message as it came.

A record is hashed for ever, so what may have to be erased never enters it in clear. In its place stands a
**commitment**, an HMAC under a random salt that is kept elsewhere: who has salt and value can prove what
was recorded; without the salt no one can test a guess, which a bare hash of an e-mail address would allow.
Erasing the salt (or the key of a ciphertext) changes no byte of any record (EAAPL-MAG006 §12.3).
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
from typing import Any, NamedTuple

import rfc8785

from baton.core.history import Spend
from baton.core.verdict import HandoffStatus
from baton.handoff.pending import HandoffAction
from baton.ledger.chain import ChainReport
from baton.ledger.records import FAILED, AuditCost, AuditEntry, AuditHeader, AuditRecord, Kind
from baton.wire.json_values import digest, format_digest, pae
from baton.wire.money import to_micro_usd, to_usd
from baton.wire.records import CamelRecord
from baton.wire.schemas import format_pointer, parse_pointer

PERSONAL_DATA = "/personalDataPayload"
"""Where a handoff message carries personal data (§12.3)."""
FEWEST_SALT_BYTES = 16

_COMMITMENT = "baton/commitment/v1"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class RedactionPolicy:
    """Which members of a message hold personal data.

    Attributes:
        fields: JSON pointers (RFC 6901); a `*` stands for every member or item. An object that one leads to
            is redacted member by member, so that each can have a data subject of its own.
        is_sealed: Whether a value is ciphertext of the vault and may stay as it is; by default nothing is.
    """

    fields: frozenset[str] = frozenset({PERSONAL_DATA})
    is_sealed: Callable[[Any], bool] = lambda value: False


def redact(message: dict[str, Any], policy: RedactionPolicy, salt: Callable[[str], bytes]) -> dict[str, Any]:
    """Return ``message`` with a commitment in place of each value that the policy names; each place has its salt."""
    copy: dict[str, Any] = _copied(message)
    for holder, name, pointer in list(_targets(copy, policy)):
        holder[name] = {"commitment": commitment(pointer, salt(pointer), holder[name])}
    return copy


def in_clear(message: dict[str, Any], policy: RedactionPolicy) -> list[str]:
    """Return the pointers at which a message still holds personal data in clear; it must not be recorded then."""
    return [pointer for _, _, pointer in _targets(message, policy)]


def may_be_in_clear(message: bytes, policy: RedactionPolicy) -> bool:
    """Return whether a message may have a member that the policy names: most need no parsing to see that none has."""
    names = [name for field in policy.fields for name in parse_pointer(field)[:1]]
    if "*" in names or b"\\u" in message or b"\\/" in message:  # an escape may spell a name otherwise
        return True
    return any(json.dumps(name, ensure_ascii=False).encode() in message for name in names)


def commitment(pointer: str, salt: bytes, value: Any) -> str:
    """Return the commitment to a value at its place."""
    if len(salt) < FEWEST_SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes can be guessed: take {FEWEST_SALT_BYTES} random ones")
    placed = rfc8785.dumps({"at": pointer, "value": value})
    return format_digest(hmac.digest(salt, pae(_COMMITMENT, placed), hashlib.sha256))


def is_commitment(value: Any) -> bool:
    """Return whether a value is a commitment and nothing else."""
    return (
        isinstance(value, dict) and value.keys() == {"commitment"} and bool(_DIGEST.fullmatch(str(value["commitment"])))
    )


def _targets(message: Any, policy: RedactionPolicy) -> Iterator[tuple[Any, Any, str]]:
    """Yield the holder, the name in it, and the pointer of each value that is still in clear."""
    for field in sorted(policy.fields):
        for holder, name, pointer in _at(message, parse_pointer(field), ""):
            value = holder[name]
            if isinstance(value, dict) and not _is_safe(value, policy):
                inner = [(value, member, pointer + format_pointer([member])) for member in value]
            else:
                inner = [(holder, name, pointer)]
            yield from (found for found in inner if not _is_safe(found[0][found[1]], policy))


def _at(holder: Any, path: list[str], pointer: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield every place that a pointer leads to."""
    if not path:
        return
    head, *rest = path
    if isinstance(holder, dict):
        names: list[Any] = list(holder) if head == "*" else [head] if head in holder else []
    elif isinstance(holder, list):
        names = [place for place in range(len(holder)) if head in ("*", str(place))]
    else:
        return
    for name in names:
        here = pointer + format_pointer([name])
        if rest:
            yield from _at(holder[name], rest, here)
        else:
            yield holder, name, here


def _is_safe(value: Any, policy: RedactionPolicy) -> bool:
    """Return whether a value tells nothing about anybody."""
    return value in (None, {}, []) or is_commitment(value) or policy.is_sealed(value)


def _copied(value: Any) -> Any:
    """Return a deep copy of JSON."""
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


LONGEST_NAME = 255
_LONGEST_WORKFLOW_ID = 200  # Temporal takes 1,000 characters, the ledger 255 with the run behind it
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
AGAIN = "#"
"""Behind an event's id: something else of an event that is on record already, with the beginning of its digest."""
LONGEST_DETAILS = 16_000


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
    """Return the entry of a receiver's answer to a handoff (EAAPL-MAG006 §6.2, §7.2)."""
    return AuditEntry(
        kind=kind,
        task_id=task_id,
        event_id=usable_name(message.get("handoffId")) or digest(message),
        attempt=attempt,
        status=status,
        timestamp=timestamp,
        from_agent=usable_name(_inner(message, "fromAgent", "agentId")),
        to_agent=usable_name(_inner(message, "toAgent", "agentType")),
        reason=reason,
        details=details if details is None else details[:LONGEST_DETAILS],
        actor=actor,
        run_id=run_id,
        cost=cost_of(message),
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
    """Return the entry, in one task's chain, of the erasure of a data subject (§12.3)."""
    return AuditEntry(
        kind=Kind.ERASURE,
        task_id=task_id,
        event_id=erasure_id,
        status="ERASED",
        timestamp=timestamp,
        actor=actor,
        message={"removed": dict(removed), "subject": subject},
    )


def cost_of(message: Mapping[str, Any]) -> AuditCost | None:
    """Return what `costTracking` of a handoff message says, or None if it says nothing that can be read."""
    try:
        tracking = message["costTracking"]
        tokens = tracking["tokenSpent"]
        return AuditCost(
            spent_micro_usd=_micro(tracking["costSpentSoFarUSD"]),
            remaining_micro_usd=_micro(tracking["costBudgetRemainingUSD"]),
            prompt_tokens=tokens["prompt"],
            completion_tokens=tokens["completion"],
        )
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def cost_after(message: Mapping[str, Any], spend: Spend) -> AuditCost | None:
    """Return the figures of a handoff after its receiver's own cost, or None if it says none that can be read."""
    cost = cost_of(message)
    return None if cost is None else cost_with(cost, spend)


def cost_with(cost: AuditCost, spend: Spend) -> AuditCost:
    """Return the figures of a task after somebody's own cost."""
    left = cost.remaining_micro_usd
    return cost.model_copy(
        update={
            "spent_micro_usd": cost.spent_micro_usd + spend.micro_usd,
            "remaining_micro_usd": None if left is None else left - spend.micro_usd,
            "own_micro_usd": spend.micro_usd,
            "own_prompt_tokens": spend.prompt_tokens,
            "own_completion_tokens": spend.completion_tokens,
            "prompt_tokens": cost.prompt_tokens + spend.prompt_tokens,
            "completion_tokens": cost.completion_tokens + spend.completion_tokens,
        }
    )


def _micro(amount: Any) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise TypeError("an amount of money is a number")
    return to_micro_usd(Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount))


def _inner(message: Mapping[str, Any], outer: str, member: str) -> Any:
    holder = message.get(outer)
    return holder.get(member) if isinstance(holder, dict) else None


def run_name(workflow_id: str, run_id: str | None = None) -> str:
    """Return the name under which a header tells a workflow, and its run: who starts one may choose any id."""
    shown = _CONTROL.sub("\ufffd", workflow_id[:_LONGEST_WORKFLOW_ID])
    return shown if run_id is None else f"{shown}/{run_id}"


def usable_name(value: Any) -> str | None:
    """Return a value that can stand in a header as a name, or None: the sender may have put anything there."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return value if usable else None


@dataclass(frozen=True)
class Trace:
    """A task's records in order, with the report on their verification; look at that first.

    Attributes:
        task_id: The task.
        records: The whole chain, flawed records included.
        report: Whether the chain is whole.
    """

    task_id: str
    records: tuple[AuditRecord, ...]
    report: ChainReport

    @property
    def linked(self) -> Sequence[AuditRecord]:
        """The records that hang together from the first: those before the first bad one."""
        return self.records[: self.report.records]

    @cached_property
    def headers(self) -> tuple[AuditHeader, ...]:
        """What the headers of the `linked` records say."""
        return tuple(record.fields for record in self.linked)

    @property
    def handoffs(self) -> list[AuditRecord]:
        """The handoffs that were accepted: one for each boundary that the task crossed."""
        return [record for record, header in self._with_headers() if _is_accepted(header)]

    @cached_property
    def cost(self) -> "TaskCost":
        """What the task cost, and which agent spent it."""
        return task_cost(self.headers)

    @property
    def output(self) -> Any:
        """The final output: what was returned last; None while nothing is, and where the last agent failed."""
        ends = [(record, header) for record, header in self._with_headers() if header.kind == Kind.COMPLETION]
        return ends[-1][0].body if ends and not ends[-1][1].status.startswith(FAILED) else None

    def to_json_object(self) -> dict[str, Any]:
        """Return the trace as JSON: the report, the cost, and each record's header and message in order."""
        return {
            "taskId": self.task_id,
            "report": self.report.model_dump(mode="json", exclude_none=True),
            "cost": self.cost.model_dump(mode="json"),
            "records": [record.members | {"message": record.body} for record in self.linked],
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
        completion_tokens: All tokens that models answered with.
        shares: The same by record, in order.
        complete: Whether the last agent's own cost is in it, because what it returned, or spent until it was lost, is
            on record.
        findings: What does not add up, a sentence each: a record that says more than the shares add up to, or a budget
            that changed, unless it grew and a person's top-up is on record.
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
        """Each agent's own cost in US dollars; what no agent is named for is left out."""
        micro: dict[str, int] = {}
        for share in self.shares:
            if share.agent is not None:
                micro[share.agent] = micro.get(share.agent, 0) + share.micro_usd
        return {agent: to_usd(amount) for agent, amount in micro.items()}


def task_cost(records: Iterable[AuditHeader]) -> TaskCost:
    """Return what a task has cost, from the headers of its chain in order."""
    records = list(records)
    known, stated = _Amounts(0, 0, 0), dict[tuple[str, int, str | None], _Amounts]()
    shares, findings, most = [], _budget_findings(records), 0
    for record in records:
        cost = record.cost
        repeated = not _is_work(record) and AGAIN in record.event_id  # says what the first one said
        if cost is None or repeated or (record.kind == Kind.HANDOFF and record.status == HandoffStatus.REJECTED):
            continue
        sending = (_event(record), _attempt(record), record.run_id)
        before = stated.get(sending, _Amounts(0, 0, 0))
        own = _own(cost)
        if own is None:
            added = _Amounts.of(max(0, now - so_far) for now, so_far in zip(_spent(cost), known, strict=True))
        else:
            added = _Amounts.of(max(0, now - earlier) for now, earlier in zip(own, before, strict=True))
            if _is_work(record):
                stated[sending] = _Amounts.of(map(max, own, before))
        shares.append(
            CostShare(
                sequence=record.sequence,
                agent=record.to_agent if record.kind == Kind.ROLLBACK else record.from_agent,
                micro_usd=added.micro_usd,
                prompt_tokens=added.prompt_tokens,
                completion_tokens=added.completion_tokens,
            )
        )
        known, most = _Amounts.of(map(sum, zip(known, added, strict=True))), max(most, cost.spent_micro_usd)
    if most > known.micro_usd:
        findings.append(
            f"the shares add up to {to_usd(known.micro_usd)} USD, and a record says that {to_usd(most)} USD were spent"
        )
    return TaskCost(**known._asdict(), shares=tuple(shares), complete=_is_complete(records), findings=tuple(findings))


class _Amounts(NamedTuple):
    """Money and tokens."""

    micro_usd: int
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, amounts: Iterable[int]) -> "_Amounts":
        return cls(*amounts)


def _spent(cost: AuditCost) -> _Amounts:
    return _Amounts(cost.spent_micro_usd, cost.prompt_tokens, cost.completion_tokens)


def _own(cost: AuditCost) -> _Amounts | None:
    if cost.own_micro_usd is None:
        return None
    return _Amounts(cost.own_micro_usd, cost.own_prompt_tokens or 0, cost.own_completion_tokens or 0)


def _is_work(record: AuditHeader) -> bool:
    """Return whether a record says what an agent or a model did: a return, a failure, a loss, or a summary."""
    return record.kind in (Kind.COMPLETION, Kind.SUMMARY) or _is_loss(record)


def _is_loss(record: AuditHeader) -> bool:
    return record.kind == Kind.ROLLBACK and record.cost is not None


def _event(record: AuditHeader) -> str:
    """Return the id of the event that a record is of; that of a roll-back is its handoff's and the attempt."""
    event_id = record.event_id.partition(AGAIN)[0]
    return event_id.rpartition(".")[0] if record.kind == Kind.ROLLBACK else event_id


def _attempt(record: AuditHeader) -> int:
    """Return which attempt of the handoff a return is of; a failure has that in its status, a roll-back in its id."""
    nth = record.status.partition(f"{FAILED}_")[2]
    if record.kind == Kind.ROLLBACK:
        nth = record.event_id.partition(AGAIN)[0].rpartition(".")[2]
    return int(nth) if nth.isdecimal() else record.attempt


def _is_complete(records: Sequence[AuditHeader]) -> bool:
    """Return whether the last record is a return, and all who were handed to with the last agent returned or failed."""
    counted = [
        one
        for one in records
        if one.cost is not None
        and one.kind != Kind.SUMMARY
        and not (one.kind == Kind.HANDOFF and (one.status == HandoffStatus.REJECTED or AGAIN in one.event_id))
    ]
    if not counted or not _is_work(counted[-1]):
        return False
    returned = {_event(one) for one in records if one.kind == Kind.COMPLETION or _is_loss(one)}
    begun = {_event(record): record for record in counted if not _is_work(record)}
    last = begun.get(_event(counted[-1]))  # None: a completion of the task itself
    return last is None or all(
        event in returned
        for event, record in begun.items()
        if (record.from_agent, record.run_id) == (last.from_agent, last.run_id)
    )


def _budget_findings(records: Sequence[AuditHeader]) -> list[str]:
    """Return where a run's budget shrank, or grew though no person's top-up is on record."""
    found, budgets, topped_up = [], dict[str | None, int](), False
    for record in records:
        topped_up = topped_up or (record.kind, record.status) == (Kind.DECISION, _TOP_UP)
        cost = record.cost
        if cost is None or cost.remaining_micro_usd is None or record.status == HandoffStatus.REJECTED:
            continue
        new = cost.spent_micro_usd + cost.remaining_micro_usd
        old = budgets.setdefault(record.run_id, new)
        if new < old or (new > old and not topped_up):
            found.append(f"record {record.sequence}: the budget changed from {to_usd(old)} to {to_usd(new)} USD")
        if new > old:
            topped_up = False
        budgets[record.run_id] = new
    return found
