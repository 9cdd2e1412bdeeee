"""A person's decision about an approval, sent as an update that the run accepts or refuses."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from baton.core.history import StepKind
from baton.core.messages import Decided, Decision, Overview, Waiting
from baton.errors import PipelineError
from baton.keys.store_keys import Key
from baton.runs.client_executions import describe
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.runs.client_waiting import (
    ANSWER_SECONDS,
    NoAnswerError,
    answer_of,
    has_pollers,
    must_be_open,
    pinned_build,
)
from baton.runtime.approvals import NOT_ALLOWED
from baton.wire.base64url import to_base64url
from baton.wire.names import DECIDE, QUERY_STATUS

AnswerT = TypeVar("AnswerT")

_MAX_TRIES = 5


async def send_decision(
    handle: WorkflowHandle[Any, Any],
    update: str,
    decision: Any,
    result_type: type[AnswerT],
    is_pending: Callable[[], Awaitable[bool]],
) -> AnswerT:
    """Send a decision as an update, and return the decision that counts; retry while the question is pending."""
    tries = 1
    while True:
        try:
            result: AnswerT = await handle.execute_update(update, decision, result_type=result_type)
        except WorkflowUpdateFailedError as error:
            is_final = getattr(error.cause, "type", None) == NOT_ALLOWED
            if is_final or tries == _MAX_TRIES or not await is_pending():
                raise PipelineError(str(getattr(error.cause, "message", error.cause))) from error
        else:
            return result
        tries += 1


async def decide(client: Client, workflow_id: str, decision: Decision, *, key: Key | None = None) -> Decided:
    """Decide about an open approval.

    A decision is about one question and what was shown. If it names neither, both are read from the run now. Name
    them, from `RunRecord.approvals` or the query `waiting`, if the person looked earlier.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        decision: Which approval, yes or no, who and why.
        key: The key that signs it, for an approval that needs proof of who decides.

    Returns:
        How the approval ended, or how many more people have to approve (`missing`); for a repeated decision the first
        answer.

    Raises:
        PipelineError: The decision is refused: the approval is not open or was decided otherwise, its texts have
            changed, the person may not decide, the answer or the signature is invalid; or the run is paused.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    decision = await _complete(client, workflow_id, decision, key)
    handle = client.get_workflow_handle(workflow_id)

    async def is_pending() -> bool:
        current = await handle.query(QUERY_STATUS, result_type=Overview)
        return (decision.question, decision.digest) in [(entry.question, entry.digest) for entry in current.waiting_for]

    return await send_decision(handle, DECIDE, decision, Decided, is_pending)


async def decide_or_leave(
    client: Client, workflow_id: str, decision: Decision, *, key: Key | None = None, within: float = ANSWER_SECONDS
) -> Decided | None:
    """Decide about an open approval, also while its worker is away or busy.

    What no worker answers in time is left with the server as a signal: it counts, or becomes a note of the run, when
    a worker takes it up. A decision that arrives twice counts once.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        decision: Which approval, yes or no, who and why.
        key: The key that signs it, for an approval that needs proof of who decides.
        within: How long to wait for an answer, in seconds.

    Returns:
        As `decide` does; None if the decision was left with the server.

    Raises:
        PipelineError: The decision is refused, or the run has ended or is paused.
    """
    run = await must_be_open(client, workflow_id)
    decision = await _complete(client, workflow_id, decision, key)
    if await has_pollers(client, run.task_queue, pinned_build(run)):
        with contextlib.suppress(NoAnswerError):
            return await answer_of(client, workflow_id, decide(client, workflow_id, decision), within=within)
        await must_be_open(client, workflow_id, run.run_id)
    await client.get_workflow_handle(workflow_id, run_id=run.run_id).signal(DECIDE, decision)
    return None


async def _complete(client: Client, workflow_id: str, decision: Decision, key: Key | None) -> Decision:
    """Return a decision with the question and the digest that it names, and signed if there is a key."""
    if decision.question is None or decision.digest is None:
        if (await describe(client, workflow_id)).pause:
            await must_be_open(client, workflow_id)  # says who paused it
        approvals = (await read_run(client, workflow_id)).approvals
        by_question = {entry.question: entry.digest for entry in approvals if entry.name == decision.approval}
        question = decision.question or next(iter(by_question), None)
        update = {"question": question, "digest": decision.digest or by_question.get(question)}
        decision = decision.model_copy(update=update)
    return decision if key is None else sign_decision(decision, key)


@dataclass(frozen=True)
class OpenApproval:
    """An open approval with everything that a person decides on.

    Attributes:
        waiting: The question and the texts shown, whole; its digest covers these and the baton.
        baton: The baton, as JSON.
    """

    waiting: Waiting
    baton: dict[str, Any]

    def decision(self, *, approved: bool, who: str, why: str, answer: dict[str, Any] | None) -> Decision:
        """Return a decision on exactly this."""
        return Decision(
            approval=self.waiting.name,
            question=self.waiting.question,
            digest=self.waiting.digest,
            approved=approved,
            who=who,
            why=why,
            answer=answer,
        )


async def open_approvals_of(client: Client, workflow_id: str) -> list[OpenApproval]:
    """Return the open approvals of a run with everything that a person decides on, read from its history.

    A decision with `waiting.question` and `waiting.digest` counts only for what is returned here.

    Raises:
        HistoryError: The workflow is not a pipeline, or its payloads cannot be read.
        temporalio.service.RPCError: There is no such run.
    """
    return open_approvals_in(await read_run(client, workflow_id))


def open_approvals_in(run: RunRecord) -> list[OpenApproval]:
    """Return the open approvals of a run that was read, likewise."""
    return [OpenApproval(approval, run.baton.to_json_object()) for approval in run.approvals]


def decided_question(run: RunRecord, question: str) -> Decided | None:
    """Return how a question was answered, by people or by its deadline; None if it was not."""
    answers = [
        outcome.value
        for outcome in run.state.outcomes
        if outcome.kind is StepKind.APPROVAL and isinstance(outcome.value, dict)
    ]
    return next((Decided.model_validate(answer) for answer in answers if answer.get("question") == question), None)


def sign_decision(decision: Decision, key: Key) -> Decision:
    """Return a decision signed with a decider's key."""
    unsigned = decision.model_copy(update={"key": key.id, "signature": None})
    return unsigned.model_copy(update={"signature": to_base64url(key.private.sign(unsigned.statement))})
