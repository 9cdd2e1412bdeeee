"""Handoffs to outside agents: people's tools, other services, and coding agents that fetch their work.

A handoff waits in its pipeline until an agent claims it, accepts it, and returns a patch for the baton or a report.
A claim expires; the handoff then waits for another claim.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import Field, JsonValue

from baton.core.verdict import Code
from baton.exchange.records import MAX_REMEMBERED, Acknowledgement, Reply, message_digest
from baton.handoff.records import Handoff
from baton.wire.json_values import digest
from baton.wire.records import CompactRecord, Count, Digest, Instant, Name, OpenRecord, Record, Timestamp, Uuid4

ACTION = "handoff_outside"
"""Update: a sealed `AgentAction`, the only argument; it returns the updated `OutsideHandoff`."""
QUERY_OUTSIDE = "handoffs_outside"
"""Query: the handoffs that wait for outside agents, a list of `OutsideHandoff`."""
QUERY_DONE = "handoffs_outside_done"
"""Query: the done ones, a list of `OutsideHandoff` without the returned work, for an agent that lost the answer."""
QUERY_MESSAGE = "handoff_outside_message"
"""Query: the sealed message of an open handoff, by its id."""

MAX_CARRIED = 100
"""How many done handoffs a continued run keeps; an agent that lost an answer asks soon."""
MAX_LEASE = timedelta(hours=24)
"""The maximum length of a claim; it can be renewed."""


def outside_address(agent: str) -> str:
    """Return the audience of handoffs to an outside agent."""
    return f"outside/{agent}"


class ActionKind(StrEnum):
    """An outside agent's action with a handoff."""

    CLAIM = "claim"
    """Reserve it, or extend the reservation; no other holder can act on it meanwhile."""
    GIVE_BACK = "give_back"
    """Release the claim."""
    ACCEPT = "accept"
    """Accept it: it passed the gate and is recorded."""
    REJECT = "reject"
    """Reject it, with a reason."""
    NEEDS_INPUT = "needs_input"
    """Ask for what is missing."""
    PATCH = "patch"
    """Return a patch for the baton; the handoff is done."""
    REPORT = "report"
    """Return a report; the handoff is done and the baton unchanged."""


ENDS = frozenset({ActionKind.REJECT, ActionKind.NEEDS_INPUT, ActionKind.PATCH, ActionKind.REPORT})
"""The actions that end a handoff."""


class AgentAction(OpenRecord):
    """An outside agent's action, sealed by the service that authenticated the agent.

    Attributes:
        handoff_id: The handoff.
        digest: The digest of its message, as the agent has read it.
        agent: The agent.
        holder: The instance of the agent that holds the claim.
        kind: The action.
        lease_seconds: How long a claim lasts.
        reason: Why the agent rejects.
        code: The code of the verdict, if the gate rejected, not the agent.
        unmet: What is missing.
        patch: The patch for the baton.
        report: The report, any JSON.
        notes: What the agent noted beside its patch, lists of sentences by their keys (`Notes`).
        work: The digest of patch, report and notes, if these were removed.
        at: When; on the wire it is `timestamp`, as in every sealed message.
    """

    __baton_sealed__: ClassVar[bool] = True
    __baton_action__: ClassVar[bool] = True  # the receiving worker verifies its seal at once

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
    notes: dict[str, list[str]] = Field(default_factory=dict)
    work: Digest | None = None
    at: Instant = Field(alias="timestamp")

    def without_work(self) -> Self:
        """Return the action with the digest of the work in its place."""
        return self.model_copy(update={"work": _work_digest(self), "patch": {}, "report": None, "notes": {}})

    def has_same_work(self, other: "AgentAction") -> bool:
        """Return whether another action has the same work."""
        return _work_digest(self) == _work_digest(other)


class OutsideHandoff(CompactRecord):
    """A handoff to an outside agent, as the agent sees it in its list.

    Attributes:
        holder: Who has claimed it, if anybody has.
        end: The action that ended it.
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
        """Return the record of a new handoff that expires after `within`."""
        return cls(
            handoff_id=message.handoff_id,
            digest=message_digest(message.to_json_object()),
            agent=message.to_agent.agent_type,
            description=message.task_description,
            since=message.timestamp,
            until=message.timestamp + within,
        )

    def held_by(self, now: datetime) -> str | None:
        """Return who holds an unexpired claim."""
        return self.holder if self.leased_until is not None and now < self.leased_until else None


class OutsideResult(CompactRecord):
    """The result of a handoff to an outside agent.

    Attributes:
        answer: The agent's answer.
        patch: The patch that it returned.
        report: The report that it returned.
        holder: The instance of the agent that ended it.
    """

    answer: Acknowledgement
    patch: dict[str, JsonValue] = Field(default_factory=dict)
    report: JsonValue = None
    holder: str

    @classmethod
    def of(cls, end: AgentAction) -> "OutsideResult":
        """Return the result of the action that ended a handoff."""
        replies = {ActionKind.REJECT: Reply.REJECTED, ActionKind.NEEDS_INPUT: Reply.NEEDS_INPUT}
        answer = Acknowledgement(
            handoff_id=end.handoff_id,
            digest=end.digest,
            answer=replies.get(end.kind, Reply.ACCEPTED),
            unmet=end.unmet,
            reason=end.reason,
            code=end.code,
            by=end.agent,
            at=end.at,
        )
        return cls(answer=answer, patch=end.patch, report=end.report, holder=end.holder)


class OutsideState(Record):
    """The state that `ExternalHandoffs` carries over."""

    waiting: list[OutsideHandoff] = Field(default_factory=list)
    done: list[OutsideHandoff] = Field(default_factory=list)


class ExternalHandoffs:
    """A pipeline's handoffs to outside agents, and the rules for their actions."""

    def __init__(self, carried: Mapping[str, Iterable[Mapping[str, Any]]] | None = None) -> None:
        """Begin empty, or with the state of the previous run."""
        records = carried or {}
        self._waiting = {handoff.handoff_id: handoff for handoff in _parse(records.get("waiting", ()))}
        self._done = {handoff.handoff_id: handoff for handoff in _parse(records.get("done", ()))}

    def add(self, waiting: OutsideHandoff) -> None:
        """Add a handoff that begins to wait."""
        self._waiting[waiting.handoff_id] = waiting

    def get(self, handoff_id: str) -> OutsideHandoff | None:
        """Return a handoff that has not been removed."""
        return self._waiting.get(handoff_id)

    def renew(self, message: Handoff) -> None:
        """Replace the message of an open handoff; it has to be accepted again."""
        waiting = self._waiting[message.handoff_id]
        changes = {"digest": message_digest(message.to_json_object()), "accepted": False}
        self._waiting[waiting.handoff_id] = waiting.model_copy(update=changes)

    def remove(self, handoff_id: str) -> None:
        """Remove a handoff; its end is remembered without the returned work."""
        waiting = self._waiting.pop(handoff_id, None)
        if waiting is None or waiting.end is None:
            return
        self._done[handoff_id] = waiting.model_copy(update={"end": waiting.end.without_work()})
        if len(self._done) > MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def open(self) -> list[OutsideHandoff]:
        """Return the open handoffs, oldest first."""
        return [waiting for waiting in self._waiting.values() if waiting.end is None]

    def done(self) -> list[OutsideHandoff]:
        """Return the done handoffs, oldest first."""
        return [*self._done.values()]

    def refusal(self, action: AgentAction, now: datetime) -> str | None:
        """Return why an action is refused, or None."""
        waiting = self._waiting.get(action.handoff_id)
        if waiting is None or waiting.agent != action.agent:
            return f"no handoff {action.handoff_id!r} waits for {action.agent!r}; list what is open"
        if waiting.digest != action.digest:
            return f"handoff {action.handoff_id!r} now has another message; read it again"
        if waiting.end is not None:
            if waiting.end.holder == action.holder and waiting.end.kind is action.kind:
                return None
            return f"handoff {action.handoff_id!r} is done: {waiting.end.kind.value} by {waiting.end.holder!r}"
        if now >= waiting.until:
            return f"handoff {action.handoff_id!r} expired at {waiting.until.isoformat()}"
        holder = waiting.held_by(now)
        if holder is not None and holder != action.holder:
            until = "" if waiting.leased_until is None else waiting.leased_until.isoformat()
            return f"{holder!r} has claimed handoff {action.handoff_id!r} until {until}"
        if action.kind is not ActionKind.CLAIM and holder is None:
            return f"claim handoff {action.handoff_id!r} first; an expired claim can be made again"
        if action.kind in (ActionKind.PATCH, ActionKind.REPORT) and not waiting.accepted:
            return f"accept handoff {action.handoff_id!r} before you return work"
        if action.kind is ActionKind.NEEDS_INPUT and not action.unmet:
            return "name what is missing in 'unmet', a sentence each"
        return None

    def apply(self, action: AgentAction, now: datetime) -> OutsideHandoff:
        """Apply an action that was not refused; a repeated end changes nothing."""
        waiting = self._waiting[action.handoff_id]
        if waiting.end is not None:
            return waiting
        changes: dict[str, Any] = {}
        if action.kind is ActionKind.CLAIM:
            lease = min(timedelta(seconds=max(action.lease_seconds, 1)), MAX_LEASE)
            until = min(now + lease, waiting.until)
            if waiting.holder == action.holder and waiting.leased_until is not None:  # a renewal never shortens a claim
                changes = {"leased_until": max(until, waiting.leased_until)}
            else:
                changes = {"holder": action.holder, "leased_until": until, "accepted": False}
        elif action.kind is ActionKind.GIVE_BACK:
            changes = {"holder": None, "leased_until": None, "accepted": False}
        elif action.kind is ActionKind.ACCEPT:
            changes = {"accepted": True}
        else:
            changes = {"end": action}
        updated = self._waiting[action.handoff_id] = waiting.model_copy(update=changes)
        return updated

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores: the open handoffs, and the newest done ones."""
        done = [*self._done.values()][-MAX_CARRIED:]
        return {
            "waiting": [waiting.model_dump(mode="json") for waiting in self._waiting.values()],
            "done": [handoff.model_dump(mode="json") for handoff in done],
        }


def _parse(records: Iterable[Mapping[str, Any]]) -> list[OutsideHandoff]:
    return [OutsideHandoff.model_validate(members, strict=False) for members in records]


def _work_digest(action: AgentAction) -> str:
    return action.work or digest({"patch": action.patch, "report": action.report, "notes": action.notes})
