"""The quick canonical form against the slow one, which is proved by the RFC's own documents."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from baton.wire.json_values import canonical_json, loads_strict

DOCUMENTS = Path(__file__).parents[1] / "data/rfc8785"

# Every kind of double, and of character, at which the two encoders could part.
_powers = st.builds(math.ldexp, st.floats(1, 2), st.integers(-1070, 1020))
_tens = st.builds(
    lambda digits, power: float(f"{digits}e{power}"), st.integers(-(10**17), 10**17), st.integers(-30, 30)
)
_numbers = st.one_of(
    st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False, allow_infinity=False), _powers, _tens
)
_texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.text(st.sampled_from('aZ_\x00\x1f\x7f"\\/\n\u2028\ud7ff\ue000\uffff\U00010000\U0010ffff,:[]{}0.e-'), max_size=6),
)
_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=5)),
    max_leaves=20,
)


class TestCanonicalJson:
    @pytest.mark.parametrize("path", sorted((DOCUMENTS / "input").glob("*.json")), ids=lambda path: path.stem)
    def test_it_writes_the_published_bytes(self, path: Path) -> None:
        """The documents of the RFC's own repository come out as published."""
        value = loads_strict(path.read_bytes())

        assert canonical_json(value) == (DOCUMENTS / "output" / path.name).read_bytes()

    @given(st.dictionaries(_texts, _values, max_size=5))
    def test_the_fast_and_the_slow_writer_agree(self, document: dict[str, Any]) -> None:
        """Whatever strict JSON reads has one canonical form, whichever way it is made (S3-10.2-b)."""
        value = loads_strict(rfc8785.dumps(document))

        assert canonical_json(value) == rfc8785.dumps(value)

    @given(_numbers)
    def test_every_number_is_written_alike(self, number: float) -> None:
        """Alone, in a list and behind a name, at its beginning and its end."""
        value = loads_strict(rfc8785.dumps({"a": number, "b": [number, number], "c": [[number]]}))

        assert canonical_json(value) == rfc8785.dumps(value)

    @pytest.mark.parametrize(
        ("text", "canonical"),
        [
            pytest.param('{"a":1e-05}', b'{"a":0.00001}', id="a small number"),
            pytest.param('{"a":[1.5e-7]}', b'{"a":[1.5e-7]}', id="a smaller one"),
            pytest.param('{"a":1.0}', b'{"a":1}', id="a whole one with a fraction"),
            pytest.param('{"a":[-0.0,1]}', b'{"a":[0,1]}', id="minus zero"),
            pytest.param('{"a":1e21}', b'{"a":1e+21}', id="a large one"),
            pytest.param('{"a":123456789012345680000}', b'{"a":123456789012345680000}', id="a large one written out"),
            pytest.param('{"\\uffff":1,"\\ud800\\udc00":2}', '{"\U00010000":2,"\uffff":1}'.encode(), id="UTF-16 order"),
        ],
    )
    def test_where_the_quick_writer_writes_otherwise_the_rfc_counts(self, text: str, canonical: bytes) -> None:
        """The two differences that are looked for."""
        assert canonical_json(loads_strict(text)) == canonical

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param({"a": math.nan}, id="no number"),
            pytest.param({"a": [-math.inf]}, id="without end"),
            pytest.param({"a": 2**60}, id="too large to be exact"),
            pytest.param({"a": "\ud800"}, id="half a character"),
            pytest.param({1: 2}, id="a number as a name"),
            pytest.param({"b": 1, 2: 3}, id="names of two kinds"),
            pytest.param({"a": b"x"}, id="bytes"),
            pytest.param({"a": {1, 2}}, id="a set"),
        ],
    )
    def test_invalid_json_is_refused(self, value: dict[Any, Any]) -> None:
        """As the slow way refuses it, so nothing of it is ever sealed."""
        with pytest.raises(rfc8785.CanonicalizationError):
            canonical_json(value)

    def test_an_ordinary_message_takes_the_fast_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Amounts, scores, ids and prose leave no trace that would cost the slow way."""
        slow = rfc8785.dumps

        def refuse(value: Any) -> bytes:
            raise AssertionError("the slow way was taken")

        message: dict[str, Any] = {
            "handoffId": "550e8400-e29b-41d4-a716-446655440e-5",
            "cost": [0.08, 0.32, 12, 0.05],
            "text": "state-of-the-art: rated 5e-7, at 1.0, in Zürich — for 3 €",
        }
        expected = slow(message)
        monkeypatch.setattr("baton.wire.json_values.rfc8785.dumps", refuse)

        assert canonical_json(message) == expected
        with pytest.raises(AssertionError, match="slow way"):
            canonical_json(json.loads('{"a": 1e-5}'))
