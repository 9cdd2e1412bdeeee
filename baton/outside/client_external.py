"""Handoffs for programs that are not workflows: hand off to a pipeline, or take and return one as an outside agent.

Both use the same signals and the same gate as pipelines.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.codec.conversion import CLIENTS_ABOVE_BYTES
from baton.contract.validation import is_expired_contract
from baton.core.messages import PipelineInput, PipelineStatus
from baton.core.notes import Notes
from baton.core.patching import MAX_BYTES
from baton.core.people import MAX_REASON_LENGTH
from baton.core.receivers import ReceiverRequirements
from baton.core.verdict import Receipt
from baton.errors import HistoryError, PipelineError
from baton.exchange.external import (
    ACTION,
    ENDS,
    QUERY_DONE,
    QUERY_MESSAGE,
    QUERY_OUTSIDE,
    ActionKind,
    AgentAction,
    OutsideHandoff,
    outside_address,
)
from baton.exchange.records import QUERY_ANSWERED, Acknowledgement, message_digest
from baton.handoff.records import Handoff
from baton.handoff.sealed import SealError, UnverifiedHandoff
from baton.handoff.store_gate import Gate, audience_check, contract_check
from baton.handoff.store_signing import open_sealed
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys
from baton.ledger.entries import run_name
from baton.outside.client_queries import Asker, is_unknown, query_run
from baton.runs.client_executions import Execution, describe, list_executions, refusal_of
from baton.wire.json_values import MAX_MESSAGE_VALUES, Json, find_excess
from baton.wire.names import ATTRIBUTE_STATUS, HANDOFF

MAX_PIPELINES = 1_000
"""How many waiting pipelines are queried, the newest first."""
# A pipeline that also waits for a person has the status of a pending handoff.
_WAITING = (
    f"ExecutionStatus = 'Running' AND {ATTRIBUTE_STATUS} IN "
    f"('{PipelineStatus.WAITING.value}', '{PipelineStatus.PENDING_HANDOFF.value}')"
)
_QUERY_TIMEOUT = timedelta(seconds=10)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HandoffRef:
    """An open handoff, and its workflow."""

    workflow_id: str
    handoff: OutsideHandoff


@dataclass(frozen=True)
class OpenHandoffs:
    """The open handoffs of an agent, oldest first, and how many waiting pipelines answered or did not."""

    handoffs: list[HandoffRef]
    answered: int
    unanswered: int
    trouble: str | None = None


@dataclass(frozen=True)
class OutsideAgents:
    """The actions of outside agents. The caller must authenticate the agent; nothing here checks a token.

    Attributes:
        client: A client whose plugin has the safeguards and seals the actions.
        gate: Answers handoffs, on record, before an agent begins.
    """

    client: Client
    gate: Gate
    asker: Asker = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep one asker, which remembers the runs that did not answer."""
        object.__setattr__(self, "asker", Asker(self.client))

    async def list_open(self, agent: str, *, limit: int | None = None) -> AsyncIterator[HandoffRef]:
        """Yield the open handoffs of an agent, oldest first.

        Only pipelines with a running worker can be queried, so an empty list does not prove that nothing waits;
        `query_open` also returns how many pipelines did not answer.

        Args:
            agent: The agent's name.
            limit: How many at most; all by default.
        """
        for ref in (await self.query_open(agent)).handoffs[:limit]:
            yield ref

    async def query_open(self, agent: str) -> OpenHandoffs:
        """Return the open handoffs of an agent, and how many pipelines did not answer.

        Args:
            agent: The agent's name.
        """
        runs = [run async for run in list_executions(self.client, _WAITING, most=MAX_PIPELINES)]
        trouble: list[str] = []

        async def query(run: Execution) -> list[OutsideHandoff] | None:
            try:
                return await self.asker.ask(run, QUERY_OUTSIDE, OutsideHandoff)
            except HistoryError as error:  # one unreadable run must not break the list
                trouble.append(str(error))
                _warn_once(str(error))
                return None

        answers = await asyncio.gather(*(query(run) for run in runs))
        refs = [
            HandoffRef(run.id, handoff)
            for run, answer in zip(runs, answers, strict=True)
            for handoff in answer or []
            if handoff.agent == agent
        ]
        unanswered = sum(answer is None for answer in answers)
        oldest_first = sorted(refs, key=lambda ref: ref.handoff.since)
        return OpenHandoffs(oldest_first, len(runs) - unanswered, unanswered, trouble[0] if trouble else None)

    async def find(self, workflow_id: str, agent: str, handoff_id: str) -> HandoffRef:
        """Return an agent's handoff, open or done; done ones allow the agent to repeat its last action.

        Raises:
            PipelineError: The agent has no such handoff.
            HistoryError: The pipeline's answer cannot be read here.
            temporalio.exceptions.TemporalError: No worker or server answers.
        """
        for query in (QUERY_OUTSIDE, QUERY_DONE):
            for handoff in await self._query_handoffs(workflow_id, query):
                if handoff.handoff_id == handoff_id and handoff.agent == agent:
                    return HandoffRef(workflow_id, handoff)
        raise PipelineError(f"no handoff {handoff_id!r} waits for {agent!r} in {workflow_id!r}; list what is open")

    async def read(self, ref: HandoffRef) -> bytes:
        """Return the sealed message of a handoff, byte for byte.

        Raises:
            PipelineError: It is no longer open.
            SealError: Its seal does not hold.
        """
        handle = self.client.get_workflow_handle(ref.workflow_id)
        message: Any = await handle.query(QUERY_MESSAGE, ref.handoff.handoff_id)
        if not isinstance(message, UnverifiedHandoff):
            raise PipelineError(f"handoff {ref.handoff.handoff_id!r} is no longer open; list the open ones")
        opened = open_sealed(message.raw, self.gate.keyring, self.client.namespace)
        if message_digest(opened.message) != ref.handoff.digest:
            raise PipelineError(f"handoff {ref.handoff.handoff_id!r} now has another message; list again")
        return message.raw

    async def claim(
        self, ref: HandoffRef, agent: str, *, holder: str | None = None, lease: timedelta = timedelta(minutes=10)
    ) -> HandoffRef:
        """Claim a handoff, or extend a claim.

        Args:
            ref: The handoff.
            agent: The agent's name.
            holder: The instance of the agent; the agent's name by default.
            lease: How long the claim lasts.

        Raises:
            PipelineError: Another holder has claimed it, or it is no longer open.
        """
        return await self._action(ref, agent, holder, ActionKind.CLAIM, lease_seconds=int(lease.total_seconds()))

    async def give_back(self, ref: HandoffRef, agent: str, *, holder: str | None = None) -> HandoffRef:
        """Release a claim, so that another holder can claim the handoff."""
        return await self._action(ref, agent, holder, ActionKind.GIVE_BACK)

    async def accept(
        self, ref: HandoffRef, agent: str, *, holder: str | None = None, version: str = "1.0.0"
    ) -> Receipt:
        """Pass a claimed handoff through the gate, and accept it if it passes; the answer is recorded first.

        If its contract has expired, the pipeline makes a new one before the gate validates it.

        Args:
            ref: The handoff.
            agent: The agent's name.
            holder: The instance of the agent; the agent's name by default.
            version: The agent's version.

        Returns:
            The gate's answer. After a rejection, which the pipeline gets as well, the agent must not begin.

        Raises:
            PipelineError: The claim has expired, or was never made.
            LedgerUnavailableError: The answer could not be recorded; nothing was accepted.
        """
        ref = await self._action(ref, agent, holder, ActionKind.CLAIM)  # without a claim, nothing is recorded
        run_chain = (await describe(self.client, ref.workflow_id)).info.first_run_id
        is_here = audience_check(outside_address(agent), self.client.namespace, run_chain)
        receipt, _ = await self.gate.accept(
            await self.read(ref),
            ReceiverRequirements(agent, version, expects_work=False),
            run_id=run_name(ref.workflow_id),
            run_chain=run_chain,
            extra_checks=[is_here, contract_check(self.gate.clock, self.gate.freshness.tolerance)],
        )
        verdict, code = receipt.verdict, receipt.verdict.reason
        if verdict:
            await self._action(ref, agent, holder, ActionKind.ACCEPT)
        elif is_expired_contract(verdict):  # this clock is ahead of the pipeline's by more than the contract lasts
            unmet = [finding.text for finding in verdict.findings]
            await self._action(ref, agent, holder, ActionKind.NEEDS_INPUT, unmet=unmet, code=code)
        else:
            reason = verdict.details or "not accepted"
            await self._action(ref, agent, holder, ActionKind.REJECT, reason=reason, code=code)
        return receipt

    async def reject(self, ref: HandoffRef, agent: str, reason: str, *, holder: str | None = None) -> HandoffRef:
        """Reject a claimed handoff, with a reason of at most `MAX_REASON_LENGTH` characters."""
        return await self._action(ref, agent, holder, ActionKind.REJECT, reason=reason)

    async def needs_input(
        self, ref: HandoffRef, agent: str, unmet: Sequence[str], *, holder: str | None = None
    ) -> HandoffRef:
        """Ask for what a claimed handoff lacks: sentences of at most `MAX_REASON_LENGTH` characters in total."""
        return await self._action(ref, agent, holder, ActionKind.NEEDS_INPUT, unmet=list(unmet))

    async def return_patch(
        self,
        ref: HandoffRef,
        agent: str,
        patch: Mapping[str, Json],
        *,
        holder: str | None = None,
        report: Any = None,
        notes: Notes | Mapping[str, list[str]] | None = None,
    ) -> HandoffRef:
        """Return a patch for the baton, with an optional report and notes; the handoff is done.

        The notes, or lists of sentences by their keys (`decided`, `fact`, …), become a part of the patch; what the
        agent rejected or only thought never passes for a fact.

        Raises:
            PipelineError: The patch breaks a rule of the pipeline; correct it and try again.
        """
        noted = notes.members() if isinstance(notes, Notes) else dict(notes or {})
        return await self._action(ref, agent, holder, ActionKind.PATCH, patch=dict(patch), report=report, notes=noted)

    async def return_report(
        self, ref: HandoffRef, agent: str, report: Json, *, holder: str | None = None
    ) -> HandoffRef:
        """Return a report; the handoff is done and the baton unchanged."""
        return await self._action(ref, agent, holder, ActionKind.REPORT, report=report)

    async def _action(
        self, ref: HandoffRef, agent: str, holder: str | None, kind: ActionKind, **members: Any
    ) -> HandoffRef:
        """Send an action; a repeat of the action that ended the handoff gets the same answer."""
        action = AgentAction(
            handoff_id=ref.handoff.handoff_id,
            digest=ref.handoff.digest,
            agent=agent,
            holder=holder or agent,
            kind=kind,
            at=self.gate.clock(),
            **members,
        )
        if ref.handoff.end is not None:  # a repeat after a lost answer; the pipeline may have ended
            return _repeat_end(ref, action)
        try:
            return _check_same_work(await self._send_action(ref, action), action)
        except PipelineError:
            done: list[OutsideHandoff] = []
            if kind in ENDS:  # it may repeat an action in progress
                # If the run cannot be queried, the refusal stands.
                with contextlib.suppress(TemporalError, PipelineError):
                    done = await self._query_handoffs(ref.workflow_id, QUERY_DONE)
            for handoff in done:
                if (handoff.handoff_id, handoff.agent) == (action.handoff_id, agent):
                    return _repeat_end(HandoffRef(ref.workflow_id, handoff), action)
            raise

    async def _send_action(self, ref: HandoffRef, action: AgentAction) -> HandoffRef:
        """Send a sealed action to the pipeline, and return the updated handoff."""
        stored = self.client.data_converter.external_storage is not None
        if reason := _action_excess(action, stored=stored):
            raise PipelineError(reason)
        handle = self.client.get_workflow_handle(ref.workflow_id)
        try:
            handoff: OutsideHandoff = await handle.execute_update(ACTION, action, result_type=OutsideHandoff)
        except WorkflowUpdateFailedError as error:
            raise refusal_of(error) from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise PipelineError(f"{ref.workflow_id!r} has ended or does not exist; list what is open") from error
            size = len(action.model_dump_json())
            if error.status is RPCStatusCode.FAILED_PRECONDITION and size >= CLIENTS_ABOVE_BYTES:
                raise PipelineError(_no_answer_text(size)) from error
            raise
        return HandoffRef(ref.workflow_id, handoff)

    async def _query_handoffs(self, workflow_id: str, query: str) -> list[OutsideHandoff]:
        """Query a pipeline's outside handoffs; none if it does not exist or has no such query."""
        handle = self.client.get_workflow_handle(workflow_id)
        try:
            handoffs: list[OutsideHandoff] = await query_run(
                handle, query, result_type=list[OutsideHandoff], rpc_timeout=_QUERY_TIMEOUT
            )
        except WorkflowQueryFailedError as error:
            if not is_unknown(query, error):  # the pipeline's code fails; its handoffs keep waiting
                raise
            return []
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return []
            raise
        return handoffs


def _repeat_end(ref: HandoffRef, action: AgentAction) -> HandoffRef:
    """Return a done handoff if an action repeats the one that ended it, else raise."""
    end = ref.handoff.end
    if end is None or action.kind not in ENDS or (end.kind, end.holder) != (action.kind, action.holder):
        outcome = "" if end is None else f": {end.kind.value} by {end.holder!r}"
        raise PipelineError(f"handoff {action.handoff_id!r} is done{outcome}")
    return _check_same_work(ref, action)


def _check_same_work(ref: HandoffRef, action: AgentAction) -> HandoffRef:
    """Return a handoff after an action; raise if the handoff was done with other work."""
    end = ref.handoff.end
    if end is not None and not end.has_same_work(action):
        raise PipelineError(
            f"handoff {end.handoff_id!r} is done: {end.holder!r} has already returned another {end.kind.value}"
        )
    return ref


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    _log.warning("%s; its handoffs are not listed", text)


def _action_excess(action: AgentAction, *, stored: bool) -> str | None:
    """Return why an action is too large for the run or its history, or None."""
    length = len(action.reason) + sum(map(len, action.unmet))
    if length > MAX_REASON_LENGTH:
        return f"reason and unmet have {length:,} characters, and {MAX_REASON_LENGTH:,} is the most; shorten them"
    patch, rest = {"patch": action.patch}, {"report": action.report, "notes": action.notes}
    excess = find_excess(patch) or find_excess(rest, MAX_MESSAGE_VALUES)
    if excess is not None:
        return str(excess)
    size = len(to_json({**patch, **rest}))
    if stored or size <= MAX_BYTES:
        return None
    return (
        f"patch, report and notes have {size:,} bytes, and {MAX_BYTES:,} is the most that a workflow's history takes; "
        "put the work product into an artifact and refer to it"
    )


def _no_answer_text(size: int) -> str:
    """Return why no worker may have processed an action that goes through the artifact store."""
    return (
        f"no worker of the pipeline took this up. It has {size:,} bytes, and more than {CLIENTS_ABOVE_BYTES:,} goes "
        "through the artifact store: if the workers' log says that it is missing there, this process uses another "
        "store than they do (BATON_ARTIFACTS, --artifacts). Otherwise try again"
    )


_FIRST_PAUSE, _MAX_PAUSE = 0.02, 1.0  # seconds
_RESTART = WorkflowIDReusePolicy.ALLOW_DUPLICATE
_NOT_YET = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True)
class StartReceiver:
    """How to start a receiver that is not running: its pipeline, its input and its task queue."""

    pipeline: Callable[..., Any] | str
    start: PipelineInput
    task_queue: str


async def hand_off_to(
    client: Client,
    message: Handoff,
    *,
    within: timedelta,
    keyring: Keyring | PublicKeys,
    starting: StartReceiver | None = None,
) -> Acknowledgement:
    """Hand a task to a pipeline, and wait for its answer.

    Sending the same message again is safe: it gets the same answer and is executed once, even if its receiver has
    ended meanwhile.

    Args:
        client: A client whose plugin has the safeguards and seals the message.
        message: The message; its `audience` is the receiver's workflow id. A later run under that id does not accept
            it again.
        within: How long to wait for the answer.
        keyring: Verifies the answer's seal.
        starting: How to start the receiver; without it, the receiver must be running.

    Returns:
        The answer. A rejection is not an exception.

    Raises:
        ValueError: The message names no audience.
        PipelineError: The receiver is not running, or did not answer in time; the handoff may still be accepted.
        SealError: The answer's seal does not hold.
    """
    if message.audience is None:
        raise ValueError("the message names no audience; build it with Envelope(audience=<the workflow id>)")
    try:
        async with asyncio.timeout(within.total_seconds()):
            if not await _send(client, message, message.audience, starting, restart=False):
                earlier = await _await_answer(client, message, message.audience, keyring, wait=False)
                if earlier is not None:
                    return earlier
                if not await _send(client, message, message.audience, starting, restart=True):
                    raise PipelineError(f"nothing runs as {message.audience!r}; start it, or say how with `starting`")
            answer = await _await_answer(client, message, message.audience, keyring)
    except TimeoutError as error:
        raise PipelineError(
            f"{message.audience!r} has not answered handoff {message.handoff_id} within {within}; "
            "send the same message again, or ask later"
        ) from error
    assert answer is not None  # noqa: S101 - `_await_answer` waits for it
    return answer


async def _send(
    client: Client, message: Handoff, workflow_id: str, starting: StartReceiver | None, *, restart: bool
) -> bool:
    """Signal the message, starting its receiver if asked to; return whether the receiver can get it."""
    if starting is not None:
        definition: Any = starting.pipeline
        try:
            await client.start_workflow(
                definition,
                starting.start,
                id=workflow_id,
                task_queue=starting.task_queue,
                id_reuse_policy=_RESTART if restart else WorkflowIDReusePolicy.REJECT_DUPLICATE,
                start_signal=HANDOFF,
                start_signal_args=[message],
            )
        except WorkflowAlreadyStartedError:
            return False
        return True
    try:
        await client.get_workflow_handle(workflow_id).signal(HANDOFF, message)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _await_answer(
    client: Client, message: Handoff, workflow_id: str, keyring: Keyring | PublicKeys, *, wait: bool = True
) -> Acknowledgement | None:
    """Query the answer until there is one; without waiting, only until the receiver can be queried."""
    pause, digest = _FIRST_PAUSE, message_digest(message.to_json_object())
    while True:
        queried, answer = await _query_answer(client, workflow_id, message.handoff_id)
        if isinstance(answer, UnverifiedHandoff):
            try:
                ack = Acknowledgement.from_json_object(open_sealed(answer.raw, keyring, client.namespace).message)
            except ValidationError as error:
                raise SealError("the answer's seal holds, but it is not an acknowledgement") from error
            if ack.digest == digest:
                return ack
        if queried and not wait:
            return None
        await asyncio.sleep(pause)
        pause = min(pause * 2, _MAX_PAUSE)


async def _query_answer(client: Client, workflow_id: str, handoff_id: str) -> tuple[bool, object]:
    """Query once; return whether the receiver could be queried, and its answer or None."""
    try:
        return True, await query_run(client.get_workflow_handle(workflow_id), QUERY_ANSWERED, arg=handoff_id)
    except WorkflowQueryFailedError as error:
        return is_unknown(QUERY_ANSWERED, error), None
    except PipelineError:
        return False, None
    except RPCError as error:
        if error.status not in _NOT_YET:
            raise
        return error.status is RPCStatusCode.NOT_FOUND, None
