"""A person's decision about an approval, sent as an update that the run accepts or refuses."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from baton.core.history import StepKind
from baton.core.messages import Decided, Decision, Overview, Waiting
from baton.errors import PipelineError
from baton.keys.store_keys import Key
from baton.ledger.chain import to_base64url
from baton.pipelines.approvals import NOT_ALLOWED
from baton.runs.client_executions import query_run
from baton.runs.client_record import RunRecord
from baton.wire.json_values import digest
from baton.wire.names import DECIDE, QUERY_BATON, QUERY_SHOWN, QUERY_STATUS

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
    them, from the query `waiting`, if the person looked earlier.

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
    handle = client.get_workflow_handle(workflow_id)
    if decision.question is None or decision.digest is None:
        overview = await query_run(handle, QUERY_STATUS, result_type=Overview)
        named = (entry for entry in overview.waiting_for if (entry.kind, entry.name) == ("approval", decision.approval))
        by_question = {entry.question: entry.digest for entry in named}
        question = decision.question or next(iter(by_question), None)
        update = {"question": question, "digest": decision.digest or by_question.get(question)}
        decision = decision.model_copy(update=update)
    if key is not None:
        decision = sign_decision(decision, key)

    async def is_pending() -> bool:
        current = await handle.query(QUERY_STATUS, result_type=Overview)
        return (decision.question, decision.digest) in [(entry.question, entry.digest) for entry in current.waiting_for]

    return await send_decision(handle, DECIDE, decision, Decided, is_pending)


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


async def open_approvals_of(client: Client, workflow_id: str, *, whole: bool = True) -> list[OpenApproval]:
    """Return the open approvals of a run with everything that a person decides on.

    A decision with `waiting.question` and `waiting.digest` counts only for what is returned here. Unless ``whole``,
    only the beginning of a long text is read.

    Raises:
        PipelineError: A text changed while it was read, or the run is paused.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    handle = client.get_workflow_handle(workflow_id)
    baton = await query_run(handle, QUERY_BATON)
    overview = await query_run(handle, QUERY_STATUS, result_type=Overview)
    baton_digest = digest(baton)
    approvals = []
    for waiting in overview.waiting_for:
        if waiting.kind == "approval":
            shown = await read_whole_texts(handle, waiting) if whole else waiting
            shown = shown.model_copy(update={"digest": waiting.digest_with(baton_digest)})
            approvals.append(OpenApproval(shown, baton))
    return approvals


def decided_question(run: RunRecord, question: str) -> Decided | None:
    """Return how a question was answered, by people or by its deadline; None if it was not."""
    answers = [
        outcome.value
        for outcome in run.state.outcomes
        if outcome.kind is StepKind.APPROVAL and isinstance(outcome.value, dict)
    ]
    return next((Decided.model_validate(answer) for answer in answers if answer.get("question") == question), None)


async def read_whole_texts(handle: WorkflowHandle[Any, Any], approval: Waiting) -> Waiting:
    """Return an open approval with all its texts, whole."""
    shows = []
    for position, shown in enumerate(approval.shows, start=1):
        text = shown.text
        if not shown.is_whole:
            text = await handle.query(QUERY_SHOWN, args=[approval.question, position], result_type=str)
        if not shown.matches(text):
            raise PipelineError(
                f"{shown.title!r} has changed since approval {approval.name!r} was read; look at it again"
            )
        shows.append(shown.model_copy(update={"text": text}))
    return approval.model_copy(update={"shows": shows})


def sign_decision(decision: Decision, key: Key) -> Decision:
    """Return a decision signed with a decider's key."""
    unsigned = decision.model_copy(update={"key": key.id, "signature": None})
    return unsigned.model_copy(update={"signature": to_base64url(key.private.sign(unsigned.statement))})
