"""Stages out of agent definition files, called without Temporal."""

import pytest

from baton import Baton, StageContext
from baton.agents.answers import AnswerForm
from baton.agents.definition_files import agent_definition
from baton.agents.definitions import defined_stage
from baton.agents.port import AgentAnswer, AgentWork
from baton.agents.tools import AgentTool
from baton.report.rendering import render_report
from tests.unit.protocol.report_material import report


class Listening:
    """An agent that keeps what it is asked, and gives a fixed answer."""

    name = "listening"

    def __init__(self, answer: str) -> None:
        self.asked: list[AgentWork] = []
        self._answer = answer

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Keep the work and answer."""
        self.asked.append(work)
        return work.read(self._answer)


def look(path: str) -> str:
    """Read a file."""
    return path


def change(path: str) -> str:
    """Change a file."""
    return path


SEARCH = AgentTool.of(look, name="repo.search")
REMOTE = [AgentTool.of(look, name=name) for name in ("mcp__git__log", "mcp__git__push", "mcp__gitlab__log")]
PATCH = '{"baton_patch": {"current_state": ["Looked"]}}'


class TestDefinedStage:
    """`defined_stage`."""

    async def test_the_style_asks_for_a_report_and_takes_one(self) -> None:
        """S4-int-a: `output_style: agent-handoff` is all it takes; the file's text is the agent's instructions."""
        agent = Listening(render_report(report(sender="explorer")))
        made = defined_stage(agent_definition("---\nname: explorer\noutput_style: agent-handoff\n---\nLook."), agent)
        result = await made(StageContext.for_test(Baton(goal="Add login")))

        assert (made.spec.name, agent.asked[0].instructions) == ("explorer", "Look.")
        assert agent.asked[0].form is AnswerForm.REPORT
        assert "## Agent Handoff Report" in agent.asked[0].user_turn()
        assert result.report == render_report(report(sender="explorer"))

    async def test_without_the_style_it_answers_with_a_patch(self) -> None:
        """A report is nobody's default."""
        agent = Listening(PATCH)
        result = await defined_stage(agent_definition("---\nname: explorer\n---"), agent)(
            StageContext.for_test(Baton(goal="g"))
        )

        assert agent.asked[0].form is AnswerForm.PATCH
        assert result.baton_patch == {"current_state": ["Looked"]}

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            pytest.param("", {"look", "change", "repo.search"}, id="no word on tools"),
            pytest.param('tools: "*"', {"look", "change", "repo.search"}, id="all"),
            pytest.param('tools:\n  - "*"', {"look", "change", "repo.search"}, id="a list of all"),
            pytest.param("tools: [look, repo.search, Bash]", {"look", "repo.search"}, id="some of them"),
            pytest.param("tools: []", set(), id="none"),
        ],
    )
    async def test_the_file_says_which_tools_it_has(self, line: str, expected: set[str]) -> None:
        """Tools only ever get fewer: what the file does not list, the model does not get."""
        agent = Listening(PATCH)
        definition = agent_definition(f"---\nname: explorer\n{line}\n---")
        await defined_stage(definition, agent, tools=[look, change, SEARCH])(StageContext.for_test(Baton(goal="g")))

        assert {tool.name for tool in agent.asked[0].tools} == expected

    @pytest.mark.parametrize(
        ("tools", "expected"),
        [
            pytest.param("mcp__*", ["mcp__git__log", "mcp__git__push", "mcp__gitlab__log"], id="of every server"),
            pytest.param("mcp__git__*", ["mcp__git__log", "mcp__git__push"], id="of one server"),
            pytest.param("mcp__git", ["mcp__git__log", "mcp__git__push"], id="a server by its name"),
            pytest.param("mcp__git__log, look", ["mcp__git__log", "look"], id="one of a server's"),
            pytest.param("mcp__g, repo, *.search", [], id="what is no pattern"),
        ],
    )
    async def test_the_tools_of_mcp_servers_are_listed_by_pattern(self, tools: str, expected: list[str]) -> None:
        """As coding agents read such a file; it matched nothing, and the agent went without them."""
        agent = Listening(PATCH)
        definition = agent_definition(f'---\nname: explorer\ntools: "{tools}"\n---')
        made = defined_stage(definition, agent, tools=[*REMOTE, look, change, SEARCH])
        await made(StageContext.for_test(Baton(goal="g")))

        assert [tool.name for tool in agent.asked[0].tools] == expected
