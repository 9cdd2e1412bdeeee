"""The three stages of `compliance_review`: research → decide under a contract → explain (S5).

The compliance agent is given no file of the mailbox and no word of it: what it knows are the facts of its contract
and what its own two tools say. Addresses are in nothing that is handed on.
"""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.compliance_review.chat import Consultation, HttpChatModel, ModelSettings
from activities.compliance_review.claims import Customer
from activities.compliance_review.deciding import decide, undecided
from activities.compliance_review.evidence import Evidence, Known
from activities.compliance_review.explanation import Review, ToolUse, to_markdown
from activities.compliance_review.mailbox import read_mail, read_mailbox
from activities.compliance_review.policy import Policy, StatusRule, read_policy
from activities.compliance_review.records import ComplianceDecision, ComplianceError, RegisterError
from activities.compliance_review.refining import concerns_of
from activities.compliance_review.registers import Answer, Registers
from activities.compliance_review.registry import (
    DECISION,
    FORBIDDEN,
    RESEARCHER,
    REVIEWER,
    REVIEWERS_TOOLS,
    VERSION,
    WRITER,
)
from activities.compliance_review.research import TOOLS, Material, ask, in_force, research
from activities.compliance_review.rules import Case
from activities.compliance_review.thread import notes_of
from activities.project_init.store import write_bytes
from activities.workbench.parameters import required_text
from activities.workbench.words import counted
from baton import Baton, BatonPatch, Retries, Spend, StageContext, StageResult, stage
from baton.contract.records import HandoffContract
from baton.contract.session import EventType

Context = StageContext[Baton]

REPORT = "COMPLIANCE.md"
DATA = "decision.json"
_USAGE = "compliance_review --goal … --param mailbox=FILE --param policy=FILE --param records=DIR --param output=DIR"
_HEARTBEAT = timedelta(seconds=10)
_LONGEST = timedelta(minutes=10)
# A wrong file, parameter, key or registry does not become right by waiting, nor does a denied tool.
_RETRIES = Retries(never=("TypeError", "ComplianceError", "ReviewError", "ModelRefusedError", "ToolDeniedError"))
_ARTIFACT = "compliance-decision"


@stage(
    name=RESEARCHER,
    version=VERSION,
    reads=[],
    writes=["current_state", "decision_log"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=TOOLS,
    task="Gather what the policy's rules need to know of the proposed outbound email, with sources and times.",
)
async def gather_facts(context: Context) -> StageResult:
    """Read the mailbox and ask the registers; what is found goes into the session, and only from there to others."""
    mailbox = Path(_text(context, "mailbox"))
    policy = await asyncio.to_thread(read_policy, Path(_text(context, "policy")))
    registers = Registers(Path(_text(context, "records")), context.parts.clock)
    _text(context, "output")  # said now, not after two stages
    message = context.params.get("message")
    if message is not None and not isinstance(message, str):
        raise ComplianceError("the parameter 'message' must be the Message-ID of the proposed e-mail, a text")
    request = context.params.get("request")
    read = await asyncio.to_thread(read_mailbox, mailbox, message)
    material = Material(
        mail=await asyncio.to_thread(read_mail, read.proposed, read.data),
        notes=tuple(await asyncio.to_thread(notes_of, read.earlier, policy.own_domains())),
        policy=policy,
        registers=registers,
        read_at=context.parts.clock(),
        request=request if isinstance(request, str) else "",
    )
    await research(context, material)
    results = [event for event in context.session.events if event.type is EventType.TOOL_RESULT]
    failed = sum(1 for event in results if event.success is not True)
    patch = BatonPatch(
        current_state=[
            f"Researched the e-mail: {counted(len(results) - failed, 'answer')} of tools, {failed} without success",
            f"Read, and left behind: {counted(len(material.notes), 'note or message', 'notes and messages')} before it",
            "Nothing is decided yet",
        ],
        decision_log=[f"Researched by the policy of version {policy.version!r}"],
    )
    output: dict[str, JsonValue] = {"message": material.mail.digest, "answers": len(results), "failed": failed}
    return StageResult(baton_patch=patch, output=output)


@stage(
    name=REVIEWER,
    version=VERSION,
    reads=["current_state"],
    writes=["current_state", "decision_log", "open_questions", "artifacts"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=REVIEWERS_TOOLS,
    forbids=FORBIDDEN,
    output=DECISION,
    task="Evaluate whether the proposed outbound email violates internal policy.",
)
async def review_email(context: Context) -> StageResult:
    """Decide by the rules of the policy, over the facts of the contract and what its own tools say."""
    contract = context.contract
    if contract is None:
        raise ComplianceError(
            f"{REVIEWER} decides under a contract, and was given none; give its Pipeline contracts=ContractTerms()"
        )
    facts = _facts_of(contract)
    policy = await _policy(context)
    if policy is None:
        aside = tuple(fact.event for fact in facts)
        decision, spend = undecided(contract.handoff_id, "the policy cannot be read", aside), Spend()
    else:
        facts += await _statuses(context, policy, facts)
        decision, spend = await _decision(context, contract, policy, facts)
    review = Review(
        decision=decision,
        contract=contract.to_json_object(),
        left_out=dict(context.given.left_out),
        used=tuple(
            ToolUse(event=one.id, tool=one.tool_name or "", claim=one.content, success=one.success is True)
            for one in context.session.events
            if one.type is EventType.TOOL_RESULT
        ),
    )
    summary = f"The decision: {decision.verdict.replace('_', ' ')}"
    await context.artifacts.write(_ARTIFACT, review.model_dump_json(), type=_ARTIFACT, path=DATA, summary=summary)
    violated, unknown = decision.results("violated"), decision.results("unknown")
    patch = BatonPatch(
        current_state=[
            f"The decision is {decision.verdict!r}",
            f"Of {counted(len(decision.outcomes), 'rule')}: {len(violated)} violated, {len(unknown)} not certain",
            f"It was made over {counted(len(contract.facts), 'fact')} of the contract",
        ],
        decision_log=[f"Decided {decision.verdict!r} over {counted(len(contract.facts), 'fact')} of the contract"],
        open_questions=[f"{one.rule}: {one.because}" for one in (*violated, *unknown)],
    )
    return StageResult(baton_patch=patch, output=decision.model_dump(mode="json"), spend=spend)


@stage(
    name=WRITER,
    version=VERSION,
    reads=["current_state"],
    writes=["current_state", "decision_log", "artifacts", "work_scope"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    task="Explain the compliance decision to the person who wants to send the email.",
)
async def explain_decision(context: Context) -> StageResult:
    """Write what was decided and why: what the agent saw, from where, how sure, what was left out, which tools."""
    out = Path(_text(context, "output"))
    data = await context.artifacts.read(_ARTIFACT)
    review = Review.model_validate_json(data)
    shown = to_markdown(review)
    try:
        await asyncio.to_thread(_write, out, shown, data)
    except OSError as error:
        raise ComplianceError(f"the output folder {str(out)!r} cannot be written ({error.strerror})") from None
    await context.artifacts.write("explanation", shown, type="report", path=REPORT, summary="The decision, explained")
    verdict = review.decision.verdict
    patch = BatonPatch(
        current_state=[*context.baton.current_state, f"The decision is explained in {REPORT}"],
        decision_log=[f"Explained with {counted(len(review.decision.outcomes), 'rule')} and what each rests on"],
        work_scope=[REPORT, DATA],
    )
    output: dict[str, JsonValue] = {
        "verdict": verdict,
        "violated": [one.rule for one in review.decision.results("violated")],
        "unknown": [one.rule for one in review.decision.results("unknown")],
        "report": str(out / REPORT),
        "data": str(out / DATA),
    }
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [gather_facts, review_email, explain_decision]
"""What a worker runs."""


async def _decision(
    context: Context, contract: HandoffContract, policy: Policy, facts: list[Known]
) -> tuple[ComplianceDecision, Spend]:
    """Return the rules' decision, with a model's concerns where this worker's environment names one."""
    case = Case(policy, Evidence(facts), contract.created_at.astimezone(UTC).date())
    decision = decide(case, contract.handoff_id)
    settings = ModelSettings.of(os.environ)
    if settings is None:
        return decision, Spend()
    talk = Consultation(HttpChatModel(settings), context.prompt)
    concerns = await concerns_of(talk, decision, {fact.event: fact.claim for fact in facts})
    return decide(case, contract.handoff_id, concerns), talk.spend


async def _policy(context: Context) -> Policy | None:
    """Return the policy, by the tool that finds it; None if that may not be called, or fails."""
    read: list[Policy] = []

    def search() -> list[Answer]:
        try:
            read.append(read_policy(Path(_text(context, "policy"))))
        except ComplianceError as error:
            raise RegisterError(str(error)) from None
        return in_force(read[0], context.parts.clock())

    await ask(context, "policy.search", {}, search)
    return read[0] if read else None


async def _statuses(context: Context, policy: Policy, facts: list[Known]) -> list[Known]:
    """Return the statuses of the customers that the contract names, asked now, if a rule wants to know them."""
    if not any(isinstance(rule, StatusRule) for rule in policy.rules):
        return []
    registers = Registers(Path(_text(context, "records")), context.parts.clock)
    named = {one.claim.customer for one in Evidence(facts).all(Customer) if one.claim.customer is not None}
    known: list[Known] = []
    for customer in sorted(named):
        look_up = partial(registers.read_customer_status, customer)
        found = await ask(context, "crm.read_customer_status", {"customer": customer}, look_up)
        known += [Known(one.id, one.content, one.tool_name or "", "high") for one in found.events]
    return known


def _facts_of(contract: HandoffContract) -> list[Known]:
    return [Known(one.event_id, one.claim, one.source.source, one.confidence.value) for one in contract.facts]


def _write(out: Path, shown: str, data: bytes) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out, REPORT, shown.encode())
    write_bytes(out, DATA, data)


def _text(context: Context, name: str) -> str:
    """Return a parameter that is a text."""
    return required_text(context.params, name, _USAGE, ComplianceError)
