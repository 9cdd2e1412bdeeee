"""What a run asks people and how they answer: an approval, or what becomes of a handoff that waits.

Questions are in the run's memo and history, so that readers need neither a worker nor a query.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from baton.core.exhibits import Exhibit
from baton.core.pending import FORMS, HandoffAction, PendingHandoff
from baton.core.people import GROUP_PREFIX, normalize_name
from baton.wire.json_values import Json, canonical_json, digest, format_digest, pae, sha256
from baton.wire.records import CompactRecord, Count, Integer, Name, Timestamp

FormT = TypeVar("FormT", bound=BaseModel)

APPROVE = "approve"
"""The choice that lets an approval's work continue."""
DENY = "deny"
"""The choice that forbids it."""
BY_DEADLINE = "deadline"
"""Who decided, and `Settled.via`, where the deadline decided."""
MISFIT = "the answer does not fit: "
"""The beginning of a refusal of what was filled in; `describe_faults` tells the rest."""
ASKED = "baton.asked"
"""The activity whose input is a question that its run's memo holds in part."""
MAX_MEMO_BYTES = 1_600
"""The size of a run's questions in its memo: every list of runs carries it, and the SDK warns of more than 2,048."""
_MIN_SHARE = 500  # of one of several questions, in bytes
_LENGTHS = (300, 100, 30)  # of the texts of a question that is cut, in characters
_MAX_CUT_ENTRIES = 5
_MAX_DEFAULTS_BYTES = 400  # of all that a form's factories make: with the questions, less than the SDK warns of
_MAX_TITLE_LENGTH = 200
_VERBS = {
    APPROVE: "approved",
    DENY: "denied",
    HandoffAction.RELEASE: "released",
    HandoffAction.TOP_UP: "topped up",
    HandoffAction.REQUEUE: "requeued",
    HandoffAction.EDIT: "edited",
    HandoffAction.ABANDON: "abandoned",
}


class Choice(CompactRecord):
    """A possible answer.

    Attributes:
        name: `"approve"` or `"deny"`; about a handoff a `HandoffAction`.
        form: The JSON Schema of the data that an answer with this choice has; None if it has none.
        alone: Whether one person is enough, however many must agree on another choice.
        defaults: What the factories of the form's model made for its fields when this was asked. A suggestion: no
            digest covers it, because a factory may make something else when the run is replayed.
    """

    name: Name
    form: dict[str, Json] | None = None
    alone: bool = False
    defaults: dict[str, Json] = Field(default_factory=dict)

    @property
    def filled_form(self) -> dict[str, Json] | None:
        """The form, with what factories made as defaults of its fields."""
        fields = (self.form or {}).get("properties")
        if not isinstance(fields, dict):
            return self.form
        made = {name: {"default": value} for name, value in self.defaults.items() if name in fields}
        filled = {
            name: {**schema, **made.get(name, {})} if isinstance(schema, dict) else schema
            for name, schema in fields.items()
        }
        return {**(self.form or {}), "properties": filled}


class Vote(CompactRecord):
    """One person's answer.

    Attributes:
        who: The person.
        choice: Their choice.
        why: Their reason.
        at: When it was counted (workflow time).
        via: `"update"` or `"signal"`.
        data: What the choice's form asks for.
        key: The id of the key that signed the answer, verified by a worker; absent if unsigned.
        signature: The signature over `Answer.statement`.
        content: Where data or signature are left out, the digest of both (`content_digest`).
        answer: The number of its answer: votes with the same choice and the same filled-in form have the same number.
        replaced: Whether the person voted again later; it does not count any more.
    """

    who: Name
    choice: Name
    why: str = ""
    at: Timestamp
    via: str
    data: Json = None
    content: str | None = None
    key: str | None = None
    signature: str | None = None
    answer: Count = 0
    replaced: bool = False

    @property
    def verb(self) -> str:
        """What the person chose, as a past participle such as `approved`."""
        return _verb_of(self.choice)


class Answer(CompactRecord):
    """A person's answer to a question: the argument of the update and signal `answer`.

    Attributes:
        choice: One of the question's choices.
        who: The person.
        why: Their reason.
        question: The question's id; an answer to another question is refused. `baton.client.decide` reads it from the
            run by default, and takes a title or a handoff's id as well.
        digest: The digest of everything shown; an answer about anything else is refused. Read from the run by default.
        data: What the choice's form asks for.
        key: The id of the key that signed the answer.
        signature: The signature over `statement`, in base64url.

    Example:
        >>> Answer(choice="approve", who="ann", why="tests are green").choice
        'approve'
    """

    choice: Name
    who: Name
    why: str = ""
    question: str | None = None
    digest: str | None = None
    data: Json = None
    key: str | None = None
    signature: str | None = None

    @property
    def statement(self) -> bytes:
        """The signed bytes: the answer without its signature, bound to its purpose."""
        return pae("application/vnd.baton.answer+json", canonical_json(self.model_dump(exclude={"signature"})))


class Settled(CompactRecord):
    """How a question was answered, as `Pipeline.approve` and `Pipeline.ask` return it.

    Attributes:
        question: The question's id.
        title: The question's title.
        choice: What was chosen.
        who: The person, or the people, or `"deadline"`.
        why: The reason.
        at: When it was decided (workflow time).
        digest: The digest of everything shown.
        via: `"update"`, `"signal"` or `"deadline"`.
        data: What the choice's form asks for; `answer_as` returns it typed.
        content: Where a memo leaves out the data, the digest of it (`content_digest`).
        missing: How many more people have to agree; above zero only in the reply to one of several.
        votes: Each person's answer in order, replaced ones too, if several had to agree or an answer was signed.
        asked: The digest of what was shown and asked, without the baton (`Question.asked`).
        terms: The digest of who had to decide and how (`Question.terms`).
        handoff_id: The handoff, if the question was about one.
    """

    question: str
    title: Name
    choice: Name
    who: Name
    why: str = ""
    at: Timestamp
    digest: str
    via: str
    data: Json = None
    content: str | None = None
    missing: Integer = Field(default=0, ge=0)
    votes: list[Vote] = Field(default_factory=list)
    asked: str = ""
    terms: str = ""
    handoff_id: str | None = None

    @property
    def approved(self) -> bool:
        """Whether the answer is a yes."""
        return self.choice == APPROVE

    @property
    def verb(self) -> str:
        """What was done, as a past participle such as `approved`."""
        return _verb_of(self.choice)

    @property
    def micro_usd(self) -> int:
        """The amount of a top-up, in millionths of a US dollar."""
        amount = self.data.get("micro_usd") if isinstance(self.data, dict) else None
        return amount if self.choice == HandoffAction.TOP_UP and isinstance(amount, int) else 0

    @property
    def text(self) -> str:
        """What was decided, by whom and when."""
        return f"{self.title!r} was {self.verb} by {self.who} at {self.at:%Y-%m-%d %H:%M:%S}Z"

    def answer_as(self, form: type[FormT]) -> FormT:
        """Return the data as the model that was passed to `Pipeline.approve`."""
        return form.model_validate_json(json.dumps(self.data))


class Question(CompactRecord):
    """A question to people: an approval, or what becomes of a handoff.

    Attributes:
        id: The step and a nonce. Each answer names one question.
        seq: The number of its step.
        title: The approval's title, or the handoff's sender and receiver.
        asks: The text of an approval's question.
        since: When it was asked (workflow time).
        until: The deadline.
        choices: The possible answers.
        shows: What an approval shows; in a list with long texts cut.
        handoff: The handoff that it is about; None for an approval.
        needs: How many different people have to agree.
        who: Who may decide, names and `group:` names; anybody if empty.
        proof: Whether only signed answers count.
        votes: The vote of each person so far.
        digest: The digest of everything shown and asked, and of the baton; answers are bound to it.
        is_whole: Whether nothing is cut.
    """

    id: str
    seq: Integer
    title: Name
    asks: str = ""
    since: Timestamp
    until: Timestamp
    choices: list[Choice]
    shows: list[Exhibit] = Field(default_factory=list)
    handoff: PendingHandoff | None = None
    needs: Integer = Field(default=1, ge=1)
    who: list[str] = Field(default_factory=list)
    proof: bool = False
    votes: list[Vote] = Field(default_factory=list)
    digest: str | None = None
    is_whole: bool = True

    @property
    def text(self) -> str:
        """What is asked, or why the handoff waits."""
        return self.handoff.details if self.handoff else self.asks

    @property
    def subject(self) -> str:
        """What it is about: the id of the handoff, or of an approval its own id."""
        return self.handoff.handoff_id if self.handoff else self.id

    @property
    def form(self) -> dict[str, Json] | None:
        """The JSON Schema of what an approver fills in, with all defaults that are known; or None."""
        choice = self.choice(APPROVE)
        return choice.filled_form if choice else None

    @property
    def forms(self) -> dict[str, dict[str, Json] | None]:
        """The form of each choice: questions with the same ones take the same answers."""
        return {choice.name: choice.form for choice in self.choices}

    @property
    def terms(self) -> str:
        """The digest of who decides and how, as a restored answer must have it."""
        choices = [choice.model_dump(exclude={"defaults"}) for choice in self.choices]
        return digest({"choices": choices, "needs": self.needs, "who": self.who, "proof": self.proof})

    @property
    def asked(self) -> str:
        """The digest of all that is shown and asked, without the baton and the question's id."""
        shown = [{"title": item.title, "form": item.form, "digest": item.digest} for item in self.shows]
        about: Json = self.title
        if self.handoff is not None:  # whose id stands for its sender, which a replay without keys does not know
            about = self.handoff.model_dump(mode="json", exclude={"sender"})
        return digest({"about": about, "asks": self.asks, "shows": shown, "terms": self.terms})

    @property
    def excerpt(self) -> Self:
        """The question with long texts cut to their beginnings."""
        return self.model_copy(update={"shows": [exhibit.excerpt for exhibit in self.shows]})

    @property
    def leading(self) -> Vote | None:
        """The first vote of the answer that most people gave, or None."""
        return max(self.votes, key=lambda vote: len(agreeing(vote, self.votes)), default=None)

    @property
    def agreed(self) -> list[Vote]:
        """The votes with the answer that most people gave."""
        return agreeing(self.leading, self.votes) if self.leading else []

    @property
    def missing(self) -> int:
        """How many more people have to give the answer that most people gave."""
        return self.needs - len(self.agreed)

    def digest_with(self, baton: str) -> str:
        """Return the digest of everything shown and asked, given the digest of the baton."""
        return digest({"question": self.id, "asked": self.asked, "baton": baton})

    def choice(self, name: str) -> Choice | None:
        """Return a choice by name, or None."""
        return next((choice for choice in self.choices if choice.name == name), None)

    def is_for(self, name: str) -> bool:
        """Return whether a person may decide and has not, as far as the question tells: a group may have anybody."""
        names = {normalize_name(who) for who in self.who}
        is_cut = not self.is_whole and len(names) >= _MAX_CUT_ENTRIES
        has_group = any(who.startswith(GROUP_PREFIX) for who in names)
        return (not names or has_group or is_cut or normalize_name(name) in names) and not self.has_vote_of(name)

    def has_vote_of(self, name: str) -> bool:
        """Return whether a person has voted, however their name is spelled."""
        return normalize_name(name) in {normalize_name(vote.who) for vote in self.votes}

    def completed(self, known: Self | None) -> Self:
        """Return it with what its known version shows, if it was published again without that."""
        is_again = known is not None and known.id == self.id and not self.shows
        return self.model_copy(update={"shows": known.shows}) if known is not None and is_again else self

    def answer(self, choice: str, *, who: str, why: str = "", data: Json = None) -> Answer:
        """Return an answer to exactly this."""
        return Answer(choice=choice, who=who, why=why, question=self.id, digest=self.digest, data=data)

    def cut_to(self, size: int) -> Self | None:
        """Return it with texts as long as they fit into ``size`` bytes of JSON, or None.

        Made defaults do not count: whether a question is cut decides what a run records, and has to be the same when
        it is replayed.
        """
        return next((version for version in self._versions() if _size(_without_defaults(version)) <= size), None)

    def _versions(self) -> Iterator[Self]:
        """Yield it whole, then cut, each version smaller than the one before."""
        yield self
        for length in _LENGTHS:
            yield self.model_copy(update={"is_whole": False, **_cut(self, length)})


def agreeing(vote: Vote, votes: Iterable[Vote]) -> list[Vote]:
    """Return the votes with the answer of ``vote`` that still count."""
    return [each for each in votes if (each.choice, each.answer) == (vote.choice, vote.answer) and not each.replaced]


def _verb_of(choice: str) -> str:
    """Return a choice as a past participle, such as `approved`."""
    return _VERBS.get(choice, choice)


def approval_choices(form: type[BaseModel] | None) -> list[Choice]:
    """Return the choices of an approval, whose yes may have a form."""
    return [
        Choice(name=APPROVE)
        if form is None
        else Choice(name=APPROVE, form=form.model_json_schema(), defaults=_factory_defaults(form)),
        Choice(name=DENY, alone=True),
    ]


def _factory_defaults(form: type[BaseModel]) -> dict[str, Json]:
    """Return the small defaults that a model's factories make, as JSON; those that fail or read other fields, not."""
    defaults: dict[str, Json] = {}
    left = _MAX_DEFAULTS_BYTES
    for name, field in form.model_fields.items():
        if field.default_factory is None or field.default_factory_takes_validated_data:
            continue
        with contextlib.suppress(Exception):  # the model's author wrote it, and the sandbox refuses clocks
            value = to_jsonable_python(field.get_default(call_default_factory=True), by_alias=True)
            left -= len(canonical_json({name: value}))
            if left >= 0:
                defaults[field.alias or name] = value
    return defaults


def handoff_choices(handoff: PendingHandoff) -> list[Choice]:
    """Return what can become of a handoff; one person may abandon it."""
    return [
        Choice(
            name=action.value,
            form=FORMS[action].model_json_schema() if action in FORMS else None,
            alone=action is HandoffAction.ABANDON,
        )
        for action in handoff.actions
    ]


def handoff_title(handoff: PendingHandoff) -> str:
    """Return the title of the question about a handoff."""
    return f"{handoff.sender} → {handoff.receiver}"[:_MAX_TITLE_LENGTH]


class OpenQuestions(CompactRecord):
    """The open questions of a run, in its memo.

    Attributes:
        questions: The one that opened or changed last, then the nearest deadlines.
        more: How many others there are.
        settled: How the last one about a handoff was answered, with its texts cut; that of an approval is in the
            outcome of its step.
    """

    questions: list[Question] = Field(default_factory=list)
    more: Count = 0
    settled: Settled | None = None


def summarize_questions(
    questions: Iterable[Question], newest: str | None = None, settled: Settled | None = None
) -> OpenQuestions:
    """Return open questions as they fit into a memo, the newest first."""
    ordered = sorted(questions, key=lambda question: (question.id != newest, question.until))
    share = max(MAX_MEMO_BYTES // max(len(ordered), 1), _MIN_SHARE)
    listed: list[Question] = []
    remaining = MAX_MEMO_BYTES
    if settled is not None:
        settled = _cut_settled(settled)
        remaining -= _size(settled)
    for question in ordered:
        version = question.cut_to(min(share, remaining))
        if version is None and not listed:
            *_, version = question._versions()
        if version is None:
            break
        if listed and _size(version) > remaining:
            version = _without_defaults(version)
        listed.append(version)
        remaining -= _size(version)
    return OpenQuestions(questions=listed, more=len(ordered) - len(listed), settled=settled)


def _without_defaults(question: Question) -> Question:
    choices = [choice.model_copy(update={"defaults": {}}) for choice in question.choices]
    return question.model_copy(update={"choices": choices})


def _size(record: CompactRecord) -> int:
    return len(record.model_dump_json().encode())


def _cut(question: Question, length: int) -> dict[str, Any]:
    """Return the members of a question that are cut."""
    return {
        "asks": question.asks[:length],
        "shows": [_cut_exhibit(exhibit, length) for exhibit in question.shows[: length // 100]],
        "choices": [_cut_choice(choice, length) for choice in question.choices],
        "handoff": question.handoff and _cut_handoff(question.handoff, length),
        "who": [name[:length] for name in question.who[:_MAX_CUT_ENTRIES]],
        "votes": [_cut_vote(vote, length) for vote in question.votes[:_MAX_CUT_ENTRIES]],
    }


def _cut_choice(choice: Choice, length: int) -> Choice:
    if choice.form is None:
        return choice
    required = choice.form.get("required")
    names = required if isinstance(required, list) else []
    form: dict[str, Json] = {"required": [str(name)[:length] for name in names[:_MAX_CUT_ENTRIES]]}
    return choice.model_copy(update={"form": form, "defaults": {}})


def _cut_vote(vote: Vote, length: int) -> Vote:
    kept = {name: getattr(vote, name) for name in ("choice", "at", "via", "answer", "replaced")}
    return Vote(who=vote.who[:length], **kept)


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


def content_digest(data: Json, signature: str | None) -> str:
    """Return the digest by which an answer sent again is compared with one whose data or signature are left out."""
    return format_digest(sha256(json.dumps([data, signature], sort_keys=True).encode()))


def _cut_settled(settled: Settled) -> Settled:
    """Return what a memo holds of an answer: an edit is in the history as an outcome of its own."""
    is_left_out = settled.data is not None and not settled.micro_usd
    update = {
        "why": settled.why[: _LENGTHS[0]],
        "data": {"micro_usd": settled.micro_usd} if settled.micro_usd else None,
        "content": content_digest(settled.data, None) if is_left_out else None,
        "votes": [_cut_settled_vote(vote) for vote in settled.votes[-_MAX_CUT_ENTRIES:]],
    }
    return settled.model_copy(update=update)


def _cut_settled_vote(vote: Vote) -> Vote:
    is_left_out = vote.data is not None or vote.signature is not None
    content = content_digest(vote.data, vote.signature) if is_left_out else None
    return _cut_vote(vote, _LENGTHS[1]).model_copy(update={"content": content})
