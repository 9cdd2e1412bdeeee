"""`Steering`: takes notes of people for the agents that work now, by the update `steer`.

An agent reads them from the run's memo before its next request. A note counts for the step that it was sent to: if that
ends first, the note is recorded as not shown, and its sender may send it to the next agent.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from pydantic_core import to_json
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from baton.core.messages import StageInput, StageReturn
from baton.core.steering import MAX_NOTES_BYTES, NoteRequest, OpenNotes, SteeringNote, no_agent, note_refusal
from baton.handoff.workflow_escalation import Escalation
from baton.ledger.entries import usable_name
from baton.ledger.records import Kind
from baton.runtime.workflow_run import Run
from baton.runtime.workflow_visibility import upsert_memo
from baton.wire.names import CHECK_NOTE, MEMO_NOTES, STEER

_CHECK_TIMEOUT = timedelta(seconds=30)
_NULL = "this update takes one note, an object with text, who and step; found null"

Target = tuple[int, str]
"""A step at work: its number, and its name or that of its branch or item."""


class Steering:
    """The notes for the agents of a run that work now, and the handler that takes them from the first such agent on."""

    def __init__(self, run: Run, escalation: Escalation, *, sealed: bool) -> None:
        self._run = run
        self._sealed = sealed
        self._escalation = escalation
        self._open: dict[Target, list[SteeringNote]] = {}
        self._taken: list[SteeringNote] = []  # that are being checked
        self._shown: set[str] = set()
        self._listens = False

    @asynccontextmanager
    async def taking_notes(self, stage_input: StageInput) -> AsyncIterator[None]:
        """Take notes for a step while the block runs, if its stage takes any."""
        if not stage_input.steer:
            yield
            return
        if not self._listens:  # only now: the SDK reads a handler's types in each run
            workflow.set_update_handler(STEER, self._on_update, validator=self._validate)
            self._listens = True
            if MEMO_NOTES in workflow.info().raw_memo:  # set by the starter of the run, and unchecked
                self._publish()
        target = stage_input.seq, stage_input.title
        self._open[target] = []
        try:
            yield
        except Exception:
            await self._record_unshown(self._close(target))
            raise
        except BaseException:  # the run is canceled, or its worker evicts it
            self._close(target)
            raise
        await self._record_unshown(self._close(target))

    def note_answer(self, returned: StageReturn) -> None:
        """Remember which notes a stage has shown its agent."""
        self._shown |= {note.id for note in returned.steered}

    def _close(self, target: Target) -> list[SteeringNote]:
        """Take no more notes for a step; return those that its agent has not seen."""
        notes = self._open.pop(target)
        if not self._run.visibility.may_write:
            return []
        unshown = [note for note in notes if note.id not in self._shown]
        for note in unshown:
            self._run.note(f"{note.line} was not shown: the step ended before its agent's next request")
        if notes:
            self._publish()
        return unshown

    async def _record_unshown(self, notes: list[SteeringNote]) -> None:
        for note in notes:
            await self._record(note, "NOT_SHOWN", "the step ended before its agent's next request")

    async def _record(self, note: SteeringNote, status: str, details: str) -> None:
        await self._escalation.record(
            note.seq,
            kind=Kind.DECISION,
            event_id=f"note:{note.id}",
            status=status,
            details=details,
            actor=usable_name(note.who),
            to_agent=usable_name(note.step) or "step",
            message={"text": note.text} if status == "STEERED" else {},
        )

    def _publish(self) -> None:
        upsert_memo({MEMO_NOTES: OpenNotes(notes=self._all())})

    def _all(self) -> list[SteeringNote]:
        return [note for notes in self._open.values() for note in notes]

    def _refusal(self, request: NoteRequest | None) -> str | None:
        """Return why a note cannot be shown, or None."""
        if request is None:
            return _NULL
        if refusal := note_refusal(request):
            return refusal
        if self._target(request) is None:
            return self._nobody(request.step)
        if len(to_json([*self._all(), *self._taken])) + len(to_json(request)) > MAX_NOTES_BYTES:
            return "the agents that work now have as many notes as a run keeps; wait until their steps end"
        return None

    def _target(self, request: NoteRequest) -> Target | None:
        """Return the step that a note is for; None if there is none or it is one of several."""
        fitting = [target for target in self._open if request.step in (None, target[1])]
        return fitting[0] if len(fitting) == 1 else None

    def _nobody(self, step: str | None) -> str:
        """Return why there is no agent for a note."""
        return no_agent(step, [name for _, name in self._open], [waiting.name for waiting in self._run.waiting()])

    def _validate(self, request: NoteRequest | None) -> None:
        """Refuse an update before it enters the history; the caller gets the reason."""
        _refuse(self._refusal(request))

    async def _on_update(self, request: NoteRequest) -> SteeringNote:
        """Show a note to the agent of a step before its next request: {text, who, step}."""
        target = self._target(request)
        if target is None:  # its step ended in the same workflow task
            raise ApplicationError(self._nobody(request.step), type=_REFUSED, non_retryable=True)
        id = f"{target[0]}:{workflow.uuid4().hex[:16]}"
        note = SteeringNote(id=id, seq=target[0], step=target[1], text=request.text, who=request.who, at=workflow.now())
        self._taken.append(note)
        try:
            _refuse(await self._check(note))
            await self._record(note, "STEERED", "a person's note for an agent at work")
        finally:
            self._taken.remove(note)
        if target not in self._open:
            await self._record_unshown([note])
            _refuse(f"{note.line} was not shown: the step has ended")
        self._open[target].append(note)
        self._publish()
        return note

    async def _check(self, note: SteeringNote) -> str | None:
        """Return why the worker's safety scan rejects a note, or None."""
        try:
            refusal: str = await workflow.execute_activity(
                CHECK_NOTE,
                args=[note, self._sealed],
                result_type=str,
                schedule_to_close_timeout=_CHECK_TIMEOUT,
                retry_policy=RetryPolicy(maximum_attempts=3),
                summary=f"step {note.seq}: check a note of a person",
            )
        except ActivityError as error:
            return f"the note could not be checked, so it is not shown; send it again: {error.cause or error}"
        return refusal or None


_REFUSED = "NoteRefused"


def _refuse(refusal: str | None) -> None:
    """Raise an error if there is a reason against a note."""
    if refusal:
        raise ApplicationError(refusal, type=_REFUSED, non_retryable=True)
