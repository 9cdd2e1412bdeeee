"""Agents that run inside a function of another's tool: a contract refuses those whose tools cannot be checked.

An agent that is a tool by `agent_tool` is checked, charged and recorded like the stage's own.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, Protocol

from baton.errors import AgentError
from baton.pipelines.activity_context import StageContext

_PACKAGES = frozenset({"agents", "pydantic_ai"})  # graphs are watched also inside a tool
_AGENT_TYPES = frozenset({"Agent", "AbstractAgent"})
_MAX_FUNCTIONS = 1_000


def is_limited(context: StageContext[Any]) -> bool:
    """Return whether a contract, a stage or a pipeline above says which tools may be called."""
    has_limits = context.contract is not None and context.contract.limits_tools
    return has_limits or bool(context.forbidden_tools or context.given.tool_limits)


class WatchesNested(Protocol):
    """An adapter that charges and records agents of its framework that run inside tools."""

    def nested_tools(self, agent: Any) -> frozenset[str] | None:
        """Return the tools of such an agent; None if they are not known before it runs."""
        ...


def refuse_nested_agents(context: StageContext[Any], agent: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Refuse tools whose functions refer to agents, by their globals, closures or objects, before anything runs.

    An adapter that watches such agents may have them, if the contract allows all their tools.

    Raises:
        AgentError: A tool refers to an agent that may not run, and the stage's tools are limited.
    """
    if not is_limited(context):
        return
    tools_of = getattr(agent, "nested_tools", lambda nested: None)
    for name, function in functions.items():
        for nested in find_agents(function):
            tools = tools_of(nested)
            if tools is None or not all(map(context.tools.allows, tools)):
                raise nested_error(agent.name, name, str(getattr(nested, "name", None) or "agent"))


def nested_error(agent: str, tool: str, nested: str = "") -> AgentError:
    """Return the error for a tool that runs another agent."""
    other = f"the agent {nested!r}" if nested else "another agent"
    message = f"agent {agent!r}: the tool {tool!r} runs {other}, whose own tools no contract guards"
    return AgentError(f"{message}; make a tool of the agent with `agent_tool`, or a stage", permanent=True)


def find_agents(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield the agents that a function refers to, also by functions that it calls."""
    pending: list[Any] = [function]
    seen: set[int] = set()
    while pending and len(seen) < _MAX_FUNCTIONS:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if _is_agent(value):
            yield value
        elif isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif inspect.ismethod(value):
            pending += [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
        elif callable(value) and not isinstance(value, type | FunctionType):  # an object with `__call__`
            pending += getattr(value, "__dict__", {}).values()
        elif isinstance(value, FunctionType):
            names = set(_names(value.__code__))
            pending += [value.__globals__[name] for name in names if name in value.__globals__]
            pending += [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            pending += [*(value.__defaults__ or ()), *vars(value).values()]  # also what it wraps


def _is_agent(value: object) -> bool:
    return any(
        base.__name__ in _AGENT_TYPES and base.__module__.partition(".")[0] in _PACKAGES for base in type(value).__mro__
    )


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function's code and the functions in it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - empty cells raise
    except ValueError:
        return False
    return True
