"""Pipelines that do as their agents' reports say: stop, ask people, go on, and merge what branches report."""

from typing import Any

from baton import Baton, HandoffReport, HandoffTerms, OnReport, Pipeline, StageContext, StageResult, pipeline, stage
from baton.report.records import Readiness, RelevantFile, ReportContext, ReportDecision, ReportFindings, Status


def _report(context: StageContext[Any], sender: str, decision: ReportDecision) -> HandoffReport:
    params = {**context.params, **({"status": "failed", "ready": "No"} if context.inputs.get("item") == "bad" else {})}
    found, advised = (400, 100) if params.get("long") else (12, 1)
    return HandoffReport(
        sender=sender,
        receiver="anybody",
        task="Look at the login",
        status=Status(str(params.get("status", "completed"))),
        confidence=10 if "status" in params else 85,
        summary="Looked at the login. It is old.",
        findings=ReportFindings(discoveries=[f"{sender} saw `src/auth.ts:{number}`" for number in range(1, found + 1)]),
        context=ReportContext(
            relevant_files=[RelevantFile(file="src/auth.ts", lines="7-21", reason="it signs the tokens")],
            decisions=[ReportDecision(decision="Keep the tests"), decision],
        ),
        blockers=["Who owns the keys?"],
        recommendations=["Rotate the keys first", *(f"Then do number {number}" for number in range(2, advised + 1))],
        verification_commands=["npm test"],
        readiness=Readiness(str(params.get("ready", "Yes"))),
    )


@stage
async def looks(context: StageContext[Baton]) -> HandoffReport:
    """Report; the parameters say how it went."""
    return _report(context, "looks", ReportDecision(decision="Use JWT", rationale="no store is shared"))


@stage
async def differs(context: StageContext[Baton]) -> HandoffReport:
    """Report, and reject what the other one decided."""
    return _report(context, "differs", ReportDecision(decision="Use sessions", alternatives="JWT, or no login at all"))


def _long_report(sender: str) -> HandoffReport:
    decisions = [
        ReportDecision(
            decision=f"Use library number {sender} {number} for the thing",
            alternatives=", ".join(f"option {sender} {number} {other}" for other in range(5)),
        )
        for number in range(300)
    ]
    context = ReportContext(decisions=[*decisions, ReportDecision(decision="Wait", alternatives="thing")][::-1])
    return HandoffReport(
        sender=sender,
        receiver="anybody",
        task="Choose the libraries",
        status=Status.COMPLETED,
        confidence=90,
        summary="Chose the libraries. They work.",
        context=context,
        readiness=Readiness.YES,
    )


@stage
async def decides_much(before: Baton) -> HandoffReport:
    """Report 301 decisions."""
    return _long_report("one")


@stage
async def rejects_much(before: Baton) -> HandoffReport:
    """Report 301 others, and reject a word of all."""
    return _long_report("two")


@stage
async def reports_too_much(before: Baton) -> HandoffReport:
    """Report more than a report may hold."""
    return _long_report("one").model_copy(update={"blockers": ["Who?"] * 5_001})


@stage
async def reads(context: StageContext[Baton]) -> StageResult:
    """Return the prompt of the next agent."""
    return StageResult(output=await context.prompt_with_inputs())


@stage(reads=["current_state"])
async def reads_little(context: StageContext[Baton]) -> StageResult:
    """Return the prompt of an agent that declares what it reads."""
    return StageResult(output=await context.prompt_with_inputs())


@stage(window=5_000)
async def reads_briefly(context: StageContext[Baton]) -> StageResult:
    """Return the prompt of an agent with a small window."""
    return StageResult(output=await context.prompt_with_inputs())


async def _relay(p: Pipeline) -> object:
    looked = await p.stage(looks)
    if p.params.get("long"):
        return (await p.stage(reads_briefly)).output
    if p.params.get("little"):
        return (await p.stage(reads_little)).output
    return (await p.stage(reads, inputs={"findings": looked} if p.params.get("named") else None)).output


@pipeline
async def relayed(p: Pipeline) -> object:
    """By default a failed or blocked report stops, and one that is not ready asks."""
    return await _relay(p)


@pipeline(on_report=OnReport.ASK)
async def asked(p: Pipeline) -> object:
    """Both ask."""
    return await _relay(p)


@pipeline(handoffs=HandoffTerms(needs=2, who=["ann", "bob"]))
async def overseen(p: Pipeline) -> object:
    """Two named people decide whether it goes on."""
    return await _relay(p)


@pipeline(handoffs=HandoffTerms(proof=True))
async def proven(p: Pipeline) -> object:
    """Only a signed decision counts."""
    return await _relay(p)


@pipeline(on_report=OnReport.CONTINUE)
async def continued(p: Pipeline) -> object:
    """Neither does anything."""
    return await _relay(p)


@pipeline
async def compared(p: Pipeline) -> object:
    """Two agents report at once."""
    await p.fan_out(looks, differs)
    return (await p.stage(reads)).output


@pipeline
async def compared_long(p: Pipeline) -> object:
    """Two agents report hundreds of decisions at once."""
    await p.fan_out(decides_much, rejects_much)
    return (await p.stage(reads)).output


@pipeline
async def mapped_reports(p: Pipeline) -> object:
    """One agent reports about each of three files, and fails at one of them."""
    await p.map(looks, ["a.py", "bad", "c.py"])
    return (await p.stage(reads)).output


@pipeline
async def overfilled(p: Pipeline) -> object:
    """An agent reports more than fits a report."""
    return (await p.stage(reports_too_much)).output


RELAYING: list[Any] = [
    *(relayed, asked, overseen, proven, continued, compared, compared_long, mapped_reports, overfilled),
]
RELAY_STAGES: list[Any] = [
    *(looks, differs, decides_much, rejects_much, reports_too_much, reads, reads_little, reads_briefly),
]
"""Every stage of these pipelines."""
