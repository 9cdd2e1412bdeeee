"""Tools that an agent of Pydantic AI is given in a run, by a toolset or by another agent."""

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from baton import StageContext
from baton.agents import agent_stage
from baton.agents.pydantic_ai import PydanticAgent
from baton.contract.records import EventType, ToolDeniedError
from tests.agents.material import ANSWER, BATON, context, contract, events


def log(since: str) -> str:
    """List what changed."""
    return f"12 changes since {since}"


class Model:
    """A model that calls a tool and then answers, and keeps what it was shown."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self._call = ToolCallPart(name, arguments)
        self.shown: list[list[str]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Return the next answer."""
        self.shown.append([tool.name for tool in info.function_tools])
        return ModelResponse(parts=[self._call if len(self.shown) == 1 else ToolCallPart("final_result", ANSWER)])


def with_a_prefix(model: Model) -> Agent[None, str]:
    """Return an agent whose tools have their names only in a run."""
    return Agent(FunctionModel(model), name="plan", toolsets=[FunctionToolset([log]).prefixed("git")])


async def test_what_is_declared_is_shown_checked_and_recorded() -> None:
    """As a tool of the agent's own."""
    agent = PydanticAgent(with_a_prefix(model := Model("git_log", since="1.1")), uses=["git_log"])
    stage = agent_stage(agent, notes=False)
    await stage(stage_context := context(contract(["git_log"])))

    assert stage.spec.tools == {"git_log"}
    assert model.shown == [["git_log"], ["git_log"]]
    assert events(stage_context) == [(EventType.TOOL_CALL, "git_log"), (EventType.TOOL_RESULT, "git_log")]


async def test_what_its_contract_withholds_is_neither_shown_nor_run() -> None:
    """Declaring a tool grants nothing."""
    stage = agent_stage(PydanticAgent(with_a_prefix(model := Model("git_log", since="1.1")), uses=["git_log"]))

    with pytest.raises(ToolDeniedError, match="'git_log'"):
        await stage(context(contract(["crm.lookup"])))
    assert model.shown == [[]]


async def test_what_an_inner_agent_takes_is_charged_if_it_counts_in_the_same_place() -> None:
    """Once, beside what the outer one takes."""
    took: list[int] = []

    async def charged(*, asks: bool) -> int:
        outer = Agent(FunctionModel(Model("research")), name="plan")

        @outer.tool
        async def research(ctx: RunContext[object]) -> str:
            """Find out."""
            tokens_before = ctx.usage.input_tokens
            if asks:
                await Agent(TestModel(custom_output_text="found"), name="inner").run("Look", usage=ctx.usage)
            took.append(ctx.usage.input_tokens - tokens_before)
            return "found"

        await agent_stage(PydanticAgent(outer))(stage_context := StageContext.for_test(BATON))
        return stage_context.charged.prompt_tokens

    alone, together = await charged(asks=False), await charged(asks=True)

    assert (together - alone, took[0]) == (took[1], 0)
    assert took[1] > 0
