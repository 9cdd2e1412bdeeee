"""The agents of `compliance_review`: who they are, and the one that decides, behind Baton's port for agents."""

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
    InForce,
    Known,
    Message,
    Named,
    Phrases,
    Recipients,
    phrases_in,
)
from activities.compliance_review.mail import Note, without_addresses
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
    Mail,
    RegisterError,
)
from activities.compliance_review.report import DATA, Review, ToolUse
from activities.compliance_review.rules import Case, decide, undecided
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
"""The tools of the research; none of them changes anything."""

_MOST_DOMAINS, _LONGEST_REQUEST = 50, 500
Context = StageContext[Any]


@dataclass(frozen=True)
class Material:
    """What is researched: the proposed e-mail, the notes before it, policy and registers, and the person's request."""

    mail: Mail
    notes: tuple[Note, ...]
    policy: Policy
    registers: Registers
    read_at: datetime
    request: str = ""


async def ask(
    context: Context, tool: str, arguments: dict[str, JsonValue], look_up: Callable[[], Iterable[Answer]]
) -> list[tuple[Claim, Known]]:
    """Call a tool as far as the contract allows it, and record each answer with the time at which it was retrieved."""
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
    found = []
    for one in answers:
        said = one.claim.sentence
        event = context.session.tool_result(tool, said, call_id=call, retrieved_at=one.retrieved_at)
        found.append((one.claim, Known(event.id, said, tool, "high")))
    return found


async def research(context: Context, material: Material) -> None:
    """Record in the stage's session what there is to know of a proposed e-mail."""
    _hear(context, material)
    policy, mail, registers, at = material.policy, material.mail, material.registers, material.read_at
    await ask(context, "policy.search", {}, lambda: [Answer(InForce(digest=policy.digest), at)])
    await ask(context, "mailbox.read", {"message": mail.digest}, partial(_read, mail, at))
    for rule in policy.rules:
        if isinstance(rule, PhrasesRule):
            await ask(context, "mailbox.search", {"rule": rule.id}, partial(_search, mail, rule, at))
    for domain in sorted(mail.domains.keys() - policy.known_domains())[:_MOST_DOMAINS]:
        look_up = partial(registers.lookup_customer, domain)
        for claim, _ in await ask(context, "crm.lookup_customer", {"domain": domain}, look_up):
            if isinstance(claim, Customer) and claim.customer is not None:
                await _look_into(context, claim.customer, material)


async def _look_into(context: Context, customer: str, material: Material) -> None:
    """Ask about a customer what the policy's rules need."""
    registers, rules, amounts = material.registers, material.policy.rules, material.mail.amounts
    if amounts and any(isinstance(rule, QuoteRule) for rule in rules):
        await ask(context, "crm.lookup_pricing", {"customer": customer}, partial(registers.lookup_pricing, customer))


def _hear(context: Context, material: Material) -> None:
    """Record what was said: before the e-mail, and by the person who proposes it."""
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
    if request := " ".join(without_addresses(material.request).split()):
        session.user_message(request[:_LONGEST_REQUEST])


def _read(mail: Mail, at: datetime) -> list[Answer]:
    claims: list[Claim] = [
        Message(digest=mail.digest),
        Recipients(domains=mail.domains, unreadable=mail.unreadable),
    ]
    if mail.text is not None:  # else the amounts in it are unknown
        claims.append(Named(amounts=mail.amounts))
    return [Answer(claim, at) for claim in claims]


def _search(mail: Mail, rule: PhrasesRule, at: datetime) -> list[Answer]:
    if mail.text is None:
        raise RegisterError("a part of the e-mail is not in the charset that it names, so its words are not known")
    found = phrases_in(mail.text, rule.forbidden)
    return [Answer(Phrases(rule=rule.id, of=len(rule.forbidden), found=found), at)]


RESEARCHER, REVIEWER, WRITER, VERSION = "ResearchAgent", "ComplianceReviewAgent", "ExplanationWriter", "1.0.0"
REVIEWERS_TOOLS = frozenset({"policy.search", "crm.read_customer_status"})
"""The tools that the compliance agent is able to use."""
FORBIDDEN = ("email.send", "crm.update_customer")
"""Tools that it may not call, whatever anybody says."""
DECISION = f"{SCHEMA_NAME}@{SCHEMA_VERSION}"
SCHEMAS = OutputSchemas([OutputSchema.of(ComplianceDecision, SCHEMA_VERSION, SCHEMA_NAME)])
"""The output schemas of the pipeline; its workers need them too (`WorkerParts(schemas=…)`)."""
AGENTS = AgentRegistry(
    AgentEntry(name=name, version=VERSION, capability=frozenset({capability}), tools=frozenset(tools))
    for name, capability, tools in (
        (RESEARCHER, "compliance.research", TOOLS),
        (REVIEWER, "compliance.review", REVIEWERS_TOOLS),
        (WRITER, "compliance.explain", ()),
    )
)
"""The agents of the pipeline; a stage that is not among them is sent nothing."""

ARTIFACT = "compliance-decision"
_MOST_CONCERNS = 10
_USAGE = "--goal … --param mailbox=FILE --param policy=FILE --param records=DIR --param output=DIR"


class Doubt(BaseModel):
    """A concern as a model states it."""

    text: str = Field(min_length=1, max_length=300)
    facts: list[str]


class Concerns(BaseModel):
    """What a model answers."""

    concerns: list[Doubt]


class Reviewer:
    """Decides by the rules of the policy, over the facts of its contract and what its own tools say.

    A model may add concerns, each with the facts that it rests on, and so hold an e-mail back for a person. It can
    clear nothing, so a fact that talks a model into consent gains nothing.
    """

    name = REVIEWER
    tool_names = REVIEWERS_TOOLS
    task = (
        "A proposed e-mail was checked against a policy, by the facts of the handoff contract. Name what a person "
        "should look at before it is sent and the outcomes do not say, each with the event ids of the facts it rests "
        "on. If there is nothing, answer with an empty list."
    )

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with a `ComplianceDecision`."""
        context = work.context
        contract = context.contract
        if contract is None:
            raise ComplianceError(f"{REVIEWER} decides under a contract; give its Pipeline contracts=ContractTerms()")
        facts = [Known(one.event_id, one.claim, one.source.source, one.confidence.value) for one in contract.facts]
        policy = await _policy(context)
        if policy is None:
            aside = tuple(fact.event for fact in facts)
            decision = undecided(contract.handoff_id, "the policy cannot be read", aside)
        else:
            facts += await _statuses(context, policy, facts)
            decision = await self._decide(work, contract, policy, facts)
        return await _answer(context, contract, decision)

    async def _decide(
        self, work: AgentWork, contract: HandoffContract, policy: Policy, facts: list[Known]
    ) -> ComplianceDecision:
        """Return the rules' decision, with a model's concerns where one is configured."""
        case = Case(policy, Evidence(facts), contract.created_at.astimezone(UTC).date())
        decision = decide(case, contract.handoff_id)
        outcomes: list[JsonValue] = [one.model_dump(mode="json") for one in decision.outcomes]
        known: dict[str, JsonValue] = {fact.event: fact.claim for fact in facts}
        said = await ask_model(work, self.task, {"outcomes": outcomes, "facts": known}, Concerns)
        concerns = tuple(
            Concern(text=" ".join(one.text.split()), facts=tuple(one.facts), by="model")
            for one in (said.concerns if said else [])
            if one.facts and set(one.facts) <= known.keys()
        )
        return decide(case, contract.handoff_id, concerns[:_MOST_CONCERNS]) if concerns else decision


def text_parameter(context: StageContext[Any], name: str) -> str:
    """Return a parameter that is a text."""
    value = context.params.get(name)
    if not isinstance(value, str) or not value:
        start = f"Start it with: baton run compliance_review {_USAGE}"
        raise ComplianceError(f"compliance_review needs the parameter {name!r}; found {value!r}. {start}")
    return value


async def _policy(context: StageContext[Any]) -> Policy | None:
    """Return the policy, by the tool that finds it; None if that may not be called, or fails."""
    read: list[Policy] = []

    def search() -> list[Answer]:
        try:
            read.append(read_policy(Path(text_parameter(context, "policy"))))
        except ComplianceError as error:
            raise RegisterError(str(error)) from None
        return [Answer(InForce(digest=read[0].digest), context.parts.clock())]

    await ask(context, "policy.search", {}, search)
    return read[0] if read else None


async def _statuses(context: StageContext[Any], policy: Policy, facts: list[Known]) -> list[Known]:
    """Return the statuses of the customers that the contract names, asked now, if a rule needs them."""
    if not any(isinstance(rule, StatusRule) for rule in policy.rules):
        return []
    registers = Registers(Path(text_parameter(context, "records")), context.parts.clock)
    named = {one.claim.customer for one in Evidence(facts).all(Customer) if one.claim.customer is not None}
    known: list[Known] = []
    for customer in sorted(named):
        look_up = partial(registers.read_customer_status, customer)
        known += [fact for _, fact in await ask(context, "crm.read_customer_status", {"customer": customer}, look_up)]
    return known


async def _answer(context: StageContext[Any], contract: HandoffContract, decision: ComplianceDecision) -> AgentAnswer:
    """Return the decision, and leave all that explains it as an artifact."""
    results = [one for one in context.session.events if one.type is EventType.TOOL_RESULT]
    used = [
        ToolUse(event=one.id, tool=one.tool_name or "", claim=one.content, success=one.success is True)
        for one in results
    ]
    review = Review(
        decision=decision, contract=contract.to_json_object(), left_out=dict(context.given.left_out), used=tuple(used)
    )
    data = await asyncio.to_thread(review.model_dump_json)
    summary = f"The decision: {decision.verdict.replace('_', ' ')}"
    await context.artifacts.write(ARTIFACT, data, type=ARTIFACT, path=DATA, summary=summary)
    violated, unknown = decision.results("violated"), decision.results("unknown")
    patch = BatonPatch(
        current_state=[
            f"The decision is {decision.verdict!r}",
            f"Of {len(decision.outcomes)} rules {len(violated)} are violated, {len(unknown)} not certain",
            f"It was made over {len(contract.facts)} facts of the contract",
        ],
        decision_log=[f"Decided {decision.verdict!r} over {len(contract.facts)} facts of the contract"],
        open_questions=[f"{one.rule}: {one.because}" for one in (*violated, *unknown)],
    )
    return AgentAnswer(patch=patch, output=decision.model_dump(mode="json"), claimed=False)
