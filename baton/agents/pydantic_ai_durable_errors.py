"""Keeps a provider's own words out of the history, where each request of a Pydantic AI agent is an activity.

The framework hands a failed request on to the workflow with the body of the provider's answer, which may repeat a key
or what it was sent. Here the body is left out before Temporal sees it; kind, status and code remain, so the workflow
still has the framework's own error. What tools and models said with halves of characters is made whole here as well,
for Temporal could not store it and would run the activity again without end.
"""

import dataclasses
from typing import Any

from pydantic import BaseModel
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_core import PydanticSerializationError, to_json
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from baton.agents.pydantic_ai_errors import reported
from baton.errors import AgentError, PatchError
from baton.wire.json_values import well_formed

_ENCODED = "pydantic_ai_model_error"  # where the framework puts what its workflow makes the error of
_OF_AN_AGENT = "agent__"  # how the framework names the activities of its agents, with the agent's name behind it
_WORDS = ("body", "headers", "hint", "suggested_model_id")


class WithoutWords(Interceptor):
    """The worker's interceptor that leaves a provider's own words out of what a request failed with."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Stand around every activity."""
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    """One activity; those of other kinds are passed through."""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity."""
        if not activity.info().activity_type.startswith(_OF_AN_AGENT):
            return await super().execute_activity(input)
        try:
            return _whole(await super().execute_activity(input))
        except ModelAPIError as error:
            raise ApplicationError(_text(error), type=type(error).__name__) from None
        except ApplicationError as error:
            if isinstance(error.__cause__, UnexpectedModelBehavior):  # the framework's, with its words as they are
                raise _told(error.__cause__) from None
            if not isinstance(error.__cause__, ModelAPIError):
                raise
            raise ApplicationError(
                _text(error.__cause__),
                *(_wordless(one, error.__cause__) for one in error.details),
                type=error.type,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
            ) from None
        except Exception as error:
            if (told := _told(error)) is error:
                raise
            raise told from None


def _whole(result: Any) -> Any:
    """Return what an activity returned with whole characters in its texts."""
    try:
        to_json(result)
    except PydanticSerializationError:
        return _mended(result)
    return result


def _mended(value: Any) -> Any:
    """Return what `_whole` returns, of a value that is not sound or of a type that only the framework can write."""
    if isinstance(value, str):
        return well_formed(value) if type(value) is str else value
    if type(value) is dict:
        return {_mended(name): _mended(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mended(inner) for inner in value)
    if isinstance(value, BaseModel):
        named = {name: getattr(value, name) for name in type(value).model_fields}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    else:
        return value
    for name, inner in named.items():
        if (made := _mended(inner)) is not inner:
            object.__setattr__(value, name, made)  # in place: only its own class knows how to make another one
    return value


def _told(error: Exception) -> Exception:
    """Return what an activity fails with for what the framework raised; the error itself where it is not its own."""
    made = reported(error, _agent())
    if not isinstance(made, AgentError | PatchError) or made is error:
        return error
    final = isinstance(made, PatchError) or made.permanent
    return ApplicationError(str(made), type=type(made).__name__, non_retryable=final)


def _text(error: ModelAPIError) -> str:
    """Return what happened, in words of our own."""
    return str(reported(error, _agent()))


def _agent() -> str:
    """Return the name of the agent whose activity it is, which is in the activity's name."""
    named = activity.info().activity_type.split("__")
    return named[1] if len(named) > 1 else named[0]


def _wordless(detail: Any, error: ModelAPIError) -> Any:
    """Return a detail of a failure without what the provider said."""
    if not isinstance(detail, dict) or not isinstance(detail.get(_ENCODED), dict):
        return detail
    encoded = detail[_ENCODED]
    args = list(encoded.get("args") or ())
    if args:  # the last one is the body of an answer, or what the client of the provider said
        args[-1] = None if isinstance(error, ModelHTTPError) else _text(error)
    state = {name: None if name in _WORDS else value for name, value in (encoded.get("state") or {}).items()}
    return {**detail, _ENCODED: {**encoded, "args": args, "state": state}}
