"""`Exchange`: attached to a pipeline, it hands off to other pipelines and receives from them, by signal."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from pydantic import Base64Bytes, Field, JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError

from baton.core import stages
from baton.core.baton import Baton
from baton.core.history import Spend, StepKind
from baton.core.messages import PipelineInput, StageReturn
from baton.core.pending import HandoffAction, PendingHandoff
from baton.core.questions import Settled
from baton.core.receivers import ReceiverRequirements
from baton.core.verdict import Disposition
from baton.errors import PatchError, RoutingError, StageFailedError
from baton.exchange.external import outside_address
from baton.exchange.records import (
    ATTEMPT,
    FOR_WHOM,
    AckMatch,
    Acknowledgement,
    Outbox,
    ReceivedHandoff,
    SentHandoff,
    message_digest,
    received_patch,
)
from baton.exchange.workflow_messages import (
    MARK,
    Arrivals,
    MessageProcessor,
    Receiver,
    cancel_once,
    message_of,
    open_message,
    signal_workflow,
    start_receiver,
)
from baton.handoff.records import REPLY_TO, CompletedSubtask, Handoff, Sender, Subtask, Target, Trail
from baton.handoff.relay import EXPIRES, AgentState, Envelope, build_handoff
from baton.handoff.sealed import SealError
from baton.pipelines.workflow import CHAIN, Pipeline
from baton.pipelines.workflow_steps import workflow_type
from baton.telemetry.trace import handoff_span_id, task_traceparent
from baton.wire.json_values import Json, digest
from baton.wire.names import HAND_OFF, HANDOFF, HANDOFF_ANSWER, RECEIVE_AS
from baton.wire.records import Integer, Record
from baton.wire.text import describe_faults

MAX_COMPLETED_SUBTASKS = 20
"""How many of the newest finished steps a handoff lists; the ledger has all."""


class ExchangeState(Record):
    """The state that an exchange carries over; messages are base64."""

    outbox: list[SentHandoff] = Field(default_factory=list)
    answers: list[Base64Bytes] = Field(default_factory=list)
    intake: list[Acknowledgement] = Field(default_factory=list)
    queue: list[Base64Bytes] = Field(default_factory=list)
    dropped: Integer = 0


class Outgoing:
    """Makes a pipeline's handoffs to other pipelines and to outside agents."""

    def __init__(self, pipeline: Pipeline, agent: str, version: str) -> None:
        self._pipeline = pipeline
        self.agent, self._version = agent, version
        self._execution_id: str | None = None
        self._parent: str | None = None
        carried = pipeline.carried(CHAIN, Trail)
        self._trail = Trail.from_json_object(carried) if carried else Trail(hops=0, recent=[])
        pipeline.carries[CHAIN] = self.carried

    def carried(self) -> dict[str, JsonValue]:
        """Return the trail that a child or the next run restores."""
        return self._trail.to_json_object() if self._trail.hops else {}

    @property
    def _sender(self) -> Sender:
        self._execution_id = self._execution_id or str(workflow.uuid4())
        return Sender(agent_id=self.agent, agent_version=self._version, execution_id=self._execution_id)

    def follow(self, received: ReceivedHandoff) -> None:
        """Make a received handoff the parent of the next one."""
        self._parent = received.handoff_id
        if received.trail is not None:
            self._trail = Trail.from_json_object(received.trail)

    def has_sent(self, received: ReceivedHandoff) -> bool:
        """Return whether this agent handed on the received task before."""
        recent = Trail.from_json_object(received.trail).recent if received.trail else []
        return any(hop.sender == self.agent for hop in recent)

    def message(
        self,
        to: Receiver,
        description: str,
        constraints: Sequence[str],
        state: Mapping[str, Json] | None,
        expires: timedelta | None,
        *,
        identity: tuple[str, int] | None = None,
        receivers: Sequence[str] = (),
        step: Mapping[str, JsonValue] | None = None,
    ) -> Handoff:
        """Return a handoff, not yet sealed."""
        pipeline, now = self._pipeline, workflow.now()
        handoff_id, attempt = identity or (str(workflow.uuid4()), 1)
        members: dict[str, JsonValue] = {REPLY_TO: workflow.info().workflow_id, ATTEMPT: attempt, **(step or {})}
        requester = pipeline._run.start.requester
        if requester is not None and to.workflow_id != outside_address(to.agent):
            members[FOR_WHOM] = requester.to_json_object()
        completed = self._completed()
        try:
            work = digest(description)[-32:]  # lets the loop guard recognise the same work
            return build_handoff(
                AgentState(
                    agent=self._sender,
                    task_id=pipeline.task_id,
                    task_description=description,
                    cost=pipeline._run.account.budget.cost_tracking(),
                    spend=Spend(),
                    traceparent=pipeline._run.start.traceparent or task_traceparent(pipeline.task_id),
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
                envelope=Envelope(
                    receivers=receivers,
                    audience=to.workflow_id,
                    audience_run=to.run_chain,
                    expires=expires,
                    initial=self._parent is None and not completed,
                    step=members,
                ),
            )
        except (RoutingError, SealError, ValueError) as error:  # ValueError: a value without a canonical form
            raise StageFailedError(f"the handoff to {to.agent!r} cannot be made: {describe_faults(error)}") from error

    def _completed(self) -> list[CompletedSubtask]:
        """Return the newest steps that changed the baton or were approvals."""
        completed = [
            entry for entry in self._pipeline.state.entries if entry.effective or entry.kind is StepKind.APPROVAL
        ]
        return [
            CompletedSubtask(
                subtask_id=f"{entry.seq}:{entry.stage_id}"[:200],
                description=entry.stage_id,
                result={"changed": [*sorted(entry.effective)]},
                completed_at=entry.timestamp,
            )
            for entry in completed[-MAX_COMPLETED_SUBTASKS:]
        ]


ATTEMPTS = 3
"""How often a handoff without an answer is sent, evenly over the available time."""

OnSilence = Callable[[PendingHandoff, timedelta], Awaitable[Settled]]
Takes = Callable[[Baton, ReceivedHandoff], Mapping[str, Json]]


class Exchange:
    """A pipeline's handoffs with other pipelines.

    Attributes:
        outgoing: Makes the pipeline's messages.
        pipeline: The pipeline.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        agent: str | None = None,
        version: str = "1.0.0",
        on_silence: OnSilence | None = None,
    ) -> None:
        """Attach an exchange to a pipeline, in the workflow's `__init__`.

        Args:
            pipeline: The pipeline.
            agent: The pipeline's name as an agent; its workflow type by default.
            version: Its version, by semver.org.
            on_silence: Asks a person about a handoff without an answer; `pipeline.ask` puts it into the pipeline's
                inbox. Without it the step fails.
        """
        carried = pipeline.carried("exchange", ExchangeState)
        self.pipeline = pipeline
        self._calls = pipeline._calls
        self.outgoing = Outgoing(pipeline, agent or workflow.info().workflow_type, version)
        self._on_silence = on_silence
        self._outbox = Outbox(carried.get("outbox", ()))
        self._arrivals = Arrivals(pipeline._run, self.note, carried)
        self._answers = MessageProcessor(self._receive_answer, carried.get("answers", ()))
        workflow.set_signal_handler(HANDOFF_ANSWER, self._on_answer)
        pipeline.carries["exchange"] = self.carried

    def lifetime(self, within: timedelta) -> timedelta:
        """Return after how long a handoff expires: the wait for an answer; longer if a person may send it again."""
        return within if self._on_silence is None else max(EXPIRES, 3 * within)

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new."""
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
        """Hand the task on to another pipeline, and wait for its answer.

        Args:
            to: The receiver; it is started if necessary.
            description: What it is to do.
            within: How long to wait for the answer; then the handoff expires. If a person is asked, it expires after
                three times that, a day at least.
            constraints: Rules of the form `key:value`.
            state: The state that it receives; the baton by default.
            corrects: The needs-input answer that this handoff corrects; it keeps the id, and is the next attempt.
            attempts: How often it is sent in that time while no answer comes.

        Returns:
            The answer: accepted, rejected, or needs-input with what is missing. A rejection is not an exception.

        Raises:
            StageFailedError: No answer came, and no person decided to continue; the message could not be made; or
                the handoff would be a loop.
        """
        name = f"{HAND_OFF}{to.agent}"[:200]

        async def act(seq: int) -> StageReturn:
            identity = (
                None if corrects is None else (corrects.handoff_id, self._outbox.next_attempt(corrects.handoff_id))
            )
            handoff = self.outgoing.message(
                to, description, constraints, state, self.lifetime(within), identity=identity
            )
            ack = await self.deliver(seq, to, handoff, within, attempts)
            return StageReturn(stage=name, seq=seq, output=ack.to_json_object())

        return Acknowledgement.from_json_object(await self.step(name, act))

    @stages.step
    async def receive(
        self, receiver: ReceiverRequirements, *, within: timedelta, takes: Takes = received_patch
    ) -> ReceivedHandoff:
        """Wait for a handoff that passes the gate, answer its sender, and merge its baton into the pipeline's.

        Other handoffs that arrive meanwhile are answered as well. The answer is recorded before it is sent.

        Args:
            receiver: This pipeline's requirements.
            within: How long to wait.
            takes: Returns the patch for this pipeline's baton, given that baton and the received handoff.

        Returns:
            The received handoff.

        Raises:
            StageFailedError: None came in time, or the patch breaks a rule of this pipeline.
        """
        name = f"{RECEIVE_AS}{receiver.agent_type}"[:200]
        replayed = True

        async def act(seq: int) -> StageReturn:
            nonlocal replayed
            replayed = False
            received = await self._arrivals.next(receiver, within)
            patch = dict(takes(self.pipeline.baton, received))
            return StageReturn(stage=name, seq=seq, baton_patch=patch, output=received.model_dump(mode="json"))

        received = ReceivedHandoff.model_validate(await self.step(name, act), strict=False)
        self.outgoing.follow(received)
        if received.cost and received.task_id == self.pipeline.task_id:
            comes_back = self.outgoing.has_sent(received)
            self.pipeline._run.account.relay(received.cost, comes_back=comes_back, recorded=replayed)
        return received

    async def step(self, name: str, act: Callable[[int], Awaitable[StageReturn]]) -> Any:
        """Run a step, and return its output; a continued run does not execute it again."""
        pipeline = self.pipeline
        seq, past = await pipeline._steps.begin(name, StepKind.STAGE)
        if past is not None:
            await pipeline._ask_about_report(past)
            return past.value
        with pipeline._steps.under_way(StepKind.STAGE, name, seq):
            returned = await act(seq)
            try:
                outcome = pipeline.state.record_stage(returned, workflow.now())
            except PatchError as error:
                raise StageFailedError(f"{name}: the returned patch is refused: {error}") from error
        pipeline._run.publish(outcome, with_events=True)
        await pipeline._ask_about_report(outcome)
        return outcome.value

    async def deliver(
        self, seq: int, to: Receiver, handoff: Handoff, within: timedelta, attempts: int = ATTEMPTS
    ) -> Acknowledgement:
        """Send a handoff until it is answered, or fail; a person can extend the wait by `within`."""
        handoff_id = handoff.handoff_id
        with self.expecting(to, handoff_id, message_digest(handoff.to_json_object()), within):
            await self._send(to, handoff, may_start=True)

            async def send_again() -> None:
                await self._send_again(to, handoff)

            missing = f"{to.agent!r} ({to.workflow_id}) has not answered handoff {handoff_id} within {within}"
            return await self.require_answer(seq, to, handoff_id, within, attempts, send_again, missing)

    async def require_answer(
        self,
        seq: int,
        to: Receiver,
        handoff_id: str,
        within: timedelta,
        attempts: int,
        send_again: Callable[[], Awaitable[None]],
        missing: str,
    ) -> Acknowledgement:
        """Wait for the answer to a handoff or a stream, or fail; a person can extend the wait by `within`.

        Args:
            seq: The step's number.
            to: The receiver.
            handoff_id: The id that is answered.
            within: How long the answer may take.
            attempts: How often it is sent in that time while no answer comes.
            send_again: Sends it again.
            missing: What a person is told if no answer comes.
        """
        while (ack := await self.await_answer(handoff_id, within, attempts, send_again)) is None:
            if await self._escalate(seq, to, handoff_id, within, attempts, missing):
                self._outbox.extend(handoff_id, workflow.now() + within)
                await send_again()
        if not ack.accepted:
            why = ack.reason or "; ".join(ack.unmet)
            self.note(f"{to.agent!r} answered {ack.answer.value} to handoff {handoff_id}: {why}")
        return ack

    async def offer(
        self, to: Receiver, handoff: Handoff, within: timedelta, attempts: int, *, on_sent: Callable[[], None]
    ) -> Acknowledgement | None:
        """Send a handoff until it is answered or the time is up; call `on_sent` once the receiver runs."""
        with self.expecting(to, handoff.handoff_id, message_digest(handoff.to_json_object()), within):
            await self._send(to, handoff, may_start=True)
            on_sent()
            return await self.await_answer(handoff.handoff_id, within, attempts, lambda: self._send_again(to, handoff))

    @contextmanager
    def expecting(self, to: Receiver, handoff_id: str, digest: str, within: timedelta) -> Iterator[None]:
        """Expect an answer while the block runs; one that arrives later is noted."""
        now = workflow.now()
        self._outbox.add(
            SentHandoff(
                handoff_id=handoff_id,
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
            self._outbox.close(handoff_id)

    async def await_answer(
        self, handoff_id: str, within: timedelta, attempts: int, send_again: Callable[[], Awaitable[None]]
    ) -> Acknowledgement | None:
        """Wait for an answer until the time is up, sending `attempts` times in all, evenly over it."""
        for attempt in range(1, attempts + 1):
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._outbox.answer(handoff_id) is not None,
                    timeout=within / attempts,
                    timeout_summary=f"answer to handoff {handoff_id}, attempt {attempt}",
                )
            if self._outbox.answer(handoff_id) is not None:
                break
            if attempt < attempts:
                await send_again()
        return self._outbox.answer(handoff_id)

    async def _send_again(self, to: Receiver, handoff: Handoff) -> None:
        """Send the same message again; its receiver repeats an earlier answer."""
        self._outbox.count_attempt(handoff.handoff_id)
        await self._send(to, handoff, may_start=False)

    async def _send(self, to: Receiver, handoff: Handoff, *, may_start: bool) -> None:
        """Signal the handoff; if the receiver is not running, start it where that is allowed."""
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
                tool_limits=self.pipeline.limits_for(workflow_type(to.starts)),
                requester=self.pipeline._run.start.requester,
            )
            await start_receiver(to, start, searchable=self.pipeline._run.visibility.enabled)
            if await signal_workflow(to.workflow_id, HANDOFF, handoff):
                return
        self.note(f"nothing runs as {to.workflow_id!r} to receive handoff {handoff.handoff_id}; it waits")

    async def _escalate(
        self, seq: int, to: Receiver, handoff_id: str, within: timedelta, attempts: int, reason: str
    ) -> bool:
        """Put the task into PENDING_HANDOFF and ask a person; return whether to send it again."""
        self.note(f"escalated: {reason}")
        if self._on_silence is None:
            self.pipeline._run.visibility.show_rejected(f"{HAND_OFF}{to.agent}"[:200])
            raise StageFailedError(reason)
        pending = PendingHandoff(
            handoff_id=handoff_id,
            seq=seq,
            sender=self.outgoing.agent,
            receiver=to.agent,
            fate=Disposition.ESCALATE,
            details=reason,
            attempts=attempts,
            only_as_sent=True,
        )
        decision = await self._decision_or_answer(pending, within)
        if decision is None:
            self.note(f"{to.agent!r} answered handoff {handoff_id} after all; no decision is needed")
            return False
        if decision.choice != HandoffAction.REQUEUE:
            late_answer = self._outbox.answer(handoff_id)
            suffix = "" if late_answer is None else f" (since then {to.agent!r} answered {late_answer.answer.value})"
            raise StageFailedError(f"{reason}; {decision.who} gave it up: {decision.why}{suffix}")
        return True

    async def _decision_or_answer(self, pending: PendingHandoff, within: timedelta) -> Settled | None:
        """Return the person's decision, or None if the receiver answers first."""
        assert self._on_silence is not None  # noqa: S101 - the caller has checked
        handoff_id, escalation = pending.handoff_id, self.pipeline._handoffs.escalation
        asking = asyncio.ensure_future(self._on_silence(pending, within))

        def is_answered() -> bool:
            return self._outbox.answer(handoff_id) is not None and not escalation.is_decided(handoff_id)

        await cancel_once(lambda: asking.done() or is_answered(), [asking])
        return None if asking.cancelled() else asking.result()

    def _on_answer(self, *arguments: Any) -> None:
        """Answer a handoff of this pipeline, with one sealed acknowledgement."""
        raw = message_of(arguments)
        if raw is None:
            expected = "not a sealed answer of 4 MiB at most"
            self.note(f"refused a signal {HANDOFF_ANSWER!r} that is {expected}, marked as one by {MARK}")
        else:
            self._answers.put(raw)

    async def _receive_answer(self, raw: bytes) -> None:
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
            match = self._outbox.receive(ack)
            if match not in (AckMatch.FIRST, AckMatch.REPEATED):
                self.note(f"an answer of {ack.by!r} to handoff {ack.handoff_id} ({ack.answer.value}) is {match.value}")

    def note(self, text: str) -> None:
        """Keep a note for the pipeline's operators."""
        self.pipeline._run.note(text[:1_000])
