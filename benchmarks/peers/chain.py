"""A chain of agents of pydantic-ai, each working on the text of the one before: as stages, and in bare activities."""

from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import activity

from baton.agents import AnswerForm, PydanticAgent, agent_stage
from benchmarks.prose import CONSTRAINTS, OPEN_QUESTIONS

LINKS = ("research", "outline", "draft", "edit")
"""The agents, in order."""
ROLE = "You are one of four agents who write an article. Do your part, and answer with the text."


def text_of(name: str) -> str:
    """Return what an agent of the chain writes: about 4 KB.

    Example:
        >>> 3_500 < len(text_of("draft")) < 4_500
        True
    """
    said = (*CONSTRAINTS, *OPEN_QUESTIONS)
    return "\n".join(f"{name} {number}: {said[number % len(said)]}." for number in range(60))


def scripted(name: str) -> FunctionModel:
    """Return a model that writes the text of an agent once it has read the one before, whole."""
    place = LINKS.index(name)
    before = text_of(LINKS[place - 1]) if place else ""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if before not in str(getattr(messages[0].parts[-1], "content", "")):
            raise RuntimeError(f"{name!r} was not given the text of {LINKS[place - 1]!r}")
        return ModelResponse([TextPart(text_of(name))])

    return FunctionModel(answer)


def _stage(name: str) -> Any:
    agent: Agent[None, str] = Agent(scripted(name), name=name)
    return agent_stage(PydanticAgent(agent), name=f"chain_{name}", answers=AnswerForm.TEXT, instructions=ROLE)


STAGES = tuple(map(_stage, LINKS))

_bare = {name: Agent(scripted(name), instructions=ROLE) for name in LINKS}


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
