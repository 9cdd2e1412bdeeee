"""Encoding, decoding and checking of inputs."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from baton import ArtifactRef, InputError, PipelineInput, StageResult
from baton.core.inputs import MAX_INPUT_BYTES, MAX_INPUTS, as_output, decode_inputs, encode_inputs, get_input

REF = ArtifactRef(id="plan-1", type="plan", hash="a3" * 32, size=9)


class Style(BaseModel):
    """How to write."""

    words: int


GOOD: dict[str, tuple[Any, Any]] = {
    "a text": ("plain", "plain"),
    "JSON": ({"a": [1, None, 2.5]}, {"a": [1, None, 2.5]}),
    "a model": (Style(words=3), {"words": 3}),
    "a stage's result": (StageResult(output=["x"]), ["x"]),
    "an artifact": (REF, REF),
    "null": (None, None),
}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an empty name": ({"": 1}, "'' cannot name"),
    "a name with a line break": ({"a\nb": 1}, "cannot name"),
    "a long name": ({"a" * 65: 1}, "cannot name"),
    "a result without an output": ({"draft": StageResult()}, "without an output"),
    "no JSON": ({"draft": object()}, "a object that JSON cannot hold"),
    "a set": ({"draft": {1, 2}}, "a set that JSON cannot hold"),
    "not a number": ({"draft": float("nan")}, "draft"),
    "half a character": ({"draft": "\ud800"}, "half a surrogate"),
    "too many": ({f"n{n}": 1 for n in range(MAX_INPUTS + 1)}, "33 inputs"),
    "too large": ({"draft": "x" * MAX_INPUT_BYTES}, "bytes as JSON"),
    "too many values": ({"draft": [{}] * 60_000}, "60,000 entries"),
    "too many values together": (
        {f"n{n}": [0] * 2_000 for n in range(MAX_INPUTS)},
        "n24: has 2,000 entries; at most 50,000",
    ),
    "a forged reference": ({"draft": {"$artifact": REF.model_dump(mode="json")}}, "give an ArtifactRef"),
    "a forged reference in a result": (
        {"draft": StageResult(output={"$artifact": REF.model_dump(mode="json")})},
        "give an ArtifactRef",
    ),
}


@pytest.mark.parametrize(("value", "decoded"), GOOD.values(), ids=GOOD)
def test_an_input_is_decoded(value: Any, decoded: Any) -> None:
    """As its receiver expects it, also through a pipeline's JSON input."""
    start = PipelineInput(goal="Write", inputs={"draft": value})

    assert decode_inputs(encode_inputs({"draft": value})) == {"draft": decoded}
    assert decode_inputs(PipelineInput.model_validate_json(start.model_dump_json()).inputs) == {"draft": decoded}


@pytest.mark.parametrize(("inputs", "message"), BAD.values(), ids=BAD)
def test_an_invalid_input_is_rejected(inputs: dict[str, Any], message: str) -> None:
    """The error names the input and the remedy."""
    with pytest.raises(InputError) as raised:
        encode_inputs(inputs)
    assert message in str(raised.value)


@pytest.mark.parametrize("inputs", [StageResult(output="x"), "x", ["x"], []])
def test_each_input_has_a_name(inputs: Any) -> None:
    """A stage's result needs a name as well."""
    with pytest.raises(InputError, match=f"inputs is a {type(inputs).__name__}; give each a name"):
        encode_inputs(inputs)


def test_an_input_is_converted_to_a_type() -> None:
    """A model is restored; a mismatch is an error without the values."""
    inputs = decode_inputs(encode_inputs({"style": Style(words=3), "plan": REF, "secret": "abc"}))

    assert get_input(inputs, "style", Style) == Style(words=3)
    assert get_input(inputs, "plan", ArtifactRef) == REF
    for name, kind in (("plan", Style), ("secret", Style), ("other", Style)):
        with pytest.raises(InputError) as raised:
            get_input(inputs, name, kind)
        assert name in str(raised.value)
        assert "abc" not in str(raised.value)


def test_a_pipelines_input_is_checked() -> None:
    """A service learns of an invalid input before it starts a run."""
    with pytest.raises(ValidationError, match="cannot name an input"):
        PipelineInput(goal="Write", inputs={"the draft": "x"})


@pytest.mark.parametrize("value", [StageResult(output="x"), ValueError("x"), {"x"}])
def test_a_pipeline_that_returns_no_json_is_told_what_to_return(value: Any) -> None:
    """Not with pydantic's words."""
    with pytest.raises(InputError, match=f"the pipeline returned a {type(value).__name__}; it returns JSON"):
        as_output(value)
