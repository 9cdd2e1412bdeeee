"""The times of a schedule that summer time skips: a clock that is put forward never shows them, so nothing runs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from temporalio.client import ScheduleCalendarSpec, ScheduleRange, ScheduleSpec

_AHEAD = timedelta(days=366)
_MINUTE = timedelta(minutes=1)


def zone_of(spec: ScheduleSpec | None) -> ZoneInfo:
    """Return the time zone of a schedule; UTC if it names none, or one that this machine does not know."""
    try:
        return ZoneInfo((spec.time_zone_name if spec else None) or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def skipped_time(spec: ScheduleSpec, now: datetime) -> datetime | None:
    """Return the first time of a schedule within a year, in its own zone, that summer time skips; None without one.

    Args:
        spec: The times, as the server describes them: calendars and not cron lines.
        now: The beginning of that year, with a time zone.
    """
    return next((at for at in _skipped_minutes(zone_of(spec), now) if _matches(spec.calendars, at)), None)


def _skipped_minutes(zone: ZoneInfo, now: datetime) -> Iterator[datetime]:
    """Yield the minutes that the clocks of a zone skip within a year, without a time zone."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    end = hour + _AHEAD
    while hour < end:
        following = hour + timedelta(hours=1)
        before, after = (at.astimezone(zone).replace(tzinfo=None) for at in (hour, following))
        gap = after - before - timedelta(hours=1)
        if gap > timedelta(0):
            first = next(
                minute
                for minute in (hour + nth * _MINUTE for nth in range(60))
                if minute.astimezone(zone).utcoffset() != (minute + _MINUTE).astimezone(zone).utcoffset()
            )
            wall = first.astimezone(zone).replace(tzinfo=None) + _MINUTE
            yield from (wall + nth * _MINUTE for nth in range(int(gap / _MINUTE)))
        hour = following


def _matches(calendars: Sequence[ScheduleCalendarSpec], at: datetime) -> bool:
    """Return whether calendars name a minute."""
    return any(
        _holds(calendar.minute, at.minute)
        and _holds(calendar.hour, at.hour)
        and _holds(calendar.day_of_month, at.day)
        and _holds(calendar.month, at.month)
        and _holds(calendar.day_of_week, at.isoweekday() % 7)
        and (not calendar.year or _holds(calendar.year, at.year))
        for calendar in calendars
    )


def _holds(ranges: Sequence[ScheduleRange], value: int) -> bool:
    return any(
        item.start <= value <= max(item.start, item.end) and (value - item.start) % max(item.step, 1) == 0
        for item in ranges
    )
