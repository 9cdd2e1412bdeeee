"""What a run asks people, as its memo holds it: readers need neither a worker nor a query."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Self

from pydantic import Field

from baton.core.decisions import Vote, Waiting
from baton.core.exhibits import Exhibit
from baton.core.pending import PendingHandoff
from baton.wire.records import CompactRecord, Count

ASKED = "baton.asked"
"""The activity whose input is a question that its run's memo holds in part."""
MAX_MEMO_BYTES = 1_600
"""The size of a run's questions in its memo: every list of runs carries it, and the SDK warns of more than 2,048."""
_MIN_SHARE = 500  # of one of several questions, in bytes
_LENGTHS = (300, 100, 30)  # of the texts of a question that is cut, in characters
_MAX_CUT_ENTRIES = 5
_LATEST = datetime.max.replace(tzinfo=UTC)


class Question(CompactRecord):
    """A question to people: an approval, or what to do with a handoff that waits. One of the two is set.

    Attributes:
        approval: The approval, with its votes so far and the digest that they are bound to.
        handoff: The handoff.
        is_whole: Whether nothing is cut.
    """

    approval: Waiting | None = None
    handoff: PendingHandoff | None = None
    is_whole: bool = True

    @property
    def id(self) -> str:
        """The question's or the handoff's id."""
        return self.handoff.handoff_id if self.handoff else (self.approval and self.approval.question) or ""

    @property
    def seq(self) -> int:
        """The number of its step."""
        entry = self.handoff or self.approval
        return entry.seq if entry else 0

    @property
    def title(self) -> str:
        """The approval's title, or the handoff's sender and receiver."""
        if self.handoff:
            return f"{self.handoff.sender} → {self.handoff.receiver}"
        return self.approval.name if self.approval else ""

    @property
    def asks(self) -> str:
        """What is asked, or why the handoff waits."""
        return self.handoff.details if self.handoff else (self.approval and self.approval.asks) or ""

    @property
    def until(self) -> datetime:
        """The deadline."""
        entry = self.handoff or self.approval
        return (entry and entry.until) or _LATEST

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible decisions."""
        return tuple(action.value for action in self.handoff.actions) if self.handoff else ("approve", "deny")

    def cut_to(self, size: int) -> Self | None:
        """Return it with texts as long as they fit into ``size`` bytes of JSON, or None."""
        return next((version for version in self._versions() if _size(version) <= size), None)

    def _versions(self) -> Iterator[Self]:
        """Yield it whole, then cut, each version smaller than the one before."""
        yield self
        for length in _LENGTHS:
            update = {
                "is_whole": False,
                "approval": self.approval and _cut_approval(self.approval, length),
                "handoff": self.handoff and _cut_handoff(self.handoff, length),
            }
            yield self.model_copy(update=update)


class OpenQuestions(CompactRecord):
    """The open questions of a run, in its memo.

    Attributes:
        questions: The one that opened or changed last, then the nearest deadlines.
        more: How many others there are.
    """

    questions: list[Question] = Field(default_factory=list)
    more: Count = 0


def summarize_questions(questions: Iterable[Question], newest: str | None = None) -> OpenQuestions:
    """Return open questions as they fit into a memo, the newest first."""
    ordered = sorted(questions, key=lambda question: (question.id != newest, question.until))
    share = max(MAX_MEMO_BYTES // max(len(ordered), 1), _MIN_SHARE)
    listed: list[Question] = []
    remaining = MAX_MEMO_BYTES
    for question in ordered:
        version = question.cut_to(min(share, remaining))
        if version is None and not listed:
            *_, version = question._versions()
        if version is None:
            break
        listed.append(version)
        remaining -= _size(version)
    return OpenQuestions(questions=listed, more=len(ordered) - len(listed))


def _size(question: Question) -> int:
    return len(question.model_dump_json().encode())


def _cut_approval(approval: Waiting, length: int) -> Waiting:
    form = None
    if approval.answer is not None:
        required = approval.answer.get("required")
        names = required if isinstance(required, list) else []
        form = {"required": [str(name)[:length] for name in names[:_MAX_CUT_ENTRIES]]}
    update = {
        "asks": approval.asks and approval.asks[:length],
        "shows": [_cut_exhibit(exhibit, length) for exhibit in approval.shows[: length // 100]],
        "answer": form,
        "who": [name[:length] for name in approval.who[:_MAX_CUT_ENTRIES]],
        "votes": [_cut_vote(vote, length) for vote in approval.votes[:_MAX_CUT_ENTRIES]],
    }
    return approval.model_copy(update=update)


def _cut_vote(vote: Vote, length: int) -> Vote:
    return Vote(who=vote.who[:length], approved=vote.approved, at=vote.at, via=vote.via)


def _cut_exhibit(exhibit: Exhibit, length: int) -> Exhibit:
    return exhibit.model_copy(update={"title": exhibit.title[:length], "text": exhibit.text[:length], "artifact": None})


def _cut_handoff(handoff: PendingHandoff, length: int) -> PendingHandoff:
    update = {
        "sender": handoff.sender[:length],
        "receiver": handoff.receiver[:length],
        "details": handoff.details[:length],
        "findings": [],
    }
    return handoff.model_copy(update=update)
