"""Runs the HTTP server on uvicorn, with a graceful shutdown: no new calls, running ones finish, streams are closed."""

import asyncio
import importlib
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from config.errors import ConfigurationError
from config.settings import Settings
from server.transports.bounded_http import bounded_http
from server.transports.open_streams import OpenStreams


class Server(uvicorn.Server):
    """Closes long-lived streams before uvicorn waits for them, because it would wait forever."""

    def __init__(self, config: uvicorn.Config, open_streams: OpenStreams, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._open_streams = open_streams
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._open_streams.is_stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets WebSockets finish their running calls before uvicorn, which would close them at once, shuts down.

        Both steps share the grace period.
        """
        grace_s, started_at = self.config.timeout_graceful_shutdown or 0, time.monotonic()
        self._open_streams.stop()
        for server in self.servers:
            server.close()
        await self._open_streams.wait_until_empty(grace_s)
        self.config.timeout_graceful_shutdown = max(0, round(grace_s - (time.monotonic() - started_at)))
        await super().shutdown(sockets)


async def serve(
    app: ASGIApp, settings: Settings, open_streams: OpenStreams, announce: Callable[[str], None] = lambda url: None
) -> None:
    """Serves until a signal stops it. `announce` receives the URL once connections are accepted."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=bounded_http(settings.head_max_bytes + settings.token_max_bytes, settings.head_timeout_s),
        ws="websockets-sansio",
        ws_max_size=settings.body_max_bytes,
        ws_ping_interval=settings.ws_ping_interval_s,
        ws_ping_timeout=settings.ws_ping_interval_s,
        lifespan="off",
        access_log=False,
        log_config=None,
        # At lower levels uvicorn logs each WebSocket with its query string, which may contain a ticket.
        log_level="warning",
        server_header=False,
        date_header=True,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=round(settings.shutdown_grace_s),
    )
    _require_free_port(settings)
    await Server(config, open_streams, announce).serve()


def _require_free_port(settings: Settings) -> None:
    """Raises a readable error if the port is in use; uvicorn would log a traceback and exit the process."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; choose another port with --port"
        ) from error


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine like asyncio.run, on uvloop if it is installed (the extra `fast`)."""
    try:
        loop_factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)
