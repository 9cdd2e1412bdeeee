"""Rules about how the contract goes on and how one gets out: renewal, notice, changes, restraints, transfer."""

import re
from collections.abc import Iterator

from activities.contract_review.facts import PERIOD, days_in
from activities.contract_review.scope import Hit, Rule, Scope, Sentence

_RENEWS = re.compile(
    r"(?i)\bautomatic(?:ally)?\b[^.;]{0,60}\b(?:renew|extend)|\b(?:renew|extend)\w*\b[^.;]{0,40}\bautomatic"
    r"|\bshall (?:be )?renew(?:ed)? for successive\b"
)
_RENEWS_NOT = re.compile(r"(?i)\b(?:not|never|neither|nor)\b[^.;]{0,30}\b(?:automatic|renew|extend)")
_NOTICE = re.compile(r"(?i)\bnotice\b|\bnotif(?:y|ies)\b|\bunless (?:either|a) party\b")
_BEFORE = re.compile(r"(?i)^\W{0,3}(?:(?!unless|if|(?:n?either|a) party)\w+['’]?\s+){0,4}(?:before|prior|notice)\b")
_ENDS = re.compile(r"(?i)\bmay (?:\w+ ){0,4}(?:terminate|cancel|end)\b|\bright to (?:terminate|cancel)\b")
_FOR_CAUSE = re.compile(r"(?i)\b(?:breach|insolven\w+|bankrupt\w*|default|fails? to|non-?payment|force majeure)\b")
_AT_ONCE = re.compile(r"(?i)\b(?:immediately|at once|with immediate effect|(?:with or )?without (?:prior )?notice)\b")
_CHANGES = re.compile(
    r"(?i)\bmay (?:\w+ ){0,4}(?:modify|amend|change|revise|vary|update|alter)\b"
    r"[^.;]{0,120}?\b(?:terms?|agreement|services?|scope|statement|policies|specification|platform)\b"
)
_FREELY = re.compile(
    r"(?i)\bsole discretion\b|\bat any time\b|\bfrom time to time\b|\bwithout (?:prior )?(?:notice|consent)\b"
    r"|\bby posting\b"
)
_AGREED = re.compile(
    r"(?i)\b(?:with|subject to|upon) (?:the )?(?:\w+['’]s |\w+ ){0,3}(?:written )?(?:consent|agreement|approval)\b"
)
_SUSPENDS = re.compile(r"(?i)\bsuspend\b")
_COMPETES = re.compile(r"(?i)\bcompet(?:e|es|ing|itive)\b|\bexclusiv(?:e|ely|ity)\b(?! (?:right|jurisdiction))")
_NOT = re.compile(r"(?i)\b(?:not|refrain|neither|exclusively)\b")
_EVERYWHERE = re.compile(r"(?i)\b(?:worldwide|anywhere|throughout the world|any (?:country|territory))\b")
_ASSIGNS = re.compile(
    r"(?i)\bmay (?:\w+ ){0,3}(?:assign|transfer|novate)\b[^.;]{0,60}\b(?:agreement|contract|terms|rights)\b"
)
_NO_CONSENT = re.compile(
    r"(?i)\bwithout (?:the )?(?:\w+['’]s |prior |written )*(?:consent|approval|notice)\b|\bfreely\b"
)
_DELETES = re.compile(
    r"(?i)\b(?:delete|destroy|erase)s?\b[^.;]{0,60}\bdata\b[^.;]{0,40}\b(?:at once|immediately|without)\b"
)
_RETURNS = re.compile(
    r"(?i)\b(?:return|export|hand over|retriev\w+|download)\b[^.;]{0,80}\bdata\b"
    r"|\bdata\b[^.;]{0,80}\b(?:returned|exported)\b"
)


def _renewals(scope: Scope) -> Iterator[Sentence]:
    """Yield the sentences that say that the contract goes on by itself, not those that say it does not."""
    return (one for one, _ in scope.matching(_RENEWS) if not _RENEWS_NOT.search(one.text))


def _renewal(scope: Scope) -> Iterator[Hit]:
    """Find renewals that no notice prevents, in the sentence or anywhere in its clause."""
    for sentence in _renewals(scope):
        if not scope.clause_says(sentence, _NOTICE):
            yield Hit(sentence, because="no notice that prevents it is named")


def _long_renewal_notice(scope: Scope) -> Iterator[Hit]:
    for sentence in _renewals(scope):
        for found in PERIOD.finditer(sentence.text):
            days = days_in(found)
            if days > scope.policy.max_renewal_notice_days and _BEFORE.match(
                sentence.text[found.end() : found.end() + 80]
            ):
                because = f"{days} days are more than the {scope.policy.max_renewal_notice_days} of the policy"
                yield Hit(sentence, because=because)
                break


def _short_notice(scope: Scope) -> Iterator[Hit]:
    """Find that they may end the contract, without our fault, on short notice or none."""
    for sentence, found in scope.matching(_ENDS):
        if scope.subject(sentence.text, found.start()) not in ("them", "both") or _FOR_CAUSE.search(sentence.text):
            continue
        period = PERIOD.search(sentence.text, found.end())
        if period and days_in(period) < scope.policy.min_notice_days:
            because = f"{days_in(period)} days are fewer than the {scope.policy.min_notice_days} of the policy"
            yield Hit(sentence, because=because)
        elif not period and _AT_ONCE.search(sentence.text):
            yield Hit(sentence, likelihood=4, because="there is no notice at all")


def _one_sided_end(scope: Scope) -> Iterator[Hit]:
    free = [
        (sentence, scope.subject(sentence.text, found.start()))
        for sentence, found in scope.matching(_ENDS)
        if not _FOR_CAUSE.search(sentence.text)
    ]
    theirs = [sentence for sentence, who in free if who == "them"]
    if theirs and not any(who in ("us", "both") for _, who in free):
        yield Hit(theirs[0], because="no clause gives the other side the same right")


def _unilateral(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_CHANGES):
        if scope.subject(sentence.text, found.start()) == "them" and not _AGREED.search(sentence.text):
            freely = _FREELY.search(sentence.text)
            yield Hit(sentence, likelihood=4 if freely else None, because=f"it says {freely[0]!r}" if freely else "")


def _suspension(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_SUSPENDS):
        if scope.subject(sentence.text, found.start()) == "them" and _AT_ONCE.search(sentence.text):
            yield Hit(sentence)


def _restraint(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_COMPETES, "non_compete", "non_solicitation", "general", "services"):
        if scope.actor(sentence.text) not in ("us", "both") or not _NOT.search(sentence.text):
            continue
        months = max((days_in(found) // 30 for found in PERIOD.finditer(sentence.text)), default=0)
        everywhere = bool(_EVERYWHERE.search(sentence.text))
        if months > scope.policy.max_non_compete_months or everywhere:
            because = f"{months} months" + (", anywhere in the world" if everywhere else "")
            yield Hit(sentence, consequence=5 if everywhere and months else None, because=because)


def _assignment(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_ASSIGNS):
        if scope.subject(sentence.text, found.start()) == "them" and _NO_CONSENT.search(sentence.text):
            yield Hit(sentence)


def _data_lost(scope: Scope) -> Iterator[Hit]:
    if not any(True for _ in scope.matching(_RETURNS, "termination", "data_protection")):
        for sentence, _ in scope.matching(_DELETES):
            yield Hit(sentence, because="no clause has it returned before")


RULES = (
    Rule(
        "REN-1",
        "It renews by itself and nothing prevents it",
        "{us} is bound again without having decided to be.",
        4,
        4,
        _renewal,
    ),
    Rule(
        "REN-2",
        "The notice against renewal is long",
        "Whoever misses the day is bound for another term.",
        4,
        3,
        _long_renewal_notice,
    ),
    Rule("TER-1", "{them} may leave on short notice", "{us} has no time to find a replacement.", 3, 4, _short_notice),
    Rule(
        "TER-2",
        "Only {them} may leave without a reason",
        "{us} stays bound where {them} is free.",
        3,
        3,
        _one_sided_end,
    ),
    Rule("CHG-1", "{them} may change the contract alone", "What {us} signs is not what will hold.", 3, 4, _unilateral),
    Rule(
        "SUS-1",
        "{them} may suspend without notice",
        "Work that depends on it stops from one minute to the next.",
        3,
        4,
        _suspension,
    ),
    Rule(
        "NCM-1",
        "The restraint is long or has no bounds",
        "It may keep {us} from its own business after the end.",
        3,
        4,
        _restraint,
    ),
    Rule(
        "ASG-1",
        "{them} may pass the contract on freely",
        "{us} may find itself bound to somebody it would not choose.",
        2,
        3,
        _assignment,
    ),
    Rule(
        "EXT-1",
        "Data are deleted before they are returned",
        "At the end {us} may lose what it needs to go on.",
        3,
        4,
        _data_lost,
    ),
)
"""The rules of this module."""
