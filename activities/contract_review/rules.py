"""Apply the rules of `rules.toml` to a contract, sentence by sentence; each finding cites rule, clause and quote.

Rules read the NFKC form of a sentence, which resolves ligatures and full-width digits; quotes are the original
characters. The findings are deterministic.
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
_NUMBERS = {word: index for index, word in enumerate(_ONES.split())} | {
    word: 10 * index for index, word in enumerate(_TENS, 2)
}
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
_MAX_SENTENCE_LENGTH, _MAX_QUOTE_LENGTH, _MAX_FINDINGS_PER_RULE = 2_000, 320, 20
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
    """A sentence of a clause: the original, and the form that rules read."""

    clause: Clause
    quote: str
    text: str


@dataclass(frozen=True)
class Contract:
    """A contract, seen from one party."""

    report: Report
    policy: Policy
    us: str
    them: str

    @classmethod
    def of(cls, report: Report, policy: Policy) -> "Contract":
        """Return the contract from the side of the policy's party, else the buyer, else the second party."""
        roles = [*report.parties]
        if len(roles) < 2:  # a standard form, whose parties are on a cover page
            words = " ".join(clause.text for clause in report.clauses)
            roles = list(dict.fromkeys([*roles, *_ROLES.findall(words)]))[:2]
        if policy.party is not None and roles and policy.party not in roles:
            parties = ", ".join(map(repr, roles))
            raise ReviewError(
                f"the contract has no party {policy.party!r}; it has {parties}: set `party` in the policy"
            )
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
        """Return whether a clause matches a pattern; the result is cached."""
        key = (clause.id, pattern.pattern)
        if key not in self._said:
            self._said[key] = pattern.search(unicodedata.normalize("NFKC", clause.text)) is not None
        return self._said[key]

    @cached_property
    def _sides(self) -> re.Pattern[str]:
        us, them = re.escape(self.us), re.escape(self.them)
        return re.compile(rf"(?i)\b(?:(?P<both>{_BOTH})|(?P<us>{us})|(?P<them>{them}))\b")

    def actor(self, text: str, before: int) -> str:
        """Return the subject of a sentence at a position: `us`, `them`, `both`, or an empty text.

        Example:
            >>> empty = Report(document="", sha256="", pages=1, title="", type="other", clauses=())
            >>> text = "If the Customer is late, the Supplier may suspend the Customer's access"
            >>> Contract(empty, Policy(), "Customer", "Supplier").actor(text, text.index("suspend"))
            'them'
        """
        head = _CONDITION.sub(lambda match: " " * len(match[0]), text[:before])
        matches = [match for match in self._sides.finditer(head) if not _NOT_SUBJECT.search(head[: match.start()])]
        matches = [
            match for match in matches if not head[match.end() :].startswith(("'s staff", "’s staff"))
        ] or matches
        subject = matches[-1] if matches else self._sides.search(text)
        return subject.lastgroup or "" if subject else ""


def analyse(report: Report, policy: Policy) -> Report:
    """Add the findings of the rules, and the clauses that no rule examined."""
    contract = Contract.of(report, policy)
    findings: list[Finding] = []
    covered: set[str] = set()
    for rule in rulebook()["rule"]:
        hits: dict[str, Hit] = {}
        for hit in _find_missing_clauses(contract) if rule["id"] == "MIS-1" else _find_hits(rule, contract, covered):
            hits.setdefault(hit[0].clause.id if hit[0] else hit[2], hit)
        findings += [_make_finding(rule, contract, *hit) for hit in [*hits.values()][:_MAX_FINDINGS_PER_RULE]]
    covered |= {finding.clause for finding in findings if finding.clause}
    substantial = [clause for clause in report.clauses[1:] if len(clause.text) > 40]
    return report.model_copy(
        update={
            "party": contract.us,
            "other": contract.them,
            "findings": number_findings(findings, report.clauses),
            "uncovered": tuple(clause.id for clause in substantial if clause.id not in covered),
        }
    )


def number_findings(findings: list[Finding], clauses: tuple[Clause, ...]) -> tuple[Finding, ...]:
    """Sort findings by clause and number them."""
    positions = {clause.id: position for position, clause in enumerate(clauses)}
    ordered = sorted(findings, key=lambda finding: positions.get(finding.clause or "", len(positions)))
    return tuple(finding.model_copy(update={"id": f"F-{number:02d}"}) for number, finding in enumerate(ordered, 1))


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence of a text, with the form that rules read (NFKC, plain hyphens).

    Example:
        >>> list(sentences("On \ufb01ve days' notice. It ends."))
        [("On \ufb01ve days' notice.", "On five days' notice."), ('It ends.', 'It ends.')]
    """
    start = 0
    for end in [*(match.start() for match in _SENTENCE_END.finditer(text)), len(text)]:
        while start < end:
            piece = text[start : min(end, start + _MAX_SENTENCE_LENGTH)]
            start += len(piece)
            if piece.strip():
                yield piece.strip(), unicodedata.normalize("NFKC", piece.strip()).translate(_DASHES)


def count_days(match: re.Match[str]) -> int:
    """Return the days of a period: months have 30, years 365; figures take precedence over words.

    Example:
        >>> [count_days(re.search(PERIOD, text)) for text in ("thirty (30) days", "two years", "forty-five days")]
        [30, 730, 45]
    """
    figure = match["figure"] or match["number"]
    number = int(figure) if figure else 0
    for word in re.split("[- ]", match["only"].lower()) if not figure else ():
        number = 100 * max(number, 1) if word == "hundred" else number + _NUMBERS.get(word, 0)
    return number * _DAYS[match["unit"].lower()]


Hit = tuple[Sentence | None, str, str]
"""The sentence that breaks a rule, the comparison with the policy, and the missing kind of clause."""


def _find_hits(rule: dict[str, Any], contract: Contract, covered: set[str]) -> Iterator[Hit]:
    """Yield the violations of a rule; each clause that matches its pattern counts as covered."""
    violations = [*_find_violations(rule, contract, covered)]
    if violations and "nowhere" in rule:
        if any(True for _ in _match_sentences(rule["nowhere"], rule.get("nowhere_actor"), rule.get("kinds"), contract)):
            return
        violations = violations[:1]
    yield from ((sentence, because, "") for sentence, because in violations)


def _find_violations(rule: dict[str, Any], contract: Contract, covered: set[str]) -> Iterator[tuple[Sentence, str]]:
    """Yield the sentences that match a rule's pattern and none of its exceptions."""
    unless, unless_clause = rule.get("unless"), rule.get("unless_clause")
    for sentence, match in _match_sentences(rule["find"], None, rule.get("kinds"), contract):
        covered.add(sentence.clause.id)
        if "actor" in rule and contract.actor(sentence.text, match.start()) not in rule["actor"]:
            continue
        if unless and _rule_regex(unless, contract).search(sentence.text):
            continue
        if unless_clause and contract.clause_says(sentence.clause, _rule_regex(unless_clause, contract)):
            continue
        because = _compare_with_policy(rule, match, contract)
        if because is not None:
            yield sentence, because


def _match_sentences(
    pattern: str, actors: list[str] | None, kinds: list[str] | None, contract: Contract
) -> Iterator[tuple[Sentence, re.Match[str]]]:
    regex = _rule_regex(pattern, contract)
    for sentence in contract.sentences:
        if kinds and sentence.clause.kind not in kinds:
            continue
        match = regex.search(sentence.text)
        if match and (actors is None or contract.actor(sentence.text, match.start()) in actors):
            yield sentence, match


def _rule_regex(pattern: str, contract: Contract) -> re.Pattern[str]:
    return _compile_rule(pattern, contract.us, contract.them)


@cache
def _compile_rule(pattern: str, us: str, them: str) -> re.Pattern[str]:
    names = {"period": PERIOD, "rate": RATE, "us": re.escape(us), "them": re.escape(them)}
    for name, value in names.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return re.compile(pattern, re.IGNORECASE)


def _compare_with_policy(rule: dict[str, Any], match: re.Match[str], contract: Contract) -> str | None:
    """Return how a match violates the policy, or None if the policy accepts it."""
    groups = match.groupdict()
    if "accepted" in rule:
        accepted_laws = getattr(contract.policy, rule["accepted"])
        law = groups["law"].strip()
        is_accepted = any(re.search(rf"(?i)\b{re.escape(accepted_law)}\b", law) for accepted_law in accepted_laws)
        return None if is_accepted else f"{law!r} is not among the laws of the policy"
    limit = rule.get("over") or rule.get("under")
    if limit is None:
        return ""
    bound = getattr(contract.policy, limit)
    if groups.get("none"):
        return f"it says {groups['none']!r}"
    if groups.get("rate"):
        per_month = {"day": 30.0, "week": 4.345, "month": 1.0, "year": 1 / 12, "annum": 1 / 12}
        rate = float(groups["rate"]) * per_month[groups["per"].lower()]
        return f"{rate:g} % a month are more than {bound:g}, the most in the policy" if rate > bound else None
    if not groups.get("unit"):
        return None
    unit = limit.rpartition("_")[2].rstrip("s")
    days, bound_days = count_days(match), bound * _DAYS[unit]
    is_fault = days > bound_days if "over" in rule else days < bound_days
    relation = "more" if "over" in rule else "fewer"
    return f"{days} days are {relation} than the {bound} {unit}s of the policy" if is_fault else None


def _find_missing_clauses(contract: Contract) -> Iterator[Hit]:
    """Yield the expected kinds of clauses that the contract lacks."""
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


def _make_finding(
    rule: dict[str, Any], contract: Contract, sentence: Sentence | None, because: str, absent: str
) -> Finding:
    names = {"us": contract.us, "them": contract.them, "kind": absent.replace("_", " ")}
    return Finding(
        rule=rule["id"],
        title=rule["title"].format(**names),
        why=rule["why"].format(**names),
        clause=None if sentence is None else sentence.clause.id,
        quote="" if sentence is None else sentence.quote[:_MAX_QUOTE_LENGTH],
        absent=absent or None,
        likelihood=rule["likelihood"],
        consequence=rule["consequence"],
        because=because,
    )
