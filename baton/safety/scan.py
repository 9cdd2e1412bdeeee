"""The safety scan of a handoff: every text of the message, a port for detectors, the pipeline's policy, waivers.

With a waiver, a person decides that a text which the scan rejected is a false alarm. It is for the text that was
scanned, named by its digest: the same text passes in later handoffs of the run, any other is rejected as before.
Waivers travel in the signed handoff, so no sender can write one for itself, and none comes back from a child pipeline,
whose result is not signed.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from baton.core.verdict import Code, Finding, Verdict
from baton.wire.json_values import format_digest, sha256
from baton.wire.records import CompactRecord, Integer, Statement
from baton.wire.schemas import format_pointer, parse_pointer

MAX_FINDINGS = 50
"""A report lists so many findings, the strongest first, and counts the others."""

LONGEST_PATH = 200
"""Longer paths are cut."""


class Category(StrEnum):
    """The two kinds of attack that the document names (EAAPL-MAG006 §7.2)."""

    PROMPT_INJECTION = "prompt_injection"
    JAILBREAK = "jailbreak"


class Level(StrEnum):
    """What follows from a finding: the handoff gets a label, or goes to the dead-letter queue."""

    FLAG = "flag"
    REJECT = "reject"


class Suspicion(NamedTuple):
    """What a detector reports about one text.

    Attributes:
        at: The index of the text; of an attack that is spread over several, the first.
        category: The kind of attack.
        rules: The signs that were found, the strongest first; a classifier gives its own name.
        score: How sure the detector is; by default 5 is a flag and 10 a rejection.
        view: The reading of the text in which it was found, such as `plain` or `decoded`.
    """

    at: int
    category: Category
    rules: tuple[str, ...]
    score: int
    view: str = "plain"


Detector = Callable[[Sequence[str]], Sequence[Suspicion]]
"""The port: returns which of a message's texts are suspect. It must read all of every text.

What it raises is raised by `scan`; a gate that catches it has to refuse the handoff.
"""


class Leaf(NamedTuple):
    """One text of a message, and whether it is the key of the member at its place or the value."""

    place: "_Place"
    text: str
    is_key: bool = False

    @property
    def path(self) -> str:
        """A JSON pointer (RFC 6901) to the member."""
        steps: list[str | int] = []
        place = self.place
        while place:
            place, step = place
            steps.append(step)
        return format_pointer(steps[::-1])


# The place of a value: the place of what holds it, and its key or index.
_Place = tuple[Any, str | int] | None


class Unsafe(NamedTuple):
    """A place that is not safe for the receiver."""

    at: str
    rule: str


class ScanFinding(CompactRecord):
    """One thing that the scan found.

    Attributes:
        category: The kind of attack.
        level: What follows from it under the pipeline's policy.
        rule: The strongest sign that was found.
        also: Further signs in the same window.
        path: A JSON pointer to the member, at most `LONGEST_PATH` characters of it. A key that is not a plain name,
            and could be the attack itself, is replaced by its position in braces: `/notes/{2}`.
        in_key: Whether it is in the member's key and not in its value.
        view: The reading in which it was found; `joined+…` if it is spread over this member and those after it.
        score: The sum of the signs.
    """

    category: Category = Field(strict=False)
    level: Level = Field(strict=False)
    rule: str
    also: list[str] = Field(default_factory=list)
    path: str
    in_key: bool = False
    view: str = "plain"
    score: Integer = Field(ge=0)

    @property
    def unsafe(self) -> Unsafe:
        """The place and the rule, as a verdict takes them."""
        return Unsafe(self.path, f"{self.category.value}:{self.rule}")


class ScanReport(CompactRecord):
    """The result of a scan; true if nothing is worth a rejection.

    Attributes:
        findings: The strongest first, at most `MAX_FINDINGS`.
        omitted: How many more there are.
    """

    findings: list[ScanFinding] = Field(default_factory=list)
    omitted: Integer = Field(default=0, ge=0)

    def __bool__(self) -> bool:
        return self.level is not Level.REJECT

    @property
    def level(self) -> Level | None:
        """The highest level found; None if nothing was."""
        return self.findings[0].level if self.findings else None

    @property
    def violations(self) -> list[Unsafe]:
        """What rejects."""
        return [finding.unsafe for finding in self.findings if finding.level is Level.REJECT]

    @property
    def labels(self) -> list[str]:
        """What only flags, each once: `prompt_injection:disclosure.system_prompt at /note`."""
        flagged = (finding.unsafe for finding in self.findings if finding.level is Level.FLAG)
        return list(dict.fromkeys(f"{one.rule} at {one.at or '/'}" for one in flagged))


class ScanPolicy(CompactRecord):
    """What follows from suspicions in a pipeline. Keep the default where you can: every exception is a hole.

    Attributes:
        flag_at: The score from which a finding becomes a label.
        reject_at: The score from which the handoff is rejected.
        allow: Phrases that are harmless here, such as the title of a document about attacks; they count as blanks,
            in any case of letters.

    Example:
        >>> ScanPolicy(flag_at=8, allow=["Ignore previous instructions considered harmful"]).reject_at
        10
    """

    flag_at: Integer = Field(default=5, ge=1)
    reject_at: Integer = Field(default=10, ge=1)
    allow: list[Statement] = Field(default_factory=list)

    @model_validator(mode="after")
    def _lines_in_order(self) -> "ScanPolicy":
        if self.reject_at < self.flag_at:
            raise ValueError(
                f"reject_at is {self.reject_at} and flag_at {self.flag_at}: what is rejected is also flagged, so"
                " flag_at must be at most reject_at"
            )
        return self


def leaves(message: Any) -> Iterator[Leaf]:
    """Yield every text of a parsed message, of any depth and shape: the values in document order, then the keys."""
    keys: list[Leaf] = []
    stack: list[tuple[_Place, Any]] = [(None, message)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, str):
            yield Leaf(place, value)
        elif isinstance(value, dict):
            keys += [Leaf((place, key), key, True) for key in value]
            stack += [((place, key), value[key]) for key in reversed(value)]
        elif isinstance(value, list | tuple):
            stack += [((place, at), member) for at, member in reversed([*enumerate(value)])]
    yield from keys


def scan(message: Any, detector: Detector, policy: ScanPolicy | None = None) -> ScanReport:
    """Scan every text of a message (EAAPL-MAG006 §6.1, §10.1)."""
    policy = policy or _DEFAULT
    chosen = list(leaves(message))
    looked_at = [leaf.text for leaf in chosen]
    if policy.allow:
        harmless = re.compile("|".join(map(re.escape, policy.allow)), re.IGNORECASE)
        looked_at = [harmless.sub(" ", text) for text in looked_at]
    kept = [it for it in detector(looked_at) if it.score >= policy.flag_at]
    if not kept:
        return _CLEAN
    kept.sort(key=lambda suspicion: -suspicion.score)
    found = [_finding(one, message, chosen[one.at], policy) for one in kept[:MAX_FINDINGS]]
    return ScanReport(findings=found, omitted=len(kept) - len(found))


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:$@-]{1,64}")
_DEFAULT = ScanPolicy()
_CLEAN = ScanReport()


def _finding(suspicion: Suspicion, message: Any, leaf: Leaf, policy: ScanPolicy) -> ScanFinding:
    """Return the finding for a suspicion."""
    return ScanFinding(
        category=suspicion.category,
        level=Level.REJECT if suspicion.score >= policy.reject_at else Level.FLAG,
        rule=suspicion.rules[0],
        also=list(suspicion.rules[1:]),
        path=_shown(message, leaf),
        in_key=leaf.is_key,
        view=suspicion.view,
        score=suspicion.score,
    )


def _shown(message: Any, leaf: Leaf) -> str:
    """Return the path of a text so that no key is quoted that could be an attack, or a secret."""
    shown, node = "", message
    keys = parse_pointer(leaf.path)
    for depth, key in enumerate(keys, 1):
        if isinstance(node, dict):
            is_plain = _PLAIN_NAME.fullmatch(key) and not (leaf.is_key and depth == len(keys))
            shown += f"/{key}" if is_plain else f"/{{{list(node).index(key)}}}"
            node = node[key]
        else:
            shown += f"/{key}"
            node = node[int(key)]
        if len(shown) > LONGEST_PATH:
            return shown[: LONGEST_PATH - 1] + "…"
    return shown


def found_at(message: Mapping[str, Any], pointer: str) -> tuple[list[str], Any] | None:
    """Return what a finding's pointer leads to, and the keys that it names by their positions; None if nothing."""
    value: Any = message
    keys: list[str] = []
    for step in parse_pointer(pointer):
        position = step[1:-1] if step.startswith("{") and step.endswith("}") else ""
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, Mapping) and position.isdecimal() and int(position) < len(value):
            keys.append([*value][int(position)])
            value = value[keys[-1]]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return keys, value


def text_digest(message: Mapping[str, Any], pointer: str) -> str | None:
    """Return the digest of the text at a finding's pointer, or None where it is not certain which text that is."""
    found = found_at(message, pointer) if len(pointer) < LONGEST_PATH else None  # a longer one may have been cut
    if found is None:
        return None
    keys, value = found
    if not keys and not isinstance(value, str):
        return None
    text = json.dumps([*keys, value if isinstance(value, str) else None])
    return format_digest(sha256(text.encode()))


def digests_of(message: Mapping[str, Any], findings: Iterable[Finding]) -> list[str]:
    """Return the digests of the texts that a rejected message's safety findings are about, each once."""
    about = (text_digest(message, one.at) for one in findings if one.code is Code.SAFETY_VIOLATION)
    return [digest for digest in dict.fromkeys(about) if digest is not None]


def after_release(verdict: Verdict, message: Mapping[str, Any]) -> tuple[Verdict, str | None]:
    """Return a verdict without the findings that are waived, and the names of who waived them, or None."""
    step = message.get("step")
    released = step.get("released") if isinstance(step, Mapping) else None
    if not isinstance(released, Mapping) or verdict.valid:
        return verdict, None
    by: dict[str, None] = {}
    left = []
    for finding in verdict.findings:
        digest = text_digest(message, finding.at) if finding.code is Code.SAFETY_VIOLATION else None
        who = None if digest is None else released.get(digest)
        if isinstance(who, str):
            by[who] = None
        else:
            left.append(finding)
    return (Verdict.of(left), ", ".join(by)) if by else (verdict, None)
