"""A handoff to several pipelines at once: each gets its own copy, and the sender waits until enough have accepted."""

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
from baton.exchange.workflow_messages import Receiver, cancel_once
from baton.handoff.records import Handoff
from baton.wire.json_values import Json
from baton.wire.names import HAND_OFF
from baton.wire.records import CompactRecord, Integer


class BroadcastStatus(StrEnum):
    """The status of a broadcast."""

    OPEN = "open"
    """Not decided; missing answers may still come."""
    ALL = "all"
    """Every receiver has accepted."""
    QUORUM = "quorum"
    """The quorum has accepted."""
    TIMEOUT = "timeout"
    """The time is up, at least one receiver has accepted, and that suffices."""
    FAILED = "failed"
    """Too many receivers rejected or did not answer."""


class Broadcast(CompactRecord):
    """The answers to a handoff to several receivers.

    Attributes:
        receivers: All receivers: the message's `receiverList`.
        quorum: How many acceptances are enough; absent for all of them.
        timeout_suffices: Whether a single acceptance is enough once the time is up.
        answers: The answers so far, by receiver.
    """

    receivers: list[str] = Field(min_length=1)
    quorum: Integer | None = Field(default=None, ge=1)
    timeout_suffices: bool = False
    answers: dict[str, Acknowledgement] = Field(default_factory=dict)

    def with_answer(self, receiver: str, ack: Acknowledgement) -> "Broadcast":
        """Return the broadcast with another answer; the first answer of a receiver stays."""
        if receiver not in self.receivers:
            raise ValueError(f"{receiver!r} is not one of the receivers {', '.join(map(repr, self.receivers))}")
        return self.model_copy(update={"answers": {receiver: ack, **self.answers}})

    @property
    def accepted(self) -> list[str]:
        """The receivers that accepted, in the order of `receivers`."""
        return [name for name in self.receivers if name in self.answers and self.answers[name].accepted]

    @property
    def silent(self) -> Sequence[str]:
        """The receivers that have not answered."""
        return [name for name in self.receivers if name not in self.answers]

    def standing(self, *, time_is_up: bool) -> BroadcastStatus:
        """Return the status of the broadcast."""
        accepted, needed = len(self.accepted), self.quorum or len(self.receivers)
        if accepted == len(self.receivers):
            return BroadcastStatus.ALL
        if accepted >= needed:
            return BroadcastStatus.QUORUM
        if time_is_up:
            return BroadcastStatus.TIMEOUT if self.timeout_suffices and accepted else BroadcastStatus.FAILED
        hopeless = accepted + len(self.silent) < needed
        if not self.silent and self.timeout_suffices and accepted:
            return BroadcastStatus.TIMEOUT  # nobody else can answer
        return (
            BroadcastStatus.FAILED if hopeless and not (self.timeout_suffices and self.silent) else BroadcastStatus.OPEN
        )


_MAX_REASON_LENGTH = 300  # for each receiver; one sentence lists them all


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
    """Hand the same task to several pipelines, and wait until all of them, or a quorum, have accepted.

    Each copy is a handoff with its own id and record, and lists all receivers. Receivers that have not answered when
    the quorum is reached keep their handoff, and are started if necessary.

    Args:
        exchange: The pipeline's exchange.
        receivers: The receivers, each with another `agent`.
        description: What they are to do.
        within: How long to wait.
        quorum: How many acceptances are enough; all of them by default.
        timeout_suffices: Whether a single acceptance within that time is enough.
        constraints: Rules of the form `key:value`.
        state: The state that they receive; the baton by default.
        attempts: How often each copy is sent in that time while no answer comes.

    Returns:
        The answers; enough have accepted.

    Raises:
        ValueError: There are no receivers, two have the same agent, or the quorum is out of range.
        StageFailedError: Too few accepted.
    """
    names = [receiver.agent for receiver in receivers]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"a broadcast needs at least one receiver, each agent once; got {names}")
    if quorum is not None and not 1 <= quorum <= len(names):
        raise ValueError(f"a quorum of {quorum} is not from 1 to {len(names)}")

    async def act(seq: int) -> StageReturn:
        copies = [
            (receiver, exchange.outgoing.message(receiver, description, constraints, state, within, receivers=names))
            for receiver in receivers
        ]
        broadcast = Broadcast(receivers=names, quorum=quorum, timeout_suffices=timeout_suffices)
        broadcast = await _gather(exchange, copies, broadcast, within, attempts)
        return StageReturn(stage=name, seq=seq, output=broadcast.model_dump(mode="json"))

    name = f"{HAND_OFF}{'+'.join(names)}"[:200]
    return Broadcast.model_validate(await exchange.step(name, act), strict=False)


async def _gather(
    exchange: Exchange,
    copies: Sequence[tuple[Receiver, Handoff]],
    broadcast: Broadcast,
    within: timedelta,
    attempts: int,
) -> Broadcast:
    answers: dict[str, Acknowledgement] = {}
    done: set[str] = set()
    timed_out: set[str] = set()
    # Cancelling a start would cancel its receiver, so `unsent` delays the end until all receivers run.
    unsent = {receiver.agent for receiver, _ in copies}

    async def offer(receiver: Receiver, copy: Handoff) -> None:
        try:
            ack = await exchange.offer(receiver, copy, within, attempts, on_sent=lambda: unsent.discard(receiver.agent))
            if ack is None:
                timed_out.add(receiver.agent)
            else:
                answers[receiver.agent] = ack
        finally:
            done.add(receiver.agent)
            unsent.discard(receiver.agent)

    def current() -> Broadcast:
        gathered = broadcast
        for name, ack in answers.items():
            gathered = gathered.with_answer(name, ack)
        return gathered

    def standing() -> BroadcastStatus:
        return current().standing(time_is_up=len(done) == len(copies))

    tasks = [asyncio.create_task(offer(receiver, copy)) for receiver, copy in copies]
    outcomes = await cancel_once(lambda: not unsent and standing() is not BroadcastStatus.OPEN, tasks)
    faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    gathered = current()
    if faults or standing() is BroadcastStatus.FAILED:
        refusals = [_describe_refusal(name, ack) for name, ack in gathered.answers.items() if not ack.accepted]
        missing = [f"{name!r} {'was silent' if name in timed_out else 'had not answered'}" for name in gathered.silent]
        errors = [str(fault) for fault in faults]
        needed = gathered.quorum or len(gathered.receivers)
        reason = f"{len(gathered.accepted)} of {needed} accepted: {'; '.join([*refusals, *missing, *errors])}"
        exchange.note(f"escalated: {reason}")
        exchange.pipeline._run.visibility.show_rejected()
        raise StageFailedError(f"the handoff to {', '.join(map(repr, gathered.receivers))} failed: {reason}")
    return gathered


def _describe_refusal(name: str, ack: Acknowledgement) -> str:
    reason = (ack.reason or "; ".join(ack.unmet))[:_MAX_REASON_LENGTH]
    return f"{name!r} answered {ack.answer.value}{f' ({reason})' if reason else ''}"
