"""Rules about money: when it is paid, what delay costs, and who answers for damage, up to how much."""

import re
from collections.abc import Iterator
from decimal import Decimal

from activities.contract_review.facts import AMOUNT, PERCENT, PERIOD, amount_of, days_in, monthly_rate, number_in
from activities.contract_review.records import Grade
from activities.contract_review.scope import Hit, Missing, Rule, Scope, Sentence

_PAY = re.compile(r"(?i)\b(?:pay(?:s|able|ment)?|paid|invoices?|due)\b")
_WITHIN = re.compile(r"(?i)\b(?:within|net|no later than|not later than|in|after)\s+$")
_INTEREST = re.compile(r"(?i)\binterest\b|\blate (?:payment|fee|charge)")
_INCREASE = re.compile(
    r"(?i)\bmay (?:\w+ ){0,4}(?:increase|raise|adjust|revise)\b[^.;]{0,80}\b(?:fees?|prices?|charges?|rates?)\b"
)
_BOUND = re.compile(r"(?i)%|per ?cent|\bindex\b|\binflation\b|\bnot exceed|\bconsent\b|\bagree[sd]? in writing")
_NO_REFUND = re.compile(r"(?i)\bnon-?refundable\b|\bno refunds?\b")
_PENALTY = re.compile(r"(?i)\bpenalt(?:y|ies)\b|\bliquidated damages\b")
_NO_PENALTY = re.compile(r"(?i)\b(?:without|no|not an?|free of) (?:\w+ ){0,2}penalt")
_LIABLE = re.compile(r"(?i)\bliab(?:le|ility|ilities)\b")
_UNLIMITED = re.compile(
    r"(?i)\bunlimited\b|\bwithout (?:any )?limit(?:ation)?s?\b|\b(?:is|are|be) not (?:limited|capped)\b"
)
_MANDATORY = re.compile(r"(?i)\b(?:fraud|death|personal injury|wilful|willful|cannot be (?:limited|excluded))\b")
_CAP = re.compile(
    r"(?i)\b(?:shall|will|does|do|is|may)? ?not exceed\b|\b(?:is|are|be) (?:limited|capped) (?:to|at)\b"
    r"|\bcap(?:ped)? (?:of|at)\b|\bin no (?:event|case)\b[^.;]{0,200}\bexceeds?\b"
    r"|\bmaximum (?:aggregate |total )?liability\b"
)
_OWN_FAULT = re.compile(
    r"(?i)\b(?:even (?:if|where)|including|regardless of|irrespective of)\b[^.;]{0,80}"
    r"\b(?:gross )?(?:negligence|wilful|willful)"
)
_INDEMNIFY = re.compile(r"(?i)\b(?:indemnif(?:y|ies)|hold harmless|indemnity)\b")
_BROAD = re.compile(
    r"(?i)\bany and all\b|\bof any (?:nature|kind)\b|\bhowever caused\b|\bregardless of (?:fault|cause)\b"
)
_LOW_SHARE = Decimal("0.25")
_ONE_PERCENT = Decimal("0.01")


def _late(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_PAY, "payment"):
        for found in PERIOD.finditer(sentence.text):
            days = days_in(found)
            if days > scope.policy.max_payment_days and _WITHIN.search(
                sentence.text[max(0, found.start() - 20) : found.start()]
            ):
                far = days > 2 * scope.policy.max_payment_days
                because = f"{days} days are more than the {scope.policy.max_payment_days} of the policy"
                yield Hit(sentence, consequence=3 if far else None, because=because)
                break


def _interest(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_INTEREST, "payment", "general"):
        for found in PERCENT.finditer(sentence.text):
            rate = monthly_rate(found)
            if rate is not None and rate > scope.policy.max_monthly_interest:
                because = f"{rate:g} % a month are more than the {scope.policy.max_monthly_interest:g} of the policy"
                yield Hit(sentence, because=because)
                break


def _increase(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_INCREASE):
        if scope.subject(sentence.text, found.start()) == "them" and not _BOUND.search(sentence.text):
            yield Hit(sentence)


def _no_refund(scope: Scope) -> Iterator[Hit]:
    return (Hit(sentence) for sentence, _ in scope.matching(_NO_REFUND))


def _penalty(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_PENALTY):
        if scope.actor(sentence.text) in ("us", "both", "") and not _NO_PENALTY.search(sentence.text):
            yield Hit(sentence)


def _unlimited(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_LIABLE):
        if _UNLIMITED.search(sentence.text) and not _MANDATORY.search(sentence.text) and _is_ours(scope, sentence):
            yield Hit(sentence)


def _uncapped(scope: Scope) -> Iterator[Hit]:
    """Find that no sentence caps our liability, where a clause speaks of liability at all."""
    about = [sentence for sentence in scope.of_kind("liability") if _LIABLE.search(sentence.text)]
    ours = [sentence for sentence in about if _is_ours(scope, sentence)]
    if about and not any(_CAP.search(one.text) or _UNLIMITED.search(one.text) for one in ours):
        yield Hit(about[0], more=tuple(one.unit.clause.id for one in about[1:]), because="no sentence caps it")


def _low_cap(scope: Scope) -> Iterator[Hit]:
    yearly = _largest_amount(scope)
    for sentence, found in scope.matching(_CAP):
        if not _LIABLE.search(sentence.text) or scope.actor(sentence.text) != "them":
            continue
        period = PERIOD.search(sentence.text, found.end())
        months = number_in(period) * {"m": 1, "q": 3, "y": 12}.get(period["unit"][0].lower(), 0) if period else 0
        amount = next(filter(None, map(amount_of, AMOUNT.finditer(sentence.text, found.end()))), None)
        if amount is None and period and months < scope.policy.min_cap_months:
            cap = f"the cap is {months} month{'s' * (months != 1)} of fees"
            yield Hit(sentence, because=f"{cap}; the policy asks for {scope.policy.min_cap_months}")
        elif amount and amount[0] in yearly and amount[1] < _LOW_SHARE * yearly[amount[0]]:
            share = amount[1] / yearly[amount[0]]
            much = f"{share:.0%}" if share >= _ONE_PERCENT else "less than 1%"
            yield Hit(sentence, because=f"the cap is {much} of the largest amount in the contract")


def _own_fault(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_OWN_FAULT):
        if _LIABLE.search(sentence.text) and scope.actor(sentence.text) == "them":
            grade: Grade | None = 5 if "gross" in sentence.text.lower() or "wil" in sentence.text.lower() else None
            yield Hit(sentence, consequence=grade, because="gross negligence is excluded, too" if grade else "")


def _one_sided(scope: Scope) -> Iterator[Hit]:
    given = [
        (sentence, scope.subject(sentence.text, found.start()))
        for sentence, found in scope.matching(_INDEMNIFY)
        if sentence.unit.clause.kind != "definitions"
    ]
    ours = [sentence for sentence, who in given if who == "us"]
    if ours and not any(who in ("them", "both") for _, who in given):
        yield Hit(
            ours[0], more=tuple(one.unit.clause.id for one in ours[1:]), because="no clause has it the other way round"
        )


def _broad(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_INDEMNIFY):
        if scope.subject(sentence.text, found.start()) == "us" and _BROAD.search(sentence.text):
            yield Hit(sentence)


def _no_insurance(scope: Scope) -> Iterator[Missing]:
    if scope.has("liability") and scope.extraction.type == "services" and not scope.has("insurance"):
        yield Missing("insurance", "nothing says that the other side could pay for damage it does")


def _is_ours(scope: Scope, sentence: Sentence) -> bool:
    return scope.actor(sentence.text) in ("us", "both", "")


def _largest_amount(scope: Scope) -> dict[str, Decimal]:
    """Return the largest amount by currency that stands in a clause on payment."""
    most: dict[str, Decimal] = {}
    for sentence in scope.of_kind("payment"):
        for currency, value in filter(None, map(amount_of, AMOUNT.finditer(sentence.text))):
            most[currency] = max(value, most.get(currency, Decimal(0)))
    return most


RULES = (
    Rule(
        "PAY-1",
        "The time to pay is long",
        "Beyond 60 days EU law (Directive 2011/7/EU, article 3(5)) asks for an express and fair agreement.",
        3,
        2,
        _late,
    ),
    Rule(
        "PAY-2",
        "Interest on late payments is high",
        "Each late invoice costs {us} more than its delay is worth.",
        3,
        3,
        _interest,
    ),
    Rule(
        "PAY-3",
        "{them} may raise prices without a limit",
        "The price {us} agreed to holds only for a while.",
        4,
        3,
        _increase,
    ),
    Rule(
        "PAY-4",
        "Fees are never refunded",
        "{us} pays for what it does not get if the contract ends early.",
        3,
        2,
        _no_refund,
    ),
    Rule("PEN-1", "There is a penalty", "A fixed sum is due whatever the damage is.", 3, 3, _penalty),
    Rule(
        "LIA-1",
        "The liability of {us} is unlimited",
        "One event can cost more than the contract is worth.",
        2,
        5,
        _unlimited,
    ),
    Rule("LIA-2", "Nothing caps the liability of {us}", "Without a cap the law's full damages apply.", 2, 5, _uncapped),
    Rule(
        "LIA-3",
        "The liability of {them} is capped low",
        "Most damage that {them} does would stay with {us}.",
        3,
        4,
        _low_cap,
    ),
    Rule(
        "LIA-4",
        "{them} is not liable for its own fault",
        "Nothing makes {them} careful, and much law forbids it.",
        3,
        4,
        _own_fault,
    ),
    Rule(
        "IND-1",
        "Only {us} indemnifies",
        "Claims of third parties end with {us}, even those {them} caused.",
        3,
        4,
        _one_sided,
    ),
    Rule("IND-2", "The indemnity has no bounds", "It covers what {us} did not cause and cannot foresee.", 3, 4, _broad),
    Rule("INS-1", "No insurance is asked for", "A right to damages is worth what {them} can pay.", 2, 3, _no_insurance),
)
"""The rules of this module."""
