"""Inputs: what a stage or a pipeline is given by name beside the baton, such as the text that another agent wrote."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, overload

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from baton.artifacts.records import ArtifactRef
from baton.errors import InputError
from baton.wire.json_values import MAX_DEPTH, MAX_MESSAGE_VALUES, Json, find_excess, find_unwritable
from baton.wire.text import describe_faults

T = TypeVar("T")

Input: TypeAlias = Json | ArtifactRef
"""An input as its receiver finds it: JSON (a text is JSON as well), or a reference to an artifact."""

MAX_INPUTS = 32
"""How many inputs a step takes; together they have at most `MOST_MESSAGE_VALUES` JSON values."""
MAX_INPUT_BYTES = 4 * 1024 * 1024
"""The most bytes of all inputs of a stage together, as JSON; what is larger goes by an artifact."""

INPUT_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
_NAME = re.compile(INPUT_NAME)
_ARTIFACT = "$artifact"
_HAS_OUTPUT = "__baton_has_output__"


def encode_inputs(inputs: Mapping[str, Any] | None, *, marked: bool = False) -> dict[str, JsonValue]:
    """Return inputs as a message carries them: JSON by name, a reference to an artifact with a mark around it.

    Args:
        inputs: JSON, texts, results of stages and children (their output counts), `ArtifactRef`s or pydantic models.
        marked: Take marked references as well, as in a message that is read.

    Raises:
        InputError: A name cannot be used, a value cannot be handed on, or there are too many or too large ones.
    """
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs is a {type(inputs).__name__}; give each a name, such as {{'draft': …}}")
    if len(inputs) > MAX_INPUTS:
        raise InputError(f"{len(inputs):,} inputs; a step takes at most {MAX_INPUTS}")
    given = {_checked(name): _handed(name, value) for name, value in inputs.items()}
    if (found := find_excess(given, MAX_MESSAGE_VALUES, MAX_DEPTH + 1)) is not None:
        raise InputError(f"inputs: {found}")
    written = {name: _written(name, value, marked) for name, value in given.items()}
    if (size := len(to_json(written))) > MAX_INPUT_BYTES:
        raise InputError(
            f"the inputs {', '.join(map(repr, written))} have {size:,} bytes as JSON; at most {MAX_INPUT_BYTES:,} are "
            "handed on: write what is large as an artifact, and give its ArtifactRef"
        )
    return written


def decode_inputs(written: Mapping[str, JsonValue]) -> dict[str, Input]:
    """Return inputs as their receiver finds them, from what `encode_inputs` made.

    Example:
        >>> decode_inputs(encode_inputs({"style": "plain", "limits": [1, 2]}))
        {'style': 'plain', 'limits': [1, 2]}
    """
    return {name: _read(value) for name, value in written.items()}


@overload
def get_input(inputs: Mapping[str, Input], name: str, kind: None = None) -> Input: ...
@overload
def get_input(inputs: Mapping[str, Input], name: str, kind: type[T]) -> T: ...
def get_input(inputs: Mapping[str, Input], name: str, kind: type[Any] | None = None) -> Any:
    """Return one input, as a value of a type where one is given.

    Raises:
        InputError: There is no such input, or it does not fit the type.
    """
    if name not in inputs:
        raise InputError(f"there is no input {name!r}; given: {', '.join(map(repr, inputs)) or 'none'}")
    value = inputs[name]
    if kind is None or (isinstance(value, ArtifactRef) and kind is ArtifactRef):
        return value
    if isinstance(value, ArtifactRef):
        raise InputError(f"input {name!r} is the artifact {value.id!r}, not a {kind.__name__}; read its text first")
    try:
        return TypeAdapter(kind).validate_json(to_json(value))
    except ValidationError as error:
        raise InputError(f"input {name!r} is not a {kind.__name__}: {describe_faults(error, name)}") from None


def input_text(value: Json) -> str:
    """Return an input as a prompt has it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _checked(name: Any) -> str:
    """Return an input's name, which stands in prompts and on command lines."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{str(name)[:80]!r} cannot name an input; expected a letter, then up to 63 letters, digits, '_' or '-'"
        )
    return name


def _handed(name: str, value: Any) -> Any:
    """Return what a value hands on: the output of a result, the members of a model."""
    if getattr(type(value), _HAS_OUTPUT, False):
        value = value.output
        if value is None:
            raise InputError(
                f"input {name!r} is the result of a step without an output; let its agent answer with an `output`, or "
                "hand on an artifact that it wrote"
            )
    if isinstance(value, BaseModel) and not isinstance(value, ArtifactRef):
        return value.model_dump(mode="json")
    return value


def _written(name: str, value: Any, marked: bool) -> JsonValue:
    """Return a value as a message carries it."""
    if isinstance(value, ArtifactRef):
        return {_ARTIFACT: value.model_dump(mode="json", exclude_none=True)}
    if isinstance(value, dict) and value.keys() == {_ARTIFACT}:
        if not marked:
            raise InputError(f"input {name!r} is an object with the one member {_ARTIFACT!r}; give an ArtifactRef")
        return {_ARTIFACT: _reference(name, value[_ARTIFACT]).model_dump(mode="json", exclude_none=True)}
    return _plain(name, value)


def _plain(name: str, value: Any) -> JsonValue:
    """Return a value that is JSON."""
    if faults := find_unwritable(value, name, exact=False):
        raise InputError(f"input {faults[0]}")
    try:
        plain: JsonValue = _JSON.validate_python(value)
        json.dumps(plain, allow_nan=False)
    except ValidationError as error:
        raise InputError(
            f"input {name!r} is a {type(value).__name__} that JSON cannot hold ({describe_faults(error, name)}); "
            "give JSON, a text, a StageResult, an ArtifactRef or a pydantic model"
        ) from None
    except ValueError:
        raise InputError(f"input {name!r} holds a number that JSON cannot write, such as NaN; give null") from None
    return plain


def _reference(name: str, value: Any) -> ArtifactRef:
    """Return a marked reference."""
    try:
        return ArtifactRef.model_validate(value)
    except ValidationError as error:
        raise InputError(
            f"input {name!r} is not a reference to an artifact: {describe_faults(error, _ARTIFACT)}"
        ) from None


def _read(value: Any) -> Input:
    """Return an input as its receiver finds it."""
    if isinstance(value, dict) and value.keys() == {_ARTIFACT}:
        return ArtifactRef.model_validate(value[_ARTIFACT])
    return value


_JSON: TypeAdapter[Any] = TypeAdapter(JsonValue)
