"""The agents of `compliance_review`: their registry, the research, and the agent that decides."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from activities.compliance_review.claims import (
    Claim,
    Customer,
    Evidence,
    Fact,
    InForce,
    Message,
    Named,
    Phrases,
    Recipients,
    find_phrases,
)
from activities.compliance_review.mail import Note, remove_addresses
from activities.compliance_review.policy import (
    Answer,
    PhrasesRule,
    Policy,
    QuoteRule,
    Registers,
    StatusRule,
    read_policy,
)
from activities.compliance_review.records import (
    SCHEMA_NAME,
    SCHEMA_VERSION,
    ComplianceDecision,
    ComplianceError,
    Concern,
    Judgement,
    Mail,
    RegisterError,
)
from activities.compliance_review.report import DATA, Review, ToolUse
from activities.compliance_review.rules import Case, decide, decide_without_policy
from activities.models import ask_model
from baton import BatonPatch, StageContext
from baton.agents.answers import AgentAnswer
from baton.agents.port import AgentWork
from baton.contract.records import EventType, HandoffContract, ToolDeniedError
from baton.contract.registry import AgentEntry, AgentRegistry, OutputSchema, OutputSchemas

TOOLS = (
    *("mailbox.read", "mailbox.search", "policy.search", "crm.lookup_customer"),
    "crm.lookup_pricing",
)
"""The research tools; all are read-only."""

_MAX_DOMAINS, _MAX_REQUEST_LENGTH = 50, 500
Context = StageContext[Any]


@dataclass(frozen=True)
class Material:
    """The input of the research: the proposed e-mail, earlier notes, policy, registers and the person's request."""

    mail: Mail
    notes: tuple[Note, ...]
    policy: Policy
    registers: Registers
    read_at: datetime
    request: str = ""


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


async def research(context: Context, material: Material) -> None:
    """Record the facts about a proposed e-mail in the stage's session."""
    _record_messages(context, material)
    policy, mail, registers, read_at = material.policy, material.mail, material.registers, material.read_at
    await ask(context, "policy.search", {}, lambda: [Answer(InForce(digest=policy.digest), read_at)])
    await ask(context, "mailbox.read", {"message": mail.digest}, partial(_read_claims, mail, read_at))
    for rule in policy.rules:
        if isinstance(rule, PhrasesRule):
            await ask(context, "mailbox.search", {"rule": rule.id}, partial(_search_phrases, mail, rule, read_at))
    for domain in sorted(mail.domains.keys() - policy.known_domains())[:_MAX_DOMAINS]:
        look_up = partial(registers.lookup_customer, domain)
        for claim, _ in await ask(context, "crm.lookup_customer", {"domain": domain}, look_up):
            if isinstance(claim, Customer) and claim.customer is not None:
                await _research_customer(context, claim.customer, material)


async def _research_customer(context: Context, customer: str, material: Material) -> None:
    """Look up what the policy's rules need to know about a customer."""
    registers, rules, amounts = material.registers, material.policy.rules, material.mail.amounts
    if amounts and any(isinstance(rule, QuoteRule) for rule in rules):
        await ask(context, "crm.lookup_pricing", {"customer": customer}, partial(registers.lookup_pricing, customer))


def _record_messages(context: Context, material: Material) -> None:
    """Record the earlier messages and the request of the person who proposes the e-mail."""
    session = context.session
    for note in material.notes:
        match note.kind:
            case "brainstorm":
                session.brainstorm(note.text)
            case "rejected_assumption":
                session.rejected_assumption(note.text)
            case "internal_note":
                session.internal_note(note.text)
            case "history":
                session.user_message(note.text, exclude=True)
    if request := " ".join(remove_addresses(material.request).split()):
        session.user_message(request[:_MAX_REQUEST_LENGTH])


def _read_claims(mail: Mail, read_at: datetime) -> list[Answer]:
    claims: list[Claim] = [
        Message(digest=mail.digest),
        Recipients(domains=mail.domains, unreadable=mail.unreadable),
    ]
    if mail.text is not None:  # otherwise its amounts are unknown
        claims.append(Named(amounts=mail.amounts))
    return [Answer(claim, read_at) for claim in claims]


def _search_phrases(mail: Mail, rule: PhrasesRule, read_at: datetime) -> list[Answer]:
    if mail.text is None:
        raise RegisterError("a part of the e-mail cannot be decoded with its declared charset, so its text is unknown")
    matches = find_phrases(mail.text, rule.forbidden)
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
_USAGE = "--goal … --param mailbox=FILE --param policy=FILE --param records=DIR --param output=DIR"


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
        if policy is None:
            set_aside = tuple(fact.event for fact in facts)
            decision = decide_without_policy(contract.handoff_id, "the policy cannot be read", set_aside)
        else:
            facts += await _look_up_statuses(context, policy, facts)
            decision = await self._decide(work, contract, policy, facts)
        return await _make_answer(context, contract, decision)

    async def _decide(
        self, work: AgentWork, contract: HandoffContract, policy: Policy, facts: list[Fact]
    ) -> ComplianceDecision:
        """Return the comparison, with the verdict and the concerns of a configured model."""
        case = Case(policy, Evidence(facts), contract.created_at.astimezone(UTC).date())
        decision = decide(case, contract.handoff_id)
        outcomes: list[JsonValue] = [outcome.model_dump(mode="json") for outcome in decision.outcomes]
        claims: dict[str, JsonValue] = {fact.event: fact.claim for fact in facts}
        answer = await ask_model(work, self.task, {"outcomes": outcomes, "facts": claims}, Concerns)
        if answer is None:
            return decision
        concerns = tuple(
            Concern(text=" ".join(concern.text.split()), facts=tuple(concern.facts), by="model")
            for concern in answer.concerns
            if concern.facts and set(concern.facts) <= claims.keys()
        )
        return decide(case, contract.handoff_id, answer.verdict, concerns[:_MAX_CONCERNS])


def text_parameter(context: StageContext[Any], name: str) -> str:
    """Return a required text parameter."""
    value = context.params.get(name)
    if not isinstance(value, str) or not value:
        usage = f"Start it with: baton run compliance_review {_USAGE}"
        raise ComplianceError(f"compliance_review needs the parameter {name!r}; found {value!r}. {usage}")
    return value


async def _look_up_policy(context: StageContext[Any]) -> Policy | None:
    """Return the policy from its tool, or None if the tool is denied or fails."""
    policies: list[Policy] = []

    def search() -> list[Answer]:
        try:
            policies.append(read_policy(Path(text_parameter(context, "policy"))))
        except ComplianceError as error:
            raise RegisterError(str(error)) from None
        return [Answer(InForce(digest=policies[0].digest), context.parts.clock())]

    await ask(context, "policy.search", {}, search)
    return policies[0] if policies else None


async def _look_up_statuses(context: StageContext[Any], policy: Policy, facts: list[Fact]) -> list[Fact]:
    """Return the current statuses of the contract's customers, if a rule needs them."""
    if not any(isinstance(rule, StatusRule) for rule in policy.rules):
        return []
    registers = Registers(Path(text_parameter(context, "records")), context.parts.clock)
    customers = {match.claim.customer for match in Evidence(facts).all(Customer) if match.claim.customer is not None}
    statuses: list[Fact] = []
    for customer in sorted(customers):
        look_up = partial(registers.read_customer_status, customer)
        statuses += [
            fact for _, fact in await ask(context, "crm.read_customer_status", {"customer": customer}, look_up)
        ]
    return statuses


async def _make_answer(
    context: StageContext[Any], contract: HandoffContract, decision: ComplianceDecision
) -> AgentAnswer:
    """Return the decision, and write the review that explains it as an artifact."""
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
