"""The first agent: gather what is to be known of a proposed e-mail, each fact with its source and time.

Everything it reads goes into its session as an event. Facts are what tools said, in the sentences of `claims`; the
thread before the e-mail and the person's own words are recorded too, for the record of what the next agent was not
given. A tool that fails is recorded as failed, and the research continues without it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import JsonValue

from activities.compliance_review.claims import (
    Attached,
    Claim,
    Customer,
    InForce,
    Known,
    Message,
    Named,
    Phrases,
    Recipients,
)
from activities.compliance_review.mail import Note, without_addresses
from activities.compliance_review.phrases import phrases_in
from activities.compliance_review.policy import AgreementRule, ApprovalRule, PhrasesRule, Policy, QuoteRule
from activities.compliance_review.records import Mail, RegisterError
from activities.compliance_review.registers import Answer, Registers
from baton import StageContext
from baton.contract.records import ToolDeniedError

TOOLS = (
    *("mailbox.read", "mailbox.search", "policy.search", "crm.lookup_customer"),
    *("contracts.search", "crm.lookup_pricing", "approvals.search"),
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
    """Call a tool as far as the contract allows it, and record each answer with the time at which it was retrieved.

    Args:
        context: The stage's context.
        tool: The tool's name.
        arguments: What it is asked, for the record.
        look_up: Does its work, in a thread.

    Returns:
        The answers; none if the tool failed or may not be called.
    """
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
    for agreement in sorted({rule.agreement for rule in rules if isinstance(rule, AgreementRule)}):
        look_up = partial(registers.search_contracts, customer, agreement)
        await ask(context, "contracts.search", {"customer": customer, "agreement": agreement}, look_up)
    if amounts and any(isinstance(rule, QuoteRule) for rule in rules):
        await ask(context, "crm.lookup_pricing", {"customer": customer}, partial(registers.lookup_pricing, customer))
    highest = {one.currency: one.cents for one in amounts}
    for rule in rules:
        if isinstance(rule, ApprovalRule) and highest.get(rule.currency, 0) > rule.above * 100:
            look_up = partial(registers.search_approvals, customer, rule.role, rule.currency)
            await ask(context, "approvals.search", {"customer": customer, "role": rule.role}, look_up)


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
        Attached(files=mail.attachments),
    ]
    if mail.text is not None:  # else the amounts in it are unknown
        claims.append(Named(amounts=mail.amounts))
    return [Answer(claim, at) for claim in claims]


def _search(mail: Mail, rule: PhrasesRule, at: datetime) -> list[Answer]:
    if mail.text is None:
        raise RegisterError("a part of the e-mail is not in the charset that it names, so its words are not known")
    found = phrases_in(mail.text, rule.forbidden)
    return [Answer(Phrases(rule=rule.id, of=len(rule.forbidden), found=found), at)]
