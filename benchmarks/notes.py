"""What it costs that every answer carries its reasons: tokens of the prompt, and no request more.

One agent answers in each form with notes and without; its model is a script, so the figures are exact.
"""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from baton import Baton, StageContext
from baton.agents import AgentAnswer, AgentWork, AnswerForm, Notes, PydanticAgent, agent_stage
from baton.compression.store_tokens import exact_counter
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig

DECIDED = "Use JWT, because the servers share no store (rejected: sessions)"


class Plan(BaseModel):
    """An output of a type."""

    steps: list[str]


def search(topic: str) -> str:
    """Find what is known about a topic."""
    return f"{topic}: nothing"


class Watched:
    """An agent of Pydantic AI whose work is kept, and the requests to its model counted."""

    name = "plan"

    def __init__(self) -> None:
        self.requests = 0
        self.works: list[AgentWork] = []
        self._agent = PydanticAgent(Agent(FunctionModel(self._respond), name=self.name))

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Keep the work, and answer."""
        self.works.append(work)
        return await self._agent.run(work)

    def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Call the tool once if there is one, beside it a tool for notes; then answer, and give reasons if asked."""
        self.requests += 1
        tools = {tool.name for tool in info.function_tools}
        calls = {"search": {"topic": "batons"}, "note_decision": {"text": DECIDED}}
        if tools and len(messages) == 1:
            return ModelResponse([ToolCallPart(name, calls[name]) for name in calls if name in tools])
        noted = self.works[-1].notes
        if not info.output_tools:
            block = f"\n\n{Notes(decided=[DECIDED]).render()}" if noted else ""
            return ModelResponse([TextPart(f"A plan.{block}")])
        [tool] = info.output_tools
        typed = "output" in tool.parameters_json_schema["properties"]
        answer: dict[str, Any] = {"output": {"steps": []}} if typed else {"baton_patch": {"decision_log": [DECIDED]}}
        if noted:
            answer |= {"decided": [DECIDED]} if typed else {"rejected": ["Sessions"]}
        return ModelResponse([ToolCallPart(tool.name, answer)])


async def _added(answers: Any, tools: Sequence[Any]) -> list[int]:
    """Return what notes add to a stage: tokens of the prompt, of the answer's schema, of the tools; and requests."""
    counter, agent, totals = exact_counter(), Watched(), []
    for notes in (True, False):
        before = agent.requests
        stage = agent_stage(agent, answers=answers, tools=tools, notes=notes)
        result = await stage(StageContext.for_test(Baton(goal="Add login")))
        assert not notes or result.baton_patch == {"decision_log": [DECIDED]}, "the notes did not become the patch"
        work = agent.works[-1]
        told = [work.instructions, work.user_turn().replace(work.prompt, "")]
        offered = [json.dumps([tool.wire_name, tool.description, dict(tool.parameters)]) for tool in work.tools]
        sizes = [sum(map(counter, texts)) for texts in (told, [json.dumps(work.schema or {})], offered)]
        totals.append([*sizes, agent.requests - before])
    return [with_notes - without for with_notes, without in zip(*totals, strict=True)]


async def notes(rig: Rig, effort: Effort) -> Findings:
    """Count what notes add, by the form of the answer; the figures are the largest."""
    columns = ("notes beside", "tokens of prompt", "of schema", "of tools", "requests")
    findings = Findings("What asking for notes adds to a stage (o200k_base)", columns)
    forms: dict[str, tuple[Any, Sequence[Any]]] = {
        "a text": (AnswerForm.TEXT, []),
        "a typed output": (Plan, []),
        "a patch": (AnswerForm.PATCH, []),
        "a text, with tools": (AnswerForm.TEXT, [search]),
    }
    added = {name: await _added(*terms) for name, terms in forms.items()}
    findings.rows.extend((name, *map(str, sizes)) for name, sizes in added.items())
    findings.values["notes_tokens"] = max(sizes[0] for sizes in added.values())
    findings.values["notes_requests"] = max(sizes[3] for sizes in added.values())
    return findings
