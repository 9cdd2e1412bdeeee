"""What becomes of an agent's answer: the stage's result, and session events for the contracts of later stages."""

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

from pydantic import TypeAdapter

from baton.agents.answers import AgentAnswer, AnswerForm, split_thinking
from baton.contract.activity import SessionLog
from baton.contract.records import EventType, shorten_claim
from baton.core.baton import BatonPatch
from baton.core.history import Spend
from baton.core.inputs import readable_text
from baton.core.messages import StageResult
from baton.core.notes import NO_REASONS, Notes
from baton.core.patching import without_echo
from baton.core.turns import Turn
from baton.errors import PatchError
from baton.pipelines.activity_context import StageContext


def record_text(session: SessionLog, text: str) -> None:
    """Record what a model said beside its answer, and what it thought."""
    thought, said = split_thinking(text)
    if thought:
        session.internal_note(thought)
    if said.strip():
        session.model_response(said)


def possible_notes(
    notes: bool | Literal["required"],
    form: AnswerForm,
    kind: TypeAdapter[Any] | None,
    *,
    tools: Collection[str],
    writes: Iterable[str] | None,
) -> bool | Literal["required"]:
    """Return whether a stage takes notes: a report says all itself, and a stage that writes nothing has no patch.

    Raises:
        ValueError: Notes are required of an answer that has no room for them.
    """
    if form is AnswerForm.REPORT or (writes is not None and not writes):
        return False
    if notes == "required" and form is AnswerForm.TYPED and kind is None and not tools:
        raise ValueError("notes='required': the agent's own output_type has no room for notes; pass it as answers=")
    return notes


def require_notes(answer: AgentAnswer, noted: Notes, charge: Callable[[Spend], None] | None = None) -> None:
    """Raise PatchError if an answer has no notes and none were made by tools; its cost is charged before."""
    if not noted.joined(answer.notes):
        if charge is not None:
            charge(answer.spend)
        raise PatchError(["the answer has no notes; add them in the form that you were asked for"])


def _record_notes(session: SessionLog, notes: Notes) -> None:
    """Record decisions, and what must not pass for a fact, for the contracts of later stages."""
    for text in notes.decided:
        session.decision(text)
    for text in notes.rejected:
        session.rejected_assumption(text)
    for text in notes.thoughts:
        session.brainstorm(text)


def stage_result(
    answer: AgentAnswer,
    context: StageContext[Any],
    *,
    form: AnswerForm,
    notes: bool,
    noted: Notes,
    writes: Iterable[str] | None,
) -> StageResult:
    """Record what the agent said and noted, and return its answer as the stage's result.

    Args:
        answer: The answer.
        context: The stage's context.
        form: The form of the answer.
        notes: Whether the agent was asked for notes.
        noted: What it noted by tools.
        writes: The fields that the stage may write.
    """
    for text in answer.said:
        record_text(context.session, text)
    everything = noted.joined(answer.notes) if notes and answer.claimed else Notes()
    if context.contract is not None:
        if answer.output is not None and answer.claimed:
            context.session.answer(json.dumps(answer.output, ensure_ascii=False))
        _record_notes(context.session, everything)
    own = answer.patch.to_json_object() if isinstance(answer.patch, BatonPatch) else dict(answer.patch or {})
    patch = everything.patch(context.baton, writes, own)
    warnings = []
    if notes and answer.claimed and form is not AnswerForm.PATCH and not (everything or patch or answer.report):
        warnings.append(NO_REASONS)
    warnings += everything.warnings(context.baton)
    return StageResult(
        baton_patch=without_echo(context.baton.decision_log, patch),
        output=answer.output,
        report=answer.report,
        spend=answer.spend,
        turns=list(answer.turns),
        warnings=warnings,
    )


def with_turns(result: StageResult, session: SessionLog, stage: str) -> StageResult:
    """Return a result with the turns of its session: what tools returned, and what the agent answered.

    What was marked, thought or rejected, or said between calls of tools beside notes, is left out.
    """
    turns = [
        Turn(role=f"{event.agent or stage}: {event.tool_name}", content=shorten_claim(event.content))
        for event in session.events
        if event.type is EventType.TOOL_RESULT and event.success and not event.exclude_from_handoff
    ]
    answer = result.report or (None if result.output is None else readable_text(result.output))
    turns += [Turn(role=stage, content=answer)] if answer else []
    return result.model_copy(update={"turns": [*result.turns, *(turn.to_json_object() for turn in turns)]})
