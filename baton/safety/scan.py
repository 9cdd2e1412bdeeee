"""The safety scan of a handoff: every text of the message, a port for detectors, the pipeline's policy, waivers.

With a waiver, a person decides that a rejected text is a false alarm. The waiver names the text's digest: the same text
passes in later handoffs of the run, and any other text is still rejected. Waivers travel in the signed handoff, so no
sender can write one for itself, and none comes from a child pipeline, whose result is not signed.
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
from baton.wire.text import single_line

MAX_FINDINGS = 50
"""The most findings of a report, the strongest first; it counts the others."""

MAX_PATH_LENGTH = 200
"""Longer paths are truncated."""

INJECTION = "Injection pattern detected in context"
"""The document's own words for an unsafe text."""


class Category(StrEnum):
    """The kinds of attack (EAAPL-MAG006 §7.2)."""

    PROMPT_INJECTION = "prompt_injection"
    JAILBREAK = "jailbreak"


class Level(StrEnum):
    """The consequence of a finding: the handoff gets a label, or goes to the dead-letter queue."""

    FLAG = "flag"
    REJECT = "reject"


class Suspicion(NamedTuple):
    """A detector's report on one text.

    Attributes:
        at: The index of the text; the first, if the attack spans several.
        category: The kind of attack.
        rules: The signs, strongest first; a classifier uses its own name.
        score: The detector's confidence; by default 5 is a flag and 10 a rejection.
        view: The reading of the text with the signs, such as `plain` or `decoded`.
    """

    at: int
    category: Category
    rules: tuple[str, ...]
    score: int
    view: str = "plain"


Detector = Callable[[Sequence[str]], Sequence[Suspicion]]
"""The port: returns which texts of a message are suspicious. It must read all of every text.

`scan` raises its exceptions; a gate that catches them must refuse the handoff.
"""


class Leaf(NamedTuple):
    """One text of a message: a value, or the key of a member."""

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


# The place of a value: the place of its container, and its key or index.
_Place = tuple[Any, str | int] | None


def violation(at: str, rule: str) -> Finding:
    """Return a verdict's finding of an unsafe text; a path can contain the sender's text, so it is one short line."""
    return Finding(code=Code.SAFETY_VIOLATION, text=INJECTION, at=single_line(at)[:MAX_PATH_LENGTH], rule=rule)


class ScanFinding(CompactRecord):
    """A finding of the scan.

    Attributes:
        category: The kind of attack.
        level: The consequence under the pipeline's policy.
        rule: The strongest sign.
        also: Further signs in the same window.
        path: A JSON pointer to the member, at most `MAX_PATH_LENGTH` characters of it. A key that is not a plain name,
            and could be the attack itself, is replaced by its position in braces: `/notes/{2}`.
        in_key: Whether the signs are in the member's key instead of its value.
        view: The reading with the signs; `joined+…` if they span this member and the next ones.
        score: The sum of the points.
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
    def sign(self) -> str:
        """The category and the rule, such as `prompt_injection:override.en`."""
        return f"{self.category.value}:{self.rule}"


class ScanReport(CompactRecord):
    """The result of a scan; true unless the message is rejected.

    Attributes:
        findings: The findings, strongest first, at most `MAX_FINDINGS`.
        omitted: The number of further findings.
    """

    findings: list[ScanFinding] = Field(default_factory=list)
    omitted: Integer = Field(default=0, ge=0)

    def __bool__(self) -> bool:
        return self.level is not Level.REJECT

    @property
    def level(self) -> Level | None:
        """The highest level, or None without findings."""
        return self.findings[0].level if self.findings else None

    @property
    def violations(self) -> list[Finding]:
        """The findings for which the message is rejected, as a verdict has them."""
        return [violation(finding.path, finding.sign) for finding in self.findings if finding.level is Level.REJECT]

    @property
    def labels(self) -> list[str]:
        """Labels for what is only flagged, such as `prompt_injection:disclosure.system_prompt at /note`."""
        flagged = (finding for finding in self.findings if finding.level is Level.FLAG)
        return list(dict.fromkeys(f"{finding.sign} at {finding.path or '/'}" for finding in flagged))


class ScanPolicy(CompactRecord):
    """The consequences of suspicions in a pipeline. Keep the default if possible: each exception is a hole.

    Attributes:
        flag_at: The score from which a finding becomes a label.
        reject_at: The score from which the handoff is rejected.
        allow: Phrases that are harmless here, such as the title of a document about attacks; they are read as blanks,
            in upper or lower case.

    Example:
        >>> ScanPolicy(flag_at=8, allow=["Ignore previous instructions considered harmful"]).reject_at
        10
    """

    flag_at: Integer = Field(default=5, ge=1)
    reject_at: Integer = Field(default=10, ge=1)
    allow: list[Statement] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_order(self) -> "ScanPolicy":
        if self.reject_at < self.flag_at:
            raise ValueError(
                f"reject_at is {self.reject_at} and flag_at {self.flag_at}: what is rejected is also flagged, so"
                " flag_at must be at most reject_at"
            )
        return self


def leaves(message: Any) -> Iterator[Leaf]:
    """Yield every text of a parsed message, of any depth: the values in document order, then the keys."""
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
            stack += [((place, index), member) for index, member in reversed([*enumerate(value)])]
    yield from keys


def _list_texts(message: Any) -> list[str]:
    """Return the texts of `leaves`, in its order; their places, which cost more, are for findings only."""
    texts: list[str] = []
    keys: list[str] = []
    stack = [message]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            keys += value
            stack += reversed(value.values())
        elif isinstance(value, list | tuple):
            stack += reversed(value)
    return texts + keys


def scan(message: Any, detector: Detector, policy: ScanPolicy | None = None) -> ScanReport:
    """Scan every text of a message (EAAPL-MAG006 §6.1, §10.1)."""
    policy = policy or _DEFAULT
    texts = _list_texts(message)
    if policy.allow:
        harmless = re.compile("|".join(map(re.escape, policy.allow)), re.IGNORECASE)
        texts = [harmless.sub(" ", text) for text in texts]
    suspicions = [suspicion for suspicion in detector(texts) if suspicion.score >= policy.flag_at]
    if not suspicions:
        return _CLEAN
    all_leaves = list(leaves(message))
    suspicions.sort(key=lambda suspicion: -suspicion.score)
    reported = suspicions[:MAX_FINDINGS]
    findings = [_build_finding(suspicion, message, all_leaves[suspicion.at], policy) for suspicion in reported]
    return ScanReport(findings=findings, omitted=len(suspicions) - len(findings))


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:$@-]{1,64}")
_DEFAULT = ScanPolicy()
_CLEAN = ScanReport()


def _build_finding(suspicion: Suspicion, message: Any, leaf: Leaf, policy: ScanPolicy) -> ScanFinding:
    return ScanFinding(
        category=suspicion.category,
        level=Level.REJECT if suspicion.score >= policy.reject_at else Level.FLAG,
        rule=suspicion.rules[0],
        also=list(suspicion.rules[1:]),
        path=_safe_path(message, leaf),
        in_key=leaf.is_key,
        view=suspicion.view,
        score=suspicion.score,
    )


def _safe_path(message: Any, leaf: Leaf) -> str:
    """Return the path of a text without quoting keys that could be an attack or a secret."""
    path, node = "", message
    keys = parse_pointer(leaf.path)
    for depth, key in enumerate(keys, 1):
        if isinstance(node, dict):
            is_plain = _PLAIN_NAME.fullmatch(key) and not (leaf.is_key and depth == len(keys))
            path += f"/{key}" if is_plain else f"/{{{list(node).index(key)}}}"
            node = node[key]
        else:
            path += f"/{key}"
            node = node[int(key)]
        if len(path) > MAX_PATH_LENGTH:
            return path[: MAX_PATH_LENGTH - 1] + "…"
    return path


def resolve_path(message: Mapping[str, Any], pointer: str) -> tuple[list[str], Any] | None:
    """Return the keys that a finding's path gives by position, and its value; None if it leads nowhere."""
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
    """Return the digest of the text at a finding's path, or None if the path is ambiguous."""
    resolved = resolve_path(message, pointer) if len(pointer) < MAX_PATH_LENGTH else None  # else truncated
    if resolved is None:
        return None
    keys, value = resolved
    if not keys and not isinstance(value, str):
        return None
    text = json.dumps([*keys, value if isinstance(value, str) else None])
    return format_digest(sha256(text.encode()))


def unsafe_digests(message: Mapping[str, Any], findings: Iterable[Finding]) -> list[str]:
    """Return the digests of the texts of a rejected message's safety findings, without duplicates."""
    digests = (text_digest(message, finding.at) for finding in findings if finding.code is Code.SAFETY_VIOLATION)
    return [digest for digest in dict.fromkeys(digests) if digest is not None]


def apply_waivers(verdict: Verdict, message: Mapping[str, Any]) -> tuple[Verdict, str | None]:
    """Return a verdict without waived findings, and the names of the people who waived them, or None."""
    step = message.get("step")
    waivers = step.get("released") if isinstance(step, Mapping) else None
    if not isinstance(waivers, Mapping) or verdict.valid:
        return verdict, None
    names: dict[str, None] = {}
    remaining = []
    for finding in verdict.findings:
        digest = text_digest(message, finding.at) if finding.code is Code.SAFETY_VIOLATION else None
        who = None if digest is None else waivers.get(digest)
        if isinstance(who, str):
            names[who] = None
        else:
            remaining.append(finding)
    return (Verdict.of(remaining), ", ".join(names)) if names else (verdict, None)
