"""Approvals: people decide on one question and what it shows; no answer by the deadline means the default."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from pydantic import BaseModel, JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from baton.core.decisions import Decided, Decision, Waiting
from baton.core.exhibits import build_exhibits
from baton.core.inputs import encode_inputs, encode_params
from baton.core.pending import NULL_DECISION
from baton.core.people import name_refusal
from baton.core.questions import Question
from baton.core.stages import HasSpec, spec_of
from baton.runtime.approvals import (
    CHECK_DECISION,
    NOT_ALLOWED,
    ApprovedStages,
    Docket,
    parse_form,
    restored_fault,
)
from baton.runtime.workflow_questions import QuestionBoard
from baton.runtime.workflow_visibility import untyped_handler
from baton.wire.json_values import Json
from baton.wire.names import DECIDE, QUERY_SHOWN
from baton.wire.text import describe_faults

Then = tuple[HasSpec, Mapping[str, Json]] | tuple[HasSpec, Mapping[str, Json], Mapping[str, Any]]
"""A stage to approve as well, with its parameters and optional inputs."""


class ApprovalTerms(TypedDict, total=False):
    """Who decides, and the default; documented at `Pipeline.approve`."""

    needs: int
    who: Sequence[str]
    proof: bool
    default: bool


_MIN_TIMER = timedelta(milliseconds=1)
_CHECK_TIMEOUT = timedelta(seconds=30)
_CHECK_ATTEMPTS = 3
_MAX_CHECKS = 100  # at once; the server rejects the task with the 2,001st


@dataclass(frozen=True)
class ApprovalRequest:
    """The arguments of `Pipeline.approve`, checked before the step begins."""

    title: str
    within: timedelta
    asks: str | None = None
    shows: Mapping[str, Any] | Sequence[Any] = ()
    then: Then | None = None
    answer: type[BaseModel] | None = None
    needs: int = 1
    who: Sequence[str] = ()
    proof: bool = False
    default: bool = False
    stage: str | None = field(init=False, default=None)
    arguments: dict[str, Any] = field(init=False, default_factory=dict)  # of that stage

    def __post_init__(self) -> None:
        """Check the arguments, and copy those of the stage: what is shown is what is approved."""
        for name, value, kinds in (("who", self.who, Sequence), ("shows", self.shows, Sequence | Mapping)):
            if isinstance(value, str) or not isinstance(value, kinds):
                raise TypeError(f"approval {self.title!r}: {name} is a {type(value).__name__}; expected a list")
        if self.then is not None:
            object.__setattr__(self, "stage", spec_of(self.then[0]).name)
            inputs = encode_inputs(self.then[2]) if len(self.then) > 2 else {}
            object.__setattr__(self, "arguments", stage_arguments(encode_params(self.then[1]), inputs))
        if self.default and self.answer is not None:
            try:
                parse_form(self.answer, None)
            except ValueError as error:
                raise ValueError(f"the default would approve {self.title!r} without an answer: {error}") from None

    def waiting(self, question: str, seq: int) -> Waiting:
        """Return the open question."""
        then = None if self.stage is None else (f"stage {self.stage!r}", self.arguments)
        return Waiting(
            kind="approval",
            name=self.title,
            seq=seq,
            since=workflow.now(),
            until=workflow.now() + self.within,
            asks=self.asks,
            question=question,
            shows=build_exhibits(self.shows, then),
            answer=None if self.answer is None else self.answer.model_json_schema(),
            needs=self.needs,
            who=[*self.who],
            proof=self.proof,
        )


def stage_arguments(params: dict[str, JsonValue], inputs: dict[str, JsonValue]) -> dict[str, Any]:
    """Return a stage's encoded arguments as an approval shows and binds them."""
    return {"params": params, **({"inputs": inputs} if inputs else {})}


class Approvals:
    """The open questions of a pipeline, and the handlers for people's decisions."""

    def __init__(self, digest_now: Callable[[], str], note: Callable[[str], None], board: QuestionBoard) -> None:
        self._board = board
        self._digest_now = digest_now
        self._note = note
        self._docket = Docket()
        self._checks = asyncio.Semaphore(_MAX_CHECKS)
        self._approved_stages = ApprovedStages()
        workflow.set_update_handler(DECIDE, self._on_update, validator=self._validate)
        workflow.set_signal_handler(DECIDE, untyped_handler(self._on_signal))
        workflow.set_query_handler(QUERY_SHOWN, untyped_handler(self._on_shown))

    def titles(self) -> list[str]:
        """Return the titles of the open approvals."""
        return self._docket.titles()

    def waiting(self) -> list[Waiting]:
        """Return the open approvals, with current digests."""
        return self._docket.waiting(self._digest_now()) if self.titles() else []

    def open(self, request: ApprovalRequest, seq: int) -> str:
        """Open a question and return its id."""
        question = f"{seq}:{workflow.uuid4().hex[:16]}"
        self._docket.open(request.waiting(question, seq), request.answer)
        self._publish(question)
        return question

    def _publish(self, question: str) -> None:
        """Publish an open question with its votes."""
        self._board.put(Question(approval=self._docket.whole(question, self._digest_now())))

    async def wait(self, question: str, request: ApprovalRequest, seq: int) -> Decided:
        """Wait for a decision, or for the deadline, when the default counts."""
        docket = self._docket
        try:
            await workflow.wait_condition(
                lambda: docket.decided(question) is not None,
                timeout=request.within,
                timeout_summary=f"step {seq}: deadline of approval {request.title}"[:200],
            )
        except TimeoutError:
            docket.expire(question, request.default, request.within, workflow.now(), self._digest_now())
        finally:
            docket.withdraw(question)
            self._board.withdraw(question)
        decided = docket.decided(question)
        assert decided is not None  # noqa: S101 - the condition above
        if decided.via == "update":
            # So that the next steps begin in another workflow task: a task can only be rolled back as a whole.
            await workflow.sleep(_MIN_TIMER, summary=f"step {seq}: {request.title} decided"[:200])
        return decided

    def restore(self, decided: Decided, request: ApprovalRequest, seq: int, *, same_texts: bool) -> str | None:
        """Store the outcome of a question of an earlier run; return why it does not answer what is asked now."""
        now = request.waiting(decided.question, seq)
        self._docket.close(decided)
        return restored_fault(decided, now, request.default, same_texts=same_texts)

    def bind(self, request: ApprovalRequest, decided: Decided) -> None:
        """Let the approved stage run once with the arguments that were shown."""
        if request.stage is not None:
            self._approved_stages.add(request.stage, decided, request.arguments)

    def use(self, stages: Sequence[str], params: dict[str, JsonValue], inputs: dict[str, JsonValue]) -> None:
        """Use up an approval for each stage that people approve; stages that they do not approve are free.

        Raises:
            ApprovalDeniedError: A stage has no approval left for these arguments; none was used up.
        """
        self._approved_stages.use(stages, stage_arguments(params, inputs))

    async def _check(self, decision: Decision) -> str | None:
        """Return why the workers' file of deciders rejects a decision, or None."""
        check = self._docket.check(decision, self._digest_now())
        if check is None:
            return None
        try:
            async with self._checks:
                refusal: str = await workflow.execute_activity(
                    CHECK_DECISION,
                    check,
                    result_type=str,
                    schedule_to_close_timeout=_CHECK_TIMEOUT,
                    retry_policy=RetryPolicy(maximum_attempts=_CHECK_ATTEMPTS),
                    summary=f"check a decision about {decision.approval}"[:200],
                )
        except ActivityError as error:
            return f"the decision could not be checked, so it does not count; send it again: {error.cause or error}"
        return refusal or None

    async def _count(self, decision: Decision, via: str) -> Decided:
        """Count a decision, or raise the reason against it; another decision may overtake it during the check."""
        # A replay may deliver a decision before the result that it followed; after the timer both have arrived
        # (docs/limits.md, "A replay may take two workflow tasks for one").
        await workflow.sleep(_MIN_TIMER, summary=f"a decision about {decision.approval} came"[:200])
        self._refuse(self._docket.refusal(decision, self._digest_now()))
        self._refuse(await self._check(decision), NOT_ALLOWED)
        self._refuse(self._docket.refusal(decision, self._digest_now()))
        is_repeated = self._docket.answer(decision, self._digest_now()) is not None
        reply = self._docket.count(decision, workflow.now(), via, self._digest_now())
        if reply.missing and not is_repeated:
            self._publish(reply.question)
        return reply

    def _refuse(self, refusal: str | None, type: str = "DecisionRefused") -> None:
        """Raise an error if there is a reason against a decision."""
        if refusal:
            raise ApplicationError(refusal, type=type, non_retryable=True)

    def _validate(self, decision: Decision | None) -> None:
        """Reject an update before it enters the history; the caller gets the reason."""
        self._refuse(NULL_DECISION if decision is None else self._docket.refusal(decision, self._digest_now()))

    async def _on_update(self, decision: Decision) -> Decided:
        """Decide about an open approval: {approval, question, digest, approved, who, why, answer, key, signature}."""
        return await self._count(decision, "update")

    async def _on_signal(self, *args: Any) -> None:
        """Decide about an open approval as by update; a rejection becomes a note."""
        try:
            decision = Decision.model_validate(args[0] if len(args) == 1 else args)
        except ValidationError as error:
            self._note(f"refused a signal {DECIDE!r} that is not a decision: {describe_faults(error, 'argument')}")
            return
        if refusal := name_refusal(decision.who):
            self._note(f"refused a decision: {refusal}")
            return
        try:
            await self._count(decision, "signal")
        except ApplicationError as error:
            self._note(f"refused a decision of {decision.who}: {error.message}")

    def _on_shown(self, question: str, place: int) -> str:
        """The full text of one exhibit of an open approval: the question's id, and its place from 1."""
        return self._docket.shown_text(question, place)
