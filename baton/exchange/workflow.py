"""`Exchange`: attached to a pipeline, it hands the task on to other pipelines and receives it from them, by signal."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError

from baton.core import stages
from baton.core.baton import Baton
from baton.core.history import Spend, StepKind
from baton.core.messages import PipelineInput, PipelineStatus, StageReturn
from baton.core.verdict import Disposition
from baton.errors import PatchError, RoutingError, StageFailedError
from baton.exchange.records import (
    ATTEMPT,
    HANDOFF,
    HANDOFF_ANSWER,
    REPLY_TO,
    AckMatch,
    Acknowledgement,
    Outbox,
    Received,
    Sent,
    message_digest,
    taken_over,
)
from baton.exchange.workflow_messages import (
    MARK,
    Arrivals,
    MessageProcessor,
    Receiver,
    ended_once,
    message_of,
    open_message,
    signal_workflow,
    start_receiver,
)
from baton.handoff.pending import HandoffAction, HandoffDecision, PendingHandoff
from baton.handoff.records import CompletedSubtask, Handoff, Sender, Subtask, Target, Trail
from baton.handoff.relay import AgentState, Delivery, build_handoff
from baton.handoff.sealed import SealError
from baton.handoff.trace import handoff_span_id, task_traceparent
from baton.handoff.validation import ReceiverRequirements
from baton.pipelines.workflow import CHAIN, Pipeline
from baton.pipelines.workflow_steps import publish
from baton.wire.json_values import Json, digest
from baton.wire.text import describe_faults

COMPLETED_HANDED = 20
"""How many of the newest finished steps a handoff lists; all of them are in the ledger."""


class Outgoing:
    """Makes a pipeline's handoffs to other pipelines and to agents outside."""

    def __init__(self, pipeline: Pipeline, agent: str, version: str) -> None:
        self._pipeline = pipeline
        self._agent, self._version = agent, version
        self._execution_id: str | None = None
        self._parent: str | None = None
        carried = pipeline.carried(CHAIN)
        self._trail = Trail.from_json_object(carried) if carried else Trail(hops=0, recent=[])
        pipeline.carries[CHAIN] = self.carried

    def carried(self) -> dict[str, JsonValue]:
        """Return how the task came here: what a child, or the run that continues this one, begins with."""
        return self._trail.to_json_object() if self._trail.hops else {}

    @property
    def _sender(self) -> Sender:
        """Who hands on: this run of the agent."""
        self._execution_id = self._execution_id or str(workflow.uuid4())
        return Sender(agent_id=self._agent, agent_version=self._version, execution_id=self._execution_id)

    def follows(self, received: Received) -> None:
        """Note which handoff brought the task here: what is handed on next has it as its parent."""
        self._parent = received.handoff_id
        if received.trail is not None:
            self._trail = Trail.from_json_object(received.trail)

    def comes_back(self, received: Received) -> bool:
        """Return whether a task that was received had been handed on from here before."""
        recent = Trail.from_json_object(received.trail).recent if received.trail else []
        return any(hop.sender == self._agent for hop in recent)

    def message(
        self,
        to: Receiver,
        description: str,
        constraints: Sequence[str],
        state: Mapping[str, Json] | None,
        expires: timedelta | None,
        *,
        named: tuple[str, int] | None = None,
        receivers: Sequence[str] = (),
        step: Mapping[str, JsonValue] | None = None,
    ) -> Handoff:
        """Return a handoff; it is sealed as it leaves."""
        pipeline, now = self._pipeline, workflow.now()
        handoff_id, attempt = named or (str(workflow.uuid4()), 1)
        further: dict[str, JsonValue] = {REPLY_TO: workflow.info().workflow_id, ATTEMPT: attempt, **(step or {})}
        completed = self._completed()
        try:
            work = digest(description)[-32:]  # by which the guard knows what goes round in circles
            return build_handoff(
                AgentState(
                    agent=self._sender,
                    task_id=pipeline.task_id,
                    task_description=description,
                    cost=pipeline._account.budget.cost_tracking(),
                    spend=Spend(),
                    traceparent=pipeline._start.traceparent or task_traceparent(pipeline.task_id),
                    parent_handoff_id=self._parent,
                    completed=completed,
                    remaining=[Subtask(subtask_id=work, description=description)],
                    current_state=pipeline.state.baton.to_json_object() if state is None else state,
                    trail=self._trail,
                ),
                Target(agent_type=to.agent, agent_version=to.version),
                constraints,
                handoff_id=handoff_id,
                timestamp=now,
                delivery=Delivery(
                    receivers=receivers,
                    audience=to.workflow_id,
                    expires_at=None if expires is None else now + expires,
                    initial=self._parent is None and not completed,
                    step=further,
                ),
            )
        except (RoutingError, SealError, ValueError) as error:  # among the last: no canonical form of a number or text
            raise StageFailedError(f"the handoff to {to.agent!r} cannot be made: {_short(error)}") from error

    def _completed(self) -> list[CompletedSubtask]:
        """Return the newest steps that changed the baton, or in which a person decided."""
        done = [one for one in self._pipeline.state.entries if one.effective or one.kind is StepKind.APPROVAL]
        return [
            CompletedSubtask(
                subtask_id=f"{entry.seq}:{entry.stage_id}"[:200],
                description=entry.stage_id,
                result={"changed": [*sorted(entry.effective)]},
                completed_at=entry.timestamp,
            )
            for entry in done[-COMPLETED_HANDED:]
        ]


def _short(error: Exception) -> str:
    """Return what is wrong, without a value of the message."""
    return describe_faults(error) if isinstance(error, ValidationError) else str(error)


ATTEMPTS = 3
"""How often a handoff is sent without an answer, evenly over the time there is."""

Ask = Callable[[PendingHandoff, timedelta], Awaitable[HandoffDecision]]
Takes = Callable[[Baton, Received], Mapping[str, Json]]


class Exchange:
    """A pipeline's handoffs with other pipelines.

    Attributes:
        outgoing: What makes this pipeline's messages.
        pipeline: The pipeline it is attached to.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        agent: str | None = None,
        version: str = "1.0.0",
        ask: Ask | None = None,
    ) -> None:
        """Attach an exchange to a pipeline, in the workflow's `__init__`.

        Args:
            pipeline: The pipeline.
            agent: Under what name it hands on; its workflow type by default.
            version: Its version, by semver.org.
            ask: Asks a person what to do about a handoff without an answer; `pipeline.ask` puts it
                into the pipeline's inbox. Without it the step fails.
        """
        carried = pipeline.carried("exchange")
        self.pipeline = pipeline
        self._calls = pipeline._calls
        self.outgoing = Outgoing(pipeline, agent or workflow.info().workflow_type, version)
        self._ask = ask
        self._outbox = Outbox(carried.get("outbox", ()))
        self._arrivals = Arrivals(pipeline._handlers, self.note, carried)
        self._answers = MessageProcessor(self._take_answer, carried.get("answers", ()))
        workflow.set_signal_handler(HANDOFF_ANSWER, self._on_answer)
        pipeline.carries["exchange"] = self.carried

    @property
    def asks(self) -> bool:
        """Whether a person is asked about a handoff without an answer."""
        return self._ask is not None

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs to know when this one continues as new."""
        return {"outbox": self._outbox.carried(), "answers": self._answers.pending(), **self._arrivals.carried()}

    @stages.step
    async def hand_off(
        self,
        to: Receiver,
        description: str,
        *,
        within: timedelta,
        constraints: Sequence[str] = (),
        state: Mapping[str, Json] | None = None,
        corrects: Acknowledgement | None = None,
        attempts: int = ATTEMPTS,
    ) -> Acknowledgement:
        """Hand the task on to another pipeline, and wait until it answers.

        Args:
            to: The receiver; it is started if need be.
            description: What it is to do.
            within: How long to wait for the answer; the handoff expires then, unless a person is asked.
            constraints: Rules of the form `key:value`.
            state: What it is handed; the baton by default.
            corrects: The needs-input answer that this handoff corrects: it keeps the id, and is its next attempt.
            attempts: How often it is sent in that time while no answer comes.

        Returns:
            The answer: accepted, rejected, or needs-input with what is missing. A refusal is not an exception.

        Raises:
            StageFailedError: No answer came, and no person decided to continue; the message could not be made; or
                the handoff would go round in circles.
        """
        name = f"hand off to {to.agent}"[:200]

        async def act(seq: int) -> StageReturn:
            corrected = None if corrects is None else (corrects.handoff_id, self._outbox.attempt(corrects.handoff_id))
            expires = None if self.asks else within  # a person may have the same message sent much later
            handoff = self.outgoing.message(to, description, constraints, state, expires, named=corrected)
            ack = await self.deliver(seq, to, handoff, within, attempts)
            return StageReturn(stage=name, seq=seq, output=ack.to_json_object())

        return Acknowledgement.from_json_object(await self.step(name, act))

    @stages.step
    async def receive(
        self, receiver: ReceiverRequirements, *, within: timedelta, takes: Takes = taken_over
    ) -> Received:
        """Wait for a handoff that passes the gate, answer its sender, and take over the baton that it brings.

        Every other one that comes meanwhile is answered as well. The answer is on record before it is given, and
        before this returns.

        Args:
            receiver: What this pipeline requires of a handoff.
            within: How long to wait.
            takes: Makes the patch for this pipeline's baton out of the baton and what was received.

        Returns:
            What was received.

        Raises:
            StageFailedError: None came in time, or what one brought breaks a rule of this pipeline.
        """
        name = f"receive as {receiver.agent_type}"[:200]
        is_past = True

        async def act(seq: int) -> StageReturn:
            nonlocal is_past
            is_past = False
            received = await self._arrivals.next(receiver, within)
            patch = dict(takes(self.pipeline.baton, received))
            return StageReturn(stage=name, seq=seq, baton_patch=patch, output=received.model_dump(mode="json"))

        received = Received.model_validate(await self.step(name, act), strict=False)
        self.outgoing.follows(received)
        if received.cost and received.task_id == self.pipeline.task_id:
            comes_back = self.outgoing.comes_back(received)
            self.pipeline._account.relay(received.cost, comes_back=comes_back, recorded=is_past)
        return received

    async def step(self, name: str, act: Callable[[int], Awaitable[StageReturn]]) -> Any:
        """Run something as a step, which is not executed again in a run that continues this one; return its output."""
        pipeline = self.pipeline
        seq, past = await pipeline._steps.begin(name, StepKind.STAGE)
        if past is not None:
            return past.value
        with pipeline._steps.under_way(StepKind.STAGE, name, seq):
            returned = await act(seq)
            try:
                outcome = pipeline.state.record_stage(returned, workflow.now())
            except PatchError as error:
                raise StageFailedError(f"{name}: what came back is refused: {error}") from error
        publish(outcome)
        return outcome.value

    async def deliver(
        self, seq: int, to: Receiver, handoff: Handoff, within: timedelta, attempts: int = ATTEMPTS
    ) -> Acknowledgement:
        """Send a handoff until it is answered, or fail; a person may have it sent again for as long as `within`."""
        id = handoff.handoff_id
        with self.expecting(to, id, message_digest(handoff.to_json_object()), within):
            await self._send(to, handoff, may_start=True)
            while (ack := await self.answer(id, within, attempts, lambda: self._send_again(to, handoff))) is None:
                if await self._escalate(seq, to, handoff, within, attempts):
                    self._outbox.extend(id, workflow.now() + within)
                    await self._send_again(to, handoff)
        if not ack.accepted:
            self.note(f"{to.agent!r} answered {ack.answer.value} to handoff {id}: {ack.reason or '; '.join(ack.unmet)}")
        return ack

    async def offer(
        self, to: Receiver, handoff: Handoff, within: timedelta, attempts: int, *, sent: Callable[[], None]
    ) -> Acknowledgement | None:
        """Send a handoff until it is answered or the time is up; call `sent` once its receiver is there to hear it."""
        with self.expecting(to, handoff.handoff_id, message_digest(handoff.to_json_object()), within):
            await self._send(to, handoff, may_start=True)
            sent()
            return await self.answer(handoff.handoff_id, within, attempts, lambda: self._send_again(to, handoff))

    @contextmanager
    def expecting(self, to: Receiver, id: str, digest: str, within: timedelta) -> Iterator[None]:
        """Take the answer to something that is sent while the block runs; one that comes later is noted."""
        now = workflow.now()
        self._outbox.put(
            Sent(
                handoff_id=id,
                digest=digest,
                receiver=to.agent,
                workflow_id=to.workflow_id,
                sent_at=now,
                deadline=now + within,
            )
        )
        try:
            yield
        finally:
            self._outbox.close(id)

    async def answer(
        self, id: str, within: timedelta, attempts: int, again: Callable[[], Awaitable[None]]
    ) -> Acknowledgement | None:
        """Wait for an answer until the time is up, sending again evenly over it: `attempts` times with the first."""
        for attempt in range(1, attempts + 1):
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._outbox.answer(id) is not None,
                    timeout=within / attempts,
                    timeout_summary=f"answer to handoff {id}, attempt {attempt}",
                )
            if self._outbox.answer(id) is not None:
                break
            if attempt < attempts:
                await again()
        return self._outbox.answer(id)

    async def _send_again(self, to: Receiver, handoff: Handoff) -> None:
        """Send the same message again; anyone who has answered it answers the same."""
        self._outbox.again(handoff.handoff_id)
        await self._send(to, handoff, may_start=False)

    async def _send(self, to: Receiver, handoff: Handoff, *, may_start: bool) -> None:
        """Signal the handoff; start the receiver if that is allowed and it is not there."""
        if await signal_workflow(to.workflow_id, HANDOFF, handoff):
            return
        if may_start and to.starts is not None:
            start = PipelineInput(
                goal=handoff.task_description,
                params=dict(to.params),
                inputs=dict(to.inputs),
                task_id=handoff.task_id,
                traceparent=handoff.traceparent,
                follows=handoff_span_id(handoff.handoff_id, to.agent),
            )
            await start_receiver(to, start, searchable=self.pipeline._handlers.visibility.enabled)
            if await signal_workflow(to.workflow_id, HANDOFF, handoff):
                return
        self.note(f"nothing runs as {to.workflow_id!r} to receive handoff {handoff.handoff_id}; it waits")

    async def _escalate(self, seq: int, to: Receiver, handoff: Handoff, within: timedelta, attempts: int) -> bool:
        """Put the task into PENDING_HANDOFF and ask a person; return whether it is to be sent again."""
        reason = f"{to.agent!r} ({to.workflow_id}) has not answered handoff {handoff.handoff_id} within {within}"
        self.note(f"escalated: {reason}")
        visibility = self.pipeline._handlers.visibility
        name = f"hand off to {to.agent}"[:200]
        if self._ask is None:
            visibility.show_rejected(name)
            raise StageFailedError(reason)
        since = workflow.now()
        pending = PendingHandoff(
            handoff_id=handoff.handoff_id,
            seq=seq,
            sender=handoff.from_agent.agent_id,
            receiver=to.agent,
            fate=Disposition.ESCALATE,
            details=reason,
            attempts=attempts,
            since=since,
            until=since + within,
            only_as_sent=True,
        )
        with visibility.show_waiting(PipelineStatus.PENDING_HANDOFF, name):
            decision = await self._decision_or_answer(pending, within)
        visibility.resume()
        if decision is None:
            self.note(f"{to.agent!r} answered handoff {handoff.handoff_id} after all; nobody needs to decide about it")
            return False
        if decision.action is not HandoffAction.REQUEUE:
            late = self._outbox.answer(handoff.handoff_id)
            came = "" if late is None else f" (since then {to.agent!r} answered {late.answer.value})"
            raise StageFailedError(f"{reason}; {decision.who} gave it up: {decision.why}{came}")
        return True

    async def _decision_or_answer(self, pending: PendingHandoff, within: timedelta) -> HandoffDecision | None:
        """Return what the person who is asked decides, or None if the receiver answers before that."""
        assert self._ask is not None  # noqa: S101 - the caller has looked
        id, inbox = pending.handoff_id, self.pipeline._handoffs.escalation.inbox
        asking = asyncio.ensure_future(self._ask(pending, within))

        def answered() -> bool:
            return self._outbox.answer(id) is not None and not inbox.has_decision(id)

        await ended_once(lambda: asking.done() or answered(), [asking])
        return None if asking.cancelled() else asking.result()

    def _on_answer(self, *given: Any) -> None:
        """Answer a handoff of this pipeline: one sealed acknowledgement."""
        raw = message_of(given)
        if raw is None:
            what = "not a sealed answer of 4 MiB at most"
            self.note(f"refused a signal {HANDOFF_ANSWER!r} that is {what}, marked as one by {MARK}")
        else:
            self._answers.put(raw)

    async def _take_answer(self, raw: bytes) -> None:
        """Take an answer once its seal was verified."""
        try:
            answer = await open_message(raw)
            ack = None if answer.message is None else Acknowledgement.from_json_object(answer.message)
        except ActivityError as error:
            self.note(f"an answer could not be verified: {error.cause or error}")
        except ValidationError:
            self.note("refused an answer that is not an acknowledgement, though its seal holds")
        else:
            if ack is None:
                self.note(f"refused an answer: {answer.fault}")
                return
            taken = self._outbox.take(ack)
            if taken not in (AckMatch.FIRST, AckMatch.REPEATED):
                self.note(f"an answer of {ack.by!r} to handoff {ack.handoff_id} ({ack.answer.value}) is {taken.value}")

    def note(self, text: str) -> None:
        """Keep a note for the pipeline's operators."""
        self.pipeline._handlers.note(text[:1_000])
