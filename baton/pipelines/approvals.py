"""The rules of approvals: which decision counts for which question. No clock, no I/O: a test can step it by hand.

A question is answered by people who were asked it: each decision names the question and the digest of all that was
shown, counts once, and counts for nothing else.
"""

import json
import unicodedata
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from baton.core.messages import Decided, Decision, Vote, Waiting
from baton.handoff.pending import name_refusal, reason_refusal
from baton.wire.json_values import find_excess
from baton.wire.records import CompactRecord
from baton.wire.text import describe_faults

CHECK_DECISION = "baton.check_decision"
"""The activity that says whether a person may decide, and whether a signature is theirs."""
NOT_ALLOWED = "DecisionNotAllowed"
"""The type of the failure of a decision that a worker checked and refused; to send it again does not help."""
GROUP_PREFIX = "group:"
"""What a group's name in `who` begins with."""
MAX_ASKS_LENGTH = 2_000
"""How many characters the question of an approval may have."""
MAX_DECIDERS = 100
"""How many names and groups `who` may have, and how many people a quorum."""
_LONGEST_FORM = 16 * 1024
_LONGEST_WHO = 200
_DEADLINE = "deadline"
_OF_A_VOTE = ("who", "approved", "why", "at", "via", "answer")
_OF_A_DECISION, _PROOF = ("who", "approved", "why", "answer"), ("key", "signature")


class DecisionCheck(CompactRecord):
    """What a worker checks of a decision, by its file of deciders.

    Attributes:
        decision: The decision.
        who: Who may decide, names and groups; anybody if there are none.
        proof: Whether it must be signed.
    """

    decision: Decision
    who: list[str]
    proof: bool


@dataclass
class _Asked:
    """A question that is open, and what was decided about it so far."""

    waiting: Waiting
    form: type[BaseModel] | None = None
    votes: list[tuple[str, Vote]] = field(default_factory=list)  # each with the digest that it was made on
    decided: Decided | None = None


class Docket:
    """The questions of a pipeline: open ones with the votes so far, closed ones with their answers."""

    def __init__(self) -> None:
        self._open: dict[str, _Asked] = {}
        self._closed: dict[str, Decided] = {}

    def titles(self) -> list[str]:
        """Return the titles of the open questions."""
        return [one.waiting.name for one in self._open.values()]

    def open(self, waiting: Waiting, form: type[BaseModel] | None = None) -> None:
        """Ask a question.

        Raises:
            ValueError: Another one with its title is open, or it is larger than a question may be.
        """
        if waiting.name in self.titles():
            raise ValueError(f"an approval {waiting.name!r} is open already; give the second one another title")
        if waiting.asks is not None and len(waiting.asks) > MAX_ASKS_LENGTH:
            raise ValueError(
                f"asks has {len(waiting.asks):,} characters; expected at most {MAX_ASKS_LENGTH:,}, the rest in shows"
            )
        if max(len(waiting.who), waiting.needs) > MAX_DECIDERS or waiting.needs < 1:
            raise ValueError(f"who has at most {MAX_DECIDERS} entries, and needs is 1 to {MAX_DECIDERS}")
        if not all(one.removeprefix(GROUP_PREFIX).strip() for one in waiting.who):
            raise ValueError(f"who holds an empty name: {waiting.who}")
        named = [one for one in waiting.who if not one.startswith(GROUP_PREFIX)]
        if named and len(named) == len(waiting.who) and len({*map(normalize_name, named)}) < waiting.needs:
            raise ValueError(f"{waiting.needs} people have to approve, and only {', '.join(named)} may")
        if waiting.answer is not None and len(json.dumps(waiting.answer)) > _LONGEST_FORM:
            raise ValueError(f"the JSON Schema of the answer has more than {_LONGEST_FORM:,} characters; ask for less")
        self._open[waiting.question or ""] = _Asked(waiting, form)

    def waiting(self, baton: str) -> list[Waiting]:
        """Return the open questions with their digests, given that of the baton, and the votes that still count."""
        return [self._now(one, baton) for one in self._open.values()]

    def withdraw(self, question: str) -> None:
        """Close a question; what was decided about it is remembered."""
        one = self._open.pop(question)
        if one.decided is not None:
            self.close(one.decided)

    def close(self, decided: Decided) -> None:
        """Remember how a question was answered, also one of an earlier run."""
        self._closed[decided.question] = decided

    def decided(self, question: str) -> Decided | None:
        """Return how a question was answered, if it was."""
        one = self._open.get(question)
        return one.decided if one is not None else self._closed.get(question)

    def answer(self, decision: Decision, baton: str) -> Decided | None:
        """Return what the same decision was answered before, if it counts."""
        question = decision.question or ""
        final, one = self.decided(question), self._open.get(question)
        if one is not None:
            now = one.waiting.digest_with(baton)
            votes = [vote for vote in one.votes if final is not None or vote[0] == now]
            needs = one.waiting.needs
        else:
            votes = [] if final is None else [(final.digest, vote) for vote in _votes_of(final)]
            needs = len(votes)
        for place, (digest, vote) in enumerate(votes, start=1):
            if digest == decision.digest and _is_same(vote, decision):
                if final is not None and place == len(votes) and final.via == vote.via:
                    return final if final.approval == decision.approval else None
                return _decided(decision.approval, question, digest, vote, missing=max(needs - place, 1))
        return None

    def refusal(self, decision: Decision, baton: str) -> str | None:
        """Return why a decision does not count, or None; one that was counted already is not refused."""
        if self.answer(decision, baton) is not None:
            return None
        if unfit := reason_refusal(decision.why):
            return unfit
        ended = self.decided(decision.question or "")
        if ended is not None:
            return f"question {ended.question} was answered: {_shown(ended)}; {_late(ended)}"
        one = self._open.get(decision.question or "")
        if one is None or one.waiting.name != decision.approval:
            return self._not_open(decision)
        now = self._now(one, baton)
        if decision.digest != now.digest:
            looked = "nothing that was shown" if decision.digest is None else f"{decision.digest[:19]}…"
            return (
                f"the decision was made on {looked}, but what is shown is {(now.digest or '')[:19]}… now; look at it "
                "again and decide on that"
            )
        return (
            name_refusal(decision.who)
            or _not_allowed(now, decision)
            or _second_vote(now, decision)
            or _wrong_answer(one, now, decision)
        )

    def check(self, decision: Decision, baton: str) -> DecisionCheck | None:
        """Return what a worker has to check of a decision before it counts; None if nothing."""
        one = self._open.get(decision.question or "")
        if one is None or self.answer(decision, baton) is not None:
            return None
        asked = one.waiting
        named = not asked.who or normalize_name(decision.who) in {*map(normalize_name, asked.who)}
        if named and not asked.proof and decision.signature is None:
            return None
        return DecisionCheck(decision=decision, who=asked.who, proof=asked.proof)

    def count(self, decision: Decision, at: datetime, via: str, baton: str) -> Decided:
        """Count a decision that is not refused, and return what it is answered; a repeated one changes nothing."""
        before = self.answer(decision, baton)
        if before is not None:
            return before
        one = self._open[decision.question or ""]
        now = self._now(one, baton)
        digest = now.digest or ""
        said = (*_OF_A_DECISION, *_PROOF) if decision.signature else _OF_A_DECISION  # a key alone proves nothing
        vote = Vote(at=at, via=via, **{name: getattr(decision, name) for name in said})
        votes = [*now.votes, vote]
        one.votes = [(digest, each) for each in votes]
        missing = one.waiting.needs - len(votes)
        if vote.approved and missing > 0:
            return _decided(decision.approval, one.waiting.question, digest, vote, missing=missing)
        kept = votes if len(votes) > 1 or one.waiting.needs > 1 or vote.signature else []
        who = _names(votes) if vote.approved else vote.who
        one.decided = _decided(decision.approval, one.waiting.question, digest, vote, who=who, votes=kept)
        return one.decided

    def expire(self, question: str, default: bool, within: timedelta, at: datetime, baton: str) -> Decided:
        """Decide a question by its deadline, unless a person did in the same workflow task."""
        one = self._open[question]
        if one.decided is None:
            now = self._now(one, baton)
            votes = f"; {len(now.votes)} of {now.needs} had approved" if now.needs > 1 else ""
            why = f"no decision within {within}{votes}"
            silence = Vote(who=_DEADLINE, approved=default, why=why, at=at, via=_DEADLINE)
            one.decided = _decided(now.name, question, now.digest, silence, votes=now.votes)
        return one.decided

    def _now(self, one: _Asked, baton: str) -> Waiting:
        """Return a question as it is asked now; votes that were made on another baton do not count any more."""
        digest = one.waiting.digest_with(baton)
        votes = [vote for made_on, vote in one.votes if made_on == digest]
        shows = [shown.excerpt for shown in one.waiting.shows]
        return one.waiting.model_copy(update={"digest": digest, "votes": votes, "shows": shows})

    def shown_text(self, question: str, place: int) -> str:
        """Return the whole text of one thing that an open question shows, counted from 1; nothing if it is closed."""
        one = self._open.get(question)
        return one.waiting.shows[place - 1].text if one and 0 < place <= len(one.waiting.shows) else ""

    def _not_open(self, decision: Decision) -> str:
        """Return that a question is not open, and what is."""
        titled = [one for one in self._closed.values() if one.approval == decision.approval]
        known = f"; the last one was answered: {_shown(titled[-1])}; {_late(titled[-1])}" if titled else ""
        if decision.question is None and decision.approval in self.titles():
            what = "the decision names no question"
        elif decision.question is None:
            what = f"no approval {decision.approval!r} is open{known}"
        else:
            what = f"question {decision.question[:80]} of approval {decision.approval!r} is not open{known}"
        opened = ", ".join(f"{one.waiting.name!r} (question {id})" for id, one in self._open.items())
        return f"{what}; open now: {opened or 'none'}"


def normalize_name(name: str) -> str:
    """Return a name in the form in which two names are compared: case, width and blanks make no two people."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _is_same(vote: Vote, decision: Decision) -> bool:
    same = (vote.approved, normalize_name(vote.who), vote.answer) == (
        decision.approved,
        normalize_name(decision.who),
        decision.answer,
    )
    return same and vote.signature == decision.signature


def _votes_of(decided: Decided) -> list[Vote]:
    """Return the decisions that answered a question: none if its deadline did."""
    if decided.votes or decided.via == _DEADLINE:
        return decided.votes
    return [Vote(**{name: getattr(decided, name) for name in _OF_A_VOTE})]


def _decided(approval: str, question: str | None, digest: str | None, vote: Vote, **further: Any) -> Decided:
    """Return what a decision amounts to: the end of a question, or, with some `missing`, that it counted."""
    said = {name: getattr(vote, name) for name in _OF_A_VOTE}
    return Decided(approval=approval, question=question or "", digest=digest or "", **{**said, **further})


def _not_allowed(now: Waiting, decision: Decision) -> str | None:
    """Return that a person may not decide, as far as that is known without the file of deciders."""
    if now.proof and not (decision.key and decision.signature):
        return (
            f"approval {now.name!r} needs a signed decision; sign it with your key: `baton approve … --key FILE` "
            "(`baton keys decider NAME FILE` makes one)"
        )
    if (
        now.who
        and not any(one.startswith(GROUP_PREFIX) for one in now.who)
        and normalize_name(decision.who) not in {*map(normalize_name, now.who)}
    ):
        return f"{decision.who[:_LONGEST_WHO]!r} may not decide about {now.name!r}; {', '.join(now.who)} may"
    return None


def _second_vote(now: Waiting, decision: Decision) -> str | None:
    """Return that a person has decided about the question already."""
    mine = next((vote for vote in now.votes if normalize_name(vote.who) == normalize_name(decision.who)), None)
    if mine is None:
        return None
    left = now.needs - len(now.votes)
    return (
        f"{mine.who} approved question {now.question} already, and counts once; {left} more must approve, or one deny"
    )


def _wrong_answer(one: _Asked, now: Waiting, decision: Decision) -> str | None:
    """Return what is wrong with the form that was filled in."""
    if not decision.approved or one.form is None:
        return None if decision.answer is None else "only an approval that asks for an answer takes one, with a yes"
    try:
        filled = parse_form(one.form, decision.answer)
    except ValueError as error:
        return f"the answer does not fit: {error}"
    for vote in now.votes[:1]:
        if parse_form(one.form, vote.answer) != filled:
            return (
                f"the answer differs from that of {vote.who}, {json.dumps(vote.answer)[:500]}; give the same, or deny"
            )
    return None


def parse_form(form: type[BaseModel], answer: Any) -> BaseModel:
    """Return an answer as a record; no answer is an empty form.

    Raises:
        ValueError: It does not fit; names the fields.
    """
    if (found := find_excess(answer)) is not None:
        raise ValueError(str(found))
    try:
        return form.model_validate_json(json.dumps({} if answer is None else answer))
    except ValidationError as error:
        raise ValueError(describe_faults(error, "answer")) from None


def _names(votes: list[Vote]) -> str:
    """Return who approved, in a name's length."""
    names = ", ".join(vote.who for vote in votes)
    return names if len(names) <= _LONGEST_WHO else f"{votes[0].who[:100]} and {len(votes) - 1} more"


def _shown(answer: Decided) -> str:
    verb = "approved" if answer.approved else "denied"
    return f"{answer.approval!r} was {verb} by {answer.who} at {answer.at:%Y-%m-%d %H:%M:%S}Z"


def _late(answer: Decided) -> str:
    """Return what a person may do whose decision came too late."""
    step = answer.question.partition(":")[0]
    return f"a decision that comes now changes nothing. To ask again: baton rollback RUN --to {step} --why '…'"
