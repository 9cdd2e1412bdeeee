"""Whether a decision that an earlier run recorded answers what the code asks now."""

from datetime import UTC, datetime
from typing import Any

import pytest

from baton import Decided
from baton.client import Waiting
from baton.core.decisions import Vote
from baton.runtime.approvals import restored_fault

AT = datetime(2026, 11, 29, tzinfo=UTC)


def vote(who: str, **members: Any) -> Vote:
    return Vote(who=who, approved=True, at=AT, via="update", **members)


def question(**members: Any) -> Waiting:
    return Waiting(kind="approval", name="boss", seq=1, since=AT, question="1:a", **members)


def recorded(now: Waiting, **members: Any) -> Decided:
    """Return a decision that carries the digests of the question, as somebody who invents one would compute them."""
    own = {
        "approval": "boss",
        "question": "1:a",
        "approved": True,
        "who": "ann",
        "at": AT,
        "digest": "",
        "via": "update",
    }
    return Decided(**{**own, "via": "update", "asked": now.asked, "terms": now.terms, **members})


SIGNED = {"key": "ann-1", "signature": "ed25519:x"}


@pytest.mark.parametrize(
    ("now", "decision", "fault"),
    [
        pytest.param({}, {}, None, id="it does"),
        pytest.param({}, {"approval": "chief"}, "it was made about 'chief'", id="another approval"),
        pytest.param({}, {"terms": ""}, "who may decide", id="no terms"),
        pytest.param({}, {"asked": ""}, "what is asked or shown", id="other texts"),
        pytest.param({"proof": True}, {}, "not every vote is signed", id="no proof"),
        pytest.param({"proof": True}, {"votes": [vote("ann", **SIGNED)]}, None, id="proof"),
        pytest.param({"who": ["bob"]}, {}, "somebody who may not decide", id="not who"),
        pytest.param({"who": ["bob"]}, {"approved": False}, "somebody who may not decide", id="not who, a denial"),
        pytest.param({"who": ["group:leads"]}, {}, None, id="a group, which a worker checked"),
        pytest.param({"needs": 2}, {"votes": [vote("ann"), vote("Ann")]}, "1 of 2", id="one person twice"),
        pytest.param({"needs": 2}, {"votes": [vote("ann"), vote("bob")]}, None, id="a quorum"),
        pytest.param({}, {"via": "deadline", "who": "deadline"}, "the decision at the deadline", id="another default"),
        pytest.param({}, {"via": "deadline", "who": "deadline", "approved": False}, None, id="the default"),
    ],
)
def test_a_recorded_decision_is_compared_with_the_question(
    now: dict[str, Any], decision: dict[str, Any], fault: str | None
) -> None:
    """The votes, who may decide, how many must, and the proof; also where the digests are right."""
    asked = question(**now)
    found = restored_fault(recorded(asked, **decision), asked, False, same_texts=True)
    assert found is None if fault is None else fault in (found or "")


def test_a_continued_run_may_ask_in_other_words() -> None:
    """A question may name the time; who decides and how stays the same."""
    before, now = question(asks="Pay at 10:00?"), question(asks="Pay at 10:05?")
    assert restored_fault(recorded(before), now, False, same_texts=False) is None
