"""The job that every side does: a state of 1 KB goes through four agents, and each agent's model is a script.

It needs nothing but pydantic, so that the peers' environment can run it too. What the scripts answer is made by
`benchmarks.samples` and read from a file, so that all sides carry the same texts.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ANSWERS = "BATON_BENCH_ANSWERS"
"""The environment variable that names the file of answers."""

AGENTS = ("plan", "implement", "review", "release")
"""The agents, in order; the answer of each is at its place in the file."""

INSTRUCTIONS = "You are one of four agents who deliver a change. Do your part, and answer with the new state."


class State(BaseModel):
    """The state of a job or a pipeline: the members of a baton, and nothing that guards them."""

    goal: str
    current_state: list[str]
    decision_log: list[str]
    constraints: list[str]
    work_scope: list[str]
    artifacts: list[dict[str, Any]]
    open_questions: list[str]
    acceptance: list[str]


class Answer(BaseModel):
    """What an agent answers: the new state, and the decision it took."""

    current_state: list[str]
    decision_log: list[str]


@cache
def answers() -> dict[str, dict[str, list[str]]]:
    """Return what the scripts answer, by agent."""
    scripts: list[dict[str, list[str]]] = json.loads(Path(os.environ[ANSWERS]).read_text(encoding="utf-8"))
    return dict(zip(AGENTS, scripts, strict=True))


def merge(state: State, answer: Answer) -> State:
    """Return the state after an answer: its `current_state` replaces the old one, its decisions are appended.

    Example:
        >>> empty = dict.fromkeys(("constraints", "work_scope", "artifacts", "open_questions", "acceptance"), [])
        >>> before = State(goal="Add login", current_state=["Nothing"], decision_log=["Use JWT"], **empty)
        >>> after = merge(before, Answer(current_state=["A plan"], decision_log=["Use Postgres"]))
        >>> after.current_state, after.decision_log
        (['A plan'], ['Use JWT', 'Use Postgres'])
    """
    decisions = [*state.decision_log, *answer.decision_log]
    return state.model_copy(update={"current_state": answer.current_state, "decision_log": decisions})
