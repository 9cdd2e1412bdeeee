"""What providers and their clients raise or answer, as a stage sees it: one rule for all adapters."""

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
"""The finding for an answer that a framework found malformed; its own message would quote the answer."""

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
    """Return what a stage raises for an answer that reached the most tokens that a model may write."""
    return PatchError(["the answer was cut off at the most tokens a model may write; answer more briefly"])


def stopped_error(agent: str) -> AgentError:
    """Return what a stage raises for an answer that a model refused, or that a filter of its provider stopped."""
    return AgentError(
        f"agent {agent!r}: the model refused to answer, or its provider's content filter stopped it; "
        "change what it is asked, or its model",
        permanent=True,
    )


def finish_error(reason: object, agent: str) -> AgentError | PatchError | None:
    """Return what a stage raises for an answer that did not come to its own end; None if it did."""
    word = reason.lower() if isinstance(reason, str) else None
    if word in _CUT_OFF:
        return cut_off_error()
    return stopped_error(agent) if word in _STOPPED else None


_PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that another run may not meet again; every other failure is permanent."""

_SPENT_OUT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_CODE = re.compile(r"[a-z][a-z0-9_]{2,59}")
_WITHOUT_KEY = ("OpenAIError", "AnthropicError")  # what a client without a key raises
_UNREACHABLE = ("APIConnectionError", "APITimeoutError")
_UNFINISHED = {
    "LengthFinishReasonError": "length",
    "ContentFilterFinishReasonError": "content_filter",
    "OpenAIRefusalError": "refusal",
    "ModelRefusalError": "refusal",
}
"""What clients raise of an answer that did not come to its end, and why it did not."""


_KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:API_)?(?:KEY|TOKEN)\b")


def missing_key(error: Exception, agent: str) -> ConfigurationError | None:
    """Return what a stage raises where a client found no key, by the variable that its message asks for."""
    named = _KEY_VARIABLE.search(str(error))
    if named is None or os.environ.get(named[0], "").strip():
        return None
    told = f"agent {agent!r}: the environment of this worker has no {named[0]!r}, which holds the key; set it"
    return ConfigurationError(told)


def provider_error(error: Exception, agent: str) -> AgentError | ConfigurationError | PatchError | None:
    """Return what a stage raises for an error of a provider's client; None if it is none."""
    kind = type(error).__name__
    if kind in _WITHOUT_KEY and (missing := missing_key(error, agent)):
        return missing
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 300:
        code = code_of({name: getattr(error, name, None) for name in ("code", "type")})
        shown = f"{kind}, {code}" if code else kind
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        who = f"agent {agent!r}: the provider"
        return answered(who, status, shown, permanent=is_permanent(status, code), retry_after=retry_after_of(headers))
    if any(one.__name__ in _UNREACHABLE for one in type(error).__mro__):
        return AgentError(f"agent {agent!r}: the provider could not be reached ({kind})", waits=True)
    return finish_error(_UNFINISHED.get(kind), agent)


def unreadable(error: BaseException, agent: str) -> AgentError:
    """Return what a stage raises for an answer that a client cannot read."""
    return AgentError(f"agent {agent!r}: the provider's answer cannot be read ({type(error).__name__})")


def raised_within(error: BaseException, kind: type) -> bool:
    """Return whether an error came out of a method of such an object, however deep below it was raised."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(frame.f_locals.get("self"), kind) for frame in frames)


def is_parse_error(error: Exception, model: type) -> bool:
    """Return whether a client came to grief over an answer: any error out of a method of such a model."""
    return raised_within(error, model) and not isinstance(error, AssertionError | BatonError | TemporalError)


def answered(who: str, status: int, shown: str, *, permanent: bool, retry_after: float | None = None) -> AgentError:
    """Return what a stage raises for a status that is not a success."""
    redirect = ", a redirect, which is not followed; name the address that it leads to"
    text = f"{who} answered {status} ({shown}){redirect if 300 <= status < 400 else ''}"
    return AgentError(text, permanent=permanent, waits=not permanent, retry_after=retry_after)


def is_permanent(status: int, code: str | None = None) -> bool:
    """Return whether the same request would be refused again: a code alone says that the money is used up."""
    return status not in _PASSING or code in _SPENT_OUT


def code_of(error: Mapping[str, Any]) -> str | None:
    """Return the code in an error, or its type, if it is a plain word: a provider may put anything there."""
    words = (error.get("code"), error.get("type"))
    return next((one for one in words if isinstance(one, str) and _CODE.fullmatch(one)), None)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return after how many seconds the headers of an answer ask to be asked again; None if they do not."""
    exact = retry_after_seconds(headers.get("retry-after-ms"))
    return retry_after_seconds(headers.get("retry-after")) if exact is None else exact / 1_000


def retry_after_seconds(retry_after: str | None, now: datetime | None = None) -> float | None:
    """Return after how many seconds a `Retry-After` header asks to be asked again; None if it says nothing of use."""
    try:
        found = float(retry_after or "")
    except ValueError:
        try:
            at = parsedate_to_datetime(retry_after or "")
        except (ValueError, OverflowError):  # a year of twenty digits
            return None
        found = (at.replace(tzinfo=at.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, found) if math.isfinite(found) else None
