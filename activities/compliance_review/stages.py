"""The stages of `compliance_review`: research → decide under a contract → explain.

The research reads mailbox and thread. The deciding agent gets only a contract of facts. The explanation lists what the
agent saw, from where, and what was withheld.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.compliance_review.agents import (
    ARTIFACT,
    DECISION,
    FORBIDDEN,
    RESEARCHER,
    TOOLS,
    VERSION,
    WRITER,
    Material,
    Reviewer,
    research,
    text_parameter,
)
from activities.compliance_review.mail import read_mail, read_mailbox, read_notes
from activities.compliance_review.policy import Registers, read_policy
from activities.compliance_review.records import ComplianceError
from activities.compliance_review.report import DATA, MARKS, REPORT, Review, to_markdown
from activities.pages import check_folder, write_folder
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents.port import AgentLimits, agent_stage
from baton.contract.records import EventType

Context = StageContext[Baton]

_TERMS: dict[str, Any] = {
    "version": VERSION,
    "timeout": timedelta(minutes=10),
    "heartbeat": timedelta(seconds=10),
    "retries": Retries(never=("TypeError", "ComplianceError", "ToolDeniedError")),  # a retry does not mend these
}


@stage(
    name=RESEARCHER,
    reads=[],
    writes=["current_state", "decision_log"],
    **_TERMS,
    tools=TOOLS,
    task="Gather what the policy's rules need to know of the proposed outbound email, with sources and times.",
)
async def gather_facts(context: Context) -> StageResult:
    """Read the mailbox and the registers, and record the facts in the session; later stages get them from there."""
    mailbox_path, output_path = Path(text_parameter(context, "mailbox")), Path(text_parameter(context, "output"))
    policy = await asyncio.to_thread(read_policy, Path(text_parameter(context, "policy")))
    registers = Registers(Path(text_parameter(context, "records")), context.parts.clock)
    await asyncio.to_thread(check_folder, output_path, MARKS, ComplianceError)  # fail now, not after two stages
    message_id, request = context.params.get("message"), context.params.get("request")
    if message_id is not None and not isinstance(message_id, str):
        raise ComplianceError("the parameter 'message' must be the Message-ID of the proposed e-mail, a text")
    mailbox = await asyncio.to_thread(read_mailbox, mailbox_path, message_id)
    material = Material(
        mail=await asyncio.to_thread(read_mail, mailbox.proposed, mailbox.data),
        notes=tuple(await asyncio.to_thread(read_notes, mailbox.earlier, policy.own_domains())),
        policy=policy,
        registers=registers,
        read_at=context.parts.clock(),
        request=request if isinstance(request, str) else "",
    )
    await research(context, material)
    results = [event for event in context.session.events if event.type is EventType.TOOL_RESULT]
    failed = sum(event.success is not True for event in results)
    patch = BatonPatch(
        current_state=[
            f"Researched the e-mail: {len(results) - failed} answers of tools, {failed} failed",
            f"Read, and left behind: {len(material.notes)} notes and messages before it",
            "Nothing is decided yet",
        ],
        decision_log=[f"Researched by version {policy.version!r} of the policy"],
    )
    output: dict[str, JsonValue] = {"message": material.mail.digest, "answers": len(results), "failed": failed}
    return StageResult(baton_patch=patch, output=output)


review_email = agent_stage(
    Reviewer(),
    reads=["current_state"],
    writes=["current_state", "decision_log", "open_questions", "artifacts"],
    **_TERMS,
    forbids=FORBIDDEN,
    output=DECISION,
    task="Evaluate whether the proposed outbound email violates internal policy.",
    limits=AgentLimits(requests=4),
)
"""Compare the policy with the facts of the contract and the agent's own tools, and have a model judge."""


@stage(
    name=WRITER,
    reads=["current_state"],
    writes=["current_state", "decision_log", "artifacts", "work_scope"],
    **_TERMS,
    task="Explain the compliance decision to the person who wants to send the email.",
)
async def explain_decision(context: Context) -> StageResult:
    """Explain the decision: the facts, their sources and confidence, what was withheld, and the tools."""
    out = Path(text_parameter(context, "output"))
    data = await context.artifacts.read(ARTIFACT)
    review = Review.model_validate_json(data)
    report = to_markdown(review)
    await asyncio.to_thread(check_folder, out, MARKS, ComplianceError)
    await asyncio.to_thread(write_folder, out, {REPORT: report, DATA: data.decode()}, ComplianceError)
    await context.artifacts.write("explanation", report, type="report", path=REPORT, summary="The decision, explained")
    decision = review.decision
    patch = BatonPatch(
        current_state=[*context.baton.current_state, f"The decision is explained in {REPORT}"],
        decision_log=[f"Explained with {len(decision.outcomes)} rules and what each rests on"],
        work_scope=[REPORT, DATA],
    )
    output: dict[str, JsonValue] = {
        "verdict": decision.verdict,
        "differs": [outcome.rule for outcome in decision.results("differs")],
        "not_found": [outcome.rule for outcome in decision.results("not found")],
        "report": str(out / REPORT),
        "data": str(out / DATA),
    }
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [gather_facts, review_email, explain_decision]
"""The stages that a worker runs."""
