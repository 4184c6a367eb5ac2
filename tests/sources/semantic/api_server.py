"""An HTTP server on a loopback port whose answers a test chooses."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from msgspec import Struct

# Returns the status and the body; an exception closes the connection without an answer.
Answer = Callable[["ApiRequest"], tuple[int, bytes]]


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: clients that time out close their connections."""


class ApiRequest(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: Any


class ApiServer(Struct, frozen=True):
    url: str
    requests: list[ApiRequest]


@contextmanager
def serve_api(answer: Answer) -> Iterator[ApiServer]:
    requests: list[ApiRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
            request = ApiRequest(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            requests.append(request)
            try:
                status, content = answer(request)
            except ConnectionError:
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Keeps the output of the tests clean."""

    with QuietServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield ApiServer(f"http://127.0.0.1:{server.server_address[1]}", requests)
        finally:
            server.shutdown()
            thread.join()
