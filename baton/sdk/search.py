"""The search attributes of a pipeline's start."""

from collections.abc import Sequence
from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from baton.wire.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_TASK, ATTRIBUTE_UNTIL, NOT_WAITING

_PIPELINE = SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE)
_TASK = SearchAttributeKey.for_keyword(ATTRIBUTE_TASK)
_UNTIL = SearchAttributeKey.for_datetime(ATTRIBUTE_UNTIL)


def start_attributes(pipeline: str, task_id: str | None) -> list[SearchAttributePair[Any]]:
    """Return the search attributes for the start of a pipeline."""
    return [
        SearchAttributePair(_PIPELINE, pipeline),
        SearchAttributePair(_TASK, task_id or ""),
        SearchAttributePair(_UNTIL, NOT_WAITING),
    ]


def add_attributes(existing: object, added: Sequence[SearchAttributePair[Any]]) -> TypedSearchAttributes:
    """Return the caller's search attributes with Baton's added."""
    if existing is not None and not isinstance(existing, TypedSearchAttributes):
        raise TypeError("search_attributes must be TypedSearchAttributes for a pipeline; found the untyped form")
    names = {pair.key.name for pair in added}
    return TypedSearchAttributes([*(pair for pair in existing or () if pair.key.name not in names), *added])
