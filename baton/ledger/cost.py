"""What a task cost and who spent it, from its audit records alone.

`costSpentSoFarUSD` is cumulative, so adding it up over the records counts the first agent's money once for each
handoff after it (0.1 + 0.2 + 0.3 for a task that cost 0.3), and the last agent's never, since it hands nothing
off. So: the total is the last record's, the completion's if there is one; an agent's own share is the
difference to the record before. The shares add up to the total (EAAPL-MAG006 §6.2, §13.3; C-12).

Where agents work at the same time, or several pipelines at one task, or a run was rolled back, no record knows what the
others spent. (Branches may run one after the other all the same, on a busy worker: the second one's handoff was made
before the first one's return.) There an agent's share is the own cost that its return states, and what a handoff tells
beyond all that is known so far (a run that failed) is its sender's; the total is their sum.

A receiver that ran again because it had failed, or because what it had returned was lost, tells in the second return
what it told in the first, as far as that was known by then: what the last return adds to those before counts. Of one
that was lost for good the pipeline tells, in the record of the roll-back. What a model took for a summary of a
conversation is its sender's, and on record by itself: what a fork tells at its next handoff, others may have spent.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from baton.handoff.pending import HandoffAction
from baton.ledger.entries import AGAIN
from baton.ledger.records import FAILED, AuditCost, AuditHeader, CamelRecord, Kind, Status
from baton.wire.money import usd

_TOP_UP = HandoffAction.TOP_UP.value.upper()  # the status of a person's decision
_AMOUNTS = ("micro_usd", "prompt_tokens", "completion_tokens")


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
        findings: What does not add up, a sentence each: money that came back, a budget that changed,
            unless it grew and a person's top-up is on record.
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
    """Return what a task has cost, from the headers of its chain in order.

    A rejected handoff adds nothing: what it says may be forged, and what its sender really spent is in the
    next record that was accepted.

    Args:
        records: The headers of the task's chain, in order; those without a cost are passed over.

    Returns:
        The cost; nothing at all for a chain without costs.

    Example:
        >>> task_cost([]).usd
        Decimal('0')
    """
    records = list(records)
    counted = _counted(records)
    work = [record for record, _ in counted if not _is_summary(record)]
    complete = _all_returned(work, {_event(one) for one in records if _is_return(one)})
    if _is_concurrent([record for record, _ in counted]) or _knows_less(counted):
        return _concurrent_cost(counted, complete)
    topped_up = [one.sequence for one in records if (one.kind, one.status) == (Kind.DECISION, _TOP_UP)]
    before, since, shares, findings = AuditCost(spent_micro_usd=0), 0, [], []
    for place, (record, cost) in enumerate(counted):
        may_grow = any(since < sequence < record.sequence for sequence in topped_up)
        findings += _oddities(record.sequence, before if place else cost, cost, may_grow=may_grow)
        share = _share(record, before, cost)
        shares.append(share)
        before, since = cost, record.sequence
    added = sum(share.micro_usd for share in shares)
    if added != before.spent_micro_usd:
        findings.append(
            f"the shares add up to {usd(added)} USD, and the last record says {usd(before.spent_micro_usd)}"
        )
    return TaskCost(
        micro_usd=before.spent_micro_usd,
        prompt_tokens=before.prompt_tokens,
        completion_tokens=before.completion_tokens,
        shares=tuple(shares),
        complete=complete,
        findings=tuple(findings),
    )


def _counted(records: Iterable[AuditHeader]) -> list[tuple[AuditHeader, AuditCost]]:
    """Return the records that tell a cost, each return with what those of the same sending before it have not told."""
    counted: list[tuple[AuditHeader, AuditCost]] = []
    told: dict[tuple[str, int, str | None], int] = {}
    for record in records:
        cost = record.cost
        if cost is None or _is_rejected(record):
            continue
        if not _is_return(record):
            if AGAIN not in record.event_id:  # one that was made anew says what the first said
                counted.append((record, cost))
            continue
        if cost.own_micro_usd is not None:
            sending = (_event(record), _attempt(record), record.run_id)
            before, told[sending] = told.get(sending, 0), max(told.get(sending, 0), cost.own_micro_usd)
            cost = cost.model_copy(update={"own_micro_usd": max(0, cost.own_micro_usd - before)})
        counted.append((record, cost))
    return counted


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


def _is_concurrent(records: Sequence[AuditHeader]) -> bool:
    """Return whether several pipelines worked at the task, or one agent began before the last had returned."""
    pipelines = {record.run_id.rpartition("/")[0] for record in records if record.run_id}
    began = {record.event_id: place for place, record in enumerate(records) if not _is_return(record)}
    waits = (place - began.get(_event(record), place) for place, record in enumerate(records))
    return len(pipelines) > 1 or any(wait > 1 for wait in waits)


def _knows_less(counted: Sequence[tuple[AuditHeader, AuditCost]]) -> bool:
    """Return whether a record knows of less than one before it: of a run that was left, or than a return told."""
    returned, before, run = 0, 0, None
    for record, cost in counted:
        spent = cost.spent_micro_usd - ((cost.own_micro_usd or 0) if _is_summary(record) else 0)
        if spent < returned or (spent < before and record.run_id != run):
            return True
        before, run = cost.spent_micro_usd, record.run_id
        if _is_return(record) or _is_summary(record):
            returned = max(returned, before)
    return False


def _concurrent_cost(counted: Sequence[tuple[AuditHeader, AuditCost]], complete: bool) -> TaskCost:
    """Return what a task has cost of whose records none knows the whole."""
    nothing = AuditCost(spent_micro_usd=0)
    known, began, shares = nothing, dict[str, AuditCost](), []
    for record, cost in counted:
        if _is_summary(record):
            share = _share(record, known, cost)
        elif not _is_return(record):
            began[_event(record)] = cost
            share = _share(record, known, cost.model_copy(update={"own_micro_usd": None}))
        else:
            share = _share(record, began.get(_event(record), known), cost)
            began[_event(record)] = cost  # what it returns once more counts from here
        share = share.model_copy(update={name: max(0, getattr(share, name)) for name in _AMOUNTS})
        shares.append(share)
        known = AuditCost(
            spent_micro_usd=known.spent_micro_usd + share.micro_usd,
            prompt_tokens=known.prompt_tokens + share.prompt_tokens,
            completion_tokens=known.completion_tokens + share.completion_tokens,
        )
    return TaskCost(
        micro_usd=known.spent_micro_usd,
        prompt_tokens=known.prompt_tokens,
        completion_tokens=known.completion_tokens,
        shares=tuple(shares),
        complete=complete,
    )


def _all_returned(counted: Sequence[AuditHeader], returned: set[str]) -> bool:
    """Return whether the last record is a return, and all who were handed to with the last agent returned or failed."""
    if not counted or not _is_return(counted[-1]):
        return False
    begun = {_event(record): record for record in counted if not _is_return(record)}
    last = begun.get(_event(counted[-1]))  # None: a completion of the task itself
    return last is None or all(
        event in returned
        for event, record in begun.items()
        if (record.from_agent, record.run_id) == (last.from_agent, last.run_id)
    )


def _is_return(record: AuditHeader) -> bool:
    """Return whether a record tells what an agent made of a handoff: its return, or that it failed or was lost."""
    return record.kind == Kind.COMPLETION or (record.kind == Kind.ROLLBACK and record.cost is not None)


def _is_summary(record: AuditHeader) -> bool:
    """Return whether a record tells what a model took for a summary, which is beside what agents make of handoffs."""
    return record.kind == Kind.SUMMARY


def _is_rejected(record: AuditHeader) -> bool:
    return record.kind == Kind.HANDOFF and record.status == Status.REJECTED


def _share(record: AuditHeader, before: AuditCost, cost: AuditCost) -> CostShare:
    own = cost.spent_micro_usd - before.spent_micro_usd if cost.own_micro_usd is None else cost.own_micro_usd
    return CostShare(
        sequence=record.sequence,
        agent=record.to_agent if record.kind == Kind.ROLLBACK else record.from_agent,
        micro_usd=own,
        prompt_tokens=cost.prompt_tokens - before.prompt_tokens,
        completion_tokens=cost.completion_tokens - before.completion_tokens,
    )


def _oddities(sequence: int, before: AuditCost, cost: AuditCost, *, may_grow: bool) -> list[str]:
    """Return what a budget never does: go back, shrink, or grow though no person's top-up is on record."""
    found = []
    if cost.spent_micro_usd < before.spent_micro_usd:
        less = usd(before.spent_micro_usd - cost.spent_micro_usd)
        found.append(f"record {sequence}: {less} USD less is spent than before it")
    if before.remaining_micro_usd is not None and cost.remaining_micro_usd is not None:
        old = before.spent_micro_usd + before.remaining_micro_usd
        new = cost.spent_micro_usd + cost.remaining_micro_usd
        if new < old or (new > old and not may_grow):
            found.append(f"record {sequence}: the budget changed from {usd(old)} to {usd(new)} USD")
    return found
