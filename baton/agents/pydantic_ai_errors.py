"""What Pydantic AI raises, as a stage is to see it: worth another run or not, and without a provider's own words.

A provider may repeat a key, or what it was sent, in the body of its error; so of an error only its kind, its status
and its code are passed on.
"""

import re

from pydantic_ai import models
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    OutputTokenLimitExceeded,
    RunTimedOut,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_core import PydanticSerializationError

from baton.agents.failures import answered, cut_off, is_permanent, stopped, stumbled, unreadable
from baton.errors import AgentError, PatchError

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
_KEY = re.compile(r"(?i)sk-|key-|bearer")
_IN_VAIN = re.compile(r"Tool '(?P<tool>[\w.-]{1,64})' exceeded max retries count of (?P<most>\d+)")
_NOT_ALLOWED = "Model requests are not allowed"
_EXHAUSTED = re.compile(r"Exceeded maximum (?:output )?retries|maximum retries|Exceeded max")


def reported(error: Exception, agent: str) -> Exception:
    """Return what the stage raises for what a run of the framework raised."""
    who = f"agent {agent!r}"
    match error:
        case ModelAPIError():
            return _of_request(error, who)
        case FallbackExceptionGroup():
            parts = [reported(one, agent) for one in error.exceptions if isinstance(one, Exception)]
            permanent = all(isinstance(one, AgentError) and one.permanent for one in parts)
            waits = any(isinstance(one, AgentError) and one.waits for one in parts)
            why = f"{who}: every model failed: " + "; ".join(map(str, parts))
            return AgentError(why, permanent=permanent, waits=waits)
        case RunTimedOut():
            return AgentError(f"{who} did not come to an end in the time that its stage has")
        case ContentFilterError():
            return stopped(agent)
        case OutputTokenLimitExceeded():
            return cut_off()
        case UnexpectedModelBehavior() if _EXHAUSTED.search(error.message):
            return PatchError([f"the model gave no usable answer: {error.message}"])
        case UnexpectedModelBehavior() if found := _IN_VAIN.match(error.message):
            often = f"more often than the agent's retries ({found['most']}) allow"
            todo = "call a tool that there is, with arguments that fit, or do without"
            return PatchError([f"the tool {found['tool']!r} was called in vain {often}; {todo}"])
        case UnexpectedModelBehavior():
            return unreadable(error, agent)
        case PydanticSerializationError():
            told = (
                "what a tool returned, or said in halves of characters, cannot be sent to a model; have it return JSON"
            )
            return AgentError(f"{who}: {told}", permanent=True)
        case UserError():
            return AgentError(f"{who} is not set up to run: {error.message}", permanent=True)
        case AgentRunError():
            return AgentError(f"{who} failed ({type(error).__name__})")
        case RuntimeError() if not models.ALLOW_MODEL_REQUESTS and str(error).startswith(_NOT_ALLOWED):
            told = (
                "may ask no model, by pydantic_ai.models.ALLOW_MODEL_REQUESTS; give it a TestModel or a FunctionModel"
            )
            return AgentError(f"{who} {told}", permanent=True)
        case _ if stumbled(error, Model) or stumbled(error, StreamedResponse):
            return unreadable(error, agent)
        case _:
            return error


def _status(error: ModelAPIError) -> int | None:
    """Return the status of the answer; that of a redirect is known to the provider's client alone."""
    status = getattr(error if isinstance(error, ModelHTTPError) else error.__cause__, "status_code", None)
    return status if isinstance(status, int) and status >= 300 else None


def _of_request(error: ModelAPIError, who: str) -> AgentError:
    """Return what a request failed with, without the body of the provider's answer."""
    kind, code, status = type(error).__name__, error.provider_error_code, _status(error)
    permanent = isinstance(error, ModelRequestRejectedError | ModelQuotaExceededError)
    permanent |= status is not None and is_permanent(status)
    if code and _CODE.fullmatch(code) and not _KEY.search(code):
        kind += f", {code}"
    who = f"{who}: the provider of {error.model_name!r}"
    if status is not None:
        return answered(who, status, kind, permanent=permanent, retry_after=error.retry_after)
    why = f"{who} could not be reached or read ({kind})"
    return AgentError(why, permanent=permanent, waits=not permanent, retry_after=error.retry_after)
