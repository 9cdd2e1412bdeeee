"""A person's decision about an approval, sent as an update that the run accepts or refuses."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from pydantic import JsonValue
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from baton.core.decisions import Decided, Decision, Waiting
from baton.core.history import StepKind
from baton.core.operations import Fact, Operation, Preview
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
from baton.runtime.approvals import NOT_ALLOWED, describe_outcome, late_reply
from baton.wire.base64url import to_base64url
from baton.wire.names import DECIDE

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
        approvals = (await read_run(client, workflow_id)).approvals
        return (decision.question, decision.digest) in [(entry.question, entry.digest) for entry in approvals]

    return await send_decision(handle, DECIDE, decision, Decided, is_pending)


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


@dataclass(frozen=True)
class DecidePreview(Preview):
    """What a decision would be about now.

    Attributes:
        run: The run.
        open: The approval, while it is open.
        decided: How it was decided, once it is.
        has_worker: Whether a worker polls for the run: without one, the server holds the decision until one does.
    """

    run: RunRecord = field(kw_only=True)
    open: OpenApproval | None = field(default=None, kw_only=True)
    decided: Decided | None = field(default=None, kw_only=True)
    has_worker: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Decide(Operation[DecidePreview, Decided | None]):
    """Approve or deny what a run asks, also while its worker is away or busy.

    The result is how the approval ended, or how many more people have to approve (`missing`); the first answer if the
    same decision was sent before. It is None if no worker answered in time: the decision is left with the server as a
    signal, and counts, or becomes a note of the run, when a worker takes it up. A decision that arrives twice counts
    once.

    `preview` and `commit` raise `PipelineError` if no such approval is open, or the run has ended or is paused.
    `commit` raises it also if the decision is refused: another one counted before, which it names; the person may not
    decide; the answer or the signature is invalid.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        approved: Yes or no.
        approval: The approval's title; by default the only one that is open.
        question: The id of the question, instead of the title. Once it is decided, the preview says how.
        answer: The filled-in form, with a yes only.
        key: The key that signs the decision, for an approval that needs proof of who decides.
        run_id: The run, which must be the newest; any by default.
        within: How long to wait for a worker's answer, in seconds.

    Example:
        ```python
        operation = Decide(client, "order-1", True, "release manager")
        preview = await operation.preview()
        print(preview.open.waiting.asks)
        decided = await operation.pinned_to(preview).commit(preview.mark, by="ann", why="tests are green")
        ```
    """

    client: Client
    workflow_id: str
    approved: bool
    approval: str | None = None
    question: str | None = None
    answer: dict[str, Any] | None = None
    key: Key | None = None
    run_id: str | None = None
    within: float = ANSWER_SECONDS
    nothing_done = "nothing was decided"

    async def preview(self) -> DecidePreview:
        """Return what the decision would be about."""
        return await self.preview_in(await read_run(self.client, self.workflow_id))

    async def preview_in(self, run: RunRecord) -> DecidePreview:
        """Return the same of a run that was read."""
        decided = decided_question(run, self.question) if self.question else None
        if decided is not None:
            return _decided_preview(run, decided)
        execution = await must_be_open(self.client, self.workflow_id, self.run_id)
        has_worker = await has_pollers(self.client, execution.task_queue, pinned_build(execution))
        stuck = "" if has_worker else f"; no worker polls task queue {execution.task_queue!r}, so the run waits for one"
        approval = self._find_open(run, stuck)
        waiting = approval.waiting
        title = f"{'Approve' if self.approved else 'Deny'} {waiting.name!r} of {self.workflow_id}"
        facts = [
            *([] if self.approved else [Fact("The run fails unless its code handles a denial.", is_loss=True)]),
            *(Fact(f"{vote.who} has approved.") for vote in waiting.votes),
            *([] if has_worker else [Fact("No worker polls for this run: the server holds it until one takes it up.")]),
        ]
        return DecidePreview(title, facts, _basis(waiting), run=run, open=approval, has_worker=has_worker)

    def pinned_to(self, preview: DecidePreview) -> Self:
        """Return the operation on the question that was shown."""
        return replace(self, question=str(preview.basis["question"]))

    def _find_open(self, run: RunRecord, stuck: str) -> OpenApproval:
        approvals = open_approvals_in(run)
        matches = [
            approval
            for approval in approvals
            if self.question in (None, approval.waiting.question) and self.approval in (None, approval.waiting.name)
        ]
        titles = ", ".join(repr(approval.waiting.name) for approval in approvals) or "none"
        if len(matches) > 1:
            raise PipelineError(f"several approvals are open, name one: {titles}")
        if matches:
            return matches[0]
        if self.question is not None:
            raise PipelineError(
                f"question {self.question} of {self.workflow_id!r} was withdrawn: the run was rolled back, or its code "
                f"continued without it; open: {titles}"
            )
        description = f"no approval {self.approval!r}" if self.approval else "no approval"
        outcomes = [outcome for outcome in _outcomes(run) if self.approval in (None, outcome.approval)]
        last = f"; {describe_outcome(outcomes[-1])}" if outcomes else ""
        raise PipelineError(f"{self.workflow_id!r} has {description} open now; open: {titles}{last}{stuck}")

    async def _perform(self, preview: DecidePreview, by: str, why: str) -> Decided | None:
        decision = self._decision(preview, by, why)
        if preview.decided is not None:
            return _reply(preview.decided, decision)
        run = preview.run
        if preview.has_worker:
            with contextlib.suppress(NoAnswerError):
                deciding = decide(self.client, self.workflow_id, decision)
                return await answer_of(self.client, self.workflow_id, deciding, within=self.within)
            await must_be_open(self.client, self.workflow_id, run.run_id)
        await self.client.get_workflow_handle(self.workflow_id, run_id=run.run_id).signal(DECIDE, decision)
        return None

    def _decision(self, preview: DecidePreview, by: str, why: str) -> Decision:
        basis = preview.basis
        decision = Decision(
            approval=str(basis["approval"]),
            question=str(basis["question"]),
            digest=str(basis["digest"]),
            approved=self.approved,
            who=by,
            why=why,
            answer=self.answer,
        )
        return decision if self.key is None else sign_decision(decision, self.key)

    def _changes(self, shown: Mapping[str, Any], preview: DecidePreview) -> list[str]:
        decided = decided_question(preview.run, shown["question"])
        if decided is not None:
            return [describe_outcome(decided)]
        same = shown["question"] == preview.basis["question"]
        return ["what is asked or shown has changed" if same else "it asks something else now"]


def _basis(asked: Waiting | Decided) -> dict[str, JsonValue]:
    title = asked.name if isinstance(asked, Waiting) else asked.approval
    return {"approval": title, "question": asked.question or "", "digest": asked.digest or ""}


def _decided_preview(run: RunRecord, decided: Decided) -> DecidePreview:
    title = f"{decided.approval!r} of {run.workflow_id} is decided"
    return DecidePreview(title, [Fact(describe_outcome(decided))], _basis(decided), run=run, decided=decided)


def _reply(decided: Decided, decision: Decision) -> Decided:
    """Return the reply to a decision that was counted before; refuse any other, with the one that counts."""
    reply = late_reply(decided, decision)
    if isinstance(reply, str):
        raise PipelineError(reply)
    return reply


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
    return next((outcome for outcome in _outcomes(run) if outcome.question == question), None)


def _outcomes(run: RunRecord) -> list[Decided]:
    """Return how the approvals of a run were decided, in order."""
    values = [outcome.value for outcome in run.state.outcomes if outcome.kind is StepKind.APPROVAL]
    recorded = [Decided.model_validate(value) for value in values if isinstance(value, dict)]
    by_question = run.replies | {outcome.question: outcome for outcome in recorded}
    return sorted(by_question.values(), key=lambda outcome: outcome.at)


def sign_decision(decision: Decision, key: Key) -> Decision:
    """Return a decision signed with a decider's key."""
    unsigned = decision.model_copy(update={"key": key.id, "signature": None})
    return unsigned.model_copy(update={"signature": to_base64url(key.private.sign(unsigned.statement))})
