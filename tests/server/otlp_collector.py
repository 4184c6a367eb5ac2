"""An OpenTelemetry collector for tests: an HTTP server that decodes what the exporter sends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpCollector:
    """The spans that were received, and their resource."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        self.body = b""

    def receive(self, body: bytes) -> None:
        self.body += body
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self.resource = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def attributes_of(span: Span) -> dict[str, str | int]:
    return {
        entry.key: entry.value.string_value if entry.value.HasField("string_value") else entry.value.int_value
        for entry in span.attributes
    }


@contextmanager
def collecting() -> Iterator[OtlpCollector]:
    """Runs a collector on a free port of the loopback interface."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.receive(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Writes nothing: the output of a test is for its failures."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        collector = OtlpCollector(f"http://127.0.0.1:{server.server_port}/v1/traces")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
