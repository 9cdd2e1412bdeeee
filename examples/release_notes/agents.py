"""Two agents as stages: one writes release notes from the commits, the other reviews them.

With `EXAMPLE_MODEL=openai:gpt-4o`, or another model of Pydantic AI, and its key in the environment, a model does the
work. Without it each agent gives a scripted answer, so that the example runs offline.
"""

import os
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from baton.agents import PydanticAgent, agent_stage

COMMITS = ["feat: export to CSV", "fix: a total of zero is printed", "chore: new linter"]


def commits() -> list[str]:
    """Return the subjects of the commits since the last release."""
    return COMMITS


def agent(name: str, offline: dict[str, Any]) -> PydanticAgent:
    """Return an agent with the configured model, or with a scripted answer."""
    return PydanticAgent(Agent(os.environ.get("EXAMPLE_MODEL") or TestModel(custom_output_args=offline), name=name))


write = agent_stage(
    agent(
        "write",
        {
            "baton_patch": {
                "current_state": ["Notes: export to CSV (new), zero totals (fixed)"],
                "decision_log": ["Leave out the chore: no user sees it"],
            }
        },
    ),
    instructions="You write release notes for users, in at most five bullets. Read the commits with the tool first.",
    tools=[commits],
    writes=["current_state", "decision_log"],
    reserve_micro_usd=50_000,
)

review = agent_stage(
    agent("review", {"baton_patch": {"open_questions": ["Does the CSV export need a guide?"]}}),
    instructions="You review release notes. Ask what a user would ask; change nothing.",
    reads=["goal", "current_state", "decision_log"],
    writes=["open_questions"],
    reserve_micro_usd=50_000,
)
