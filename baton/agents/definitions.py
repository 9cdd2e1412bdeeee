"""Stages out of agent definition files: whoever has `output_style: agent-handoff` answers with a handoff report.

So a report is used of its own accord wherever such an agent takes part: when it is delegated to, when it returns to
its parent, and from one phase of a pipeline to the next (agent-handoff L211-219).
"""

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from baton.agents.answers import AnswerForm
from baton.agents.definition_files import AgentDefinition
from baton.agents.port import Agent, AgentTerms, agent_stage
from baton.agents.tools import AgentTool, name_of
from baton.core.messages import StageResult
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import Stage


def defined_stage(
    definition: AgentDefinition,
    agent: Agent,
    *,
    tools: Iterable[Callable[..., Any] | AgentTool] = (),
    **terms: Unpack[AgentTerms],
) -> Stage[StageContext[Any], StageResult]:
    r"""Return the stage of an agent that a file defines.

    The file gives the stage's name, the agent's instructions, the form of its answers, and which of the tools it may
    have; a file that says nothing of tools, or `"*"`, leaves all of them. A name that ends with `*` stands for every
    tool that begins as it does, and `mcp__server` for all that are called `mcp__server__…`, as coding agents read
    them. The model is the agent's own affair.

    Args:
        definition: What the file says (`baton.agents.definition_files.read_agent_file`).
        agent: Who does it.
        tools: Functions that the agent may call.
        **terms: The terms of a stage, as for `agent_stage`.

    Returns:
        The stage, for `Pipeline.stage` and for a worker's activities.

    Example:
        >>> from baton.agents.definition_files import agent_definition
        >>> class Silent:
        ...     name = "silent"
        ...     async def run(self, work):
        ...         return work.read("")
        >>> defined_stage(agent_definition("---\nname: explorer\noutput_style: agent-handoff\n---"), Silent())
        <stage explorer>
    """
    allowed = definition.tools
    return agent_stage(
        agent,
        name=definition.name,
        instructions=definition.instructions,
        tools=[tool for tool in tools if allowed is None or _is_listed(_name(tool), allowed)],
        answers=AnswerForm.REPORT if definition.reports else AnswerForm.PATCH,
        **terms,
    )


def _name(tool: Callable[..., Any] | AgentTool) -> str:
    """Return the name of a tool, as a definition file spells it."""
    return tool.name if isinstance(tool, AgentTool) else name_of(tool)


def _is_listed(name: str, listed: Iterable[str]) -> bool:
    """Return whether a file lists a tool, by its name, by how it begins, or by the MCP server that it comes from."""
    for one in listed:
        server = one.startswith("mcp__") and name.startswith(f"{one}__")
        if name == one or server or (one.endswith("*") and name.startswith(one[:-1])):
            return True
    return False
