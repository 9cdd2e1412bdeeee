"""Three reviewers report at once: equal decisions merge, and a disputed one is a question for the lead. Offline."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import Baton, HandoffReport, Pipeline, Stage, StageContext, StageResult, merge_reports, pipeline, stage
from baton.agents import AnswerForm, PydanticAgent, agent_stage

REPORT = """
## Agent Handoff Report
**From:** {name}
**To:** lead
**Task:** Review the login
**Status:** completed
**Confidence:** {confidence}
### Summary
Read the change. It works.
#### Key Discoveries
1. {found}
#### Decisions Made
- **Decision**: Keep the tests
{decided}
**Handoff Confidence:** {confidence}
**Ready for Next Phase:** Yes
"""


def reviewer(name: str, confidence: int, found: str, decided: str = "") -> Stage[Any, Any]:
    """Return an agent that answers with a report; a script stands in for its model."""
    script = REPORT.format(name=name, confidence=confidence, found=found, decided=decided)
    agent = PydanticAgent(Agent(TestModel(call_tools=[], custom_output_text=script), name=name))
    return agent_stage(agent, answers=AnswerForm.REPORT, instructions=f"Review the change for {name}.")


SESSIONS = "- **Decision**: Use sessions\n  - **Alternatives Considered**: JWT\n"
JWT = "- **Decision**: Use JWT\n  - **Rationale**: no store is shared\n"
security = reviewer("security", 90, "A key in `src/auth.py:7`", SESSIONS)
speed = reviewer("speed", 60, "A loop in `src/auth.py:30`", JWT)
style = reviewer("style", 75, "A long function in `src/auth.py:41-160`")


@stage
async def lead(context: StageContext[Baton]) -> StageResult:
    """Read the merged report, which is in the prompt, and answer with what it asks."""
    prompt = await context.prompt_with_inputs()
    return StageResult(output=[line for line in prompt.splitlines() if "which holds?" in line])


@pipeline
async def review(p: Pipeline) -> object:
    """Review a change."""
    results = await p.fan_out(security, speed, style)
    reports = [result.output_as(HandoffReport) for result in results]
    merged = merge_reports(reports, sender="review", receiver="author")
    return {"confidence": merged.confidence, "decisions": p.baton.decision_log, "asked": (await p.stage(lead)).output}


if __name__ == "__main__":
    print(baton.run(review, goal="Review the login").output)
