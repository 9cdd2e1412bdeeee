"""Handoffs to agents outside as A2A tasks: an agent asks for the next one, and answers in its task.

The calls are those of the MCP door. Nothing is stored: a task's id is the handoff's name, and its state the handoff's.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError, validate_call
from temporalio.exceptions import TemporalError

from baton.doors.client_a2a_messages import Content
from baton.doors.client_a2a_tasks import data_part, handoff_artifacts, to_timestamp
from baton.doors.client_access import Caller
from baton.doors.client_runs import AgentTools, NotFoundError
from baton.errors import BatonError, PipelineError
from baton.exchange.external import ActionKind, OutsideHandoff
from baton.lazy import needs_extra
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.outside.client_tools import HANDOFF_TOOLS, HandoffTools
from baton.wire.json_values import as_json
from baton.wire.text import describe_faults

with needs_extra("a2a", __name__):
    from a2a.types import a2a_pb2 as pb
    from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError

SKILL = "next-handoff"
"""The skill with which an agent asks for its next handoff; no pipeline's name has a hyphen."""
_CALLS = {tool: validate_call(getattr(HandoffTools, tool)) for tool in HANDOFF_TOOLS}
_NAME = re.compile(r"[0-9a-f-]{36}@.+", re.DOTALL)
_DONE = (ActionKind.PATCH, ActionKind.REPORT)
_ABOUT = f"""\
For an agent outside: accepts the next handoff to you, and reserves it. Its task asks for your work, with the contract \
and the signed handoff. Answer in the task: a text is your report; JSON with `tool` and its arguments does what the \
extension's `handoffs` describes: {", ".join(HANDOFF_TOOLS)}. It is submitted while no agent has it, and not in \
lists."""


def handoff_skill() -> pb.AgentSkill:
    """Return the skill as the card has it."""
    return pb.AgentSkill(id=SKILL, name="Next handoff", description=_ABOUT, tags=["baton"])


def tool_schemas(agents: OutsideAgents) -> dict[str, Any]:
    """Return the JSON Schema of each tool's arguments, but the handoff, which the task names."""
    tools, schemas = HandoffTools(agents, "", ""), {}
    for tool in HANDOFF_TOOLS:
        schema = TypeAdapter(getattr(tools, tool)).json_schema()
        del schema["properties"]["handoff_id"]
        schema["required"].remove("handoff_id")
        schemas[tool] = schema
    return schemas


def is_handoff(task_id: str) -> bool:
    """Return whether a task's id is the name of a handoff."""
    return _NAME.fullmatch(task_id) is not None


class HandoffTasks:
    """Answers agents outside.

    Args:
        tools: The tools of each agent that calls.
    """

    def __init__(self, tools: AgentTools) -> None:
        self._tools = tools

    async def next(self, caller: Caller, content: Content) -> pb.Task | pb.Message:
        """Return the task of the handoff that an agent has, or of its oldest one; a message if nothing waits.

        Raises:
            PipelineError: None of those that wait could be accepted.
        """
        tools, refused = self._tools.of(caller), ""
        rows = [row for row in await tools.list_mine() if row.reserved_for in (None, tools.holder)]
        for row in sorted(rows, key=lambda row: row.reserved_for is None):  # a lost answer: what it has comes first
            try:
                accepted = await _call(tools, "accept", row.handoff_id, content.members)
            except PipelineError as error:  # another one of its kind was faster
                refused = str(error)
                continue
            if accepted.accepted:
                return await self._task(tools, row.handoff_id)
        if refused:
            raise PipelineError(f"{refused}; ask again")
        return pb.Message(
            message_id=f"{caller.name}:nothing", role=pb.ROLE_AGENT, parts=[pb.Part(text="Nothing waits for you.")]
        )

    async def reply(self, caller: Caller, name: str, content: Content) -> pb.Task:
        """Do what an agent says in the task of a handoff; the task's message is the answer.

        Raises:
            NotFoundError: It is not the agent's.
            PipelineError: It is refused.
            A2AError: The message is not such an answer.
        """
        tools = self._tools.of(caller)
        await _find(tools, name)
        members = dict(content.members)
        if content.files:
            raise ContentTypeNotSupportedError("save a work product with the tool save_artifact, as text")
        tool = members.pop("tool", "propose_report")
        if content.text and "report" not in members and tool == "propose_report":
            members["report"] = content.text
        if tool not in HANDOFF_TOOLS:
            raise InvalidParamsError(f"expected a report as text, or JSON with tool, one of {', '.join(HANDOFF_TOOLS)}")
        return await self._task(tools, name, await _call(tools, tool, name, members))

    async def get(self, caller: Caller, name: str) -> pb.Task:
        """Return the task of a handoff.

        Raises:
            NotFoundError: It is not the agent's.
        """
        return await self._task(self._tools.of(caller), name)

    async def _task(self, tools: HandoffTools, name: str, answer: Any = None) -> pb.Task:
        """Return a task, with the contract and the signed handoff while the agent has accepted it."""
        ref = await _find(tools, name)
        handoff, now = ref.handoff, tools.agents.gate.clock()
        task = pb.Task(id=name, context_id=ref.workflow_id)
        task.status.state = _state_of(handoff, handoff.held_by(now), tools.holder)
        task.status.timestamp.CopyFrom(to_timestamp(handoff.end.at if handoff.end else now))
        if task.status.state == pb.TASK_STATE_INPUT_REQUIRED:
            task.artifacts.extend(handoff_artifacts({handoff.handoff_id: await tools.agents.read(ref)}))
            answer = await _call(tools, "read_contract", name, {}) if answer is None else answer
        if answer is not None:
            part = pb.Part(text=answer) if isinstance(answer, str) else data_part(as_json(answer))
            message = pb.Message(message_id=f"{name}:answer", context_id=ref.workflow_id, task_id=name, parts=[part])
            message.role = pb.ROLE_AGENT
            task.status.message.CopyFrom(message)
        return task


def _state_of(handoff: OutsideHandoff, held_by: str | None, holder: str) -> pb.TaskState:
    if handoff.end is not None:
        return pb.TASK_STATE_COMPLETED if handoff.end.kind in _DONE else pb.TASK_STATE_REJECTED
    if held_by == holder and handoff.accepted:
        return pb.TASK_STATE_INPUT_REQUIRED
    return pb.TASK_STATE_SUBMITTED if held_by in (None, holder) else pb.TASK_STATE_WORKING


async def _find(tools: HandoffTools, name: str) -> HandoffRef:
    handoff_id, _, workflow_id = name.partition("@")
    try:
        return await tools.agents.find(workflow_id, tools.agent, handoff_id)
    except PipelineError:
        raise NotFoundError(f"you have no handoff {name[:80]!r}") from None
    except TemporalError as error:
        raise PipelineError("the pipeline did not answer; try again") from error


async def _call(tools: HandoffTools, tool: str, name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what a tool answers, after a check of its arguments."""
    try:
        return await _CALLS[tool](tools, **{**arguments, "handoff_id": name})
    except ValidationError as error:
        raise InvalidParamsError(f"{tool}: the arguments do not fit: {describe_faults(error)}") from None
    except BatonError as error:
        raise PipelineError(str(error)) from None
