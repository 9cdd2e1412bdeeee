"""The choice of a handoff's receiver, and the error if there is none."""

import pytest

from baton import ReceiverRequirements
from baton.core.receivers import choose_receiver, misdelivery
from baton.errors import RoutingError

KNOWN = [
    ReceiverRequirements("risk-scoring-agent", "1.4.0"),
    ReceiverRequirements("risk-scoring-agent", "1.10.0"),
    ReceiverRequirements("risk-scoring-agent", "1.9.0"),
    ReceiverRequirements("risk-scoring-agent", "2.0.0-rc.1"),
    ReceiverRequirements("summary-agent", "0.3.0"),
]


class TestChooseReceiver:
    @pytest.mark.parametrize(
        ("versions", "version"),
        [(">=1.5.0", "1.10.0"), ("~1.9", "1.9.0"), ("1.4.x", "1.4.0"), (">=2.0.0-rc.1", "2.0.0-rc.1"), ("*", "1.10.0")],
    )
    def test_the_newest_version_in_the_range_receives(self, versions: str, version: str) -> None:
        """The choice within a range is always the same (S3-5.2-h, S3-5.2-i)."""
        assert choose_receiver("risk-scoring-agent", versions, KNOWN).agent_version == version

    @pytest.mark.parametrize(
        ("agent_type", "versions", "message"),
        [
            pytest.param(
                "risk-scorer-agent",
                "*",
                "no agent 'risk-scorer-agent'; did you mean 'risk-scoring-agent'",
                id="a near name",
            ),
            pytest.param("zzz", "*", "there are risk-scoring-agent, summary-agent", id="no near name"),
            pytest.param(
                "risk-scoring-agent",
                ">=1.11 <2",
                r"is in '>=1\.11 <2'; there are 2\.0\.0-rc\.1, 1\.10\.0, 1\.9\.0, 1\.4\.0",
                id="too old",
            ),
            pytest.param("summary-agent", "^0.2", r"there are 0\.3\.0", id="too new"),
        ],
    )
    def test_an_unmet_target_is_an_error_that_names_what_there_is(
        self, agent_type: str, versions: str, message: str
    ) -> None:
        """It is raised before dispatch, and says what to do (toAgent unmet)."""
        with pytest.raises(RoutingError, match=message):
            choose_receiver(agent_type, versions, KNOWN)

    def test_an_empty_registry_says_so(self) -> None:
        """The error says that there are none."""
        with pytest.raises(RoutingError, match="there are none"):
            choose_receiver("a", "*", [])

    def test_a_wrong_range_is_the_programmers(self) -> None:
        """It is a different error than a missing agent."""
        with pytest.raises(ValueError, match="range of versions"):
            choose_receiver("summary-agent", "newest", KNOWN)


class TestMisdelivery:
    OWN = ReceiverRequirements("risk-scoring-agent", "1.6.0")

    @pytest.mark.parametrize(
        ("agent_type", "versions", "receivers", "reason"),
        [
            pytest.param("risk-scoring-agent", ">=1.5.0", [], None, id="it is meant for it"),
            pytest.param(
                "summary-agent", "*", ["summary-agent", "risk-scoring-agent"], None, id="it is one of several"
            ),
            pytest.param("summary-agent", "*", [], "meant for 'summary-agent'", id="another type"),
            pytest.param("summary-agent", "*", ["summary-agent"], "meant for 'summary-agent'", id="not in the list"),
            pytest.param("risk-scoring-agent", "^2", [], "received by its version 1.6.0", id="another version"),
        ],
    )
    def test_only_the_agent_it_is_meant_for_takes_it(
        self, agent_type: str, versions: str, receivers: list[str], reason: str | None
    ) -> None:
        """A misdelivered handoff is not accepted and not executed (S3-14.2-c; toAgent unmet)."""
        text = misdelivery(agent_type, versions, receivers, self.OWN)

        assert text is None if reason is None else reason in (text or "")
