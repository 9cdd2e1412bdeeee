"""What a model says of the code, as far as the code bears it out.

The model reads the same snapshot as the analysers, whatever language it is in. Each of its claims must quote a line;
a claim whose words do not stand in the file it names is dropped, and counted.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.code_review.analysers import Found
from activities.code_review.records import Analyser, Concern, Finding, Severity, Snapshot, SourceText
from activities.workbench.asking import Model
from baton import StageContext

_PORTION = 60_000
_MOST_PORTIONS = 20
_SHORTEST_QUOTE = 6
_SURE = 60
_TASKS: dict[Concern, str] = {
    "security": "You are a security auditor. Find weaknesses that somebody could use against the program",
    "performance": "You are a performance reviewer. Find code that is slow, blocks, or grows faster than its input",
}

Short = Annotated[str, Field(min_length=1, max_length=400)]


class Claim(BaseModel):
    """One finding, as the model claims it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    line: int = Field(ge=1)
    quote: str = Field(max_length=400)
    severity: Severity
    message: Short
    advice: str = Field(default="", max_length=400)


class Claims(BaseModel):
    """All that the model claims of one portion of the code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    findings: list[Claim] = Field(default_factory=list, max_length=50)


async def ask_model(
    context: StageContext[Any], model: Model, concern: Concern, snapshot: Snapshot
) -> tuple[Found, int]:
    """Return what a model finds in the snapshot, and how many of its claims were dropped.

    Args:
        context: The reviewer's context.
        model: The model.
        concern: What to look for.
        snapshot: The code under review.

    Raises:
        ModelError: Another attempt may help.
        ModelRefusedError: None will.
    """
    task = (
        f"{_TASKS[concern]}. For each finding give the path, the number of its line, and that line word for word as "
        "the quote; leave out what you are not sure of. Only changed passages are under review, where they are given."
    )
    files = {file.path: file for file in snapshot.files}
    findings: list[Finding] = []
    dropped = 0
    portions = list(_portions(snapshot))
    for portion in portions[:_MOST_PORTIONS]:
        claims = await model.ask(context, task, portion, Claims)
        for claim in claims.findings:
            line = _line_of(claim, files.get(claim.path))
            if line is None:
                dropped += 1
            else:
                findings.append(_finding(claim, line, concern, model.name))
    looked_for = f"{concern}, in every language"
    if len(portions) > _MOST_PORTIONS:
        looked_for += f"; it was shown {_MOST_PORTIONS} of {len(portions)} portions"
    return Found(Analyser(name=model.name, version="", looked_for=looked_for, every_language=True), findings), dropped


def _portions(snapshot: Snapshot) -> Iterator[JsonValue]:
    """Yield the code in portions that a model can read; a file that is too long for one is cut."""
    portion: list[JsonValue] = []
    size = 0
    for file in snapshot.files:
        text = file.text[:_PORTION]
        if portion and size + len(text) > _PORTION:
            yield portion
            portion, size = [], 0
        passages: JsonValue = [[first, last] for first, last in file.changed] if file.changed is not None else None
        portion.append({"path": file.path, "language": file.language, "changed": passages, "text": text})
        size += len(text)
    if portion:
        yield portion


def _line_of(claim: Claim, file: SourceText | None) -> int | None:
    """Return the line that a claim quotes, the nearest to where it says; None where no line has the words."""
    quote = " ".join(claim.quote.split())
    if file is None or len(quote) < _SHORTEST_QUOTE:
        return None
    lines = file.text.split("\n")
    found = [number for number, line in enumerate(lines, 1) if quote in " ".join(line.split())]
    return min(found, key=lambda number: abs(number - claim.line)) if found else None


def _finding(claim: Claim, line: int, concern: Concern, model: str) -> Finding:
    return Finding(
        path=claim.path,
        line=line,
        end_line=line,
        concern=concern,
        severity=claim.severity,
        rule=f"MODEL-{concern}",
        name=f"model-{concern}",
        message=" ".join(claim.message.split()),
        by=(model,),
        confidence=_SURE,
        advice=" ".join(claim.advice.split()),
        code=" ".join(claim.quote.split())[:200],
    )
