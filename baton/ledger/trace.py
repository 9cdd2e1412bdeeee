"""A task's trace: everything that happened to it, read from its verified records alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from baton.core.verdict import HandoffStatus
from baton.handoff.pending import HandoffAction
from baton.ledger.chain import ChainReport
from baton.ledger.entries import AGAIN
from baton.ledger.records import FAILED, AuditCost, AuditHeader, AuditRecord, CamelRecord, Kind
from baton.wire.money import usd


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
    """What one record added to a task's cost.

    Attributes:
        sequence: The record.
        agent: The agent that handed off, or that completed the task; None if the record names none.
        micro_usd: Its own cost, in millionths of a US dollar.
        prompt_tokens: Its own prompt tokens.
        completion_tokens: Its own completion tokens.
    """

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
        return usd(self.micro_usd)

    @property
    def by_agent(self) -> dict[str, Decimal]:
        """Each agent's own cost in US dollars; what no agent is named for is left out."""
        micro: dict[str, int] = {}
        for share in self.shares:
            if share.agent is not None:
                micro[share.agent] = micro.get(share.agent, 0) + share.micro_usd
        return {agent: usd(amount) for agent, amount in micro.items()}


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
            f"the shares add up to {usd(known.micro_usd)} USD, and a record says that {usd(most)} USD were spent"
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
            found.append(f"record {record.sequence}: the budget changed from {usd(old)} to {usd(new)} USD")
        if new > old:
            topped_up = False
        budgets[record.run_id] = new
    return found
