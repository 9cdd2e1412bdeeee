"""When the answers to a handoff to several receivers are enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.exchange.records import Acknowledgement, Reply
from baton.exchange.workflow_broadcast import Broadcast
from baton.exchange.workflow_broadcast import BroadcastStatus as Status
from tests.exchange.test_exchange import ack

YES, NO = Reply.ACCEPTED, Reply.REJECTED


def broadcast(answers: dict[str, Reply], *, quorum: int | None = None, enough: bool = False) -> Broadcast:
    """Return a broadcast to a, b and c with answers."""
    sent = Broadcast(receivers=["a", "b", "c"], quorum=quorum, timeout_suffices=enough)
    for name, answer in answers.items():
        sent = sent.with_answer(name, ack(answer=answer, by=name))
    return sent


class TestStatus:
    @pytest.mark.parametrize(
        ("sent", "before", "after"),
        [
            pytest.param(broadcast({}), Status.OPEN, Status.FAILED, id="nobody has answered"),
            pytest.param(broadcast(dict.fromkeys("ab", YES)), Status.OPEN, Status.FAILED, id="one is silent"),
            pytest.param(broadcast(dict.fromkeys("abc", YES)), Status.ALL, Status.ALL, id="all have accepted"),
            pytest.param(broadcast({"a": NO}), Status.FAILED, Status.FAILED, id="one of all refuses"),
            pytest.param(broadcast({"a": YES}, quorum=2), Status.OPEN, Status.FAILED, id="no quorum yet"),
            pytest.param(
                broadcast(dict.fromkeys("ac", YES), quorum=2),
                Status.QUORUM,
                Status.QUORUM,
                id="quorum",
            ),
            pytest.param(
                broadcast(dict.fromkeys("ab", NO), quorum=2),
                Status.FAILED,
                Status.FAILED,
                id="no quorum possible",
            ),
            pytest.param(
                broadcast({"a": YES}, enough=True),
                Status.OPEN,
                Status.TIMEOUT,
                id="one until the end",
            ),
            pytest.param(
                broadcast({"a": YES, "b": NO}, enough=True),
                Status.OPEN,
                Status.TIMEOUT,
                id="one may still come",
            ),
            pytest.param(
                broadcast({"a": YES, "b": NO, "c": NO}, enough=True),
                Status.TIMEOUT,
                Status.TIMEOUT,
                id="all came",
            ),
            pytest.param(broadcast({}, enough=True), Status.OPEN, Status.FAILED, id="nobody until the end"),
        ],
    )
    def test_a_broadcast_is_open_until_it_is_decided(self, sent: Broadcast, before: Status, after: Status) -> None:
        """All, or the declared quorum, or the declared timeout (S3-14.2-d)."""
        assert (sent.standing(time_is_up=False), sent.standing(time_is_up=True)) == (before, after)

    @given(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(Reply)), st.none() | st.integers(1, 3), st.booleans()
    )
    def test_it_never_succeeds_with_fewer_than_declared(
        self, answers: dict[str, Reply], quorum: int | None, enough: bool
    ) -> None:
        """Once the time is up, it is decided."""
        sent = broadcast(answers, quorum=quorum, enough=enough)
        for time_is_up in (False, True):
            standing = sent.standing(time_is_up=time_is_up)
            if standing in (Status.ALL, Status.QUORUM):
                assert len(sent.accepted) >= (quorum or 3)
            assert not (time_is_up and standing is Status.OPEN)


class TestWithAnswer:
    def test_the_first_answer_of_a_receiver_stays(self) -> None:
        """A second one changes nothing."""
        sent = broadcast({"a": YES}).with_answer("a", ack(answer=NO, by="a"))

        assert sent.accepted == ["a"]
        assert list(sent.silent) == ["b", "c"]

    def test_an_answer_from_another_agent_is_refused(self) -> None:
        """The broadcast was not sent to it."""
        with pytest.raises(ValueError, match="not one of the receivers"):
            broadcast({}).with_answer("d", ack(by="d"))

    def test_it_survives_json(self) -> None:
        """For a run that continues as new."""
        sent = broadcast({"a": YES})

        assert Broadcast.model_validate_json(sent.model_dump_json(), strict=False) == sent
        assert isinstance(sent.answers["a"], Acknowledgement)
