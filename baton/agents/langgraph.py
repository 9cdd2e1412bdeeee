"""LangGraph nodes and graphs as stages: changes of their state become the baton's patch.

A stage is one activity around the whole node or graph. Temporal records its result and retries it if its worker is
lost, so a graph needs no checkpointer; with one, each run has a new thread. Callbacks watch the models and tools:
requests are counted and charged, and a forbidden tool does not run.
"""

import dataclasses
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

from baton.lazy import needs_extra

with needs_extra("langgraph", __name__):
    from langchain_core.exceptions import OutputParserException
    from langchain_core.language_models import BaseLanguageModel
    from langchain_core.output_parsers import BaseOutputParser
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
    from langgraph.errors import GraphRecursionError, ParentCommand
    from langgraph.graph import StateGraph
    from langgraph.pregel import Pregel
    from langgraph.types import Command, Send, interrupt

from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from baton.agents.answers import AgentAnswer, AnswerForm
from baton.agents.billing import time_limit
from baton.agents.failures import NO_USABLE_FORM, finish_error, is_parse_error, provider_error, unreadable_error
from baton.agents.langchain_watch import GuardCallback
from baton.agents.port import AgentWork
from baton.core.stages import name_set
from baton.errors import AgentError, PatchError
from baton.pipelines.prompt import READ_ARTIFACT, Reads
from baton.wire.json_values import Json
from baton.wire.money import Price

PROMPT, MESSAGES, PARAMS = "prompt", "messages", "params"
"""Sources for the state beside the baton's fields: the user turn as text, the user turn as a list of one message, and
the pipeline's parameters."""

ANSWER, OUTPUT = "answer", "output"
"""Targets for the state beside the baton's fields: a model's answer, as text or as messages whose last one counts; and
the stage's output."""

StateIn = Mapping[str, str] | Callable[[AgentWork], Any]
"""Builds the state: a mapping from members to sources, or a function."""
StateOut = Mapping[str, str] | Callable[[Mapping[str, Any]], AgentAnswer | Mapping[str, Json]]
"""Reads the state: a mapping from targets, such as fields of the baton, to members, or a function."""

_INTERRUPT = "__interrupt__"
_GOTO = "goto"
_STRUCTURED_OUTPUT = "StructuredOutputError"  # of `langchain.agents`, which may not be installed


class LangGraphAgent:
    """A LangGraph node or graph behind the port `baton.agents.port.Agent`.

    Args:
        node: A function of the state, async or not, as for `add_node`; a runnable; or a graph, compiled or not.
        into: Builds the state: `{"task": "goal", "messages": "messages"}` puts the baton's goal into the member `task`
            and the fenced prompt into `messages`. By default each field of the baton becomes a member of that name.
        out: Makes the patch: `{"current_state": "draft", "output": "score"}` takes the field `current_state` from the
            member `draft`, and the stage's output from `score`. By default each member named like a field of the baton
            becomes that field; if there is none, the last of the `messages` is the answer.
        uses: The tools that it may call; the stage declares them.
        price: The price of the models, if the public price list does not know them.
        stream: Stream the models' texts to clients that follow the run, like `p.stage(…, stream=True)`.
        steers: Whether its nodes add people's notes (`await new_notes()`) to the requests that they make; the adapter
            cannot.

    Attributes:
        name: The node's name.
        tool_names: The tools that it may call, for the stage to declare.
        reads: "tool" if `uses` has `read_artifact`, otherwise None.

    Raises:
        ValueError: The node is a function with parameters other than the state and a config, or a graph with
            breakpoints.

    Example:
        >>> import asyncio
        >>> from baton import Baton, StageContext
        >>> from baton.agents import agent_stage
        >>> async def plan(state: dict[str, Any]) -> dict[str, Any]:
        ...     return {"current_state": [f"A plan for {state['goal']}"]}
        >>> planning = agent_stage(LangGraphAgent(plan))
        >>> asyncio.run(planning(StageContext.for_test(Baton(goal="a login")))).baton_patch
        {'current_state': ['A plan for a login']}
    """

    def __init__(
        self,
        node: Any,
        *,
        into: StateIn | None = None,
        out: StateOut | None = None,
        uses: Iterable[str] = (),
        price: Price | None = None,
        stream: bool = False,
        steers: bool = False,
    ) -> None:
        self.name = _name_of(node)
        names = name_set(uses, "uses")
        self.tool_names = names - {READ_ARTIFACT}
        self.reads: Reads | None = "tool" if READ_ARTIFACT in names else None  # its nodes bring their own tools
        self._into = into
        self._out = out
        self._price = price
        self.stream = stream
        self.steers = steers
        self._is_graph = isinstance(node, StateGraph | Pregel)
        self._runnable = _make_runnable(node)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the node or graph once.

        Raises:
            AgentError: The run waits for a person, takes too many steps, reaches a limit, or does not return a state.
            PatchError: A model gave no usable answer.
            ToolDeniedError: A forbidden tool was called.
        """
        state_in = self._build_state(work)
        before = self._select_members(work, state_in)  # now: a node may mutate the lists in its state
        watch = GuardCallback(work, self.name, self._price)
        thread = f"{work.handoff_id or self.name}:{uuid4()}"  # so that a checkpointer has no state for it
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        try:
            with watch.watching():
                async with time_limit(work, self.name):
                    returned = await self._execute(state_in, config, streams=work.context.stream.wanted)
        except GraphRecursionError as error:
            raise AgentError(f"the graph {self.name!r} took too many steps; raise its recursion_limit") from error
        except ParentCommand as error:
            target = f"continues at {_goto_names(error.args[0])!r} of a parent graph, and there is none"
            message = f"the graph {self.name!r} {target}; make a stage of the parent graph"
            raise AgentError(message, permanent=True) from None
        except Exception as error:
            watch.raise_pending()
            if isinstance(error, KeyError) and _is_from_interrupt(error):  # outside a graph
                raise self._interrupt_error() from None
            if (translated := provider_error(error, self.name)) is not None:
                raise translated from None
            if is_parse_error(error, BaseLanguageModel):
                raise unreadable_error(error, self.name) from None
            if _is_malformed(error):  # its message quotes the answer
                raise self._finish_error(watch.message) or PatchError([NO_USABLE_FORM]) from None
            raise
        finally:
            await watch.settle()
        watch.raise_pending()
        state, goto = _split_result(returned, self.name)
        if _INTERRUPT in state:
            raise self._interrupt_error()
        answer = self._build_answer(work, before, state, goto)
        watch.record_texts(except_for=self._answer_text(state))
        return answer

    async def _execute(self, state_in: Any, config: RunnableConfig, *, streams: bool) -> Any:
        """Run the node or graph to its end, and return its state."""
        if not (streams and isinstance(self._runnable, Pregel)):
            return await self._runnable.ainvoke(state_in, config)
        state = None
        # With the mode `messages`, the models of a graph stream.
        modes: Any = ["messages", "updates", "values"]
        keys = self._runnable.output_channels
        async for mode, chunk in self._runnable.astream(state_in, config, stream_mode=modes, output_keys=keys):
            if mode == "values":
                state = chunk
            elif mode == "updates" and _INTERRUPT in chunk:
                raise self._interrupt_error()
        return state

    def _interrupt_error(self) -> AgentError:
        message = f"the graph {self.name!r} stopped at an interrupt; ask people with the pipeline's approvals"
        return AgentError(message, permanent=True)

    def _build_state(self, work: AgentWork) -> Any:
        if callable(self._into):
            return self._into(work)
        baton = work.context.baton
        fields = type(baton).model_fields
        values = baton.to_json_object()
        if self._into is None:
            return {name: values.get(name, []) for name in fields}
        prompt = partial(work.user_turn, with_schema=work.form is AnswerForm.TYPED)  # no adapter tells its models
        special: dict[str, Callable[[], Any]] = {
            PROMPT: prompt,
            MESSAGES: lambda: [{"role": "user", "content": prompt()}],
            PARAMS: lambda: work.context.params,
        }
        state: dict[str, Any] = {}
        for member, source in self._into.items():
            if source in fields:
                state[member] = values.get(source, [])
            elif source in special:
                state[member] = special[source]()
            else:
                raise AgentError(_unknown_name(self.name, "into", source, [*fields, *special]), permanent=True)
        return state

    def _targets(self, work: AgentWork) -> dict[str, str]:
        """Return the member for each target: fields of the baton, `answer` and `output`."""
        fields = type(work.context.baton).model_fields
        return {name: name for name in fields} if self._out is None or callable(self._out) else dict(self._out)

    def _select_members(self, work: AgentWork, state: Any) -> dict[str, Any]:
        """Return, as JSON, the members for fields of the baton; other members may hold anything."""
        fields = type(work.context.baton).model_fields
        members = {member for field, member in self._targets(work).items() if field in fields}
        values = state if isinstance(state, Mapping) and not callable(self._out) else {}
        return {name: _to_json(values[name]) for name in values if name in members}

    def _build_answer(
        self, work: AgentWork, before: Mapping[str, Any], state: Mapping[str, Any], goto: JsonValue
    ) -> AgentAnswer:
        if callable(self._out):
            result = self._out(state)
            return result if isinstance(result, AgentAnswer) else AgentAnswer(patch=result, output=goto)
        fields = type(work.context.baton).model_fields
        targets = self._targets(work)
        if self._out is None and goto is None and state and state.keys().isdisjoint(fields):
            if MESSAGES not in state:
                members = ", ".join(sorted(map(repr, state)))
                message = f"the node {self.name!r} returned {members}, none of which is a field of the baton"
                raise AgentError(f"{message}; map them, for example by out={{'output': …}}", permanent=True)
            targets = {ANSWER: MESSAGES}
        if unknown := targets.keys() - fields - {ANSWER, OUTPUT}:
            raise AgentError(_unknown_name(self.name, "out", min(unknown), [*fields, ANSWER, OUTPUT]), permanent=True)
        answer_member, output_member = targets.pop(ANSWER, None), targets.pop(OUTPUT, None)
        answer = AgentAnswer() if answer_member is None else self._read_answer(work, state.get(answer_member))
        changed = self._find_changes(before, self._select_members(work, state))
        patch = {field: changed[member] for field, member in targets.items() if member in changed}
        if output_member is not None:
            goto = _to_json(state.get(output_member))
        return dataclasses.replace(
            answer,
            patch={**_patch_members(answer.patch), **patch} or answer.patch,
            output=answer.output if goto is None else goto,
        )

    def _read_answer(self, work: AgentWork, value: Any) -> AgentAnswer:
        """Parse the answer in a text, a message, or the last of several messages."""
        message = _last_message(value)
        if (error := self._finish_error(message)) is not None:
            raise error
        return work.read(_message_text(message))

    def _answer_text(self, state: Mapping[str, Any]) -> str | None:
        out = {ANSWER: MESSAGES} if self._out is None else self._out
        member = out.get(ANSWER) if isinstance(out, Mapping) else None
        return None if member is None else _message_text(_last_message(state.get(member)))

    def _finish_error(self, message: Any) -> AgentError | PatchError | None:
        """Return the error for a message that ended early, or None if it is complete."""
        metadata: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
        if (getattr(message, "additional_kwargs", None) or {}).get("refusal"):
            return finish_error("refusal", self.name)
        reasons = [metadata.get(name) for name in ("finish_reason", "stop_reason", "stopReason")]
        reasons.append((metadata.get("incomplete_details") or {}).get("reason"))
        return next((error for reason in reasons if (error := finish_error(reason, self.name))), None)

    def _find_changes(self, before: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changed members; of a decision log that only grew, the new entries."""
        changes: dict[str, Any] = {}
        is_complete = self._is_graph or (before and before.keys() <= state.keys())
        for name, new in state.items():
            old: Any = before.get(name)
            if is_complete and new == old:
                continue
            length = len(old) if name == "decision_log" and isinstance(old, list) and isinstance(new, list) else 0
            changes[name] = new[length:] if length and new[:length] == old else new
        return changes


def _name_of(node: Any) -> str:
    name = getattr(node, "name", None) or getattr(node, "__name__", None)
    return name if isinstance(name, str) and name else type(node).__name__


def _make_runnable(node: Any) -> Runnable[Any, Any]:
    if isinstance(node, StateGraph):
        node = node.compile()
    if isinstance(node, Pregel) and (stops := sorted(set(_breakpoints(node)))):
        # The graph would return its state so far as if it were done.
        raise ValueError(
            f"the graph {_name_of(node)!r} stops at {', '.join(map(repr, stops))} (interrupt_before, interrupt_after), "
            "and nothing would resume it; remove the interrupts and ask people with the pipeline's approvals"
        )
    if isinstance(node, Runnable):
        return node
    extra = [
        parameter.name
        for parameter in list(inspect.signature(node).parameters.values())[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in ("config", "run_manager")
    ]
    if extra:
        raise ValueError(
            f"the node {_name_of(node)!r} takes {', '.join(map(repr, extra))} beside the state; put it into a graph "
            "and make a stage of the graph"
        )
    return RunnableLambda(node)


def _breakpoints(graph: Pregel[Any, Any, Any, Any]) -> Iterator[str]:
    """Yield the nodes that a graph or its subgraphs stop before or after."""
    for names in (graph.interrupt_before_nodes, graph.interrupt_after_nodes):
        yield from [names] if isinstance(names, str) else names
    for node in graph.nodes.values():
        if isinstance(node.bound, Pregel):
            yield from _breakpoints(node.bound)


def _split_result(returned: Any, name: str) -> tuple[dict[str, Any], JsonValue]:
    """Return the state in a node's result, and the next node if it names one."""
    if isinstance(returned, Command):
        update = returned.update
        state = dict(update) if isinstance(update, list | tuple) else _split_result(update, name)[0]
        return state, {_GOTO: _goto_names(returned)} if returned.goto else None
    if returned is None:
        return {}, None
    if isinstance(returned, Mapping):
        return dict(returned), None
    if isinstance(returned, BaseModel):
        return {field: getattr(returned, field) for field in returned.model_fields_set}, None
    if dataclasses.is_dataclass(returned) and not isinstance(returned, type):
        return {field.name: getattr(returned, field.name) for field in dataclasses.fields(returned)}, None
    raise AgentError(f"the node {name!r} returned a {type(returned).__name__}; return a state", permanent=True)


def _is_from_interrupt(error: Exception) -> bool:
    return any(frame.f_code is interrupt.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_malformed(error: Exception) -> bool:
    """Return whether an error means that a model's answer was malformed."""
    by_name = any(base.__name__ == _STRUCTURED_OUTPUT for base in type(error).__mro__)
    return by_name or isinstance(error, OutputParserException) or is_parse_error(error, BaseOutputParser)


def _goto_names(command: Command[Any]) -> JsonValue:
    goto: Any = command.goto
    return [_node_name(target) for target in goto] if isinstance(goto, list | tuple) else _node_name(goto)


def _node_name(target: Any) -> str:
    return target.node if isinstance(target, Send) else str(target)


def _patch_members(patch: Any) -> dict[str, Any]:
    return patch.to_json_object() if isinstance(patch, BaseModel) else dict(patch or {})  # type: ignore[attr-defined]


def _to_json(value: Any) -> Any:
    """Convert a value to JSON, including messages, records and enums."""
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64")
    except UnicodeEncodeError:  # a lone surrogate in a name: rejected later as for any answer
        return value


def _last_message(value: Any) -> Any:
    return value[-1] if isinstance(value, list | tuple) and value else value


def _message_text(message: Any) -> str:
    content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", message)
    if isinstance(content, list):  # content blocks
        return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in content)
    return content if isinstance(content, str) else ""


def _unknown_name(node: str, mapping: str, name: str, known: Iterable[str]) -> str:
    return f"{mapping!r} of the node {node!r} names {name!r}; known are {', '.join(sorted(known))}"
