"""Notes of people for an agent at work, on the worker's side: checked when they come, read before each request."""

import logging
from datetime import timedelta

from pydantic import ValidationError
from temporalio import activity
from temporalio.service import RPCError

from baton.codec.secrets import mask_values
from baton.core.messages import StageInput
from baton.core.steering import OpenNotes, SteeringNote
from baton.handoff.activity_receive import require_gate
from baton.pipelines.activity_parts import current_parts
from baton.wire.names import CHECK_NOTE, MEMO_NOTES

_log = logging.getLogger(__name__)
_READ_TIMEOUT = timedelta(seconds=5)


@activity.defn(name=CHECK_NOTE)
async def check_note(note: SteeringNote, sealed: bool = False) -> str:
    """Return why a note must not reach an agent, or "": it holds a secret, or the safety scan rejects it.

    Args:
        note: The note.
        sealed: Whether the run's handoffs are sealed: a worker without keys, which has no scan, must not check it.
    """
    shown = {"text": note.text, "who": note.who}
    if mask_values(shown) != shown:
        return "the note looks like a secret, and it would be in the history and in a prompt: leave it out"
    gate = current_parts().gate
    if sealed:
        require_gate(gate)
    unsafe = [] if gate is None else gate.unsafe(shown)
    return f"the safety scan rejects the note: {'; '.join(unsafe)}" if unsafe else ""


class NoteReader:
    """Reads the notes for one run of a stage from the memo of its workflow, with one call to the server each time.

    Attributes:
        shown: The notes that were returned, the oldest first.
    """

    def __init__(self, message: StageInput) -> None:
        self._takes_notes = message.steer
        self._target = message.seq, message.title
        self.shown: list[SteeringNote] = []

    async def unread(self) -> list[SteeringNote]:
        """Return the notes since the last call; none if the stage takes no notes, or the server does not answer."""
        if not self._takes_notes or not activity.in_activity():
            return []
        info, client = activity.info(), activity.client()
        handle = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        try:
            run = await handle.describe(rpc_timeout=_READ_TIMEOUT)
            published: OpenNotes | None = await run.memo_value(MEMO_NOTES, None, type_hint=OpenNotes)
        except (RPCError, ValidationError, RuntimeError) as error:
            _log.warning("the notes for step %s could not be read; the agent works on: %s", self._target[1], error)
            return []
        known = {note.id for note in self.shown}
        notes = published.notes if published else []
        new = [note for note in notes if (note.seq, note.step) == self._target and note.id not in known]
        self.shown += new
        return new
