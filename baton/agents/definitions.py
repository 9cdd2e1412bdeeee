"""Agent definition files: Markdown whose front matter says who an agent is and how it answers (extra `agent-files`).

An agent with `output_style: agent-handoff` answers with a handoff report wherever it takes part (agent-handoff,
"Integration"). The front matter is YAML with texts and lists of texts; anything else is refused.
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
from baton.agents.tools import AgentTool, tools_of
from baton.core.messages import StageResult
from baton.errors import BatonError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import AgentTerms, Stage

HANDOFF_STYLE = "agent-handoff"
"""The output style of agents that answer with a handoff report."""
MOST_BYTES = 1024 * 1024
"""The largest definition, in bytes: it is a prompt, not a data file."""

_ALL = "*"  # in the place of a tool's name: every tool


class AgentFileError(BatonError):
    """An agent definition file cannot be read; the message has the file and what to do."""


@dataclass(frozen=True)
class AgentDefinition:
    """Who an agent is.

    Attributes:
        name: Its name.
        description: What it is for.
        instructions: The text below the front matter, its prompt.
        output_style: How it answers, for example `agent-handoff`; empty for free text.
        model: Which model it runs on; empty for the default.
        tools: What it may use, or None if the file does not say, or says `"*"`: all that it is given.
        used_by: Who uses it, as style files have it.
        further: Members of the front matter that Baton gives no meaning.
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
        """Whether it answers with a handoff report."""
        return self.output_style == HANDOFF_STYLE


def read_agent_file(path: Path) -> AgentDefinition:
    r"""Return the agent that a file defines.

    Args:
        path: A Markdown file with front matter, UTF-8.

    Raises:
        AgentFileError: The file is missing, too large or not UTF-8, has no front matter or none that can be read,
            or names no agent.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "explorer.md")
        ...     _ = file.write_text("---\nname: code-explorer\noutput_style: agent-handoff\n---\nExplore.")
        ...     read_agent_file(file).reports
        True
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise AgentFileError(f"{path}: is larger than {MOST_BYTES:,} bytes; is this an agent definition?")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise AgentFileError(f"{path}: cannot be read: {error.strerror}") from error
    return agent_definition(text, str(path))


def agent_definition(text: str, source: str = "agent definition") -> AgentDefinition:
    """Return the agent that a text defines."""
    front, instructions = _front_matter(text, source)
    members: dict[str, str | tuple[str, ...]] = {}
    for name, value in front.items():
        listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not isinstance(name, str) or not (listed or isinstance(value, str)):
            raise AgentFileError(f"{source}: {name!r} is neither a text nor a list of texts; write one of these")
        members[name] = tuple(value) if listed else value
    known: dict[str, str] = {}
    for name in ("name", "description", "output_style", "model"):
        text_of = members.pop(name, "")
        if not isinstance(text_of, str):
            raise AgentFileError(f"{source}: {name!r} is a list; write one text")
        known[name] = text_of
    if not known["name"].strip():
        raise AgentFileError(f"{source}: the front matter names no agent; add a line 'name: …'")
    tools = _listed(members.pop("tools", _ALL))
    return AgentDefinition(
        **known,
        instructions=instructions,
        tools=None if _ALL in tools else tools,
        used_by=_listed(members.pop("used_by", ())),
        further=members,
    )


def _front_matter(text: str, source: str) -> tuple[dict[Any, Any], str]:
    """Return the members of a text's front matter, every value as it is spelled, and the text below it."""
    begin, *lines = text.replace("\r\n", "\n").split("\n")
    if begin.rstrip() != "---":
        raise AgentFileError(f"{source}: has no front matter; begin with a line '---'")
    end = next((number for number, line in enumerate(lines) if line.rstrip() == "---"), None)
    if end is None:
        raise AgentFileError(f"{source}: the front matter does not end; close it with a line '---'")
    try:
        members = yaml.load("\n".join(["", *lines[:end], ""]), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise AgentFileError(f"{source}: the front matter is not YAML: {error}") from None
    if members is not None and not isinstance(members, dict):
        raise AgentFileError(f"{source}: the front matter has no members; write lines such as 'name: …'")
    return members or {}, "\n".join(lines[end + 1 :]).strip("\n")


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return names that stand in a list, or in a text with commas between."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


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
    tool that begins as it does. The model is the agent's own affair.

    Args:
        definition: What the file says (`read_agent_file`).
        agent: Who does it.
        tools: Functions that the agent may call.
        **terms: The terms of a stage, as for `agent_stage`.

    Returns:
        The stage, for `Pipeline.stage` and for a worker's activities.

    Example:
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
        tools=[tool for tool in tools_of(tools) if allowed is None or _is_listed(tool.name, allowed)],
        answers=AnswerForm.REPORT if definition.reports else AnswerForm.PATCH,
        **terms,
    )


def _is_listed(name: str, listed: Iterable[str]) -> bool:
    """Return whether a file lists a tool, by its name or by how it begins."""
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in listed)
