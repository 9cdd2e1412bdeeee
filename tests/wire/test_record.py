"""What every wire record has in common, and the kinds of values in it."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from baton.wire.records import CompactRecord, Integer, Statement, Timestamp


class Sample(CompactRecord):
    """A record with one member of each kind."""

    said: Statement = "x"
    count: Integer = 0
    at: Timestamp | None = None
    any: JsonValue = None


def read(**members: Any) -> Sample:
    return Sample.model_validate_json(json.dumps(members))


class TestRecord:
    def test_a_member_that_does_not_exist_is_refused(self) -> None:
        """A typing mistake is an error and never a silent loss (S1-patch-d; B4 and B13 of the originals)."""
        with pytest.raises(ValidationError, match="Extra inputs"):
            read(cuont=1)

    def test_it_cannot_be_changed(self) -> None:
        """What was recorded stays as it was recorded."""
        with pytest.raises(ValidationError, match="frozen"):
            read().count = 1  # type: ignore[misc]

    @pytest.mark.parametrize("value", ["1", True, 1.5, None], ids=repr)
    def test_values_are_not_guessed(self, value: Any) -> None:
        """A text is no number, and a sender's mistake shows where it is made."""
        with pytest.raises(ValidationError):
            read(count=value)

    def test_a_number_json_does_not_have_is_refused(self) -> None:
        """NaN would arrive as null and nobody would know why."""
        with pytest.raises(ValidationError, match="finite"):
            Sample(any=[float("nan")])


class TestCompactRecord:
    def test_members_at_their_default_are_left_out(self) -> None:
        """History stays small whatever the length of the run."""
        assert Sample().model_dump_json() == "{}"

    @pytest.mark.parametrize("value", [0, False, "", [], {}], ids=repr)
    def test_a_value_that_only_equals_the_default_by_type_is_written(self, value: JsonValue) -> None:
        """An output of 0 or of an empty list is an output."""
        assert json.loads(Sample(any=value).model_dump_json()) == {"any": value}


class TestWhole:
    @pytest.mark.parametrize("spelling", ["2", "2.0", "2e0", "20e-1"])
    def test_every_spelling_of_an_integer_is_accepted(self, spelling: str) -> None:
        """JSON has one kind of number, and some languages always write the point."""
        sample = Sample.model_validate_json(f'{{"count": {spelling}}}')

        assert sample.model_dump_json() == '{"count":2}'


class TestStatement:
    @pytest.mark.parametrize("text", ["", " ", "\t\n", "\u3000", "\u200b\ufeff", "\x85\x1c\u2028"], ids=ascii)
    def test_blank_and_invisible_texts_are_refused(self, text: str) -> None:
        """A goal of blanks is no goal (B6)."""
        with pytest.raises(ValidationError, match="say something"):
            read(said=text)

    @pytest.mark.parametrize("text", ["x", " x ", "\u200bx", "。"], ids=ascii)
    def test_any_sign_is_enough(self, text: str) -> None:
        """The text is kept as it was written."""
        assert read(said=text).said == text


class TestTimestamp:
    @pytest.mark.parametrize(
        ("text", "time"),
        [
            pytest.param("2026-11-21T08:30:00Z", datetime(2026, 11, 21, 8, 30, tzinfo=UTC), id="UTC"),
            pytest.param(
                "2026-11-21T08:30:00.25-05:30",
                datetime(2026, 11, 21, 8, 30, 0, 250_000, tzinfo=timezone(-timedelta(hours=5, minutes=30))),
                id="an offset and a fraction",
            ),
            pytest.param(
                "2026-11-21T08:30:00.123456789Z",
                datetime(2026, 11, 21, 8, 30, 0, 123_456, tzinfo=UTC),
                id="nanoseconds are cut to microseconds",
            ),
        ],
    )
    def test_a_time_is_read_as_rfc_3339_writes_it(self, text: str, time: datetime) -> None:
        """Every entry of the history says when, without doubt about the zone (S1-design-h; B12)."""
        assert read(at=text).at == time

    @pytest.mark.parametrize(
        "text",
        [
            "2026-11-21T08:30:00",
            "2026-11-21 08:30:00Z",
            "2026-11-21T08:30Z",
            "2026-11-21",
            "1700000000",
            "2026-02-30T08:30:00Z",
            "2026-11-21T08:30:60Z",
            "2026-11-21T24:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-11-21T08:30:00+24:00",
            "2026-11-21T08:30:00Z\n",
            "٢٠٢٦-11-21T08:30:00Z",
            "",
        ],
    )
    def test_any_other_spelling_is_refused(self, text: str) -> None:
        """A local time is no time (B12), and another reader must read the same one."""
        with pytest.raises(ValidationError):
            read(at=text)

    def test_a_local_time_is_refused_in_python_too(self) -> None:
        """A forgotten zone shows at once (B12)."""
        with pytest.raises(ValidationError, match="timezone"):
            Sample(at=datetime(2026, 11, 21))  # noqa: DTZ001 - the mistake itself
