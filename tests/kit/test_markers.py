"""The search for what must not be there: it finds a marker however it is spelt, and does not search nothing."""

import base64
import html
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.surfaces import Surfaces, assert_not_seen, sightings

MARKER = 'brainstorm-Ü7 "<&>"'


class TestSightings:
    """`sightings`."""

    @pytest.mark.parametrize(
        ("text", "spelling"),
        [
            pytest.param(MARKER.encode(), "as it is", id="plain"),
            pytest.param(MARKER.upper().encode(), "as it is", id="in capitals"),
            pytest.param(json.dumps(MARKER).encode(), "escaped", id="JSON"),
            pytest.param(json.dumps(MARKER, ensure_ascii=False).encode(), "escaped", id="JSON that keeps letters"),
            pytest.param(html.escape(MARKER).encode(), "escaped", id="HTML"),
            pytest.param(quote(MARKER).encode(), "escaped", id="a URL"),
            pytest.param(MARKER.encode("utf-16-le"), "in UTF-16", id="UTF-16"),
            pytest.param(MARKER.encode().hex().encode(), "in hexadecimal", id="hexadecimal"),
            pytest.param(base64.b64encode(MARKER.encode()), "in base64", id="base64"),
        ],
    )
    def test_every_spelling_is_found(self, text: bytes, spelling: str) -> None:
        """Any encoding that a careless layer may apply."""
        assert sightings(MARKER, b"before " + text + b" behind") == [("text 1", spelling)]

    @given(before=st.binary(max_size=9), behind=st.binary(max_size=9), urlsafe=st.booleans())
    def test_in_base64_it_is_found_wherever_it_begins(self, before: bytes, behind: bytes, urlsafe: bool) -> None:
        """Its position in a longer text shifts the characters."""
        encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode

        assert sightings(MARKER, encode(before + MARKER.encode() + behind)) == [("text 1", "in base64")]

    def test_a_short_marker_is_refused(self) -> None:
        """It would be found by chance."""
        with pytest.raises(ValueError, match="has 3 characters; it needs 8 or more"):
            sightings("key", "a key")


class TestAssertNotSeen:
    """`assert_not_seen` and `assert_seen`."""

    def test_each_place_is_named(self) -> None:
        """With the encoding, and without the surrounding text."""
        surfaces = Surfaces()
        surfaces.add("prompt/review/1", "all is well")
        surfaces.add("history/run/5/raw", base64.b64encode(MARKER.encode()))
        surfaces.add("log/1", f"tried {MARKER}")

        with pytest.raises(
            AssertionError, match=r"in 2 of 3 places:\n- history/run/5/raw, in base64\n- log/1, as it is$"
        ):
            assert_not_seen(MARKER, surfaces)
        assert_not_seen(MARKER, surfaces.only("prompt/*"))
        assert_not_seen(MARKER, surfaces.without("history/*", "log/*"))

    @pytest.mark.parametrize(
        "nothing",
        [pytest.param((), id="no surface"), pytest.param((Surfaces(), ""), id="surfaces with nothing in them")],
    )
    def test_a_search_of_nothing_fails(self, nothing: tuple[Surfaces | str, ...]) -> None:
        """It would always pass."""
        with pytest.raises(AssertionError, match="nothing to search"):
            assert_not_seen(MARKER, *nothing)
