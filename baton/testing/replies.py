"""What people decide in a test: the replies to a run's approvals, sent as soon as each is open."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import TimeSkipper

from baton.core.messages import Overview, PipelineStatus
from baton.core.people import GROUP_PREFIX
from baton.core.questions import APPROVE, BY_DEADLINE, DENY, Answer, Question
from baton.errors import PipelineError
from baton.keys.store_keys import Key
from baton.runs.client_decide import decide
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.wire.names import QUERY_STATUS

_POLL_SECONDS = 0.05
_TESTER = "tester"


@dataclass(frozen=True)
class Reply:
    """One person's decision about an approval, in a test.

    Attributes:
        approved: Yes or no.
        answer: The filled-in form of an approval with `answer=`, as the model or as JSON; with a yes only.
        who: Who decides; by default one of those who may and have not yet.
        why: The reason.
        key: The key that signs it, for an approval with `proof=True`.

    Example:
        >>> Reply(True, {"headline": "Faster"}, who="ann").who
        'ann'
    """

    approved: bool
    answer: BaseModel | Mapping[str, Any] | None = None
    who: str | None = None
    why: str = "a test"
    key: Key | None = None


Replies = bool | Reply | Sequence[bool | Reply] | Callable[[Question], bool | Reply | None] | None
"""The replies to the approvals of one title.

A bool or a `Reply` is given each time; those of a list are given in turn, one person's each. A function gets the open
approval, after each vote again, and returns the next one; None leaves the approval open. None instead of a reply means
silence: the run's clock moves to the approval's deadline.
"""


class RepliesError(AssertionError):
    """A test's replies do not decide an approval, or its worker lacks what the run needs."""


class Replying:
    """The replies to one run's approvals.

    Args:
        client: A connected client.
        workflow_id: The run.
        replies: The replies by approval title.
    """

    def __init__(self, client: Client, workflow_id: str, replies: Mapping[str, Replies]) -> None:
        self._client = client
        self._handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id)
        self._replies = replies
        self._counted: dict[str, int] = {}  # replies of each list
        self._asked: set[tuple[str | None, str | None, tuple[datetime, ...]]] = set()  # what the functions were asked
        self._expired: set[str] = set()  # the approvals left to their deadlines

    async def until_refused(self) -> None:
        """Reply whenever an approval is open, until cancelled.

        Raises:
            RepliesError: The run refuses a reply, needs more of them than there are, or lacks a part.
        """
        while True:
            with suppress(RPCError):  # the run cannot answer yet, or has ended
                overview = await self._overview()
                if overview.status is PipelineStatus.SUSPENDED:
                    await self._raise_missing()
                for question in overview.questions:
                    if question.handoff is None and question.title in self._replies:
                        await self._reply(question)
            await asyncio.sleep(_POLL_SECONDS)

    def check_in_time(self, run: RunRecord) -> None:
        """Check that no approval that the test decides has reached its deadline before.

        Raises:
            RepliesError: One has.
        """
        for settled in run.answers:
            given = self._replies.get(settled.title)
            if settled.via == BY_DEADLINE and given is not None and not callable(given):
                raise RepliesError(
                    f"approval {settled.title!r} reached its deadline before {given} was sent; a run that skips time "
                    "leaves no time: decide in a run of `baton_client`, and leave out what is not decided in time"
                )

    async def _overview(self) -> Overview:
        overview: Overview = await self._handle.query(QUERY_STATUS, result_type=Overview)
        return overview

    async def _raise_missing(self) -> None:
        missing = (await read_run(self._client, self._handle.id)).missing
        if missing:
            raise RepliesError(f"{self._handle.id!r} waits for a part that its worker lacks: {'; '.join(missing)}")

    async def _reply(self, question: Question) -> None:
        if self._replies[question.title] is None:
            await self._let_expire(question)
            return
        reply = self._next(question)
        if reply is None:
            return
        try:
            await decide(self._client, self._handle.id, _answer_of(reply, question), key=reply.key)
        except PipelineError as error:
            if await self._is_open(question):
                raise RepliesError(
                    f"approval {question.title!r} refused {reply}: {error}; pass decisions={{title: Reply(…)}} that it "
                    "takes to run_pipeline"
                ) from error
        else:
            self._counted[question.title] = self._counted.get(question.title, 0) + 1

    async def _let_expire(self, question: Question) -> None:
        """Move the run's clock to an approval's deadline, once."""
        if question.id not in self._expired:
            self._expired.add(question.id)
            await TimeSkipper(self._client).fast_forward(self._handle, question.until - question.since)

    async def _is_open(self, question: Question) -> bool:
        """Return whether what was decided on is still asked: otherwise the refusal was of a late decision."""
        current = (await self._overview()).questions
        return any((asked.id, asked.digest) == (question.id, question.digest) for asked in current)

    def _next(self, question: Question) -> Reply | None:
        """Return the next reply to an open approval; None if there is none to give now."""
        given = self._replies[question.title]
        if isinstance(given, Sequence):
            counted = self._counted.get(question.title, 0)
            if counted == len(given):
                raise RepliesError(f"{_open_state(question)}, and all replies of its list were given; add the next")
            return _as_reply(given[counted])
        if not callable(given):
            reply = _as_reply(given)
            if reply.who is not None and question.has_vote_of(reply.who):
                raise RepliesError(f"{_open_state(question)}, and {reply.who} counts once; pass a list of replies")
            return reply
        asked = (question.id, question.digest, tuple(vote.at for vote in question.votes))
        if asked in self._asked:
            return None
        self._asked.add(asked)
        returned = given(question)
        return None if returned is None else _as_reply(returned)


def _as_reply(given: object) -> Reply:
    if not isinstance(given, bool | Reply):
        raise TypeError(
            f"a decision of run_pipeline is {given!r}; expected a bool, a Reply, a list of them, a function, None"
        )
    return Reply(given) if isinstance(given, bool) else given


def _answer_of(reply: Reply, question: Question) -> Answer:
    filled = reply.answer
    data = filled.model_dump(mode="json") if isinstance(filled, BaseModel) else filled and dict(filled)
    choice, who = APPROVE if reply.approved else DENY, reply.who or _somebody(question)
    return question.answer(choice, who=who, why=reply.why, data=data)


def _somebody(question: Question) -> str:
    """Return one of those who may decide and have not."""
    may = [name for name in question.who if not name.startswith(GROUP_PREFIX)]
    testers = (_TESTER if nth == 0 else f"{_TESTER} {nth + 1}" for nth in range(len(question.votes) + 1))
    return next(name for name in (*may, *testers) if not question.has_vote_of(name))


def _open_state(question: Question) -> str:
    """Return the beginning of a sentence about an approval that is still open."""
    voted = ", ".join(vote.who for vote in question.votes)
    still = f"{question.missing} more must approve after {voted}" if voted else "nobody has decided"
    return f"approval {question.title!r} is open, {still}"
