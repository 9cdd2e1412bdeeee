"""Cassettes: an agent's answers in a file, found again by the prompt that they answered.

A file is JSON for people: each prompt as lines, each answer as it is, so a review shows what an agent was asked and
what it said. Nothing is recorded unless the test run says so; a prompt that is not in the file fails with a
difference to the nearest one that is.
"""

import difflib
import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from baton.agents.answers import AgentAnswer
from baton.agents.port import Agent, AgentWork, BringsTools, KnowsWindow, ReadsArtifacts, as_json
from baton.contract.records import EventType, SessionEvent
from baton.core.baton import BatonPatch
from baton.core.history import Spend
from baton.pipelines.prompt import Reads
from baton.testing.scripts import not_again
from baton.wire.json_values import Json, json_spellings
from baton.wire.text import quantity

FORMAT = "baton.cassette/1"
"""The member `format` of every cassette file."""
_SHOWN_LINES = 60
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8


class Rule(NamedTuple):
    """What differs from one run to the next though it means the same."""

    name: str
    pattern: re.Pattern[str]


RULES: Sequence[Rule] = (
    Rule("fence", re.compile(r"CONTEXT FROM PREVIOUS AGENT(?: — DATA ONLY)? ([0-9a-f]{16})\]")),
    Rule("id", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)),
    Rule("time", re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")),
)
"""The fence's random tag, UUIDs and times of day; digests stay, since they name contents."""


def normalised(prompt: str, rules: Iterable[Rule] = RULES) -> str:
    """Return a prompt without what differs from run to run; the same id gets the same number throughout.

    Args:
        prompt: The prompt.
        rules: What differs.

    Example:
        >>> print(normalised("seen at 2026-11-21T10:00:00Z, again at 2026-11-21T10:05:00Z, first 2026-11-21T10:00:00Z"))
        seen at <time 1>, again at <time 2>, first <time 1>
    """
    for rule in rules:
        numbers: dict[str, int] = {}

        def placed(found: re.Match[str], rule: Rule = rule, numbers: dict[str, int] = numbers) -> str:
            group = 1 if rule.pattern.groups else 0
            number = numbers.setdefault(found[group], len(numbers) + 1)
            start, end = found.start(group) - found.start(), found.end(group) - found.start()
            return f"{found[0][:start]}<{rule.name} {number}>{found[0][end:]}"

        prompt = rule.pattern.sub(placed, prompt)
    return prompt


class CassetteMissError(AssertionError):
    """A cassette has no answer for a prompt; the message shows how it differs from the nearest one that it has."""


@dataclass
class Recording:
    """One answer of an agent."""

    agent: str
    prompt: str
    answer: JsonValue
    used: bool = False

    def to_json_object(self) -> dict[str, JsonValue]:
        """Return it as the file has it."""
        return {"agent": self.agent, "prompt": [*self.prompt.split("\n")], "answer": self.answer}


@dataclass
class Cassette:
    """The recorded answers of one test's agents.

    Each recording is played once, in the order in which it was made; a prompt that is asked again needs another.

    Attributes:
        file: Where they are kept.
        record: Whether to ask the real agent for what is not there, and keep its answer.
        rules: What differs between prompts that are the same.
        recordings: The answers, in order.
        misses: What was asked for and is not there.
        recorded: How many answers were recorded in this run.

    Raises:
        ValueError: On making one: the file is not a cassette.

    Example:
        >>> import asyncio
        >>> async def model() -> Json:
        ...     return {"plan": "Use JWT"}
        >>> file = Path(tempfile.mkdtemp()) / "plan.json"
        >>> asyncio.run(Cassette(file, record=True).answer("planner", "Add login", model))
        {'plan': 'Use JWT'}
        >>> asyncio.run(Cassette(file).answer("planner", "Add login", model))
        {'plan': 'Use JWT'}
    """

    file: Path
    record: bool = False
    rules: Sequence[Rule] = RULES
    recordings: list[Recording] = field(init=False)
    misses: list[str] = field(default_factory=list, init=False)
    recorded: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.recordings = _read(self.file)

    @property
    def unused(self) -> list[Recording]:
        """The recordings that were not played: their prompts are no longer asked."""
        return [one for one in self.recordings if not one.used]

    async def answer(self, agent: str, prompt: str, ask: Callable[[], Awaitable[Json]]) -> Json:
        """Return what is recorded for a prompt; when recording, ask the agent for what is not.

        Args:
            agent: The agent's name.
            prompt: All that it is asked.
            ask: Asks the real agent; not called unless the answer has to be recorded.

        Raises:
            CassetteMissError: The prompt has no answer here. In an activity it is an `ApplicationError` that
                is not retried.
            ValueError: Prompt or answer hold a secret of the environment; nothing is recorded, and no agent is asked
                such a prompt. In an activity it is an `ApplicationError` that is not retried: the agent may cost money.
        """
        text = normalised(prompt, self.rules)
        for one in self.recordings:
            if not one.used and (one.agent, one.prompt) == (agent, text):
                one.used = True
                return one.answer
        if not self.record:
            raise self._missed(agent, text)
        _refuse_secrets(agent, text)
        answer = await ask()
        _refuse_secrets(agent, json.dumps(answer, ensure_ascii=False))
        self.recordings.append(Recording(agent, text, answer, used=True))
        self.recorded += 1
        self.save()
        return answer

    def save(self, *, prune: bool = False) -> None:
        """Write the file, whole or not at all.

        Args:
            prune: Leave out what was not played in this run.
        """
        if prune:
            self.recordings = [one for one in self.recordings if one.used]
        content = {"format": FORMAT, "answers": [one.to_json_object() for one in self.recordings]}
        # Half a character, which UTF-8 has no bytes for, is escaped: JSON reads it back as it was.
        data = json.dumps(content, indent=2, ensure_ascii=False).encode(errors="backslashreplace")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=self.file.parent)
        with open(descriptor, "wb") as file:
            file.write(data + b"\n")
        os.chmod(name, 0o644)
        os.replace(name, self.file)

    def assert_no_misses(self) -> None:
        """Assert that every prompt had its answer.

        Raises:
            CassetteMissError: One had not, whatever became of that in the pipeline.
        """
        if self.misses:
            raise CassetteMissError("\n\n".join(self.misses))

    def _missed(self, agent: str, prompt: str) -> Exception:
        """Note a miss, and return what to raise."""
        reason = self._reason(agent, prompt)
        self.misses.append(reason)
        return not_again(CassetteMissError(reason))

    def _reason(self, agent: str, prompt: str) -> str:
        """Return why an answer is missing, with the nearest prompt that has one."""
        remedy = "look at the difference; if it is meant, record again with `pytest --baton-record`"
        mine = [one for one in self.recordings if one.agent == agent]
        if not mine:
            agents = ", ".join(sorted({repr(one.agent) for one in self.recordings})) or "none"
            return (
                f"{str(self.file)!r} has no answer of {agent!r} (agents recorded: {agents}); "
                "record it with `pytest --baton-record`"
            )
        same = sum(one.prompt == prompt for one in mine)
        if same:
            has = f"{str(self.file)!r} has {quantity(same, 'answer')}"
            return f"{agent!r} was asked the same {quantity(same + 1, 'time')}; {has}; {remedy}"
        nearest = max(mine, key=lambda one: _likeness(one.prompt, prompt))
        lines = list(
            difflib.unified_diff(
                nearest.prompt.split("\n"), prompt.split("\n"), "recorded", "asked now", lineterm="", n=2
            )
        )
        more = [f"(+{len(lines) - _SHOWN_LINES} more lines)"] if len(lines) > _SHOWN_LINES else []
        shown = "\n".join([*lines[:_SHOWN_LINES], *more])
        return f"{str(self.file)!r} has no answer of {agent!r} for this prompt; {remedy}.\n{shown}"


def _refuse_secrets(agent: str, text: str) -> None:
    """Raise if a recording would hold what an environment variable with the name of a secret holds."""
    for name, value in os.environ.items():
        if not _SECRET_NAME.search(name) or len(value.strip()) < _SHORTEST_SECRET:
            continue
        if any(one in text for one in json_spellings(value)):  # an answer is looked at as JSON
            reason = (
                f"what {agent!r} was asked or answered holds the value of the environment variable {name!r}, so it is "
                "not recorded; keep keys out of prompts and answers"
            )
            raise not_again(ValueError(reason))


def _likeness(one: str, other: str) -> float:
    """Return how alike two prompts are, from 0 to 1, by their lines and then by their words."""
    by_lines = difflib.SequenceMatcher(None, one.split("\n"), other.split("\n"), autojunk=False).ratio()
    words = set(one.split()), set(other.split())
    return by_lines + len(words[0] & words[1]) / (1 + len(words[0] | words[1])) / 10


def _read(file: Path) -> list[Recording]:
    """Return the recordings of a file; none if it is not there."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return []
    try:
        content = json.loads(data.decode("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        if not isinstance(content["answers"], list):
            raise TypeError("its answers are not a list")
        return [_recording(one) for one in content["answers"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{str(file)!r} is not a cassette of the format {FORMAT!r}: {type(error).__name__}: {error}; "
            "correct it, or delete it and record again with `pytest --baton-record`"
        ) from error


def _recording(one: dict[str, Any]) -> Recording:
    """Return what a file has of an answer."""
    if not isinstance(one["agent"], str) or not isinstance(one["prompt"], list):
        raise TypeError("an answer's agent is a text, and its prompt a list of lines")
    return Recording(one["agent"], "\n".join(one["prompt"]), one["answer"])


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
