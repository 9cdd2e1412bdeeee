"""How a service that is not a workflow hands a task to a pipeline: by the same signal, through the same gate."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.core.messages import PipelineInput
from baton.errors import PipelineError
from baton.exchange.records import HANDOFF, QUERY_ANSWERED, Acknowledgement, message_digest
from baton.handoff.records import Handoff
from baton.handoff.sealed import SealError, UnverifiedHandoff
from baton.handoff.store_signing import open_sealed
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys
from baton.runs.client_executions import asked, is_unknown

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
        return True, await asked(client.get_workflow_handle(workflow_id), QUERY_ANSWERED, arg=handoff_id)
    except WorkflowQueryFailedError as error:
        return is_unknown(QUERY_ANSWERED, error), None
    except PipelineError:
        return False, None
    except RPCError as error:
        if error.status not in _NOT_YET:
            raise
        return error.status is RPCStatusCode.NOT_FOUND, None
