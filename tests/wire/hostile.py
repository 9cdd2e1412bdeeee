"""Hostile shapes for every record that crosses the wire, and a measure of the work that reading one takes."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from pydantic import BaseModel, ValidationError

from baton import BatonPatch, HandoffReport, PipelineResult
from baton.client import Answer
from baton.contract.records import HandoffContract
from baton.core.messages import PipelineInput, StageInput, StageReturn
from baton.exchange.external import AgentAction
from baton.exchange.records import Acknowledgement
from baton.exchange.workflow_streams import Chunk
from baton.handoff.records import Handoff
from baton.wire.records import OpenRecord

WIRE_RECORDS: tuple[type[BaseModel], ...] = (
    Acknowledgement,
    BatonPatch,
    Chunk,
    Answer,
    Handoff,
    HandoffContract,
    HandoffReport,
    AgentAction,
    PipelineInput,
    PipelineResult,
    StageInput,
    StageReturn,
)


def values(size: int) -> dict[str, Any]:
    """Return hostile values of about ``size`` JSON values each, by what they are made of."""
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    return {
        "empty objects": [{}] * size,
        "empty lists": [[]] * size,
        "numbers": [0] * size,
        "texts": ["x"] * size,
        "blanks": [" "] * size,
        "members": {f"m{number}": {} for number in range(size)},
        "lists of objects": [[{}] * 10] * (size // 10),
        "deep": deep,
        "deep objects": [{"a": {"b": {"c": []}}}] * (size // 4),
    }


def messages(kind: type[BaseModel], size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield objects that are hostile in one member of a record, and one of members that it does not know."""
    names = [field.alias or name for name, field in kind.model_fields.items()]
    for name in names:
        for what, value in values(size).items():
            yield f"{kind.__name__}.{name}: {what}", {name: value}
    yield f"{kind.__name__}: unknown members", {f"m{number}": 0 for number in range(size)}
    yield f"{kind.__name__}: every member", {name: [{}] * (size // len(names)) for name in names}


def read(kind: type[BaseModel], members: dict[str, Any]) -> ValidationError | None:
    """Read an object as a record, and return what pydantic found."""
    try:
        if issubclass(kind, OpenRecord):
            kind.from_json_object(members)
        else:
            kind.model_validate(members)
    except ValidationError as error:
        return error
    return None


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python run while work is done; a loop counts a line each time around."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous_trace)
    return count
