"""Lists of tools: what can match no tool is an error where it is written."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from baton import Baton, BatonPatch, StageContext, stage
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.contract.activity import SessionLog, Toolbox
from baton.contract.compiler import compile_contract
from baton.contract.records import ToolDeniedError
from baton.contract.registry import AgentEntry, AgentRegistry, tool_key, tool_set
from baton.contract.workflow import ContractTerms
from baton.core.stages import StageSpec
from tests.contract.contract_material import request

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

    def test_a_tool_that_no_registered_agent_has_is_refused(self) -> None:
        """It would forbid or grant nothing; no other agent can get into the pipeline."""
        with pytest.raises(ValueError, match=r"did you mean 'email\.send'"):
            ContractTerms(forbidden=frozenset({"emial.send"}), agents=AGENTS)
        with pytest.raises(ValueError, match=r"there is no tool 'crm\.update'; there are email\.send"):
            ContractTerms(granted=frozenset({"crm.update"}), agents=AGENTS)
        assert ContractTerms(forbidden=frozenset({"Email.Send"}), agents=AGENTS).forbidden == {"Email.Send"}


SPELLINGS = {
    "by a provider": "git_log",
    "of an MCP server": "mcp__git.log",
    "of an MCP server, by a provider": "mcp__git__log",
    "other case": "Git.LOG",
    "zero-width space": "git.\u200blog",
    "soft hyphen": "gi\u00adt.log",
    "Cyrillic": "git.l\u043eg",
    "full width": "\uff47it\uff0elog",
    "accent": "git.lo\u0301g",
    "filler": "git\u3164.log",
}


@pytest.mark.parametrize("spelling", [pytest.param(name, id=kind) for kind, name in SPELLINGS.items()])
class TestSpelling:
    """What forbids a tool forbids it however it is spelled, in the list and in the call."""

    def test_the_toolbox_denies_either(self, spelling: str) -> None:
        for forbidden, called in (("git.log", spelling), (spelling, "git.log")):
            tools = Toolbox(None, SessionLog("plan", "1", "h-1"), "h-1", forbidden=frozenset({forbidden}))
            with pytest.raises(ToolDeniedError):
                tools.guard(lambda: pytest.fail("it ran"), called)()

    def test_a_contract_does_not_allow_it(self, spelling: str) -> None:
        for forbidden, able in (("git.log", spelling), (spelling, "git.log")):
            contract_request = request(capability=frozenset({able}), granted=frozenset({able}))
            contract_request = replace(contract_request, forbidden=frozenset({forbidden}))
            assert compile_contract([], contract_request).contract.allowed_tools == []

    def test_it_is_one_name_to_a_stage(self, spelling: str) -> None:
        """No list could allow one of the two alone."""

        async def plan(baton: Baton) -> None:
            """Do nothing."""

        with pytest.raises(ValueError, match="are the same name of a tool"):
            stage(tools=["git.log", spelling])(plan)

    async def test_a_model_that_calls_it_is_refused(self, spelling: str) -> None:
        """Whatever it was told, and however it spells what it was not shown."""

        class Calls:
            name = "plan"

            async def run(self, work: AgentWork) -> AgentAnswer:
                work.refuse_forbidden([spelling])
                return AgentAnswer()

        context = StageContext.for_test(Baton(goal="Add login"))
        context.spec = StageSpec("plan", forbids=frozenset({"git.log"}))
        with pytest.raises(ToolDeniedError):
            await agent_stage(Calls())(context)


def test_names_without_letters_stay_apart() -> None:
    """Other scripts and signs too: what forbids one of them forbids no other."""
    names = ["\u641c\u7d22", "\u53d1\u9001", "+", "-", "\U0001f4e7", "a.b", "a.c"]
    assert len({tool_key(name) for name in names}) == len(names)


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
