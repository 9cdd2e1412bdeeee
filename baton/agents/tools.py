"""Tools of a stage's agent: plain functions, described for a model and checked at every call."""

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

from baton.contract.registry import tool_key
from baton.pipelines.activity_context import StageContext
from baton.wire.json_values import repair_text

_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_VALIDATION_FILE = validate_call(lambda: None).__code__.co_filename  # where pydantic validates arguments

_MAX_CALL_ID_LENGTH = 48  # with the number below the 64 characters that OpenAI accepts


def wire_name(name: str) -> str:
    """Return the name of a tool for providers: letters, digits, `_` and `-`, at most 64 characters."""
    return _INVALID_CHARACTER.sub("_", name)[:64]


@dataclass(frozen=True)
class AgentTool:
    """A function that an agent may call.

    Attributes:
        name: The tool's name in contracts, for example `crm.lookup_pricing`.
        function: The function, async or not; one that is not async runs in a thread.
        description: Its purpose, for the model.
        parameters: The JSON Schema of its arguments.
        agent_tools: For a tool that asks another agent (`agent_tool`), the tools of that agent.
        repeatable: Whether calling it again changes nothing outside, so that the lab may call it.

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
    agent_tools: frozenset[str] | None = None
    repeatable: bool = False

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        repeatable: bool = False,
    ) -> Self:
        """Make a tool from a function.

        Args:
            function: An async or plain function whose annotated parameters can be passed by name.
            name: The tool's name; by default the function's.
            description: Its purpose; by default the first paragraph of the docstring.
            repeatable: Whether calling it again changes nothing outside; see `docs/lab.md`.

        Raises:
            TypeError: A parameter has a type that JSON cannot describe.
        """
        doc = inspect.cleandoc(_unwrap(function).__doc__ or "").partition("\n\n")[0]
        name = name or function_name(function)
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type]  # describes the arguments
            schema = adapter.json_schema()
        except Exception as error:
            raise TypeError(f"tool {name!r}: its parameters cannot be described to a model; annotate them") from error
        return cls(name, function, doc if description is None else description, schema, repeatable=repeatable)

    @property
    def wire_name(self) -> str:
        """The tool's name for a model."""
        return wire_name(self.name)

    def guarded(self, context: StageContext[Any]) -> Self:
        """Return the tool for a stage's agent: each call is checked, recorded and reported as a heartbeat."""
        # The guard is outermost: the arguments of a denied call are not validated.
        function = context.tools.guard(validate_call(self.function), self.name, repeatable=self.repeatable)
        return replace(self, function=function)

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the tool with arguments by name, and return a result that can be sent to the model.

        Raises:
            pydantic.ValidationError: The arguments do not fit the parameters.
            RuntimeError: The function itself raised a `ValidationError`, for example about a server's response.
            ToolDeniedError: The tool is guarded and the call is not allowed.
        """
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(**arguments)
            else:
                result = await asyncio.to_thread(self.function, **arguments)
                result = await result if inspect.isawaitable(result) else result
        except ValidationError as error:
            if _is_argument_error(error):
                raise
            raise RuntimeError(f"tool {self.name!r} raised {type(error).__name__}: {error}") from error
        try:
            return _repair_result(result)
        except RecursionError:  # the result contains itself
            return repair_text(str(result))


class CallIds:
    """Makes the ids of a run's tool calls unique: some servers repeat them, which frameworks and providers refuse."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = {*seen}

    def unique(self, call_id: str) -> str:
        """Return the id if it is new, otherwise one with a number after it."""
        candidate, number = call_id, 1
        while candidate in self._seen:
            number += 1
            candidate = f"{call_id[:_MAX_CALL_ID_LENGTH]}_{number}"
        self._seen.add(candidate)
        return candidate


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function, also if it is wrapped in `partial`."""
    return _unwrap(function).__name__


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, partial) else function


def _is_argument_error(error: ValidationError) -> bool:
    """Return whether an error was raised before the function itself ran."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return _VALIDATION_FILE in files and {*files[files.index(_VALIDATION_FILE) :]} == {_VALIDATION_FILE}


def _repair_result(value: Any) -> Any:
    """Repair lone surrogates, which names of files that are not UTF-8 contain."""
    if isinstance(value, str):
        return repair_text(value)
    if type(value) in (list, tuple):
        return type(value)(_repair_result(item) for item in value)
    if type(value) is dict:
        return {_repair_result(key): _repair_result(member) for key, member in value.items()}
    return value


def render_result(result: Any) -> str:
    """Return a tool's result as text for a model: texts unchanged, anything else as JSON."""
    if isinstance(result, str):
        return result
    try:
        plain = to_jsonable_python(result, fallback=str, bytes_mode="base64")
    except ValueError:  # an object that contains itself, or has a lone surrogate in a name
        plain = str(result)
    return json.dumps(_repair_result(plain), ensure_ascii=False)


def build_tools(functions: Iterable[Callable[..., Any] | AgentTool]) -> tuple[AgentTool, ...]:
    """Make tools of functions, and check that a model can tell them apart."""
    tools: dict[str, AgentTool] = {}
    for function in functions:
        tool = function if isinstance(function, AgentTool) else AgentTool.of(function)
        if (other := tools.setdefault(tool_key(tool.wire_name), tool)) is not tool:
            raise ValueError(f"the tools {other.name!r} and {tool.name!r} are one to a model or a contract; rename one")
    return tuple(tools.values())
