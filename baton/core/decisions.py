"""What people decide: a question that is open, their votes, and the outcome."""

import json
from typing import ClassVar, Self, TypeVar

from pydantic import BaseModel, Field

from baton.core.exhibits import Exhibit
from baton.wire.json_values import Json, canonical_json, digest, pae
from baton.wire.records import CompactRecord, Integer, Name, Timestamp

FormT = TypeVar("FormT", bound=BaseModel)


class Vote(CompactRecord):
    """One person's decision on an approval.

    Attributes:
        who: The person.
        approved: Yes or no.
        why: Their reason.
        at: When it was counted (workflow time).
        via: `"update"` or `"signal"`.
        answer: The form they filled in.
        key: The id of the key that signed the decision, verified by a worker; absent if unsigned.
        signature: The signature over `Decision.statement`.
    """

    who: Name
    approved: bool
    why: str = ""
    at: Timestamp
    via: str
    answer: Json = None
    key: str | None = None
    signature: str | None = None


class Waiting(CompactRecord):
    """A step in progress or an open approval.

    Attributes:
        kind: `"stage"`, `"fan_out"`, `"child"`, `"sleep"` or `"approval"`.
        name: The name of the step, or the title of the approval.
        seq: The step's number.
        since: When it began (workflow time).
        until: The deadline of an approval, or the end of a sleep.
        digest: The digest of everything that an approval shows and asks, and of the baton; decisions are bound to it.
        asks: The text of an approval's question.
        question: The id of an approval's question: the step and a nonce. Each decision names one question.
        shows: What an approval shows; long texts are cut.
        answer: The JSON Schema of the form that an approver fills in.
        needs: How many different people have to approve.
        who: Who may decide, names and `group:` names; anybody if empty.
        proof: Whether only signed decisions count.
        votes: The approvals so far.
    """

    kind: str
    name: str
    seq: Integer
    since: Timestamp
    until: Timestamp | None = None
    digest: str | None = None
    asks: str | None = None
    question: str | None = None
    shows: list[Exhibit] = Field(default_factory=list)
    answer: dict[str, Json] | None = None
    needs: Integer = Field(default=1, ge=1)
    who: list[str] = Field(default_factory=list)
    proof: bool = False
    votes: list[Vote] = Field(default_factory=list)

    @property
    def terms(self) -> str:
        """The digest of who decides and what they fill in, as a restored approval must have them."""
        return digest({"answer": self.answer, "needs": self.needs, "who": self.who, "proof": self.proof})

    @property
    def asked(self) -> str:
        """The digest of all that is shown and asked, without the baton and the question's id."""
        shown = [{"title": item.title, "form": item.form, "digest": item.digest} for item in self.shows]
        return digest({"approval": self.name, "asks": self.asks, "shows": shown, "terms": self.terms})

    @property
    def excerpt(self) -> Self:
        """The approval with long texts cut to their beginnings."""
        return self.model_copy(update={"shows": [exhibit.excerpt for exhibit in self.shows]})

    def digest_with(self, baton: str) -> str:
        """Return the digest of everything shown and asked, given the digest of the baton."""
        return digest(
            {
                "approval": self.name,
                "question": self.question,
                "asks": self.asks,
                "baton": baton,
                "shows": [{"title": item.title, "form": item.form, "digest": item.digest} for item in self.shows],
                "answer": self.answer,
                "needs": self.needs,
                "who": self.who,
                "proof": self.proof,
            }
        )


class Decision(CompactRecord):
    """A person's decision on an open approval: the argument of the update and signal `decide`.

    Attributes:
        approval: The approval's title, as `status` shows it.
        approved: Yes or no.
        who: The person who decides.
        why: Their reason.
        question: The id of the question, from the query `waiting`; a decision on an earlier question under the same
            title is rejected. `baton.client.decide` reads it from the run by default.
        digest: The digest of everything shown; a decision on anything else is rejected. Read from the run by default.
        answer: The filled-in form as JSON, with a yes only.
        key: The id of the key that signed the decision.
        signature: The signature over `statement`, in base64url.

    Example:
        >>> Decision(approval="release manager", approved=True, who="ann", why="tests are green").approved
        True
    """

    __baton_most_bytes__: ClassVar[int] = 64 * 1024

    approval: Name
    approved: bool
    who: Name
    why: str = ""
    question: str | None = None
    digest: str | None = None
    answer: Json = None
    key: str | None = None
    signature: str | None = None

    @property
    def statement(self) -> bytes:
        """The signed bytes: the decision without its signature, bound to its purpose."""
        return pae("application/vnd.baton.decision+json", canonical_json(self.model_dump(exclude={"signature"})))


class Decided(CompactRecord):
    """The outcome of an approval, as `Pipeline.approve` returns it.

    Attributes:
        approval: The approval's title.
        question: The id of the question.
        approved: Yes or no.
        who: The person, or the people, or `"deadline"`.
        why: The reason.
        at: When it was decided (workflow time).
        digest: The digest of everything shown.
        via: `"update"`, `"signal"` or `"deadline"`.
        answer: The filled-in form as JSON, with a yes only; `answer_as` returns it typed.
        missing: How many more people have to approve; above zero only in the reply to one of several approvers.
        votes: Each person's decision in order, if several had to approve or a decision was signed.
        asked: The digest of what was shown and asked, without the baton (`Waiting.asked`).
        terms: The digest of who had to decide and how (`Waiting.terms`).
    """

    approval: Name
    question: str
    approved: bool
    who: Name
    why: str = ""
    at: Timestamp
    digest: str
    via: str
    answer: Json = None
    missing: Integer = Field(default=0, ge=0)
    votes: list[Vote] = Field(default_factory=list)
    asked: str = ""
    terms: str = ""

    def answer_as(self, form: type[FormT]) -> FormT:
        """Return the filled-in form as the model that was passed to `Pipeline.approve`."""
        return form.model_validate_json(json.dumps(self.answer))
