"""Realistic sessions of agents, which read real files, think and decide.

What the tools return is this project's own code, so its size is that of real work; the texts are the same in every
run of the same checkout.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from baton.contract.activity import SessionLog
from baton.wire.text import TokenEstimator
from benchmarks.prose import DECISIONS, MODULES, OPEN_QUESTIONS, STATES
from benchmarks.samples import patch, to_json

MODEL_CALLS = 16
"""How often a stage's agent asks its model: fifteen answers call a tool, the last one is the stage's answer."""

TOOLS = frozenset({"read_file", "search", "run_tests"})
"""The tools that the agents have."""

_ROOT = Path(__file__).parents[1]
_LINES = 120  # of a file at a time
_SEARCH_LINES = 25  # lines of a search
_LASTS = timedelta(minutes=12)
_STEP = timedelta(seconds=18)  # from one event to the next


@dataclass
class Session:
    """What an agent did in its stage.

    Attributes:
        log: The session that Baton keeps of it.
        ended: When it ended.
        messages: The conversation, for those who pass it on: each message as the next model would read it.
    """

    log: SessionLog
    ended: datetime
    messages: list[str] = field(default_factory=list)


def work(seq: int, started_at: datetime, counter: TokenEstimator, *, sentences: bool) -> Session:
    """Return the session of a stage.

    Args:
        seq: The stage's number, from 1; every stage reads other files.
        started_at: When it began.
        counter: Counts the tokens of whole texts, for the session.
        sentences: Whether tools state what they found in a sentence; otherwise what they return is the claim,
            as the guard around a tool records it by itself.
    """
    clock = count()
    log = SessionLog(f"stage{seq}", f"{seq}", f"h-{seq}", counter, clock=lambda: started_at + next(clock) * _STEP)
    session = Session(log, started_at + _LASTS)
    for number, (tool, arguments, output, claim) in enumerate(tool_calls(seq)):
        thought = make_thought(seq, number)
        session.messages += [f"{thought}\n{json.dumps({'name': tool, 'arguments': arguments})}", output]
        if number % 5 == 1:
            log.brainstorm(thought)
        elif number % 5 == 3:
            log.internal_note(thought)
        call = log.tool_call(tool, {**arguments})
        log.tool_result(tool, claim if sentences else output, call_id=call, content=output if sentences else None)
    change = patch(seq, 3)
    for decision in change["decision_log"]:
        log.decision(decision)
    log.rejected_assumption(make_thought(seq, MODEL_CALLS))
    session.messages.append(to_json({"baton_patch": change}))
    return session


def tool_calls(seq: int) -> Iterator[tuple[str, dict[str, str], str, str]]:
    """Yield the tools that a stage calls: name, arguments, what it returns, and that in a sentence."""
    files = sorted(path for path in (_ROOT / "baton").rglob("*.py") if path.stat().st_size > 2_000)
    for number in range(MODEL_CALLS - 1):
        path = files[(seq * (MODEL_CALLS - 1) + number) * 7 % len(files)]
        name, lines = path.relative_to(_ROOT).as_posix(), path.read_text(encoding="utf-8").splitlines()
        title = lines[0].strip('" ')
        if number % 5 < 3:
            yield "read_file", {"path": name}, "\n".join(lines[:_LINES]), f"{name}: {title}"
        elif number % 5 == 3:
            definitions = [
                (line_number, line) for line_number, line in enumerate(lines, 1) if "def " in line or "class " in line
            ]
            matches = [f"{name}:{line_number}: {line}" for line_number, line in definitions]
            output = "\n".join(matches[:_SEARCH_LINES]) or "nothing found"
            yield (
                "search",
                {"pattern": "def |class ", "path": name},
                output,
                (f"{name} defines {len(matches)} functions and classes"),
            )
        else:
            passed_tests = [
                f"tests/test_{path.stem}.py::test_{number} PASSED [{number * 4:>3}%]" for number in range(_SEARCH_LINES)
            ]
            summary = f"{_SEARCH_LINES} passed in {seq % 7 + 1}.{number:02} s"
            yield (
                "run_tests",
                {"path": f"tests/test_{path.stem}.py"},
                "\n".join([*passed_tests, summary]),
                (f"the tests of {name}: {summary}"),
            )


def make_thought(seq: int, number: int) -> str:
    """Return an agent's text before a tool call: a thought, a question or a plan."""
    kinds = (STATES, OPEN_QUESTIONS, DECISIONS)
    sentences = kinds[number % len(kinds)]
    index = seq * MODEL_CALLS + number
    return sentences[index % len(sentences)].format(m=MODULES[index % len(MODULES)], n=index % 83 + 3)
