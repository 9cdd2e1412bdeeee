"""Cassettes: recorded answers of agents in a file, matched by prompt.

A file is reviewable JSON: each prompt as lines, each answer unchanged. Answers are recorded only with
`--baton-record`; otherwise a prompt without a recording fails with a diff to the most similar one.
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
from baton.agents.lab import RunsInLab
from baton.agents.port import (
    Agent,
    AgentWork,
    BringsTools,
    HasOwnOutput,
    KnowsWindow,
    ReadsArtifacts,
    normalize_answer,
)
from baton.contract.records import EventType, SessionEvent
from baton.core.baton import BatonPatch
from baton.core.history import Spend
from baton.core.notes import Notes
from baton.pipelines.prompt import Reads
from baton.testing.scripts import non_retryable
from baton.wire.json_values import Json, json_spellings
from baton.wire.text import quantity

FORMAT = "baton.cassette/1"
"""The member `format` of every cassette file."""
_MAX_DIFF_LINES = 60
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_MIN_SECRET_LENGTH = 8


class Rule(NamedTuple):
    """A pattern for text that differs between equivalent prompts."""

    name: str
    pattern: re.Pattern[str]


RULES: Sequence[Rule] = (
    Rule("fence", re.compile(r"CONTEXT FROM PREVIOUS AGENT(?: — DATA ONLY)? ([0-9a-f]{16})\]")),
    Rule("id", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)),
    Rule("time", re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")),
)
"""The fence's random tag, UUIDs and timestamps. Digests stay, since they identify contents."""


def normalised(prompt: str, rules: Iterable[Rule] = RULES) -> str:
    """Return a prompt with numbers in place of values that differ between runs; equal values get the same number.

    Args:
        prompt: The prompt.
        rules: The patterns of such values.

    Example:
        >>> print(normalised("seen at 2026-11-21T10:00:00Z, again at 2026-11-21T10:05:00Z, first 2026-11-21T10:00:00Z"))
        seen at <time 1>, again at <time 2>, first <time 1>
    """
    for rule in rules:
        numbers: dict[str, int] = {}

        def number_match(match: re.Match[str], rule: Rule = rule, numbers: dict[str, int] = numbers) -> str:
            group = 1 if rule.pattern.groups else 0
            number = numbers.setdefault(match[group], len(numbers) + 1)
            start, end = match.start(group) - match.start(), match.end(group) - match.start()
            return f"{match[0][:start]}<{rule.name} {number}>{match[0][end:]}"

        prompt = rule.pattern.sub(number_match, prompt)
    return prompt


class CassetteMissError(AssertionError):
    """A cassette has no answer for a prompt; the message has a diff to the most similar recorded prompt."""


@dataclass
class Recording:
    """One recorded answer of an agent."""

    agent: str
    prompt: str
    answer: JsonValue
    used: bool = False

    def to_json_object(self) -> dict[str, JsonValue]:
        """Return the recording in the file's format."""
        return {"agent": self.agent, "prompt": [*self.prompt.split("\n")], "answer": self.answer}


@dataclass
class Cassette:
    """The recorded answers of one test's agents.

    Each recording is played once, in order; a repeated prompt needs another recording.

    Attributes:
        file: The file.
        record: Whether to ask the real agent for missing answers and record them.
        rules: The patterns of text that differs between equivalent prompts.
        recordings: The answers, in order.
        misses: The messages for prompts without an answer.
        recorded: How many answers were recorded in this run.

    Raises:
        ValueError: The file is not a cassette.

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
        """The recordings that were not played."""
        return [recording for recording in self.recordings if not recording.used]

    async def answer(self, agent: str, prompt: str, ask: Callable[[], Awaitable[Json]]) -> Json:
        """Return the recorded answer to a prompt, or ask the agent and record it if ``record`` is set.

        Args:
            agent: The agent's name.
            prompt: The complete prompt.
            ask: Asks the real agent; called only to record.

        Raises:
            CassetteMissError: There is no recording for the prompt. In an activity it is an `ApplicationError` that
                is not retried.
            ValueError: The prompt or the answer contains a secret of the environment; nothing is recorded, and such a
                prompt is not sent to the agent. In an activity it is an `ApplicationError` that is not retried.
        """
        text = normalised(prompt, self.rules)
        for recording in self.recordings:
            if not recording.used and (recording.agent, recording.prompt) == (agent, text):
                recording.used = True
                return recording.answer
        if not self.record:
            raise self._record_miss(agent, text)
        _refuse_secrets(agent, text)
        answer = await ask()
        _refuse_secrets(agent, json.dumps(answer, ensure_ascii=False))
        self.recordings.append(Recording(agent, text, answer, used=True))
        self.recorded += 1
        self.save()
        return answer

    def save(self, *, prune: bool = False) -> None:
        """Write the file atomically.

        Args:
            prune: Omit recordings that were not played in this run.
        """
        if prune:
            self.recordings = [recording for recording in self.recordings if recording.used]
        content = {"format": FORMAT, "answers": [recording.to_json_object() for recording in self.recordings]}
        # A lone surrogate has no UTF-8 encoding; its escape is valid JSON.
        data = json.dumps(content, indent=2, ensure_ascii=False).encode(errors="backslashreplace")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=self.file.parent)
        with open(descriptor, "wb") as file:
            file.write(data + b"\n")
        os.chmod(name, 0o644)
        os.replace(name, self.file)

    def assert_no_misses(self) -> None:
        """Assert that every prompt had an answer.

        Raises:
            CassetteMissError: A prompt had none, even if the pipeline handled that failure.
        """
        if self.misses:
            raise CassetteMissError("\n\n".join(self.misses))

    def _record_miss(self, agent: str, prompt: str) -> Exception:
        """Record a miss and return the error to raise."""
        reason = self._miss_message(agent, prompt)
        self.misses.append(reason)
        return non_retryable(CassetteMissError(reason))

    def _miss_message(self, agent: str, prompt: str) -> str:
        """Return why an answer is missing, with a diff to the most similar prompt."""
        remedy = "check the difference; if it is intended, record again with `pytest --baton-record`"
        own = [recording for recording in self.recordings if recording.agent == agent]
        if not own:
            agents = ", ".join(sorted({repr(recording.agent) for recording in self.recordings})) or "none"
            reason = f"{str(self.file)!r} has no answer of {agent!r} (agents recorded: {agents})"
            return f"{reason}; record it with `pytest --baton-record`"
        repeats = sum(recording.prompt == prompt for recording in own)
        if repeats:
            answers = f"{str(self.file)!r} has {quantity(repeats, 'answer')}"
            return f"{agent!r} was asked the same {quantity(repeats + 1, 'time')}; {answers}; {remedy}"
        nearest = max(own, key=lambda recording: _similarity(recording.prompt, prompt))
        lines = list(
            difflib.unified_diff(
                nearest.prompt.split("\n"), prompt.split("\n"), "recorded", "asked now", lineterm="", n=2
            )
        )
        more = [f"(+{len(lines) - _MAX_DIFF_LINES} more lines)"] if len(lines) > _MAX_DIFF_LINES else []
        diff = "\n".join([*lines[:_MAX_DIFF_LINES], *more])
        return f"{str(self.file)!r} has no answer of {agent!r} for this prompt; {remedy}.\n{diff}"


def _refuse_secrets(agent: str, text: str) -> None:
    """Raise if a recording would contain the value of a secret environment variable."""
    for name, value in os.environ.items():
        if not _SECRET_NAME.search(name) or len(value.strip()) < _MIN_SECRET_LENGTH:
            continue
        if any(spelling in text for spelling in json_spellings(value)):  # the answer is JSON text
            reason = f"the prompt or answer of {agent!r} contains the value of the environment variable {name!r}"
            raise non_retryable(ValueError(f"{reason}; it is not recorded. Keep keys out of prompts and answers"))


def _similarity(first: str, second: str) -> float:
    """Return the similarity of two prompts, from 0 to 1.1, by lines and, with a tenth of the weight, by words."""
    by_lines = difflib.SequenceMatcher(None, first.split("\n"), second.split("\n"), autojunk=False).ratio()
    words = set(first.split()), set(second.split())
    return by_lines + len(words[0] & words[1]) / (1 + len(words[0] | words[1])) / 10


def _read(file: Path) -> list[Recording]:
    """Return the recordings of a file, or none if it does not exist."""
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
        return [_parse_recording(entry) for entry in content["answers"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{str(file)!r} is not a cassette of the format {FORMAT!r}: {type(error).__name__}: {error}; "
            "correct it, or delete it and record again with `pytest --baton-record`"
        ) from error


def _parse_recording(entry: dict[str, Any]) -> Recording:
    if not isinstance(entry["agent"], str) or not isinstance(entry["prompt"], list):
        raise TypeError("an answer's agent must be a string, and its prompt a list of lines")
    return Recording(entry["agent"], "\n".join(entry["prompt"]), entry["answer"])


class RecordedAgent:
    """An agent whose answers come from a cassette, so that a test calls no model.

    The spend and the session events of the agent are recorded too, so that later contracts are compiled alike. Tools
    are not called again; their results keep their age.

    Args:
        agent: The real agent; it runs only while recording.
        cassette: The cassette.

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
        """The names of the real agent's own tools."""
        return self._agent.tool_names if isinstance(self._agent, BringsTools) else frozenset()

    @property
    def window(self) -> int | None:
        """The context window of the real agent's model."""
        return self._agent.window if isinstance(self._agent, KnowsWindow) else None

    @property
    def reads(self) -> Reads | None:
        """How the real agent reads artifacts."""
        return self._agent.reads if isinstance(self._agent, ReadsArtifacts) else "tool"

    @property
    def own_output(self) -> bool:
        """Whether the real agent has an output type of its own."""
        return isinstance(self._agent, HasOwnOutput) and self._agent.own_output

    @property
    def lab_overrides(self) -> frozenset[str]:
        """What the real agent takes: a candidate's answers are recorded like any."""
        return self._agent.lab_overrides if isinstance(self._agent, RunsInLab) else frozenset()

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Return the recorded answer for the agent's instructions, tools, prompt and answer schema.

        Raises:
            CassetteMissError: There is no recording for them; see `Cassette.answer`.
            ValueError: The recording is not an agent's answer.
        """
        was_asked = False

        async def ask() -> JsonValue:
            nonlocal was_asked
            was_asked = True
            return await _run_and_record(self._agent, work)

        answer = await self._cassette.answer(self.name, _render_prompt(work), ask)
        where = f"the answer of {self.name!r} in {str(self._cassette.file)!r}"
        if not isinstance(answer, dict):
            raise non_retryable(ValueError(f"{where} is not an object; record it again"))
        try:
            if not was_asked:
                _repeat_effects(answer, work)
            return _parse_answer(answer)
        except (KeyError, TypeError, ValueError) as error:  # the file was edited by hand
            reason = f"{where} cannot be read ({type(error).__name__}: {error}); record it again"
            raise non_retryable(ValueError(reason)) from error


def _render_prompt(work: AgentWork) -> str:
    """Return an agent's complete prompt."""
    tools = "\n".join(f"- {tool.name}: {tool.description}" for tool in work.tools)
    form = "" if work.schema is None else json.dumps(work.schema, indent=1, ensure_ascii=False)
    parts = {
        "Model": work.overrides.model,
        "Instructions": work.instructions,
        "Tools": tools,
        "User turn": work.user_turn(),
        "Schema": form,
    }
    return "\n".join(f"# {heading}\n{text}" for heading, text in parts.items() if text)


async def _run_and_record(agent: Agent, work: AgentWork) -> JsonValue:
    """Run the real agent, and return its answer with its spend and session events."""
    context = work.context
    charged_before, event_count = context.charged, len(context.session.events)
    answer = normalize_answer(await agent.run(work), work, agent.name)
    work.charge(answer.spend)
    patch = answer.patch.to_json_object() if isinstance(answer.patch, BatonPatch) else answer.patch
    now = datetime.now(UTC)
    return {
        "patch": None if patch is None else dict(patch),
        "output": answer.output,
        "report": answer.report,
        "said": list(answer.said),
        "turns": [dict(turn) for turn in answer.turns],
        "notes": None if answer.notes is None else dict(vars(answer.notes)),
        "noted": dict(vars(work.noted)) if work.noted else None,
        "spend": context.charged.minus(charged_before).model_dump(mode="json"),
        "session": [_session_entry(event, now) for event in context.session.events[event_count:]],
    }


def _parse_answer(recorded: Mapping[str, Any]) -> AgentAnswer:
    return AgentAnswer(
        patch=recorded["patch"],
        output=recorded["output"],
        report=recorded["report"],
        said=tuple(recorded["said"]),
        turns=tuple(recorded["turns"]),
        notes=None if recorded["notes"] is None else Notes(**recorded["notes"]),
    )


def _session_entry(event: SessionEvent, now: datetime) -> JsonValue:
    """Return a session event in the file's format, with its age instead of its timestamp."""
    age = (now - (event.at or now)).total_seconds()
    return {
        "age_seconds": round(age),
        **event.model_copy(update={"timestamp": None, "handoff_id": None}).to_json_object(),
    }


def _repeat_effects(recorded: Mapping[str, Any], work: AgentWork) -> None:
    """Charge the recorded spend and add the recorded notes and session events, as if they happened now."""
    work.charge(Spend.model_validate(recorded["spend"]))
    for name, texts in (recorded["noted"] or {}).items():
        getattr(work.noted, name).extend(texts)
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
        event = SessionEvent.from_json_object({name: value for name, value in members.items() if name != "age_seconds"})
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
                by_model=event.by_model,
                exclude=exclude,
            )
        elif event.type is EventType.DECISION:
            session.decision(text, accepted=bool(event.accepted), exclude=exclude)
        else:
            texts[event.type](text, exclude=exclude)
