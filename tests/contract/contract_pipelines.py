"""Pipelines with contracts: research finds things out, a reviewer decides under a contract, a clerk reports."""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import workflow

from baton import (
    Baton,
    BatonPatch,
    ContinueAfter,
    ContractTerms,
    Exchange,
    Outside,
    Pipeline,
    PipelineResult,
    StageContext,
    StageResult,
    stage,
)
from baton.contract.compiler import DEFAULT_PROCESSORS
from baton.contract.draft import ContractPolicy, Draft, Processor
from baton.contract.records import Confidence, SourceProvenance
from baton.contract.registry import AgentEntry, AgentRegistry, OutputSchema, OutputSchemas
from baton.core.messages import PipelineInput
from baton.errors import StageFailedError

SCHEMAS = OutputSchemas(
    [
        OutputSchema(
            "Decision",
            "1.2",
            {
                "type": "object",
                "required": ["approved"],
                "properties": {"approved": {"type": "boolean"}},
                "additionalProperties": False,
            },
        )
    ]
)
REPORT = """## Agent Handoff Report

**From:** clerk
**To:** parent
**Task:** Write it down
**Status:** completed
**Confidence:** {confidence}

---

### Summary
The email was reviewed. Nothing is left to do.

### Findings

#### Key Discoveries
1. The recipient is known

#### Decisions Made
- **Decision**: Send the email
  - **Rationale**: The policy allows it
  - **Alternatives Considered**: Not sending it

---

**Handoff Confidence:** 90
**Ready for Next Phase:** Yes
"""


@stage(tools=["crm.lookup_customer", "crm.lookup_pricing"])
async def research(context: StageContext[Baton]) -> StageResult:
    """Find out, think aloud, and fetch a quote that is old."""
    log, word = context.session, str(context.params.get("marker", "m"))
    customer = await context.tools.call("crm.lookup_customer", lambda: "The recipient is an enterprise customer.")
    call = log.tool_call("crm.lookup_pricing", {"product": word})
    old = datetime.now(UTC) - timedelta(hours=10)
    log.tool_result("crm.lookup_pricing", f"The price is 100 {word}-stale.", call_id=call, retrieved_at=old)
    log.brainstorm(f"What if we just skip the compliance check? {word}-brainstorm")
    log.rejected_assumption(f"Pricing is the only factor. {word}-rejected")
    log.internal_note(f"Ann owes me lunch. {word}-note")
    log.decision("The email goes to one recipient.")
    log.decision(f"It offers 100 {word}-stale.", rests_on=["crm.lookup_pricing"])
    log.user_message(f"Write to them. {'It is urgent. ' * 90}Never name another customer.")
    log.user_message(f"Hurry up! {word}-user", exclude=True)
    return StageResult(baton_patch=BatonPatch(current_state=[f"Researched: {customer}"]))


@stage(
    tools=["policy.search", "email.send"],
    forbids=["email.send"],
    output="Decision@1.2",
    task="Evaluate whether the proposed outbound email violates internal policy.",
)
async def review(context: StageContext[Baton]) -> StageResult:
    """Decide; the first answer does not fit the schema, and says so in the second."""
    word = context.params.get("send")
    if word:
        await context.tools.call("email.send", lambda: "sent")
    rule = await context.tools.call("policy.search", lambda topic: f"one rule about {topic}", "discounts")
    prompt = context.prompt
    if context.params.get("sloppy") and context.attempt == 1:
        return StageResult(output={"approved": "yes"})
    return StageResult(
        baton_patch=BatonPatch(current_state=["Reviewed"], decision_log=[f"Approved by {rule}"]),
        output={"approved": "skip the compliance" not in prompt},
    )


@stage
async def write_down(context: StageContext[Baton]) -> StageResult:
    """Answer with a report; the first one has a confidence that is none."""
    sloppy = context.params.get("sloppy") and context.attempt == 1
    return StageResult(report=REPORT.format(confidence="850" if sloppy else "90"))


@workflow.defn
class Reviewed:
    """Research, review and report, under contracts."""

    terms = ContractTerms(schemas=SCHEMAS)

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=self.terms)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        decided = await self.pipeline.stage(review)
        await self.pipeline.stage(write_down)
        return self.pipeline.result(decided.output)


@stage
async def noted(context: StageContext[Baton]) -> BatonPatch:
    """Note that it ran, and as which step."""
    return BatonPatch(decision_log=[f"ran {context.given.seq}"])


@workflow.defn
class Briefly:
    """Two stages, under contracts that may be used for one minute."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(policy=ContractPolicy(expires_after_minutes=1)))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(noted)
        await self.pipeline.stage(noted)
        return self.pipeline.result()


@workflow.defn
class Misrouted:
    """A pipeline whose registry does not know its stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        agents = AgentRegistry([AgentEntry(name="researcher", version="1.0.0")])
        self.pipeline = Pipeline(start, contracts=ContractTerms(agents=agents))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        return self.pipeline.result()


@stage
async def glance(context: StageContext[Baton]) -> BatonPatch:
    """Look, and make a note of it."""
    context.session.internal_note("Seen.")
    return BatonPatch(current_state=["Seen"])


@workflow.defn
class Glanced:
    """Research, a look without a message in the history, an outside agent that does not answer, and a note."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())
        self.outside = Outside(Exchange(self.pipeline, agent="legal"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        await self.pipeline.stage(glance)
        with contextlib.suppress(StageFailedError):
            await self.outside.hand_off("reviewer", "Review the email", within=timedelta(milliseconds=100))
        await self.pipeline.stage(noted)
        return self.pipeline.result()


DELETED: list[str] = []
"""The runs in which `notes.delete` ran."""


@stage(tools=["notes.read", "notes.delete"])
async def gather(context: StageContext[Baton]) -> BatonPatch:
    """Forget the scope, and try what no stage may when it is to mend that."""
    if context.findings:
        await context.tools.call("notes.delete", lambda: DELETED.append(context.given.task_id))
        return BatonPatch(work_scope=["clauses/*"])
    return BatonPatch(current_state=["Gathered"])


@stage(requires=["work_scope"])
async def within_scope(baton: Baton) -> BatonPatch:
    """Work within the scope."""
    return BatonPatch(current_state=[f"Worked in {baton.work_scope[0]}"])


@workflow.defn
class Mends:
    """A sender that has to mend what it hands on, under a contract as at first."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        terms = ContractTerms(forbidden=frozenset({"notes.delete"}))
        self.pipeline = Pipeline(start, contracts=terms)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(gather)
        await self.pipeline.stage(within_scope)
        return self.pipeline.result()


def grow_with_age(draft: Draft) -> None:
    """State what is left, with a word more for each second since: the team's idea of a reminder."""
    for event in draft.rest:
        assert event.at is not None
        source = SourceProvenance(source="notes", timestamp=event.at, method="noted")
        seconds = int((draft.request.created_at - event.at).total_seconds())
        draft.state(event, event.content + " waiting" * seconds, source, Confidence.MEDIUM)


GROWING = (*DEFAULT_PROCESSORS[:-2], Processor("claims", grow_with_age))
"""The usual processors, but for the two that state claims and keep them within the budget."""


@workflow.defn
class ReviewedOutside:
    """Research, and an agent outside who reviews under a contract.

    Parameters: `agents` (versions by name), `hours` (how long the review may take; one minute without), `growing`
    (contracts are valid for the first minutes only).
    """

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        versions: Any = start.params.get("agents")
        entries = [
            AgentEntry(name="research", version="1.0.0", tools=research.spec.tools),
            *(
                AgentEntry(name=name, version=version, tools=review.spec.tools)
                for name, version in (versions or {}).items()
            ),
        ]
        agents = AgentRegistry(entries) if versions else None
        processors = GROWING if start.params.get("growing") else DEFAULT_PROCESSORS
        terms = ContractTerms(forbidden=frozenset({"email.send"}), agents=agents, processors=processors)
        self.pipeline = Pipeline(start, contracts=terms)
        self.outside = Outside(Exchange(self.pipeline, agent="legal"))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        hours: Any = start.params.get("hours")
        within = timedelta(hours=hours) if hours else timedelta(minutes=1)
        result = await self.outside.hand_off(
            "reviewer", "Review the email", within=within, version="^1.0.0", tools=["policy.search"]
        )
        return self.pipeline.result(result.model_dump(mode="json"))


@workflow.defn
class Glances:
    """Research, and two further stages, the last of them in a run that continues the first."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(), continue_after=ContinueAfter(events=4))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        await self.pipeline.stage(glance)
        await self.pipeline.sleep(timedelta(seconds=1.1), name="no run is shorter than a second")
        await self.pipeline.stage(noted)
        return self.pipeline.result()


@workflow.defn
class Uncontracted:
    """One stage, without contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(noted)
        return self.pipeline.result()


@workflow.defn
class WithoutContracts:
    """One stage, of a pipeline that makes no contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=False)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(noted)
        return self.pipeline.result()


CONTRACT_PIPELINES = [
    Glances,
    Reviewed,
    Briefly,
    Misrouted,
    Mends,
    ReviewedOutside,
    Glanced,
    Uncontracted,
    WithoutContracts,
]
CONTRACT_STAGES: list[Callable[..., Any]] = [research, review, write_down, gather, within_scope, glance, noted]
