"""The stages of `compliance_review`: research → decide under a contract → explain.

The research reads mailbox and thread; the deciding agent gets only a contract of facts.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue

from activities.citations import Citation, find_unproved
from activities.compliance_review.claims import (
    SCHEMA_NAME,
    SCHEMA_VERSION,
    Claim,
    ComplianceDecision,
    ComplianceError,
    Concern,
    Customer,
    Evidence,
    Fact,
    InForce,
    Judgement,
    Mail,
    Message,
    Named,
    Phrases,
    Recipients,
    RegisterError,
    RuleOutcome,
    find_phrases,
    normalize,
)
from activities.compliance_review.mail import Note, NoteKind, read_mail, read_mailbox, read_notes, remove_addresses
from activities.compliance_review.policy import (
    Answer,
    Case,
    PhrasesRule,
    Policy,
    QuoteRule,
    Registers,
    StatusRule,
    decide,
    read_policy,
)
from activities.models import ask_model
from activities.pages import bullets, check_folder, code, page, table, text, write_folder
from activities.parameters import text_parameter
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentLimits, AgentWork, agent_stage
from baton.contract.records import EventType, HandoffContract, ToolDeniedError
from baton.contract.registry import AgentEntry, AgentRegistry, OutputSchema, OutputSchemas
from baton.wire.records import Record

REPORT, DATA = "COMPLIANCE.md", "decision.json"
_MARK = "<!-- written by baton compliance_review -->"
MARKS = {REPORT: _MARK, DATA: '"written_by":"baton compliance_review"'}
"""The output files, and the mark that identifies this pipeline's own."""
_MAX_LISTED = 8
_VERDICTS = {
    "not_judged": "**Not judged.** Rules compared facts and gave no verdict; a person has to judge.",
    "approved": "**Approved by the model.** Every rule agrees with certain facts.",
    "needs_review": "**A person has to look,** the model says, or a rule lacks a fact or differs from one.",
    "violates_policy": "**It may not be sent as it is,** the model says, or the facts differ from a rule that blocks.",
}


class ToolUse(Record):
    """A tool call of the compliance agent."""

    event: str
    tool: str
    claim: str
    success: bool


class Review(Record):
    """The result of the compliance agent; `decision.json` is this record."""

    written_by: Literal["baton compliance_review"] = "baton compliance_review"
    decision: ComplianceDecision
    contract: dict[str, Any]
    left_out: dict[str, str] = Field(default_factory=dict)
    used: tuple[ToolUse, ...] = ()


def to_markdown(review: Review) -> str:
    """Return the explanation of a decision as Markdown, the verdict first."""
    contract, decision = HandoffContract.from_json_object(review.contract), review.decision
    order = ("differs", "not found", "agrees")
    outcomes = sorted(decision.outcomes, key=lambda outcome: order.index(outcome.result))
    concerns = [f"{text(item.text)} ({_render_codes(item.facts)}; {text(item.by)})" for item in decision.concerns]
    calls = [
        f"{code(call.tool)} {'said' if call.success else 'failed'}: {text(call.claim)} ({code(call.event)})"
        for call in review.used
    ]
    return page(
        _MARK,
        "# Compliance review of an outbound e-mail",
        _VERDICTS[decision.verdict],
        "> This is an aid to its reader, not legal advice. The agent saw no word of the e-mail or of the thread.",
        "## Why",
        table(("Rule", "Result", "Why", "Facts"), map(_outcome_row, outcomes)),
        "## Concerns of the model" if concerns else "",
        bullets(concerns),
        "## What it rests on",
        _render_facts(contract),
        f"Not relied on: {_render_codes(decision.set_aside)}. A rule rests only on what the right tool said with "
        "success, in words that leave no doubt, and on nothing that another fact contradicts."
        if decision.set_aside
        else "",
        "## What the agent was not given",
        _render_left_out(review.left_out),
        "## Tools",
        f"It could use {_render_codes(contract.allowed_tools) or 'no tool'}. It could not use "
        f"{_render_codes(contract.forbidden_tools) or 'no tool'}, whatever anybody said.",
        "It called:" if calls else "It called none.",
        bullets(calls),
        "## The handoff",
        bullets(
            (
                f"Task: {text(contract.task)}",
                f"Receiver: {code(contract.receiving_agent)}, handoff {code(contract.handoff_id)}, "
                f"trace {code(contract.trace_id)}",
                f"E-mail: {code(decision.message) if decision.message else 'not named by any certain fact'}",
                f"Policy: version {text(decision.policy_version) or 'unknown'}, "
                f"{code(decision.policy) if decision.policy else 'none was found'}",
            )
        ),
    )


def _outcome_row(outcome: RuleOutcome) -> tuple[str, str, str, str]:
    result = outcome.result.capitalize()
    if outcome.result == "differs":
        result += " (blocks)" if outcome.severity == "block" else " (a person has to look)"
    rule = f"{code(outcome.rule)} {text(outcome.title)}"
    return rule, result, text(outcome.because), _render_codes(outcome.facts) or "none"


def _render_facts(contract: HandoffContract) -> str:
    rows = [
        (
            code(fact.event_id),
            text(fact.claim),
            code(fact.source.source),
            fact.source.timestamp.isoformat(timespec="seconds"),
            fact.confidence.value,
        )
        for fact in contract.facts
    ]
    return table(("Event", "Fact", "From", "Retrieved", "How sure"), rows) if rows else "No fact crossed."


def _render_left_out(left_out: Mapping[str, str]) -> str:
    by_label: dict[str, list[str]] = {}
    for event, label in left_out.items():
        by_label.setdefault(label, []).append(event)
    rows = [
        (code(label), str(len(events)), _render_codes(events[:_MAX_LISTED]) + (", …" if events[_MAX_LISTED:] else ""))
        for label, events in sorted(by_label.items())
    ]
    return table(("Label", "Events", "Which"), rows) if rows else "Nothing was left out."


def _render_codes(names: Sequence[str]) -> str:
    return ", ".join(map(code, names))


TOOLS = (*("mailbox.read", "mailbox.search", "policy.search", "crm.lookup_customer"), "crm.lookup_pricing")
"""The research tools; all are read-only."""

_MAX_DOMAINS, _MAX_REQUEST_LENGTH = 50, 500
Context = StageContext[Baton]


async def ask(
    context: Context, tool: str, arguments: dict[str, JsonValue], look_up: Callable[[], Iterable[Answer]]
) -> list[tuple[Claim, Fact]]:
    """Call a tool if the contract allows it, and record each answer with its retrieval time."""
    if not context.tools.allows(tool):
        try:
            await context.tools.call(tool, look_up)  # raises, and records the denial
        except ToolDeniedError:
            return []
    call = context.session.tool_call(tool, arguments)
    try:
        answers = await asyncio.to_thread(lambda: tuple(look_up()))
    except RegisterError as error:
        context.session.tool_result(tool, str(error), call_id=call, success=False)
        return []
    facts = []
    for answer in answers:
        sentence = answer.claim.sentence
        event = context.session.tool_result(tool, sentence, call_id=call, retrieved_at=answer.retrieved_at)
        facts.append((answer.claim, Fact(event.id, sentence, tool, "high")))
    return facts


async def research(
    context: Context, mail: Mail, notes: Sequence[Note], policy: Policy, registers: Registers, request: str
) -> None:
    """Record in the stage's session what is known about a proposed e-mail, and the messages before it."""
    read_at = context.parts.clock()
    _record_messages(context, notes, request)
    await ask(context, "policy.search", {}, lambda: [Answer(InForce(digest=policy.digest), read_at)])
    await ask(context, "mailbox.read", {"message": mail.digest}, partial(_read_claims, mail, read_at))
    for rule in policy.rules:
        if isinstance(rule, PhrasesRule):
            await ask(context, "mailbox.search", {"rule": rule.id}, partial(_search_phrases, mail, rule, read_at))
    needs_quotes = mail.amounts and any(isinstance(rule, QuoteRule) for rule in policy.rules)
    for domain in sorted(mail.domains.keys() - policy.known_domains())[:_MAX_DOMAINS]:
        look_up = partial(registers.lookup_customer, domain)
        for claim, _ in await ask(context, "crm.lookup_customer", {"domain": domain}, look_up):
            if needs_quotes and isinstance(claim, Customer) and claim.customer is not None:
                look_up = partial(registers.lookup_pricing, claim.customer)
                await ask(context, "crm.lookup_pricing", {"customer": claim.customer}, look_up)


def _record_messages(context: Context, notes: Sequence[Note], request: str) -> None:
    session = context.session
    record: dict[NoteKind, Callable[[str], object]] = {
        "brainstorm": session.brainstorm,
        "rejected_assumption": session.rejected_assumption,
        "internal_note": session.internal_note,
        "history": partial(session.user_message, exclude=True),
    }
    for note in notes:
        record[note.kind](note.text)
    if said := " ".join(remove_addresses(request).split()):
        session.user_message(said[:_MAX_REQUEST_LENGTH])


def _read_claims(mail: Mail, read_at: datetime) -> list[Answer]:
    claims: list[Claim] = [Message(digest=mail.digest), Recipients(domains=mail.domains, unreadable=mail.unreadable)]
    if mail.text is not None:  # otherwise its amounts are unknown
        claims.append(Named(amounts=mail.amounts))
    return [Answer(claim, read_at) for claim in claims]


def _search_phrases(mail: Mail, rule: PhrasesRule, read_at: datetime) -> list[Answer]:
    if mail.text is None:
        raise RegisterError("a part of the e-mail cannot be decoded with its declared charset, so its text is unknown")
    matches, lines = find_phrases(mail.text, rule.forbidden), [normalize(line) for line in mail.text.split("\n")]
    if unproved := find_unproved(
        Citation(f"line {line}", lines, line, normalize(rule.forbidden[number - 1])) for number, line in matches.items()
    ):
        raise RegisterError(f"the text of the e-mail is uncertain: {unproved[0]}")
    return [Answer(Phrases(rule=rule.id, of=len(rule.forbidden), found=matches), read_at)]


RESEARCHER, REVIEWER, WRITER, VERSION = "ResearchAgent", "ComplianceReviewAgent", "ExplanationWriter", "1.0.0"
SENDER = "SendingAgent"
REVIEWERS_TOOLS = frozenset({"policy.search", "crm.read_customer_status"})
"""The tools of the compliance agent."""
FORBIDDEN = ("email.send", "crm.update_customer")
"""Tools that no contract may grant it."""
DECISION = f"{SCHEMA_NAME}@{SCHEMA_VERSION}"
SCHEMAS = OutputSchemas([OutputSchema.of(ComplianceDecision, SCHEMA_VERSION, SCHEMA_NAME)])
"""The output schemas of the pipeline; its workers need them too (`WorkerParts(schemas=…)`)."""
AGENTS = AgentRegistry(
    AgentEntry(name=name, version=VERSION, capability=frozenset({capability}), tools=frozenset(tools))
    for name, capability, tools in (
        (RESEARCHER, "compliance.research", TOOLS),
        (REVIEWER, "compliance.review", REVIEWERS_TOOLS),
        (WRITER, "compliance.explain", ()),
        (SENDER, "compliance.send", FORBIDDEN),
    )
)
"""The agents of the pipeline, and the one that a team has send what was cleared; other stages get no handoff."""

ARTIFACT = "compliance-decision"
_MAX_CONCERNS = 10


class Doubt(BaseModel):
    """A concern as a model states it."""

    text: str = Field(min_length=1, max_length=300)
    facts: list[str]


class Concerns(BaseModel):
    """A model's answer."""

    verdict: Judgement
    concerns: list[Doubt]


class Reviewer:
    """Compares the rules of the policy with the facts of its contract and its own tools; a model judges.

    Without a model, no verdict is given. A model's verdict may be stricter than the comparison and not more lenient, so
    an injected fact that persuades the model gains nothing.
    """

    name = REVIEWER
    tool_names = REVIEWERS_TOOLS
    task = (
        "The facts of the handoff contract about a proposed e-mail were compared with a policy. Judge whether the "
        "e-mail may be sent. As concerns, name what a person should look at before that and the outcomes do not say, "
        "each with the event ids of the facts it rests on; the list may be empty."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with a `ComplianceDecision`."""
        context = work.context
        contract = context.contract
        if contract is None:
            raise ComplianceError(f"{REVIEWER} decides under a contract; give its Pipeline contracts=ContractTerms()")
        facts = [Fact(fact.event_id, fact.claim, fact.source.source, fact.confidence.value) for fact in contract.facts]
        policy = await _look_up_policy(context)
        facts += await _look_up_statuses(context, policy, facts) if policy else []
        case = Case(policy, Evidence(facts), contract.created_at.astimezone(UTC).date())
        decision = decide(case, contract.handoff_id)
        outcomes: list[JsonValue] = [outcome.model_dump(mode="json") for outcome in decision.outcomes]
        claims: dict[str, JsonValue] = {fact.event: fact.claim for fact in facts}
        asked: JsonValue = {"outcomes": outcomes, "facts": claims}
        answer = await ask_model(work, self.task, asked, Concerns) if policy else None
        if answer is not None:
            concerns = tuple(
                Concern(text=" ".join(concern.text.split()), facts=tuple(concern.facts), by="model")
                for concern in answer.concerns
                if concern.facts and set(concern.facts) <= claims.keys()
            )
            decision = decide(case, contract.handoff_id, answer.verdict, concerns[:_MAX_CONCERNS])
        return await _make_answer(context, contract, decision)


def path_parameter(context: Context, name: str) -> Path:
    """Return a required parameter, a path on the worker's machine."""
    return Path(text_parameter(context, name, "compliance_review", ComplianceError))


async def _look_up_policy(context: Context) -> Policy | None:
    """Return the policy from its tool, or None if the tool is denied or fails."""
    policies: list[Policy] = []

    def search() -> list[Answer]:
        try:
            policies.append(read_policy(path_parameter(context, "policy")))
        except ComplianceError as error:
            raise RegisterError(str(error)) from None
        return [Answer(InForce(digest=policies[0].digest), context.parts.clock())]

    await ask(context, "policy.search", {}, search)
    return policies[0] if policies else None


async def _look_up_statuses(context: Context, policy: Policy, facts: list[Fact]) -> list[Fact]:
    if not any(isinstance(rule, StatusRule) for rule in policy.rules):
        return []
    registers = Registers(path_parameter(context, "records"), context.parts.clock)
    customers = {match.claim.customer for match in Evidence(facts).all(Customer) if match.claim.customer is not None}
    statuses: list[Fact] = []
    for customer in sorted(customers):
        look_up = partial(registers.read_customer_status, customer)
        statuses += [
            fact for _, fact in await ask(context, "crm.read_customer_status", {"customer": customer}, look_up)
        ]
    return statuses


async def _make_answer(context: Context, contract: HandoffContract, decision: ComplianceDecision) -> AgentAnswer:
    results = [event for event in context.session.events if event.type is EventType.TOOL_RESULT]
    calls = [
        ToolUse(event=result.id, tool=result.tool_name or "", claim=result.content, success=result.success is True)
        for result in results
    ]
    review = Review(
        decision=decision, contract=contract.to_json_object(), left_out=dict(context.given.left_out), used=tuple(calls)
    )
    data = await asyncio.to_thread(review.model_dump_json)
    summary = f"The verdict: {decision.verdict.replace('_', ' ')}"
    await context.artifacts.write(ARTIFACT, data, type=ARTIFACT, path=DATA, summary=summary)
    differing, missing = decision.results("differs"), decision.results("not found")
    patch = BatonPatch(
        current_state=[
            f"The verdict is {decision.verdict!r}",
            f"Of {len(decision.outcomes)} rules {len(differing)} differ from the facts, {len(missing)} lack a fact",
            f"They were compared with {len(contract.facts)} facts of the contract",
        ],
        decision_log=[f"Compared with {len(contract.facts)} facts of the contract: {decision.verdict!r}"],
        open_questions=[f"{outcome.rule}: {outcome.because}" for outcome in (*differing, *missing)]
        + ["Not judged: may the e-mail be sent?"] * (decision.verdict == "not_judged"),
    )
    return AgentAnswer(patch=patch, output=decision.model_dump(mode="json"), claimed=False)


_TERMS: dict[str, Any] = {
    "version": VERSION,
    "timeout": timedelta(minutes=10),
    "heartbeat": timedelta(seconds=10),
    "retries": Retries(never=("TypeError", "ComplianceError", "ToolDeniedError")),  # a retry does not fix these
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
    mailbox_path, output_path = path_parameter(context, "mailbox"), path_parameter(context, "output")
    policy = await asyncio.to_thread(read_policy, path_parameter(context, "policy"))
    registers = Registers(path_parameter(context, "records"), context.parts.clock)
    await asyncio.to_thread(check_folder, output_path, MARKS, ComplianceError)  # fail now, not after two stages
    message_id, request = context.params.get("message"), context.params.get("request")
    if message_id is not None and not isinstance(message_id, str):
        raise ComplianceError("the parameter 'message' must be the Message-ID of the proposed e-mail, a text")
    mailbox = await asyncio.to_thread(read_mailbox, mailbox_path, message_id)
    mail = await asyncio.to_thread(read_mail, mailbox.proposed, mailbox.data)
    notes = await asyncio.to_thread(read_notes, mailbox.earlier, policy.own_domains())
    await research(context, mail, notes, policy, registers, request if isinstance(request, str) else "")
    results = [event for event in context.session.events if event.type is EventType.TOOL_RESULT]
    failed = sum(event.success is not True for event in results)
    patch = BatonPatch(
        current_state=[
            f"Researched the e-mail: {len(results) - failed} answers of tools, {failed} failed",
            f"Read, and left behind: {len(notes)} notes and messages before it",
            "Nothing is decided yet",
        ],
        decision_log=[f"Researched by version {policy.version!r} of the policy"],
    )
    output: dict[str, JsonValue] = {"message": mail.digest, "answers": len(results), "failed": failed}
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
    out = path_parameter(context, "output")
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
