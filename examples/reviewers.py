"""Three reviewers report at once: equal decisions merge, and a disputed one is a question for the lead. Offline."""

import baton
from baton import Baton, HandoffReport, Pipeline, StageContext, StageResult, merge_reports, pipeline, stage
from baton.report.records import Readiness, ReportContext, ReportDecision, ReportFindings, Status


def report(sender: str, confidence: int, found: str, *decisions: ReportDecision) -> HandoffReport:
    """Return what a reviewer reports; an agent would write it with `answers=AnswerForm.REPORT`."""
    return HandoffReport(
        sender=sender,
        receiver="lead",
        task="Review the login",
        status=Status.COMPLETED,
        confidence=confidence,
        summary="Read the change. It works.",
        findings=ReportFindings(discoveries=[found]),
        context=ReportContext(decisions=[ReportDecision(decision="Keep the tests"), *decisions]),
        readiness=Readiness.YES,
    )


@stage
async def security(before: Baton) -> HandoffReport:
    """Look for risks."""
    decision = ReportDecision(decision="Use sessions", alternatives="JWT")
    return report("security", 90, "A key in `src/auth.py:7`", decision)


@stage
async def speed(before: Baton) -> HandoffReport:
    """Look for slow code."""
    decision = ReportDecision(decision="Use JWT", rationale="no store is shared")
    return report("speed", 60, "A loop in `src/auth.py:30`", decision)


@stage
async def style(before: Baton) -> HandoffReport:
    """Look for unclear code."""
    return report("style", 75, "A long function in `src/auth.py:41-160`")


@stage
async def lead(context: StageContext[Baton]) -> StageResult:
    """Read the merged report, which is in the prompt, and answer."""
    prompt = await context.prompt_with_inputs()
    return StageResult(output=next(line for line in prompt.splitlines() if "which holds?" in line))


@pipeline
async def review(p: Pipeline) -> object:
    """Review a change."""
    results = await p.fan_out(security, speed, style)
    merged = merge_reports(
        [HandoffReport.model_validate(result.output) for result in results], sender="review", receiver="author"
    )
    asked = (await p.stage(lead)).output
    return {"confidence": merged.confidence, "decisions": p.baton.decision_log, "asked": asked}


if __name__ == "__main__":
    print(baton.run(review, goal="Review the login").output)
