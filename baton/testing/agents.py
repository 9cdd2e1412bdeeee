"""Agents for tests behind the port of `baton.agents.port`: one that answers by a script, one by a cassette."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import JsonValue

from baton.agents.port import Agent, AgentAnswer, AgentWork, BringsTools, KnowsWindow, ReadsArtifacts, as_json
from baton.contract.records import EventType, SessionEvent
from baton.core.baton import BatonPatch
from baton.core.history import Spend
from baton.pipelines.activity_stage import Stage
from baton.pipelines.prompt import Reads
from baton.testing.cassettes import Cassette
from baton.testing.scripts import Script, Scripted, ScriptedStage, ScriptError, not_again, scripted_stage


class ScriptedAgent(Scripted):
    """An agent that answers by a script, and knows whether it was asked for all of it.

    Its calls are answers in order: an `AgentAnswer`; a patch; a text, which is read as a model's last word; an
    exception; a function of the `AgentWork`, async if it calls its tools; or an `Expect` with one of these. What is
    expected of the prompt is searched in the instructions and the whole user turn.

    Args:
        name: The agent's name.
        calls: Its calls.

    Attributes:
        script: The script, with the prompts so far.

    Example:
        >>> import asyncio
        >>> from baton.pipelines.activity_context import StageContext
        >>> from baton.agents.port import agent_stage
        >>> from baton.core.baton import Baton
        >>> from baton.testing import Expect
        >>> with ScriptedAgent("plan", Expect({"current_state": ["Planned"]}, sees=["Add login"])) as agent:
        ...     asyncio.run(agent_stage(agent)(StageContext.for_test(Baton(goal="Add login")))).baton_patch
        {'current_state': ['Planned']}
    """

    def __init__(self, name: str, *calls: Any) -> None:
        self.name = name
        self.script = Script(name, calls)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer the next call.

        Raises:
            ScriptError: The script has no such call; see `Script.next`.
        """
        answer = await self.script.answer(f"{work.instructions}\n{work.user_turn()}", work)
        if isinstance(answer, AgentAnswer):
            return answer
        if isinstance(answer, str):
            return work.read(answer)
        if answer is None or isinstance(answer, BatonPatch | Mapping):
            return AgentAnswer(patch=answer)
        raise TypeError(
            f"the script of {self.name!r} answers with {type(answer).__name__}; an agent answers with an AgentAnswer, "
            "a patch, a text or nothing"
        )

    def assert_used_up(self) -> None:
        """Assert that every call came, and as expected."""
        self.script.assert_used_up()


class Scripts:
    """Makes scripted agents and stages, and knows whether all their calls came; the fixture `baton_scripts`.

    Example:
        >>> scripts = Scripts()
        >>> _ = scripts.agent("plan", {"current_state": ["Planned"]})
        >>> scripts.assert_used_up()
        Traceback (most recent call last):
        ...
        baton.testing.scripts.ScriptError: 'plan' was called 0 times; its script has 1 call
    """

    def __init__(self) -> None:
        self._made: list[Script] = []

    def agent(self, name: str, *calls: Any) -> ScriptedAgent:
        """Return an agent that answers by a script; see `ScriptedAgent`."""
        made = ScriptedAgent(name, *calls)
        self._made.append(made.script)
        return made

    def stage(self, stage: Stage[Any, Any], *calls: Any) -> ScriptedStage:
        """Return a stand-in for a stage that answers by a script; see `scripted_stage`."""
        made = scripted_stage(stage, *calls)
        self._made.append(made.script)
        return made

    @property
    def prompts(self) -> dict[str, list[str]]:
        """What each of them was shown so far, as `surfaces_of` takes it."""
        shown: dict[str, list[str]] = {}
        for one in self._made:
            shown.setdefault(one.name, []).extend(one.prompts)
        return shown

    def assert_used_up(self) -> None:
        """Assert that every call of every script came, and as expected.

        Raises:
            ScriptError: Some did not; the message has all mistakes.
        """
        faults = [fault for one in self._made if (fault := one.fault()) is not None]
        if faults:
            raise ScriptError("\n".join(faults))


class RecordedAgent:
    """An agent whose answers are kept in a cassette, so that a test asks no model.

    With the answer it keeps what the agent charged and what it recorded in the session, so that the contracts of the
    stages after it come out as they did. Tools are not called again; what they returned is as old as it was then.

    Args:
        agent: The real agent; it is run only while recording.
        cassette: Where the answers are.

    Example:
        ```python
        def test_the_plan_names_a_decision(baton_cassette):
            planner = agent_stage(RecordedAgent(model_agent, baton_cassette), instructions="You plan.")
        ```
    """

    def __init__(self, agent: Agent, cassette: Cassette) -> None:
        self._agent = agent
        self._cassette = cassette

    @property
    def name(self) -> str:
        """The real agent's name."""
        return self._agent.name

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools that the real agent brings."""
        return self._agent.tool_names if isinstance(self._agent, BringsTools) else frozenset()

    @property
    def window(self) -> int | None:
        """The window of the real agent's model."""
        return self._agent.window if isinstance(self._agent, KnowsWindow) else None

    @property
    def reads(self) -> Reads | None:
        """How the real agent reads what its prompt names."""
        return self._agent.reads if isinstance(self._agent, ReadsArtifacts) else "tool"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer as recorded for all that the agent is asked: instructions, tools, prompt and the form of the answer.

        Raises:
            CassetteMissError: Nothing is recorded for it; see `Cassette.answer`.
            ValueError: What is recorded is not an answer of an agent.
        """
        asked = False

        async def ask() -> JsonValue:
            nonlocal asked
            asked = True
            return await _recorded(self._agent, work)

        answer = await self._cassette.answer(self.name, _question(work), ask)
        where = f"the answer of {self.name!r} in {str(self._cassette.file)!r}"
        if not isinstance(answer, dict):
            raise not_again(ValueError(f"{where} is not an object; record it again"))
        try:
            if not asked:
                _replay(answer, work)
            return _answer(answer)
        except (KeyError, TypeError, ValueError) as error:  # somebody has written in the file
            reason = f"{where} cannot be read ({type(error).__name__}: {error}); record it again"
            raise not_again(ValueError(reason)) from error


def _question(work: AgentWork) -> str:
    """Return all that an agent is asked."""
    tools = "\n".join(f"- {tool.name}: {tool.description}" for tool in work.tools)
    form = "" if work.schema is None else json.dumps(work.schema, indent=1, ensure_ascii=False)
    parts = {"Instructions": work.instructions, "Tools": tools, "User turn": work.user_turn(), "Schema": form}
    return "\n".join(f"# {heading}\n{text}" for heading, text in parts.items() if text)


async def _recorded(agent: Agent, work: AgentWork) -> JsonValue:
    """Run the real agent, and return its answer with what it charged and recorded on the way."""
    context = work.context
    charged, told = context.charged, len(context.session.events)
    answer = as_json(await agent.run(work), work, agent.name)
    work.charge(answer.spend)
    patch = answer.patch.to_json_object() if isinstance(answer.patch, BatonPatch) else answer.patch
    now = datetime.now(UTC)
    return {
        "patch": None if patch is None else dict(patch),
        "output": answer.output,
        "report": answer.report,
        "said": list(answer.said),
        "turns": [dict(turn) for turn in answer.turns],
        "spend": context.charged.beyond(charged).model_dump(mode="json"),
        "session": [_kept(event, now) for event in context.session.events[told:]],
    }


def _answer(recorded: Mapping[str, Any]) -> AgentAnswer:
    """Return the answer as it was."""
    return AgentAnswer(
        patch=recorded["patch"],
        output=recorded["output"],
        report=recorded["report"],
        said=tuple(recorded["said"]),
        turns=tuple(recorded["turns"]),
    )


def _kept(event: SessionEvent, now: datetime) -> JsonValue:
    """Return an event of a session as a cassette keeps it: as old as it was, and not from when it was."""
    age = (now - (event.at or now)).total_seconds()
    return {
        "age_seconds": round(age),
        **event.model_copy(update={"timestamp": None, "handoff_id": None}).to_json_object(),
    }


def _replay(recorded: Mapping[str, Any], work: AgentWork) -> None:
    """Charge what was charged, and record what was recorded, as if it happened now."""
    work.charge(Spend.model_validate(recorded["spend"]))
    session, now = work.context.session, datetime.now(UTC)
    texts = {
        EventType.LLM_RESPONSE: session.model_response,
        EventType.USER_MESSAGE: session.user_message,
        EventType.ASSISTANT_MESSAGE: session.assistant_message,
        EventType.BRAINSTORM: session.brainstorm,
        EventType.INTERNAL_NOTE: session.internal_note,
        EventType.REJECTED_ASSUMPTION: session.rejected_assumption,
    }
    calls: dict[str | None, str] = {}
    for members in recorded["session"]:
        age = timedelta(seconds=members["age_seconds"])
        event = SessionEvent.from_json_object({name: one for name, one in members.items() if name != "age_seconds"})
        text, exclude = event.content, event.exclude_from_handoff
        if event.type is EventType.TOOL_CALL:
            calls[event.id] = session.tool_call(
                event.tool_name or "", json.loads(text) if text else None, exclude=exclude
            )
        elif event.type is EventType.TOOL_RESULT:
            session.tool_result(
                event.tool_name or "",
                text,
                call_id=calls.get(event.call_id),
                success=bool(event.success),
                retrieved_at=now - age,
                max_age_minutes=event.max_age_minutes,
                exclude=exclude,
            )
        elif event.type is EventType.DECISION:
            session.decision(text, accepted=bool(event.accepted), exclude=exclude)
        else:
            texts[event.type](text, exclude=exclude)
