"""A stage, opened: what it was given, what its agent saw, what it did, returned, and why attempts were refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baton import StepKind
from baton.client import Explanation, RunRecord, StageInput, StageReturn, Step, explain
from baton.console.content import Content, value_content
from baton.console.relay import WIDTH
from baton.errors import HistoryError


@dataclass(frozen=True)
class Part:
    """One part of a context window.

    Attributes:
        name: The part.
        tokens: The tokens of all of it.
        shown: The tokens of what the agent saw.
        why: What was left out; empty where it is whole.
        x: Where it begins in the bar.
        width: How wide it is there.
        tone: Its colour, from 1 to 5.
    """

    name: str
    tokens: int
    shown: int
    why: str
    x: float
    width: float
    tone: int


@dataclass(frozen=True)
class Work:
    """What one stage of a step did.

    Attributes:
        name: The stage.
        sent: What it was sent, an entry for each attempt.
        returned: What it returned and the pipeline took over; None if it did not, or nothing yet.
        window: The parts of its agent's context window.
        explanation: What its agent saw by contract, and what was left out; None where it has none.
        calls: The tools it called, with what they answered.
        inputs: What it worked on, by name.
        output: What it returned beside the patch.
        message: The handoff that brought its work.
    """

    name: str
    sent: list[StageInput]
    returned: StageReturn | None = None
    window: list[Part] = field(default_factory=list)
    explanation: Explanation | None = None
    calls: Sequence[Mapping[str, Any]] = field(default_factory=list)
    inputs: list[tuple[str, Content]] = field(default_factory=list)
    output: Content | None = None
    message: Mapping[str, Any] | None = None

    @property
    def refusals(self) -> list[tuple[int, list[str]]]:
        """The findings against each attempt that was refused."""
        return [(one.attempt - 1, one.findings) for one in self.sent if one.findings]


def works(run: RunRecord, step: Step, messages: Mapping[str, Mapping[str, Any]]) -> list[Work]:
    """Return what each stage of a step did."""
    if step.kind not in (StepKind.STAGE, StepKind.MERGE):
        return []
    sent: dict[str, list[StageInput]] = {}
    for given in run.inputs:
        if given.seq == step.seq:
            sent.setdefault(given.stage, []).append(given)
    returned = {one.stage: one for _, one in run.accepted if one.seq == step.seq}
    for name in returned:
        sent.setdefault(name, [])
    return [_work(run, step, name, given, returned.get(name), messages) for name, given in sent.items()]


def _work(
    run: RunRecord,
    step: Step,
    name: str,
    sent: list[StageInput],
    returned: StageReturn | None,
    messages: Mapping[str, Mapping[str, Any]],
) -> Work:
    try:
        told = explain(run, name, {step.seq})
    except HistoryError:
        told = None
    last = sent[-1] if sent else None
    events = returned.events if returned else []
    calls = [one for one in events if str(one.get("type", "")).startswith("tool_")]
    return Work(
        name=name,
        sent=sent,
        returned=returned,
        window=_window(run, step.seq, name),
        explanation=told,
        calls=calls or (returned.tool_calls if returned else []),
        inputs=[(key, value_content(value)) for key, value in (last.inputs if last else {}).items()],
        output=value_content(returned.output) if returned and returned.output is not None else None,
        message=messages.get(last.handoff_id) if last else None,
    )


def _window(run: RunRecord, seq: int, stage: str) -> list[Part]:
    """Return the parts of a context window, as a bar of what was shown."""
    parts = run.prompts.get((seq, stage), [])
    whole = sum(part.shown for part in parts) or 1
    made: list[Part] = []
    x = 0.0
    for place, part in enumerate(parts):
        width = round(WIDTH * part.shown / whole, 1)
        made.append(Part(part.name, part.tokens, part.shown, part.why, round(x, 1), width, place % 5 + 1))
        x += width
    return made
