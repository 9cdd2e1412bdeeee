"""Every form of answer that a model's server gives, the same for all adapters: an answer, or a fault that says why.

`plain` is `chat_agent`, `pydantic` and `native` are Pydantic AI, `sdk` is the OpenAI Agents SDK, `graph` a LangGraph
graph without `out=`, whose model asks the server.
"""

import json
from collections.abc import Callable
from typing import Any

import pydantic_ai.models
import pytest
from langgraph.graph import START, MessagesState, StateGraph
from temporalio.exceptions import ApplicationError

from baton import Baton, StageContext
from baton.agents import Agent as Port
from baton.agents import AnswerForm, agent_stage
from baton.agents.langgraph import LangGraphAgent
from baton.contract.records import EventType
from baton.errors import PatchError
from tests.agents.material import PATCH
from tests.agents.test_adapters import native, plain, pydantic, sdk
from tests.agents.wire_model import WireModel
from tests.chat_server import ChatServer, Reply, chat_server, completion, text_chunks

TEXT = "The words of the answer."
GOOD = json.dumps({"baton_patch": PATCH})
HALF = GOOD[:20]
MEASURED = (1_000, 100)

TOLD = "told"
"""The model is told in another attempt."""
FINAL = "final"
"""The stage fails for good."""
RETRIED = "retried"
"""The stage fails, and may be tried again."""


def graph(server: ChatServer) -> Port:
    """Return a graph that asks the server."""
    model = WireModel(base=server.base)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    nodes = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
    return LangGraphAgent(nodes, into={"messages": "messages"})


def altered(content: str | None, **members: Any) -> dict[str, Any]:
    """Return a completion with members replaced; those of `message` and `choice` in their places, `...` takes away."""
    body = completion(content)
    choice = body["choices"][0]
    for place, changes in ((choice["message"], members.pop("message", {})), (choice, members.pop("choice", {}))):
        place |= changes
    body |= members
    return {name: value for name, value in body.items() if value is not ...}


TEXTS: dict[str, tuple[Any, Any]] = {
    "a text": (completion(TEXT), TEXT),
    "cut off in a text": (completion(TEXT, finish="length"), TOLD),
    "cut off before a word": (completion("", finish="length"), TOLD),
    "cut off without content": (completion(None, finish="length"), TOLD),
    "cut off in its thinking": (completion("<think>Hm, let me", finish="length"), TOLD),
    "filtered in a text": (completion(TEXT, finish="content_filter"), FINAL),
    "filtered before a word": (completion("", finish="content_filter"), FINAL),
    "filtered without content": (completion(None, finish="content_filter"), FINAL),
    "refused": (altered(None, message={"refusal": "I will not."}), FINAL),
    "empty": (completion(""), TOLD),
    "without content": (completion(None), TOLD),
    "blank": (completion(" \n\t "), TOLD),
    "thinking before it": (completion(f"<think>Hm.\nSo?</think>\n\n{TEXT}"), TEXT),
    "thinking that a template began": (completion(f"Hm.\nSo?\n</think>\n\n{TEXT}"), TEXT),
    "thinking twice": (completion(f"<think>Hm.</think><think>So?</think>{TEXT}"), TEXT),
    "nothing but thinking": (completion("<think>Hm.</think>"), TOLD),
    "without a reason for its end": (altered(TEXT, choice={"finish_reason": None}), TEXT),
    "thinking beside it": (altered(TEXT, message={"reasoning_content": "Hm."}), TEXT),
    "without usage": (altered(TEXT, usage=...), TEXT),
    "null as usage": (altered(TEXT, usage=None), TEXT),
    "usage beyond its parts": (
        altered(TEXT, usage={"prompt_tokens": 1_000, "completion_tokens": 60, "total_tokens": 1_100}),
        TEXT,
    ),
    "without choices": (altered(TEXT, choices=[], usage=...), RETRIED),
    "no JSON": (Reply(b"<html>Bad gateway</html>"), RETRIED),
    "half of its JSON": (Reply(json.dumps(completion(TEXT)).encode()[:60]), RETRIED),
}
"""Answers to a stage that asks for a text: what the server sends, and what becomes of it."""

PATCHES: dict[str, tuple[Any, Any]] = {
    "a patch": (completion(GOOD), PATCH),
    "a patch cut off": (completion(HALF, finish="length"), TOLD),
    "a patch cut off after its end": (completion(GOOD, finish="length"), TOLD),
    "a patch filtered": (completion(HALF, finish="content_filter"), FINAL),
    "a patch after thinking": (completion(f"<think>Hm.</think>{GOOD}"), PATCH),
    "a patch in a fence": (completion(f"```json\n{GOOD}\n```"), PATCH),
    "half a patch that is called whole": (completion(HALF), TOLD),
    "words instead of a patch": (completion(TEXT), TOLD),
    "null instead of a patch": (completion("null"), TOLD),
    "a list instead of a patch": (completion("[]"), TOLD),
    "nothing instead of a patch": (completion(""), TOLD),
}
"""Answers to a stage that asks for a patch."""

ADAPTERS: list[Callable[[ChatServer], Port]] = [plain, pydantic, native, sdk, graph]


@pytest.fixture(autouse=True)
def own_server() -> Any:
    """Allow requests; they go to this machine."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


async def check(agent: Callable[[ChatServer], Port], form: AnswerForm, sent: Any, expected: Any) -> None:
    """Ask an agent's stage once, and check what becomes of the answer and what it costs."""
    stage_context = StageContext.for_test(Baton(goal="Add login"))
    with chat_server(*[sent] * 3) as server:
        stage = agent_stage(agent(server), answers=form)
        if expected is TOLD:
            with pytest.raises(PatchError):
                await stage(stage_context)
        elif expected in (FINAL, RETRIED):
            with pytest.raises(ApplicationError) as failed:
                await stage(stage_context)
            assert failed.value.non_retryable is (expected is FINAL)
            assert TEXT not in str(failed.value)
        else:
            result = await stage(stage_context)
            assert (result.output if form is AnswerForm.TEXT else result.baton_patch) == expected
    asked = len(server.asked)
    charged = stage_context.charged.prompt_tokens, stage_context.charged.completion_tokens
    if isinstance(sent, dict) and sent.get("usage"):
        assert charged == (MEASURED[0] * asked, MEASURED[1] * asked)
    elif isinstance(sent, dict) and sent["choices"]:
        assert min(charged) > 0, "an answer that the server did not measure is estimated"
    said = [event.content for event in stage_context.session.events if event.type is EventType.ASSISTANT_MESSAGE]
    assert not [text for text in said if "think>" in text]


@pytest.mark.parametrize("agent", ADAPTERS)
@pytest.mark.parametrize("form", TEXTS)
async def test_a_text(agent: Callable[[ChatServer], Port], form: str) -> None:
    """It is whole, or the reason is told."""
    await check(agent, AnswerForm.TEXT, *TEXTS[form])


@pytest.mark.parametrize("agent", [plain, native, sdk, graph])
@pytest.mark.parametrize("form", PATCHES)
async def test_a_patch(agent: Callable[[ChatServer], Port], form: str) -> None:
    """The same in JSON."""
    await check(agent, AnswerForm.PATCH, *PATCHES[form])


def ended(events: list[dict[str, Any]], reason: str) -> list[dict[str, Any]]:
    """Return the chunks of a streamed text that ends for a reason."""
    changed = json.loads(json.dumps(events))
    [choice] = [choice for event in changed for choice in event["choices"] if choice["finish_reason"]]
    choice["finish_reason"] = reason
    return list(changed)


@pytest.mark.parametrize(("reason", "expected"), [("stop", TEXT), ("length", TOLD), ("content_filter", FINAL)])
@pytest.mark.parametrize("agent", [plain, pydantic, native, sdk])
async def test_a_streamed_text(agent: Callable[[ChatServer], Port], reason: str, expected: Any) -> None:
    """The same where people watch."""
    stage_context = StageContext.for_test(Baton(goal="Add login"))
    stage_context.given = stage_context.given.model_copy(update={"stream": True})
    with chat_server(Reply(events=ended(text_chunks(TEXT[:9], TEXT[9:]), reason))) as server:
        stage = agent_stage(agent(server), answers=AnswerForm.TEXT)
        if expected is TEXT:
            assert (await stage(stage_context)).output == TEXT
        else:
            with pytest.raises(PatchError if expected is TOLD else ApplicationError):
                await stage(stage_context)
    assert (stage_context.charged.prompt_tokens, stage_context.charged.completion_tokens) == MEASURED
