"""Agents behind a chat-completions endpoint: a provider's, a gateway's or your own (extra `agents`)."""

import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Literal

from baton.lazy import needs_extra

with needs_extra("agents", __name__):
    import httpx2
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModelSettings
    from pydantic_ai.providers.openai import OpenAIProvider

from baton.agents.pydantic_ai import PydanticAgent
from baton.agents.pydantic_ai_run import CountedChatModel
from baton.errors import AgentError, ConfigurationError
from baton.wire.money import Price
from baton.wire.text import is_loopback


def chat_agent(
    name: str,
    url: str,
    model: str,
    key_env: str | None = None,
    *,
    answer: Literal["tool", "native", "prompted"] = "native",
    price: Price | None = None,
    parameters: Mapping[str, Any] | None = None,
    seconds: float = 300.0,
    retries: int = 1,
    ca_file: str | None = None,
) -> PydanticAgent:
    """Return an agent behind a chat-completions endpoint.

    `dataclasses.replace(agent, stream=True)` streams its answers.

    Args:
        name: The agent's name.
        url: The endpoint, `https://…/v1` with or without `/chat/completions`.
        model: The model.
        key_env: The environment variable of the worker that holds the key, read at each request; None for an endpoint
            without a key.
        answer: How the model gets the schema of the answer: by `response_format` (`native`), by a tool, or in the
            prompt, for servers that support neither.
        price: The model's price; by default that of `genai-prices`.
        parameters: Additional members of every request, for example `{"temperature": 0}`.
        seconds: The longest silence during a request; `AgentLimits(seconds=…)` limits the whole run.
        retries: How often the model may correct a malformed answer in the same conversation.
        ca_file: A file with trusted certificates, instead of the system's.

    Raises:
        ValueError: The URL is invalid, or would send the key in clear text.
    """
    base = _check_url(url, secret=key_env is not None).removesuffix("/").removesuffix("/chat/completions")
    client = AsyncOpenAI(
        base_url=base,
        api_key="none" if key_env is None else _key_reader(key_env),
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(
            limits=httpx2.Limits(max_keepalive_connections=0),  # leaves no connection open across event loops
            follow_redirects=False,  # a redirect would send prompt and key to another address
            trust_env=base.startswith("https"),  # a plain HTTP proxy would see the key
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
        ),
    )
    settings = OpenAIChatModelSettings(timeout=seconds, extra_body=dict(parameters or {}))
    chat = CountedChatModel(model, provider=OpenAIProvider(openai_client=client), settings=settings)
    return PydanticAgent(Agent(chat, name=name, retries={"output": retries, "tools": 3}), answer=answer, price=price)


def _check_url(url: str, *, secret: bool) -> str:
    try:
        parts = httpx2.URL(url)  # parsed as the client does
    except httpx2.InvalidURL:
        parts = httpx2.URL()
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo or url != url.strip():
        raise ValueError("url: expected https://host/path, without blanks, and without a name or key in it")
    if secret and parts.scheme == "http" and not is_loopback(parts.host):
        raise ValueError(f"{url!r} would carry the key in clear text; use https")
    return url


def _key_reader(variable: str) -> Callable[[], Any]:
    """Return a function that reads the key from the worker's environment at each request."""

    async def read_key() -> str:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise ConfigurationError(f"the environment of this worker has no {variable!r}, which holds the key; set it")
        if not key.isascii() or not key.isprintable():
            raise AgentError(f"the variable {variable!r} of this worker holds characters that no key has; set it again")
        return key

    return read_key
