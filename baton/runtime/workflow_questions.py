"""Publishes the open questions of a run in its memo, once when one opens and after each vote."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.core.questions import ASKED, Question, summarize_questions
from baton.runtime.workflow_visibility import Visibility, upsert_memo
from baton.wire.names import MEMO_QUESTIONS

_RECORD_TIMEOUT = timedelta(minutes=1)


class QuestionBoard:
    """The open questions of a run, approvals and handoffs alike."""

    def __init__(self, visibility: Visibility) -> None:
        self._visibility = visibility
        self._open: dict[str, Question] = {}

    def put(self, question: Question) -> None:
        """Publish a question that opened or changed; one that is too large for the memo is also an activity's input."""
        self._open[question.id] = question
        published = summarize_questions(self._open.values(), question.id)
        upsert_memo({MEMO_QUESTIONS: published})
        if not published.questions[0].is_whole:
            recording = workflow.start_activity(
                ASKED,
                question,
                schedule_to_close_timeout=max(question.until - workflow.now(), _RECORD_TIMEOUT),
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary=f"step {question.seq}: all that is asked",
            )
            recording.add_done_callback(_ignore_failure)

    def withdraw(self, id: str) -> None:
        """Take a question off; the run's search attributes say when none is left."""
        del self._open[id]
        if self._open and self._visibility.may_write:
            upsert_memo({MEMO_QUESTIONS: summarize_questions(self._open.values())})


def _ignore_failure(recording: "asyncio.Future[None]") -> None:
    """Retrieve the activity's failure: its input is in the history, and that is all it is for."""
    if not recording.cancelled():
        recording.exception()
