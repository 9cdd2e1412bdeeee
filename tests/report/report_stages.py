"""Agents that are defined by files and answer with handoff reports, and what a scripted one says."""

from pathlib import Path

from baton.agents import AgentAnswer, AgentWork, defined_stage, read_agent_file
from baton.report.records import HandoffReport, Readiness, ReportContext, ReportDecision, ReportFindings, Status
from baton.report.rendering import render_report

AGENTS = {one.name: one for one in map(read_agent_file, (Path(__file__).parents[1] / "data/agents").glob("*.md"))}
"""The definitions of these tests' agents."""

SEEN: dict[tuple[str, str], str] = {}
"""The user turn that each agent was given, by workflow id and name."""


class Scripted:
    """An agent that remembers what it was asked, and answers with what it was given."""

    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        self._answer = answer

    async def run(self, work: AgentWork) -> AgentAnswer:
        SEEN[(work.context.given.task_id, self.name)] = f"{work.instructions}\n{work.user_turn()}"
        return work.read(self._answer)


REPORTS = {
    "code-explorer": HandoffReport(
        sender="code-explorer",
        receiver="code-architect",
        task="Explore the authentication",
        status=Status.COMPLETED,
        confidence=85,
        summary="Explored the authentication. Sessions are JWT.",
        findings=ReportFindings(discoveries=["Sessions in `src/auth.ts:1-45`"]),
        context=ReportContext(decisions=[ReportDecision(decision="Extend NextAuth", rationale="it is there")]),
        blockers=["Which providers?"],
        readiness=Readiness.WITH_CAVEATS,
    ),
    "security-auditor": HandoffReport(
        sender="security-auditor",
        receiver="code-reviewer",
        task="Audit the change",
        status=Status.COMPLETED,
        confidence=90,
        summary="Audited the change. It is sound.",
        findings=ReportFindings(discoveries=["A key in `src/auth.ts:7`"]),
        readiness=Readiness.YES,
    ),
    "performance-opt": HandoffReport(
        sender="performance-opt",
        receiver="code-reviewer",
        task="Profile the change",
        status=Status.PARTIAL,
        confidence=60,
        summary="Profiled the change. One test is left.",
        findings=ReportFindings(discoveries=["A slow loop in `src/auth.ts:30`"]),
        readiness=Readiness.WITH_CAVEATS,
    ),
}
"""What each agent reports."""

_stages = {name: defined_stage(AGENTS[name], Scripted(name, render_report(report))) for name, report in REPORTS.items()}
explorer, auditor, profiler = (_stages[name] for name in REPORTS)
REPORT_STAGES = [explorer, auditor, profiler]
"""Every stage of these pipelines."""
