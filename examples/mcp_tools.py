"""Tools of an MCP server under a contract: an agent looks up a debt, and never sees the tool that pays. Offline."""

from mcp import Client
from mcp.server import MCPServer
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import ContractTerms, Pipeline, pipeline
from baton.agents import AnswerForm, PydanticAgent, agent_stage

crm = MCPServer("crm")  # a real one: its address, `Client("https://…/mcp")`


@crm.tool()
def debt(customer: str) -> str:
    """Return what a customer owes."""
    return f"{customer} owes 20 USD since May"


async def look_up(customer: str) -> str:
    """Return what a customer owes."""
    async with Client(crm) as client:
        return str((await client.call_tool("debt", {"customer": customer})).structured_content)


def refund(customer: str, amount: int) -> str:
    """Send money to a customer."""
    raise AssertionError("no contract allows this")


clerk = Agent(TestModel(), name="answer")  # calls every tool that it is shown
answer = agent_stage(PydanticAgent(clerk), answers=AnswerForm.TEXT, tools=[look_up, refund], notes=False)


@pipeline(contracts=ContractTerms(granted=frozenset({"look_up"})))
async def support(p: Pipeline) -> object:
    """Answer a customer."""
    return (await p.stage(answer)).output


if __name__ == "__main__":
    print(baton.run(support, goal="Tell customer c-1 what they owe").output)
