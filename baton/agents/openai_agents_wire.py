"""How an answer ended and what it cost, read on the wire: the OpenAI Agents SDK tells neither of an answer cut off."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import httpx2
from openai import DefaultAsyncHttpxClient

from baton.wire.money import Usage

_DATA = b"data:"  # begins a line of a server-sent event


class AnswerWatch:
    """What the answers of a run's model said beside their texts.

    Attributes:
        reason: Why the last answer ended, in the provider's word.
        usage: The usage of the last answer, until it is charged.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.usage: Usage | None = None
        self._line = b""

    def begin(self) -> None:
        """Forget the answer before."""
        self.reason, self.usage, self._line = None, None, b""

    def read(self, body: bytes) -> None:
        """Read a whole answer; what is not JSON says nothing."""
        try:
            answer = json.loads(body)
        except ValueError:
            return
        if isinstance(answer, dict):
            self._note(answer)

    def feed(self, data: bytes) -> None:
        """Read a piece of a streamed answer."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                self.read(line[len(_DATA) :])

    def _note(self, answer: dict[str, Any]) -> None:
        inner = answer.get("response")  # in the events of OpenAI's responses
        response: dict[str, Any] = inner if isinstance(inner, dict) else answer
        choices, details, report = answer.get("choices"), response.get("incomplete_details"), response.get("usage")
        choice = choices[0] if isinstance(choices, list) and choices else None
        ends = [
            choice.get("finish_reason") if isinstance(choice, dict) else None,
            details.get("reason") if isinstance(details, dict) else None,
        ]
        self.reason = next((reason for reason in ends if isinstance(reason, str)), self.reason)
        if isinstance(report, dict):
            self.usage = Usage.read(report) or self.usage


_watch: ContextVar[AnswerWatch | None] = ContextVar("baton_answer_watch", default=None)


@contextmanager
def watching(watch: AnswerWatch) -> Iterator[None]:
    """Have `WatchedClient` report to a watch in the `with` block."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


class WatchedClient(DefaultAsyncHttpxClient):
    """The HTTP client of `provider`; give it to a client of your own: `AsyncOpenAI(http_client=WatchedClient())`."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, and note how its answer ends."""
        watch = _watch.get()
        if watch is not None and stream:
            request.headers["Accept-Encoding"] = "identity"
        response = await super().send(request, stream=stream, **options)
        if watch is not None:
            watch.begin()
            if stream:
                response.stream = _WatchedStream(cast(httpx2.AsyncByteStream, response.stream), watch)
            else:
                watch.read(response.content)
        return response


class _WatchedStream(httpx2.AsyncByteStream):
    """A streamed body that is read on the way."""

    def __init__(self, stream: httpx2.AsyncByteStream, watch: AnswerWatch) -> None:
        self._stream = stream
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._watch.feed(data)
            yield data

    async def aclose(self) -> None:
        """Close the body."""
        await self._stream.aclose()
