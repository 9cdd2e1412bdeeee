"""Whether a message comes in time and to the right address: what a seal alone does not prove.

A sealed message stays sealed for ever and everywhere. Against one that is sent again, later or somewhere else, it
says when it was written, until when it counts and for whom it is. That it is accepted only once is for the receiver's
gate to see to, which remembers.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from baton.contract.records import instant

TOLERANCE = timedelta(seconds=60)
"""How far the sender's clock may be ahead of the receiver's."""


def stale_or_misaddressed(
    message: Mapping[str, Any],
    now: datetime,
    audience: str | None,
    max_age: timedelta | None,
    tolerance: timedelta = TOLERANCE,
) -> str | None:
    """Return why a message may not be accepted now and here, or None if it may."""
    named = message.get("audience")
    if audience is not None and named != audience:
        found = f"it is for {str(named)[:80]!r}" if named is not None else "it names no audience"
        return f"{found}, and this is {audience!r}"
    if "expiresAt" in message:
        expires = instant(message["expiresAt"])
        if expires is None:
            return "its expiresAt is not a time with an offset from UTC"
        if now >= expires:
            return f"it expired at {message['expiresAt']}, {now - expires} ago"
    written = instant(message.get("timestamp"))
    if written is None:
        return "its timestamp is missing, or no time with an offset from UTC"
    if written - now > tolerance:
        return (
            f"its timestamp {message['timestamp']} is {written - now} in the future, and clocks may differ by "
            f"{tolerance}; have a time service set both"
        )
    if max_age is not None and now - written > max_age:
        return (
            f"it was written at {message['timestamp']}, {now - written} ago, and the receiver takes nothing older "
            f"than {max_age}"
        )
    return None
