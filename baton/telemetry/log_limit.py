"""One log line a minute for a state that lasts: a full disk or an absent service repeats the same warning per run."""

import logging
import time
from collections.abc import Callable

PAUSE_SECONDS = 60.0
"""A warning that repeats is logged again after so many seconds, with the number of those left out."""
MOST_KINDS = 1_000
"""So many kinds of warnings are remembered."""


class RepeatFilter(logging.Filter):
    """Passes a warning or an error once a minute; others of its kind are counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.levelno < logging.WARNING:
            return True
        error = record.exc_info[0] if record.exc_info else None
        kind = record.name, record.levelno, str(record.msg).partition(" (")[0], error.__name__ if error else ""
        now = self._clock()
        since, left_out = self._seen.get(kind, (-PAUSE_SECONDS, 0))
        if now - since < PAUSE_SECONDS:
            self._seen[kind] = since, left_out + 1
            return False
        if len(self._seen) >= MOST_KINDS:
            self._seen.clear()
        self._seen[kind] = now, 0
        if left_out:
            record.msg = f"{record.getMessage()} [{left_out:,} more in the last {now - since:.0f} s]"
            record.args = ()
        return True


def limit_repeated_logs() -> None:
    """Limit what the root logger's handlers write; a program calls it once, after it has set them up."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatFilter())
