"""What a Pydantic AI agent is to answer with, built once for each of its stages.

The framework builds it anew for a run that asks for another output than the agent's own, which takes a sixth of the
time that a run by script takes. Stages ask for the same one in each run.
"""

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent, ToolOutput

from baton.agents.memo import remembering

_BUILDS = "_prepare_output_schema"  # the method of the framework's agent that does


def build_once(agent: Any) -> None:
    """See to it that an agent builds an output of ours once: by a tool, which is the same object in each run.

    The method is not part of the framework's interface: an agent without it stays as it is.

    Args:
        agent: The agent.

    Example:
        >>> from pydantic_ai import StructuredDict
        >>> agent, output = Agent("test"), ToolOutput(StructuredDict({"type": "object"}, name="answer"), name="answer")
        >>> build_once(agent)
        >>> agent._prepare_output_schema(output) is agent._prepare_output_schema(output)
        True
    """
    if isinstance(agent, Agent) and _BUILDS not in vars(agent) and (build := getattr(agent, _BUILDS, None)):
        setattr(agent, _BUILDS, _of_tools_once(build))


def _of_tools_once(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that builds each output by a tool once; any other output may be a new object each time."""
    once = remembering(build)
    return lambda output: once(output) if isinstance(output, ToolOutput) else build(output)
