"""A chain of pydantic-ai agents, each working on the previous text: as stages, and in bare activities."""

from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import activity

from baton.agents import AnswerForm, PydanticAgent, agent_stage
from benchmarks.prose import CONSTRAINTS, OPEN_QUESTIONS

LINKS = ("research", "outline", "draft", "edit")
"""The agents, in order."""
ROLE = "You are one of four agents who write an article. Do your part, and answer with the text."


def make_text(name: str) -> str:
    """Return the text of an agent in the chain, about 4 KB.

    Example:
        >>> 3_500 < len(make_text("draft")) < 4_500
        True
    """
    sentences = (*CONSTRAINTS, *OPEN_QUESTIONS)
    return "\n".join(f"{name} {number}: {sentences[number % len(sentences)]}." for number in range(60))


def make_model(name: str) -> FunctionModel:
    """Return a model that writes an agent's text if it was given the whole previous one."""
    index = LINKS.index(name)
    previous = make_text(LINKS[index - 1]) if index else ""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if previous not in str(getattr(messages[0].parts[-1], "content", "")):
            raise RuntimeError(f"{name!r} was not given the text of {LINKS[index - 1]!r}")
        return ModelResponse([TextPart(make_text(name))])

    return FunctionModel(answer)


def _make_stage(name: str) -> Any:
    agent: Agent[None, str] = Agent(make_model(name), name=name)
    return agent_stage(PydanticAgent(agent), name=f"chain_{name}", answers=AnswerForm.TEXT, instructions=ROLE)


STAGES = tuple(map(_make_stage, LINKS))

_bare = {name: Agent(make_model(name), instructions=ROLE) for name in LINKS}


@activity.defn
async def bare_research(prompt: str) -> str:
    """Have the first agent answer."""
    return (await _bare["research"].run(prompt)).output


@activity.defn
async def bare_outline(prompt: str) -> str:
    """Have the second agent answer."""
    return (await _bare["outline"].run(prompt)).output


@activity.defn
async def bare_draft(prompt: str) -> str:
    """Have the third agent answer."""
    return (await _bare["draft"].run(prompt)).output


@activity.defn
async def bare_edit(prompt: str) -> str:
    """Have the fourth agent answer."""
    return (await _bare["edit"].run(prompt)).output


BARE = (bare_research, bare_outline, bare_draft, bare_edit)
