"""A person's answer to what a run asks: an approval, or what becomes of a handoff that waits."""

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from pydantic import JsonValue
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError

from baton.core.history import Spend
from baton.core.operations import Fact, Operation, Preview
from baton.core.pending import FORMS, EditForm, HandoffAction, TopUpForm
from baton.core.questions import APPROVE, DENY, MISFIT, Answer, Question, Settled
from baton.errors import BatonError, PipelineError
from baton.keys.store_keys import Key
from baton.runs.client_executions import describe, map_concurrently, refusal_of
from baton.runs.client_handoffs import Message, read_handoffs
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
from baton.runtime.questions import NOT_ALLOWED, late_reply, parse_form
from baton.wire.base64url import to_base64url
from baton.wire.json_values import Json, JsonFields
from baton.wire.money import format_cost, format_usd
from baton.wire.names import ANSWER
from baton.wire.text import quantity

ReplyT = TypeVar("ReplyT")

_MAX_TRIES = 5
_MIN_PREFIX_LENGTH = 8
_QUESTION_ID = re.compile(r"\d+:[0-9a-f]{16}")


async def decide(
    client: Client, workflow_id: str, answer: Answer, *, key: Key | None = None, run_id: str | None = None
) -> Settled:
    """Answer an open question: approve or deny, or decide what becomes of a handoff.

    An answer is to one question and what was shown. If it names no digest, that is read from the run now; and the
    question may be given by its title or its handoff's id, or not at all if the choice fits only one. Name both, from
    `RunRecord.questions` or the query `questions`, if the person looked earlier.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        answer: Which question, what was chosen, who and why.
        key: The key that signs it, for a question that needs proof of who decides.
        run_id: Which of its runs; the newest by default.

    Returns:
        How the question was answered, or how many more people have to agree (`missing`); for a repeated answer that
        names its question the first reply.

    Raises:
        PipelineError: The answer is refused: the question is not open or was answered otherwise, what is shown has
            changed, the choice is not allowed, the person may not decide, the data or the signature is invalid; or
            the run is paused.
        temporalio.service.RPCError: The run does not exist, or no worker answers.
    """
    answer = await _complete(client, workflow_id, answer, run_id)
    if key is not None:
        answer = sign_answer(answer, key)
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)

    async def is_pending() -> bool:
        asked = (await read_run(client, workflow_id, run_id)).questions
        return (answer.question, answer.digest) in [(question.id, question.digest) for question in asked]

    return await send_decision(handle, ANSWER, answer, Settled, is_pending)


async def send_decision(
    handle: WorkflowHandle[Any, Any],
    update: str,
    decision: Any,
    result_type: type[ReplyT],
    is_pending: Callable[[], Awaitable[bool]],
) -> ReplyT:
    """Send a decision as an update, and return the reply; retry a refusal while the question is pending."""
    tries = 1
    while True:
        try:
            result: ReplyT = await handle.execute_update(update, decision, result_type=result_type)
        except WorkflowUpdateFailedError as error:
            is_final = getattr(error.cause, "type", None) == NOT_ALLOWED
            if is_final or tries == _MAX_TRIES or not await is_pending():
                raise refusal_of(error) from error
        else:
            return result
        tries += 1


async def _complete(client: Client, workflow_id: str, answer: Answer, run_id: str | None) -> Answer:
    """Return an answer with the question's id and the digest, from the run if it lacks them."""
    if answer.digest is not None and _QUESTION_ID.fullmatch(answer.question or ""):
        return answer
    if (await describe(client, workflow_id, run_id)).pause:
        await must_be_open(client, workflow_id)  # says who paused it
    run = await read_run(client, workflow_id, run_id)
    asked = select_questions(run.questions, answer.choice, answer.question)
    if not asked and (settled := _find_settled(run, answer.choice, answer.question)) is not None:
        digest = answer.digest or (settled.digest if answer.question else None)  # unnamed, it may be about another
        return answer.model_copy(update={"question": settled.question, "digest": digest})
    if len(asked) != 1:
        return answer  # the run refuses it, and names what is open
    return answer.model_copy(update={"question": asked[0].id, "digest": answer.digest or asked[0].digest})


def select_questions(questions: Sequence[Question], choice: str, reference: str | None = None) -> list[Question]:
    """Return the open questions that a choice can be about, and that a reference names.

    Args:
        questions: The open questions of a run.
        choice: The choice: approvals and handoffs have different ones.
        reference: A question's id, an approval's title, or a handoff's id or its first eight characters or more; all
            by default.
    """
    fitting = [question for question in questions if (question.handoff is None) == (choice in (APPROVE, DENY))]
    if reference is None:
        return fitting
    exact = [question for question in fitting if reference in _names(question)]
    is_prefix = len(reference) >= _MIN_PREFIX_LENGTH
    return exact or [
        question
        for question in fitting
        if is_prefix and question.handoff and question.handoff.handoff_id.startswith(reference)
    ]


def _names(question: Question) -> tuple[str, str]:
    return question.id, question.handoff.handoff_id if question.handoff else question.title


def _find_settled(run: RunRecord, choice: str, reference: str | None) -> Settled | None:
    """Return the last answer to questions that a reference names, of those that a choice can be about."""
    is_approval = choice in (APPROVE, DENY)
    fitting = [
        settled
        for settled in run.answers
        if (settled.handoff_id is None) == is_approval
        and reference in (None, settled.question, settled.title if is_approval else settled.handoff_id)
    ]
    return fitting[-1] if fitting else None


@dataclass(frozen=True)
class Cost(JsonFields):
    """What a run has cost so far, and what its history says about the cost of an answer.

    Attributes:
        spent: What the run was billed.
        ceiling_micro_usd: Its budget; None if it has none.
        left_micro_usd: What of it is left.
        missing_micro_usd: What the handoff that waits lacks.
        stage: The stage that runs once its handoff is sent again; empty for an approval.
        again: What this stage cost the last time, if it ran before.
    """

    spent: Spend
    ceiling_micro_usd: int | None = None
    left_micro_usd: int | None = None
    missing_micro_usd: int = 0
    stage: str = ""
    again: Spend | None = None

    @property
    def clauses(self) -> list[str]:
        """What is known, in words; empty without spend and budget."""
        clauses = [f"{_spend_words(self.spent)} so far"] if self.spent else []
        if self.missing_micro_usd:
            clauses.append(f"lacks {format_usd(self.missing_micro_usd)}")
        if self.ceiling_micro_usd is not None and self.left_micro_usd is not None:
            left = format_usd(max(0, self.left_micro_usd))
            clauses.append(f"{left} of {format_usd(self.ceiling_micro_usd)} left")
        if self.again:
            clauses.append(f"{self.stage} runs again: {_spend_words(self.again)} the last time")
        return clauses


def _spend_words(spend: Spend) -> str:
    cost = format_cost(spend.micro_usd, spend.tokens)
    return f"{cost}, {quantity(spend.tokens, 'token')}" if spend.tokens else cost


def cost_of(run: RunRecord, question: Question) -> Cost:
    """Return what a run has cost so far, and what its history says about the cost of an answer to a question."""
    handoff = question.handoff
    stage = handoff.receiver if handoff else ""
    return Cost(
        spent=run.billed,
        ceiling_micro_usd=run.ceiling_micro_usd,
        left_micro_usd=run.left_micro_usd,
        missing_micro_usd=handoff.missing_micro_usd if handoff else 0,
        stage=stage,
        again=next((bill.spend for bill in reversed(run.bills) if bill.stage == stage), None),
    )


@dataclass(frozen=True)
class DecidePreview(Preview):
    """What an answer would be about now.

    Attributes:
        run: The run.
        open: The question, while it is open, with whole texts; its digest covers these and the run's baton.
        settled: How it was answered, once it is.
        has_worker: Whether a worker polls for the run: without one, the server holds the answer until one does.
        message: The handoff's message as last sent, if the history has it.
    """

    run: RunRecord = field(kw_only=True)
    open: Question | None = field(default=None, kw_only=True)
    settled: Settled | None = field(default=None, kw_only=True)
    has_worker: bool = field(default=True, kw_only=True)
    message: Message | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Decide(Operation[DecidePreview, Settled | None]):
    """Answer what a run asks, also while its worker is away or busy: approve, deny, or settle a handoff that waits.

    The result is how the question was answered, or how many more people have to agree (`missing`); the first reply if
    the same answer was sent before. It is None if no worker answered in time: the answer is left with the server as a
    signal, and counts, or becomes a note of the run, when a worker takes it up. An answer that arrives twice counts
    once.

    `preview` and `commit` raise `PipelineError` if no such question is open, it does not allow the choice, a patch
    does not fit the baton, or the run has ended or is paused. `commit` raises it also if the answer is refused:
    another one counted before, which it names; the person may not decide; the data or the signature is invalid.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        choice: `"approve"` or `"deny"`; about a handoff a `HandoffAction`.
        question: The question: its id, an approval's title, or a handoff's id or its first eight characters or more;
            by default the only one that is open and has the choice. Once it is answered, the preview of an id says how.
        data: What the choice's form asks for: `{"patch": …}` of an edit, `{"micro_usd": …}` of a top-up.
        key: The key that signs the answer, for a question that needs proof of who decides.
        run_id: The run, which must be the newest; any by default.
        within: How long to wait for a worker's answer, in seconds.

    Example:
        ```python
        operation = Decide(client, "order-1", "approve", "release manager")
        preview = await operation.preview()
        print(preview.open.asks)
        settled = await operation.pinned_to(preview).commit(preview.mark, by="ann", why="tests are green")
        ```
    """

    client: Client
    workflow_id: str
    choice: str
    question: str | None = None
    data: Json = None
    key: Key | None = None
    run_id: str | None = None
    within: float = ANSWER_SECONDS
    nothing_done = "nothing was decided"

    @staticmethod
    def mark_of(question: Question) -> str:
        """Return the mark of a preview of an open question, as `read_run` and `inbox` of one run return it."""
        return Preview("", [], _basis(question)).mark

    async def preview(self) -> DecidePreview:
        """Return what the answer would be about."""
        handoffs = await read_handoffs(self.client, self.workflow_id, self.run_id)
        preview = await self.preview_in(handoffs.run)
        about = preview.open.handoff.handoff_id if preview.open and preview.open.handoff else None
        return replace(preview, message=handoffs.messages.get(about or ""))

    async def preview_in(self, run: RunRecord) -> DecidePreview:
        """Return the same of a run that was read, without the message."""
        matches = select_questions(run.questions, self.choice, self.question)
        settled = None if matches or self.question is None else _find_settled(run, self.choice, self.question)
        if settled is not None and self.question != settled.title:
            title = f"{settled.title!r} of {run.workflow_id} is decided"
            return DecidePreview(title, [Fact(settled.text)], _basis(settled), run=run, settled=settled)
        execution = await must_be_open(self.client, self.workflow_id, self.run_id)
        has_worker = await has_pollers(self.client, execution.task_queue, pinned_build(execution))
        stuck = "" if has_worker else f"; no worker polls task queue {execution.task_queue!r}, so the run waits for one"
        question = self._only(run, matches, stuck)
        facts = [*self._facts(run, question), *(Fact(f"{vote.who}: {vote.choice}.") for vote in question.votes)]
        if not has_worker:
            facts.append(Fact("No worker polls for this run: the server holds it until one takes it up."))
        verb = self.choice.replace("_", " ").capitalize()
        what = f"the handoff {question.title}" if question.handoff else repr(question.title)
        title = f"{verb} {what} of {self.workflow_id}"
        return DecidePreview(title, facts, _basis(question), run=run, open=question, has_worker=has_worker)

    def pinned_to(self, preview: DecidePreview) -> Self:
        """Return the operation on the question that was shown."""
        return replace(self, question=str(preview.basis["question"]))

    def _only(self, run: RunRecord, matches: Sequence[Question], stuck: str) -> Question:
        """Return the only question that matches."""
        if len(matches) > 1:
            raise PipelineError(f"several are open, name one: {name_questions(matches)}")
        if matches:
            return matches[0]
        if self.question and _QUESTION_ID.fullmatch(self.question):
            earlier = ", or it was answered in an earlier run" if run.start.continued else ""
            raise PipelineError(
                f"question {self.question} of {self.workflow_id!r} was withdrawn: the run was rolled back, or its code "
                f"continued without it{earlier}; open: {name_questions(run.questions)}"
            )
        what = "approval" if self.choice in (APPROVE, DENY) else "handoff"
        described = f"no {what} {self.question!r}" if self.question else f"no {what}"
        settled = _find_settled(run, self.choice, self.question)
        last = f"; {settled.text}" if settled else ""
        raise PipelineError(
            f"{self.workflow_id!r} has {described} that waits for a person now; open: "
            f"{name_questions(run.questions)}{last}{stuck}"
        )

    def _facts(self, run: RunRecord, question: Question) -> list[Fact]:
        """Return what the choice means, once it was checked."""
        if question.choice(self.choice) is None:
            chosen, allowed = str(self.choice), ", ".join(choice.name for choice in question.choices)
            raise PipelineError(f"{question.title!r} does not allow {chosen!r}; use {allowed}")
        if question.handoff is None:
            return [] if self.choice == APPROVE else [Fact("The run fails unless its code handles a denial.", True)]
        action = HandoffAction(self.choice)
        facts = [Fact(f"{action.meaning}.", is_loss=action is HandoffAction.ABANDON)]
        if (form := FORMS.get(action)) is not None:
            try:
                filled = parse_form(form, self.data)
            except ValueError as error:
                raise PipelineError(f"{MISFIT}{error}") from None
            if isinstance(filled, EditForm):
                run.check_patch(filled.patch)
            missing = question.handoff.missing_micro_usd
            if isinstance(filled, TopUpForm) and filled.micro_usd < missing:
                more = format_usd(missing - filled.micro_usd)
                facts.append(Fact(f"{more} more is needed, so it waits again.", is_loss=True))
        return facts

    async def _perform(self, preview: DecidePreview, by: str, why: str) -> Settled | None:
        basis = preview.basis
        id, digest = str(basis["question"]), str(basis["digest"])
        answer = Answer(choice=self.choice, question=id, digest=digest, who=by, why=why, data=self.data)
        if self.key is not None:
            answer = sign_answer(answer, self.key)
        if preview.settled is not None:
            return _reply(preview.settled, answer)
        run = preview.run
        if preview.has_worker:
            with contextlib.suppress(NoAnswerError):
                deciding = decide(self.client, self.workflow_id, answer)
                return await answer_of(self.client, self.workflow_id, deciding, within=self.within)
            await must_be_open(self.client, self.workflow_id, run.run_id)
        await self.client.get_workflow_handle(self.workflow_id, run_id=run.run_id).signal(ANSWER, answer)
        return None

    def _changes(self, shown: Mapping[str, Any], preview: DecidePreview) -> list[str]:
        settled = preview.run.answer_to(str(shown["question"]))
        if settled is not None:
            again = "it was decided meanwhile and waits again: " if preview.open and settled.handoff_id else ""
            return [f"{again}{settled.text}"]
        same = shown["question"] == preview.basis["question"]
        return ["what is asked or shown has changed" if same else "it asks something else now"]


def _basis(asked: Question | Settled) -> dict[str, JsonValue]:
    id = asked.id if isinstance(asked, Question) else asked.question
    return {"title": asked.title, "question": id, "digest": asked.digest or ""}


def _reply(settled: Settled, answer: Answer) -> Settled:
    """Return the reply to an answer that was counted before; refuse any other, with the one that counts."""
    reply = late_reply(settled, answer)
    if isinstance(reply, str):
        raise PipelineError(reply)
    return reply


def name_questions(questions: Sequence[Question]) -> str:
    """Return open questions in one line, for a message."""
    names = [
        repr(question.title)
        if question.handoff is None
        else f"{question.handoff.handoff_id} (to {question.handoff.receiver!r})"
        for question in questions
    ]
    return ", ".join(names) or "none"


@dataclass(frozen=True)
class Decided(JsonFields):
    """What became of one of several decisions.

    Attributes:
        workflow_id: The pipeline.
        question: The question's id.
        outcome: `"decided"`; `"counted"`, if more people must agree; `"left"` with the server, until a worker takes it
            up; or `"refused"`.
        missing: How many more people must agree.
        refused: Why it does not count.
    """

    workflow_id: str
    question: str
    outcome: str
    missing: int = 0
    refused: str | None = None


async def decide_several(shown: Sequence[tuple[Decide, str | None]], *, by: str, why: str) -> list[Decided]:
    """Decide several questions, each by itself: one that is refused, or has changed, keeps no other from counting.

    Args:
        shown: The operations, each with the mark of what was shown of it; without one, what it is now is decided.
        by: Who decides.
        why: The reason.
    """

    async def commit(item: tuple[Decide, str | None]) -> Decided:
        operation, mark = item
        made = Decided(operation.workflow_id, operation.question or "", "decided")
        try:
            settled = await operation.commit(mark, by=by, why=why)
        except (BatonError, RPCError) as error:
            return replace(made, outcome="refused", refused=getattr(error, "message", None) or str(error))
        if settled is None:
            return replace(made, outcome="left")
        return replace(made, outcome="counted" if settled.missing else "decided", missing=settled.missing)

    return await map_concurrently(commit, shown)


def sign_answer(answer: Answer, key: Key) -> Answer:
    """Return an answer signed with a decider's key."""
    unsigned = answer.model_copy(update={"key": key.id, "signature": None})
    return unsigned.model_copy(update={"signature": to_base64url(key.private.sign(unsigned.statement))})
