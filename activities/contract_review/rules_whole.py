"""Rules about the contract as a whole: what is missing, what contradicts itself, what points nowhere."""

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import date

from activities.contract_review.facts import AMOUNT, DATE, PERIOD, amount_of, date_of, spelled
from activities.contract_review.kinds import EXPECTED, names
from activities.contract_review.records import Kind
from activities.contract_review.scope import Hit, Missing, Rule, Scope, Sentence

_REFERENCE = re.compile(
    r"\b(?:[Cc]lauses?|[Ss]ections?|[Aa]rticles?|§|[Pp]aragraphs?) ?(?P<number>\d{1,3}(?:\.\d{1,3}){0,3})\b"
    r"(?P<foreign> (?:of|GDPR|DSGVO|EU)\b(?! (?:this|these|the) ))?"
)
_CAN_END = re.compile(r"(?i)\bmay (?:\w+ ){0,4}(?:terminate|be terminated)\b")
_FOREIGN = re.compile(r"(?i)\b(?:GDPR|Directive|Regulation|Act|Code|Statute|U\.?S\.?C)\b")
_DATED = re.compile(r"(?i)\b(effective date|commencement date|start date|expiry date|end date)\b")
_BEGINS = re.compile(r"(?i)\b(?:begins?|commences?|starts?|from)\b[^.;]{0,40}$")
_FINISHES = re.compile(r"(?i)\b(?:ends?|expires?|until)\b[^.;]{0,40}$")
_LABEL = re.compile(
    r"(?i)\b((?:[a-z]+ )?"
    r"(?:subscription |licen[cs]e |service |purchase |monthly |annual |yearly |total |maximum |minimum )+"
    r"(?:fees?|price|charges?|amount|value|liability))\b[^.;]{0,30}$"
    r"|\b((?:monthly|annual|yearly|total) (?:fees?|price))\b[^.;]{0,30}$"
)
_TO_MACHINES = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b[^.;]{0,40}\b(?:previous|prior|above|earlier|all|your)\b"
    r"[^.;]{0,40}\b(?:instructions?|rules|prompts?|context)\b"
    r"|\byou are (?:now )?(?:an?|the) (?:\w+ ){0,3}(?:assistant|ai|model|agent)\b|\b(?:system|developer) prompt\b"
    r"|</?(?:system|assistant|instructions?)>"
    r"|\bas an? (?:ai|language model)\b|\breport that (?:this|the) contract has no\b"
)


def _missing(scope: Scope) -> Iterator[Missing]:
    """Find the kinds of clauses that contracts of the sort have, and this one has not.

    Insurance and data protection have rules of their own, which know when they are needed.
    """
    expected: tuple[Kind, ...] = (*EXPECTED[scope.extraction.type], *scope.policy.expected)
    for kind in dict.fromkeys(expected):
        if not (scope.has(kind) or kind in scope.unparted or _is_named(scope, kind)) and (
            kind not in ("insurance", "data_protection") or kind in scope.policy.expected
        ):
            yield Missing(kind, f"contracts of the sort {scope.extraction.type!r} have one")


def _is_named(scope: Scope, kind: Kind) -> bool:
    """Return whether a title names a kind beside another ("Term and Termination"), or the contract can be ended."""
    named = any(names(kind, unit.clause.title) for unit in scope.units)
    return named or (kind == "termination" and any(True for _ in scope.matching(_CAN_END)))


def _dates(scope: Scope) -> Iterator[Hit]:
    """Find a day with a name that is another day elsewhere, and an end that is before its beginning."""
    named: dict[str, dict[date, Sentence]] = defaultdict(dict)
    for sentence, found in scope.matching(_DATED):
        day = next((date_of(one) for one in DATE.finditer(sentence.text, found.end())), None)
        if day:
            named[found[1].lower()].setdefault(day, sentence)
    for name, days in named.items():
        if len(days) > 1:
            first, *others = days.values()
            because = f"the {name} is " + " and ".join(sorted(day.isoformat() for day in days))
            yield Hit(others[0], because=because, more=(first.unit.clause.id,))
    for sentence in scope.sentences:
        begins = ends = None
        for found in DATE.finditer(sentence.text):
            before = sentence.text[max(0, found.start() - 60) : found.start()]
            if _FINISHES.search(before):
                ends = date_of(found)
            elif _BEGINS.search(before):
                begins = date_of(found)
        if begins and ends and ends <= begins:
            yield Hit(sentence, because=f"it ends on {ends.isoformat()} and begins on {begins.isoformat()}")


def _amounts(scope: Scope) -> Iterator[Hit]:
    """Find an amount with a name that is another amount elsewhere."""
    named: dict[str, dict[str, Sentence]] = defaultdict(dict)
    for sentence in scope.sentences:
        for found in AMOUNT.finditer(sentence.text):
            label = _LABEL.search(sentence.text[max(0, found.start() - 90) : found.start()])
            amount = amount_of(found)
            if label and amount:
                words = (label[1] or label[2]).lower()
                name = re.sub(r"^(?:the|an?|this|its|of) ", "", words)
                named[name].setdefault(f"{amount[0]} {amount[1]:,.2f}", sentence)
    for name, amounts in named.items():
        if len(amounts) > 1:
            first, *others = amounts.values()
            yield Hit(others[0], because=f"the {name} is {' and '.join(amounts)}", more=(first.unit.clause.id,))


def _words_and_figures(scope: Scope) -> Iterator[Hit]:
    for sentence in scope.sentences:
        for found in PERIOD.finditer(sentence.text):
            if found["words"] and spelled(found["words"]) != int(found["figure"]):
                yield Hit(
                    sentence,
                    because=f"{found['words']!r} is {spelled(found['words'])}, and the figure {found['figure']}",
                )


def _dangling(scope: Scope) -> Iterator[Hit]:
    """Find references to clauses that are not there; those to statutes are none of ours."""
    numbers = {re.sub(r"^\D+", "", clause.id) for clause in scope.extraction.clauses if not clause.point}
    numbers |= {number.rpartition(".")[0] for number in numbers}
    tops = {number.split(".")[0] for number in numbers}
    if not any(tops):
        return
    for sentence in scope.sentences:
        for found in _REFERENCE.finditer(sentence.text):
            if found["foreign"] or _FOREIGN.search(sentence.text[found.end() : found.end() + 40]):
                continue
            if found["number"] not in numbers and found["number"] not in tops:
                yield Hit(sentence, because=f"there is no {found[0]}")
                break


def _to_machines(scope: Scope) -> Iterator[Hit]:
    return (Hit(sentence) for sentence, _ in scope.matching(_TO_MACHINES))


RULES = (
    Rule(
        "MIS-1",
        "There is no clause on {kind}",
        "What is not agreed is left to the law, or to a dispute.",
        3,
        3,
        _missing,
    ),
    Rule("CFL-1", "Dates contradict each other", "Terms, notices and renewals are counted from them.", 3, 3, _dates),
    Rule("CFL-2", "Amounts contradict each other", "Which one is owed would be for a court to say.", 4, 3, _amounts),
    Rule(
        "CFL-3",
        "Words and figures differ",
        "Courts mostly hold to the words; the reader may not.",
        3,
        2,
        _words_and_figures,
    ),
    Rule(
        "REF-1",
        "A reference points nowhere",
        "A clause was struck or renumbered, and its effect with it.",
        3,
        2,
        _dangling,
    ),
    Rule(
        "INJ-1",
        "A sentence speaks to machines",
        "Somebody wants programs that read the contract to say something else.",
        3,
        4,
        _to_machines,
    ),
)
"""The rules of this module."""
