"""A collector of traces: a real OTLP receiver over HTTP that stores the spans."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What was received.

    Attributes:
        endpoint: Where it listens, as `OTEL_EXPORTER_OTLP_ENDPOINT` wants it.
        requests: The requests, decoded.
        paths: The path of each.
        headers: The headers of each.
        status: What it answers; with another one than 200 it keeps nothing.
        refused: How many requests it answered so.
    """

    endpoint: str = ""
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    refused: int = 0

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they began."""
        scopes = [scope for request in self.requests for group in request.resource_spans for scope in group.scope_spans]
        return sorted((span for scope in scopes for span in scope.spans), key=lambda span: span.start_time_unix_nano)

    def span(self, name: str) -> Span:
        (matches,) = [span for span in self.spans if span.name == name]
        return matches

    def services(self) -> set[str]:
        """Return the names of the services that sent something."""
        resources = [group.resource for request in self.requests for group in request.resource_spans]
        return {str(attributes(resource.attributes)["service.name"]) for resource in resources}


def attributes(pairs: Any) -> dict[str, Any]:
    """Return the attributes of a span or resource."""
    spans: list[KeyValue] = list(pairs)
    return {pair.key: _value(pair.value) for pair in spans}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if collector.status == 200:
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            else:
                collector.refused += 1
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
