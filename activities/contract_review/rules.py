"""Apply the rules of `rules.toml` to a contract, sentence by sentence; each finding cites rule, clause and words.

Rules read a sentence in its NFKC form, in which a ligature or a full-width digit is what it means; quotations are the
contract's own characters. The same contract and policy give the same findings.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from activities.contract_review.clauses import rulebook
from activities.contract_review.records import Clause, Finding, Policy, Report, ReviewError

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_ONES += "seventeen eighteen nineteen"
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred")
_NUMBERS = {word: at for at, word in enumerate(_ONES.split())} | {word: 10 * at for at, word in enumerate(_TENS, 2)}
_WORD = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_WORDS = rf"(?:{_WORD})(?:[- ](?:and[- ])?(?:{_WORD})){{0,4}}"
_DAYS = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
_UNIT = r"(?:business |calendar |working |full )?(?P<unit>day|week|month|quarter|year)s?\b['’]?"
PERIOD = rf"\b(?:(?P<words>{_WORDS}) ?\((?P<figure>\d{{1,4}})\)|(?P<number>\d{{1,4}})|(?P<only>{_WORDS}))[- ]{_UNIT}"
RATE = (
    r"\b(?P<rate>\d{1,3}(?:\.\d{1,3})?) ?(?:%|per ?cent)(?: interest)? "
    r"(?:per|a|each) (?P<per>day|week|month|year|annum)\b"
)
_SENTENCE_END = re.compile(r"(?<=[.;])(?<!\b[A-Z]\.)\s+(?=[A-Z(“\"])|\s+(?=\((?:[a-z]|[ivx]+)\) )")
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))
_LONGEST_SENTENCE, _LONGEST_QUOTE, _MOST_OF_A_RULE = 2_000, 320, 20
_ROLES = re.compile(
    r"\b(Customer|Client|Buyer|Purchaser|Licensee|Licensor|Recipient|Discloser|Subscriber|Employee|Employer|Company"
    r"|Supplier|Provider|Vendor|Seller|Contractor|Consultant|Receiving Party|Disclosing Party)\b"
)
_BUYER = re.compile(
    r"(?i)(?:customer|client|buyer|purchaser|licensee|recipient|subscriber|user|employee|company|tenant)"
)
_BOTH = r"(?:either|each|both|neither|the|any) part(?:y|ies)"
_CONDITION = re.compile(r"(?i)\b(?:if|where|unless|when|after|upon)\b[^,]*,")
_NOT_SUBJECT = re.compile(r"(?i)\b(?:to|from|with|against|by|for|of|between)(?: the)? $")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a clause: as it is written, and in the form that rules read."""

    clause: Clause
    quote: str
    text: str


@dataclass(frozen=True)
class Contract:
    """A contract from one party's side."""

    report: Report
    policy: Policy
    us: str
    them: str

    @classmethod
    def of(cls, report: Report, policy: Policy) -> "Contract":
        """Return a contract from the policy's side, else the buyer's, else the second party's."""
        roles = [*report.parties]
        if len(roles) < 2:  # a form whose parties are on a cover page
            words = " ".join(clause.text for clause in report.clauses)
            roles = list(dict.fromkeys([*roles, *_ROLES.findall(words)]))[:2]
        if policy.party is not None and roles and policy.party not in roles:
            known = ", ".join(map(repr, roles))
            raise ReviewError(f"the contract has no party {policy.party!r}; it has {known}: set `party` in the policy")
        us = policy.party or next(filter(_BUYER.match, roles), roles[-1] if roles else "Customer")
        return cls(report, policy, us, next((role for role in roles if role != us), "Supplier"))

    @cached_property
    def sentences(self) -> list[Sentence]:
        """Every sentence, in order."""
        return [Sentence(clause, *pair) for clause in self.report.clauses for pair in sentences(clause.text)]

    @cached_property
    def _said(self) -> dict[tuple[str, str], bool]:
        return {}

    def clause_says(self, clause: Clause, pattern: re.Pattern[str]) -> bool:
        """Return whether a pattern is anywhere in a clause; searched once, however many of its sentences ask."""
        key = (clause.id, pattern.pattern)
        if key not in self._said:
            self._said[key] = pattern.search(unicodedata.normalize("NFKC", clause.text)) is not None
        return self._said[key]

    @cached_property
    def _sides(self) -> re.Pattern[str]:
        us, them = re.escape(self.us), re.escape(self.them)
        return re.compile(rf"(?i)\b(?:(?P<both>{_BOTH})|(?P<us>{us})|(?P<them>{them}))\b")

    def actor(self, text: str, before: int) -> str:
        """Return whom a sentence is about at a position: `us`, `them`, `both`, or an empty text.

        Example:
            >>> empty = Report(document="", sha256="", pages=1, title="", type="other", clauses=())
            >>> text = "If the Customer is late, the Supplier may suspend the Customer's access"
            >>> Contract(empty, Policy(), "Customer", "Supplier").actor(text, text.index("suspend"))
            'them'
        """
        head = _CONDITION.sub(lambda found: " " * len(found[0]), text[:before])
        named = [found for found in self._sides.finditer(head) if not _NOT_SUBJECT.search(head[: found.start()])]
        named = [found for found in named if not head[found.end() :].startswith(("'s staff", "’s staff"))] or named
        found = named[-1] if named else self._sides.search(text)
        return found.lastgroup or "" if found else ""


def analyse(report: Report, policy: Policy) -> Report:
    """Return the report with what the rules find, and the clauses that none of them looked at any closer."""
    contract = Contract.of(report, policy)
    findings: list[Finding] = []
    covered: set[str] = set()
    for rule in rulebook()["rule"]:
        hits: dict[str, Hit] = {}
        for hit in _missing(contract) if rule["id"] == "MIS-1" else _hits(rule, contract, covered):
            hits.setdefault(hit[0].clause.id if hit[0] else hit[2], hit)
        findings += [_finding(rule, contract, *hit) for hit in [*hits.values()][:_MOST_OF_A_RULE]]
    covered |= {one.clause for one in findings if one.clause}
    looked_at = [one for one in report.clauses[1:] if len(one.text) > 40]
    return report.model_copy(
        update={
            "party": contract.us,
            "other": contract.them,
            "findings": numbered(findings, report.clauses),
            "uncovered": tuple(one.id for one in looked_at if one.id not in covered),
        }
    )


def numbered(findings: list[Finding], clauses: tuple[Clause, ...]) -> tuple[Finding, ...]:
    """Return findings in the order of their clauses, with ids."""
    places = {clause.id: at for at, clause in enumerate(clauses)}
    ordered = sorted(findings, key=lambda one: places.get(one.clause or "", len(places)))
    return tuple(one.model_copy(update={"id": f"F-{at:02d}"}) for at, one in enumerate(ordered, 1))


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a text as they are written, each with the form that rules read (NFKC, plain hyphens).

    Example:
        >>> list(sentences("On \ufb01ve days' notice. It ends."))
        [("On \ufb01ve days' notice.", "On five days' notice."), ('It ends.', 'It ends.')]
    """
    start = 0
    for end in [*(found.start() for found in _SENTENCE_END.finditer(text)), len(text)]:
        while start < end:
            piece = text[start : min(end, start + _LONGEST_SENTENCE)]
            start += len(piece)
            if piece.strip():
                yield piece.strip(), unicodedata.normalize("NFKC", piece.strip()).translate(_DASHES)


def days_in(found: re.Match[str]) -> int:
    """Return the days of a period: months have 30, years 365; where words and figures differ, the figures count.

    Example:
        >>> [days_in(re.search(PERIOD, text)) for text in ("thirty (30) days", "two years", "forty-five days")]
        [30, 730, 45]
    """
    figure = found["figure"] or found["number"]
    number = int(figure) if figure else 0
    for word in re.split("[- ]", found["only"].lower()) if not figure else ():
        number = 100 * max(number, 1) if word == "hundred" else number + _NUMBERS.get(word, 0)
    return number * _DAYS[found["unit"].lower()]


Hit = tuple[Sentence | None, str, str]
"""Where a rule found something, what it compared, and what is missing."""


def _hits(rule: dict[str, Any], contract: Contract, covered: set[str]) -> Iterator[Hit]:
    """Yield what a rule finds; clauses that its pattern is found in are covered, whether or not they are at fault."""
    found = [*_found(rule, contract, covered)]
    if found and "nowhere" in rule:
        if any(True for _ in _matching(rule["nowhere"], rule.get("nowhere_actor"), rule.get("kinds"), contract)):
            return
        found = found[:1]
    yield from ((sentence, because, "") for sentence, because in found)


def _found(rule: dict[str, Any], contract: Contract, covered: set[str]) -> Iterator[tuple[Sentence, str]]:
    """Yield the sentences that a rule's pattern is found in and its conditions do not excuse."""
    unless, whole = rule.get("unless"), rule.get("unless_clause")
    for sentence, match in _matching(rule["find"], None, rule.get("kinds"), contract):
        covered.add(sentence.clause.id)
        if "actor" in rule and contract.actor(sentence.text, match.start()) not in rule["actor"]:
            continue
        if unless and _regex(unless, contract).search(sentence.text):
            continue
        if whole and contract.clause_says(sentence.clause, _regex(whole, contract)):
            continue
        because = _compared(rule, match, contract)
        if because is not None:
            yield sentence, because


def _matching(
    pattern: str, actors: list[str] | None, kinds: list[str] | None, contract: Contract
) -> Iterator[tuple[Sentence, re.Match[str]]]:
    regex = _regex(pattern, contract)
    for sentence in contract.sentences:
        if kinds and sentence.clause.kind not in kinds:
            continue
        match = regex.search(sentence.text)
        if match and (actors is None or contract.actor(sentence.text, match.start()) in actors):
            yield sentence, match


def _regex(pattern: str, contract: Contract) -> re.Pattern[str]:
    return _compiled(pattern, contract.us, contract.them)


@cache
def _compiled(pattern: str, us: str, them: str) -> re.Pattern[str]:
    names = {"period": PERIOD, "rate": RATE, "us": re.escape(us), "them": re.escape(them)}
    for name, value in names.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return re.compile(pattern, re.IGNORECASE)


def _compared(rule: dict[str, Any], match: re.Match[str], contract: Contract) -> str | None:
    """Return what a rule compared with the policy, in words; None where the policy accepts it."""
    groups = match.groupdict()
    if "accepted" in rule:
        known = getattr(contract.policy, rule["accepted"])
        law = groups["law"].strip()
        is_known = any(re.search(rf"(?i)\b{re.escape(one)}\b", law) for one in known)
        return None if is_known else f"{law!r} is not among the laws of the policy"
    limit = rule.get("over") or rule.get("under")
    if limit is None:
        return ""
    most = getattr(contract.policy, limit)
    if groups.get("none"):
        return f"it says {groups['none']!r}"
    if groups.get("rate"):
        per_month = {"day": 30.0, "week": 4.345, "month": 1.0, "year": 1 / 12, "annum": 1 / 12}
        rate = float(groups["rate"]) * per_month[groups["per"].lower()]
        return f"{rate:g} % a month are more than {most:g}, the most in the policy" if rate > most else None
    if not groups.get("unit"):
        return None
    unit = limit.rpartition("_")[2].rstrip("s")
    days, bound = days_in(match), most * _DAYS[unit]
    is_fault = days > bound if "over" in rule else days < bound
    relation = "more" if "over" in rule else "fewer"
    return f"{days} days are {relation} than the {most} {unit}s of the policy" if is_fault else None


def _missing(contract: Contract) -> Iterator[Hit]:
    """Yield the kinds of clauses that contracts of this type have and this one does not."""
    report = contract.report
    kinds = {clause.kind for clause in report.clauses}
    titles = " ".join(clause.title for clause in report.clauses)
    words = " ".join(clause.text for clause in report.clauses)
    for kind in dict.fromkeys([*rulebook()["types"][report.type]["expected"], *contract.policy.expected]):
        if kind not in rulebook()["kinds"]:
            raise ReviewError(f"the policy expects {kind!r}; the kinds are {', '.join(rulebook()['kinds'])}")
        in_title = re.search(rf"(?i)\b(?:{rulebook()['kinds'][kind]['title'].replace('.*', '')})\b", titles)
        can_end = kind == "termination" and re.search(r"(?i)\bmay (?:\w+ ){0,4}(?:be )?terminate", words)
        if kind not in kinds and not in_title and not can_end:
            yield None, f"contracts of the type {report.type!r} have one", kind


def _finding(rule: dict[str, Any], contract: Contract, sentence: Sentence | None, because: str, absent: str) -> Finding:
    names = {"us": contract.us, "them": contract.them, "kind": absent.replace("_", " ")}
    return Finding(
        rule=rule["id"],
        title=rule["title"].format(**names),
        why=rule["why"].format(**names),
        clause=None if sentence is None else sentence.clause.id,
        quote="" if sentence is None else sentence.quote[:_LONGEST_QUOTE],
        absent=absent or None,
        likelihood=rule["likelihood"],
        consequence=rule["consequence"],
        because=because,
    )
