"""The rules of questions to people, step by step and in random orders: an answer counts for its own question only."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import settings
from pydantic import BaseModel, model_validator

from baton import Exhibit, Settled, StageResult
from baton.client import Answer, PendingHandoff, Question, Vote
from baton.core.pending import FORMS
from baton.core.questions import approval_choices, handoff_choices, summarize_questions
from baton.core.verdict import Code, Disposition
from baton.runtime.questions import Questions, late_reply, parse_form, restored_fault
from baton.runtime.workflow_approvals import ApprovalRequest

AT = datetime(2026, 11, 27, tzinfo=UTC)
CASES = 40 * settings().max_examples  # 2,000; in a search 80,000
PEOPLE = ("ann", "bob", "Ann ", "eve")
TITLES = ("legal", "go on")
SIGNED = {"key": "ann-1", "signature": "ed25519:x"}
HANDOFF = PendingHandoff(
    handoff_id="h-1", sender="legal", receiver="risk", fate=Disposition.TOP_UP, details="the budget is spent"
)
KINDS = ("approval", "handoff")
YES = {"approval": "approve", "handoff": "requeue"}
NO = {"approval": "deny", "handoff": "abandon"}


class Payment(BaseModel):
    """The form that the payer fills in."""

    amount: int
    currency: Literal["EUR", "USD"] = "EUR"
    rate: float = 1.0


def question(number: int = 1, kind: str = "approval", form: type[BaseModel] | None = None, **further: Any) -> Question:
    """Return a question of a kind."""
    members: dict[str, Any] = {"id": f"{number}:nonce", "seq": number, "title": "legal", "since": AT, "until": AT}
    about = {"handoff": HANDOFF, "choices": handoff_choices(HANDOFF)}
    members |= about if kind == "handoff" else {"choices": approval_choices(form)}
    return Question.model_validate({**members, **further})


def asked(kind: str, form: type[BaseModel] | None = None, **further: Any) -> Questions:
    """Return the questions of a run that asks one."""
    questions = Questions()
    forms = FORMS if kind == "handoff" else {"approve": form} if form else {}
    questions.open(question(7, kind, form, **further), forms)
    return questions


def word(questions: Questions, choice: str, who: str = "ann", baton: str = "b", **further: Any) -> Answer:
    """Return an answer to the only open question in its current state."""
    [shown] = questions.open_now(baton)
    return shown.answer(choice, who=who).model_copy(update=further)


def decide(questions: Questions, answer: Answer, baton: str = "b") -> Settled | str:
    """Return the reply to an answer, or the refusal."""
    refusal = questions.refusal(answer, baton)
    return refusal if refusal is not None else questions.count(answer, AT, "update", baton)


@pytest.mark.parametrize("kind", KINDS)
class TestOutcomes:
    """What can become of an answer, whatever it is about."""

    def test_a_yes_counts(self, kind: str) -> None:
        """It says what was chosen, by whom, about what."""
        ended = decide(questions := asked(kind), word(questions, YES[kind], why="seen"))
        assert isinstance(ended, Settled)
        assert (ended.choice, ended.who, ended.why, ended.via, ended.missing) == (YES[kind], "ann", "seen", "update", 0)
        assert ended.handoff_id == (HANDOFF.handoff_id if kind == "handoff" else None)

    def test_a_quorum_is_of_different_people(self, kind: str) -> None:
        """The same person counts once, however the name is written."""
        questions = asked(kind, needs=2)
        first = word(questions, YES[kind])
        reply = decide(questions, first)
        assert isinstance(reply, Settled)
        assert reply.missing == 1
        assert decide(questions, word(questions, YES[kind], " ANN")) == reply  # the same person and the same word
        ended = decide(questions, word(questions, YES[kind], "bob"))
        assert isinstance(ended, Settled)
        assert (ended.who, ended.choice, ended.missing) == ("ann, bob", YES[kind], 0)
        questions.withdraw("7:nonce")
        assert decide(questions, first) == reply

    def test_one_no_is_enough(self, kind: str) -> None:
        """It ends the question, whoever agreed before."""
        questions = asked(kind, needs=3)
        decide(questions, word(questions, YES[kind]))
        ended = decide(questions, word(questions, NO[kind], "bob"))
        assert isinstance(ended, Settled)
        assert (ended.who, ended.choice) == ("bob", NO[kind])

    def test_a_voter_may_say_no_before_the_quorum_is_complete(self, kind: str) -> None:
        """One no is enough, also that of a person who said yes before."""
        questions = asked(kind, needs=2)
        decide(questions, word(questions, YES[kind]))
        ended = decide(questions, word(questions, NO[kind], " Ann"))
        assert isinstance(ended, Settled)
        assert (ended.who, ended.choice) == (" Ann", NO[kind])
        assert [(vote.choice, vote.replaced) for vote in ended.votes] == [(YES[kind], True), (NO[kind], False)]

    def test_votes_on_another_baton_do_not_count(self, kind: str) -> None:
        """If the baton changes between two votes, the first person decides again."""
        questions = asked(kind, needs=2)
        old = word(questions, YES[kind], baton="b")
        decide(questions, old, "b")
        reply = decide(questions, word(questions, YES[kind], "bob", "c"), "c")
        assert isinstance(reply, Settled)
        assert reply.missing == 1
        assert "look at it again" in str(decide(questions, old, "c"))

    @pytest.mark.parametrize(
        ("further", "who", "refused"),
        [
            pytest.param({"who": ["bob", "carol"]}, "ann", "'ann' may not decide about 'legal'; bob, carol may"),
            pytest.param({"proof": True}, "ann", "needs a signed decision"),
            *[
                pytest.param({}, who, "a person's name is recorded")
                for who in ("two\nlines", "\x9b2Kann", "nna\u202e", " ")
            ],
        ],
    )
    def test_a_person_who_may_not_decide_is_rejected(
        self, kind: str, further: dict[str, Any], who: str, refused: str
    ) -> None:
        """By name; a worker checks groups and signatures. That holds for every choice."""
        questions = asked(kind, **further)
        for choice in (YES[kind], NO[kind]):
            assert refused in str(decide(questions, word(questions, choice, who)))

    def test_a_reason_that_is_too_long_is_refused(self, kind: str) -> None:
        """A run keeps it to its end."""
        questions = asked(kind)
        assert "10,000 is the most" in str(decide(questions, word(questions, NO[kind], why="x" * 10_001)))

    def test_another_choice_is_refused(self, kind: str) -> None:
        """The refusal says what is possible."""
        questions = asked(kind)
        other = YES["handoff" if kind == "approval" else "approval"]
        assert f"does not allow {other!r}; use " in str(decide(questions, word(questions, other)))

    def test_data_without_a_form_is_refused(self, kind: str) -> None:
        """Nothing would come of it."""
        questions = asked(kind)
        assert "takes no data" in str(decide(questions, word(questions, NO[kind], data={"amount": 3})))

    def test_a_late_answer_gets_a_reason_and_a_remedy(self, kind: str) -> None:
        """After the deadline, or after another person's answer."""
        questions = asked(kind)
        late = word(questions, YES[kind])
        expired = questions.expire("7:nonce", NO[kind], timedelta(hours=1), AT, "b")
        questions.withdraw("7:nonce")
        refusal = str(decide(questions, late))
        assert f"'legal' was {expired.verb} by deadline" in refusal
        assert "baton rollback RUN --to 7" in refusal

    def test_a_deadline_does_not_revoke_an_answer(self, kind: str) -> None:
        """Both may arrive in one workflow task, and the person was told that the answer counts."""
        questions = asked(kind)
        reply = decide(questions, yes := word(questions, YES[kind]))
        assert questions.expire("7:nonce", NO[kind], timedelta(hours=1), AT, "b") == reply
        questions.withdraw("7:nonce")
        assert decide(questions, yes) == reply

    @pytest.mark.parametrize("further", [{"needs": 101}, {"needs": 2, "who": ["ann", "Ann"]}, {"who": ["group:"]}])
    def test_who_may_decide_has_limits(self, kind: str, further: dict[str, Any]) -> None:
        """Questions that cannot be answered are refused when asked."""
        with pytest.raises(ValueError, match=r"at most|may|empty name"):
            asked(kind, **further)


class TestForms:
    """What an answer holds besides its choice."""

    @pytest.mark.parametrize(
        ("kind", "choice", "form", "wrong", "data", "other"),
        [
            pytest.param("approval", "approve", Payment, {}, {"amount": 3}, {"amount": 4}, id="an approval's form"),
            pytest.param(
                "handoff", "top_up", None, {"micro_usd": 0}, {"micro_usd": 5}, {"micro_usd": 6}, id="a top-up"
            ),
            pytest.param(
                "handoff", "edit", None, {"patch": {}}, {"patch": {"a": 1}}, {"patch": {"a": 2}}, id="an edit"
            ),
        ],
    )
    def test_it_is_checked_and_counts_with_equal_ones(
        self, kind: str, choice: str, form: Any, wrong: Any, data: Any, other: Any
    ) -> None:
        """A wrong field is named; people agree who fill in the same."""
        questions = asked(kind, form, needs=2)
        assert "the answer does not fit" in str(decide(questions, word(questions, choice, data=wrong)))
        decide(questions, word(questions, choice, data=data))
        differs = decide(questions, word(questions, choice, "bob", data=other))
        assert isinstance(differs, Settled)
        assert differs.missing == 1
        ended = decide(questions, word(questions, choice, "bob", data=data))
        assert isinstance(ended, Settled)
        assert (ended.data, ended.who) == (data, "ann, bob")

    @pytest.mark.parametrize(
        ("data", "refused"),
        [
            pytest.param({"amount": 2**53}, "amount: a whole number of 2**53", id="a number that is not exact"),
            pytest.param({"amount": [[1]] * 60_000}, "amount: has 60,000 entries", id="too many values"),
            pytest.param({"amount": 3, "rate": float("inf")}, "not JSON", id="no number"),
        ],
    )
    def test_what_cannot_be_recorded_is_refused(self, data: Any, refused: str) -> None:
        """The record of a counted answer would fail for ever."""
        questions = asked("approval", Payment, needs=2)
        assert refused in str(decide(questions, word(questions, "approve", data=data)))
        [waiting] = questions.open_now("b")
        assert waiting.votes == []

    @pytest.mark.parametrize(("needs", "fits", "most"), [(1, 500_000, "524,288"), (100, 9_000, "10,381")])
    def test_answers_of_all_who_agree_fit_into_one_record(self, needs: int, fits: int, most: str) -> None:
        """Also a patch of a large baton."""
        questions = asked("handoff", needs=needs)
        large = word(questions, "edit", data={"patch": {"goal": "x" * (fits + 30_000)}})
        assert f"and {most} is the most; shorten it" in str(decide(questions, large))
        assert isinstance(decide(questions, word(questions, "edit", data={"patch": {"goal": "x" * fits}})), Settled)

    def test_defaults_count_as_the_same_answer(self) -> None:
        """What is compared is the filled-in form."""
        questions = asked("approval", Payment, needs=2)
        decide(questions, word(questions, "approve", data={"amount": 3}))
        ended = decide(questions, word(questions, "approve", "bob", data={"amount": 3, "currency": "EUR"}))
        assert isinstance(ended, Settled)
        assert ended.answer_as(Payment) == Payment(amount=3)
        assert parse_form(Payment, {"amount": 3}) == Payment(amount=3)

    def test_a_vote_counts_for_its_choice_and_replaces_that_of_its_person(self) -> None:
        """The record has the replaced one too, and a copy of it does not count again."""
        questions = asked("handoff", needs=2)
        first = word(questions, "requeue", **SIGNED)
        decide(questions, first)
        for who, choice in (("ann", "top_up"), ("bob", "requeue")):
            further: Any = {"data": {"micro_usd": 5}, **SIGNED} if choice == "top_up" else {}
            reply = decide(questions, word(questions, choice, who, **further))
            assert isinstance(reply, Settled)
            assert reply.missing == 1
        assert "ann has replaced this answer" in str(decide(questions, first))

        [shown] = questions.open_now("b")
        assert [(vote.who, vote.choice) for vote in shown.votes] == [("ann", "top_up"), ("bob", "requeue")]
        assert (shown.missing, shown.leading, shown.agreed) == (1, shown.votes[0], shown.votes[:1])

        ended = decide(questions, word(questions, "requeue", why="seen", signature="ed25519:y", key="ann-1"))
        assert isinstance(ended, Settled)
        assert (ended.choice, ended.who) == ("requeue", "bob, ann")
        assert [(vote.choice, vote.replaced) for vote in ended.votes] == [
            ("requeue", True),
            ("top_up", True),
            ("requeue", False),
            ("requeue", False),
        ]
        assert restored_fault(ended, question(7, "handoff", needs=2), "abandon", same_texts=True) is None
        assert restored_fault(ended, question(7, "handoff", needs=3), "abandon", same_texts=True) is not None
        assert "was requeued" in str(decide(questions, first))

    def test_of_one_persons_answers_the_one_that_came_last_counts(self) -> None:
        """Also where the first is checked for longer, or was refused and is sent again by somebody who has read it."""
        questions = asked("handoff", needs=2)
        first, last = (word(questions, "top_up", data={"micro_usd": amount}, **SIGNED) for amount in (100, 10))
        for came in (first, last):
            questions.receive(came)
        assert isinstance(decide(questions, last), Settled)
        assert "ann has replaced this answer" in str(decide(questions, first))
        assert isinstance(decide(questions, first.model_copy(update={"why": "after all"})), Settled)

    def test_only_a_signed_vote_replaces_a_signed_one(self) -> None:
        """Anybody can write a name; one who denies needs no signature, whoever it is."""
        questions = asked("handoff", needs=2)
        decide(questions, word(questions, "requeue", **SIGNED))
        unsigned = word(questions, "top_up", "Ann ", data={"micro_usd": 5})
        assert "only a signed one replaces it" in str(decide(questions, unsigned))
        assert isinstance(decide(questions, word(questions, "abandon")), Settled)

    def test_a_vote_is_read_once_however_many_there_are(self) -> None:
        """Workflow code has two seconds, and a form may be large."""
        read: list[Any] = []

        class Watched(BaseModel):
            amount: Any

            @model_validator(mode="before")
            @classmethod
            def _note(cls, members: Any) -> Any:
                read.append(members)
                return members

        questions = asked("approval", Watched, needs=2)
        for number in range(50):
            decide(questions, word(questions, "approve", data={"amount": number}))
        before = len(read)
        decide(questions, word(questions, "approve", data={"amount": "much"}))
        assert len(read) - before == 2  # when it is checked, and when it counts

    def test_votes_are_limited_and_one_who_decides_alone_is_not(self) -> None:
        """They are in one record."""
        questions = asked("handoff", needs=3)
        for number in range(200):
            reply = decide(
                questions, word(questions, "requeue", "ann", why=str(number), key="k", signature=str(number))
            )
            assert isinstance(reply, Settled)
        assert "has 200 votes, the most; only 'abandon' counts now" in str(
            decide(questions, word(questions, "requeue"))
        )
        ended = decide(questions, word(questions, "abandon", "bob"))
        assert isinstance(ended, Settled)
        assert len(ended.votes) == 201

    def test_what_cannot_be_done_now_is_refused(self) -> None:
        """The run's code says why."""
        questions = Questions()
        questions.open(question(1, "handoff"), FORMS, lambda choice, form: f"no {choice} now")
        assert decide(questions, word(questions, "requeue")) == "no requeue now"


class TestQuestion:
    def test_the_digest_covers_everything_shown(self) -> None:
        """Each of these changes the digest."""
        base = question(1)
        others = [
            question(1, asks="Publish?"),
            question(1, shows=[Exhibit.of("a", "draft")]),
            question(1, shows=[Exhibit.of("b", "draft")]),
            question(1, needs=2),
            question(1, who=["ann"]),
            question(1, proof=True),
            question(1, "handoff"),
            question(1, "handoff", handoff=HANDOFF.model_copy(update={"details": "spent twice"})),
            question(2),
        ]
        assert len({each.digest_with("b") for each in [base, *others]} | {base.digest_with("c")}) == len(others) + 2

    @pytest.mark.parametrize(
        "further", [{"asks": "x" * 2_001}, {"choices": [{"name": "approve", "form": {"title": "x" * 20_000}}]}]
    )
    def test_an_approval_has_limits(self, further: dict[str, Any]) -> None:
        """What cannot be read is refused when asked."""
        with pytest.raises(ValueError, match=r"at most|ask for less"):
            Questions().open(question(1, **further))

    def test_open_approvals_need_their_own_titles_and_a_handoff_has_one_question(self) -> None:
        """People name an approval by its title, and a handoff by its id."""
        questions = Questions()
        questions.open(question(1, "handoff"))
        questions.open(question(2, "handoff", handoff=HANDOFF.model_copy(update={"handoff_id": "h-2"})))
        questions.open(question(3))
        with pytest.raises(ValueError, match="'legal' is already open"):
            questions.open(question(4))
        with pytest.raises(ValueError, match="about handoff h-1 is already open"):
            questions.open(question(5, "handoff"))
        questions.withdraw("1:nonce")
        questions.open(question(6, "handoff"))

    def test_a_handoff_allows_what_its_fate_allows(self) -> None:
        """A release is for a safety finding, a top-up for a spent budget."""
        unsafe = HANDOFF.model_copy(update={"fate": Disposition.DEAD_LETTER, "reason": Code.SAFETY_VIOLATION})
        sent = HANDOFF.model_copy(update={"only_as_sent": True})
        names = [[choice.name for choice in handoff_choices(each)] for each in (HANDOFF, unsafe, sent)]
        assert names == [
            ["top_up", "requeue", "edit", "abandon"],
            ["release", "requeue", "edit", "abandon"],
            ["requeue", "abandon"],
        ]


class _Case:
    """One random life of a run: questions, decisions of every kind, roll-backs, continue-as-new."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.questions = Questions()
        self.baton = "b0"
        self.number = 0
        self.decisions: list[tuple[Answer, Question]] = []  # each decision, with the question that its person looked at
        self.answers: dict[str, Settled] = {}

    def run(self) -> None:
        """Do a dozen things in any order."""
        for _ in range(self.random.randint(6, 18)):
            acts = [self.ask, self.look, self.look, self.send, self.send, self.change, self.expire, self.restart]
            self.random.choice([*acts, self.forge, self.end])()
            self.check()

    def ask(self) -> None:
        """Open a question, often under an earlier title."""
        title = self.random.choice(TITLES)
        kind = self.random.choice(KINDS)
        if title not in [each.title for each in self.questions.open_now(self.baton)] + self.ended():
            self.number += 1
            id, needs = f"{self.number}:{self.random.getrandbits(64):x}", self.random.choice([1, 1, 2, 3])
            about: dict[str, Any] = (
                {"handoff": HANDOFF.model_copy(update={"handoff_id": id})} if kind == "handoff" else {}
            )
            asks = question(self.number, kind, title=title, id=id, needs=needs, **about)
            self.questions.open(asks, FORMS if kind == "handoff" else {})

    def look(self) -> None:
        """A person looks at an open question and makes up their mind."""
        for waiting in self.questions.open_now(self.baton):
            who, names = self.random.choice(PEOPLE), YES if self.random.random() < 0.7 else NO
            choice = names["handoff" if waiting.handoff else "approval"]
            data = None
            if waiting.handoff and self.random.random() < 0.4:
                choice, data = "top_up", {"micro_usd": self.random.choice([5, 6])}
            self.decisions.append((waiting.answer(choice, who=who, data=data), waiting))

    def send(self) -> None:
        """Send a decision: at once, late, twice, or after the question has ended."""
        if not self.decisions:
            return
        decision, _ = self.random.choice(self.decisions)
        before = {each.id: each for each in self.questions.open_now(self.baton)}
        answered = dict(self.answers)
        reply = decide(self.questions, decision, self.baton)
        if isinstance(reply, Settled):
            assert (reply.question, reply.digest) == (decision.question, decision.digest)
            assert decide(self.questions, decision, self.baton) == reply, "the same decision is answered the same"
        else:
            assert {each.id: each for each in self.questions.open_now(self.baton)} == before, (
                "a refusal changes nothing"
            )
        self.note()
        assert {**self.answers, **answered} == self.answers, "an answer never changes"

    def forge(self) -> None:
        """Send a decision that was not made on the named question, mixed from another one or empty."""
        if not self.decisions or not self.questions.open_now(self.baton):
            return
        decision, seen = self.random.choice(self.decisions)
        open_now = self.random.choice(self.questions.open_now(self.baton))
        forged = decision.model_copy(update={"question": self.random.choice([open_now.id, None, "9:x"])})
        if forged.question != seen.id or decision.digest != open_now.digest:
            reply = decide(self.questions, forged, self.baton)
            assert isinstance(reply, str) or forged == decision or reply.question == seen.id

    def change(self) -> None:
        """Change the baton, as a concurrent stage does."""
        self.baton = f"b{self.random.randint(0, 2)}"

    def expire(self) -> None:
        """Let a deadline pass."""
        for waiting in self.questions.open_now(self.baton)[:1]:
            default = NO["handoff" if waiting.handoff else "approval"]
            self.questions.expire(waiting.id, default, timedelta(1), AT, self.baton)

    def end(self) -> None:
        """End the answered steps."""
        self.note()
        for settled in self.questions.under_way():
            self.questions.withdraw(settled.question)

    def ended(self) -> list[str]:
        """Return the titles of the questions whose answer is not in effect yet."""
        return [settled.title for settled in self.questions.under_way()]

    def restart(self) -> None:
        """Continue as new or roll back: a docket that knows some of the closed questions."""
        self.note()
        remembered = {id: decided for id, decided in self.answers.items() if self.random.random() < 0.8}
        self.questions, self.answers = Questions(), remembered
        for one in remembered.values():
            self.questions.close(Settled.model_validate_json(one.model_dump_json()))

    def note(self) -> None:
        """Store a reply."""
        self.answers |= {settled.question: settled for settled in self.questions.under_way()}

    def check(self) -> None:
        """Check that every outcome rests on decisions on that question and what it showed."""
        self.note()
        for id, decided in self.answers.items():
            if decided.via == "deadline":
                continue
            voters: list[Vote | Settled] = [*decided.votes] or [decided]
            counted = {
                (decision.who, decision.choice)
                for decision, seen in self.decisions
                if (seen.id, seen.digest, seen.title) == (id, decided.digest, decided.title)
            }
            assert {(vote.who, vote.choice) for vote in voters} <= counted
            counting = [vote.who for vote in voters if isinstance(vote, Settled) or not vote.replaced]
            people = {" ".join(who.casefold().split()) for who in counting}
            assert len(people) == len(counting), "each person counts once"


def test_every_outcome_rests_on_decisions_on_its_question() -> None:
    """In thousands of random orders of repeated, late, contradicting and forged decisions and new runs."""
    answered = 0
    for seed in range(CASES):
        case = _Case(seed)
        case.run()
        answered += len(case.answers)
    assert answered > CASES // 4  # the cases are no empty ones


@pytest.mark.parametrize("signed", [False, True])
def test_an_answer_sent_again_is_compared_with_all_that_counted(signed: bool) -> None:
    """A memo holds neither what an edit changes nor signatures."""
    questions = asked("handoff")
    proof = {"key": "k", "signature": "s"} if signed else {}
    answer = word(questions, "edit", data={"patch": {"goal": "x" * 5_000}}, **proof)
    settled = decide(questions, answer)
    assert isinstance(settled, Settled)

    held = summarize_questions([], settled=settled).settled
    assert held is not None
    assert held.data is None
    assert late_reply(held, answer) == held
    others: list[dict[str, Any]] = [{"data": {"patch": {"goal": "y"}}}, {"data": None}, {"signature": "t"}]
    for other in others:
        assert "was edited by ann" in str(late_reply(held, answer.model_copy(update=other)))


class TestApprovalRequest:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            pytest.param("who", "ann", id="a lone name"),
            pytest.param("who", frozenset({"ann", "bob"}), id="names in no order"),
            pytest.param("shows", "the draft", id="a lone text"),
            pytest.param("shows", StageResult(output="the draft"), id="a lone result"),
        ],
    )
    def test_anything_but_a_list_is_rejected(self, name: str, value: object) -> None:
        """A string would become its letters, a result its members; and the order is signed."""
        terms: dict[str, Any] = {name: value}
        with pytest.raises(TypeError, match=f"approval 'legal': {name} is a .*; expected a list"):
            ApprovalRequest("legal", timedelta(days=1), **terms)


def vote(who: str, **members: Any) -> Vote:
    return Vote(**{"who": who, "choice": "approve", "at": AT, "via": "update", **members})


def recorded(now: Question, **members: Any) -> Settled:
    """Return an answer that carries the digests of the question, as somebody who invents one would compute them."""
    usual = {"question": "1:a", "title": "legal", "choice": "approve", "who": "ann", "at": AT, "digest": ""}
    return Settled(**{**usual, "via": "update", "asked": now.asked, "terms": now.terms, **members})


@pytest.mark.parametrize(
    ("now", "answer", "fault"),
    [
        pytest.param({}, {}, None, id="it does"),
        pytest.param({}, {"title": "chief"}, "it was made about 'chief'", id="another question"),
        pytest.param({}, {"terms": ""}, "who may decide", id="no terms"),
        pytest.param({}, {"asked": ""}, "what is asked or shown", id="other texts"),
        pytest.param({}, {"choice": "requeue"}, "is not a choice now", id="another choice"),
        pytest.param({"proof": True}, {}, "not every vote is signed", id="no proof"),
        pytest.param({"proof": True}, {"votes": [vote("ann", **SIGNED)]}, None, id="proof"),
        pytest.param({"who": ["bob"]}, {}, "somebody who may not decide", id="not who"),
        pytest.param({"who": ["bob"]}, {"choice": "deny"}, "somebody who may not decide", id="not who, a denial"),
        pytest.param({"who": ["group:leads"]}, {}, None, id="a group, which a worker checked"),
        pytest.param({"needs": 2}, {"votes": [vote("ann"), vote("Ann")]}, "1 of 2", id="one person twice"),
        pytest.param({"needs": 2}, {"votes": [vote("ann"), vote("bob")]}, None, id="a quorum"),
        pytest.param({"needs": 2}, {"votes": [vote("ann"), vote("b", choice="deny")]}, "1 of 2", id="a mixed one"),
        pytest.param({"needs": 2}, {"choice": "deny"}, None, id="one denial"),
        pytest.param({}, {"via": "deadline", "who": "deadline"}, "the decision at the deadline", id="another default"),
        pytest.param({}, {"via": "deadline", "who": "deadline", "choice": "deny"}, None, id="the default"),
    ],
)
def test_a_recorded_answer_is_compared_with_the_question(
    now: dict[str, Any], answer: dict[str, Any], fault: str | None
) -> None:
    """The votes, who may decide, how many must, and the proof; also where the digests are right."""
    current = question(**now)
    found = restored_fault(recorded(current, **answer), current, "deny", same_texts=True)
    assert found is None if fault is None else fault in (found or "")


def test_a_continued_run_may_ask_in_other_words() -> None:
    """A question may name the time; who decides and how stays the same."""
    before, now = question(asks="Pay at 10:00?"), question(asks="Pay at 10:05?")
    assert restored_fault(recorded(before), now, "deny", same_texts=False) is None
