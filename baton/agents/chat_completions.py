"""An agent behind a plain HTTP endpoint for chat completions: a provider's, a gateway's, or one of your own.

It needs the extra `chat`. It asks, calls the tools that the model asks for, has a malformed answer
mended once in the same conversation, and charges every request. The key is named by a variable of the worker's
environment and stands in the request's header alone: not in the agent, the history, an error or a log.

Example:
    >>> from baton.agents.port import agent_stage
    >>> model = ChatCompletionsAgent(
    ...     name="plan", url="https://models.example/v1/chat/completions", model="small-1", key_env="MODELS_KEY"
    ... )
    >>> agent_stage(model, instructions="You plan features.", writes=["decision_log"])
    <stage plan>
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from baton.agents.endings import unfinished
from baton.agents.http_post import Answered, checked_url, key_from, post_json
from baton.agents.limits import in_time
from baton.agents.port import HANDOFF_HEADER, AgentAnswer, AgentTool, AgentWork
from baton.agents.prices import cost
from baton.agents.provider_errors import code_of, is_permanent, of_redirect
from baton.agents.tools import as_text
from baton.compression.summariser import Price
from baton.core.history import Spend
from baton.errors import AgentError, PatchError
from baton.handoff.errors import MalformedMessageError
from baton.wire.json_values import mended
from baton.wire.misfit import misfit
from baton.wire.strict_json import loads_strict

_SHORTEST_KEY = 8  # shorter is what servers of one's own are given for one, "ollama" or "EMPTY", and their answers have
_MOST_TOKENS = 10**9
_LONGEST_RESULT = 100_000  # characters of what a tool returned; the journal has all of it


@dataclass(frozen=True)
class ChatCompletionsAgent:
    """An agent behind a chat-completions endpoint.

    Attributes:
        name: The agent's name.
        url: The endpoint, whole: `https://…/v1/chat/completions`.
        model: The model.
        key_env: The variable of the worker's environment with the key; None for an endpoint that asks for none.
        structured: How the answer's shape is asked for: by `response_format` with the schema (`json_schema`), as any
            JSON (`json_object`), or by the prompt alone (`prompt`), for endpoints that know neither.
        price: What the model costs; by default what `genai-prices` says, where it is installed and knows the model.
        parameters: Further members of every request, for example `{"temperature": 0}`.
        seconds: How long one request may take.
        mends: How often a malformed answer is mended in the same conversation.
        ca_file: A file with the certificates to trust, instead of the system's.
    """

    name: str
    url: str
    model: str
    key_env: str | None = None
    structured: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    price: Price | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 300.0
    mends: int = 1
    ca_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse an address that would carry the key in clear text."""
        checked_url(self.url, secret=self.key_env is not None)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Ask until the model has answered.

        Raises:
            AgentError: The endpoint refused or failed, or a limit was reached.
            PatchError: The model gave no usable answer, however often it was asked to mend it.
            ToolDeniedError: It called a tool that its contract does not allow.
        """
        talk = _Conversation(self, work, key_from(self.key_env))
        async with in_time(work, self.name):  # a tool may take its time as well
            return await self._answered(talk, work)

    async def _answered(self, talk: "_Conversation", work: AgentWork) -> AgentAnswer:
        """Return the model's answer, after its calls and what had to be mended."""
        mends = self.mends
        while True:
            message = await talk.ask()
            if calls := message.get("tool_calls"):
                await talk.call(calls)
                continue
            try:
                return work.read(_text(message.get("content")))
            except PatchError as error:
                if mends == 0:
                    raise
                mends -= 1
                talk.mend(error.findings)


class _Conversation:
    """The messages of one run, and what it has used."""

    def __init__(self, agent: ChatCompletionsAgent, work: AgentWork, key: str | None) -> None:
        self._agent = agent
        self._work = work
        self._key = key
        self._requests = 0
        self._spent = Spend()
        system = [{"role": "system", "content": work.instructions}] if work.instructions else []
        turn = work.user_turn(with_schema=agent.structured != "json_schema")
        self._messages: list[dict[str, Any]] = [*system, {"role": "user", "content": turn}]

    async def ask(self) -> dict[str, Any]:
        """Return the model's next message, charged and recorded."""
        self._keep_limits()
        self._requests += 1
        headers = {HANDOFF_HEADER: self._work.handoff_id} if self._work.handoff_id else {}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        agent = self._agent
        answered = await post_json(agent.url, self._request(), headers, seconds=agent.seconds, ca_file=agent.ca_file)
        found = _parsed(answered.body)
        if told := isinstance(found, dict) and isinstance(found.get("usage"), Mapping):
            self._charge(found)  # what is not taken was paid as well
        if self._key is not None and len(self._key) >= _SHORTEST_KEY and self._key.encode() in answered.body:
            why = f"agent {agent.name!r}: the endpoint answered {answered.status} and repeats the key; it is not taken"
            raise AgentError(why, permanent=True)
        body = _body(found, answered, agent)
        if not told:
            self._charge(body)
        message = _message(body, agent)
        thought, spoken = _parted(_text(message.get("content")))
        if thought is not None:
            if thought:  # a model that is told not to think has an empty one
                self._work.context.session.internal_note(thought)
            message = {**message, "content": spoken}
        said_back: dict[str, Any] = {"role": "assistant", "content": message.get("content")}
        if calls := message.get("tool_calls"):  # an empty list, which some endpoints send, is refused by others
            said_back["tool_calls"] = calls
        self._messages.append(said_back)
        if calls and isinstance(said := message.get("content"), str) and said.strip():
            self._work.context.session.model_response(said)
        return message

    async def call(self, calls: list[dict[str, Any]]) -> None:
        """Call the tools that the model asks for, one after the other.

        Raises:
            ToolDeniedError: One of them is not allowed; none is called.
        """
        self._work.refuse_forbidden(one["function"]["name"] for one in calls)
        tools = {tool.wire_name: tool for tool in self._work.tools}
        for one in calls:
            result = await _result(tools, one["function"])
            self._messages.append({"role": "tool", "tool_call_id": one["id"], "content": _readable(result)})

    def mend(self, findings: list[str]) -> None:
        """Tell the model what is wrong with its answer."""
        rows = "\n".join(f"- {finding}" for finding in findings)
        self._messages.append({"role": "user", "content": f"Your answer cannot be used:\n{rows}\nAnswer again, whole."})

    def _request(self) -> dict[str, Any]:
        agent, work = self._agent, self._work
        request: dict[str, Any] = {**agent.parameters, "model": agent.model, "messages": self._messages}
        if work.tools:
            request["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.wire_name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in work.tools
            ]
        if work.schema is not None and agent.structured == "json_schema":
            # Not strict: a strict schema requires every member, and a patch has only what changed.
            shape = {"name": "answer", "schema": work.schema, "strict": False}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif work.schema is not None and agent.structured == "json_object":
            request["response_format"] = {"type": "json_object"}
        return request

    def _keep_limits(self) -> None:
        """Raise an error if the run has reached a limit; what is charged already stays charged."""
        most, spent = self._work.limits, self._spent
        reached = None
        if most.requests is not None and self._requests >= most.requests:
            reached = f"{most.requests} requests"
        elif most.tokens is not None and spent.prompt_tokens + spent.completion_tokens >= most.tokens:
            reached = f"{most.tokens} tokens"
        elif most.micro_usd is not None and spent.micro_usd >= max(1, most.micro_usd):
            reached = f"{most.micro_usd} millionths of a US dollar"
        if reached is not None:
            raise AgentError(f"agent {self._agent.name!r} reached a limit of its run: {reached}", permanent=True)

    def _charge(self, body: Mapping[str, Any]) -> None:
        """Charge a request; where the endpoint does not say what it used, the tokens are estimated."""
        usage = body.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        counter = self._work.context.parts.counter
        read = _whole(usage.get("prompt_tokens"))
        written = _whole(usage.get("completion_tokens"))
        if read is None:
            read = sum(counter(json.dumps(one, ensure_ascii=False)) for one in self._messages)
        if written is None:
            written = counter(json.dumps(body.get("choices", ""), ensure_ascii=False))
        details = usage.get("prompt_tokens_details")
        cached = _whole(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        agent = self._agent
        money = cost(agent.model, read, written, cached or 0, price=agent.price, url=agent.url)
        spend = Spend(micro_usd=money or 0, prompt_tokens=read, completion_tokens=written)
        self._spent = self._spent + spend
        self._work.charge(spend)


async def _result(tools: Mapping[str, AgentTool], call: Mapping[str, Any]) -> str:
    """Return what a tool returned, as the model reads it, or why it was not called."""
    tool = tools.get(call["name"])
    if tool is None:
        return f"error: there is no tool {call['name']!r}; there is {', '.join(tools) or 'none'}"
    try:
        arguments = call.get("arguments") or "{}"
        arguments = loads_strict(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(arguments, dict):
            return "error: the arguments are expected as a JSON object"
        value = await tool.call(arguments)
    except (MalformedMessageError, ValidationError) as error:
        why = misfit(error) if isinstance(error, ValidationError) else str(error)
        return f"error: the arguments do not fit: {why}"
    return as_text(value)


def _readable(result: str) -> str:
    """Return so much of a result as a model may be sent; it is told what is left out, or it would take it for all."""
    over = len(result) - _LONGEST_RESULT
    return result if over <= 0 else f"{result[:_LONGEST_RESULT]}\n[… {over:,} characters more are left out]"


def _text(content: Any) -> str:
    """Return the text of a message, which some endpoints send in parts."""
    parts = content if isinstance(content, list) else [content]
    texts = [one.get("text") if isinstance(one, Mapping) else one for one in parts]
    return "".join(one for one in texts if isinstance(one, str))


def _parted(text: str) -> tuple[str | None, str]:
    """Return what a model thought aloud, where its server left that in the text, and what it said then.

    Some servers put `<think>` into what the model is given, and only the end of the thought is in its answer.
    """
    thought, end, said = text.partition("</think>")
    thought, opened = thought.strip().removeprefix("<think>"), thought.lstrip().startswith("<think>")
    if not end or (not opened and thought.startswith("{")):  # an answer, which speaks of the mark
        return None, text
    return thought.strip(), said.lstrip()


def _parsed(body: bytes) -> Any:
    """Return what a body says; None if it is no JSON."""
    try:
        return mended(json.loads(body))  # not strictly: a time or a seed beside the message may be any number
    except (ValueError, RecursionError):
        return None


def _body(body: Any, answered: Answered, agent: ChatCompletionsAgent) -> dict[str, Any]:
    """Return the body of a success, as it was parsed.

    Raises:
        AgentError: It is none; the text has the status and the endpoint's code, and nothing of its words.
    """
    error = body.get("error") if isinstance(body, dict) else None
    status = answered.status
    if 200 <= status < 300:
        if not isinstance(body, dict):
            why = f"agent {agent.name!r}: the endpoint's answer is no JSON object"
            raise AgentError(f"{why}; if that stays so, see whether 'url' is that of its chat completions")
        if not isinstance(error, dict) or body.get("choices"):
            return body
        status = _status(error)  # it failed after it had begun to answer, as gateways do
    code = code_of(error) if isinstance(error, dict) else None
    shown = f" ({code})" if code else ""
    raise AgentError(
        f"agent {agent.name!r}: the endpoint of {agent.model!r} answered {status}{shown}{of_redirect(status)}",
        permanent=is_permanent(status, code),
        retry_after=answered.retry_after,
    )


def _status(error: Mapping[str, Any]) -> int:
    """Return the status in an error that came with a status of success; 500 if there is none in it."""
    status = _whole(error.get("code")) or _whole(error.get("status")) or 0
    return status if 400 <= status < 600 else 500


def _message(body: Mapping[str, Any], agent: ChatCompletionsAgent) -> dict[str, Any]:
    """Return the message in a body.

    Raises:
        AgentError: There is none, or the model refused, or a filter stopped it.
        PatchError: The answer was cut off; it may be briefer on another attempt.
    """
    try:
        choice = body["choices"][0]
        message: dict[str, Any] = choice["message"]
        calls = message.get("tool_calls") or []
        well_formed = all(isinstance(one["id"], str) and isinstance(one["function"]["name"], str) for one in calls)
    except (KeyError, IndexError, TypeError, AttributeError):
        well_formed = False
    if not well_formed:
        raise AgentError(f"agent {agent.name!r}: the endpoint's answer has no message that can be read")
    reason = "refusal" if message.get("refusal") else choice.get("finish_reason")
    if (early := unfinished(reason, agent.name)) is not None:
        raise early
    return message


def _whole(value: Any) -> int | None:
    """Return a count of tokens, if it can be one of a request; with a larger one no handoff could be written."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None
