"""What a workflow asks its worker about sealed messages, for it holds no keys: whether to accept one, what one says.

Temporal knows a local activity by its number alone, which comes of the order in which a run asks for them. Where
somebody queries the run as one ends, that order may be another one in a replay: then
each gets the answer to another question, and if that is of another kind, the run no longer fits its history. Hence all
questions are of one kind, and each answer says to which of them it is.
"""

import asyncio
import base64
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from baton.exchange.admission import (
    ANSWER_QUESTION,
    AcceptRequest,
    Admission,
    Answered,
    Opened,
    Question,
)

_A_WHILE = timedelta(seconds=10)


class Questions:
    """The questions that a run has asked its worker, and not been answered."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Answered]]] = {}
        self._early: dict[str, list[Answered | ActivityError]] = {}  # in a replay, to what was not asked yet
        self._asking: set[asyncio.Task[None]] = set()

    async def admit(self, request: AcceptRequest, patience: timedelta) -> Admission:
        """Lead a handoff through the worker's gate.

        A ledger that cannot be written is tried again until the patience is used up; nothing is accepted meanwhile.

        Raises:
            ActivityError: It never could; nothing was accepted.
        """
        within = max(patience, _A_WHILE)
        answer = await self._ask(Question(accept=request), within)
        assert answer.admission is not None  # noqa: S101 - the question's key tells its kind
        return answer.admission

    async def opened(self, raw: bytes, *, scanned: bool = False) -> Opened:
        """Have the worker verify the seal of a message, and look whether it is safe if that is asked for.

        Raises:
            ActivityError: It cannot, for want of a keyring.
        """
        text = base64.b64encode(raw).decode()
        answer = await self._ask(Question(raw=text, scanned=scanned), _A_WHILE * 6)
        assert answer.opened is not None  # noqa: S101 - as above
        return answer.opened

    async def _ask(self, question: Question, within: timedelta) -> Answered:
        """Return the answer to a question; whatever comes of that, exactly one activity is asked for."""
        key = question.key
        asking = asyncio.create_task(self._put(question, within))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        if early := self._early.get(key):
            known = early.pop(0)
            if isinstance(known, ActivityError):
                raise known
            return known
        mine: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            asking.cancel()
            raise

    async def _put(self, question: Question, within: timedelta) -> None:
        """Ask for an activity, and give its answer to the question that it is to."""
        try:
            answer: Answered = await _asked(ANSWER_QUESTION, Answered, [question], within)
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            cause = error.cause
            named = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else question.key
            self._tell(named, error)
        else:
            self._tell(answer.key, answer)

    def _tell(self, key: str, answer: Answered | ActivityError) -> None:
        """Give an answer to who has waited longest for it, or keep it for who will ask."""
        waiting = [one for one in self._waiting.pop(key, ()) if not one.done()]
        if not waiting:
            self._early.setdefault(key, []).append(answer)
            return
        first, *others = waiting
        if others:
            self._waiting[key] = others
        if isinstance(answer, ActivityError):
            first.set_exception(answer)
        else:
            first.set_result(answer)


async def _asked(activity: str, kind: type, arguments: list[Any], within: timedelta) -> Any:
    """Return what a local activity answers."""
    return await workflow.execute_local_activity(
        activity,
        args=arguments,
        result_type=kind,
        start_to_close_timeout=_A_WHILE,
        schedule_to_close_timeout=within,
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=_A_WHILE),
    )
