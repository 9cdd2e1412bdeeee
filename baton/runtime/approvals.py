"""The rules of approvals: which decision counts for which question, without a clock or I/O.

Each decision names one question and the digest of everything shown. It counts once, and for nothing else.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from baton.core.decisions import Decided, Decision, Vote, Waiting
from baton.core.patching import same_json
from baton.core.people import GROUP_PREFIX, name_refusal, normalize_name, reason_refusal
from baton.errors import ApprovalDeniedError
from baton.wire.json_values import find_excess
from baton.wire.records import CompactRecord
from baton.wire.text import describe_faults

CHECK_DECISION = "baton.check_decision"
"""The activity that checks whether a person may decide, and their signature."""
NOT_ALLOWED = "DecisionNotAllowed"
"""The error type for a decision that a worker checked and rejected; retrying does not help."""
MAX_ASKS_LENGTH = 2_000
"""The most characters of an approval's question."""
MAX_DECIDERS = 100
"""The most entries of `who`, and the largest quorum."""
_MAX_FORM_LENGTH = 16 * 1024
_MAX_WHO_LENGTH = 200
_DEADLINE = "deadline"
_VOTE_FIELDS = ("who", "approved", "why", "at", "via", "answer")
_DECISION_FIELDS, _PROOF_FIELDS = ("who", "approved", "why", "answer"), ("key", "signature")


class DecisionCheck(CompactRecord):
    """A decision for a worker to check against its file of deciders.

    Attributes:
        decision: The decision.
        who: Who may decide, names and groups; anybody if empty.
        proof: Whether the decision must be signed.
    """

    decision: Decision
    who: list[str]
    proof: bool


@dataclass
class _Question:
    """An open question and its votes so far."""

    waiting: Waiting
    form: type[BaseModel] | None = None
    votes: list[tuple[str, Vote]] = field(default_factory=list)  # each with the digest it was made on
    decided: Decided | None = None


class Docket:
    """The questions of a pipeline: open ones with their votes, closed ones with their outcomes."""

    def __init__(self) -> None:
        self._open: dict[str, _Question] = {}
        self._closed: dict[str, Decided] = {}

    def titles(self) -> list[str]:
        """Return the titles of the open questions."""
        return [question.waiting.name for question in self._open.values()]

    def open(self, waiting: Waiting, form: type[BaseModel] | None = None) -> None:
        """Open a question.

        Raises:
            ValueError: Another question with this title is open, or a part of it is too large.
        """
        if waiting.name in self.titles():
            raise ValueError(f"an approval {waiting.name!r} is already open; give the second one another title")
        if waiting.asks is not None and len(waiting.asks) > MAX_ASKS_LENGTH:
            raise ValueError(
                f"asks has {len(waiting.asks):,} characters, at most {MAX_ASKS_LENGTH:,} fit; move the rest to shows"
            )
        if max(len(waiting.who), waiting.needs) > MAX_DECIDERS or waiting.needs < 1:
            raise ValueError(f"who has at most {MAX_DECIDERS} entries, and needs is 1 to {MAX_DECIDERS}")
        if not all(name.removeprefix(GROUP_PREFIX).strip() for name in waiting.who):
            raise ValueError(f"who holds an empty name: {waiting.who}")
        names = [name for name in waiting.who if not name.startswith(GROUP_PREFIX)]
        if names and len(names) == len(waiting.who) and len({*map(normalize_name, names)}) < waiting.needs:
            raise ValueError(f"{waiting.needs} people have to approve, and only {', '.join(names)} may")
        if waiting.answer is not None and len(json.dumps(waiting.answer)) > _MAX_FORM_LENGTH:
            raise ValueError(f"the JSON Schema of answer has more than {_MAX_FORM_LENGTH:,} characters; ask for less")
        self._open[waiting.question or ""] = _Question(waiting, form)

    def waiting(self, baton: str) -> list[Waiting]:
        """Return the open questions, each with its current digest and the votes that still count."""
        return [self._current(question, baton) for question in self._open.values()]

    def withdraw(self, question: str) -> None:
        """Close a question and store its outcome, if any."""
        closed = self._open.pop(question)
        if closed.decided is not None:
            self.close(closed.decided)

    def close(self, decided: Decided) -> None:
        """Store the outcome of a question, also one of an earlier run."""
        self._closed[decided.question] = decided

    def decided(self, question: str) -> Decided | None:
        """Return the outcome of a question, or None."""
        pending = self._open.get(question)
        return pending.decided if pending is not None else self._closed.get(question)

    def answer(self, decision: Decision, baton: str) -> Decided | None:
        """Return the earlier reply to the same decision, if it counted."""
        id = decision.question or ""
        final, question = self.decided(id), self._open.get(id)
        if question is not None:
            current = question.waiting.digest_with(baton)
            votes = [vote for vote in question.votes if final is not None or vote[0] == current]
            needs = question.waiting.needs
        else:
            votes = [] if final is None else [(final.digest, vote) for vote in _votes_of(final)]
            needs = len(votes)
        for place, (digest, vote) in enumerate(votes, start=1):
            if digest == decision.digest and _is_same(vote, decision):
                if final is not None and place == len(votes) and final.via == vote.via:
                    return final if final.approval == decision.approval else None
                return _decided(decision.approval, id, digest, vote, missing=max(needs - place, 1))
        return None

    def refusal(self, decision: Decision, baton: str) -> str | None:
        """Return why a decision does not count, or None; a decision that was already counted is not rejected."""
        if self.answer(decision, baton) is not None:
            return None
        if refusal := reason_refusal(decision.why):
            return refusal
        outcome = self.decided(decision.question or "")
        if outcome is not None:
            return f"question {outcome.question} was answered: {describe_outcome(outcome)}; {_late_hint(outcome)}"
        question = self._open.get(decision.question or "")
        if question is None or question.waiting.name != decision.approval:
            return self._not_open(decision)
        current = self._current(question, baton)
        if decision.digest != current.digest:
            basis = "nothing that was shown" if decision.digest is None else f"{decision.digest[:19]}…"
            return (
                f"the decision was made on {basis}, but {(current.digest or '')[:19]}… is shown now; look at it "
                "again and decide on that"
            )
        return (
            name_refusal(decision.who)
            or _not_allowed(current, decision)
            or _second_vote(current, decision)
            or _wrong_answer(question, current, decision)
        )

    def check(self, decision: Decision, baton: str) -> DecisionCheck | None:
        """Return what a worker has to check before a decision counts, or None."""
        question = self._open.get(decision.question or "")
        if question is None or self.answer(decision, baton) is not None:
            return None
        waiting = question.waiting
        may_decide = not waiting.who or _is_named(decision.who, waiting.who)
        if may_decide and not waiting.proof and decision.signature is None:
            return None
        return DecisionCheck(decision=decision, who=waiting.who, proof=waiting.proof)

    def count(self, decision: Decision, at: datetime, via: str, baton: str) -> Decided:
        """Count a valid decision and return the reply; a repeated one has no effect."""
        earlier = self.answer(decision, baton)
        if earlier is not None:
            return earlier
        question = self._open[decision.question or ""]
        current = self._current(question, baton)
        id, needs, digest = current.question, current.needs, current.digest or ""
        # A key without a signature proves nothing.
        names = (*_DECISION_FIELDS, *_PROOF_FIELDS) if decision.signature else _DECISION_FIELDS
        vote = Vote(at=at, via=via, **{name: getattr(decision, name) for name in names})
        votes = [*current.votes, vote]
        question.votes = [(digest, each) for each in votes]
        if vote.approved and len(votes) < needs:
            return _decided(decision.approval, id, digest, vote, missing=needs - len(votes))
        recorded = votes if len(votes) > 1 or needs > 1 or vote.signature else []
        who = _join_names(votes) if vote.approved else vote.who
        asked = {"asked": question.waiting.asked, "terms": question.waiting.terms}
        question.decided = _decided(decision.approval, id, digest, vote, who=who, votes=recorded, **asked)
        return question.decided

    def expire(self, question: str, default: bool, within: timedelta, at: datetime, baton: str) -> Decided:
        """Decide a question by its deadline, unless a person did in the same workflow task."""
        expired = self._open[question]
        if expired.decided is None:
            current = self._current(expired, baton)
            votes = f"; {len(current.votes)} of {current.needs} had approved" if current.needs > 1 else ""
            why = f"no decision within {within}{votes}"
            vote = Vote(who=_DEADLINE, approved=default, why=why, at=at, via=_DEADLINE)
            asked = {"asked": expired.waiting.asked, "terms": expired.waiting.terms}
            expired.decided = _decided(current.name, question, current.digest, vote, votes=current.votes, **asked)
        return expired.decided

    def whole(self, question: str, baton: str) -> Waiting:
        """Return the current state of an open question, with whole texts; votes on another baton no longer count."""
        entry = self._open[question]
        digest = entry.waiting.digest_with(baton)
        votes = [vote for vote_digest, vote in entry.votes if vote_digest == digest]
        return entry.waiting.model_copy(update={"digest": digest, "votes": votes})

    def _current(self, question: _Question, baton: str) -> Waiting:
        """Return the current state of a question, with excerpts of its texts."""
        return self.whole(question.waiting.question or "", baton).excerpt

    def shown_text(self, question: str, place: int) -> str:
        """Return the full text of an exhibit of an open question, counted from 1; empty if there is none."""
        pending = self._open.get(question)
        return pending.waiting.shows[place - 1].text if pending and 0 < place <= len(pending.waiting.shows) else ""

    def _not_open(self, decision: Decision) -> str:
        """Return the refusal of a decision on a question that is not open."""
        closed = [outcome for outcome in self._closed.values() if outcome.approval == decision.approval]
        outcome = closed[-1] if closed else None
        last = f"; the last one was answered: {describe_outcome(outcome)}; {_late_hint(outcome)}" if outcome else ""
        if decision.question is None and decision.approval in self.titles():
            reason = "the decision names no question"
        elif decision.question is None:
            reason = f"no approval {decision.approval!r} is open{last}"
        else:
            reason = f"question {decision.question[:80]} of approval {decision.approval!r} is not open{last}"
        questions = ", ".join(f"{question.waiting.name!r} (question {id})" for id, question in self._open.items())
        return f"{reason}; open now: {questions or 'none'}"


class ApprovedStages:
    """The stages that people approved with exact arguments: from then on, each run needs an approval of its own."""

    def __init__(self) -> None:
        self._unused: dict[str, list[tuple[Decided, dict[str, Any]]]] = {}  # by stage, the oldest first
        self._newest: dict[str, Decided] = {}

    def add(self, stage: str, decided: Decided, arguments: dict[str, Any]) -> None:
        """Let a stage run once with the approved arguments."""
        self._unused.setdefault(stage, []).append((decided, arguments))
        self._newest[stage] = decided

    def use(self, stages: Sequence[str], arguments: dict[str, Any]) -> None:
        """Use up the oldest fitting approval of each approved stage.

        Raises:
            ApprovalDeniedError: A stage has no fitting approval; none was used up.
        """
        queues = [(self._unused[stage], self._find(stage, arguments)) for stage in stages if stage in self._unused]
        for queue, place in queues:
            del queue[place]

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
        titles = ", ".join(repr(decided.approval) for decided, _ in unused)
        raise ApprovalDeniedError(
            f"{titles} approved stage {stage!r} with other params or inputs; pass those of `then`, or ask again",
            unused[0][0],
        )


def restored_fault(decided: Decided, now: Waiting, default: bool, *, same_texts: bool) -> str | None:
    """Return why a recorded decision does not answer the question that the code asks now, or None.

    Args:
        decided: The recorded decision.
        now: The question.
        default: What counts at its deadline.
        same_texts: Whether all that is shown must be the same, and not only who decides and how.
    """
    if decided.approval != now.name:
        return f"it was made about {decided.approval!r}"
    if decided.terms != now.terms:
        return "who may decide, how many must, the proof or the form has changed"
    if same_texts and decided.asked != now.asked:
        return "what is asked or shown has changed"
    if decided.via == _DEADLINE:
        return None if decided.approved is default else "the decision at the deadline is another one now"
    votes = _votes_of(decided)
    if now.proof and not all(vote.key and vote.signature for vote in votes):
        return "not every vote is signed"
    has_group = any(name.startswith(GROUP_PREFIX) for name in now.who)
    if now.who and not has_group and not all(_is_named(vote.who, now.who) for vote in votes):
        return "somebody who may not decide voted"
    people = {normalize_name(vote.who) for vote in votes if vote.approved}
    if decided.approved and (len(people) < now.needs or not all(vote.approved for vote in votes)):
        return f"{len(people)} of {now.needs} people approved"
    return None


def _is_same(vote: Vote, decision: Decision) -> bool:
    same = (vote.approved, normalize_name(vote.who), vote.answer) == (
        decision.approved,
        normalize_name(decision.who),
        decision.answer,
    )
    return same and vote.signature == decision.signature


def _votes_of(decided: Decided) -> list[Vote]:
    """Return the votes behind an outcome; none if the deadline decided."""
    if decided.votes or decided.via == _DEADLINE:
        return decided.votes
    return [Vote(**{name: getattr(decided, name) for name in _VOTE_FIELDS})]


def _decided(approval: str, question: str | None, digest: str | None, vote: Vote, **further: Any) -> Decided:
    """Return the outcome of a question, or with `missing` the reply to one of several approvers."""
    members = {name: getattr(vote, name) for name in _VOTE_FIELDS}
    return Decided(approval=approval, question=question or "", digest=digest or "", **{**members, **further})


def _not_allowed(waiting: Waiting, decision: Decision) -> str | None:
    """Return why a person may not decide, as far as known without the file of deciders."""
    if waiting.proof and not (decision.key and decision.signature):
        return (
            f"approval {waiting.name!r} needs a signed decision; sign it with your key: `baton approve … --key FILE` "
            "(`baton keys decider NAME FILE` makes one)"
        )
    has_group = any(name.startswith(GROUP_PREFIX) for name in waiting.who)
    if waiting.who and not has_group and not _is_named(decision.who, waiting.who):
        return f"{decision.who[:_MAX_WHO_LENGTH]!r} may not decide about {waiting.name!r}; {', '.join(waiting.who)} may"
    return None


def _is_named(who: str, names: list[str]) -> bool:
    return normalize_name(who) in {*map(normalize_name, names)}


def _second_vote(waiting: Waiting, decision: Decision) -> str | None:
    """Return the refusal if the person has already approved."""
    if not _is_named(decision.who, [vote.who for vote in waiting.votes]):
        return None
    missing = waiting.needs - len(waiting.votes)
    return (
        f"{decision.who} approved question {waiting.question} already, and counts once; {missing} more must approve, "
        "or one deny"
    )


def _wrong_answer(question: _Question, waiting: Waiting, decision: Decision) -> str | None:
    """Return why a filled-in form is rejected, or None."""
    if not decision.approved or question.form is None:
        return None if decision.answer is None else "only an approval that asks for an answer takes one, with a yes"
    try:
        answer = parse_form(question.form, decision.answer)
    except ValueError as error:
        return f"the answer does not fit: {error}"
    first = waiting.votes[0] if waiting.votes else None
    if first is not None and parse_form(question.form, first.answer) != answer:
        return f"the answer differs from that of {first.who}, {json.dumps(first.answer)[:500]}; give the same, or deny"
    return None


def parse_form(form: type[BaseModel], answer: Any) -> BaseModel:
    """Return an answer as a record; None counts as an empty form.

    Raises:
        ValueError: The answer does not fit; the message names the fields.
    """
    if (limit := find_excess(answer)) is not None:
        raise ValueError(str(limit))
    try:
        return form.model_validate_json(json.dumps({} if answer is None else answer))
    except ValidationError as error:
        raise ValueError(describe_faults(error, "answer")) from None


def _join_names(votes: list[Vote]) -> str:
    """Return the names of the approvers, cut to the length of a name."""
    names = ", ".join(vote.who for vote in votes)
    return names if len(names) <= _MAX_WHO_LENGTH else f"{votes[0].who[:100]} and {len(votes) - 1} more"


def late_reply(decided: Decided, decision: Decision) -> Decided | str:
    """Return the reply to a decision on a question that is decided: the first one if it counted, else the refusal."""
    docket = Docket()
    docket.close(decided)
    return docket.answer(decision, "") or docket.refusal(decision, "") or decided


def describe_outcome(outcome: Decided) -> str:
    """Return how an approval was decided, by whom and when."""
    verb = "approved" if outcome.approved else "denied"
    return f"{outcome.approval!r} was {verb} by {outcome.who} at {outcome.at:%Y-%m-%d %H:%M:%S}Z"


def _late_hint(outcome: Decided) -> str:
    """Return what a person can do after a late decision."""
    step = outcome.question.partition(":")[0]
    return f"a later decision changes nothing. To ask again: baton rollback RUN --to {step} --why '…'"
