"""Translates errors of providers and their clients into errors of a stage, by the same rules for all adapters."""

import math
import os
import re
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from temporalio.exceptions import TemporalError

from baton.errors import AgentError, BatonError, ConfigurationError, PatchError

NO_USABLE_FORM = "the model did not answer in a form that can be used; answer in the form asked for"
"""The finding for an answer that a framework rejected as malformed; the framework's message would quote the answer."""

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_STOPPED = frozenset(
    {
        "refusal",
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "safety",
        "prohibited_content",
        "blocklist",
        "spii",
    }
)


def cut_off_error() -> PatchError:
    """Return the error for an answer that reached the model's output limit."""
    return PatchError(["the answer was cut off at the most tokens a model may write; answer more briefly"])


def stopped_error(agent: str) -> AgentError:
    """Return the error for an answer that a model refused or a content filter stopped."""
    return AgentError(
        f"agent {agent!r}: the model refused to answer, or its provider's content filter stopped it; "
        "change what it is asked, or its model",
        permanent=True,
    )


def finish_error(reason: object, agent: str) -> AgentError | PatchError | None:
    """Return the error for an answer that ended early, or None if it is complete."""
    reason_text = reason.lower() if isinstance(reason, str) else None
    if reason_text in _CUT_OFF:
        return cut_off_error()
    return stopped_error(agent) if reason_text in _STOPPED else None


_TRANSIENT = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that a retry may not meet again; every other failure is permanent."""

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_CODE = re.compile(r"[a-z][a-z0-9_]{2,59}")
_MISSING_KEY_ERRORS = ("OpenAIError", "AnthropicError")  # raised by a client without a key
_CONNECTION_ERRORS = ("APIConnectionError", "APITimeoutError")
_TRANSPORT_ERRORS = ("NetworkError", "ConnectTimeout", "RemoteProtocolError")  # of httpx and its successors
_FINISH_REASONS = {
    "LengthFinishReasonError": "length",
    "ContentFilterFinishReasonError": "content_filter",
    "OpenAIRefusalError": "refusal",
    "ModelRefusalError": "refusal",
}
"""Client errors for answers that ended early, and the finish reason of each."""
_KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:API_)?(?:KEY|TOKEN)\b")


def missing_key_error(error: Exception, agent: str) -> ConfigurationError | None:
    """Return the error for a client without a key, if its message names an unset environment variable."""
    variable = _KEY_VARIABLE.search(str(error))
    if variable is None or os.environ.get(variable[0], "").strip():
        return None
    message = f"agent {agent!r}: the environment of this worker has no {variable[0]!r}, which holds the key; set it"
    return ConfigurationError(message)


def provider_error(error: Exception, agent: str) -> AgentError | ConfigurationError | PatchError | None:
    """Return the error of a stage for an error of a provider's client, or None if it is not one."""
    kind = type(error).__name__
    if kind in _MISSING_KEY_ERRORS and (missing := missing_key_error(error, agent)):
        return missing
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 300:
        code = find_code({name: getattr(error, name, None) for name in ("code", "type")})
        detail = f"{kind}, {code}" if code else kind
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        subject = f"agent {agent!r}: the provider"
        return status_error(
            subject, status, detail, permanent=is_permanent(status, code), retry_after=read_retry_after(headers)
        )
    if any(base.__name__ in _CONNECTION_ERRORS for base in type(error).__mro__):
        return AgentError(f"agent {agent!r}: the provider could not be reached ({kind})", waits=True)
    return finish_error(_FINISH_REASONS.get(kind), agent)


def unreachable_kind(error: BaseException) -> str | None:
    """Return the class of an error that says that a server could not be reached, or None."""
    is_network_error = any(base.__name__ in _TRANSPORT_ERRORS for base in type(error).__mro__)
    return type(error).__name__ if is_network_error or isinstance(error, ConnectionError) else None


def unreadable_error(error: BaseException, agent: str) -> AgentError:
    """Return the error for an answer that a client cannot read."""
    return AgentError(f"agent {agent!r}: the provider's answer cannot be read ({type(error).__name__})")


def raised_within(error: BaseException, kind: type) -> bool:
    """Return whether an error was raised, at any depth, inside a method of an instance of ``kind``."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(frame.f_locals.get("self"), kind) for frame in frames)


def is_parse_error(error: Exception, model: type) -> bool:
    """Return whether an error was raised while a method of ``model`` parsed an answer."""
    return raised_within(error, model) and not isinstance(error, AssertionError | BatonError | TemporalError)


def status_error(
    subject: str, status: int, detail: str, *, permanent: bool, retry_after: float | None = None
) -> AgentError:
    """Return the error for a response with an error status or a redirect."""
    redirect = ", a redirect, which is not followed; configure the address that it leads to"
    text = f"{subject} answered {status} ({detail}){redirect if 300 <= status < 400 else ''}"
    return AgentError(text, permanent=permanent, waits=not permanent, retry_after=retry_after)


def is_permanent(status: int, code: str | None = None) -> bool:
    """Return whether a retry would fail again; of the codes, only those of an exhausted quota count."""
    return status not in _TRANSIENT or code in _QUOTA_CODES


def find_code(error: Mapping[str, Any]) -> str | None:
    """Return the code or type of an error if it is a plain word; a provider may put anything there."""
    candidates = (error.get("code"), error.get("type"))
    return next((word for word in candidates if isinstance(word, str) and _CODE.fullmatch(word)), None)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a response asks for a retry, or None."""
    milliseconds = parse_retry_after(headers.get("retry-after-ms"))
    return parse_retry_after(headers.get("retry-after")) if milliseconds is None else milliseconds / 1_000


def parse_retry_after(retry_after: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header, or None if it is missing or invalid."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        try:
            time = parsedate_to_datetime(retry_after or "")
        except (ValueError, OverflowError):  # such as a year of twenty digits
            return None
        seconds = (time.replace(tzinfo=time.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
