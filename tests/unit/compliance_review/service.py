"""A service that speaks chat completions on this machine."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Service:
    """A service that speaks chat completions on this machine.

    Attributes:
        url: Its base.
        asked: The requests so far: path, headers, body.
    """

    url: str = ""
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def prompts(self) -> list[str]:
        """Return the user turns so far."""
        return [body["messages"][1]["content"] for _, _, body in self.asked]


Answers = Mapping[str, Any] | Callable[[dict[str, Any]], tuple[int, bytes]]


@contextmanager
def chat_service(answers: Answers) -> Iterator[Service]:
    """Run a chat completions service inside the `with` block.

    Args:
        answers: What to answer, by the name of the schema that is asked for; or a function from the request's body
            to status and body.
    """
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.asked.append((self.path, dict(self.headers), body))
            status, content = answers(body) if callable(answers) else _completion(answers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _completion(answers: Mapping[str, Any], body: dict[str, Any]) -> tuple[int, bytes]:
    answer = answers[body["response_format"]["json_schema"]["name"]]
    text = answer if isinstance(answer, str) else json.dumps(answer)
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 200, "total_tokens": 1_200}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return 200, json.dumps({"object": "chat.completion", "choices": choices, "usage": usage}).encode()
