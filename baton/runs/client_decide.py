"""A person's decision about an approval: an update that the run refuses or takes."""

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
from baton.runs.client_executions import asked
from baton.runs.client_record import RunRecord
from baton.wire.json_values import digest
from baton.wire.names import DECIDE, QUERY_BATON, QUERY_SHOWN, QUERY_STATUS

AnswerT = TypeVar("AnswerT")

_MOST_TRIES = 5


async def decided_by_update(
    handle: WorkflowHandle[Any, Any],
    update: str,
    decision: Any,
    answer: type[AnswerT],
    waits: Callable[[], Awaitable[bool]],
) -> AnswerT:
    """Send a decision as an update, and return what counts."""
    tries = 1
    while True:
        try:
            counts: AnswerT = await handle.execute_update(update, decision, result_type=answer)
        except WorkflowUpdateFailedError as error:
            settled = getattr(error.cause, "type", None) == NOT_ALLOWED
            if settled or tries == _MOST_TRIES or not await waits():
                raise PipelineError(str(getattr(error.cause, "message", error.cause))) from error
        else:
            return counts
        tries += 1


async def decide(client: Client, workflow_id: str, decision: Decision, *, key: Key | None = None) -> Decided:
    """Decide about an open approval.

    A decision is about one question and what was shown. Where it names neither, both are read from the run here: it
    then counts for what is asked now. Name them, from the query `waiting`, if the person looked earlier.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        decision: Which approval, yes or no, who and why.
        key: The key that signs it, for an approval that needs proof of who decides.

    Returns:
        How the approval ended, or how many more people have to approve (`missing`); of a repeated decision the first
        answer.

    Raises:
        PipelineError: The decision is refused: not open, decided otherwise, what was shown has changed, the person may
            not decide, the answer does not fit, or the signature is not theirs; or the run is paused.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    handle = client.get_workflow_handle(workflow_id)
    if decision.question is None or decision.digest is None:
        overview = await asked(handle, QUERY_STATUS, result_type=Overview)
        named = [one for one in overview.waiting_for if (one.kind, one.name) == ("approval", decision.approval)]
        question = decision.question or (named[0].question if named else None)
        digest = decision.digest or next((one.digest for one in named if one.question == question), None)
        decision = decision.model_copy(update={"question": question, "digest": digest})
    if key is not None:
        decision = signed(decision, key)

    async def waits() -> bool:
        now = await handle.query(QUERY_STATUS, result_type=Overview)
        return any((one.question, one.digest) == (decision.question, decision.digest) for one in now.waiting_for)

    return await decided_by_update(handle, DECIDE, decision, Decided, waits)


@dataclass(frozen=True)
class OpenApproval:
    """An open approval with everything that a person decides on.

    Attributes:
        waiting: What is asked and shown, all texts whole; its digest is that of exactly this and the baton.
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
    """Return the open approvals of a run, each as a person has to see it before they decide.

    A decision with `waiting.question` and `waiting.digest` counts for what is returned here and for nothing else.
    Unless ``whole``, of a long text that is shown only the beginning is read.

    Raises:
        PipelineError: A text changed while it was read; or the run is paused.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    handle = client.get_workflow_handle(workflow_id)
    baton = await asked(handle, QUERY_BATON)
    overview = await asked(handle, QUERY_STATUS, result_type=Overview)
    bound = digest(baton)
    return [
        OpenApproval(
            (await shown_whole(handle, one) if whole else one).model_copy(update={"digest": one.digest_with(bound)}),
            baton,
        )
        for one in overview.waiting_for
        if one.kind == "approval"
    ]


def decided_question(run: RunRecord, question: str) -> Decided | None:
    """Return how a question of a run was answered, by people or by its deadline; None if it was not."""
    answers = [one.value for one in run.state.outcomes if one.kind is StepKind.APPROVAL and isinstance(one.value, dict)]
    return next((Decided.model_validate(one) for one in answers if one.get("question") == question), None)


async def shown_whole(handle: WorkflowHandle[Any, Any], asked: Waiting) -> Waiting:
    """Return an open approval with all texts that it shows, whole."""
    shows = []
    for place, one in enumerate(asked.shows, start=1):
        text = one.text
        if not one.is_whole:
            text = await handle.query(QUERY_SHOWN, args=[asked.question, place], result_type=str)
        if not one.matches(text):
            raise PipelineError(f"{one.title!r} has changed since approval {asked.name!r} was read; look at it again")
        shows.append(one.model_copy(update={"text": text}))
    return asked.model_copy(update={"shows": shows})


def signed(decision: Decision, key: Key) -> Decision:
    """Return a decision with the signature of a decider's key."""
    unsigned = decision.model_copy(update={"key": key.id, "signature": None})
    return unsigned.model_copy(update={"signature": to_base64url(key.private.sign(unsigned.statement))})
