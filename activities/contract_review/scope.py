"""The contract as the rules of analysis see it: clauses with their points folded in, sentence by sentence.

A rule reads a whole clause, since `(b)` means nothing without the words before `(a)`, but cites the very point in
which the words stand.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from activities.contract_review.kinds import kind_of
from activities.contract_review.records import Clause, Extraction, Finding, Grade, Kind, Policy, ReviewError

_BULLET = "[•‣▪●○◦]"
_NUMBER = r"\d{1,3}(?:\.\d{1,3})*(?:\.?\(?[a-z]{1,4}\)?){1,3}[.)]?|\d{1,3}(?:\.\d{1,3})+[.)]?|\d{1,3}[.)]"
_MARK = rf"(?:{_BULLET}|[*–—-]|{_NUMBER})\s+"  # of a point that is no clause of its own
_BEFORE = re.compile(_MARK)
_SENTENCE_END = re.compile(
    rf"(?:(?<=[.;])(?<!\b[A-Z]\.)\s+(?:(?:(?:and|or)\s+)?{_MARK})?|\s+{_BULLET}\s+)(?=[A-Z(“\"])"
)
_LONGEST_QUOTE = 320
_LONGEST_SENTENCE = 8_000
_ROLES = re.compile(
    r"\b(Customer|Client|Buyer|Purchaser|Licensee|Licensor|Recipient|Discloser|Subscriber|Employee|Employer|Company"
    r"|Supplier|Provider|Vendor|Seller|Contractor|Consultant|Receiving Party|Disclosing Party)\b"
)
_BUYERS = re.compile(
    r"(?i)^(customer|client|buyer|purchaser|licensee|recipient|subscriber|user|employee|company|tenant)"
)


@dataclass(frozen=True)
class Unit:
    """A clause together with its points.

    Attributes:
        clause: The clause.
        text: Its words and those of its points.
        parts: Where in `text` each of them begins, in order.
    """

    clause: Clause
    text: str
    parts: tuple[tuple[int, Clause], ...]

    def at(self, position: int) -> Clause:
        """Return the clause or point in which a position of the text lies."""
        return self.parts[bisect_right(self.parts, position, key=lambda part: part[0]) - 1][1]


@dataclass(frozen=True)
class Sentence:
    """A sentence of a unit, which never runs over the border of a point."""

    unit: Unit
    start: int
    text: str


@dataclass(frozen=True)
class Hit:
    """What a rule found in a clause.

    Attributes:
        sentence: Where.
        likelihood: In place of the rule's own.
        consequence: In place of the rule's own.
        because: What moved them, in words.
        more: Other clauses it rests on.
    """

    sentence: Sentence
    likelihood: Grade | None = None
    consequence: Grade | None = None
    because: str = ""
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missing:
    """What a rule did not find anywhere."""

    kind: Kind
    because: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule of analysis.

    Attributes:
        id: For example `LIA-1`.
        title: What it finds; `{us}` and `{them}` stand for the roles, `{kind}` for what is missing.
        why: Why that matters, the same way.
        likelihood: The starting point for the analysis of the risk.
        consequence: The same.
        find: Finds it.
    """

    id: str
    title: str
    why: str
    likelihood: Grade
    consequence: Grade
    find: Callable[["Scope"], Iterator[Hit | Missing]]


@dataclass(frozen=True)
class Scope:
    """A contract under review.

    Attributes:
        extraction: The contract.
        policy: What the reviewing side accepts.
        us: The role whose risk it is.
        them: The other side's role.
    """

    extraction: Extraction
    policy: Policy
    us: str
    them: str

    @classmethod
    def of(cls, extraction: Extraction, policy: Policy) -> "Scope":
        """Return the scope of a review; the reviewing side is the policy's, else the buyer's, else the second.

        Raises:
            ReviewError: The contract has no such party.
        """
        roles = list(extraction.parties())
        if len(roles) < 2:  # a form whose parties stand on a cover page
            roles = list(dict.fromkeys([*roles, *_usual_roles(extraction)]))[:2]
        if policy.party is not None and roles and policy.party not in roles:
            known = ", ".join(map(repr, roles))
            raise ReviewError(f"the contract has no party {policy.party!r}; it has {known}: set `party` in the policy")
        us = policy.party or next(filter(_BUYERS.match, roles), roles[-1] if roles else "Customer")
        them = next((role for role in roles if role != us), "Supplier")
        return cls(extraction, policy, us, them)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every clause that has words, its points folded in."""
        units: list[Unit] = []
        group: list[Clause] = []
        for clause in self.extraction.clauses:
            if not clause.point:
                units.extend(_unit(group))
                group = []
            group.append(clause)
        units.extend(_unit(group))
        return tuple(units)

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Every sentence, in order."""
        return tuple(sentence for unit in self.units for sentence in _sentences(unit))

    def of_kind(self, *kinds: Kind) -> Iterator[Sentence]:
        """Yield the sentences of clauses of these kinds; of a contract that is not parted, those about them as well."""
        about = {(one.unit.clause.id, one.start) for kind in kinds for one in self.unparted.get(kind, ())}
        for one in self.sentences:
            if one.unit.clause.kind in kinds or (one.unit.clause.id, one.start) in about:
                yield one

    @cached_property
    def unparted(self) -> dict[Kind, list[Sentence]]:
        """The sentences by what each is about, of a contract that is not parted into clauses, most of which is one."""
        lengths = [len(unit.text) for unit in self.units]
        if 2 * max(lengths, default=0) <= sum(lengths):
            return {}
        found: dict[Kind, list[Sentence]] = {}
        for sentence in self.sentences:
            found.setdefault(kind_of("", sentence.text), []).append(sentence)
        return found

    def matching(self, pattern: re.Pattern[str], *kinds: Kind) -> Iterator[tuple[Sentence, re.Match[str]]]:
        """Yield the sentences, of these kinds or of any, in which a pattern is found."""
        for sentence in self.of_kind(*kinds) if kinds else self.sentences:
            found = pattern.search(sentence.text)
            if found:
                yield sentence, found

    def has(self, kind: Kind) -> bool:
        """Return whether some clause is of a kind."""
        return any(unit.clause.kind == kind for unit in self.units)

    def clause_says(self, sentence: Sentence, pattern: re.Pattern[str]) -> bool:
        """Return whether the clause around a sentence says something, anywhere in it."""
        key = (sentence.unit.clause.id, pattern.pattern)
        if key not in self._said:  # searched once, however many of its sentences ask
            self._said[key] = pattern.search(sentence.unit.text) is not None
        return self._said[key]

    @cached_property
    def _said(self) -> dict[tuple[str, str], bool]:
        return {}

    def actor(self, text: str) -> str:
        """Return who a sentence begins with: `us`, `them`, `both`, or an empty text.

        Example:
            >>> from activities.contract_review.records import Policy
            >>> nobody = Extraction(document="", sha256="", type="other", title="", pages=1, clauses=(), facts=())
            >>> scope = Scope(nobody, Policy(), "Customer", "Supplier")
            >>> [scope.actor(text) for text in ("The Supplier's liability", "Upon notice, each party", "Rain falls")]
            ['them', 'both', '']
        """
        found = self._actors.search(text[:200])
        return self._who(found) if found else ""

    def subject(self, text: str, position: int) -> str:
        """Return who does what stands at a position: the one named last before it, possessives aside.

        Example:
            >>> from activities.contract_review.records import Policy
            >>> nobody = Extraction(document="", sha256="", type="other", title="", pages=1, clauses=(), facts=())
            >>> scope = Scope(nobody, Policy(), "Customer", "Supplier")
            >>> scope.subject("If the Customer is late, the Supplier may suspend", 38)
            'them'
        """
        before = text[max(0, position - 160) : position]
        named = [found for found in self._actors.finditer(before) if not before.startswith(("'s", "’s"), found.end())]
        return self._who(named[-1]) if named else self.actor(text)

    def _who(self, found: re.Match[str]) -> str:
        if found["both"]:
            return "both"
        return "us" if found["one"].lower() == self.us.lower() else "them"

    @cached_property
    def _actors(self) -> re.Pattern[str]:
        roles = "|".join(re.escape(role) for role in (self.us, self.them))
        return re.compile(
            rf"(?i)\b(?:(?P<one>{roles})|(?P<both>(?:each|either|neither|any|a) party|(?:both|the) parties))\b"
        )


def finding_of(rule: Rule, found: Hit | Missing, scope: Scope) -> Finding:
    """Return the record of what a rule found, without its number."""
    words = {
        "us": scope.us,
        "them": scope.them,
        "kind": found.kind.replace("_", " ") if isinstance(found, Missing) else "",
    }
    title, why = (_filled(text, words) for text in (rule.title, rule.why))
    if isinstance(found, Missing):
        return Finding(
            id="F-00",
            rule=rule.id,
            title=title,
            why=why,
            absent=found.kind,
            likelihood=rule.likelihood,
            consequence=rule.consequence,
            because=found.because,
        )
    clause = found.sentence.unit.at(found.sentence.start)
    return Finding(
        id="F-00",
        rule=rule.id,
        title=title,
        why=why,
        clause=clause.id,
        quote=found.sentence.text[:_LONGEST_QUOTE],
        page=clause.page,
        line=clause.line,
        more=tuple(id for id in dict.fromkeys(found.more) if id != clause.id),
        likelihood=found.likelihood or rule.likelihood,
        consequence=found.consequence or rule.consequence,
        because=found.because,
    )


def _usual_roles(extraction: Extraction) -> list[str]:
    """Return the two roles that a contract speaks of most, where nothing says who has them."""
    counts = Counter(found[1] for clause in extraction.clauses for found in _ROLES.finditer(clause.text))
    return [role for role, _ in counts.most_common(2)]


def _filled(text: str, words: dict[str, str]) -> str:
    """Put names into a template; names come from the contract, so nothing in them is a template again."""
    return re.sub(r"\{(us|them|kind)\}", lambda found: words[found[1]], text)


def _unit(group: list[Clause]) -> list[Unit]:
    """Return the unit of a clause and its points, or nothing if they have no words."""
    parts, texts, length = [], [], 0
    for clause in group:
        if clause.text:
            parts.append((length, clause))
            texts.append(clause.text)
            length += len(clause.text) + 1
    return [Unit(group[0], " ".join(texts), tuple(parts))] if parts else []


def _sentences(unit: Unit) -> Iterator[Sentence]:
    for start, clause in unit.parts:
        mark = _BEFORE.match(clause.text)
        at = mark.end() if mark else 0
        ends = [found.span() for found in _SENTENCE_END.finditer(clause.text)]
        for end, next_at in (*ends, (len(clause.text), 0)):
            # A sentence without an end is read in pieces, so that no rule is slowed down by it.
            for piece in range(at, end, _LONGEST_SENTENCE):
                words = clause.text[piece : min(end, piece + _LONGEST_SENTENCE)].strip()
                if words:
                    yield Sentence(unit, start + piece, words)
            at = next_at
