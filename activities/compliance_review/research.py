"""The first agent: gather what is to be known of a proposed e-mail, each fact with its source and time.

Everything it reads goes into its session as an event. Facts are what tools said, in the sentences of `claims`; the
thread before the e-mail, the ideas in it and the person's own words are recorded too, for the record of what the next
agent was not given. A tool that fails is recorded as failed, and the research goes on without it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import JsonValue

from activities.compliance_review.claims import Attached, Customer, InForce, Message, Named, Phrases, Recipients
from activities.compliance_review.mailbox import without_addresses
from activities.compliance_review.phrases import phrases_in
from activities.compliance_review.policy import AgreementRule, ApprovalRule, PhrasesRule, Policy, QuoteRule
from activities.compliance_review.records import Mail, RegisterError
from activities.compliance_review.registers import Answer, Registers
from activities.compliance_review.thread import Note
from baton import StageContext
from baton.contract.activity_session import SessionLog
from baton.contract.session import SessionEvent
from baton.contract.tools import ToolDeniedError

TOOLS = (
    "mailbox.read",
    "mailbox.search",
    "policy.search",
    "crm.lookup_customer",
    "contracts.search",
    "crm.lookup_pricing",
    "approvals.search",
)
"""The tools of the research; none of them changes anything."""

MOST_DOMAINS = 50
LONGEST_REQUEST = 500


@dataclass(frozen=True)
class Found:
    """What a tool said.

    Attributes:
        answers: Its answers; none if it failed or may not be called.
        events: Their events in the session, in the same order.
    """

    answers: tuple[Answer, ...] = ()
    events: tuple[SessionEvent, ...] = ()


@dataclass(frozen=True)
class Material:
    """What is to be researched.

    Attributes:
        mail: The proposed e-mail.
        notes: What was said before it.
        policy: The policy to go by.
        registers: The registers to ask.
        read_at: When mailbox and policy were read.
        request: What the person who proposes it says; empty if nothing.
    """

    mail: Mail
    notes: tuple[Note, ...]
    policy: Policy
    registers: Registers
    read_at: datetime
    request: str = ""


def in_force(policy: Policy, at: datetime) -> list[Answer]:
    """Return which policy is in force (`policy.search`).

    Args:
        policy: The policy.
        at: When it was read.
    """
    return [Answer(InForce(digest=policy.digest), at)]


async def ask(
    context: StageContext[Any], tool: str, arguments: dict[str, JsonValue], look_up: Callable[[], Iterable[Answer]]
) -> Found:
    """Call a tool as far as the contract allows it, and record each of its answers as of when it was retrieved.

    Args:
        context: The stage's.
        tool: The tool's name.
        arguments: What it is asked, for the record.
        look_up: What does its work; it runs in a thread.
    """
    if not context.tools.allows(tool):
        try:
            await context.tools.call(tool, look_up)  # raises, and puts the denial on record
        except ToolDeniedError:
            return Found()
    call = context.session.tool_call(tool, arguments)
    try:
        answers = tuple(await asyncio.to_thread(lambda: tuple(look_up())))
    except RegisterError as error:
        context.session.tool_result(tool, str(error), call_id=call, success=False)
        return Found()
    events = [
        context.session.tool_result(tool, one.claim.sentence, call_id=call, retrieved_at=one.retrieved_at)
        for one in answers
    ]
    return Found(answers, tuple(events))


async def research(context: StageContext[Any], material: Material) -> None:
    """Record what there is to know of a proposed e-mail in the stage's session.

    Args:
        context: The stage's.
        material: What is to be researched.
    """
    _hear(context.session, material)
    policy, mail, registers, at = material.policy, material.mail, material.registers, material.read_at
    await ask(context, "policy.search", {}, partial(in_force, policy, at))
    await ask(context, "mailbox.read", {"message": mail.digest}, partial(_read, mail, at))
    for rule in policy.rules:
        if isinstance(rule, PhrasesRule):
            await ask(context, "mailbox.search", {"rule": rule.id}, partial(_search, mail, rule, at))
    for domain in sorted(mail.domains.keys() - policy.known_domains())[:MOST_DOMAINS]:
        look_up = partial(registers.lookup_customer, domain)
        found = await ask(context, "crm.lookup_customer", {"domain": domain}, look_up)
        for answer in found.answers:
            if isinstance(answer.claim, Customer) and answer.claim.customer is not None:
                await _look_into(context, answer.claim.customer, material)


async def _look_into(context: StageContext[Any], customer: str, material: Material) -> None:
    """Ask about a customer what the policy's rules will want to know."""
    registers = material.registers
    agreements = {rule.agreement for rule in material.policy.rules if isinstance(rule, AgreementRule)}
    for agreement in sorted(agreements):
        look_up = partial(registers.search_contracts, customer, agreement)
        await ask(context, "contracts.search", {"customer": customer, "agreement": agreement}, look_up)
    if material.mail.amounts and any(isinstance(rule, QuoteRule) for rule in material.policy.rules):
        await ask(context, "crm.lookup_pricing", {"customer": customer}, partial(registers.lookup_pricing, customer))
    highest = {one.currency: one.cents for one in material.mail.amounts}
    for rule in material.policy.rules:
        if isinstance(rule, ApprovalRule) and highest.get(rule.currency, 0) > rule.above * 100:
            look_up = partial(registers.search_approvals, customer, rule.role, rule.currency)
            await ask(context, "approvals.search", {"customer": customer, "role": rule.role}, look_up)


def _hear(session: SessionLog, material: Material) -> None:
    """Record what was said: before the e-mail, and by the person who proposes it."""
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
    request = " ".join(without_addresses(material.request).split())
    if request:
        session.user_message(request[:LONGEST_REQUEST])


def _read(mail: Mail, at: datetime) -> list[Answer]:
    claims = (
        Message(digest=mail.digest),
        Recipients(domains=mail.domains, unreadable=mail.unreadable),
        Attached(files=mail.attachments),
        Named(amounts=mail.amounts),
    )
    return [Answer(claim, at) for claim in claims]


def _search(mail: Mail, rule: PhrasesRule, at: datetime) -> list[Answer]:
    found = phrases_in(mail.text, rule.forbidden)
    return [Answer(Phrases(rule=rule.id, of=len(rule.forbidden), found=found), at)]
