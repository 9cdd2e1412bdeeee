"""One line a minute for a state that lasts."""

import logging
from typing import Any

import pytest

from baton.telemetry.worker_logs import RepeatFilter


def record(msg: str, level: int = logging.WARNING, error: BaseException | None = None) -> logging.LogRecord:
    info: Any = (type(error), error, None) if error else None
    return logging.LogRecord("temporalio.activity", level, "a.py", 1, msg, (), info)


class TestRepeatFilter:
    def test_a_thousand_failures_of_one_kind_are_two_lines_in_two_minutes(self) -> None:
        """Ids in parentheses do not matter; the second line has the number of suppressed ones."""
        now = iter(number * 0.1 for number in range(1_200))
        passes = RepeatFilter(clock=now.__next__).filter
        records = [record(f"Completing activity as failed ({number})", error=OSError()) for number in range(1_200)]
        passed = [line for line in records if passes(line)]

        assert len(passed) == 2
        assert passed[1].getMessage().endswith("[599 more in the last 60 s]")

    @pytest.mark.parametrize("other", [record("Another"), record("Full", error=ValueError()), record("Full", 40)])
    def test_another_kind_has_its_own_line(self, other: logging.LogRecord) -> None:
        """Lines differ by text, level or type of exception; only warnings are limited."""
        passes = RepeatFilter(clock=lambda: 0.0).filter

        assert [passes(record("Full", error=OSError())), passes(other)] == [True, True]
        assert all(passes(record("Started", logging.INFO)) for _ in range(3))
