"""What was said before an e-mail: ideas, dropped assumptions, notes and history, told apart."""

from email.message import EmailMessage

from activities.compliance_review.mailbox import read_mailbox
from activities.compliance_review.thread import MOST_NOTES, Note, notes_of
from tests.unit.compliance_review.material import OFFER

OWN = frozenset({"northwind.example"})


class TestNotesOf:
    """Taking a thread apart."""

    def test_tells_the_documents_own_kinds_apart(self) -> None:
        """The brainstorm, the rejected assumption and the debate of the sample each get their kind (S5-prob-a)."""
        notes = notes_of(read_mailbox(OFFER).earlier, OWN)
        assert [note.kind for note in notes] == ["history", "brainstorm", "rejected_assumption", "internal_note"]
        assert notes[1:3] == [
            Note(kind="brainstorm", text="What if we just skip the compliance check?"),
            Note(kind="rejected_assumption", text="Pricing is the only factor"),
        ]
        assert (
            notes[3].text
            == "Finance is still debating the budget approval; (an address) says yes and the others say no."
        )

    def test_takes_what_comes_from_outside_as_history(self) -> None:
        """A message whose sender is not one of us, or cannot be read, is taken apart by nobody."""
        message = EmailMessage()
        message["From"] = "nobody in particular"
        message.set_content("What if we skip the check?")
        assert [note.kind for note in notes_of([message], OWN)] == ["history"]

    def test_empty_lines_cost_one_look_each(self) -> None:
        """Some programs leave thousands where something was taken out."""
        message = EmailMessage()
        message["From"] = "a@northwind.example"
        message.set_content("A note." + "\n" * 400_000 + "Another.")
        assert [note.text for note in notes_of([message], OWN)] == ["A note.", "Another."]

    def test_ends_somewhere(self) -> None:
        """A thread of thousands of paragraphs is cut."""
        message = EmailMessage()
        message["From"] = "a@northwind.example"
        message.set_content("A note.\n\n" * 3 * MOST_NOTES)
        assert len(notes_of([message], OWN)) == MOST_NOTES
