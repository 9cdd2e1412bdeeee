"""What programs that are not workflows do: hand a task to a pipeline, or take and return a handoff as an agent outside.

Both go by the same signals and through the same gate as a pipeline's own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
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
from baton.core.patching import MAX_BYTES
from baton.errors import HistoryError, PipelineError
from baton.exchange.external import (
    ENDS,
    MOVE,
    QUERY_DONE,
    QUERY_MESSAGE,
    QUERY_OUTSIDE,
    ActionKind,
    AgentAction,
    OutsideHandoff,
    outside_address,
)
from baton.exchange.records import HANDOFF, QUERY_ANSWERED, Acknowledgement, message_digest
from baton.handoff.pending import MAX_REASON_LENGTH
from baton.handoff.records import Handoff
from baton.handoff.sealed import SealError, UnverifiedHandoff
from baton.handoff.store_gate import Gate, audience_check, contract_check
from baton.handoff.store_signing import open_sealed
from baton.handoff.validation import Receipt, ReceiverRequirements
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys
from baton.ledger.entries import run_name
from baton.runs.client_executions import Execution, is_unknown, list_executions, query_run
from baton.runs.client_waiting import Asker
from baton.wire.json_values import MAX_MESSAGE_VALUES, Json, find_excess
from baton.wire.names import ATTRIBUTE_STATUS

MOST_PIPELINES = 1_000
"""How many waiting pipelines are asked for what they have; the newest first."""
# One that waits for a person as well is shown as pending.
_WAITING = (
    f"ExecutionStatus = 'Running' AND {ATTRIBUTE_STATUS} IN "
    f"('{PipelineStatus.WAITING.value}', '{PipelineStatus.PENDING_HANDOFF.value}')"
)
_ANSWER_WITHIN = timedelta(seconds=10)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A handoff that waits, and where."""

    workflow_id: str
    handoff: OutsideHandoff


@dataclass(frozen=True)
class Listed:
    """What waits for an agent, as far as it is known.

    Attributes:
        found: The handoffs, oldest first.
        asked: How many waiting pipelines were asked.
        unasked: How many could not be: no worker answers for them, or not so that it can be read here.
        trouble: Why it cannot be read, of one of these.
    """

    found: list[Found]
    asked: int
    unasked: int
    trouble: str | None = None


@dataclass(frozen=True)
class OutsideAgents:
    """What agents outside may do. Anyone who calls must know who the agent is: nothing here asks for a token.

    Attributes:
        client: A client whose plugin has the safeguards: it seals the moves.
        gate: Answers handoffs on record, before an agent may begin.
    """

    client: Client
    gate: Gate
    asker: Asker = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Remember from one listing to the next which runs did not answer."""
        object.__setattr__(self, "asker", Asker(self.client))

    async def list_open(self, agent: str) -> list[Found]:
        """Return the handoffs that wait for an agent, oldest first.

        Only pipelines that a worker serves can be asked; the others are found once a worker is back. So an empty list
        does not say that nothing waits: `look` tells of that as well.

        Args:
            agent: The agent's name.
        """
        return (await self.look(agent)).found

    async def look(self, agent: str) -> Listed:
        """Return the handoffs that wait for an agent, and how many pipelines could not be asked for theirs.

        Args:
            agent: The agent's name.
        """
        runs = [run async for run in list_executions(self.client, _WAITING, most=MOST_PIPELINES)]
        trouble: list[str] = []

        async def told(run: Execution) -> list[OutsideHandoff] | None:
            try:
                return await self.asker.ask(run, QUERY_OUTSIDE, OutsideHandoff)
            except HistoryError as error:  # one run does not break the list
                trouble.append(str(error))
                _warn(str(error))
                return None

        answers = await asyncio.gather(*(told(run) for run in runs))
        found = [
            Found(run.id, one)
            for run, answer in zip(runs, answers, strict=True)
            for one in answer or []
            if one.agent == agent
        ]
        unasked = sum(answer is None for answer in answers)
        asked, oldest_first = len(runs) - unasked, sorted(found, key=lambda one: one.handoff.since)
        return Listed(oldest_first, asked, unasked, trouble[0] if trouble else None)

    async def find(self, workflow_id: str, agent: str, handoff_id: str) -> Found:
        """Return a handoff that waits for an agent, or one that it has ended, so that its last move can be repeated.

        Raises:
            PipelineError: There is none for that agent.
            HistoryError: What the pipeline answers cannot be read here.
            temporalio.exceptions.TemporalError: The pipeline cannot be asked just now: no worker or server answers.
        """
        for query in (QUERY_OUTSIDE, QUERY_DONE):
            for one in await self._told(workflow_id, query):
                if one.handoff_id == handoff_id and one.agent == agent:
                    return Found(workflow_id, one)
        raise PipelineError(f"no handoff {handoff_id!r} waits for {agent!r} in {workflow_id!r}; list what is open")

    async def read(self, found: Found) -> bytes:
        """Return the sealed message of a handoff, byte for byte as its seal covers it.

        Raises:
            PipelineError: It waits no longer.
            SealError: Its seal does not hold.
        """
        handle = self.client.get_workflow_handle(found.workflow_id)
        message: Any = await handle.query(QUERY_MESSAGE, found.handoff.handoff_id)
        if not isinstance(message, UnverifiedHandoff):
            raise PipelineError(f"handoff {found.handoff.handoff_id!r} waits no longer; list what is open")
        opened = open_sealed(message.raw, self.gate.keyring)
        if message_digest(opened.message) != found.handoff.digest:
            raise PipelineError(f"handoff {found.handoff.handoff_id!r} has another message by now; list again")
        return message.raw

    async def claim(
        self, found: Found, agent: str, *, holder: str | None = None, lease: timedelta = timedelta(minutes=10)
    ) -> Found:
        """Claim a handoff for a while, or for a while longer.

        Args:
            found: The handoff.
            agent: The agent's name.
            holder: Which one of its kind it is; the agent's name by default.
            lease: For how long.

        Raises:
            PipelineError: Another one has claimed it, or it waits no longer.
        """
        return await self._move(found, agent, holder, ActionKind.CLAIM, lease_seconds=int(lease.total_seconds()))

    async def give_back(self, found: Found, agent: str, *, holder: str | None = None) -> Found:
        """Let go of a claim, so that another one may claim the handoff."""
        return await self._move(found, agent, holder, ActionKind.GIVE_BACK)

    async def accept(self, found: Found, agent: str, *, holder: str | None = None, version: str = "1.0.0") -> Receipt:
        """Lead a claimed handoff through the gate, and take it on if it passes; the answer is on record first.

        If its contract has expired while it waited, its pipeline makes a new one before the gate sees it.

        Args:
            found: The handoff.
            agent: The agent's name.
            holder: Which one of its kind it is.
            version: The agent's version.

        Returns:
            The gate's answer. If it is no, the pipeline was told so, and the agent must not begin.

        Raises:
            PipelineError: The claim has run out, or was never made.
            LedgerUnavailableError: The answer could not be put on record; nothing was accepted.
        """
        found = await self._move(found, agent, holder, ActionKind.CLAIM)  # anyone who holds no claim leaves no record
        receipt, _ = await self.gate.accept(
            await self.read(found),
            ReceiverRequirements(agent, version, expects_work=False),
            run_id=run_name(found.workflow_id),
            further=[audience_check(outside_address(agent)), contract_check(self.gate.clock)],
        )
        verdict, code = receipt.verdict, receipt.verdict.reason
        if verdict:
            await self._move(found, agent, holder, ActionKind.ACCEPT)
        elif is_expired_contract(verdict):  # this clock is ahead of the pipeline's by all that it lasts
            unmet = [one.text for one in verdict.findings]
            await self._move(found, agent, holder, ActionKind.NEEDS_INPUT, unmet=unmet, code=code)
        else:
            reason = verdict.details or "not accepted"
            await self._move(found, agent, holder, ActionKind.REJECT, reason=reason, code=code)
        return receipt

    async def reject(self, found: Found, agent: str, reason: str, *, holder: str | None = None) -> Found:
        """Say no to a claimed handoff, with a reason of `MAX_REASON_LENGTH` characters at most."""
        return await self._move(found, agent, holder, ActionKind.REJECT, reason=reason)

    async def needs_input(self, found: Found, agent: str, unmet: Sequence[str], *, holder: str | None = None) -> Found:
        """Say what a claimed handoff lacks, a sentence each, together of `MAX_REASON_LENGTH` characters at most."""
        return await self._move(found, agent, holder, ActionKind.NEEDS_INPUT, unmet=list(unmet))

    async def return_patch(
        self, found: Found, agent: str, patch: Mapping[str, Json], *, holder: str | None = None, report: Any = None
    ) -> Found:
        """Return a patch for the baton, and a report if there is one; the handoff is done.

        Raises:
            PipelineError: The patch breaks a rule of the pipeline, which the message names; correct it and try again.
        """
        return await self._move(found, agent, holder, ActionKind.PATCH, patch=dict(patch), report=report)

    async def return_report(self, found: Found, agent: str, report: Json, *, holder: str | None = None) -> Found:
        """Return a report; the handoff is done and the baton unchanged."""
        return await self._move(found, agent, holder, ActionKind.REPORT, report=report)

    async def _move(self, found: Found, agent: str, holder: str | None, kind: ActionKind, **members: Any) -> Found:
        """Bring a sealed move to the pipeline; one that ended the handoff before is answered as it was then."""
        move = AgentAction(
            handoff_id=found.handoff.handoff_id,
            digest=found.handoff.digest,
            agent=agent,
            holder=holder or agent,
            kind=kind,
            at=self.gate.clock(),
            **members,
        )
        if found.handoff.end is not None:  # anyone who asks again has lost the answer, and the pipeline may have ended
            return _as_before(found, move)
        try:
            return _as_brought(await self._made(found, move), move)
        except PipelineError:
            done: list[OutsideHandoff] = []
            if kind in ENDS:  # it may repeat one that was still being made
                # Where the run cannot be asked, the refusal stands.
                with contextlib.suppress(TemporalError, PipelineError):
                    done = await self._told(found.workflow_id, QUERY_DONE)
            for one in done:
                if (one.handoff_id, one.agent) == (move.handoff_id, agent):
                    return _as_before(Found(found.workflow_id, one), move)
            raise

    async def _made(self, found: Found, move: AgentAction) -> Found:
        """Bring a sealed move to the pipeline, and return the handoff after it."""
        stored = self.client.data_converter.external_storage is not None
        if why := _excess_of(move, stored=stored):
            raise PipelineError(why)
        handle = self.client.get_workflow_handle(found.workflow_id)
        try:
            after: OutsideHandoff = await handle.execute_update(MOVE, move, result_type=OutsideHandoff)
        except WorkflowUpdateFailedError as error:
            raise PipelineError(str(getattr(error.cause, "message", error.cause))) from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise PipelineError(f"{found.workflow_id!r} has ended or never was; list what is open") from error
            size = len(move.model_dump_json())
            if error.status is RPCStatusCode.FAILED_PRECONDITION and size >= CLIENTS_ABOVE_BYTES:
                raise PipelineError(_not_taken_up(size)) from error
            raise
        return Found(found.workflow_id, after)

    async def _told(self, workflow_id: str, query: str) -> list[OutsideHandoff]:
        """Ask a pipeline for its handoffs outside; one that never was, or has none, has none to tell."""
        handle = self.client.get_workflow_handle(workflow_id)
        try:
            told: list[OutsideHandoff] = await query_run(
                handle, query, result_type=list[OutsideHandoff], rpc_timeout=_ANSWER_WITHIN
            )
        except WorkflowQueryFailedError as error:
            if not is_unknown(query, error):  # its code fails, and what waits in it waits on
                raise
            return []
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return []
            raise
        return told


def _as_before(found: Found, move: AgentAction) -> Found:
    """Return a handoff that is done, if a move repeats the one that ended it."""
    end = found.handoff.end
    if end is None or move.kind not in ENDS or (end.kind, end.holder) != (move.kind, move.holder):
        by = "" if end is None else f": {end.kind.value} by {end.holder!r}"
        raise PipelineError(f"handoff {move.handoff_id!r} is done{by}")
    return _as_brought(found, move)


def _as_brought(found: Found, move: AgentAction) -> Found:
    """Return a handoff after a move, unless that repeats one which brought something else."""
    end = found.handoff.end
    if end is not None and not end.brought(move):
        raise PipelineError(
            f"handoff {end.handoff_id!r} is done: {end.holder!r} returned another {end.kind.value} before, which stands"
        )
    return found


@lru_cache(maxsize=256)
def _warn(why: str) -> None:
    """Put into the log, once, why a pipeline's handoffs are not listed."""
    _log.warning("%s; what waits in it is not listed", why)


def _excess_of(move: AgentAction, *, stored: bool) -> str | None:
    """Return why a move says or brings more than a run remembers, a workflow reads, or its history takes; or None."""
    said = len(move.reason) + sum(map(len, move.unmet))
    if said > MAX_REASON_LENGTH:
        return f"what it says has {said:,} characters, and {MAX_REASON_LENGTH:,} is the most; say it in short"
    over = find_excess({"patch": move.patch}) or find_excess({"report": move.report}, MAX_MESSAGE_VALUES)
    if over is not None:
        return str(over)
    size = len(to_json({"patch": move.patch, "report": move.report}))
    if stored or size <= MAX_BYTES:
        return None
    return (
        f"patch and report have {size:,} bytes, and {MAX_BYTES:,} is the most that a workflow's history takes; "
        "put the work product into an artifact and refer to it"
    )


def _not_taken_up(size: int) -> str:
    """Say why no worker may have taken up a move that is so large that it goes by the artifact store."""
    return (
        f"no worker of the pipeline took this up. It has {size:,} bytes, and what is larger than "
        f"{CLIENTS_ABOVE_BYTES:,} goes by the artifact store: if the workers' log says that it is not there, this "
        "process has another store than they (BATON_ARTIFACTS, --artifacts). Otherwise try again"
    )


_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds
_AGAIN = WorkflowIDReusePolicy.ALLOW_DUPLICATE
_NOT_YET = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True)
class Starting:
    """How a receiver is started if it does not run yet.

    Attributes:
        pipeline: The workflow type, or its `run` method.
        start: Its input.
        task_queue: Where its workers listen.
    """

    pipeline: Callable[..., Any] | str
    start: PipelineInput
    task_queue: str


async def hand_off_to(
    client: Client,
    message: Handoff,
    *,
    within: timedelta,
    keyring: Keyring | PublicKeys,
    starting: Starting | None = None,
) -> Acknowledgement:
    """Hand a task to a pipeline, and wait for its answer.

    Sending the same message again is harmless: it gets the same answer, and is executed once, also when its receiver
    has ended meanwhile.

    Args:
        client: A client whose plugin has the safeguards: it seals the message.
        message: The message; its `audience` is the receiver's workflow id.
        within: How long to wait for the answer.
        keyring: Verifies the answer's seal.
        starting: How to start the receiver; without it, it must run already.

    Returns:
        The answer. A refusal is not an exception.

    Raises:
        ValueError: The message names no audience.
        PipelineError: The receiver does not run, or did not answer in time; the handoff may still be accepted.
        SealError: The answer's seal does not hold.
    """
    if message.audience is None:
        raise ValueError("the message names no audience; build it with Delivery(audience=<the workflow id>)")
    try:
        async with asyncio.timeout(within.total_seconds()):
            if not await _sent(client, message, message.audience, starting, again=False):
                earlier = await _answer(client, message, message.audience, keyring, waits=False)
                if earlier is not None:
                    return earlier
                if not await _sent(client, message, message.audience, starting, again=True):
                    raise PipelineError(f"nothing runs as {message.audience!r}; start it, or say how with `starting`")
            answer = await _answer(client, message, message.audience, keyring)
    except TimeoutError as error:
        raise PipelineError(
            f"{message.audience!r} has not answered handoff {message.handoff_id} within {within}; "
            "send the same message again, or ask later"
        ) from error
    assert answer is not None  # noqa: S101 - it was waited for
    return answer


async def _sent(client: Client, message: Handoff, workflow_id: str, starting: Starting | None, *, again: bool) -> bool:
    """Signal the message, together with the start of its receiver if that is wanted."""
    if starting is not None:
        definition: Any = starting.pipeline
        try:
            await client.start_workflow(
                definition,
                starting.start,
                id=workflow_id,
                task_queue=starting.task_queue,
                id_reuse_policy=_AGAIN if again else WorkflowIDReusePolicy.REJECT_DUPLICATE,
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


async def _answer(
    client: Client, message: Handoff, workflow_id: str, keyring: Keyring | PublicKeys, *, waits: bool = True
) -> Acknowledgement | None:
    """Ask for the answer until it is there, or without waiting only until the receiver can be asked."""
    pause, digest = _FIRST_PAUSE, message_digest(message.to_json_object())
    while True:
        was_asked, said = await _ask(client, workflow_id, message.handoff_id)
        if isinstance(said, UnverifiedHandoff):
            try:
                ack = Acknowledgement.from_json_object(open_sealed(said.raw, keyring).message)
            except ValidationError as error:
                raise SealError("the answer's seal holds, but it is not an acknowledgement") from error
            if ack.digest == digest:
                return ack
        if was_asked and not waits:
            return None
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def _ask(client: Client, workflow_id: str, handoff_id: str) -> tuple[bool, object]:
    """Ask once; return whether the receiver could be asked, and what it says: None if it has not answered."""
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
