"""The memory of sender and receiver, whatever the transport does to their messages."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.outline import Outline
from baton.core.verdict import Code, Finding, Verdict, rejected
from baton.exchange import records as exchange
from baton.exchange.records import (
    AckMatch,
    Acknowledgement,
    Outbox,
    ProcessedHandoffs,
    Reply,
    SentHandoff,
    message_digest,
    next_in_line,
)

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def id_of(number: int) -> str:
    """Return a random UUID with a number in it."""
    return f"7c9e6679-7425-40de-944b-{number:012x}"


def ack(number: int = 1, digest: str = A, answer: Reply = Reply.ACCEPTED, by: str = "risk") -> Acknowledgement:
    return Acknowledgement(handoff_id=id_of(number), digest=digest, answer=answer, by=by, at=AT)


def sent(number: int = 1, digest: str = A) -> SentHandoff:
    return SentHandoff(
        handoff_id=id_of(number),
        digest=digest,
        receiver="risk",
        workflow_id="risk-7",
        sent_at=AT,
        deadline=AT + timedelta(hours=1),
    )


class TestAcknowledgement:
    @pytest.mark.parametrize(
        ("verdict", "answer"),
        [
            pytest.param(Verdict.of([]), Reply.ACCEPTED, id="nothing found"),
            pytest.param(rejected(Code.INCOMPLETE_CONTEXT, "send it"), Reply.NEEDS_INPUT, id="context missing"),
            pytest.param(rejected(Code.SCHEMA_INVALID, "mend it"), Reply.NEEDS_INPUT, id="schema broken"),
            pytest.param(rejected(Code.SAFETY_VIOLATION, "no"), Reply.REJECTED, id="unsafe"),
            pytest.param(rejected(Code.SIGNATURE_INVALID, "no"), Reply.REJECTED, id="replayed"),
            pytest.param(rejected(Code.ROUTING_ERROR, "no"), Reply.REJECTED, id="wrong agent"),
            pytest.param(rejected(Code.BUDGET_EXHAUSTED, "no"), Reply.REJECTED, id="no money"),
        ],
    )
    def test_only_correctable_codes_need_input(self, verdict: Verdict, answer: Reply) -> None:
        """Each code has one fate, and the answer says which (S3-6.1-n, S3-6.1-o)."""
        answered = Acknowledgement.of_verdict(id_of(1), A, verdict, by="risk", at=AT)

        assert (answered.answer, answered.code) == (answer, verdict.reason)
        assert bool(answered.unmet) is (answer is Reply.NEEDS_INPUT)

    def test_everything_unmet_is_listed(self) -> None:
        """The sender learns it all at once (C-13)."""
        findings = [Finding(code=Code.INCOMPLETE_CONTEXT, text=text) for text in ("send a", "send b")]

        assert Acknowledgement.of_verdict(id_of(1), A, Verdict.of(findings), by="r", at=AT).unmet == [
            "send a",
            "send b",
        ]

    def test_it_survives_json_with_members_of_later_minors(self) -> None:
        """Members that a newer receiver adds are kept."""
        message = {**ack().to_json_object(), "later": 1, "keyId": "k", "signature": "hmac-sha256:00"}

        assert Acknowledgement.from_json(json.dumps(message)).to_json_object() == message

    @pytest.mark.parametrize("member", ["handoffId", "digest", "answer", "by", "timestamp"])
    def test_missing_members_are_not_filled_in(self, member: str) -> None:
        """An answer without a required member is refused."""
        message = ack().to_json_object()
        del message[member]
        with pytest.raises(ValueError, match=member):
            Acknowledgement.from_json_object(message)


class TestOutbox:
    def test_the_first_answer_counts(self) -> None:
        """A repeated answer changes nothing, a different one is refused (C-20)."""
        outbox = Outbox()
        outbox.add(sent())

        assert outbox.receive(ack()) is AckMatch.FIRST
        assert outbox.receive(ack()) is AckMatch.REPEATED
        assert outbox.receive(ack(answer=Reply.REJECTED)) is AckMatch.CONTRADICTS
        assert outbox.answer(id_of(1)) == ack()

    @pytest.mark.parametrize(
        ("answer", "match"),
        [
            pytest.param(ack(2), AckMatch.UNKNOWN, id="to a handoff that was not sent"),
            pytest.param(ack(digest=B), AckMatch.OTHER_MESSAGE, id="to another message under its id"),
            pytest.param(ack(by="mallory"), AckMatch.OTHER_AGENT, id="accepted by somebody else"),
        ],
    )
    def test_an_answer_to_something_else_does_not_count(self, answer: Acknowledgement, match: AckMatch) -> None:
        """It is bound to the id, the content and the receiver."""
        outbox = Outbox()
        outbox.add(sent())

        assert outbox.receive(answer) is match
        assert outbox.answer(id_of(1)) is None

    def test_a_rejection_counts_from_any_agent(self) -> None:
        """The wrong agent has to be able to reject a message."""
        outbox = Outbox()
        outbox.add(sent())

        assert outbox.receive(ack(by="summary", answer=Reply.REJECTED)) is AckMatch.FIRST

    def test_a_late_answer_is_recognised(self) -> None:
        """The sender no longer waits."""
        outbox = Outbox()
        outbox.add(sent())
        outbox.close(id_of(1))

        assert outbox.receive(ack()) is AckMatch.LATE

    def test_a_corrected_message_keeps_the_id_and_is_another_attempt(self) -> None:
        """Only a rejected message can be corrected; the answer to the earlier one no longer counts (C-20)."""
        outbox = Outbox()
        outbox.add(sent())
        with pytest.raises(ValueError, match="was sent before"):
            outbox.add(sent(digest=B))
        outbox.receive(ack(answer=Reply.NEEDS_INPUT))
        outbox.close(id_of(1))
        assert outbox.next_attempt(id_of(1)) == 2
        outbox.add(sent(digest=B))

        assert outbox.receive(ack(answer=Reply.NEEDS_INPUT)) is AckMatch.OTHER_MESSAGE
        assert outbox.receive(ack(digest=B)) is AckMatch.FIRST
        assert Outbox(json.loads(json.dumps(outbox.carried()))).next_attempt(id_of(1)) == 3

    def test_closed_handoffs_are_forgotten_and_open_ones_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its memory is bounded."""
        monkeypatch.setattr(exchange, "MAX_REMEMBERED", 3)
        outbox = Outbox()
        outbox.add(sent(0))
        for number in range(1, 6):
            outbox.add(sent(number))
            outbox.close(id_of(number))

        assert len(outbox.carried()) <= 4
        assert outbox.receive(ack(1)) is AckMatch.UNKNOWN


class TestIntake:
    def test_the_same_message_gets_the_same_answer(self) -> None:
        """Also after continue-as-new (C-20)."""
        intake = ProcessedHandoffs()
        assert intake.earlier_answer(id_of(1), A, by="risk", at=AT) is None
        intake.remember(ack())

        assert (
            ProcessedHandoffs(json.loads(json.dumps(intake.carried()))).earlier_answer(id_of(1), A, by="risk", at=AT)
            == ack()
        )

    def test_other_content_after_acceptance_is_tampering(self) -> None:
        """It is rejected, and the acceptance stays (C-20)."""
        intake = ProcessedHandoffs()
        intake.remember(ack())
        answer = intake.earlier_answer(id_of(1), B, by="risk", at=AT)

        assert answer is not None
        assert (answer.answer, answer.code, answer.digest) == (Reply.REJECTED, Code.SIGNATURE_INVALID, B)
        with pytest.raises(ValueError, match="was accepted with other content"):
            intake.remember(ack(digest=B))

    def test_other_content_after_a_refusal_is_a_corrected_attempt(self) -> None:
        """It is judged again."""
        intake = ProcessedHandoffs()
        intake.remember(ack(answer=Reply.NEEDS_INPUT))

        assert intake.earlier_answer(id_of(1), B, by="risk", at=AT) is None
        intake.remember(ack(digest=B))
        assert intake.answer(id_of(1)) == ack(digest=B)

    def test_rejections_are_forgotten_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory is bounded; acceptances, which prevent a second execution, are kept longest."""
        monkeypatch.setattr(exchange, "MAX_REMEMBERED", 2)
        intake = ProcessedHandoffs()
        intake.remember(ack(1))
        for number in (2, 3, 4):
            intake.remember(ack(number, answer=Reply.REJECTED))

        assert [number for number in range(1, 5) if intake.answer(id_of(number))] == [1, 4]


class TestMessageDigest:
    def test_it_is_the_same_under_another_seal(self) -> None:
        """A message that is sealed again under a new key is the same message."""
        assert message_digest({"a": 1, "keyId": "k1", "signature": "x"}) == message_digest(
            {"keyId": "k2", "a": 1, "signature": "y"}
        )
        assert message_digest({"a": 1}) != message_digest({"a": 2})


class TestNextInLine:
    @pytest.mark.parametrize(
        ("waiting", "first"),
        [
            pytest.param([{}, {}], 0, id="nothing is known: order of arrival"),
            pytest.param([("b", "a"), ("a", "")], 1, id="child before parent"),
            pytest.param([("c", "b"), ("b", "a"), ("a", "")], 2, id="a whole chain backwards"),
            pytest.param([("b", "x"), ("a", "")], 0, id="the parent is not here"),
            pytest.param([("a", "b"), ("b", "a")], 0, id="a liar's circle"),
            pytest.param([("a", "a")], 0, id="its own parent"),
        ],
    )
    def test_parents_come_before_their_children(self, waiting: list[Any], first: int) -> None:
        """Nothing in a message can stop the queue."""
        places = [
            Outline.of({"handoffId": handoff[0], "parentHandoffId": handoff[1]} if handoff else None)
            for handoff in waiting
        ]

        assert next_in_line(places) == first

    def test_fewer_hops_of_the_same_task_go_first(self) -> None:
        """If messages state their hops."""

        def place(task: str, hops: int) -> Outline:
            return Outline.of({"taskId": task, "trail": {"hops": hops}})

        assert next_in_line([place("t", 3), place("u", 1), place("t", 2)]) == 2

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.dictionaries(
                st.sampled_from(["handoffId", "parentHandoffId", "taskId", "trail", "hops"]), inner
            ),
            max_leaves=8,
        )
    )
    def test_no_message_raises(self, message: Any) -> None:
        """Unverified bytes can contain anything."""
        assert next_in_line([Outline.of(message), Outline.of(message)]) in (0, 1)


class Network:
    """Two pipelines, and everything that can happen to their messages."""

    def __init__(self) -> None:
        self.outbox, self.intake = Outbox(), ProcessedHandoffs()
        self.handoffs: list[tuple[int, str]] = []
        self.answers: list[Acknowledgement] = []
        self.executed: list[tuple[int, str]] = []
        self.first: dict[int, Acknowledgement] = {}

    def send(self, number: int) -> None:
        if self.outbox.next_attempt(id_of(number)) == 1:
            self.outbox.add(sent(number))
        else:
            self.outbox.count_attempt(id_of(number))
        self.handoffs.append((number, A))

    def receive(self, at: int, answer: Reply) -> None:
        """Deliver one of the sent messages, which can be delivered again."""
        if not self.handoffs:
            return
        number, digest = self.handoffs[at % len(self.handoffs)]
        response = self.intake.earlier_answer(id_of(number), digest, by="risk", at=AT)
        if response is None:
            response = ack(number, digest, answer)
            self.intake.remember(response)
            if response.accepted:
                self.executed.append((number, digest))
        self.answers.append(response)

    def answer(self, at: int) -> None:
        """Deliver one of the sent answers."""
        if self.answers:
            answer = self.answers[at % len(self.answers)]
            if self.outbox.receive(answer) in (AckMatch.FIRST, AckMatch.LATE):
                number = int(answer.handoff_id[-12:], 16)
                assert number not in self.first, "an answer counted twice"
                self.first[number] = answer

    def tamper(self, number: int) -> None:
        """Send other content under the id, with a valid key."""
        self.handoffs.append((number, B))

    def continue_as_new(self) -> None:
        """Restore both from the state that they carry over, as JSON."""
        self.outbox = Outbox(json.loads(json.dumps(self.outbox.carried())))
        self.intake = ProcessedHandoffs(json.loads(json.dumps(self.intake.carried())))


NUMBERS, PLACES = st.integers(0, 3), st.integers(0, 30)
EVENTS = st.one_of(
    st.tuples(st.just("send"), NUMBERS),
    st.tuples(st.just("receive"), PLACES, st.sampled_from(Reply)),
    st.tuples(st.just("answer"), PLACES),
    st.tuples(st.just("tamper"), NUMBERS),
    st.tuples(st.just("continue_as_new")),
    st.tuples(st.just("close"), NUMBERS),
)


class TestAnyInterleaving:
    """Duplicates, reorderings, late and lost answers, tampering, and runs that continue as new, in any order."""

    @given(st.lists(EVENTS, max_size=60))
    def test_a_handoff_is_executed_once_and_its_first_answer_stays(self, events: list[tuple[Any, ...]]) -> None:
        """The transport cannot cause a second execution or change an answer (C-20, F3, F4, F5)."""
        network = Network()
        for name, *arguments in events:
            if name == "close":
                if network.outbox.next_attempt(id_of(arguments[0])) > 1:
                    network.outbox.close(id_of(arguments[0]))
            else:
                getattr(network, name)(*arguments)

        ids = [number for number, _ in network.executed]
        assert len(ids) == len(set(ids))
        for number, answer in network.first.items():
            assert network.outbox.answer(id_of(number)) == answer
            assert not answer.accepted or (number, answer.digest) in network.executed
            assert answer.digest == A
