"""What the client of a provider raises, as a stage is to see it: worth another run or not, without its own words.

A provider may repeat a key, or what it was sent, in the body of its error; so only the kind and the status go on.
The clients of OpenAI, Anthropic and others are known by what they have in common: `status_code` and `response`.
"""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from baton.protocol.errors import AgentError

_UNREACHABLE = ("APIConnectionError", "APITimeoutError")


def provider_error(error: Exception, agent: str) -> AgentError | None:
    """Return what a stage raises for an error of a provider's client; None if it is none.

    Args:
        error: What was raised.
        agent: The agent's name.

    Example:
        >>> class NotFound(Exception):
        ...     status_code = 404
        >>> made = provider_error(NotFound("no model of key sk-1"), "plan")
        >>> str(made), made.permanent
        ("agent 'plan': the provider answered 404 (NotFound)", True)
        >>> provider_error(KeyError("x"), "plan") is None
        True
    """
    kind = type(error).__name__
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        text = f"agent {agent!r}: the provider answered {status} ({kind})"
        return AgentError(text, permanent=not is_passing(status), retry_after=_retry_after(error))
    if any(one.__name__ in _UNREACHABLE for one in type(error).__mro__):
        return AgentError(f"agent {agent!r}: the provider could not be reached ({kind})")
    return None


def is_passing(status: int) -> bool:
    """Return whether the same request may succeed later, after a status that is no success."""
    return status >= 500 or status in (408, 409, 425, 429)


def seconds_of(retry_after: str | None, now: datetime | None = None) -> float | None:
    """Return after how many seconds a `Retry-After` header asks to be asked again; None if it says nothing of use.

    Args:
        retry_after: The header: seconds, or a date.
        now: The time now.

    Example:
        >>> seconds_of("2.5"), seconds_of("soon")
        (2.5, None)
        >>> seconds_of("Sat, 21 Nov 2026 10:00:30 GMT", datetime(2026, 11, 21, 10, 0, tzinfo=UTC))
        30.0
    """
    try:
        found = float(retry_after or "")
    except ValueError:
        try:
            at = parsedate_to_datetime(retry_after or "")
        except ValueError:
            return None
        found = (at.replace(tzinfo=at.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, found) if math.isfinite(found) else None


def _retry_after(error: Any) -> float | None:
    """Return after how many seconds the provider wants to be asked again, if it said so."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return seconds_of(headers.get("retry-after"))
