"""Runs the HTTP server on uvicorn, with a graceful shutdown: no new calls, running ones finish, streams are closed."""

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from loguru import logger
from msgspec import Struct, structs
from starlette.types import ASGIApp

from auth.authenticator import RegistryAuthenticator
from auth.signing_keys import load_signing_keys
from auth.tokens import JwtVerifier
from config.errors import ConfigurationError
from config.logging import configure, new_event_loop
from config.settings import SETTINGS, Settings
from server.metrics import Metrics
from server.runtime import Runtime
from server.transports.bounded_http import BoundedHttp, bounded_http
from server.transports.client_connections import ClientConnections, OpenStreams
from server.worker_processes import BalancedListener, ConnectionShare

# Other users notice a pause of a quarter of a second, so a call that blocks the event loop for longer is logged with
# its stack.
_LOOP_BLOCK_WARN_MS = 250

# The end of the grace period, in which calls are cancelled and libraries closed: a share of it, up to this long.
_CLOSING_SHARE = 0.25
_CLOSING_MAX_S = 2.0
# How long connections without a running call stay open after SIGTERM: a client that is about to use one again gets an
# answer that closes it, instead of an error.
_IDLE_S = 1.0
_POLL_S = 0.02
# Connections that wait to be accepted; as uvicorn's default.
_BACKLOG = 2048
# How long the event loop waits for a thread that ranks hits to give up the interpreter lock. It waits several times in
# every call, and a tenth of Python's default costs no measurable CPU time.
_SWITCH_INTERVAL_S = 0.0005
# New objects after which the collector runs. Requests leave no cycles, but thirty of them in one turn of the event loop
# are more than Python's 700 objects: visiting them took 2.5 % of the CPU time.
_GC_OBJECTS = 3000
# Parameters of mallopt(3). By default glibc raises the second up to 32 MiB and the first to twice that, for each
# thread: once a few large responses were built, it kept several hundred MB of freed memory for good.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_BYTES = 1024 * 1024
# A text from PostgreSQL arrives in parts of up to 256 KiB, on the thread of its connection. Kept by the C library, the
# parts of a text of 17 MB took 17 MB more on each of several threads. A part costs 0.07 ms more.
_POSTGRES_MMAP_THRESHOLD_BYTES = 128 * 1024


class Server(uvicorn.Server):
    """Closes long-lived streams before uvicorn waits for them, because it would wait forever."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        open_streams: OpenStreams,
        protocol: type[BoundedHttp],
        announce: Callable[[str], None],
        on_stop: Callable[[], None],
        share: ConnectionShare | None = None,
        local_socket: socket.socket | None = None,
    ) -> None:
        super().__init__(config)
        self._share = share
        self._local_socket = local_socket
        grace_s = settings.shutdown_grace_s
        self._open_streams = open_streams
        open_streams.on_stop = self.exit_soon
        self._protocol = protocol
        self._announce = announce
        self._on_stop = on_stop
        self._delay_s = settings.shutdown_delay_s
        self._calls_grace_s = grace_s - min(_CLOSING_MAX_S, grace_s * _CLOSING_SHARE)
        self._is_replaced = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Called here and not in `shutdown`, which a blocked event loop never reaches.
        self._on_stop()
        # SIGINT comes from a person who waits for the prompt.
        self._is_replaced = sig == signal.SIGTERM
        super().handle_exit(sig, frame)

    def exit_soon(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets if self._share is None else [])
        loop = asyncio.get_running_loop()

        def make_protocol() -> asyncio.Protocol:
            # As uvicorn does it for TCP.
            return self._protocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )

        if self._share is not None:
            self._share.set_open(0)
            self.servers = [BalancedListener(listener, self._share, make_protocol) for listener in sockets or ()]  # type: ignore[misc]  # uvicorn only closes them and waits
        if self.started:
            if self._local_socket is not None:
                # By default, Python 3.13 removes the file when a server closes. It belongs to all workers.
                options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
                self.servers.append(await loop.create_unix_server(make_protocol, sock=self._local_socket, **options))
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets WebSockets finish their running calls before uvicorn, which would close them at once, shuts down.

        Both steps share the grace period; the end of it is left for closing the libraries.
        """
        self._open_streams.drain()
        if self._is_replaced:
            await asyncio.sleep(self._delay_s)
        grace_s, started_at = self._calls_grace_s, time.monotonic()
        self._open_streams.stop()
        for server in self.servers:
            server.close()
        if self._is_replaced:
            # Answers requests on open connections and closes each of them with its answer.
            limit_s = min(_IDLE_S, grace_s)
            self._protocol.is_draining = True
            ends_at = time.monotonic() + limit_s
            while self.server_state.connections and time.monotonic() < ends_at:  # noqa: ASYNC110 - uvicorn has no event
                await asyncio.sleep(_POLL_S)
        await self._open_streams.wait_until_empty(grace_s)
        left_s = max(0.0, grace_s - (time.monotonic() - started_at))
        self.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]  # uvicorn passes it to wait_for
        await super().shutdown(sockets)


async def serve(
    app: ASGIApp,
    settings: Settings,
    open_streams: OpenStreams,
    announce: Callable[[str], None] = lambda url: None,
    on_stop: Callable[[], None] = lambda: None,
    sockets: Sequence[socket.socket] = (),
    share: ConnectionShare | None = None,
    local_socket: socket.socket | None = None,
) -> None:
    """Serves until a signal stops it, on the address of the settings or on sockets that are listening already, and on
    the socket of the data directory.

    `announce` receives the URL once connections are accepted. `on_stop` is called by the signal, even if the event loop
    is blocked. A worker that shares the sockets with others publishes its connections in `share`.
    """
    connections = ClientConnections(settings, None if share is None else share.set_open)
    protocol = bounded_http(settings, connections)

    @cache
    def websocket_class() -> type[asyncio.Protocol]:
        # Most servers never get a WebSocket, and the library takes 0.7 MB.
        from server.transports.bounded_websocket import bounded_websocket  # noqa: PLC0415 - as above

        return bounded_websocket(settings, connections)

    def websocket(**options: Any) -> asyncio.Protocol:
        return websocket_class()(**options)

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws=websocket,  # type: ignore[arg-type]  # uvicorn only calls it
        ws_max_size=settings.body_max_bytes,
        ws_ping_interval=settings.sse_keepalive_s,
        ws_ping_timeout=settings.sse_keepalive_s,
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
    if not sockets:
        # This raises a readable error if the port is in use; uvicorn would log a traceback and exit.
        with closing(_bind(settings)):
            pass
    # Everything that exists now, modules above all, lives until the end. Visiting it in every full collection would
    # hold up all calls for 50 to 100 ms.
    gc.freeze()
    gc.set_threshold(_GC_OBJECTS)
    with watch_event_loop(_LOOP_BLOCK_WARN_MS):
        server = Server(config, settings, open_streams, protocol, announce, on_stop, share, local_socket)
        await server.serve(list(sockets) or None)


def listen(settings: Settings) -> socket.socket:
    """Returns a socket that listens on the address of the settings."""
    listener = _bind(settings)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    unbound = socket.socket(family, socket.SOCK_STREAM)
    try:
        unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        unbound.bind((settings.host, settings.port))
    except OSError as error:
        unbound.close()
        raise ConfigurationError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; choose another port with --port"
        ) from error
    return unbound


def run(main: Coroutine[Any, Any, None], storage_url: str = "") -> None:
    """Runs a coroutine like asyncio.run, on uvloop if it is installed (the extra `fast`)."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # Makes glibc return blocks of at least this size to the system as soon as they are freed. Other C libraries have no
    # mallopt.
    block_bytes = _POSTGRES_MMAP_THRESHOLD_BYTES if storage_url else _MMAP_THRESHOLD_BYTES
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, block_bytes)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MMAP_THRESHOLD_BYTES)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


# -- loop watchdog -----------------------------------------------------------------------------------------------------
# Reports what blocks the event loop. While one call holds it, every other call of every user waits.
#
# A callback on the loop notes the time again and again. A thread notices when it is late and takes the stack of the
# loop's thread, which shows the call that is running. Time in which the thread could run and got no processor is not
# counted: then the machine is busy, and no call of ours is to blame.

_ROOT = Path(__file__).resolve().parents[1]
# Beats per limit: a block is noticed at most a quarter of the limit late.
_BEATS = 4
_FRAMES_SHOWN = 6
# A block this many times as long as the limit is reported before it ends, because it may never end.
_ENDLESS = 20


class LoopDelays(Struct):
    """How late the event loop of this process was: its delays together, and how many were longer than the limit."""

    seconds: float = 0.0
    blocks: int = 0


LOOP_DELAYS = LoopDelays()


@contextmanager
def watch_event_loop(limit_ms: int) -> Iterator[None]:
    """Logs every block of the running loop that is longer than the limit, until the block of code ends."""
    watchdog = _LoopWatchdog(asyncio.get_running_loop(), limit_ms / 1000)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class _LoopWatchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> None:
        self._loop = loop
        self._limit_s = limit_s
        self._loop_thread = threading.get_ident()
        self._times = ThreadTimes()
        self._beat_at, self._beat_times = time.monotonic(), self._times.read()
        self._stack = ""
        self._is_reported = False
        self._stopping = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="loop watchdog", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join()
        self._times.close()

    def _beat(self) -> None:
        times = self._times.read()
        blocked_s, cpu_s = self._since_beat(times)
        late_s = max(0.0, blocked_s - self._limit_s / _BEATS)
        LOOP_DELAYS.seconds += late_s
        if late_s > self._limit_s:
            LOOP_DELAYS.blocks += 1
            logger.warning(
                "The event loop was blocked for {:.0f} ms ({:.0f} ms of CPU time): {}",
                blocked_s * 1000,
                cpu_s * 1000,
                self._stack or "the call ended before its stack was taken",
            )
        self._beat_at, self._beat_times = time.monotonic(), times
        self._stack, self._is_reported = "", False
        self._timer = self._loop.call_later(self._limit_s / _BEATS, self._beat)

    def _since_beat(self, times: tuple[float, float]) -> tuple[float, float]:
        """Returns for how long the loop has been blocked, and how much CPU time it took."""
        (cpu_s, waited_s), (beat_cpu_s, beat_waited_s) = times, self._beat_times
        return time.monotonic() - self._beat_at - (waited_s - beat_waited_s), cpu_s - beat_cpu_s

    def _watch(self) -> None:
        while not self._stopping.wait(self._limit_s / _BEATS):
            late_s, cpu_s = self._since_beat(self._times.read())
            if late_s > self._limit_s and not self._stack:
                # In no variable: the frames of all threads hold their results, such as large texts, and those of this
                # function would hold themselves.
                self._stack = describe_stack(sys._current_frames().get(self._loop_thread))  # noqa: SLF001 - documented
            if late_s > _ENDLESS * self._limit_s and not self._is_reported:
                self._is_reported = True
                logger.warning(
                    "The event loop has been blocked for {:.0f} ms ({:.0f} ms of CPU time): {}",
                    late_s * 1000,
                    cpu_s * 1000,
                    self._stack,
                )


class ThreadTimes:
    """For how many seconds the thread that creates this ran, and for how many it waited for a processor. The second is
    0 on systems without Linux's schedstat."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def read(self) -> tuple[float, float]:
        if self._descriptor < 0:
            return time.thread_time(), 0.0
        # Nanoseconds on a processor, nanoseconds in its queue, and the number of turns.
        ran_ns, waited_ns, _ = os.pread(self._descriptor, 64, 0).split()
        return int(ran_ns) / 1e9, int(waited_ns) / 1e9

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def describe_stack(frame: FrameType | None) -> str:
    """Returns the innermost calls, those of our own code preferred, as `module:line function`, the innermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    own = [frame for frame in frames if Path(frame.f_code.co_filename).is_relative_to(_ROOT)]
    return " < ".join(
        f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno} {frame.f_code.co_qualname}"
        for frame in (own or frames)[:_FRAMES_SHOWN]
    )


# -- reload ------------------------------------------------------------------------------------------------------------
# Applies changed settings while the server runs. Settings declare whether they can be; the others need a restart.

RELOADABLE = frozenset(setting.name for setting in SETTINGS if setting.is_reloadable)


class ReloadTarget(Struct, frozen=True):
    """Part of the server that uses `names`. `apply` is called with the new settings if one of them changed, or at every
    reload if it `reads_files`."""

    names: frozenset[str]
    apply: Callable[[Settings], None]
    reads_files: bool = False


def reload_targets(runtime: Runtime, metrics: Metrics) -> Sequence[ReloadTarget]:
    """Returns the targets. Only the first can fail, so that a reload changes everything or nothing."""

    def use_keys(settings: Settings) -> None:
        keys = load_signing_keys(settings) if settings.jwt_secret or settings.jwt_key_file else None
        if keys is not None and isinstance(runtime.authenticator, RegistryAuthenticator):
            runtime.authenticator.use_verifier(JwtVerifier(settings, keys))

    def use_log_settings(settings: Settings) -> None:
        configure(settings.log_level, settings.log_format)

    return (
        ReloadTarget(frozenset(("jwt_secret", "jwt_previous_secrets", "jwt_key_file")), use_keys, reads_files=True),
        ReloadTarget(frozenset(("log_level", "log_format")), use_log_settings),
        ReloadTarget(frozenset(("metrics_token",)), metrics.use_settings),
        ReloadTarget(frozenset(("user_max_bytes", "user_max_items", "user_max_passages")), runtime.quotas.use_settings),
    )


class SettingsReload:
    def __init__(self, settings: Settings, load: Callable[[], Settings], targets: Sequence[ReloadTarget]) -> None:
        self._settings = settings
        self._load = load
        self._targets = targets

    def reload(self) -> None:
        """Loads the settings and applies those that can change. Invalid settings change nothing."""
        try:
            before, loaded = self._settings, self._load()
            values = {s.name: (getattr(before, s.name), getattr(loaded, s.name)) for s in SETTINGS}
            differing = [name for name, (old, new) in values.items() if old != new]
            # Whether JWTs are accepted at all cannot change.
            fixed = {name for name in ("jwt_secret", "jwt_key_file") if bool(values[name][0]) != bool(values[name][1])}
            changed = RELOADABLE.intersection(differing) - fixed
            others = [name for name in differing if name not in changed]
            settings = structs.replace(before, **{name: values[name][1] for name in changed})
            for target in self._targets:
                if target.reads_files or target.names & changed:
                    target.apply(settings)
        except ConfigurationError as error:
            logger.error("the settings were not reloaded: {}", error.message)
            return
        self._settings = settings
        logger.info("settings reloaded; changed: {}", ", ".join(sorted(changed)) or "none")
        if others:
            logger.warning("these changed settings need a restart: {}", ", ".join(others))
