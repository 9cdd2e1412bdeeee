"""The clock of code that runs outside workflows."""

from datetime import UTC, datetime


def now_utc() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
