"""Agents that act in another agent's stage: as a tool, or by a handoff inside its run.

They act under the stage's handoff: its contract guards their tools, their requests are charged to it and bound by its
limits, and its session records what they do under their names.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from baton.agents.answers import AnswerForm
from baton.agents.current_work import current_work
from baton.agents.nested import refuse_nested_agents
from baton.agents.port import Agent, AgentWork, BringsTools, normalize_answer, resolve_answers
from baton.agents.results import record_text
from baton.agents.tools import AgentTool, build_tools, render_result
from baton.contract.activity import ToolAnswer
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest, render_contract
from baton.contract.records import MAX_TASK_LENGTH, HandoffContract
from baton.contract.validation import validate_contract
from baton.core.notes import Notes
from baton.errors import AgentError
from baton.telemetry.verdicts import current_tool
from baton.wire.text import fence, single_line

Task = Annotated[str, Field(min_length=1, description="What it is to do, with all that it has to know.")]


def agent_tool(
    agent: Agent,
    description: str,
    *,
    name: str | None = None,
    instructions: str = "",
    tools: Iterable[Callable[..., Any] | AgentTool] = (),
) -> AgentTool:
    """Return a tool that asks another agent, of any framework, for `agent_stage(…, tools=[…])`.

    The other agent reads its task, the rules, and what the stage's tools have found so far, not the conversation. Its
    answer is a text, or of its own `output_type`; later agents get it as a fact of medium confidence.

    Args:
        agent: The other agent; a graph needs `into={"messages": "messages"}`, so that it reads its task.
        description: What it can do, for the model that may ask it.
        name: The tool's name; by default the agent's.
        instructions: Your instructions, which become its system prompt.
        tools: Functions that it may call; the stage declares them, and its contract has to allow them.

    Example:
        >>> class Clerk:
        ...     name = "clerk"
        ...     async def run(self, work):
        ...         return work.read("They pay 20 USD.")
        >>> agent_tool(Clerk(), "Knows what customers pay.").wire_name
        'clerk'
    """
    own_tools = build_tools(tools)
    framework_tools = agent.tool_names if isinstance(agent, BringsTools) else frozenset[str]()

    async def ask(task: Task) -> ToolAnswer:
        lead = current_work.get()
        if lead is None:
            raise RuntimeError(f"the tool of agent {agent.name!r} works only in a stage of `agent_stage`")
        if (span := current_tool.get()) is not None:
            span.record_target(agent.name)
        with lead.context.session.acting_as(agent.name):
            text = await _ask(agent, lead, task, own_tools, instructions)
        return ToolAnswer(text, text, by_model=True)

    made = AgentTool.of(ask, name=name or agent.name, description=description)
    return replace(made, agent_tools=framework_tools | {tool.name for tool in own_tools})


async def _ask(agent: Agent, lead: AgentWork, task: str, tools: Iterable[AgentTool], instructions: str) -> str:
    """Run an agent on a task of another one, and return its answer as text."""
    context = lead.context
    allowed = [tool for tool in tools if context.tools.allows(tool.name)]
    functions = {tool.name: tool.function for tool in allowed if tool.agent_tools is None}
    refuse_nested_agents(context, agent, functions)
    names = {tool.name for tool in allowed} | (agent.tool_names if isinstance(agent, BringsTools) else set())
    contract = sub_contract(lead, agent.name, frozenset(names), task)
    form = resolve_answers(None, agent)[0]
    work = replace(
        lead,
        prompt=fence(_render(contract, lead, task), secrets.token_hex(8)),
        instructions=instructions,
        tools=tuple(tool.guarded(context) for tool in allowed),
        form=form if form is AnswerForm.TYPED else AnswerForm.TEXT,
        schema=None,
        answer_type=None,
        readable=frozenset(),
        notes=False,
        noted=Notes(),
        is_lead=False,
    )
    token = current_work.set(work)
    try:
        answer = normalize_answer(await agent.run(work), work, agent.name)
    finally:
        current_work.reset(token)
    work.charge(answer.spend)
    for text in answer.said:
        record_text(context.session, text)
    return render_result(answer.output if answer.output is not None else answer.report or answer.patch)


def _render(contract: HandoffContract, lead: AgentWork, task: str) -> str:
    """Return what an agent reads: the contract, the rules of its stage, and a long task whole."""
    rules = [f"**Rule:** {single_line(rule)}\n" for rule in lead.context.baton.constraints]
    whole = [f"**The whole task:**\n{task}\n"] if len(task) > MAX_TASK_LENGTH else []
    return "\n".join([render_contract(contract), *rules, *whole])


def sub_contract(work: AgentWork, receiver: str, tools: frozenset[str], task: str | None = None) -> HandoffContract:
    """Compile the stage's session so far into a contract for another agent that acts in it.

    Raises:
        AgentError: The contract is not valid, and nothing may be handed on.
    """
    context = work.context
    contract = context.contract
    allowed = frozenset(filter(context.tools.allows, tools))
    task = task or (contract.task if contract else context.baton.goal)
    request = ContractRequest(
        handoff_id=f"{work.handoff_id or context.given.stage}:{receiver}",
        receiving_agent=receiver,
        task=" ".join(task.split())[:MAX_TASK_LENGTH],
        trace_id=contract.trace_id if contract else context.given.task_id,
        created_at=datetime.now(UTC),
        capability=allowed,
        granted=allowed,
        forbidden=context.forbidden_tools,
    )
    events = context.session.events
    compiled = compile_contract(events, request, estimator=context.parts.counter)
    verdict = validate_contract(compiled.contract, now=request.created_at, report=compiled.report, events=events)
    if not verdict:
        raise AgentError(f"the contract for agent {receiver!r} does not hold: {verdict}", permanent=True)
    forbidden = contract.constraints if contract else None
    return compiled.contract.model_copy(update={"constraints": forbidden} if forbidden else {})
