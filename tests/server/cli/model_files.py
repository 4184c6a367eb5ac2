"""An HTTP server with the files of the model `fast`, which fails in the way that a test chooses."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msgspec import Struct, field

from sources.semantic.named_models import FAST, find_files

_PATHS = find_files(FAST, Path("/nowhere"))
assert _PATHS is not None
FILES: Mapping[str, bytes] = {file.name: path.read_bytes() for file, path in zip(FAST.files, _PATHS.files, strict=True)}


class FileRequest(Struct, frozen=True):
    path: str
    start: int


class FileServer(Struct):
    """`files` are served. `cut_after` closes every connection after so many bytes of a file; `on_cut` is called then.
    `ignores_ranges` sends whole files only. `redirects` sends to another path first."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    cut_after: int | None = None
    on_cut: Callable[[], None] = lambda: None
    ignores_ranges: bool = False
    redirects: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    requests: list[FileRequest] = field(default_factory=list)


@contextmanager
def serve_files() -> Iterator[FileServer]:
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(match[1]) if match and not state.ignores_ranges else 0
            state.requests.append(FileRequest(self.path, start))
            name = self.path.rpartition("/")[2]
            if target := state.redirects.get(self.path):
                self.send_response(302)
                self.send_header("Location", target)
                self.end_headers()
            elif state.status != 200 or name not in state.files:
                self.send_error(state.status if state.status != 200 else 404)
            else:
                self._send(state.files[name][start:], 206 if start else 200)

        def _send(self, content: bytes, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: state.cut_after])
            if state.cut_after is not None and state.cut_after < len(content):
                self.wfile.flush()
                state.on_cut()
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Keeps the output of the tests clean."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Prints nothing: clients that refuse a file close the connection."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            state.url = f"http://127.0.0.1:{server.server_address[1]}"
            yield state
        finally:
            server.shutdown()
            thread.join()
