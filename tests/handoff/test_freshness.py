"""Messages that arrive too late, too early, or at the wrong address."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from baton.core.outline import Outline
from baton.core.verdict import Code
from baton.handoff.records import Handoff
from baton.handoff.store_gate import REPLAY, audience_check
from baton.handoff.validation import staleness_finding
from tests.handoff.material import EXAMPLE

NOW = datetime(2026, 6, 12, 10, tzinfo=UTC)
HERE = "contract_review/score"
NAMESPACE, RUN = "default", "01a224c1-f1d5-70ca-a432-1b2515988176"
FRESH: dict[str, Any] = {
    **EXAMPLE,
    "timestamp": "2026-06-12T09:30:00Z",
    "expiresAt": "2026-06-12T11:00:00Z",
    "audience": HERE,
    "audienceRun": RUN,
    "namespace": NAMESPACE,
}


def find_staleness(message: dict[str, Any], *, max_age: timedelta | None = timedelta(hours=1)) -> str | None:
    finding = staleness_finding(Handoff.from_json_object(message), NOW, max_age, timedelta(seconds=60))
    if finding is None:
        return None
    assert finding.code is Code.SIGNATURE_INVALID
    assert finding.at == ("/expiresAt" if "it expired" in finding.text else "/timestamp")
    return finding.text


class TestStaleness:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            pytest.param({"expiresAt": "2026-06-12T10:00:00Z"}, "expired at 2026-06-12T10", id="it expires just now"),
            pytest.param({"expiresAt": "2026-06-12T12:00:00+02:30"}, "expired", id="it expired in its own time zone"),
            pytest.param({"timestamp": "2026-06-12T10:01:01Z"}, "0:01:01 in the future", id="it is from the future"),
            pytest.param({"timestamp": "2026-06-12T08:59:59Z"}, "limit is 1:00:00", id="it is too old"),
        ],
    )
    def test_a_stale_message_is_refused_with_the_reason(self, changes: dict[str, Any], reason: str) -> None:
        """A sealed message does not stay valid for ever."""
        text = find_staleness(FRESH | changes)

        assert text is not None
        assert reason in text

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({}, id="in time"),
            pytest.param({"timestamp": "2026-06-12T10:01:00Z"}, id="as far ahead as clocks may differ"),
            pytest.param({"timestamp": "2026-06-12T09:00:00Z"}, id="just as old as allowed"),
            pytest.param({"expiresAt": "2026-06-12T10:00:00.000001Z"}, id="with a microsecond left"),
        ],
    )
    def test_a_message_at_the_edge_still_counts(self, changes: dict[str, Any]) -> None:
        """The limits are inclusive."""
        assert find_staleness(FRESH | changes) is None

    def test_without_a_maximum_any_age_is_accepted(self) -> None:
        """A run may sleep for a year; then only `expiresAt` decides."""
        old = {**EXAMPLE, "timestamp": "2020-01-01T00:00:00Z"}

        assert find_staleness(old, max_age=None) is None


class TestAudienceCheck:
    @pytest.mark.parametrize(
        ("member", "value"),
        [
            pytest.param("audience", "payments/score", id="somebody else"),
            pytest.param("audience", "Contract_review/score", id="an address that differs in one letter"),
            pytest.param("audience", [HERE], id="a list"),
            pytest.param("audience", None, id="nobody"),
            pytest.param("namespace", "staging", id="another namespace"),
            pytest.param("namespace", None, id="no namespace"),
            pytest.param("audienceRun", "01a224c2-11dc-799f-888d-d33549e7747b", id="another chain of runs"),
        ],
    )
    def test_a_message_for_another_receiver_is_a_replay(self, member: str, value: object) -> None:
        """A sealed message for another receiver, namespace or run, or for none, is rejected."""
        check = audience_check(HERE, NAMESPACE, RUN)
        [finding] = check(Outline.of(FRESH | {member: value}))

        assert (finding.code, finding.at, finding.rule) == (Code.SIGNATURE_INVALID, f"/{member}", REPLAY)
        assert [missing.at for missing in check(Outline())] == ["/audience", "/namespace"]
        assert check(Outline.of(FRESH)) == check(Handoff.from_json_object(FRESH)) == []

    def test_a_sender_need_not_know_the_receiver_s_run(self) -> None:
        """Then the gate looks for an acceptance by another run."""
        message = {name: value for name, value in FRESH.items() if name != "audienceRun"}

        assert audience_check(HERE, NAMESPACE, RUN)(Outline.of(message)) == []
