"""The reader of received JSON, and its refusal of ambiguous JSON."""

from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from baton.errors import MalformedMessageError
from baton.wire.json_values import MAX_DEPTH, loads_strict
from tests.core.material import json_values

DOCUMENTS = Path(__file__).parents[1] / "data/rfc8785/output"


class TestLoadsStrict:
    @given(
        st.recursive(
            st.sampled_from(
                [
                    "0",
                    "-0",
                    "1.0",
                    "-0.0",
                    "0.10",
                    "1e5",
                    "1e16",
                    "1E400",
                    "5e-324",
                    "9007199254740991",
                    "9007199254740993",
                    "100000000000000000000",
                    "NaN",
                    "01",
                    "-Infinity",
                    "null",
                    "true",
                    '""',
                    '"a"',
                    '"\\u0061"',
                    '"\\ud800"',
                    '"\\ud83d\\ude00"',
                    '"\\/"',
                    '":1234567890123456"',
                    '"é"',
                ]
            ),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
                st.lists(st.tuples(st.sampled_from(['"a"', '"b"', '"\\u0061"']), inner), max_size=3).map(
                    lambda members: "{" + ",".join(f"{name}:{value}" for name, value in members) + "}"
                ),
            ),
            max_leaves=6,
        )
    )
    @example("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    @example("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    def test_bytes_and_text_are_read_alike(self, text: str) -> None:
        """The fast reader must accept the same bytes with the same result as the strict one."""

        def read(raw: str | bytes) -> str:
            try:
                return repr(loads_strict(raw))
            except MalformedMessageError as error:
                return str(error)

        assert read(text.encode()) == read(text)

    @given(json_values)
    @example(1e16)
    @example([1.152921504606847e18, -1e20, 2**53 - 1])
    def test_canonical_json_round_trips(self, value: Any) -> None:
        """A message that was signed in canonical form has the same bytes when it is signed again (S3-10.2-b)."""
        canonical = rfc8785.dumps(value)

        assert rfc8785.dumps(loads_strict(canonical)) == canonical

    @pytest.mark.parametrize("path", sorted(DOCUMENTS.glob("*.json")), ids=lambda path: path.stem)
    def test_the_published_canonical_documents_are_read(self, path: Path) -> None:
        """All examples of RFC 8785 are accepted."""
        canonical = path.read_bytes()

        assert rfc8785.dumps(loads_strict(canonical)) == canonical

    @pytest.mark.parametrize(
        ("raw", "why"),
        [
            pytest.param(b'{"a":1,"a":2}', "'a' appears twice", id="a member twice"),
            pytest.param(b'{"o":{"a":1,"b":2,"a":1}}', "'a' appears twice", id="a member twice, deeper"),
            pytest.param(b'{"a":1,"\\u0061":2}', "'a' appears twice", id="a member twice, once escaped"),
            pytest.param(
                b"{" + b",".join(b'"m%d":0' % n for n in range(50_000)) + b',"m49999":0}',
                "'m49999'",
                id="among very many",
            ),
            pytest.param(b"[NaN]", "NaN", id="not a number"),
            pytest.param(b"[-Infinity]", "Infinity", id="infinity"),
            pytest.param(b"[1e999]", "larger than a double", id="a number that would become infinity"),
            pytest.param(b"[9007199254740993]", "not exact", id="a whole number that no double holds"),
            pytest.param(b"[-9007199254740993]", "not exact", id="a negative one"),
            pytest.param(b"[123456789012345678901234567890]", "not exact", id="a whole number of thirty digits"),
            pytest.param(b"[" + b"9" * 5000 + b"]", "5000", id="a number too long to be one"),
            pytest.param(b'["\\ud800"]', "surrogate", id="half a character"),
            pytest.param(b'{"\\uDFFF":1}', "surrogate", id="half a character in a name"),
            pytest.param(b'["\xed\xa0\x80"]', "UTF-8", id="half a character in bytes"),
            pytest.param(b'["\xff"]', "UTF-8 at byte 2", id="no UTF-8"),
            pytest.param("[1]".encode("utf-16"), "UTF-8", id="another encoding"),
            pytest.param(b"\xef\xbb\xbf[1]", "not JSON", id="a byte order mark"),
            pytest.param(b"[1] x", "not JSON at character 4", id="something after the end"),
            pytest.param(b"[1,]", "not JSON", id="a comma too many"),
            pytest.param(b'["a\nb"]', "not JSON", id="a line break in a string"),
            pytest.param(b"", "not JSON", id="nothing"),
            pytest.param(b"[01]", "not JSON", id="a leading zero"),
        ],
    )
    def test_ambiguous_json_is_refused(self, raw: bytes, why: str) -> None:
        """One signature, one reading: a duplicate member, a rounded number, half a character (S3-10.2-a)."""
        with pytest.raises(MalformedMessageError, match=why):
            loads_strict(raw)

    @pytest.mark.parametrize(
        ("literal", "value"),
        [
            ("9007199254740991", 9007199254740991),
            ("-9007199254740991", -9007199254740991),
            ("9007199254740992", 9007199254740992.0),
            ("10000000000000000", 1e16),
            ("1152921504606847000", 2.0**60),
            ("1e+21", 1e21),
            ("0.1", 0.1),
            ("2.0", 2.0),
        ],
    )
    def test_every_number_that_json_holds_exactly_is_read(self, literal: str, value: float) -> None:
        """Large integers are accepted as RFC 8785 spells them, and become doubles."""
        parsed = loads_strict(literal)

        assert (parsed, type(parsed)) == (value, type(value))

    @given(st.integers(2**53, 2**70))
    def test_a_large_integer_has_only_one_spelling(self, number: int) -> None:
        """Different large numbers never become the same message."""
        canonical = rfc8785.dumps(float(number)).decode()
        try:
            read = loads_strict(str(number))
        except MalformedMessageError:
            assert canonical != str(number)
        else:
            assert rfc8785.dumps(read).decode() == str(number)

    @pytest.mark.parametrize("opening", ["[", '{"a":'])
    def test_nesting_has_a_limit(self, opening: str) -> None:
        """A text full of brackets costs its sender more than its reader."""
        closing = {"[": "]", '{"a":': "}"}[opening]

        def nested(depth: int) -> str:
            return opening * depth + ("" if opening == "[" else "1") + closing * depth

        assert loads_strict(nested(MAX_DEPTH)) is not None
        for depth in (MAX_DEPTH + 1, 100_000):
            with pytest.raises(MalformedMessageError, match=f"more than {MAX_DEPTH} deep"):
                loads_strict(nested(depth))

    def test_an_error_never_quotes_the_content(self) -> None:
        """The content of a message stays out of logs even if it is unreadable."""
        with pytest.raises(MalformedMessageError) as caught:
            loads_strict(b'{"secret": "4111 1111 1111 1111", oops}')

        assert "4111" not in str(caught.value)

    def test_a_long_member_name_is_cut(self) -> None:
        """A member name is a sender's text too."""
        with pytest.raises(MalformedMessageError) as caught:
            loads_strict(f'{{"{"n" * 5000}":1,"{"n" * 5000}":2}}')

        assert len(str(caught.value)) < 200
