"""Approvals: people answer one question, on what they were shown; silence until the deadline means no."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from pydantic import BaseModel, JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from baton.core.exhibits import build_exhibits
from baton.core.inputs import encode_inputs
from baton.core.messages import Decided, Decision, Waiting
from baton.core.stages import HasSpec, spec_of
from baton.errors import ApprovalDeniedError
from baton.handoff.pending import NULL_DECISION, name_refusal
from baton.pipelines.approvals import CHECK_DECISION, NOT_ALLOWED, Docket, parse_form
from baton.pipelines.workflow_visibility import untyped_handler
from baton.wire.json_values import Json, digest
from baton.wire.names import DECIDE, QUERY_SHOWN
from baton.wire.text import describe_faults

Then = tuple[HasSpec, Mapping[str, Json]] | tuple[HasSpec, Mapping[str, Json], Mapping[str, Any]]
"""What a yes is also about: the stage that runs next, its parameters, and its inputs if it has any."""


class ApprovalTerms(TypedDict, total=False):
    """Who decides, and what silence means: `Pipeline.approve` has the meanings and the defaults."""

    needs: int
    who: Sequence[str]
    proof: bool
    default: bool


_FIRST_COMMAND = timedelta(milliseconds=1)
_CHECK_WITHIN = timedelta(seconds=30)
_CHECK_TRIES = 3


@dataclass(frozen=True)
class Asking:
    """What an approval asks, as `Pipeline.approve` takes it; made and checked before the step begins."""

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
    given: dict[str, Any] = field(init=False, default_factory=dict)  # what that stage is given

    def __post_init__(self) -> None:
        """Check what does not depend on the run."""
        for name, given, kinds in (("who", self.who, Sequence), ("shows", self.shows, Sequence | Mapping)):
            if isinstance(given, str) or not isinstance(given, kinds):
                raise TypeError(f"approval {self.title!r}: {name} is a {type(given).__name__}; give a list")
        if self.then is not None:
            object.__setattr__(self, "stage", spec_of(self.then[0]).name)
            inputs = encode_inputs(self.then[2]) if len(self.then) > 2 else {}
            object.__setattr__(self, "given", _given(self.then[1], inputs))
        if self.default and self.answer is not None:
            try:
                parse_form(self.answer, None)
            except ValueError as error:
                raise ValueError(f"silence would approve {self.title!r} without an answer: {error}") from None

    def waiting(self, question: str, seq: int) -> Waiting:
        """Return the question as people read it."""
        then = None if self.stage is None else (f"stage {self.stage!r}", self.given)
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


def _given(params: Mapping[str, Json], inputs: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return what a stage is given, as an approval shows and binds it."""
    return {"params": dict(params), **({"inputs": {**inputs}} if inputs else {})}


class Approvals:
    """The open questions of a pipeline, and the handlers for people's decisions."""

    def __init__(self, digest_now: Callable[[], str], note: Callable[[str], None]) -> None:
        self._digest_now = digest_now
        self._note = note
        self._docket = Docket()
        self._bound: dict[str, tuple[str, str]] = {}  # by stage: which approval, and the digest of the parameters
        workflow.set_update_handler(DECIDE, self._on_update, validator=self._validate)
        workflow.set_signal_handler(DECIDE, untyped_handler(self._on_signal))
        workflow.set_query_handler(QUERY_SHOWN, untyped_handler(self._on_shown))

    def titles(self) -> list[str]:
        """Return the titles of the open approvals."""
        return self._docket.titles()

    def waiting(self) -> list[Waiting]:
        """Return the open approvals, each with the digest of what is shown as it is now."""
        return self._docket.waiting(self._digest_now()) if self.titles() else []

    def open(self, asking: Asking, seq: int) -> str:
        """Ask a question, and return its id."""
        question = f"{seq}:{workflow.uuid4().hex[:16]}"
        self._docket.open(asking.waiting(question, seq), asking.answer)
        return question

    async def wait(self, question: str, asking: Asking, seq: int) -> Decided:
        """Wait for the answer to an open question, or for its deadline, when the default counts."""
        docket = self._docket
        try:
            await workflow.wait_condition(
                lambda: docket.decided(question) is not None,
                timeout=asking.within,
                timeout_summary=f"step {seq}: deadline of approval {asking.title}"[:200],
            )
        except TimeoutError:
            docket.expire(question, asking.default, asking.within, workflow.now(), self._digest_now())
        finally:
            docket.withdraw(question)
        decided = docket.decided(question)
        assert decided is not None  # noqa: S101 - the condition above
        if decided.via == "update":
            # The next steps begin in a workflow task of their own: one task could only be rolled back as a whole.
            await workflow.sleep(timedelta(milliseconds=1), summary=f"step {seq}: {asking.title} decided"[:200])
        return decided

    def close(self, decided: Decided) -> None:
        """Remember how a question was answered, also one of an earlier run."""
        self._docket.close(decided)

    def bind(self, asking: Asking) -> None:
        """Remember with what parameters a stage was approved."""
        if asking.stage is not None:
            self._bound[asking.stage] = asking.title, digest(asking.given)

    def check_bound(self, stage: str, params: Mapping[str, Json], inputs: Mapping[str, JsonValue]) -> None:
        """Check that a stage runs with what was approved; an approval covers one run of it.

        Raises:
            ApprovalDeniedError: It does not.
        """
        approval, approved = self._bound.pop(stage, (None, None))
        if approval is not None and digest(_given(params, inputs)) != approved:
            raise ApprovalDeniedError(
                f"{approval!r} approved stage {stage!r} with other params or inputs than these; give `stage` those of "
                "`then`, or ask again"
            )

    async def _checked(self, decision: Decision) -> str | None:
        """Return why a worker, by its file of deciders, does not take a decision; None if nothing is to be checked."""
        check = self._docket.check(decision, self._digest_now())
        if check is None:
            return None
        try:
            refusal: str = await workflow.execute_activity(
                CHECK_DECISION,
                check,
                result_type=str,
                schedule_to_close_timeout=_CHECK_WITHIN,
                retry_policy=RetryPolicy(maximum_attempts=_CHECK_TRIES),
                summary=f"check a decision about {decision.approval}"[:200],
            )
        except ActivityError as error:
            return f"the decision could not be checked, so it does not count; send it again: {error.cause or error}"
        return refusal or None

    async def _counted(self, decision: Decision, via: str) -> Decided:
        """Count a decision, or raise why it does not count; while it is checked, another one may be quicker."""
        # A replay may bring a decision ahead of the result that it followed; the timer has it judged after both
        # (docs/limits.md, "A replay may take two workflow tasks for one").
        await workflow.sleep(_FIRST_COMMAND, summary=f"a decision about {decision.approval} came"[:200])
        self._refuse(self._docket.refusal(decision, self._digest_now()))
        self._refuse(await self._checked(decision), NOT_ALLOWED)
        self._refuse(self._docket.refusal(decision, self._digest_now()))
        return self._docket.count(decision, workflow.now(), via, self._digest_now())

    def _refuse(self, refusal: str | None, type: str = "DecisionRefused") -> None:
        """Raise that a decision does not count, if there is a reason."""
        if refusal:
            raise ApplicationError(refusal, type=type, non_retryable=True)

    def _validate(self, decision: Decision | None) -> None:
        """Refuse an update before it enters the history; the caller gets the reason."""
        self._refuse(NULL_DECISION if decision is None else self._docket.refusal(decision, self._digest_now()))

    async def _on_update(self, decision: Decision) -> Decided:
        """Decide about an open approval: {approval, question, digest, approved, who, why, answer, key, signature}."""
        return await self._counted(decision, "update")

    async def _on_signal(self, *given: Any) -> None:
        """Decide about an open approval as by update; a refusal becomes a note."""
        try:
            decision = Decision.model_validate(given[0] if len(given) == 1 else given)
        except ValidationError as error:
            self._note(f"refused a signal {DECIDE!r} that is not a decision: {describe_faults(error, 'argument')}")
            return
        unnamed = name_refusal(decision.who)
        if unnamed:
            self._note(f"refused a decision: {unnamed}")
            return
        try:
            await self._counted(decision, "signal")
        except ApplicationError as refusal:
            self._note(f"refused a decision of {decision.who}: {refusal.message}")

    def _on_shown(self, question: str, place: int) -> str:
        """The whole text of one thing that an open approval shows: the question's id, and its place from 1."""
        return self._docket.shown_text(question, place)
