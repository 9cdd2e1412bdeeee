"""Lists of tools: what can match no tool is an error where it is written."""

import asyncio
from typing import Any

import pytest

from baton.contract.activity import SessionLog, Toolbox
from baton.contract.records import ToolDeniedError
from baton.contract.registry import AgentEntry, AgentRegistry, tool_set
from baton.contract.workflow import ContractTerms
from baton.core.baton import Baton, BatonPatch
from baton.core.stages import StageSpec
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import stage

AGENTS = AgentRegistry([AgentEntry(name="mailer", version="1.0.0", tools=frozenset({"email.send"}))])


class TestToolSet:
    def test_names_are_taken_from_any_collection(self) -> None:
        """A set, a list and a generator mean the same."""
        assert tool_set(["a.b"], "tools") == tool_set({"a.b"}, "tools") == tool_set(iter(["a.b"]), "tools") == {"a.b"}

    def test_what_can_match_no_tool_is_refused(self) -> None:
        """Patterns, blanks, one string for a list, and what is not a string."""
        cases: list[tuple[Any, type[Exception]]] = [
            (["git.*"], ValueError),
            (["git.?ush"], ValueError),
            (["[a-z]"], ValueError),
            ([" "], ValueError),
            ("email.send", TypeError),
            ([7], TypeError),
        ]
        for names, error in cases:
            with pytest.raises(error):
                tool_set(names, "forbidden")


class TestContractTerms:
    def test_each_of_its_lists_is_checked_at_construction(self) -> None:
        """A run would fail late, or the tool would run."""
        for what in ("granted", "forbidden"):
            with pytest.raises(TypeError):
                ContractTerms(**{what: "email.send"})  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="pattern"):
                ContractTerms(**{what: frozenset({"git.*"})})  # type: ignore[arg-type]

    def test_a_misspelled_tool_of_a_registered_agent_is_refused(self) -> None:
        """Other names are allowed: a tool may come from elsewhere."""
        with pytest.raises(ValueError, match=r"did you mean 'email\.send'"):
            ContractTerms(forbidden=frozenset({"emial.send"}), agents=AGENTS)
        allowed = ContractTerms(forbidden=frozenset({"Email.Send", "crm.update"}), agents=AGENTS)
        assert allowed.forbidden == {"Email.Send", "crm.update"}


class TestStage:
    def test_they_are_checked_where_the_stage_is_made(self) -> None:
        """`@stage(forbids="email.send")` would forbid ten letters."""

        async def plan(baton: Baton) -> None:
            """Do nothing."""

        wrong: list[Any] = [{"forbids": "email.send"}, {"tools": "email.send"}]
        for terms in wrong:
            with pytest.raises(TypeError):
                stage(**terms)(plan)
        with pytest.raises(ValueError, match="pattern"):
            stage(forbids=["email.*"])(plan)

    def test_a_forbidden_tool_that_is_misspelt_is_refused(self) -> None:
        """It would forbid nothing."""

        async def plan(baton: Baton) -> BatonPatch:
            return BatonPatch()

        with pytest.raises(ValueError, match=r"did you mean 'git'"):
            stage(tools=["git"], forbids=["gitt"])(plan)

    def test_what_it_forbids_is_denied_without_a_contract_too(self) -> None:
        """In any spelling, and also where that leaves no tool at all."""
        for able, forbids in ((["email.send"], ["Email.Send"]), ([], ["email.send"])):
            context = StageContext.for_test(Baton(goal="Add login"))
            context.spec = StageSpec("plan", tools=frozenset(able), forbids=frozenset(forbids))
            assert not context.tools.allows("email.send")

    def test_a_denied_call_does_not_run(self) -> None:
        """The toolbox refuses where the tool is called."""
        tools = Toolbox(None, SessionLog("plan", "1", "h-1"), "h-1", forbidden=frozenset({"email.send"}))
        with pytest.raises(ToolDeniedError):
            asyncio.run(tools.call("EMAIL.send", lambda: pytest.fail("it ran")))
