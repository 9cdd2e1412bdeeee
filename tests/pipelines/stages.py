"""The stages of these tests' pipelines, in their own module because they run outside the sandbox."""

import asyncio
import random
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

from pydantic import Field, JsonValue
from temporalio import activity

from baton import Baton, BatonPatch, Retries, Spend, Stage, StageContext, StageResult, stage
from baton.agents import AgentAnswer, AgentWork, agent_stage

SOON = timedelta(milliseconds=20)
AT_ONCE = Retries(attempts=3, first=SOON, factor=1.0)

EXECUTED: Counter[tuple[str, str]] = Counter()
"""How often each stage of each workflow was executed, by workflow id and stage."""

GATES: defaultdict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)
"""What the stage `hold` waits for, by workflow id and the parameter `gate`."""


def executed() -> None:
    """Count an execution of the calling stage."""
    info = activity.info()
    EXECUTED[info.workflow_id or "", info.activity_type] += 1


@stage
async def plan(baton: Baton) -> BatonPatch:
    """Write a plan."""
    executed()
    return BatonPatch(
        current_state=["Plan written", "Nothing implemented", "Nothing reviewed"],
        decision_log=["Chose JWT over sessions"],
        constraints=["All existing tests pass"],
        open_questions=["Which provider first?"],
    )


@stage
async def implement(context: StageContext[Baton]) -> StageResult:
    """Write code into the artifact store."""
    executed()
    await context.artifacts.write("code-1", f"# {context.baton.goal}\n", type="code", path="src/login.py")
    patch = BatonPatch(current_state=["Login works"], decision_log=["Kept the old form"], work_scope=["src/*"])
    return StageResult(baton_patch=patch, output={"files": 1}, spend=Spend(micro_usd=1_500, prompt_tokens=900))


@stage(writes=["current_state", "decision_log", "open_questions"])
async def review(baton: Baton) -> BatonPatch:
    """Read the artifacts and close the questions."""
    executed()
    return BatonPatch(
        current_state=[f"Reviewed after {len(baton.decision_log)} decisions"],
        decision_log=["Approved the change"],
        open_questions=[],
    )


@stage
async def check(baton: Baton) -> StageResult:
    """Run the tests."""
    executed()
    patch = BatonPatch(current_state=["12 tests pass"], decision_log=["Tested on 3.11 only"], acceptance=["pytest"])
    return StageResult(baton_patch=patch, output=12, spend=Spend(micro_usd=10))


@stage
async def document(baton: Baton) -> BatonPatch:
    """Write the documentation."""
    executed()
    return BatonPatch(current_state=["README written"], work_scope=["README.md"])


@stage
async def conclude(baton: Baton) -> BatonPatch:
    """Record the end."""
    executed()
    return BatonPatch(current_state=[f"Concluded on {len(baton.current_state)} points"], decision_log=["Done"])


@stage
async def tidy(baton: Baton) -> BatonPatch:
    """Take milliseconds."""
    executed()
    return BatonPatch(current_state=[*baton.current_state, "Tidied"], decision_log=["Tidied up"])


@stage
async def sort(baton: Baton) -> BatonPatch:
    """Take milliseconds too."""
    executed()
    return BatonPatch(current_state=sorted(baton.current_state))


@stage
async def hold(context: StageContext[Baton]) -> BatonPatch:
    """Return the parameter `patch` after the test opens the gate `gate`."""
    executed()
    await GATES[activity.info().workflow_id or "", str(context.params["gate"])].wait()
    patch: Any = context.params["patch"]
    return BatonPatch.model_validate(patch)


@stage(retries=AT_ONCE)
async def answer(context: StageContext[Baton]) -> dict[str, JsonValue]:
    """Answer the next of the parameter `answers`, one for each attempt; note the findings it was told.

    With the parameter `entries` the first answer has so many empty artifacts.
    """
    executed()
    entries: Any = context.params.get("entries", 0)
    if entries and context.attempt == 1:
        return {"artifacts": [{}] * entries}
    answers: Any = context.params["answers"]
    patch: dict[str, JsonValue] = dict(answers[context.attempt - 1])
    if context.findings and "decision_log" not in patch:
        patch["decision_log"] = [f"was told: {finding}" for finding in context.findings]
    return patch


@stage(retries=AT_ONCE, writes=["current_state", "decision_log"])
async def careful(context: StageContext[Baton]) -> dict[str, JsonValue]:
    """Answer like `answer`, with fewer declared fields."""
    return await answer(context)


@stage(retries=Retries(attempts=0, first=SOON, factor=1.0))
async def stumble(context: StageContext[Baton]) -> BatonPatch:
    """Fail twice, or as often as the parameter `stumbles` says, then succeed; with `smooth`, succeed at once."""
    executed()
    if activity.info().attempt <= int(str(context.params.get("stumbles", 2))) and "smooth" not in context.params:
        raise ConnectionError("the model does not answer")
    return BatonPatch(current_state=["The model answered"])


@stage(retries=Retries(attempts=1))
async def fail(baton: Baton) -> BatonPatch:
    """Fail permanently."""
    executed()
    raise ConnectionError("the model is gone")


@stage(retries=AT_ONCE)
async def swell(context: StageContext[Baton]) -> StageResult:
    """Return a text of the length `size` that hardly compresses."""
    size = int(str(context.params["size"]))
    return StageResult(output=random.Random(size).randbytes(size // 2).hex())


@stage
async def count(baton: Baton) -> BatonPatch:
    """Add one more decision."""
    executed()
    return BatonPatch(decision_log=[f"Round {len(baton.decision_log)}"])


@stage
async def discuss(context: StageContext[Baton]) -> StageResult:
    """Add a turn that answers the earlier ones."""
    executed()
    heard = [turn.content for turn in context.turns]
    return StageResult(
        output=[*heard], turns=[{"role": "analyst", "content": f"point {len(heard)}"}], spend=Spend(micro_usd=100)
    )


@stage
async def rest(baton: Baton) -> None:
    """Run for a second: the shortest time after which a run continues as new."""
    executed()
    await asyncio.sleep(1)


class AuditedBaton(Baton):
    """A baton with two additional fields."""

    cost_centre: str = "none"
    risks: dict[str, int] = Field(default_factory=dict)


class AuditedPatch(BatonPatch):
    """The patch type of `Audited`."""

    cost_centre: str | None = None
    risks: dict[str, int | None] | None = None


@stage
async def assess(baton: AuditedBaton) -> AuditedPatch:
    """Write the additional fields."""
    executed()
    return AuditedPatch(cost_centre="R&D", risks={"scope": 2, "time": 5} if not baton.risks else {"time": None})


@stage(retries=Retries(attempts=1))
async def forgets(context: StageContext[Baton]) -> BatonPatch:
    """Write an artifact without awaiting it."""
    context.artifacts.write("code-1", b"a secret text", type="code")  # type: ignore[unused-coroutine]
    return BatonPatch(decision_log=["Wrote it"])


@stage(name="forgets")
async def other(baton: Baton) -> BatonPatch:
    """Do something else under the same stage name."""
    return BatonPatch()


class Nobody:
    """An agent that does nothing."""

    name = "forgets"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Do nothing."""
        return AgentAnswer()


NAMESAKES: dict[str, Stage[Any, Any]] = {"functions": other, "agents": agent_stage(Nobody())}
"""Stages of one name, by what they are made of."""
FIRST_NAMESAKES: dict[str, Stage[Any, Any]] = {
    "functions": forgets,
    "agents": agent_stage(Nobody(), retries=Retries(attempts=1)),
}

STAGES: list[Any] = [
    forgets,
    plan,
    implement,
    review,
    check,
    document,
    conclude,
    tidy,
    sort,
    hold,
    answer,
    careful,
    stumble,
    fail,
    count,
    discuss,
    rest,
    swell,
    assess,
]
