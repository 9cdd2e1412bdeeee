"""Agent definition files: Markdown with front matter that names an agent and its form of answer (extra `agent-files`).

An agent with `output_style: agent-handoff` always answers with a handoff report (agent-handoff, "Integration"). The
front matter is YAML; values are texts or lists of texts, anything else is refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from baton.lazy import needs_extra

with needs_extra("agent-files", __name__):
    import yaml

from baton.agents.answers import AnswerForm
from baton.agents.port import Agent, agent_stage
from baton.agents.tools import AgentTool, build_tools
from baton.core.messages import StageResult
from baton.errors import BatonError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import AgentTerms, Stage

HANDOFF_STYLE = "agent-handoff"
"""The output style of agents that answer with a handoff report."""
MAX_BYTES = 1024 * 1024
"""The largest definition file, in bytes."""

_ALL = "*"  # as the name of a tool: all tools


class AgentFileError(BatonError):
    """An agent definition file cannot be read. The message names the file and the remedy."""


@dataclass(frozen=True)
class AgentDefinition:
    """The definition of an agent.

    Attributes:
        name: The agent's name.
        description: Its purpose.
        instructions: Its prompt: the text below the front matter.
        output_style: The form of its answers, for example `agent-handoff`; empty for free text.
        model: The model; empty for the default.
        tools: The tools it may use; None means all, also if the file says `"*"`.
        used_by: The agents that use it, in style files.
        further: Other members of the front matter, which Baton ignores.
    """

    name: str
    description: str = ""
    instructions: str = ""
    output_style: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    used_by: tuple[str, ...] = ()
    further: dict[str, str | tuple[str, ...]] = field(default_factory=dict)

    @property
    def reports(self) -> bool:
        """Whether the agent answers with a handoff report."""
        return self.output_style == HANDOFF_STYLE


def read_agent_file(path: Path) -> AgentDefinition:
    r"""Read an agent definition file.

    Args:
        path: A UTF-8 Markdown file with front matter.

    Raises:
        AgentFileError: The file is missing, too large or not UTF-8, its front matter is missing or invalid, or it
            has no agent name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "explorer.md")
        ...     _ = file.write_text("---\nname: code-explorer\noutput_style: agent-handoff\n---\nExplore.")
        ...     read_agent_file(file).reports
        True
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AgentFileError(f"{path}: is larger than {MAX_BYTES:,} bytes; is this an agent definition?")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise AgentFileError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_agent_definition(text, str(path))


def parse_agent_definition(text: str, source: str = "agent definition") -> AgentDefinition:
    """Parse the text of an agent definition file."""
    front_matter, instructions = _parse_front_matter(text, source)
    members: dict[str, str | tuple[str, ...]] = {}
    for name, value in front_matter.items():
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not isinstance(name, str) or not (is_list or isinstance(value, str)):
            raise AgentFileError(f"{source}: {name!r} is neither a text nor a list of texts; write one of these")
        members[name] = tuple(value) if is_list else value
    texts: dict[str, str] = {}
    for name in ("name", "description", "output_style", "model"):
        value = members.pop(name, "")
        if not isinstance(value, str):
            raise AgentFileError(f"{source}: {name!r} is a list; write one text")
        texts[name] = value
    if not texts["name"].strip():
        raise AgentFileError(f"{source}: the front matter names no agent; add a line 'name: …'")
    tools = _parse_names(members.pop("tools", _ALL))
    return AgentDefinition(
        **texts,
        instructions=instructions,
        tools=None if _ALL in tools else tools,
        used_by=_parse_names(members.pop("used_by", ())),
        further=members,
    )


def _parse_front_matter(text: str, source: str) -> tuple[dict[Any, Any], str]:
    """Return the front matter, with all scalars as texts, and the text below it."""
    first_line, *lines = text.replace("\r\n", "\n").split("\n")
    if first_line.rstrip() != "---":
        raise AgentFileError(f"{source}: has no front matter; begin with a line '---'")
    end = next((index for index, line in enumerate(lines) if line.rstrip() == "---"), None)
    if end is None:
        raise AgentFileError(f"{source}: the front matter does not end; close it with a line '---'")
    try:
        members = yaml.load("\n".join(["", *lines[:end], ""]), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise AgentFileError(f"{source}: the front matter is not YAML: {error}") from None
    if members is not None and not isinstance(members, dict):
        raise AgentFileError(f"{source}: the front matter has no members; write lines such as 'name: …'")
    return members or {}, "\n".join(lines[end + 1 :]).strip("\n")


def _parse_names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return names from a list or a comma-separated text."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def defined_stage(
    definition: AgentDefinition,
    agent: Agent,
    *,
    tools: Iterable[Callable[..., Any] | AgentTool] = (),
    **terms: Unpack[AgentTerms],
) -> Stage[StageContext[Any], StageResult]:
    r"""Return the stage of an agent from a definition file.

    The file determines the stage's name, the agent's instructions, the form of its answers, and which of the tools
    it may use; without `tools`, or with `"*"`, it may use all of them. A name that ends with `*` matches all tools with
    that prefix. The agent chooses the model.

    Args:
        definition: The definition (`read_agent_file`).
        agent: The agent that does the stage.
        tools: Functions that the agent may call.
        **terms: Options of the stage, as for `agent_stage`.

    Returns:
        The stage, for `Pipeline.stage` and a worker's activities.

    Example:
        >>> class Silent:
        ...     name = "silent"
        ...     async def run(self, work):
        ...         return work.read("")
        >>> defined_stage(parse_agent_definition("---\nname: explorer\noutput_style: agent-handoff\n---"), Silent())
        <stage explorer>
    """
    allowed = definition.tools
    return agent_stage(
        agent,
        name=definition.name,
        instructions=definition.instructions,
        tools=[tool for tool in build_tools(tools) if allowed is None or _is_allowed(tool.name, allowed)],
        answers=AnswerForm.REPORT if definition.reports else None,
        **terms,
    )


def _is_allowed(name: str, patterns: Iterable[str]) -> bool:
    return any(name == entry or (entry.endswith("*") and name.startswith(entry[:-1])) for entry in patterns)
