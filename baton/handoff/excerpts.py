"""What a receiver should look at first: the `relevantContext` of a stage's handoff.

It is an index of what the message has in full elsewhere (the facts of the contract, or the stage's inputs), so that a
reader of the message, or of its record, sees what the stage was given and from where. It is short on purpose.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import JsonValue

from baton.contract.records import Confidence
from baton.core.artifacts import ArtifactRef
from baton.core.inputs import decode_inputs
from baton.core.messages import StageInput
from baton.core.stages import StageSpec
from baton.handoff.records import ContextItem
from baton.personal.records import is_payload
from baton.wire.records import has_text
from baton.wire.text import cut_line

MAX_CONTEXT_ITEMS = 5
"""How many excerpts a handoff has at most, the most relevant ones."""
MAX_EXCERPT_LENGTH = 200
"""The most characters of an excerpt, and of its source."""

_CONFIDENCE = {Confidence.HIGH: 0.9, Confidence.MEDIUM: 0.6, Confidence.LOW: 0.3, Confidence.UNVERIFIED: 0.1}
_WHOLE, _GIVEN = 1.0, 0.5


def relevant_context(spec: StageSpec, stage_input: StageInput) -> list[ContextItem]:
    """Return excerpts of a stage's facts, or where it has none of its inputs, the most relevant first.

    The score of a fact is its confidence: 0.9, 0.6, 0.3, or 0.1 if it is unverified. That of an input is 1 if the
    stage declares that its prompt needs all of it (`whole`), else 0.5. Sealed personal data has no excerpt.

    Args:
        spec: The stage.
        stage_input: What it is given.
    """
    facts = (stage_input.contract or {}).get("facts")
    items = [*_fact_items(facts)] if isinstance(facts, list) else []
    items = items or [*_input_items(spec, stage_input.inputs)]
    items.sort(key=lambda item: -item.relevance_score)  # of equal score in their order
    return items[:MAX_CONTEXT_ITEMS]


def _fact_items(facts: list[Any]) -> Iterator[ContextItem]:
    for fact in facts:
        source, excerpt = _cut(fact["source"]["source"]), _cut(fact["claim"])
        if has_text(source) and has_text(excerpt):
            score = _CONFIDENCE[Confidence(fact["confidence"])]
            yield ContextItem(source=source, excerpt=excerpt, relevance_score=score)


def _input_items(spec: StageSpec, inputs: Mapping[str, JsonValue]) -> Iterator[ContextItem]:
    for name, value in decode_inputs(inputs).items():
        if not _is_sealed(value) and has_text(excerpt := _cut(_beginning(value))):
            yield ContextItem(source=name, excerpt=excerpt, relevance_score=_WHOLE if name in spec.whole else _GIVEN)


def _is_sealed(value: Any) -> bool:
    """Return whether a value is personal data from the vault; anything else is not parsed."""
    return isinstance(value, dict) and next(iter(value), "").startswith("sub-") and is_payload(value)


def _beginning(value: Any) -> str:
    """Return the beginning of an input as text, without writing all of a large one."""
    match value:
        case str():
            return value[: 2 * MAX_EXCERPT_LENGTH]
        case ArtifactRef():
            return f"artifact {value.id} ({value.type}): {value.summary or value.path or value.short_hash}"
        case _:
            parts = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(value)
            return "".join(islice(parts, MAX_EXCERPT_LENGTH))


def _cut(text: str) -> str:
    """Return a text on one line, cut to the length of an excerpt."""
    return cut_line(text[: 2 * MAX_EXCERPT_LENGTH], MAX_EXCERPT_LENGTH)
