"""What was said before an e-mail was proposed, told apart: ideas, assumptions that were dropped, notes, and the rest.

All of it is read by the research, and none of it is for the agent that decides. Telling it apart is for the record of
what was left out; nothing depends on it, because each of these kinds stays behind.
"""

import re
from collections.abc import Iterator, Sequence
from email.message import EmailMessage
from typing import Literal

from activities.compliance_review.mailbox import sender_domain, without_addresses
from activities.compliance_review.texts import text_of
from baton.wire.records import Record

NoteKind = Literal["brainstorm", "rejected_assumption", "internal_note", "history"]
"""An idea that is not meant, an assumption that was dropped, a note among us, or a message from outside."""

MOST_NOTES = 200
LONGEST_NOTE = 2_000

_IDEA = re.compile(r"(?i)(?:what if|how about|maybe we|perhaps we|could(?:n['’]t)? we|why not|idea:|brainstorm)\b")
_DROPPED = re.compile(
    r"(?i)(?:rejected(?: assumption)?|dropped|wrong|not so)\s*:"
    r"|(?:we|i) (?:first |once |had )?(?:assumed|thought|believed)\b"
)
_PREFIX = re.compile(r"(?i)^(?:rejected(?: assumption)?|dropped|wrong|not so|idea|brainstorm)\s*:\s*")
_QUOTED = re.compile(r"(?m)^[^\S\n]*>.*$|^On .{1,200} wrote:$")
_SIGNATURE = re.compile(r"(?m)^-- ?$")


class Note(Record):
    """Something that was said before.

    Attributes:
        kind: What it is.
        text: The words, without addresses.
    """

    kind: NoteKind
    text: str


def notes_of(messages: Sequence[EmailMessage], own: frozenset[str]) -> list[Note]:
    """Return what earlier messages say, the first `MOST_NOTES` of it.

    A message among ourselves is taken apart by paragraphs. One from outside is history as a whole.

    Args:
        messages: The earlier messages, in order.
        own: Our own domains.
    """
    notes = [note for message in messages for note in _notes(message, own)]
    return notes[:MOST_NOTES]


def kind_of(paragraph: str) -> NoteKind:
    """Return what a paragraph among ourselves is.

    Example:
        >>> kind_of("What if we just skip the compliance check?")
        'brainstorm'
        >>> kind_of("Rejected assumption: Pricing is the only factor")
        'rejected_assumption'
        >>> kind_of("Finance is still discussing the budget.")
        'internal_note'
    """
    if _DROPPED.match(paragraph):
        return "rejected_assumption"
    return "brainstorm" if _IDEA.match(paragraph) else "internal_note"


def _notes(message: EmailMessage, own: frozenset[str]) -> Iterator[Note]:
    body = _SIGNATURE.split(_QUOTED.sub("", without_addresses(text_of(message))))[0]
    if sender_domain(message) not in own:
        text = " ".join(body.split())
        if text:
            yield Note(kind="history", text=text[:LONGEST_NOTE])
        return
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*•] )", body.partition("\n")[2]):
        text = " ".join(paragraph.split()).lstrip("-*• ")
        if text:
            yield Note(kind=kind_of(text), text=_PREFIX.sub("", text)[:LONGEST_NOTE])
