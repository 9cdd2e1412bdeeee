"""A handoff to several pipelines at once: each gets its own copy, and nothing continues before enough have accepted."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from baton.core.messages import StageReturn
from baton.core.stages import step
from baton.errors import StageFailedError
from baton.exchange.records import Acknowledgement
from baton.exchange.workflow import ATTEMPTS, Exchange
from baton.exchange.workflow_messages import Receiver, ended_once
from baton.handoff.records import Handoff
from baton.wire.json_values import Json
from baton.wire.records import CompactRecord, Integer


class BroadcastStatus(StrEnum):
    """How a broadcast stands."""

    OPEN = "open"
    """Answers are missing that may still come."""
    ALL = "all"
    """Every receiver has accepted."""
    QUORUM = "quorum"
    """As many have accepted as were declared to be enough."""
    TIMEOUT = "timeout"
    """The time is up, and it was declared that those who accepted by then are enough."""
    FAILED = "failed"
    """Too many refused, or were silent until the time was up."""


class Broadcast(CompactRecord):
    """The answers to a handoff that several receivers got, each its own copy; nothing is aggregated before it stands.

    Attributes:
        receivers: Everybody it was sent to: the message's `receiverList`.
        quorum: How many acceptances are enough; absent for all of them.
        timeout_suffices: Whether those who accepted until the time was up are enough, be it only one.
        answers: The answers so far, by receiver.
    """

    receivers: list[str] = Field(min_length=1)
    quorum: Integer | None = Field(default=None, ge=1)
    timeout_suffices: bool = False
    answers: dict[str, Acknowledgement] = Field(default_factory=dict)

    def with_answer(self, receiver: str, ack: Acknowledgement) -> "Broadcast":
        """Return the broadcast with one answer more; the first answer of a receiver stays."""
        if receiver not in self.receivers:
            raise ValueError(f"{receiver!r} is none of the receivers {', '.join(map(repr, self.receivers))}")
        return self.model_copy(update={"answers": {receiver: ack, **self.answers}})

    @property
    def accepted(self) -> list[str]:
        """Who accepted, in the order of the receivers."""
        return [name for name in self.receivers if name in self.answers and self.answers[name].accepted]

    @property
    def silent(self) -> Sequence[str]:
        """Who has not answered."""
        return [name for name in self.receivers if name not in self.answers]

    def standing(self, *, time_is_up: bool) -> BroadcastStatus:
        """Return how it stands."""
        accepted, needed = len(self.accepted), self.quorum or len(self.receivers)
        if accepted == len(self.receivers):
            return BroadcastStatus.ALL
        if accepted >= needed:
            return BroadcastStatus.QUORUM
        if time_is_up:
            return BroadcastStatus.TIMEOUT if self.timeout_suffices and accepted else BroadcastStatus.FAILED
        hopeless = accepted + len(self.silent) < needed
        if not self.silent and self.timeout_suffices and accepted:
            return BroadcastStatus.TIMEOUT  # all have answered or run out of time
        return (
            BroadcastStatus.FAILED if hopeless and not (self.timeout_suffices and self.silent) else BroadcastStatus.OPEN
        )


_LONGEST_REASON = 300  # of each receiver's refusal, as all of them stand in one sentence


@step
async def hand_off_to_all(
    exchange: Exchange,
    receivers: Sequence[Receiver],
    description: str,
    *,
    within: timedelta,
    quorum: int | None = None,
    timeout_suffices: bool = False,
    constraints: Sequence[str] = (),
    state: Mapping[str, Json] | None = None,
    attempts: int = ATTEMPTS,
) -> Broadcast:
    """Hand the same task to several pipelines, and wait until all, or as many as declared, have accepted.

    Each copy is a handoff with its own id and record, and lists all the receivers. A receiver whose answer comes after
    a quorum was reached has the handoff all the same, and is started for it if need be.

    Args:
        exchange: The pipeline's exchange.
        receivers: The receivers, each of another `agent`.
        description: What they are to do.
        within: How long to wait.
        quorum: How many acceptances are enough; all of them by default.
        timeout_suffices: Whether those who accepted within that time are enough, be it only one.
        constraints: Rules of the form `key:value`.
        state: What they are handed; the baton by default.
        attempts: How often each copy is sent in that time while no answer comes.

    Returns:
        The answers; it stands.

    Raises:
        ValueError: There are no receivers, one is there twice, or the quorum is larger than their number.
        StageFailedError: Too few accepted.
    """
    names = [to.agent for to in receivers]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"a broadcast needs at least one receiver, each agent once; got {names}")
    if quorum is not None and not 1 <= quorum <= len(names):
        raise ValueError(f"a quorum of {quorum} is not from 1 to {len(names)}")

    async def act(seq: int) -> StageReturn:
        copies = [
            (to, exchange.outgoing.message(to, description, constraints, state, within, receivers=names))
            for to in receivers
        ]
        broadcast = Broadcast(receivers=names, quorum=quorum, timeout_suffices=timeout_suffices)
        broadcast = await _gathered(exchange, copies, broadcast, within, attempts)
        return StageReturn(stage=name, seq=seq, output=broadcast.model_dump(mode="json"))

    name = f"hand off to {'+'.join(names)}"[:200]
    return Broadcast.model_validate(await exchange.step(name, act), strict=False)


async def _gathered(
    exchange: Exchange,
    copies: Sequence[tuple[Receiver, Handoff]],
    broadcast: Broadcast,
    within: timedelta,
    attempts: int,
) -> Broadcast:
    """Send all copies and gather answers until the broadcast stands."""
    answers: dict[str, Acknowledgement] = {}
    done: set[str] = set()
    silent: set[str] = set()
    # A receiver whose start is cancelled is cancelled with it, and the start continues until it is there.
    unsent = {to.agent for to, _ in copies}

    async def one(to: Receiver, copy: Handoff) -> None:
        try:
            ack = await exchange.offer(to, copy, within, attempts, sent=lambda: unsent.discard(to.agent))
            if ack is None:
                silent.add(to.agent)
            else:
                answers[to.agent] = ack
        finally:
            done.add(to.agent)
            unsent.discard(to.agent)

    def now() -> Broadcast:
        gathered = broadcast
        for name, ack in answers.items():
            gathered = gathered.with_answer(name, ack)
        return gathered

    def standing() -> BroadcastStatus:
        return now().standing(time_is_up=len(done) == len(copies))

    tasks = [asyncio.create_task(one(to, copy)) for to, copy in copies]
    ended = await ended_once(lambda: not unsent and standing() is not BroadcastStatus.OPEN, tasks)
    faults = [fault for fault in ended if isinstance(fault, Exception)]
    gathered = now()
    if faults or standing() is BroadcastStatus.FAILED:
        refused = [_refusal(name, ack) for name, ack in gathered.answers.items() if not ack.accepted]
        missing = [f"{name!r} {'was silent' if name in silent else 'had not answered'}" for name in gathered.silent]
        told = [str(fault) for fault in faults]
        needed = gathered.quorum or len(gathered.receivers)
        reason = f"{len(gathered.accepted)} of {needed} accepted: {'; '.join([*refused, *missing, *told])}"
        exchange.note(f"escalated: {reason}")
        exchange.pipeline._handlers.visibility.show_rejected()
        raise StageFailedError(f"the handoff to {', '.join(map(repr, gathered.receivers))} failed: {reason}")
    return gathered


def _refusal(name: str, ack: Acknowledgement) -> str:
    """Return who refused, and why."""
    why = (ack.reason or "; ".join(ack.unmet))[:_LONGEST_REASON]
    return f"{name!r} answered {ack.answer.value}{f' ({why})' if why else ''}"
