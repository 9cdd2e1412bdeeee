"""Agent definition files, and the stages that they define."""

from pathlib import Path
from typing import Any

import pytest

from baton import Baton, StageContext
from baton.agents import AgentAnswer, AgentTool, AgentWork, AnswerForm
from baton.agents.definitions import (
    MAX_BYTES,
    AgentFileError,
    defined_stage,
    parse_agent_definition,
    read_agent_file,
)
from baton.agents.notes import NOTE_TOOLS
from baton.report.rendering import render_report
from tests.report.report_material import report

STYLE = """---
name: agent-handoff
description: Standardized format for passing context between agents or from subagent to parent
used_by:
  - all-agents
  - multi-agent-workflows
---

# Agent Handoff Style
"""
"""The beginning of the agent-handoff document (L1-9)."""


def definition(front: str) -> str:
    """Return a file's text with the given front matter."""
    return f"---\n{front}\n---\nDo it.\n"


class TestFrontMatter:
    """What stands above the text."""

    def test_the_documents_own_is_read(self) -> None:
        """S4-fm-a: name, description, and who uses it."""
        definition = parse_agent_definition(STYLE)

        assert (definition.name, definition.used_by) == ("agent-handoff", ("all-agents", "multi-agent-workflows"))
        assert definition.description.startswith("Standardized format for passing context")
        assert definition.instructions == "# Agent Handoff Style"

    @pytest.mark.parametrize(
        ("front", "expected"),
        [
            pytest.param("a: plain text, with (signs) - and more", "plain text, with (signs) - and more", id="plain"),
            pytest.param("a: x # a remark", "x", id="a remark behind"),
            pytest.param('a: "use it: \\"now\\""', 'use it: "now"', id="double quotes"),
            pytest.param("a: [Read, 'Edit']", ("Read", "Edit"), id="a list in brackets"),
            pytest.param("a:\n- x\n- y", ("x", "y"), id="a list below"),
            pytest.param("a:", "", id="nothing"),
            pytest.param("a: true", "true", id="a text that looks like a truth value"),
        ],
    )
    def test_texts_and_lists_are_read_as_they_are_spelled(self, front: str, expected: Any) -> None:
        """The kinds of values that such files have."""
        assert parse_agent_definition(definition(f"name: x\n{front}")).further == {"a": expected}

    @pytest.mark.parametrize(
        "front",
        [
            pytest.param("a: {b: c}", id="an object"),
            pytest.param("a: Use it when: now", id="a colon in a plain text"),
            pytest.param("a: [x, [y]]", id="a list in a list"),
            pytest.param("a: " + "[" * 5_000, id="a deep list"),
            pytest.param("words", id="no member"),
        ],
    )
    def test_what_else_yaml_can_say_is_refused(self, front: str) -> None:
        """Nothing is read as what its author did not mean."""
        with pytest.raises(AgentFileError, match=r"tester\.md: "):
            parse_agent_definition(definition(front), "tester.md")

    @pytest.mark.parametrize("text", ["", "name: x", "---\nname: x", "# Title\n---\nname: x\n---"])
    def test_it_must_be_there_and_end(self, text: str) -> None:
        """A rule further below is no front matter."""
        with pytest.raises(AgentFileError, match="'---'"):
            parse_agent_definition(text)


class TestAgentDefinition:
    """`parse_agent_definition`."""

    def test_an_agent_with_the_style_answers_with_reports(self) -> None:
        """S4-int-a: the document's own definition."""
        agent = parse_agent_definition("---\nname: code-explorer\noutput_style: agent-handoff\n---")

        assert (agent.name, agent.output_style, agent.reports) == ("code-explorer", "agent-handoff", True)
        assert not parse_agent_definition(definition("name: x\noutput_style: concise")).reports

    def test_every_member_is_read(self) -> None:
        """S4-fm-a, S4-int-a; and what Baton gives no meaning is kept."""
        agent = parse_agent_definition(
            definition("name: tester\ndescription: Tests\nmodel: small-1\ntools: Read, Bash\nused_by: [ci]\ncolor: red")
        )

        assert (agent.description, agent.model, agent.tools, agent.used_by) == (
            "Tests",
            "small-1",
            ("Read", "Bash"),
            ("ci",),
        )
        assert (agent.instructions, agent.further) == ("Do it.", {"color": "red"})

    @pytest.mark.parametrize(
        ("front", "expected"),
        [
            ("name: x", None),
            ("name: x\ntools:", ()),
            ("name: x\ntools: []", ()),
            ("name: x\ntools: [a, b]", ("a", "b")),
        ],
    )
    def test_no_word_on_tools_is_not_the_same_as_no_tools(self, front: str, expected: tuple[str, ...] | None) -> None:
        """An empty list allows nothing; only its absence leaves the question to the pipeline."""
        assert parse_agent_definition(definition(front)).tools == expected

    @pytest.mark.parametrize("front", ["description: x", "name:", 'name: " "', "name: [a]"])
    def test_an_agent_has_a_name(self, front: str) -> None:
        """S4-fm-a: one, and it says something."""
        with pytest.raises(AgentFileError, match="name"):
            parse_agent_definition(definition(front))


class TestReadAgentFile:
    """`read_agent_file`."""

    def test_files_from_any_editor_are_read(self, tmp_path: Path) -> None:
        """A byte order mark and CRLF change nothing."""
        file = tmp_path / "a.md"
        file.write_bytes(b"\xef\xbb\xbf" + STYLE.replace("\n", "\r\n").encode())

        assert read_agent_file(file).used_by == ("all-agents", "multi-agent-workflows")

    def test_what_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        """Missing, no text, or too large: each with what to do."""
        (tmp_path / "binary.md").write_bytes(b"---\xff")
        (tmp_path / "large.md").write_bytes(b"x" * (MAX_BYTES + 1))

        for name, what in (("missing", "cannot be read"), ("binary", "not UTF-8 at byte 3"), ("large", "larger than")):
            with pytest.raises(AgentFileError, match=what):
                read_agent_file(tmp_path / f"{name}.md")


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
        stage = defined_stage(
            parse_agent_definition("---\nname: explorer\noutput_style: agent-handoff\n---\nLook."), agent
        )
        result = await stage(StageContext.for_test(Baton(goal="Add login")))

        assert (stage.spec.name, agent.asked[0].instructions) == ("explorer", "Look.")
        assert agent.asked[0].form is AnswerForm.REPORT
        assert "## Agent Handoff Report" in agent.asked[0].user_turn()
        assert result.report == render_report(report(sender="explorer"))

    async def test_without_the_style_it_answers_with_a_patch(self) -> None:
        """A report is nobody's default."""
        agent = Listening(PATCH)
        result = await defined_stage(parse_agent_definition("---\nname: explorer\n---"), agent)(
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
        definition = parse_agent_definition(f"---\nname: explorer\n{line}\n---")
        await defined_stage(definition, agent, tools=[look, change, SEARCH])(StageContext.for_test(Baton(goal="g")))

        assert {tool.name for tool in agent.asked[0].tools} - NOTE_TOOLS == expected

    @pytest.mark.parametrize(
        ("tools", "expected"),
        [
            pytest.param("mcp__*", ["mcp__git__log", "mcp__git__push", "mcp__gitlab__log"], id="of every server"),
            pytest.param("mcp__git__*", ["mcp__git__log", "mcp__git__push"], id="of one server"),
            pytest.param("mcp__git__log, look", ["mcp__git__log", "look"], id="one of a server's"),
            pytest.param("mcp__g, repo, *.search", [], id="what is no pattern"),
        ],
    )
    async def test_the_tools_of_mcp_servers_are_listed_by_pattern(self, tools: str, expected: list[str]) -> None:
        """As coding agents read such a file; it matched nothing, and the agent went without them."""
        agent = Listening(PATCH)
        definition = parse_agent_definition(f'---\nname: explorer\ntools: "{tools}"\n---')
        stage = defined_stage(definition, agent, tools=[*REMOTE, look, change, SEARCH])
        await stage(StageContext.for_test(Baton(goal="g")))

        assert [tool.name for tool in agent.asked[0].tools if tool.name not in NOTE_TOOLS] == expected
