"""An agent behind a chat-completions endpoint, here a scripted one of this program. Offline."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import baton
from baton import Pipeline, pipeline
from baton.agents import AnswerForm, agent_stage, chat_agent

PORT = 8399  # a real one: url="https://models.example/v1", key_env="MODELS_KEY"
plan = agent_stage(chat_agent("plan", f"http://127.0.0.1:{PORT}", "small-1"), answers=AnswerForm.TEXT, notes=False)

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Logins first."}, "finish_reason": "stop"}
ANSWER = {"id": "1", "object": "chat.completion", "created": 1, "model": "small-1"}


@pipeline
async def planned(p: Pipeline) -> object:
    """Plan."""
    return (await p.stage(plan)).output


def serve() -> None:
    """Answer each request alike."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({**ANSWER, "choices": [CHOICE]}).encode())

    HTTPServer(("127.0.0.1", PORT), Endpoint).serve_forever()


if __name__ == "__main__":
    Thread(target=serve, daemon=True).start()
    print(baton.run(planned, goal="Plan the move of the login service").output)
