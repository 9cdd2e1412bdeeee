"""Two agents summarise a document under a budget while people watch, and an editor decides.

`make demo` runs it. Offline the models answer from a script; `EXAMPLE_MODEL=openai:gpt-5-mini` asks a real one.

baton dev examples/summary.py
baton run summary --goal "What is new, for users" --param document=CHANGELOG.md --budget 0.50 --watch
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from baton import Pipeline, pipeline
from baton.agents import AnswerForm, Notes, Price, PydanticAgent, agent_stage

PRICE = Price(input=3, output=15)
MODEL = os.environ.get("EXAMPLE_MODEL")

Chunk = str | DeltaToolCalls


def read_document(name: str) -> str:
    """Read a document of this folder."""
    return Path(name).read_text(encoding="utf-8")


async def stream_words(text: str) -> AsyncIterator[str]:
    """Yield a text as a model streams it: in pieces, with pauses."""
    for word in re.findall(r"\S+\s*", text):
        yield word
        await asyncio.sleep(0.02)


async def writer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Chunk]:
    """Act as a model: read the document, and write a line for each of its bold headings."""
    documents = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not documents:
        name = re.search(r"document: ([\w./-]+)", str(messages[0]))
        yield {0: DeltaToolCall(name="read_document", json_args=f'{{"name": "{name[1] if name else "README.md"}"}}')}
        return
    entries = re.findall(r"(?s)- \*\*([^*]+?)\.?\*\* (.+?\.)(?:\s|$)", str(documents[0]))
    lines = [f"- {heading}: {' '.join(text.split())}" for heading, text in entries[:6]]
    notes = Notes(decided=["Keep the first six headings, because the others are details"])
    async for word in stream_words("\n".join([*lines, "", notes.render()])):
        yield word


async def editor(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Chunk]:
    """Act as a model: keep the three shortest lines of the draft."""
    prompt = "\n".join(str(part.content) for message in messages for part in message.parts if hasattr(part, "content"))
    lines = sorted(re.findall(r"(?m)^- [A-Z].+$", prompt.rpartition("draft")[2]), key=len)[:3]
    notes = Notes(decided=["Keep the three shortest lines, because readers skim"])
    async for word in stream_words("\n".join(["# What is new", "", *lines, "", notes.render()])):
        yield word


def agent(name: str, script: Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]) -> PydanticAgent:
    """Return an agent with the configured model, or else its script."""
    model = MODEL or FunctionModel(stream_function=script)
    return PydanticAgent(Agent(model, name=name), price=None if MODEL else PRICE, stream=True)


write = agent_stage(
    agent("write", writer),
    answers=AnswerForm.TEXT,
    instructions="Read the document that the parameters name, and draft a summary for users, one line per point.",
    tools=[read_document],
    shows_params=True,
)
edit = agent_stage(
    agent("edit", editor),
    answers=AnswerForm.TEXT,
    instructions="Shorten the draft to its three most useful lines.",
    heartbeat=timedelta(seconds=2),
)


@pipeline
async def summary(p: Pipeline) -> object:
    """Write, edit, and ask the editor."""
    draft = await p.stage(write)
    edited = await p.stage(edit, inputs={"draft": draft})
    await p.approve("editor", within=timedelta(days=1), asks="Publish it?", shows={"summary": edited})
    return edited.output
