"""Asks people on behalf of a run: publishes questions, takes answers by update and signal, waits for the deadline.

A question is in the run's memo once when it opens and after each vote, so that readers need neither worker nor query.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from baton.core.people import name_refusal, resolve_requester
from baton.core.questions import ASKED, Answer, Question, Settled, summarize_questions
from baton.runtime.questions import (
    CHECK_ANSWER,
    NOT_ALLOWED,
    NULL_ANSWER,
    Effect,
    Forms,
    Questions,
    no_effect,
    restored_fault,
)
from baton.runtime.workflow_lab import LabVisit
from baton.runtime.workflow_visibility import Visibility, untyped_handler, upsert_memo
from baton.wire.names import ANSWER, MEMO_QUESTIONS, QUERY_QUESTIONS, QUERY_SHOWN
from baton.wire.text import describe_faults

_RECORD_TIMEOUT = timedelta(minutes=1)
_MIN_TIMER = timedelta(milliseconds=1)
_CHECK_TIMEOUT = timedelta(seconds=30)
_CHECK_ATTEMPTS = 3
_MAX_CHECKS = 100  # at once; the server rejects the task with the 2,001st
_MAX_SUMMARY_LENGTH = 200
_MAX_RECEIVER_LENGTH = 100


@dataclass(frozen=True)
class Asking:
    """A question before it is asked; ``effect`` returns why a choice cannot be done now."""

    question: Question
    within: timedelta
    default: str
    forms: Forms = field(default_factory=dict)
    effect: Effect = no_effect


class QuestionBoard:
    """The questions of a run, approvals and handoffs alike, and the handlers for people's answers."""

    def __init__(
        self,
        digest_now: Callable[[], str],
        note: Callable[[str], None],
        visibility: Visibility,
        requester: str | None = None,
    ) -> None:
        self._digest_now = digest_now
        self._note = note
        self._visibility = visibility
        self._requester = requester
        self._questions = Questions()
        self._published: dict[str, Question] = {}
        self._checks = asyncio.Semaphore(_MAX_CHECKS)
        workflow.set_update_handler(ANSWER, self._on_update, validator=self._validate)
        workflow.set_signal_handler(ANSWER, untyped_handler(self._on_signal))
        workflow.set_query_handler(QUERY_QUESTIONS, untyped_handler(self.open_now))
        workflow.set_query_handler(QUERY_SHOWN, untyped_handler(self._on_shown))

    @property
    def is_asking(self) -> bool:
        """Whether a question is open, or its answer not yet in effect."""
        return self._questions.is_busy

    def open_now(self) -> list[Question]:
        """The open questions, each with its current digest and the votes so far; the oldest first."""
        return self._questions.open_now(self._digest_now()) if self.is_asking else []

    def under_way(self) -> list[Settled]:
        """Return the answers that the run has not put into effect yet."""
        return self._questions.under_way()

    @contextmanager
    def opened(self, asking: Asking) -> Iterator[Question]:
        """Ask while the block runs: it waits for the answer, records it and puts it into effect.

        Raises:
            ValueError: Another approval with this title or question about this handoff is open, a part of the
                question is too large, or it names the requester of a run that has none.
        """
        id = f"{asking.question.seq}:{workflow.uuid4().hex[:16]}"
        question = self._named(asking.question).model_copy(update={"id": id})
        self._questions.open(question, asking.forms, asking.effect)
        self._publish(id)
        try:
            yield question
        finally:
            self._questions.withdraw(id)
            self._unpublish(id)

    async def wait(self, question: Question, asking: Asking) -> Settled:
        """Wait for the answer to an open question, or for the deadline, when the default counts."""
        questions, id = self._questions, question.id
        try:
            await workflow.wait_condition(
                lambda: questions.settled(id) is not None,
                timeout=asking.within,
                timeout_summary=_deadline_summary(question),
            )
        except TimeoutError:
            questions.expire(id, asking.default, asking.within, workflow.now(), self._digest_now())
        settled = questions.settled(id)
        assert settled is not None  # noqa: S101 - the condition above
        self._unpublish(id, settled)
        if settled.via == "update":
            # So that the next steps begin in another workflow task: a task can only be rolled back as a whole.
            await workflow.sleep(_MIN_TIMER, summary=f"step {question.seq}: {question.title} decided"[:200])
        return settled

    def answer_in_lab(self, asking: Asking, lab: LabVisit) -> Settled:
        """Return how people answered a question in the recorded run; nobody is asked."""
        settled = lab.answer(self._named(asking.question), asking.default, self._digest_now())
        self._questions.close(settled)
        return settled

    def restore(self, settled: Settled, asking: Asking, *, same_texts: bool) -> str | None:
        """Keep the answer to a question of an earlier run; return why it does not answer what is asked now."""
        self._questions.close(settled)
        return restored_fault(settled, self._named(asking.question), asking.default, same_texts=same_texts)

    def _named(self, question: Question) -> Question:
        """Return a question whose deciders are named, also where it says that the requester decides."""
        return question.model_copy(update={"who": resolve_requester(question.who, self._requester)})

    def _publish(self, id: str) -> None:
        """Publish an open question with its votes; one that is too large for the memo is also an activity's input.

        What it shows is in the history once: with each vote it would soon be as large as a history may be.
        """
        is_first, question = id not in self._published, self._questions.whole(id, self._digest_now())
        self._published[id] = question
        published = summarize_questions(self._published.values(), id)
        upsert_memo({MEMO_QUESTIONS: published})
        if not published.questions[0].is_whole:
            recording = workflow.start_activity(
                ASKED,
                question if is_first else question.model_copy(update={"shows": []}),
                schedule_to_close_timeout=max(question.until - workflow.now(), _RECORD_TIMEOUT),
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary=f"step {question.seq}: all that is asked",
            )
            recording.add_done_callback(_ignore_failure)

    def _unpublish(self, id: str, settled: Settled | None = None) -> None:
        """Take a question off; publish the answer about a handoff, which no step's outcome has."""
        if self._published.pop(id, None) is None:
            return
        told = settled if settled is not None and settled.handoff_id else None
        if (self._published or told) and self._visibility.may_write:
            upsert_memo({MEMO_QUESTIONS: summarize_questions(self._published.values(), settled=told)})

    async def _check(self, answer: Answer) -> str | None:
        """Return why the workers' file of deciders rejects an answer, or None."""
        check = self._questions.check(answer, self._digest_now())
        if check is None:
            return None
        try:
            async with self._checks:
                refusal: str = await workflow.execute_activity(
                    CHECK_ANSWER,
                    check,
                    result_type=str,
                    schedule_to_close_timeout=_CHECK_TIMEOUT,
                    retry_policy=RetryPolicy(maximum_attempts=_CHECK_ATTEMPTS),
                    summary=f"check a decision about {check.title}"[:_MAX_SUMMARY_LENGTH],
                )
        except ActivityError as error:
            return f"the decision could not be checked, so it does not count; send it again: {error.cause or error}"
        return refusal or None

    async def _count(self, answer: Answer, via: str) -> Settled:
        """Count an answer, or raise the reason against it; another one may overtake it during the check."""
        # A replay may deliver an answer before the result that it followed; after the timer both have arrived
        # (docs/limits.md, "A replay may take two workflow tasks for one").
        await workflow.sleep(_MIN_TIMER, summary=f"a decision about {answer.question} came"[:_MAX_SUMMARY_LENGTH])
        self._refuse(self._questions.refusal(answer, self._digest_now()))
        self._questions.receive(answer)
        self._refuse(await self._check(answer), NOT_ALLOWED)
        self._refuse(self._questions.refusal(answer, self._digest_now()))
        is_repeated = self._questions.reply(answer, self._digest_now()) is not None
        reply = self._questions.count(answer, workflow.now(), via, self._digest_now())
        if reply.missing and not is_repeated:
            self._publish(reply.question)
        return reply

    def _refuse(self, refusal: str | None, type: str = "AnswerRefused") -> None:
        """Raise an error if there is a reason against an answer."""
        if refusal:
            raise ApplicationError(refusal, type=type, non_retryable=True)

    def _validate(self, answer: Answer | None) -> None:
        """Reject an update before it enters the history; the caller gets the reason."""
        self._refuse(NULL_ANSWER if answer is None else self._questions.refusal(answer, self._digest_now()))

    async def _on_update(self, answer: Answer) -> Settled:
        """Answer an open question: {question, choice, digest, who, why, data, key, signature}."""
        return await self._count(answer, "update")

    async def _on_signal(self, *args: Any) -> None:
        """Answer an open question as by update; a refusal becomes a note."""
        try:
            answer = Answer.model_validate(args[0] if len(args) == 1 else args)
        except ValidationError as error:
            self._note(f"refused a signal {ANSWER!r} that is not an answer: {describe_faults(error, 'argument')}")
            return
        if refusal := name_refusal(answer.who):
            self._note(f"refused a decision: {refusal}")
            return
        try:
            await self._count(answer, "signal")
        except ApplicationError as error:
            self._note(f"refused a decision of {answer.who}: {error.message}")

    def _on_shown(self, question: str, place: int) -> str:
        """The full text of one exhibit of an open question: the question's id, and its place from 1."""
        return self._questions.shown_text(question, place)


def _deadline_summary(question: Question) -> str:
    """Return the name of a question's timer, from which readers without keys learn what a run waits for."""
    handoff = question.handoff
    if handoff is None:
        return f"step {question.seq}: deadline of approval {question.title}"[:_MAX_SUMMARY_LENGTH]
    receiver = handoff.receiver[:_MAX_RECEIVER_LENGTH].replace(":", " ")
    return f"step {question.seq}: deadline of handoff {handoff.handoff_id} to {receiver}: {handoff.why}"


def _ignore_failure(recording: "asyncio.Future[None]") -> None:
    """Retrieve the activity's failure: its input is in the history, and that is all it is for."""
    if not recording.cancelled():
        recording.exception()
