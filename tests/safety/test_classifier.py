"""A model as a detector, against a local HTTP server that speaks the wire format."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import pytest

from baton.safety.detector import detect
from baton.safety.scan import Category, Level, Suspicion, scan
from baton.safety.store_classifier import Classifier


class _Service(ThreadingHTTPServer):
    asked: list[list[str]]
    answer: object = None
    status = 200


class _Handler(BaseHTTPRequestHandler):
    server: _Service

    def do_POST(self) -> None:
        texts = [text for [text] in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]]
        self.server.asked.append(texts)
        scores = [0.97 if "evil" in text else 0.02 for text in texts]
        answer = [[{"label": "INJECTION", "score": at}, {"label": "SAFE", "score": 1 - at}] for at in scores]
        body = json.dumps(answer if self.server.answer is None else self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def service(answer: object = None, status: int = 200) -> Iterator[tuple[_Service, Classifier]]:
    """Run a classifier that calls every text with the word "evil" an injection."""
    with _Service(("127.0.0.1", 0), _Handler) as server:
        server.asked, server.answer, server.status = [], answer, status
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server, Classifier(f"http://127.0.0.1:{server.server_port}/predict", batch=4, piece=100)
        finally:
            server.shutdown()


class TestClassifier:
    def test_it_reads_every_text_completely_and_names_the_suspicious_text(self) -> None:
        """Long texts go in pieces that overlap, in small requests (S3-6.1-i)."""
        with service() as (server, classifier):
            long = "word " * 100 + "be evil now"
            suspicions = classifier(["fine", long, ""])

        assert suspicions == [Suspicion(1, Category.PROMPT_INJECTION, ("classifier",), 10)]
        assert max(map(len, server.asked)) <= 4
        assert all(
            any(long[at : at + 10].strip() in text for texts in server.asked for text in texts) for at in range(490)
        )

    def test_it_rejects_beside_the_shipped_detector(self) -> None:
        """A team puts a model beside the rules (S3-6.1-i)."""
        with service() as (_, classifier):
            report = scan({"a": "be evil", "b": "fine"}, lambda texts: [*detect(texts), *classifier(texts)])

        assert [(finding.rule, finding.path, finding.level) for finding in report.findings] == [
            ("classifier", "/a", Level.REJECT)
        ]

    def test_a_service_that_fails_or_answers_something_else_raises(self) -> None:
        """What could not be scanned is not accepted (S3-6.1-i)."""
        with service(status=500) as (_, classifier), pytest.raises(HTTPError):
            classifier(["x"])
        for answer in ([], {"error": "busy"}, [[{"label": "SAFE", "score": "high"}]]):
            with service(answer) as (_, classifier), pytest.raises(ValueError, match=r"scores for|validation error"):
                classifier(["x"])
