"""Handoffs to agents outside: people's tools, other services, coding agents that come and fetch their work.

A handoff waits in its pipeline until such an agent claims it for a while, accepts it, and returns a patch for the
baton or a report. Anyone who claims and does not come back loses the claim, not the handoff.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import Field, JsonValue

from baton.core.verdict import Code
from baton.exchange.records import MOST_REMEMBERED, Acknowledgement, Reply, message_digest
from baton.handoff.records import Handoff
from baton.wire.json_values import digest
from baton.wire.records import CompactRecord, Count, Digest, Instant, Name, OpenRecord, Timestamp, Uuid4

MOVE = "handoff_outside"
"""Update: a sealed `AgentAction`, the one argument; it answers with the `OutsideHandoff` afterwards."""
QUERY_OUTSIDE = "handoffs_outside"
"""Query: the handoffs that wait for agents outside, a list of `OutsideHandoff`."""
QUERY_DONE = "handoffs_outside_done"
"""Query: those that are done, a list of `OutsideHandoff` without what was returned: for anyone who lost the answer."""
QUERY_MESSAGE = "handoff_outside_message"
"""Query: the sealed message of one of them, by its id."""

MOST_CARRIED = 100
"""How many handoffs that are done a run still knows that continues another one; who lost an answer asks soon."""
LONGEST_LEASE = timedelta(hours=24)
"""How long a claim may hold; it can be renewed."""


def outside_address(agent: str) -> str:
    """Return the audience of handoffs to an agent outside."""
    return f"outside/{agent}"


class ActionKind(StrEnum):
    """What an agent outside does with a handoff."""

    CLAIM = "claim"
    """Reserve it for a while, or for a while longer; no other agent may touch it then."""
    GIVE_BACK = "give_back"
    """Let go of the claim."""
    ACCEPT = "accept"
    """Take it on: it passed the gate and is on record."""
    REJECT = "reject"
    """Say no, with a reason."""
    NEEDS_INPUT = "needs_input"
    """Say what is missing."""
    PATCH = "patch"
    """Return a patch for the baton; the handoff is done."""
    REPORT = "report"
    """Return a report; the handoff is done and the baton unchanged."""


ENDS = frozenset({ActionKind.REJECT, ActionKind.NEEDS_INPUT, ActionKind.PATCH, ActionKind.REPORT})
"""The moves that end the wait."""


class AgentAction(OpenRecord):
    """What an agent outside does, sealed by the service that knows who the agent is.

    Attributes:
        handoff_id: The handoff.
        digest: Of its message, as the agent has read it.
        agent: Who moves.
        holder: Which one of them, where several answer to that name; it holds the claim.
        kind: What it does.
        lease_seconds: Of a claim: for how long.
        reason: Why not.
        code: The code of the verdict, where it was the gate that said no, and not the agent.
        unmet: What is missing.
        patch: The patch for the baton.
        report: The report, any JSON.
        work: Of one that is remembered: the digest of patch and report, which are left out.
        at: When; on the wire it is `timestamp`, as in every sealed message.
    """

    __baton_sealed__: ClassVar[bool] = True
    __baton_move__: ClassVar[bool] = True  # the worker that receives it looks at its seal at once

    handoff_id: Uuid4
    digest: Digest
    agent: Name
    holder: Name
    kind: ActionKind = Field(strict=False)
    lease_seconds: Count = 600
    reason: str = ""
    code: Code | None = Field(default=None, strict=False)
    unmet: list[str] = Field(default_factory=list)
    patch: dict[str, JsonValue] = Field(default_factory=dict)
    report: JsonValue = None
    work: Digest | None = None
    at: Instant = Field(alias="timestamp")

    def remembered(self) -> Self:
        """Return the move without what it brought, for anyone who lost the answer."""
        return self.model_copy(update={"work": _work_of(self), "patch": {}, "report": None})

    def brought(self, other: "AgentAction") -> bool:
        """Return whether another move brought the same patch and report."""
        return _work_of(self) == _work_of(other)


class OutsideHandoff(CompactRecord):
    """A handoff that waits for an agent outside, as the agent sees it in its list: the record of an open task.

    Attributes:
        handoff_id: The handoff.
        digest: Of its message.
        agent: Whom it is for.
        description: What the agent is to do.
        since: Since when it waits.
        until: When it expires.
        holder: Who has claimed it, if anybody has.
        leased_until: Until when the claim holds.
        accepted: Whether it was accepted.
        end: The move that ended the wait.
    """

    handoff_id: Uuid4
    digest: Digest
    agent: str
    description: str
    since: Timestamp
    until: Timestamp
    holder: str | None = None
    leased_until: Timestamp | None = None
    accepted: bool = False
    end: AgentAction | None = None

    @classmethod
    def of(cls, message: Handoff, within: timedelta) -> Self:
        """Return the record of a handoff that begins to wait, and how long it does."""
        return cls(
            handoff_id=message.handoff_id,
            digest=message_digest(message.to_json_object()),
            agent=message.to_agent.agent_type,
            description=message.task_description,
            since=message.timestamp,
            until=message.timestamp + within,
        )

    def held_by(self, now: datetime) -> str | None:
        """Return who holds a claim that is still good."""
        return self.holder if self.leased_until is not None and now < self.leased_until else None


class OutsideResult(CompactRecord):
    """What came of a handoff to an agent outside.

    Attributes:
        answer: The agent's answer.
        patch: The patch that it returned.
        report: The report that it returned.
        holder: Who did it.
    """

    answer: Acknowledgement
    patch: dict[str, JsonValue] = Field(default_factory=dict)
    report: JsonValue = None
    holder: str

    @classmethod
    def of(cls, end: AgentAction) -> "OutsideResult":
        """Return what a move that ends the wait amounts to."""
        refused = {ActionKind.REJECT: Reply.REJECTED, ActionKind.NEEDS_INPUT: Reply.NEEDS_INPUT}
        answer = Acknowledgement(
            handoff_id=end.handoff_id,
            digest=end.digest,
            answer=refused.get(end.kind, Reply.ACCEPTED),
            unmet=end.unmet,
            reason=end.reason,
            code=end.code,
            by=end.agent,
            at=end.at,
        )
        return cls(answer=answer, patch=end.patch, report=end.report, holder=end.holder)


class ExternalHandoffs:
    """The handoffs of a pipeline that wait for agents outside, and the rules by which these may move."""

    def __init__(self, carried: Mapping[str, Iterable[Mapping[str, Any]]] | None = None) -> None:
        """Begin empty, or with what an earlier run carried over."""
        self._waiting, self._done = (
            {one.handoff_id: one for one in (OutsideHandoff.model_validate(each, strict=False) for each in records)}
            for records in ((carried or {}).get(name, ()) for name in ("waiting", "done"))
        )

    def put(self, waiting: OutsideHandoff) -> None:
        """Let a handoff wait."""
        self._waiting[waiting.handoff_id] = waiting

    def get(self, handoff_id: str) -> OutsideHandoff | None:
        """Return a handoff that waits, or waited until just now."""
        return self._waiting.get(handoff_id)

    def renew(self, message: Handoff) -> None:
        """Let a handoff that waits keep waiting with another message, which is not accepted yet."""
        one = self._waiting[message.handoff_id]
        changes = {"digest": message_digest(message.to_json_object()), "accepted": False}
        self._waiting[one.handoff_id] = one.model_copy(update=changes)

    def remove(self, handoff_id: str) -> None:
        """Let a handoff wait no longer; how it ended is remembered, what it brought is not."""
        one = self._waiting.pop(handoff_id, None)
        if one is None or one.end is None:
            return
        self._done[handoff_id] = one.model_copy(update={"end": one.end.remembered()})
        if len(self._done) > MOST_REMEMBERED:
            del self._done[next(iter(self._done))]

    def open(self) -> list[OutsideHandoff]:
        """Return what waits, oldest first."""
        return [one for one in self._waiting.values() if one.end is None]

    def done(self) -> list[OutsideHandoff]:
        """Return what an agent ended, oldest first."""
        return [*self._done.values()]

    def refusal(self, move: AgentAction, now: datetime) -> str | None:
        """Return why a move cannot be made, or None."""
        one = self._waiting.get(move.handoff_id)
        if one is None or one.agent != move.agent:
            return f"no handoff {move.handoff_id!r} waits for {move.agent!r}; list what is open"
        if one.digest != move.digest:
            return f"handoff {move.handoff_id!r} has another message by now; read it again"
        if one.end is not None:
            same = one.end.holder == move.holder and one.end.kind is move.kind
            return None if same else f"handoff {move.handoff_id!r} is done: {one.end.kind.value} by {one.end.holder!r}"
        if now >= one.until:
            return f"handoff {move.handoff_id!r} expired at {one.until.isoformat()}"
        holder = one.held_by(now)
        if holder is not None and holder != move.holder:
            return f"{holder!r} has claimed handoff {move.handoff_id!r} until {_time(one.leased_until)}"
        if move.kind is not ActionKind.CLAIM and holder is None:
            return f"claim handoff {move.handoff_id!r} first; a claim that has run out can be made again"
        if move.kind in (ActionKind.PATCH, ActionKind.REPORT) and not one.accepted:
            return f"accept handoff {move.handoff_id!r} before you return anything"
        if move.kind is ActionKind.NEEDS_INPUT and not move.unmet:
            return "say what is missing: 'unmet', a sentence each"
        return None

    def make(self, move: AgentAction, now: datetime) -> OutsideHandoff:
        """Make a move that was not refused; one that was made before changes nothing."""
        one = self._waiting[move.handoff_id]
        if one.end is not None:
            return one
        changes: dict[str, Any] = {}
        if move.kind is ActionKind.CLAIM:
            lease = min(timedelta(seconds=max(move.lease_seconds, 1)), LONGEST_LEASE)
            until = min(now + lease, one.until)
            if one.holder == move.holder and one.leased_until is not None:  # a renewal never shortens a claim
                changes = {"leased_until": max(until, one.leased_until)}
            else:
                changes = {"holder": move.holder, "leased_until": until, "accepted": False}
        elif move.kind is ActionKind.GIVE_BACK:
            changes = {"holder": None, "leased_until": None, "accepted": False}
        elif move.kind is ActionKind.ACCEPT:
            changes = {"accepted": True}
        else:
            changes = {"end": move}
        after = self._waiting[move.handoff_id] = one.model_copy(update=changes)
        return after

    def carried(self) -> dict[str, JsonValue]:
        """Return as JSON what the run that continues this one needs to know; of what is done, the newest."""
        done = [*self._done.values()][-MOST_CARRIED:]
        return {
            "waiting": [one.model_dump(mode="json") for one in self._waiting.values()],
            "done": [one.model_dump(mode="json") for one in done],
        }


def _work_of(move: AgentAction) -> str:
    """Return the digest of what a move brings."""
    return move.work or digest({"patch": move.patch, "report": move.report})


def _time(at: datetime | None) -> str:
    return "" if at is None else at.isoformat()
