"""The rules for the actions of outside agents."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.exchange.external import ActionKind, AgentAction, ExternalHandoffs, OutsideHandoff, OutsideResult
from baton.exchange.records import Reply

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
DIGEST = "sha256:" + "a" * 64


def act(kind: str, holder: str = "ann", **members: Any) -> AgentAction:
    values = {"handoff_id": ID, "digest": DIGEST, "agent": "reviewer", "at": AT, **members}
    return AgentAction(kind=ActionKind(kind), holder=holder, **values)


def desk(*actions: AgentAction) -> ExternalHandoffs:
    """Return handoffs with one open handoff, after allowed actions."""
    handoffs = ExternalHandoffs()
    handoffs.add(
        OutsideHandoff(
            handoff_id=ID,
            digest=DIGEST,
            agent="reviewer",
            description="Review it",
            since=AT,
            until=AT + timedelta(hours=1),
        )
    )
    for action in actions:
        assert handoffs.refusal(action, AT) is None
        handoffs.apply(action, AT)
    return handoffs


CLAIM, ACCEPT = act("claim"), act("accept")


class TestRefusal:
    @pytest.mark.parametrize(
        ("before", "action", "after", "why"),
        [
            pytest.param([], act("claim", agent="painter"), 0, "waits for 'painter'", id="another agent's"),
            pytest.param([], act("claim", digest="sha256:" + "b" * 64), 0, "read it again", id="another message"),
            pytest.param([], act("accept"), 0, "claim handoff", id="accept without a claim"),
            pytest.param([CLAIM], act("accept", "bob"), 0, "'ann' has claimed", id="accept on another's claim"),
            pytest.param([CLAIM], act("claim", "bob"), 0, "'ann' has claimed", id="claim what is claimed"),
            pytest.param([CLAIM], act("patch"), 0, "accept handoff", id="return before accepting"),
            pytest.param([CLAIM], act("needs_input"), 0, "name what is missing", id="needs nothing"),
            pytest.param([CLAIM], act("accept"), 601, "claim handoff", id="a claim that has run out"),
            pytest.param([], act("claim"), 3_600, "expired", id="after the deadline"),
            pytest.param([CLAIM, ACCEPT, act("report")], act("patch"), 0, "is done: report by 'ann'", id="done"),
            pytest.param([CLAIM, ACCEPT, act("report")], act("report", "bob"), 0, "is done", id="done by another"),
        ],
    )
    def test_an_action_out_of_turn_is_refused_with_what_to_do(
        self, before: list[AgentAction], action: AgentAction, after: int, why: str
    ) -> None:
        """The claim, the acceptance and the time all count."""
        refusal = desk(*before).refusal(action, AT + timedelta(seconds=after))

        assert refusal is not None
        assert why in refusal

    @pytest.mark.parametrize(
        ("before", "action", "after"),
        [
            pytest.param([CLAIM], CLAIM, 0, id="a claim is renewed"),
            pytest.param([CLAIM], act("claim", "bob"), 600, id="a claim that has run out is free"),
            pytest.param([CLAIM, act("give_back")], act("claim", "bob"), 0, id="a claim that was given back is free"),
            pytest.param([CLAIM], act("reject", reason="no"), 0, id="no is said without accepting"),
            pytest.param([CLAIM, ACCEPT], ACCEPT, 0, id="accepted twice"),
            pytest.param([CLAIM, ACCEPT, act("report")], act("report"), 5_000, id="returned twice"),
        ],
    )
    def test_an_action_in_turn_is_allowed(self, before: list[AgentAction], action: AgentAction, after: int) -> None:
        """Also a repeated one, whose answer may have been lost."""
        assert desk(*before).refusal(action, AT + timedelta(seconds=after)) is None


class TestApply:
    def test_a_new_holder_begins_anew(self) -> None:
        """A handoff that another holder accepted has to be accepted again."""
        handoffs = desk(CLAIM, ACCEPT)
        after = handoffs.apply(act("claim", "bob"), AT + timedelta(seconds=600))

        assert (after.holder, after.accepted) == ("bob", False)

    def test_a_renewal_never_shortens_a_claim_and_no_claim_outlasts_the_handoff(self) -> None:
        """Nobody loses time by asking again."""
        handoffs = desk(act("claim", lease_seconds=900), act("claim", lease_seconds=1))
        assert handoffs.open()[0].leased_until == AT + timedelta(seconds=900)

        assert desk(act("claim", lease_seconds=90_000)).open()[0].leased_until == AT + timedelta(hours=1)

    def test_the_end_stays(self) -> None:
        """And is no longer listed."""
        handoffs = desk(CLAIM, ACCEPT, act("report", report=1))
        assert handoffs.apply(act("report", report=2), AT).end == act("report", report=1)
        assert handoffs.open() == []

    @given(
        st.lists(
            st.tuples(st.sampled_from(ActionKind), st.sampled_from(["ann", "bob"]), st.integers(0, 900)), max_size=25
        )
    )
    def test_only_who_accepted_on_a_good_claim_returns_anything(
        self, events: list[tuple[ActionKind, str, int]]
    ) -> None:
        """In any order of actions, also across continue-as-new."""
        handoffs, now, accepted_by = desk(), AT, None
        for kind, holder, seconds in events:
            now += timedelta(seconds=seconds)
            action = act(kind.value, holder, unmet=["x"])
            before = handoffs.get(ID)
            assert before is not None
            if handoffs.refusal(action, now) is None:
                after = handoffs.apply(action, now)
                if before.end is None and kind in (ActionKind.PATCH, ActionKind.REPORT):
                    assert accepted_by == holder == before.held_by(now)
                accepted_by = after.holder if after.accepted else None
            handoffs = ExternalHandoffs(json.loads(json.dumps(handoffs.carried())))


class TestDone:
    def test_it_is_known_after_continuing_as_new(self) -> None:
        """How and by whom each ended, and the digest of the work, but not the work."""
        first = act("patch", patch={"decision_log": ["Fine"]}, report=[1])
        handoffs = desk(CLAIM, ACCEPT, first)
        handoffs.remove(ID)
        for _ in range(2):
            handoffs = ExternalHandoffs(json.loads(json.dumps(handoffs.carried())))
        [done] = handoffs.done()

        assert done.end is not None
        assert (done.end.kind, done.end.holder, done.end.patch, done.end.report) == (ActionKind.PATCH, "ann", {}, None)
        assert done.end.has_same_work(first)
        assert not done.end.has_same_work(act("patch", patch={"decision_log": ["Fine"]}))

    def test_no_more_than_a_hundred_are_carried_over(self) -> None:
        """The newest ones, because they are in the input of each continued run."""
        handoffs = desk()
        for number in range(102):
            id = f"7c9e6679-7425-40de-944b-{number:012d}"
            handoffs.add(handoffs.open()[0].model_copy(update={"handoff_id": id}))
            for action in (act("claim", handoff_id=id), act("reject", handoff_id=id)):
                handoffs.apply(action, AT)
            handoffs.remove(id)

        numbers = [
            int(task.handoff_id[-12:]) for task in ExternalHandoffs(json.loads(json.dumps(handoffs.carried()))).done()
        ]
        assert numbers == [*range(2, 102)]


class TestOutsideResult:
    @pytest.mark.parametrize(
        ("end", "answer"),
        [
            pytest.param(act("patch", patch={"current_state": ["x"]}), Reply.ACCEPTED, id="patch"),
            pytest.param(act("report", report=[1]), Reply.ACCEPTED, id="report"),
            pytest.param(act("reject", reason="no"), Reply.REJECTED, id="reject"),
            pytest.param(act("needs_input", unmet=["send it"]), Reply.NEEDS_INPUT, id="needs input"),
        ],
    )
    def test_it_is_the_answer_and_what_was_returned(self, end: AgentAction, answer: Reply) -> None:
        """It looks the same as the answer of another pipeline."""
        result = OutsideResult.of(end)

        assert (result.answer.answer, result.patch, result.report) == (answer, end.patch, end.report)
        assert (result.answer.reason, result.answer.unmet) == (end.reason, end.unmet)
