"""A server of this machine that speaks the chat-completions wire format, with answers that a test wrote.

It answers each request with the next reply and keeps what it was asked. A test that leaves replies over, or asks for
more than there are, shows it: the server has then answered with 599.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

PAUSE = 0.02  # seconds between two pieces of a slow answer


@dataclass(frozen=True)
class Reply:
    """One answer of the server.

    Attributes:
        body: A JSON object, or the very bytes.
        status: The HTTP status.
        headers: Further headers.
        slow: Send a byte now and then, and never the last one.
        events: The chunks of a stream instead of a body, as server-sent events.
        gate: Sent before the last event of a stream is, when it is set.
    """

    body: Mapping[str, Any] | bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False
    events: Sequence[Mapping[str, Any]] = ()
    gate: threading.Event | None = None


@dataclass
class Asked:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def completion(
    content: str | None = None,
    *,
    calls: Sequence[tuple[str, Any]] = (),
    read: int = 1_000,
    written: int = 100,
    model: str = "gpt-4o",
    finish: str | None = None,
) -> dict[str, Any]:
    """Return a chat completion with a text, or with tool calls, as providers send it."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls, 1)
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_763_700_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def chunks(name: str, arguments: Any, *, read: int = 1_000, written: int = 100) -> list[dict[str, Any]]:
    """Return the chunks of a streamed tool call, the usage in the last one."""
    text = json.dumps(arguments)
    pieces = [text[at : at + 8] for at in range(0, len(text), 8)]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_700_000, "model": "gpt-4o"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        chunk({"role": "assistant", "tool_calls": [first]}),
        *(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces),
        chunk({}, "tool_calls"),
        {**base, "choices": [], "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": 0}},
    ]


def text_chunks(*pieces: str, measured: bool = True) -> list[dict[str, Any]]:
    """Return the chunks of a streamed text, the usage in the last one if it is measured."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_700_000, "model": "gpt-4o"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    items: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    items.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
    return [*items, {**base, "choices": [], "usage": usage}] if measured else items


def responses_text(*pieces: str, measured: bool = True) -> list[dict[str, Any]]:
    """Return the events of a streamed text in the format of responses."""
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    at = {"item_id": "m", "output_index": 0, "content_index": 0}
    members = {**message, "status": "completed", "content": [{**part, "text": "".join(pieces)}]}
    return _response_events(
        [
            {"type": "response.output_item.added", "output_index": 0, "item": message},
            {"type": "response.content_part.added", **at, "part": part},
            *({"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []} for piece in pieces),
            {"type": "response.output_text.done", **at, "text": "".join(pieces), "logprobs": []},
            {"type": "response.output_item.done", "output_index": 0, "item": members},
        ],
        members,
        measured=measured,
    )


def responses_call(name: str, arguments: Any) -> list[dict[str, Any]]:
    """Return the events of a streamed tool call in the format of responses."""
    call = {"id": "f", "type": "function_call", "call_id": "call_1", "name": name, "status": "completed"}
    call["arguments"] = json.dumps(arguments)
    added = {**call, "arguments": "", "status": "in_progress"}
    return _response_events(
        [
            {"type": "response.output_item.added", "output_index": 0, "item": added},
            {"type": "response.output_item.done", "output_index": 0, "item": call},
        ],
        call,
        measured=True,
    )


def _response_events(
    events: Sequence[dict[str, Any]], item: Mapping[str, Any], *, measured: bool
) -> list[dict[str, Any]]:
    """Return the events of a response, with those that begin and end it."""
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "created_at": 1, "model": "gpt-4o"}
    base: dict[str, Any] = {"id": "r", "object": "response", "status": "in_progress", "output": [], **rest}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100, **details} if measured else None
    completed = {**base, "status": "completed", "output": [item], "usage": usage}
    numbered = [
        {"type": "response.created", "response": base},
        *events,
        {"type": "response.completed", "response": completed},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(numbered)]


def refusal(status: int, code: str, message: str = "", **headers: str) -> Reply:
    return Reply({"error": {"message": message, "type": "invalid_request_error", "code": code}}, status, headers)


class ChatServer:
    """The server: where it listens, what it was asked, and what is left of its replies."""

    def __init__(self, replies: Sequence[Reply | Mapping[str, Any]]) -> None:
        self.left = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]
        self.asked: list[Asked] = []
        self.closing = threading.Event()
        self.streaming = threading.Event()
        self.base = ""

    @property
    def url(self) -> str:
        return f"{self.base}/chat/completions"


def configure(monkeypatch: pytest.MonkeyPatch, server: ChatServer, **prices: str) -> None:
    """Name the server's model to the shipped pipelines, as an operator does."""
    for name, value in {"URL": server.base, "MODEL": "small", "KEY": "sk-secret", **prices}.items():
        monkeypatch.setenv(f"BATON_LLM_{name}", value)


@contextmanager
def chat_server(*replies: Reply | Mapping[str, Any], keep_alive: bool = False) -> Iterator[ChatServer]:
    """Serve replies on this machine while the block runs; a client may keep its connection only if asked for."""
    state = ChatServer(replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.asked.append(Asked(self.path, headers, json.loads(data)))
            reply = state.left.pop(0) if state.left else Reply(status=599)
            try:
                self._send(reply)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _send(self, reply: Reply) -> None:
            if reply.events:
                self._stream(reply)
                return
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self._close_after_this()
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body) + (1_000_000 if reply.slow else 0)))
            self.end_headers()
            self.wfile.write(body)
            while reply.slow and not state.closing.wait(PAUSE):
                self.wfile.write(b" ")
                self.wfile.flush()
                state.streaming.set()

        def _stream(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self._close_after_this()
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for place, event in enumerate(reply.events, 1):
                if place == len(reply.events) and reply.gate is not None:
                    state.streaming.set()
                    reply.gate.wait()
                self._chunk(f"data: {json.dumps(event)}\n\n".encode())
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _close_after_this(self) -> None:
            """Have the client close the connection, which it would keep beyond the test otherwise."""
            if not keep_alive:
                self.send_header("Connection", "close")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.base = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
