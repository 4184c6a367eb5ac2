"""Runs the HTTP server on uvicorn, with a graceful shutdown: no new calls, running ones finish, streams are closed."""

import asyncio
import gc
import importlib
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from config.errors import ConfigurationError
from config.settings import Settings
from server.loop_watchdog import watch_event_loop
from server.stop_limit import StopLimit
from server.transports.bounded_http import bounded_http
from server.transports.bounded_websocket import bounded_websocket
from server.transports.client_connections import ClientConnections
from server.transports.connection_middleware import ConnectionMiddleware
from server.transports.open_streams import OpenStreams

# The end of the grace period, in which calls are cancelled and libraries closed: a share of it, up to this long.
_CLOSING_SHARE = 0.25
_CLOSING_MAX_S = 2.0
# How long the event loop waits for a thread that ranks hits to give up the interpreter lock. It waits several times in
# every call, and a tenth of Python's default costs no measurable CPU time.
_SWITCH_INTERVAL_S = 0.0005


class Server(uvicorn.Server):
    """Closes long-lived streams before uvicorn waits for them, because it would wait forever."""

    def __init__(
        self,
        config: uvicorn.Config,
        open_streams: OpenStreams,
        announce: Callable[[str], None],
        grace_s: float,
        stop_limit: StopLimit | None,
    ) -> None:
        super().__init__(config)
        self._open_streams = open_streams
        self._announce = announce
        self._calls_grace_s = grace_s - min(_CLOSING_MAX_S, grace_s * _CLOSING_SHARE)
        self._stop_limit = stop_limit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Started here and not in `shutdown`, which a blocked event loop never reaches.
        if self._stop_limit is not None:
            self._stop_limit.start()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._open_streams.is_stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets WebSockets finish their running calls before uvicorn, which would close them at once, shuts down.

        Both steps share the grace period; the end of it is left for closing the libraries.
        """
        grace_s, started_at = self._calls_grace_s, time.monotonic()
        self._open_streams.stop()
        for server in self.servers:
            server.close()
        await self._open_streams.wait_until_empty(grace_s)
        left_s = max(0.0, grace_s - (time.monotonic() - started_at))
        self.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]  # uvicorn passes it to wait_for
        await super().shutdown(sockets)


async def serve(
    app: ASGIApp,
    settings: Settings,
    open_streams: OpenStreams,
    announce: Callable[[str], None] = lambda url: None,
    stop_limit: StopLimit | None = None,
) -> None:
    """Serves until a signal stops it. `announce` receives the URL once connections are accepted. `stop_limit` is
    started by the signal."""
    connections = ClientConnections(settings)
    config = uvicorn.Config(
        ConnectionMiddleware(app),
        host=settings.host,
        port=settings.port,
        http=bounded_http(settings, connections),
        ws=bounded_websocket(settings, connections),
        ws_max_size=settings.body_max_bytes,
        ws_ping_interval=settings.ws_ping_interval_s,
        ws_ping_timeout=settings.ws_ping_interval_s,
        lifespan="off",
        access_log=False,
        log_config=None,
        # At lower levels uvicorn logs each WebSocket with its query string, which may contain a ticket.
        log_level="warning",
        server_header=False,
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]  # passed to call_later
        date_header=True,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
    )
    _require_free_port(settings)
    # Everything that exists now, modules above all, lives until the end. Visiting it in every full collection would
    # hold up all calls for 50 to 100 ms.
    gc.freeze()
    with watch_event_loop(settings.loop_block_warn_ms):
        await Server(config, open_streams, announce, settings.shutdown_grace_s, stop_limit).serve()


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
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)
