"""The registry of agents: exact names and versions, capability, tools."""

from typing import Any

import pytest
from pydantic import ValidationError

from baton.contract.records import UnknownAgentError
from baton.contract.registry import AgentEntry, AgentRegistry
from baton.errors import RoutingError


def agent(name: str = "ComplianceReviewAgent", version: str = "1.2.0", **members: Any) -> AgentEntry:
    return AgentEntry(name=name, version=version, **members)


AGENTS = AgentRegistry([agent(), agent("ResearchAgent", "2.0.0"), agent("ResearchAgent", "2.10.0")])


class TestFind:
    def test_an_exact_name_and_version(self) -> None:
        """No other one will do (C-46, S5-check-n)."""
        assert AGENTS.find("ResearchAgent", "2.0.0").version == "2.0.0"

    @pytest.mark.parametrize(
        ("name", "version", "message"),
        [
            pytest.param("ComplianceReview", None, "did you mean 'ComplianceReviewAgent'?", id="a similar name"),
            pytest.param("complianceReviewAgent", None, "did you mean 'ComplianceReviewAgent'?", id="another case"),
            pytest.param("xyz", None, "there are ComplianceReviewAgent, ResearchAgent", id="no similar name"),
            pytest.param("ResearchAgent", "2.0.1", "there are 2.10.0, 2.0.0", id="another version"),
            pytest.param("ResearchAgent", None, "several versions and none is named", id="no version of several"),
        ],
    )
    def test_what_is_not_there_is_refused_with_what_comes_near(
        self, name: str, version: str | None, message: str
    ) -> None:
        """A similar agent is never taken instead (S5-fm-e, S5-prob-f, C-46)."""
        with pytest.raises(UnknownAgentError) as caught:
            AGENTS.find(name, version)

        assert message in str(caught.value)
        assert isinstance(caught.value, RoutingError)

    def test_of_several_the_newest_only_if_the_policy_says_so(self) -> None:
        """By the order of versions, not of letters (C-46)."""
        assert AgentRegistry(AGENTS.entries, latest=True).find("ResearchAgent").version == "2.10.0"
        assert AGENTS.find("ComplianceReviewAgent").version == "1.2.0"

    def test_an_empty_registry_says_so(self) -> None:
        """Nothing comes near (S5-fm-e)."""
        with pytest.raises(UnknownAgentError, match="there is no agent 'A'; there are none"):
            AgentRegistry().find("A")

    def test_the_same_agent_twice_is_misuse(self) -> None:
        """Two entries would be a matter of order (S5-check-n)."""
        with pytest.raises(ValueError, match=r"'ComplianceReviewAgent' 1\.2\.0 is registered twice"):
            AgentRegistry([*AGENTS.entries, agent()])


class TestRoute:
    ABLE = AgentRegistry(
        [
            agent("Reviewer", capability=frozenset({"review"}), tools=frozenset({"policy.search"})),
            agent("Writer", capability=frozenset({"write", "review"}), tools=frozenset({"email.draft"})),
        ]
    )

    def test_an_agent_that_can(self) -> None:
        """Name, kind of task and tools (S5-fields-b)."""
        assert self.ABLE.route("Reviewer", "1.2.0", capability=["review"], tools=["Policy.Search"]).name == "Reviewer"

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            pytest.param({"capability": ["write"]}, "cannot do 'write'; 'Writer' 1.2.0 can", id="a task"),
            pytest.param({"tools": ["email.draft"]}, "cannot use 'email.draft'; 'Writer' 1.2.0 can", id="a tool"),
            pytest.param({"capability": ["dance"], "tools": ["x"]}, "do 'dance' or use 'x'; no agent can", id="both"),
        ],
    )
    def test_an_agent_that_cannot_is_refused(self, asked: dict[str, Any], message: str) -> None:
        """And those that can are named (S5-fields-b, S5-fm-e, S5-check-n)."""
        with pytest.raises(UnknownAgentError) as caught:
            self.ABLE.route("Reviewer", **asked)

        assert message in str(caught.value)


class TestAgentEntry:
    def test_it_survives_json(self) -> None:
        """Sets are lists there, each name once."""
        entry = agent(capability=["review"], tools=["b", "a", "b"])

        assert AgentEntry.model_validate_json(entry.model_dump_json()) == entry
        assert entry.tools == {"a", "b"}

    @pytest.mark.parametrize(
        "members",
        [
            {"version": "1.2"},
            {"name": ""},
            {"tools": "policy.search"},
        ],
    )
    def test_what_is_no_agent_is_refused(self, members: dict[str, Any]) -> None:
        """Where it is registered, and not at the first handoff (S5-check-n)."""
        with pytest.raises(ValidationError):
            AgentEntry(**{"name": "A", "version": "1.0.0", **members})
