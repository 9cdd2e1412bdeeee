"""LangGraph nodes and compiled graphs as stages: what they add to their state becomes the baton's patch.

A stage is one activity around the whole node or graph. Temporal keeps what came of it and runs it again if its worker
is lost, so a graph needs no checkpointer; where it has one, each run begins a thread of its own. Its models and tools
are watched from outside: requests are counted and charged, and a tool that the contract does not allow does not run.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    from langgraph.types import Command, Send

from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from baton.agents.answers import AgentAnswer
from baton.agents.billing import in_time
from baton.agents.failures import NO_USABLE_FORM, finish_error, is_parse_error, provider_error, unreadable
from baton.agents.langchain_watch import GuardCallback
from baton.agents.port import AgentWork
from baton.core.stages import name_set
from baton.errors import AgentError, PatchError
from baton.pipelines.prompt import READ_ARTIFACT, Reads
from baton.wire.json_values import Json
from baton.wire.money import Price

PROMPT, MESSAGES, PARAMS = "prompt", "messages", "params"
"""What a member of the state may hold beside a field of the baton: the user turn as a text, the same as a list of one
message, and the pipeline's parameters."""

ANSWER, OUTPUT = "answer", "output"
"""What a member of the state may become beside a field of the baton: an answer that a model gave, as text or as a list
of messages whose last one it is; and the stage's output."""

StateIn = Mapping[str, str] | Callable[[AgentWork], Any]
"""How the state is made: a member's name and what it holds, or a function."""
StateOut = Mapping[str, str] | Callable[[Mapping[str, Any]], AgentAnswer | Mapping[str, Json]]
"""What becomes of the state: a field of the baton and the member that it is taken from, or a function."""

_INTERRUPT = "__interrupt__"
_OUTSIDE_A_GRAPH = "__pregel_scratchpad"  # what `interrupt` looks for, and finds in graphs only
_GOTO = "goto"
_STRUCTURED_OUTPUT = "StructuredOutputError"  # of `langchain.agents`, which a graph does not need


class LangGraphAgent:
    """A LangGraph node or graph behind the port `baton.agents.port.Agent`.

    Args:
        node: A function of the state, async or not, as one gives to `add_node`; a runnable; a graph, compiled or not.
        into: What the state holds: `{"task": "goal", "messages": "messages"}` puts the baton's goal into the member
            `task` and the fenced prompt into `messages`. By default every field of the baton under its own name.
        out: What becomes the patch: `{"current_state": "draft", "output": "score"}` takes the field `current_state`
            from the member `draft`, and the stage's output from `score`. By default every member that is named as a
            field of the baton.
        uses: The tools that it may call; the stage declares them.
        price: What the models cost, where the public price list does not know them.
        stream: Stream what its models say to those who follow the run, as `p.stage(…, stream=True)` does.

    Attributes:
        name: The node's name.
        tool_names: The tools that it may call.
        reads: How it reads what its prompt names: by `baton.agents.read_artifact`, if `uses` has that.

    Raises:
        ValueError: The node is a function that takes more than the state and a config, or a graph with nodes that it
            is to stop at.

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
    ) -> None:
        self.name = _name_of(node)
        names = name_set(uses, "uses")
        self.tool_names = names - {READ_ARTIFACT}
        self.reads: Reads | None = "tool" if READ_ARTIFACT in names else None  # its nodes have tools of their own
        self._into = into
        self._out = out
        self._price = price
        self.stream = stream
        self._is_graph = isinstance(node, StateGraph | Pregel)
        self._runnable = _runnable(node)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the node or graph once.

        Raises:
            AgentError: It waits for a person, goes round in circles, went beyond a limit, or answered with nothing
                that could be a state.
            PatchError: A model answered in no usable form.
            ToolDeniedError: It called a tool that its contract does not allow.
        """
        given = self._state(work)
        before = self._taken(work, given)  # now: a node may change the very lists that it is given
        watch = GuardCallback(work, self.name, self._price)
        thread = f"{work.handoff_id or self.name}:{uuid4()}"  # a run inherits no state from a checkpointer
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        try:
            with watch.watching():
                async with in_time(work, self.name):
                    returned = await self._ran(given, config, streams=work.context.stream.wanted)
        except GraphRecursionError as error:
            raise AgentError(f"the graph {self.name!r} took too many steps; raise its recursion_limit") from error
        except ParentCommand as error:
            where = f"continues at {_goto(error.args[0])!r} of a parent graph, and there is none"
            why = f"the graph {self.name!r} {where}; make a stage of the graph around it"
            raise AgentError(why, permanent=True) from None
        except Exception as error:
            watch.refuse()
            if isinstance(error, KeyError) and error.args == (_OUTSIDE_A_GRAPH,):
                raise self._interrupted() from None
            if (told := provider_error(error, self.name)) is not None:
                raise told from None
            if is_parse_error(error, BaseLanguageModel):
                raise unreadable(error, self.name) from None
            if _is_malformed(error):  # it quotes the answer
                raise self._early(watch.message) or PatchError([NO_USABLE_FORM]) from None
            raise
        finally:
            await watch.settle()
        watch.refuse()
        state, goto = _state_of(returned, self.name)
        if _INTERRUPT in state:
            raise self._interrupted()
        answer = self._answer(work, before, state, goto)
        watch.tell(besides=self._answered_with(state))
        return answer

    async def _ran(self, given: Any, config: RunnableConfig, *, streams: bool) -> Any:
        """Run the node or graph to its end, and return its state; its watch tells what models and tools say."""
        if not (streams and isinstance(self._runnable, Pregel)):
            return await self._runnable.ainvoke(given, config)
        state = None
        # The mode `messages` has the models of a graph stream.
        modes: Any = ["messages", "updates", "values"]
        keys = self._runnable.output_channels
        async for mode, told in self._runnable.astream(given, config, stream_mode=modes, output_keys=keys):
            if mode == "values":
                state = told
            elif mode == "updates" and _INTERRUPT in told:
                raise self._interrupted()
        return state

    def _interrupted(self) -> AgentError:
        """Return the error for a node or graph that asks a person."""
        message = f"the graph {self.name!r} stopped at an interrupt; ask people with the pipeline's approvals"
        return AgentError(message, permanent=True)

    def _state(self, work: AgentWork) -> Any:
        """Return the state that the node is given."""
        if callable(self._into):
            return self._into(work)
        baton = work.context.baton
        fields = type(baton).model_fields
        held = baton.to_json_object()
        if self._into is None:
            return {name: held.get(name, []) for name in fields}
        special: dict[str, Callable[[], Any]] = {
            PROMPT: work.user_turn,
            MESSAGES: lambda: [{"role": "user", "content": work.user_turn()}],
            PARAMS: lambda: work.context.params,
        }
        state: dict[str, Any] = {}
        for member, source in self._into.items():
            if source in fields:
                state[member] = held.get(source, [])
            elif source in special:
                state[member] = special[source]()
            else:
                raise AgentError(_unknown(self.name, "into", source, [*fields, *special]), permanent=True)
        return state

    def _sources(self, work: AgentWork) -> dict[str, str]:
        """Return what is taken from the state, a field of the baton or an answer or an output, and its member there."""
        fields = type(work.context.baton).model_fields
        return {name: name for name in fields} if self._out is None or callable(self._out) else dict(self._out)

    def _taken(self, work: AgentWork, state: Any) -> dict[str, Any]:
        """Return the members of a state that fields of the baton are taken from, as JSON; others may hold anything."""
        fields = type(work.context.baton).model_fields
        members = {member for field, member in self._sources(work).items() if field in fields}
        found = state if isinstance(state, Mapping) and not callable(self._out) else {}
        return {name: _plain(found[name]) for name in found if name in members}

    def _answer(
        self, work: AgentWork, before: Mapping[str, Any], state: Mapping[str, Any], goto: JsonValue
    ) -> AgentAnswer:
        """Return what the node's state says, in the words of the baton."""
        if callable(self._out):
            told = self._out(state)
            return told if isinstance(told, AgentAnswer) else AgentAnswer(patch=told, output=goto)
        fields = type(work.context.baton).model_fields
        taken = self._sources(work)
        if unknown := taken.keys() - fields - {ANSWER, OUTPUT}:
            raise AgentError(_unknown(self.name, "out", min(unknown), [*fields, ANSWER, OUTPUT]), permanent=True)
        answer, output = taken.pop(ANSWER, None), taken.pop(OUTPUT, None)
        told = self._read(work, state.get(answer)) if answer is not None else AgentAnswer()
        changed = self._changed(before, self._taken(work, state))
        patch = {field: changed[member] for field, member in taken.items() if member in changed}
        if output is not None:
            goto = _plain(state.get(output))
        return dataclasses.replace(
            told, patch={**_members(told.patch), **patch} or told.patch, output=told.output if goto is None else goto
        )

    def _read(self, work: AgentWork, answer: Any) -> AgentAnswer:
        """Return the answer in a text, a message, or the last of several messages."""
        last = _last(answer)
        if (early := self._early(last)) is not None:
            raise early
        return work.read(_text(last))

    def _answered_with(self, state: Mapping[str, Any]) -> str | None:
        """Return the text that was read as the answer, if one was."""
        member = self._out.get(ANSWER) if isinstance(self._out, Mapping) else None
        return None if member is None else _text(_last(state.get(member)))

    def _early(self, message: Any) -> AgentError | PatchError | None:
        """Return what is raised for a message that its model did not bring to an end; None if it did."""
        said: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
        if (getattr(message, "additional_kwargs", None) or {}).get("refusal"):
            return finish_error("refusal", self.name)
        reasons = [said.get(name) for name in ("finish_reason", "stop_reason", "stopReason")]
        reasons.append((said.get("incomplete_details") or {}).get("reason"))
        return next((early for one in reasons if (early := finish_error(one, self.name))), None)

    def _changed(self, before: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members that are new; of a list that only grew where it may only grow, what was added to it."""
        changed: dict[str, Any] = {}
        whole = self._is_graph or (before and before.keys() <= state.keys())
        for name, new in state.items():
            old: Any = before.get(name)
            if whole and new == old:
                continue
            kept = len(old) if name == "decision_log" and isinstance(old, list) and isinstance(new, list) else 0
            changed[name] = new[kept:] if kept and new[:kept] == old else new
        return changed


def _name_of(node: Any) -> str:
    """Return the name that a node or graph has."""
    name = getattr(node, "name", None) or getattr(node, "__name__", None)
    return name if isinstance(name, str) and name else type(node).__name__


def _runnable(node: Any) -> Runnable[Any, Any]:
    """Return what runs a node or graph."""
    if isinstance(node, StateGraph):
        node = node.compile()
    if isinstance(node, Pregel) and (stops := sorted(set(_stops(node)))):
        # It returns what it has so far, as if it were done.
        raise ValueError(
            f"the graph {_name_of(node)!r} stops at {', '.join(map(repr, stops))} (interrupt_before, interrupt_after), "
            "and nothing would resume it; leave that out and ask people with the pipeline's approvals"
        )
    if isinstance(node, Runnable):
        return node
    required = [
        one.name
        for one in list(inspect.signature(node).parameters.values())[1:]
        if one.default is inspect.Parameter.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if beyond := [name for name in required if name not in ("config", "run_manager")]:
        raise ValueError(
            f"the node {_name_of(node)!r} takes {', '.join(map(repr, beyond))} beside the state; put it into a graph "
            "and make a stage of that"
        )
    return RunnableLambda(node)


def _stops(graph: Pregel[Any, Any, Any, Any]) -> Iterator[str]:
    """Yield the nodes that a graph, or a graph among its nodes, was compiled to stop before or after."""
    for named in (graph.interrupt_before_nodes, graph.interrupt_after_nodes):
        yield from [named] if isinstance(named, str) else named
    for node in graph.nodes.values():
        if isinstance(node.bound, Pregel):
            yield from _stops(node.bound)


def _state_of(returned: Any, name: str) -> tuple[dict[str, Any], JsonValue]:
    """Return the state in what a node returned, and the next node, if it names one."""
    if isinstance(returned, Command):
        update = returned.update
        state = dict(update) if isinstance(update, list | tuple) else _state_of(update, name)[0]
        return state, {_GOTO: _goto(returned)} if returned.goto else None
    if returned is None:
        return {}, None
    if isinstance(returned, Mapping):
        return dict(returned), None
    if isinstance(returned, BaseModel):
        return {one: getattr(returned, one) for one in returned.model_fields_set}, None
    if dataclasses.is_dataclass(returned) and not isinstance(returned, type):
        return {one.name: getattr(returned, one.name) for one in dataclasses.fields(returned)}, None
    raise AgentError(f"the node {name!r} returned a {type(returned).__name__}, no state", permanent=True)


def _is_malformed(error: Exception) -> bool:
    """Return whether an error says that a model's answer was in the wrong form; that of `create_agent` by its name."""
    named = any(one.__name__ == _STRUCTURED_OUTPUT for one in type(error).__mro__)
    return named or isinstance(error, OutputParserException) or is_parse_error(error, BaseOutputParser)


def _goto(command: Command[Any]) -> JsonValue:
    """Return where a command goes, as JSON: the names of nodes."""
    goto: Any = command.goto
    return [_node(one) for one in goto] if isinstance(goto, list | tuple) else _node(goto)


def _node(one: Any) -> str:
    """Return the name of the node that something goes to; what is sent there stays with it."""
    return one.node if isinstance(one, Send) else str(one)


def _members(patch: Any) -> dict[str, Any]:
    """Return a patch as an object."""
    return patch.to_json_object() if isinstance(patch, BaseModel) else dict(patch or {})  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, messages, records and members of enumerations included."""
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64")
    except UnicodeEncodeError:  # half a character in a name: the finding says so, as for any answer
        return value


def _last(answer: Any) -> Any:
    """Return the last of several messages; what is a single one as it is."""
    return answer[-1] if isinstance(answer, list | tuple) and answer else answer


def _text(last: Any) -> str:
    """Return the text of an answer, which is a text or a message."""
    content = last.get("content") if isinstance(last, Mapping) else getattr(last, "content", last)
    if isinstance(content, list):  # blocks, some of them texts
        return "".join(one if isinstance(one, str) else str(one.get("text", "")) for one in content)
    return content if isinstance(content, str) else ""


def _unknown(node: str, what: str, found: str, known: Iterable[str]) -> str:
    """Say that a mapping names something that is not there."""
    return f"{what!r} of the node {node!r} names {found!r}; known are {', '.join(sorted(known))}"
