"""The reviewers, behind Baton's port: analysers find, a configured model adds what it can quote from the code.

Each writes its whole review as an artifact and answers with a handoff report to the coordinator.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import inf

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.code_review.analysers import ANALYSERS, Analysis, Copies, Found, copies_of
from activities.code_review.records import (
    Concern,
    Finding,
    Review,
    Severity,
    Snapshot,
    SourceText,
    Unread,
    count_by_severity,
    in_order,
    is_test,
)
from activities.code_review.reports import REVIEWERS, reviewer_report
from activities.models import ask_model
from baton.agents import AgentAnswer, AgentWork
from baton.contract.activity import ToolAnswer
from baton.report.rendering import render_report

_TASKS: dict[Concern, str] = {
    "security": "You are a security auditor. Find weaknesses that somebody could use against the program",
    "performance": "You are a performance reviewer. Find code that is slow, blocks, or grows faster than its input",
}
_HOW = (
    "For each finding give the path, the number of its line, and that line word for word as the quote; leave out what "
    "you are not sure of. Where changed passages are given, only these are under review."
)
_PORTION = 60_000  # characters
_MOST_PORTIONS = 20
_REPORTED = 2
"""How many findings the report tells; the artifact has them all."""


class Claim(BaseModel):
    """One finding, as a model claims it."""

    model_config = ConfigDict(extra="forbid")

    path: str
    line: int = Field(ge=1)
    quote: str = Field(min_length=6, max_length=400)
    severity: Severity
    message: str = Field(min_length=1, max_length=400)


class Claims(BaseModel):
    """All that a model claims of one portion of the code."""

    findings: list[Claim] = Field(default_factory=list, max_length=50)


class Reviewer:
    """Reviews a snapshot for one concern."""

    def __init__(self, concern: Concern) -> None:
        self._concern = concern

    @property
    def name(self) -> str:
        """The agent's name, which is its stage's."""
        return REVIEWERS[self._concern]

    @property
    def tool_names(self) -> frozenset[str]:
        """The analysers, which the contract must allow."""
        return frozenset(ANALYSERS[self._concern])

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the analysers one after the other, ask the model, and report the gravest findings."""
        context = work.context
        snapshot = await asyncio.to_thread(Snapshot.model_validate_json, await context.artifacts.read("snapshot"))
        found: list[Found] = []
        async with copies_of(snapshot) as copies:
            for name, analyse in ANALYSERS[self._concern].items():
                found.append(await context.tools.call(name, partial(_with_claim, analyse, copies)))
        claims: list[Claim] = []
        portions, shown = list(_portions(snapshot)), 0
        for portion in portions[:_MOST_PORTIONS]:
            if context.charged.micro_usd >= (work.limits.micro_usd or inf):
                break
            answer = await ask_model(work, f"{_TASKS[self._concern]}. {_HOW}", portion, Claims)
            if answer is None:
                break
            claims += answer.findings
            shown += 1
        review = await asyncio.to_thread(review_of, self._concern, snapshot, found, claims if shown else None)
        if 0 < shown < len(portions):
            left = f"the model read {shown} of {len(portions)} portions of the code"
            review = review.model_copy(update={"analysers": (*review.analysers, left)})
        counts = count_by_severity(review.open)
        summary = f"{len(review.open)} findings"
        id = f"{self._concern}-review"
        await context.artifacts.write(id, review.model_dump_json(), type=id, summary=summary)
        report = render_report(reviewer_report(review, snapshot, most=_REPORTED))
        return AgentAnswer(report=report, output={**counts}, claimed=False)


async def _with_claim(analyse: Analysis, copies: Copies) -> ToolAnswer:
    """Run an analyser; later contracts have the sentence on what it found."""
    found = await analyse(copies)
    return ToolAnswer(found, claim=found.claim)


def review_of(
    concern: Concern, snapshot: Snapshot, found: Sequence[Found], claims: Sequence[Claim] | None = None
) -> Review:
    """Return what a reviewer makes of what was found.

    What bandit and ruff find at one place is one finding. In tests an assertion is not a finding, and nothing about
    performance is graver than low. A claim whose quote is not in its file is dropped. Of a change only what is in its
    lines counts.

    Args:
        concern: What the reviewer looks for.
        snapshot: The code under review.
        found: What the analysers found, bandit before ruff.
        claims: What a model claims; None if none was asked.
    """
    files = {file.path: file for file in snapshot.files}
    quoted = [_quoted(concern, claim, files.get(claim.path)) for claim in claims or ()]
    findings = [*_joined(one for each in found for one in each.findings), *(one for one in quoted if one)]
    kept = []
    for one in findings:
        file = files[one.path]
        if not file.covers(one.line, one.end_line) or (is_test(one.path) and one.rule in ("B101", "S101")):
            continue
        is_slight = is_test(one.path) and concern == "performance"
        kept.append(one.model_copy(update={"severity": "low"}) if is_slight else one)
    broken = sorted({path for each in found for path in each.broken})
    others = sorted(file.path for file in snapshot.files if file.language != "Python")
    reader = "these analysers do not" if claims is None else "only the model did"
    groups = {"not to be parsed as Python": broken, f"in other languages, which {reader} read": others}
    return Review(
        concern=concern,
        analysers=(*(each.analyser for each in found), *(["the configured model"] if claims is not None else [])),
        findings=in_order(kept),
        unread=tuple(
            Unread(reason=reason, count=len(paths), examples=tuple(paths[:5]))
            for reason, paths in groups.items()
            if paths
        ),
        rejected=quoted.count(None),
    )


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with those that bandit and ruff make at one place as one, which is surer."""
    joined: list[Finding] = []
    by_place: dict[tuple[str, int, str], int] = {}
    for one in findings:
        place = one.path, one.line, one.rule[1:]
        at = by_place.get(place)
        if at is None or joined[at].by == one.by:
            by_place.setdefault(place, len(joined))
            joined.append(one)
        else:
            twin = joined[at]
            both = {"by": (*twin.by, *one.by), "confidence": 98, "suppressed": twin.suppressed or one.suppressed}
            joined[at] = twin.model_copy(update=both)
    return joined


def _quoted(concern: Concern, claim: Claim, file: SourceText | None) -> Finding | None:
    """Return a model's claim as a finding at the line that it quotes; None if no line has the words."""
    quote = " ".join(claim.quote.split())
    lines = [] if file is None else file.text.split("\n")
    found = [number for number, line in enumerate(lines, 1) if quote in " ".join(line.split())]
    if not found or len(quote) < 6:
        return None
    line = min(found, key=lambda number: abs(number - claim.line))
    return Finding(
        path=claim.path,
        line=line,
        end_line=line,
        concern=concern,
        severity=claim.severity,
        rule=f"MODEL-{concern}",
        message=" ".join(claim.message.split()),
        by=("model",),
        confidence=60,
        code=quote[:200],
    )


def _portions(snapshot: Snapshot) -> Iterator[JsonValue]:
    """Yield the code in portions that a model can read; a file that is too long for one is cut."""
    portion: list[JsonValue] = []
    size = 0
    for file in snapshot.files:
        text = file.text[:_PORTION]
        if portion and size + len(text) > _PORTION:
            yield portion
            portion, size = [], 0
        changed: JsonValue = None if file.changed is None else [[first, last] for first, last in file.changed]
        portion.append({"path": file.path, "language": file.language, "changed": changed, "text": text})
        size += len(text)
    if portion:
        yield portion
