"""The rules of questions to people: which answer counts for which question, without a clock or I/O.

Each answer names one question and the digest of everything shown. It counts once, and for nothing else.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from baton.core.patching import same_json, shorten_findings
from baton.core.people import GROUP_PREFIX, name_refusal, normalize_name, reason_refusal
from baton.core.questions import BY_DEADLINE, MISFIT, Answer, Question, Settled, Vote, agreeing, content_digest
from baton.errors import ApprovalDeniedError
from baton.wire.json_values import Json, find_excess, find_unwritable, sha256
from baton.wire.records import CompactRecord
from baton.wire.text import describe_faults

CHECK_ANSWER = "baton.check_answer"
"""The activity that checks whether a person may decide, and their signature."""
NOT_ALLOWED = "AnswerNotAllowed"
"""The error type for an answer that a worker checked and rejected; retrying does not help."""
NULL_ANSWER = "this update takes one answer, an object with question, choice, who, why and digest; found null"
"""Why a null answer is refused; the SDK accepts null for any type."""
MAX_ASKS_LENGTH = 2_000
"""The most characters of an approval's question."""
MAX_DECIDERS = 100
"""The most entries of `who`, and the largest quorum."""
_MAX_ANSWERS_BYTES = 1024 * 1024  # of all votes, and the last one twice: half of Temporal's limit
_MAX_VOTES = 200  # of a question, with replaced ones
_MAX_FORM_LENGTH = 16 * 1024
_MAX_WHO_LENGTH = 200
_VOTE_FIELDS = ("who", "choice", "why", "at", "via", "data", "content")
_ANSWER_FIELDS, _PROOF_FIELDS = ("who", "choice", "why", "data"), ("key", "signature")

Forms = Mapping[str, type[BaseModel]]
"""The forms of a question's choices, by the choice's name."""
Effect = Callable[[str, Any], str | None]
"""Returns why a choice with its filled-in form cannot be done now, or None."""


def no_effect(choice: str, form: Any) -> str | None:
    """Return that nothing prevents a choice."""
    return None


class AnswerCheck(CompactRecord):
    """An answer for a worker to check against its file of deciders; anybody may decide if ``who`` is empty."""

    answer: Answer
    title: str
    who: list[str]
    proof: bool


class _Cast(NamedTuple):
    """A vote, the digest that it was made on, its filled-in form, and its place in the order of arrival."""

    digest: str
    vote: Vote
    filled: BaseModel | None
    place: int


@dataclass
class _Entry:
    """An open question and its votes so far."""

    question: Question
    forms: Forms
    effect: Effect
    casts: list[_Cast] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)  # of answers that came, by the hash of what they say
    size: int = 0  # of the counted answers, in bytes
    settled: Settled | None = None

    def whole(self, baton: str) -> Question:
        """Return its current state; replaced votes and those on another baton no longer count."""
        digest = self.question.digest_with(baton)
        votes = [vote for vote in self.votes_on(digest) if not vote.replaced]
        return self.question.model_copy(update={"digest": digest, "votes": votes})

    def votes_on(self, digest: str | None) -> list[Vote]:
        """Return the votes that were made on what has this digest, in order, replaced ones too."""
        return [cast.vote for cast in self.casts if cast.digest == digest]

    def casts_of(self, answer: Answer) -> list[_Cast]:
        """Return the votes of an answer's person on the same digest."""
        who = normalize_name(answer.who)
        return [cast for cast in self.casts if cast.digest == answer.digest and normalize_name(cast.vote.who) == who]

    def receive(self, answer: Answer) -> int:
        """Return the place of an answer in the order of arrival; a copy has the place of the first."""
        return self.places.setdefault(_arrival_key(answer), len(self.places) + 1)

    def add(self, answer: Answer, at: datetime, via: str) -> Vote:
        """Add a person's vote, which replaces their earlier one on the same digest."""
        form = self.forms.get(answer.choice)
        filled = None if form is None else parse_form(form, answer.data)
        earlier = [cast for cast in self.casts if cast.digest == answer.digest]
        same = (cast.vote.answer for cast in earlier if (cast.vote.choice, cast.filled) == (answer.choice, filled))
        # A key without a signature proves nothing.
        names = (*_ANSWER_FIELDS, *_PROOF_FIELDS) if answer.signature else _ANSWER_FIELDS
        members = {name: getattr(answer, name) for name in names}
        vote = Vote(at=at, via=via, answer=next(same, len(earlier) + 1), **members)
        replaced = {cast.place for cast in self.casts_of(answer)}
        self.casts = [
            cast._replace(vote=cast.vote.model_copy(update={"replaced": True})) if cast.place in replaced else cast
            for cast in self.casts
        ]
        self.casts.append(_Cast(answer.digest or "", vote, filled, self.receive(answer)))
        self.size += _size(answer)
        return vote


class Questions:
    """The questions of a run: open ones with their votes, closed ones with how they were answered."""

    def __init__(self) -> None:
        self._open: dict[str, _Entry] = {}
        self._closed: dict[str, Settled] = {}

    def open(self, question: Question, forms: Forms | None = None, effect: Effect = no_effect) -> None:
        """Open a question.

        Args:
            question: The question.
            forms: The forms of its choices.
            effect: Returns why a choice cannot be done now.

        Raises:
            ValueError: Another approval with this title or question about this handoff is open, or a part of the
                question is too large.
        """
        if question.handoff and question.subject in [entry.question.subject for entry in self._open.values()]:
            raise ValueError(f"a question about handoff {question.subject} is already open; await its answer first")
        titles = [entry.question.title for entry in self._open.values() if entry.question.handoff is None]
        if question.handoff is None and question.title in titles:
            raise ValueError(f"an approval {question.title!r} is already open; give the second one another title")
        if len(question.asks) > MAX_ASKS_LENGTH:
            raise ValueError(
                f"asks has {len(question.asks):,} characters, at most {MAX_ASKS_LENGTH:,} fit; move the rest to shows"
            )
        check_deciders(question.who, question.needs)
        if len(json.dumps([choice.form for choice in question.choices])) > _MAX_FORM_LENGTH:
            raise ValueError(f"the JSON Schema of answer has more than {_MAX_FORM_LENGTH:,} characters; ask for less")
        self._open[question.id] = _Entry(question, forms or {}, effect)

    @property
    def is_busy(self) -> bool:
        """Whether a question is not withdrawn yet."""
        return bool(self._open)

    def open_now(self, baton: str) -> list[Question]:
        """Return the questions without an answer, each with its current digest and the votes that still count."""
        return [entry.whole(baton).excerpt for entry in self._open.values() if entry.settled is None]

    def under_way(self) -> list[Settled]:
        """Return the answers that the run does not have put into effect yet."""
        return [entry.settled for entry in self._open.values() if entry.settled is not None]

    def withdraw(self, id: str) -> None:
        """Close a question and keep its answer, if any."""
        closed = self._open.pop(id)
        if closed.settled is not None:
            self.close(closed.settled)

    def close(self, settled: Settled) -> None:
        """Keep the answer to a question, also one of an earlier run."""
        self._closed[settled.question] = settled

    def settled(self, id: str) -> Settled | None:
        """Return how a question was answered, or None."""
        entry = self._open.get(id)
        return entry.settled if entry is not None else self._closed.get(id)

    def reply(self, answer: Answer, baton: str) -> Settled | None:
        """Return the earlier reply to the same answer, if it counted."""
        id = answer.question or ""
        final, entry = self.settled(id), self._open.get(id)
        if entry is not None:
            digest = final.digest if final else entry.question.digest_with(baton)
            votes, needs, title = entry.votes_on(digest), entry.question.needs, entry.question.title
        elif final is not None:
            digest, votes, title = final.digest, _votes_of(final), final.title
            needs = len(agreeing(votes[-1], votes)) if votes else 0
        else:
            return None
        place = next((place for place, vote in enumerate(votes) if _is_same(vote, answer) and not vote.replaced), None)
        if place is None or digest != answer.digest:
            return None
        if final is not None and place == len(votes) - 1 and final.via == votes[place].via:
            return final
        agreed = len(agreeing(votes[place], votes[: place + 1]))
        return _settled(id, title, digest, votes[place], missing=max(needs - agreed, 1))

    def refusal(self, answer: Answer, baton: str) -> str | None:
        """Return why an answer does not count, or None; one that was already counted is not refused."""
        if self.reply(answer, baton) is not None:
            return None
        if refusal := reason_refusal(answer.why):
            return refusal
        settled = self.settled(answer.question or "")
        if settled is not None:
            return f"question {settled.question} was answered: {settled.text}; {_late_hint(settled)}"
        entry = self._open.get(answer.question or "")
        if entry is None:
            return self._not_open(answer)
        question = entry.whole(baton)
        if answer.digest != question.digest:
            basis = "nothing that was shown" if answer.digest is None else f"{answer.digest[:19]}…"
            return (
                f"the decision was made on {basis}, but {(question.digest or '')[:19]}… is shown now; look at it "
                "again and decide on that"
            )
        return (
            _too_large(entry, answer)
            or _no_choice(question, answer)
            or name_refusal(answer.who)
            or _not_allowed(question, answer)
            or _wrong_data(entry, question, answer)
            or _overtaken(entry, answer)
        )

    def receive(self, answer: Answer) -> None:
        """Note the arrival of an answer that is not refused: of one person's, the one that came last counts."""
        if (entry := self._open.get(answer.question or "")) is not None:
            entry.receive(answer)

    def check(self, answer: Answer, baton: str) -> AnswerCheck | None:
        """Return what a worker has to check before an answer counts, or None."""
        entry = self._open.get(answer.question or "")
        if entry is None or self.reply(answer, baton) is not None:
            return None
        question = entry.question
        may_decide = not question.who or _is_named(answer.who, question.who)
        if may_decide and not question.proof and answer.signature is None:
            return None
        return AnswerCheck(answer=answer, title=question.title, who=question.who, proof=question.proof)

    def count(self, answer: Answer, at: datetime, via: str, baton: str) -> Settled:
        """Count a valid answer and return the reply; it replaces its person's earlier one."""
        earlier = self.reply(answer, baton)
        if earlier is not None:
            return earlier
        entry = self._open[answer.question or ""]
        vote = entry.add(answer, at, via)
        question = entry.whole(baton)
        agreed, is_alone = agreeing(vote, question.votes), _is_alone(question, answer)
        if not is_alone and len(agreed) < question.needs:
            missing = question.needs - len(agreed)
            return _settled(question.id, question.title, question.digest, vote, missing=missing)
        votes = entry.votes_on(question.digest)
        recorded = votes if len(votes) > 1 or question.needs > 1 or vote.signature else []
        who = vote.who if is_alone else _join_names(agreed)
        entry.settled = self._end(question, vote, who=who, votes=recorded)
        return entry.settled

    def expire(self, id: str, default: str, within: timedelta, at: datetime, baton: str) -> Settled:
        """Answer a question by its deadline, unless a person did in the same workflow task."""
        entry = self._open[id]
        if entry.settled is None:
            question = entry.whole(baton)
            votes = f"; {len(question.agreed)} of {question.needs} had agreed" if question.needs > 1 else ""
            why = f"no decision within {within}{votes}"
            vote = Vote(who=BY_DEADLINE, choice=default, why=why, at=at, via=BY_DEADLINE)
            entry.settled = self._end(question, vote, votes=entry.votes_on(question.digest))
        return entry.settled

    def whole(self, id: str, baton: str) -> Question:
        """Return the current state of an open question, with whole texts; votes on another baton no longer count."""
        return self._open[id].whole(baton)

    def shown_text(self, id: str, place: int) -> str:
        """Return the full text of an exhibit of an open question, counted from 1; empty if there is none."""
        entry = self._open.get(id)
        return entry.question.shows[place - 1].text if entry and 0 < place <= len(entry.question.shows) else ""

    def _end(self, question: Question, vote: Vote, **members: Any) -> Settled:
        asked = {"asked": question.asked, "terms": question.terms}
        handoff_id = question.handoff.handoff_id if question.handoff else None
        return _settled(question.id, question.title, question.digest, vote, handoff_id=handoff_id, **asked, **members)

    def _not_open(self, answer: Answer) -> str:
        """Return the refusal of an answer to a question that is not open."""
        open_now = ", ".join(f"{entry.question.title!r} (question {id})" for id, entry in self._open.items())
        named = "the decision names no question" if answer.question is None else ""
        return f"{named or f'question {answer.question!a:.80} is not open'}; open now: {open_now or 'none'}"


class ApprovedStages:
    """The stages that people approved with exact arguments: from then on, each run needs an approval of its own."""

    def __init__(self) -> None:
        self._unused: dict[str, list[tuple[Settled, dict[str, Any]]]] = {}  # by stage, the oldest first
        self._newest: dict[str, Settled] = {}

    def add(self, stage: str, settled: Settled, arguments: dict[str, Any]) -> None:
        """Let a stage run once with the approved arguments."""
        self._unused.setdefault(stage, []).append((settled, arguments))
        self._newest[stage] = settled

    def use(self, stages: Sequence[str], *runs: dict[str, Any]) -> None:
        """Use up the oldest fitting approval of each approved stage, for each of its runs.

        Args:
            stages: The stages.
            *runs: The arguments of each run.

        Raises:
            ApprovalDeniedError: A stage has no fitting approval; none was used up.
        """
        before = {stage: [*unused] for stage, unused in self._unused.items()}
        try:
            for arguments in runs:
                for stage in stages:
                    if stage in self._unused:
                        del self._unused[stage][self._find(stage, arguments)]
        except ApprovalDeniedError:
            self._unused = before
            raise

    def _find(self, stage: str, arguments: dict[str, Any]) -> int:
        unused = self._unused[stage]
        for place, (_, approved) in enumerate(unused):
            if same_json(approved, arguments):
                return place
        if not unused:
            raise ApprovalDeniedError(
                f"stage {stage!r} was approved, and has run as often as it was: an approval covers one run; ask again",
                self._newest[stage],
            )
        titles = ", ".join(repr(settled.title) for settled, _ in unused)
        raise ApprovalDeniedError(
            f"{titles} approved stage {stage!r} with other params or inputs; pass those of `then`, or ask again",
            unused[0][0],
        )


def check_deciders(who: Sequence[str], needs: int) -> None:
    """Check who may decide and how many must.

    Raises:
        ValueError: There are too many, a name is empty, or fewer may decide than have to.
    """
    if max(len(who), needs) > MAX_DECIDERS or needs < 1:
        raise ValueError(f"who has at most {MAX_DECIDERS} entries, and needs is 1 to {MAX_DECIDERS}")
    if not all(name.removeprefix(GROUP_PREFIX).strip() for name in who):
        raise ValueError(f"who holds an empty name: {[*who]}")
    names = [name for name in who if not name.startswith(GROUP_PREFIX)]
    if names and len(names) == len(who) and len({*map(normalize_name, names)}) < needs:
        raise ValueError(f"{needs} people have to approve, and only {', '.join(names)} may")


def restored_fault(settled: Settled, now: Question, default: str, *, same_texts: bool) -> str | None:
    """Return why a recorded answer does not answer the question that the code asks now, or None.

    Args:
        settled: The recorded answer.
        now: The question.
        default: What counts at its deadline.
        same_texts: Whether all that is shown must be the same, and not only who decides and how.
    """
    if settled.title != now.title:
        return f"it was made about {settled.title!r}"
    if settled.terms != now.terms:
        return "who may decide, how many must, the proof or the form has changed"
    if same_texts and settled.asked != now.asked:
        return "what is asked or shown has changed"
    if settled.via == BY_DEADLINE:
        return None if settled.choice == default else "the decision at the deadline is another one now"
    choice, votes = now.choice(settled.choice), _votes_of(settled)
    if choice is None:
        return f"{settled.choice!r} is not a choice now"
    if now.proof and not all(vote.key and vote.signature for vote in votes):
        return "not every vote is signed"
    has_group = any(name.startswith(GROUP_PREFIX) for name in now.who)
    if now.who and not has_group and not all(_is_named(vote.who, now.who) for vote in votes):
        return "somebody who may not decide voted"
    last = next((vote for vote in reversed(votes) if vote.choice == settled.choice), None)
    people = {normalize_name(vote.who) for vote in (agreeing(last, votes) if last else [])}
    needs = 1 if choice.alone else now.needs
    return f"{len(people)} of {needs} people agreed" if len(people) < needs else None


def _is_same(vote: Vote, answer: Answer) -> bool:
    if (vote.choice, normalize_name(vote.who)) != (answer.choice, normalize_name(answer.who)):
        return False
    if vote.content is not None:
        return vote.content == content_digest(answer.data, answer.signature)
    return (vote.data, vote.signature) == (answer.data, answer.signature)


def _votes_of(settled: Settled) -> list[Vote]:
    """Return the votes behind an answer; none if the deadline decided."""
    if settled.votes or settled.via == BY_DEADLINE:
        return settled.votes
    return [Vote(**{name: getattr(settled, name) for name in _VOTE_FIELDS})]


def _settled(question: str, title: str, digest: str | None, vote: Vote, **further: Any) -> Settled:
    """Return how a question was answered, or with `missing` the reply to one of several."""
    members = {name: getattr(vote, name) for name in _VOTE_FIELDS}
    return Settled(question=question, title=title, digest=digest or "", **{**members, **further})


def _size(answer: Answer) -> int:
    return len(answer.model_dump_json().encode())


def _arrival_key(answer: Answer) -> bytes:
    return sha256(answer.statement + (answer.signature or "").encode())


def _is_alone(question: Question, answer: Answer) -> bool:
    choice = question.choice(answer.choice)
    return choice is not None and choice.alone


def _too_large(entry: _Entry, answer: Answer) -> str | None:
    """Return why an answer does not fit into the record; one that decides alone always has room for its share."""
    question, size = entry.question, _size(answer)
    most = _MAX_ANSWERS_BYTES // (question.needs + 1)
    if not _is_alone(question, answer):
        if len(entry.casts) >= _MAX_VOTES:
            return f"question {question.id} has {_MAX_VOTES} votes, the most; only {_alone(question)!r} counts now"
        most = min(most, (_MAX_ANSWERS_BYTES - entry.size) // 2)
    return f"the answer has {size:,} bytes, and {most:,} is the most; shorten it" if size > most else None


def _no_choice(question: Question, answer: Answer) -> str | None:
    if question.choice(answer.choice) is not None:
        return None
    allowed = ", ".join(choice.name for choice in question.choices)
    return f"question {question.id} about {question.title!r} does not allow {answer.choice!r}; use {allowed}"


def _not_allowed(question: Question, answer: Answer) -> str | None:
    """Return why a person may not decide, as far as known without the file of deciders."""
    if question.proof and not (answer.key and answer.signature):
        return (
            f"{question.title!r} needs a signed decision; sign it with your key: `--key FILE` "
            "(`baton keys decider NAME FILE` makes one)"
        )
    has_group = any(name.startswith(GROUP_PREFIX) for name in question.who)
    if question.who and not has_group and not _is_named(answer.who, question.who):
        return (
            f"{answer.who[:_MAX_WHO_LENGTH]!r} may not decide about {question.title!r}; {', '.join(question.who)} may"
        )
    return None


def _is_named(who: str, names: list[str]) -> bool:
    return normalize_name(who) in {*map(normalize_name, names)}


def _overtaken(entry: _Entry, answer: Answer) -> str | None:
    """Return the refusal of an answer that came before one of its person that counted, or of a copy of it.

    Answers may be checked in another order than they came in, and a signed one may be sent again by anybody.
    """
    earlier = entry.casts_of(answer)
    is_signed = any(cast.vote.signature and not cast.vote.replaced for cast in earlier)
    if is_signed and answer.signature is None and not _is_alone(entry.question, answer):
        return f"{answer.who} has signed their answer, and only a signed one replaces it"
    newest = max((cast.place for cast in earlier), default=0)
    if entry.places.get(_arrival_key(answer), newest) < newest:
        return f"{answer.who} has replaced this answer; to return to it, answer again with another reason"
    return None


def _alone(question: Question) -> str:
    return next((choice.name for choice in question.choices if choice.alone), "")


def _wrong_data(entry: _Entry, question: Question, answer: Answer) -> str | None:
    """Return why what an answer holds besides its choice is refused, or why the choice cannot be done; or None."""
    form = entry.forms.get(answer.choice)
    if form is None and answer.data is not None:
        return f"{answer.choice!r} about {question.title!r} takes no data"
    try:
        filled = None if form is None else parse_form(form, answer.data)
    except ValueError as error:
        return f"{MISFIT}{error}"
    return entry.effect(answer.choice, filled)


def parse_form(form: type[BaseModel], data: Json) -> BaseModel:
    """Return the data of an answer as a record; None counts as an empty form.

    Raises:
        ValueError: The data does not fit, or cannot be recorded; the message names the fields.
    """
    if (limit := find_excess(data)) is not None:
        raise ValueError(str(limit))
    text = json.dumps({} if data is None else data, allow_nan=False)
    try:
        filled = form.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(describe_faults(error, "answer")) from None
    if faults := find_unwritable(data):
        raise ValueError("; ".join(shorten_findings(faults)))
    return filled


def _join_names(votes: list[Vote]) -> str:
    """Return the names of those who agreed, cut to the length of a name."""
    names = ", ".join(vote.who for vote in votes)
    return names if len(names) <= _MAX_WHO_LENGTH else f"{votes[0].who[:100]} and {len(votes) - 1} more"


def late_reply(settled: Settled, answer: Answer) -> Settled | str:
    """Return the reply to an answer to a question that is settled: the first one if it counted, else the refusal."""
    questions = Questions()
    questions.close(settled)
    return questions.reply(answer, "") or questions.refusal(answer, "") or settled


def _late_hint(settled: Settled) -> str:
    """Return what a person can do after a late answer."""
    step = settled.question.partition(":")[0]
    return f"a later decision changes nothing. To ask again: baton rollback RUN --to {step} --why '…'"
