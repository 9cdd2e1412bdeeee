"""Agents behind a chat-completions endpoint: a provider's, a gateway's, or one of your own (extra `agents`)."""

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
        key_env: The variable of the worker's environment that holds the key; None for an endpoint without one. It is
            read at each request.
        answer: How the answer's shape is asked for: by `response_format` with the schema (`native`), by a tool, or by
            the prompt, for servers that know neither.
        price: What the model costs; by default what `genai-prices` says.
        parameters: Further members of every request, for example `{"temperature": 0}`.
        seconds: The longest silence within a request; `AgentLimits(seconds=…)` bounds the whole run.
        retries: How often a malformed answer goes back to the model in the same conversation.
        ca_file: A file with the certificates to trust, instead of the system's.

    Raises:
        ValueError: The address is not one, or would carry the key in clear text.
    """
    base = _checked_url(url, secret=key_env is not None).removesuffix("/").removesuffix("/chat/completions")
    client = AsyncOpenAI(
        base_url=base,
        api_key="none" if key_env is None else _key_from(key_env),
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(
            limits=httpx2.Limits(max_keepalive_connections=0),  # so nothing is left open, in no event loop
            follow_redirects=False,  # it would carry prompt and key to the address that it names
            trust_env=base.startswith("https"),  # to a proxy that is not a tunnel, plain HTTP would show the key
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
        ),
    )
    settings = OpenAIChatModelSettings(timeout=seconds, extra_body=dict(parameters or {}))
    chat = CountedChatModel(model, provider=OpenAIProvider(openai_client=client), settings=settings)
    return PydanticAgent(Agent(chat, name=name, retries={"output": retries, "tools": 3}), answer=answer, price=price)


def _checked_url(url: str, *, secret: bool) -> str:
    """Return an address that a request may go to."""
    try:
        parts = httpx2.URL(url)  # as the client reads it
    except httpx2.InvalidURL:
        parts = httpx2.URL()
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo or url != url.strip():
        raise ValueError("url: expected https://host/path, without blanks, and without a name or key in it")
    if secret and parts.scheme == "http" and not is_loopback(parts.host):
        raise ValueError(f"{url!r} would carry the key in clear text; use https")
    return url


def _key_from(variable: str) -> Callable[[], Any]:
    """Return what reads a key from the worker's environment when a request needs it."""

    async def key() -> str:
        found = os.environ.get(variable, "").strip()
        if not found:
            raise ConfigurationError(f"the environment of this worker has no {variable!r}, which holds the key; set it")
        if not found.isascii() or not found.isprintable():
            raise AgentError(f"the variable {variable!r} of this worker holds characters that no key has; set it again")
        return found

    return key
