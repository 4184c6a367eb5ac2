"""Runs another application on uvicorn in the same way as ours: same loop, same parser, no access log."""

import socket

import uvicorn
from starlette.types import ASGIApp

from bench.servers import Announcement, announce
from server.serving import run


def serve_app(app: ASGIApp) -> None:
    """Serves on a free loopback port until the process receives a signal."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http="httptools", ws="none", access_log=False, log_config=None, server_header=False)
    # The kernel queues early connections until uvicorn accepts them.
    announce(Announcement(f"http://127.0.0.1:{listener.getsockname()[1]}"))
    run(uvicorn.Server(config).serve(sockets=[listener]))
