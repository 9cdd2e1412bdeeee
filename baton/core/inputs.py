"""Inputs: named values for a stage or pipeline beside the baton, such as a text that another agent wrote."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, TypeVar, overload

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from baton.core.artifacts import ArtifactRef
from baton.errors import InputError, ParameterError
from baton.wire.json_values import MAX_DEPTH, MAX_MESSAGE_VALUES, Json, find_excess, find_unwritable
from baton.wire.text import describe_faults

T = TypeVar("T")

Input: TypeAlias = Json | ArtifactRef
"""A decoded input: JSON, text included, or a reference to an artifact."""

MAX_INPUTS = 32
"""The most inputs of a step; together they have at most `MAX_MESSAGE_VALUES` JSON values."""
MAX_INPUT_BYTES = 4 * 1024 * 1024
"""The most bytes of all inputs of a step, as JSON; larger content belongs in an artifact."""

INPUT_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
_NAME = re.compile(INPUT_NAME)
_BARE = re.compile(r"[^\W\d_](?:[^\s:]|:(?!$)| (?!$))*")  # begins with a letter and ends in no blank or colon
_WORDS = frozenset({"null", "true", "false"})
_ARTIFACT = "$artifact"
_HAS_OUTPUT = "__baton_has_output__"


class Parameters(dict[str, Json]):
    """Parameters by name; a missing one is an error that names the others."""

    def __missing__(self, name: str) -> Json:
        """Raise the error."""
        raise ParameterError(f"there is no parameter {name!r}; given: {', '.join(map(repr, self)) or 'none'}")


def encode_inputs(inputs: Mapping[str, Any] | None, *, tagged: bool = False) -> dict[str, JsonValue]:
    """Return inputs as a message carries them: JSON by name, with artifact references tagged.

    Args:
        inputs: JSON, texts, results of stages and children (for their output), `ArtifactRef`s or pydantic models.
        tagged: Accept tagged references as well, as in a received message.

    Raises:
        InputError: A name or value is not allowed, or the inputs are too many or too large.
    """
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs is a {type(inputs).__name__}; give each a name, such as {{'draft': …}}")
    if len(inputs) > MAX_INPUTS:
        raise InputError(f"{len(inputs):,} inputs; a step takes at most {MAX_INPUTS}")
    values = {_check_name(name): _unwrap(name, value) for name, value in inputs.items()}
    if (limit := find_excess(values, MAX_MESSAGE_VALUES, MAX_DEPTH + 1)) is not None:
        raise InputError(f"inputs: {limit}")
    encoded = {name: _encode(name, value, tagged) for name, value in values.items()}
    if (size := len(to_json(encoded))) > MAX_INPUT_BYTES:
        raise InputError(
            f"the inputs {', '.join(map(repr, encoded))} have {size:,} bytes as JSON; at most {MAX_INPUT_BYTES:,} are "
            "allowed: write large content as an artifact and give its ArtifactRef"
        )
    return encoded


def as_output(value: Any) -> Any:
    """Return what a pipeline returns, unless it is no JSON.

    Raises:
        InputError: It is an object of Python; the message says what to return instead.
    """
    if value is None or isinstance(value, str | int | float | list | dict):
        return value
    raise InputError(
        f"the pipeline returned a {type(value).__name__}; it returns JSON, such as `result.output` of a stage's "
        "result, or `value.model_dump()` of a pydantic model"
    )


def encode_params(params: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a copy of parameters as a message carries them, which later changes in place do not reach.

    Raises:
        InputError: They are not JSON by name, or too many values.
    """
    if (limit := find_excess(params)) is not None:
        raise InputError(f"params: {limit}")
    try:
        return _PARAMS.validate_python(params)
    except ValidationError as error:
        raise InputError(f"params are JSON by name: {describe_faults(error, 'params')}") from None


def decode_inputs(encoded: Mapping[str, JsonValue]) -> dict[str, Input]:
    """Return the inputs that `encode_inputs` encoded.

    Example:
        >>> decode_inputs(encode_inputs({"style": "plain", "limits": [1, 2]}))
        {'style': 'plain', 'limits': [1, 2]}
    """
    return {name: _decode(value) for name, value in encoded.items()}


@overload
def get_input(inputs: Mapping[str, Input], name: str, kind: None = None) -> Input: ...
@overload
def get_input(inputs: Mapping[str, Input], name: str, kind: type[T]) -> T: ...
def get_input(inputs: Mapping[str, Input], name: str, kind: type[Any] | None = None) -> Any:
    """Return one input, converted to ``kind`` if given.

    Raises:
        InputError: The input does not exist, or it cannot be converted.
    """
    if name not in inputs:
        raise InputError(f"there is no input {name!r}; given: {', '.join(map(repr, inputs)) or 'none'}")
    value = inputs[name]
    if kind is None or (isinstance(value, ArtifactRef) and kind is ArtifactRef):
        return value
    if isinstance(value, ArtifactRef):
        raise InputError(f"input {name!r} is the artifact {value.id!r}, not a {_type_name(kind)}; read its text first")
    return convert(value, kind, f"input {name!r}")


def convert(value: Json, kind: type[T], name: str) -> T:
    """Return a JSON value as a value of a type.

    Args:
        value: The value.
        kind: Any type that pydantic can parse, such as a model.
        name: The value's name in the error.

    Raises:
        InputError: It does not fit the type.
    """
    try:
        return TypeAdapter(kind).validate_json(to_json(value))
    except ValidationError as error:
        raise InputError(f"{name} is not a {_type_name(kind)}: {describe_faults(error, name)}") from None


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)


def input_text(value: Json) -> str:
    """Return an input as prompt text: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def readable_text(value: Json) -> str:
    r"""Return JSON as an agent reads it best: text unchanged, members and entries as indented lines.

    Example:
        >>> print(readable_text({"customer": "c-1", "paid": [{"usd": 20, "note": "late,\nbut whole"}], "owes": None}))
        customer: c-1
        paid:
        - usd: 20
          note: |
            late,
            but whole
        owes: null
    """
    return value if isinstance(value, str) else "\n".join(_readable_lines(value))


def _readable_lines(value: Json) -> Iterator[str]:
    """Yield the lines of a value; a text with line breaks is a block, so that its lines look like no members."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            lines = list(_readable_lines(member))
            nested = isinstance(member, dict | list) and member
            if nested or len(lines) > 1:
                yield f"{_readable_scalar(name)}:" + ("" if nested else f" {lines.pop(0)}")
                yield from lines if isinstance(member, list) else (f"  {line}" for line in lines)
            else:
                yield f"{_readable_scalar(name)}: {_readable_scalar(member, in_line=True)}"
    elif isinstance(value, list) and value:
        for entry in value:
            first, *rest = _readable_lines(entry)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    elif isinstance(value, str) and len(lines := value.splitlines()) > 1:
        yield "|"
        yield from lines
    else:
        yield _readable_scalar(value)


def _readable_scalar(value: Json, *, in_line: bool = False) -> str:
    """Return a text bare where nothing else reads like it, anything else as JSON; after a name it may have colons."""
    is_bare = isinstance(value, str) and _BARE.fullmatch(value) is not None and value not in _WORDS
    return str(value) if is_bare and (in_line or ": " not in str(value)) else json.dumps(value, ensure_ascii=False)


def _check_name(name: Any) -> str:
    """Return a valid input name; names appear in prompts and on command lines."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{str(name)[:80]!r} cannot name an input; expected a letter, then up to 63 letters, digits, '_' or '-'"
        )
    return name


def _unwrap(name: str, value: Any) -> Any:
    """Return the output of a result, the members of a model, or the value itself."""
    if getattr(type(value), _HAS_OUTPUT, False):
        value = value.output
        if value is None:
            raise InputError(
                f"input {name!r} is the result of a step without an output; return an `output` from the step, or give "
                "an artifact that it wrote"
            )
    if isinstance(value, BaseModel) and not isinstance(value, ArtifactRef):
        return value.model_dump(mode="json", by_alias=True)
    return value


def _encode(name: str, value: Any, tagged: bool) -> JsonValue:
    if isinstance(value, ArtifactRef):
        return {_ARTIFACT: value.model_dump(mode="json", exclude_none=True)}
    if isinstance(value, dict) and value.keys() == {_ARTIFACT}:
        if not tagged:
            raise InputError(f"input {name!r} is an object with the one member {_ARTIFACT!r}; give an ArtifactRef")
        return {_ARTIFACT: _parse_reference(name, value[_ARTIFACT]).model_dump(mode="json", exclude_none=True)}
    return _encode_json(name, value)


def _encode_json(name: str, value: Any) -> JsonValue:
    if findings := find_unwritable(value, name, exact=False):
        raise InputError(f"input {findings[0]}")
    try:
        encoded: JsonValue = _JSON.validate_python(value)
        json.dumps(encoded, allow_nan=False)
    except ValidationError as error:
        raise InputError(
            f"input {name!r} is a {type(value).__name__} that JSON cannot hold ({describe_faults(error, name)}); "
            "give JSON, a text, a StageResult, an ArtifactRef or a pydantic model"
        ) from None
    except ValueError:
        raise InputError(f"input {name!r} holds a number that JSON cannot write, such as NaN; give null") from None
    return encoded


def _parse_reference(name: str, value: Any) -> ArtifactRef:
    try:
        return ArtifactRef.model_validate(value)
    except ValidationError as error:
        raise InputError(
            f"input {name!r} is not a reference to an artifact: {describe_faults(error, _ARTIFACT)}"
        ) from None


def _decode(value: Any) -> Input:
    if isinstance(value, dict) and value.keys() == {_ARTIFACT}:
        return ArtifactRef.model_validate(value[_ARTIFACT])
    return value


_JSON: TypeAdapter[Any] = TypeAdapter(JsonValue)
_PARAMS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
