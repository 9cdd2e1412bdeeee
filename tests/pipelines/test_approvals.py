"""The rules of approvals, step by step and in random orders: a decision counts for its own question only."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from baton import Decided, Exhibit, StageResult
from baton.client import Waiting
from baton.core.decisions import Decision, Vote
from baton.runtime.approvals import Docket
from baton.runtime.workflow_approvals import ApprovalRequest

AT = datetime(2026, 11, 27, tzinfo=UTC)
CASES = 10_000
PEOPLE = ("ann", "bob", "Ann ", "eve")
TITLES = ("legal", "go on")


class Payment(BaseModel):
    """The form that the payer fills in."""

    amount: int
    currency: Literal["EUR", "USD"] = "EUR"


def question(number: int, title: str = "legal", **further: Any) -> Waiting:
    """Return a question."""
    members = {"kind": "approval", "name": title, "seq": number, "since": AT, "question": f"{number}:nonce"}
    return Waiting.model_validate({**members, **further})


def word(docket: Docket, who: str = "ann", baton: str = "b", *, yes: bool = True, **further: object) -> Decision:
    """Return a decision on the only open question in its current state."""
    [asked] = docket.waiting(baton)
    members = {"approval": asked.name, "question": asked.question, "digest": asked.digest, "approved": yes, "who": who}
    return Decision.model_validate({**members, **further})


def decide(docket: Docket, decision: Decision, baton: str = "b") -> Decided | str:
    """Return the reply to a decision, or the refusal."""
    refusal = docket.refusal(decision, baton)
    return refusal if refusal is not None else docket.count(decision, AT, "update", baton)


class TestDocket:
    """The rules, one by one."""

    def test_a_quorum_is_of_different_people(self) -> None:
        """The same person counts once, however the name is written."""
        docket = Docket()
        docket.open(question(1, needs=2))
        first = word(docket)
        reply = decide(docket, first)
        assert isinstance(reply, Decided)
        assert reply.missing == 1
        repeated = decide(docket, word(docket, " ANN"))
        assert repeated == reply  # the same person and the same word
        assert "already, and counts once" in str(decide(docket, word(docket, "Ann", yes=False)))
        ended = decide(docket, word(docket, "bob"))
        assert isinstance(ended, Decided)
        assert (ended.who, ended.approved, ended.missing) == ("ann, bob", True, 0)
        docket.withdraw("1:nonce")
        assert decide(docket, first) == reply

    def test_one_no_is_enough(self) -> None:
        """It ends the question, whoever approved before."""
        docket = Docket()
        docket.open(question(1, needs=3))
        decide(docket, word(docket))
        ended = decide(docket, word(docket, "bob", yes=False))
        assert isinstance(ended, Decided)
        assert (ended.who, ended.approved) == ("bob", False)

    def test_votes_on_another_baton_do_not_count(self) -> None:
        """If the baton changes between two approvals, the first person decides again."""
        docket = Docket()
        docket.open(question(1, needs=2))
        old = word(docket, baton="b")
        decide(docket, old, "b")
        reply = decide(docket, word(docket, "bob", "c"), "c")
        assert isinstance(reply, Decided)
        assert reply.missing == 1
        assert "look at it again" in str(decide(docket, old, "c"))

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
            question(2),
        ]
        assert len({each.digest_with("b") for each in [base, *others]} | {base.digest_with("c")}) == len(others) + 2

    @pytest.mark.parametrize(
        ("further", "who", "refused"),
        [
            pytest.param({"who": ["bob", "carol"]}, "ann", "'ann' may not decide about 'legal'; bob, carol may"),
            pytest.param({"proof": True}, "ann", "needs a signed decision"),
            pytest.param({}, "two\nlines", "a person's name is recorded"),
        ],
    )
    def test_a_person_who_may_not_decide_is_rejected(self, further: dict[str, Any], who: str, refused: str) -> None:
        """By name; a worker checks groups and signatures."""
        docket = Docket()
        docket.open(question(1, **further))
        assert refused in str(decide(docket, word(docket, who)))

    def test_an_answer_is_validated_and_equal_for_all_approvers(self) -> None:
        """A wrong field is named; a second approver gives the same answer, defaults included."""
        docket = Docket()
        docket.open(question(1, needs=2, answer=Payment.model_json_schema()), Payment)
        assert "amount" in str(decide(docket, word(docket)))
        assert "with a yes" in str(decide(docket, word(docket, yes=False, answer={"amount": 3})))
        decide(docket, word(docket, answer={"amount": 3}))
        assert "differs from that of ann" in str(decide(docket, word(docket, "bob", answer={"amount": 4})))
        ended = decide(docket, word(docket, "bob", answer={"amount": 3, "currency": "EUR"}))
        assert isinstance(ended, Decided)
        assert ended.answer_as(Payment) == Payment(amount=3)

    def test_a_late_decision_gets_a_reason_and_a_remedy(self) -> None:
        """After the deadline, or after another person's decision."""
        docket = Docket()
        docket.open(question(7))
        late = word(docket)
        docket.expire("7:nonce", False, timedelta(hours=1), AT, "b")
        docket.withdraw("7:nonce")
        refusal = str(decide(docket, late))
        assert "was denied by deadline" in refusal
        assert "baton rollback RUN --to 7" in refusal

    def test_a_deadline_does_not_revoke_a_decision(self) -> None:
        """Both may arrive in one workflow task, and the person was told that the decision counts."""
        docket = Docket()
        docket.open(question(7))
        yes = word(docket)
        reply = decide(docket, yes)
        assert docket.expire("7:nonce", False, timedelta(hours=1), AT, "b") == reply
        docket.withdraw("7:nonce")
        assert decide(docket, yes) == reply

    @pytest.mark.parametrize(
        "further",
        [
            {"asks": "x" * 2_001},
            {"needs": 101},
            {"needs": 2, "who": ["ann", "Ann"]},
            {"who": ["group:"]},
            {"answer": {"title": "x" * 20_000}},
        ],
    )
    def test_a_question_has_limits(self, further: dict[str, Any]) -> None:
        """Questions that nobody could read or answer are rejected when asked."""
        with pytest.raises(ValueError, match=r"is the most|at most|may|empty name|ask for less"):
            Docket().open(question(1, **further))


class _Case:
    """One random life of a run: questions, decisions of every kind, roll-backs, continue-as-new."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.docket = Docket()
        self.baton = "b0"
        self.number = 0
        self.decisions: list[
            tuple[Decision, Waiting]
        ] = []  # each decision, with the question that its person looked at
        self.answers: dict[str, Decided] = {}

    def run(self) -> None:
        """Do a dozen things in any order."""
        for _ in range(self.random.randint(6, 18)):
            acts = [self.ask, self.look, self.look, self.send, self.send, self.change, self.expire, self.restart]
            self.random.choice([*acts, self.forge, self.end])()
            self.check()

    def ask(self) -> None:
        """Open a question, often under an earlier title."""
        title = self.random.choice(TITLES)
        if title not in self.docket.titles():
            self.number += 1
            nonce = f"{self.number}:{self.random.getrandbits(64):x}"
            self.docket.open(question(self.number, title, question=nonce, needs=self.random.choice([1, 1, 2, 3])))

    def look(self) -> None:
        """A person looks at an open question and makes up their mind."""
        for waiting in self.docket.waiting(self.baton):
            who, yes = self.random.choice(PEOPLE), self.random.random() < 0.7
            decision = Decision(
                approval=waiting.name, question=waiting.question, digest=waiting.digest, approved=yes, who=who
            )
            self.decisions.append((decision, waiting))

    def send(self) -> None:
        """Send a decision: at once, late, twice, or after the question has ended."""
        if not self.decisions:
            return
        decision, _ = self.random.choice(self.decisions)
        before = {each.question: each for each in self.docket.waiting(self.baton)}
        answered = dict(self.answers)
        reply = decide(self.docket, decision, self.baton)
        if isinstance(reply, Decided):
            assert (reply.question, reply.digest) == (decision.question, decision.digest)
            assert decide(self.docket, decision, self.baton) == reply, "the same decision is answered the same"
        else:
            assert {each.question: each for each in self.docket.waiting(self.baton)} == before, (
                "a refusal changes nothing"
            )
        self.note()
        assert {**self.answers, **answered} == self.answers, "an answer never changes"

    def forge(self) -> None:
        """Send a decision that was not made on the named question, mixed from another one or empty."""
        if not self.decisions or not self.docket.titles():
            return
        decision, seen = self.random.choice(self.decisions)
        open_now = self.random.choice(self.docket.waiting(self.baton))
        forged = decision.model_copy(
            update={"approval": open_now.name, "question": self.random.choice([open_now.question, None, "9:x"])}
        )
        if forged.question != seen.question or decision.digest != open_now.digest:
            reply = decide(self.docket, forged, self.baton)
            assert isinstance(reply, str) or forged == decision or reply.question == seen.question

    def change(self) -> None:
        """Change the baton, as a concurrent stage does."""
        self.baton = f"b{self.random.randint(0, 2)}"

    def expire(self) -> None:
        """Let a deadline pass."""
        for waiting in self.docket.waiting(self.baton)[:1]:
            if self.docket.decided(waiting.question or "") is None:
                self.docket.expire(waiting.question or "", False, timedelta(1), AT, self.baton)

    def end(self) -> None:
        """End the answered steps."""
        self.note()
        for waiting in self.docket.waiting(self.baton):
            if self.docket.decided(waiting.question or "") is not None:
                self.docket.withdraw(waiting.question or "")

    def restart(self) -> None:
        """Continue as new or roll back: a docket that knows some of the closed questions."""
        self.note()
        remembered = {id: decided for id, decided in self.answers.items() if self.random.random() < 0.8}
        self.docket, self.answers = Docket(), remembered
        for one in remembered.values():
            self.docket.close(Decided.model_validate_json(one.model_dump_json()))

    def note(self) -> None:
        """Store a reply."""
        for waiting in self.docket.waiting(self.baton):
            decided = self.docket.decided(waiting.question or "")
            if decided is not None:
                self.answers[decided.question] = decided

    def check(self) -> None:
        """Check that every outcome rests on decisions on that question and what it showed."""
        self.note()
        for id, decided in self.answers.items():
            if decided.via == "deadline":
                continue
            voters: list[Vote | Decided] = [*decided.votes] or [decided]
            counted = {
                (decision.who, decision.approved)
                for decision, seen in self.decisions
                if (seen.question, seen.digest, seen.name) == (id, decided.digest, decided.approval)
            }
            assert {(vote.who, vote.approved) for vote in voters} <= counted
            people = {" ".join(vote.who.casefold().split()) for vote in voters}
            assert len(people) == len(voters), "each person counts once"


def test_every_outcome_rests_on_decisions_on_its_question() -> None:
    """In 10,000 random orders of repeated, late, contradicting and forged decisions and new runs."""
    answered = 0
    for seed in range(CASES):
        case = _Case(seed)
        case.run()
        answered += len(case.answers)
    assert answered > CASES // 4  # the cases are no empty ones


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
