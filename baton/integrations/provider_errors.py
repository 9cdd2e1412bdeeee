"""What the client of a provider raises, as a stage is to see it: worth another run or not, without its own words.

A provider may repeat a key, or what it was sent, in the body of its error; so only the kind and the status go on.
The clients of OpenAI, Anthropic and others are known by what they have in common: `status_code` and `response`.
"""

from typing import Any

from baton.protocol.errors import AgentError

_PASSING = frozenset({408, 409, 425, 429})
"""The statuses below 500 after which the same request may succeed."""
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
        permanent = status < 500 and status not in _PASSING
        text = f"agent {agent!r}: the provider answered {status} ({kind})"
        return AgentError(text, permanent=permanent, retry_after=_retry_after(error))
    if any(one.__name__ in _UNREACHABLE for one in type(error).__mro__):
        return AgentError(f"agent {agent!r}: the provider could not be reached ({kind})")
    return None


def _retry_after(error: Any) -> float | None:
    """Return after how many seconds the provider wants to be asked again, if it said so."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:  # a date, or nothing
        return None
