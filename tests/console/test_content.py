"""Values as the pages show them."""

from datetime import UTC, datetime

import pytest

from baton.console.content import age_element, make_content, number, size, time_element


@pytest.mark.parametrize(
    ("data", "form"), [(b"a\0b", "binary"), (b"\xff", "binary"), (b"RIFF\0\0\0\0WEBPVP8 ", "picture"), (b"a", "text")]
)
def test_bytes_have_the_form_that_they_confirm(data: bytes, form: str) -> None:
    """Neither the type nor the name of an artifact makes a picture of it."""
    assert make_content(data, type="picture", path="a.png").form == form


def test_what_is_not_known_is_empty() -> None:
    """A run that has not begun, an artifact without a size."""
    assert [time_element(None), age_element(None, datetime.now(UTC)), number(None), size(None)] == ["", "", "", ""]
    assert [number(1_000), size(1), size(1_500), size(2_000_000)] == ["1,000", "1 byte", "1.5 kB", "2.0 MB"]
