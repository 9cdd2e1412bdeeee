"""Tools that a stage gives its agent: plain functions, described for a model and checked where they are called."""

import asyncio
import inspect
import json
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic_core import to_jsonable_python

from baton.pipelines.activity_context import StageContext
from baton.wire.json_values import repair_text

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_CHECKS = validate_call(lambda: None).__code__.co_filename  # where arguments are held to a function's parameters


def wire_name(name: str) -> str:
    """Return the name of a tool as providers take it: letters, digits, `_` and `-` only, and at most 64 of them."""
    return _NOT_IN_A_NAME.sub("_", name)[:64]


@dataclass(frozen=True)
class AgentTool:
    """A function that an agent may call.

    Attributes:
        name: The tool's name in contracts, for example `crm.lookup_pricing`.
        function: What does its work, async or not; one that is not async runs in a thread.
        description: What it is for, as the model reads it.
        parameters: The JSON Schema of its arguments.

    Example:
        >>> def lookup(customer: str, limit: int = 5) -> str:
        ...     '''Find what a customer pays.'''
        ...     return f"{customer} pays 20 USD"
        >>> tool = AgentTool.of(lookup, name="crm.lookup")
        >>> tool.wire_name, tool.description, tool.parameters["required"]
        ('crm_lookup', 'Find what a customer pays.', ['customer'])
        >>> asyncio.run(tool.call({"customer": "c-1"}))
        'c-1 pays 20 USD'
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> Self:
        """Return a function as a tool.

        Args:
            function: Async or not, with annotated parameters that can be passed by name.
            name: The tool's name; the function's own by default.
            description: What it is for; the first paragraph of its docstring by default.

        Raises:
            TypeError: One of its parameters has a type that JSON cannot describe.
        """
        doc = inspect.cleandoc(_itself(function).__doc__ or "").partition("\n\n")[0]
        name = name or name_of(function)
        try:
            described: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type]  # of its arguments
            schema = described.json_schema()
        except Exception as error:
            raise TypeError(f"tool {name!r}: its parameters cannot be described to a model; annotate them") from error
        return cls(name, function, doc if description is None else description, schema)

    @property
    def wire_name(self) -> str:
        """The name for a model."""
        return wire_name(self.name)

    def guarded(self, context: StageContext[Any]) -> Self:
        """Return the tool as a stage's agent gets it: each call is checked, recorded and told as a sign of life."""
        # The check stands outermost: a call that is denied is not even looked at.
        checked = context.tools.guard(validate_call(self.function), self.name)
        return replace(self, function=checked)

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call it with arguments by name, as a model gives them, and return what can be sent to the model.

        Raises:
            pydantic.ValidationError: The arguments do not fit its parameters.
            RuntimeError: The function itself raised a `ValidationError`, as over what it was answered by a server.
            ToolDeniedError: A guarded one is not allowed.
        """
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(**arguments)
            else:
                result = await asyncio.to_thread(self.function, **arguments)
                result = await result if inspect.isawaitable(result) else result
        except ValidationError as error:
            if _is_of_arguments(error):
                raise
            raise RuntimeError(f"tool {self.name!r} raised {type(error).__name__}: {error}") from error
        try:
            return _sendable(result)
        except RecursionError:  # it refers to itself
            return repair_text(str(result))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; one that some arguments are bound to keeps its name."""
    return _itself(function).__name__


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a partial function is made of, which has no name and the docstring of all of its kind."""
    return function.func if isinstance(function, partial) else function


def _is_of_arguments(error: ValidationError) -> bool:
    """Return whether an error came up before the function ran; other arguments would not help."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return _CHECKS in files and {*files[files.index(_CHECKS) :]} == {_CHECKS}


def _sendable(value: Any) -> Any:
    """Return a value whose texts can be sent: names of files that are no UTF-8 have halves of characters."""
    if isinstance(value, str):
        return repair_text(value)
    if type(value) in (list, tuple):
        return type(value)(_sendable(one) for one in value)
    return {_sendable(key): _sendable(one) for key, one in value.items()} if type(value) is dict else value


def as_text(result: Any) -> str:
    """Return what a tool returned as a model reads it: a text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    try:
        found = to_jsonable_python(result, fallback=str, bytes_mode="base64")
    except ValueError:  # an object that refers to itself, or has half a character in a name
        found = str(result)
    return json.dumps(_sendable(found), ensure_ascii=False)


def tools_of(given: Iterable[Callable[..., Any] | AgentTool]) -> tuple[AgentTool, ...]:
    """Return functions and tools as tools, after checking that a model can tell them apart."""
    tools: dict[str, AgentTool] = {}
    for one in given:
        tool = one if isinstance(one, AgentTool) else AgentTool.of(one)
        if (other := tools.setdefault(tool.wire_name, tool)) is not tool:
            raise ValueError(
                f"the tools {other.name!r} and {tool.name!r} are both {tool.wire_name!r} to a model; rename one"
            )
    return tuple(tools.values())
