"""Notes of people for an agent at work: what they send, and what becomes of it."""

from collections.abc import Iterable

from pydantic import Field

from baton.core.people import name_refusal
from baton.wire.records import CompactRecord, Integer, Name, Statement, Timestamp

MAX_NOTE_LENGTH = 500
"""The longest note, in characters: it corrects an agent, and a longer text belongs in the pipeline's inputs."""
MAX_NOTES_BYTES = 1_600
"""The most bytes of all notes for agents that work now, as JSON: the run's memo holds them."""


class NoteRequest(CompactRecord):
    """The argument of the update `steer`.

    Attributes:
        text: The note.
        who: The person.
        step: The name of the step, branch or item whose agent gets it; by default the only one that takes notes.
    """

    text: Statement
    who: Name
    step: Name | None = None


class SteeringNote(CompactRecord):
    """A note of a person for an agent at work.

    Attributes:
        id: Names it in its run.
        seq: The step's number.
        step: The name of the step, branch or item.
        text: The note.
        who: The person, by the name that they gave.
        at: When the run took it (workflow time).
    """

    id: Name
    seq: Integer = Field(ge=1)
    step: Name
    text: str
    who: Name
    at: Timestamp

    @property
    def line(self) -> str:
        """The note in one line, without its text."""
        return f"the note of {self.who} for {self.step!r} ({self.at:%H:%M:%S}Z)"


class OpenNotes(CompactRecord):
    """The notes for the agents that work now, as the run's memo holds them.

    Attributes:
        notes: The notes, the oldest first; those that were shown stay until their step ends, for its retries.
    """

    notes: list[SteeringNote] = Field(default_factory=list)


def no_agent(step: str | None, taking: Iterable[str], at_work: Iterable[str]) -> str:
    """Return why no agent gets a note, or which one of several is not known.

    Args:
        step: The step that the note names, if it names one.
        taking: The steps at work that take notes.
        at_work: All steps at work.
    """
    takers, working = (", ".join(map(repr, names)) or "none" for names in (taking, at_work))
    if step is None and takers != "none":
        return f"several agents take notes, name one: {takers}"
    named = "" if step is None else f" {step!r}"
    return (
        f"no step{named} that takes notes is at work; at work: {working}; of these take notes: {takers}. "
        "A stage takes them with steer=True, if its agent's adapter can show them"
    )


def note_refusal(request: NoteRequest) -> str | None:
    """Return why a note cannot be recorded, or None."""
    if (length := len(request.text)) > MAX_NOTE_LENGTH:
        return f"the text of a note has at most {MAX_NOTE_LENGTH} characters; found {length:,}"
    return name_refusal(request.who)
