"""`florilegium serve`: the HTTP and WebSocket server."""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import click
from loguru import logger
from msgspec.structs import replace

from auth.accounts.service import AccountLinks, NewLink
from config.errors import ConfigurationError, StorageError
from config.loading import LoadedConfig
from config.settings import Settings, check
from server.cli.demo import welcome
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, lasting_objects, setting_options
from server.cli.local_library import create_data_root, local_context, single_user
from server.cli.options import demo_option, demo_settings
from server.cli.output import local_url
from server.directory_lock import DirectoryLock, bind_local_socket, locked_directory
from server.runtime import Runtime
from server.worker_processes import ConnectionShare, WorkerPlace, WorkerProcesses, require_shared_state, worker_place
from sources.importers.sandbox import probe_sandbox

# -- service manager ---------------------------------------------------------------------------------------------------
# The protocol between the server and a service manager such as systemd: listening sockets, readiness, reloads, and
# a watchdog for the event loop. See sd_listen_fds(3) and sd_notify(3).

# Passed descriptors start here.
_FIRST_DESCRIPTOR = 3


def inherited_sockets(descriptor: int | None, environ: MutableMapping[str, str]) -> Sequence[socket.socket]:
    """Returns the listening sockets that the parent process opened: the one given, or those of `LISTEN_FDS`.

    The variables are removed, so that processes started by this one do not take them for theirs.
    """
    count, pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if descriptor is not None:
        return [listening_socket(descriptor)]
    if not count.isdecimal() or pid != str(os.getpid()):
        return []
    return [listening_socket(number) for number in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count))]


def listening_socket(descriptor: int) -> socket.socket:
    """Returns the inherited socket. Raises ConfigurationError if the descriptor is something else."""
    try:
        inherited = socket.socket(fileno=descriptor)
        is_listening = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigurationError(f"file descriptor {descriptor}: expected a listening TCP socket") from error
    if not is_listening or inherited.family not in (socket.AF_INET, socket.AF_INET6):
        inherited.detach()
        raise ConfigurationError(f"file descriptor {descriptor}: expected a listening TCP socket")
    inherited.setblocking(False)
    inherited.set_inheritable(False)
    return inherited


class ServiceManager:
    """The process that started the server, if it wants to be notified (`NOTIFY_SOCKET`); otherwise nothing is sent."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        limit_us, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", str(os.getpid()))
        is_watched = limit_us.isdecimal() and pid == str(os.getpid())
        # The manager kills the server if it is not notified for this long. 0: it does not watch.
        self.watchdog_s = int(limit_us) / 1e6 if is_watched else 0.0

    def ready(self, url: str) -> None:
        self._send("READY=1", f"STATUS=Serving at {url}")

    def reloading(self) -> None:
        """Must be followed by `ready`."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=Reloading the settings")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=Finishing running calls")

    @asynccontextmanager
    async def watchdog(self) -> AsyncIterator[None]:
        """Reports from the event loop, as long as it runs, that it does. A loop that is blocked is not reported."""
        if not self.watchdog_s:
            yield
            return

        async def report_alive() -> None:
            while True:
                self._send("WATCHDOG=1")
                # Half of the limit, as sd_watchdog_enabled(3) recommends.
                await asyncio.sleep(self.watchdog_s / 2)

        reporting = asyncio.create_task(report_alive())
        try:
            yield
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A leading @ means an abstract address, which begins with a null byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto("\n".join(lines).encode(), address)


# -- stop limit --------------------------------------------------------------------------------------------------------
# Ends the process when stopping takes too long, whatever keeps it alive: a call that ignores cancellation, a thread
# that never returns, a disk that does not answer.
#
# Nothing that was acknowledged is lost. To SQLite it is like a crash of the process, which every `durability`
# survives.

# Even with a shorter grace period, libraries get this long to be closed.
_LIMIT_MIN_S = 1.0


class StopLimit:
    """A thread, because the event loop may be blocked. It is a daemon, so that it does not keep the process alive."""

    def __init__(self, grace_s: float) -> None:
        self.limit_s = max(_LIMIT_MIN_S, grace_s)
        self._timer = threading.Timer(self.limit_s, self._end_process)
        self._timer.daemon = True
        self._is_running = False

    def start(self) -> None:
        """Starts the time limit; further calls have no effect."""
        if not self._is_running:
            self._is_running = True
            self._timer.start()

    def _end_process(self) -> None:
        logger.warning("the server did not stop within {:g} s; ending the process", self.limit_s)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


# -- command -----------------------------------------------------------------------------------------------------------

# A worker whose event loop has not run for this long is killed, and another serves within 30 s. Calls that block the
# loop for longer than 250 ms are logged as a fault, so 20 s is a hang.
_WORKER_HANG_S = 20.0


@click.command(cls=SettingsCommand)
@demo_option
@click.option(
    "--fd",
    "descriptor",
    type=click.IntRange(0),
    help="Serve on this open file descriptor, a listening TCP socket. systemd passes its sockets without this option.",
)
@setting_options()
def serve(overrides: SettingsOverrides, demo: bool, descriptor: int | None) -> None:
    """Serve MCP over HTTP and WebSocket until SIGTERM or SIGINT. SIGHUP reloads settings."""
    # uvicorn imports a reloader that is never used here, and would load watchfiles: 1 MB.
    sys.modules.setdefault("uvicorn.supervisors.watchfilesreload", None)  # type: ignore[arg-type]  # an ImportError
    with lasting_objects():
        from server.serving import run  # noqa: PLC0415 - importing the web stack takes 0.5 s, and only `serve` needs it

    # This process is one of three: the only server process, the one that starts workers, or one of these workers, which
    # finds its place in the environment.
    place = worker_place(os.environ)
    inherited = inherited_sockets(descriptor, os.environ)
    sockets = [listening_socket(number) for number in place.sockets] if place else inherited

    def effective(loaded: LoadedConfig) -> LoadedConfig:
        if demo:
            if loaded.settings.is_auth_configured:
                raise ConfigurationError(
                    "--demo cannot be used because authentication is configured; start without --demo and run "
                    "`florilegium demo --user NAME` to add the demo items to a user's library"
                )
            loaded = replace(loaded, settings=demo_settings(loaded))
        # The settings with the address of the first socket. What is checked for an address is checked for all.
        addresses = [
            replace(loaded.settings, host=host, port=port) for host, port, *_ in (s.getsockname() for s in sockets)
        ]
        for address in addresses:
            check(address)
        return replace(loaded, settings=addresses[0] if addresses else loaded.settings)

    loaded = effective(overrides.load())
    for warning in () if place else loaded.warnings:  # the process that starts the workers has logged them
        logger.warning("{}", warning)
    if loaded.settings.workers > 1 and place is None:
        require_shared_state(loaded.settings)
        run(_serve_with_workers(loaded.settings, sockets), loaded.settings.storage_url)
        return
    service = _serve(loaded, overrides.config_file, lambda: effective(overrides.read()).settings, sockets, demo, place)
    run(service, loaded.settings.storage_url)


async def _serve_with_workers(settings: Settings, sockets: Sequence[socket.socket]) -> None:
    """Opens the sockets and holds the lock of the data directory for the workers, which do the rest."""
    from server.serving import listen  # noqa: PLC0415 - importing the web stack takes 0.5 s

    manager = ServiceManager(os.environ)
    root = create_data_root(settings).root
    with locked_directory(root, "serve", "server") as lock, bind_local_socket(root) as local_socket:
        sockets = sockets or [listen(settings)]
        bound = replace(settings, port=sockets[0].getsockname()[1])
        url = local_url(bound)
        # Each of the workers answers commands, as they share the other sockets.
        _publish(lock, root, bound, local_socket)
        # A worker is a new process with the same arguments. It inherits the sockets, so that all serve one address.
        command = [sys.executable, "-m", "server.cli", *sys.argv[1:]]
        workers = WorkerProcesses(
            command, settings.workers, sockets, local_socket, lambda: manager.ready(url), _WORKER_HANG_S
        )
        async with manager.watchdog():
            await workers.run()
        manager.stopping()


async def _serve(
    loaded: LoadedConfig,
    config_file: Path | None,
    load_again: Callable[[], Settings],
    sockets: Sequence[socket.socket],
    is_demo: bool,
    place: WorkerPlace | None,
) -> None:
    """Serves until the process is stopped, as the only process or as the worker at `place`."""
    with lasting_objects():
        from server.app import build_app  # noqa: PLC0415 - importing the web stack takes 0.5 s
        from server.lifespan import open_runtime  # noqa: PLC0415 - as above
        from server.metrics import Metrics  # noqa: PLC0415 - as above
        from server.runtime import remove_leftovers  # noqa: PLC0415 - as above
        from server.serving import SettingsReload, reload_targets  # noqa: PLC0415 - as above
        from server.serving import serve as serve_app  # noqa: PLC0415 - as above

    settings, metrics, manager = loaded.settings, Metrics(), ServiceManager(os.environ)
    stop_limit = StopLimit(settings.shutdown_delay_s + settings.shutdown_grace_s)
    # Of several workers, the first does what must happen once: cleaning up, the setup link, the welcome message.
    is_first = place is None or place.is_first
    lock: DirectoryLock | None = None
    setup_link: NewLink | None = None
    share: ConnectionShare | None = None

    def announce(address: str) -> None:
        # With port 0 the system chooses the port; the address contains the chosen one.
        bound = replace(settings, port=urlsplit(address).port or settings.port)
        url = local_url(bound)
        _publish(lock, root, bound, local_socket)
        if is_first:
            click.echo(welcome(loaded, url, config_file, is_demo=is_demo, setup_link=setup_link))
        if place is not None:
            place.report_ready()
        manager.ready(url)
        asyncio.get_running_loop().run_in_executor(None, _log_sandbox, settings)

    def stop() -> None:
        # SIGTERM ends the process within the grace period, even if something hangs.
        stop_limit.start()
        manager.stopping()

    with ExitStack() as stack:
        # The lock of the data directory of a worker is held by the process that started it.
        root = create_data_root(settings).root
        if place is None:
            lock = stack.enter_context(locked_directory(root, "serve", "server"))
            local_socket = stack.enter_context(bind_local_socket(root))
        else:
            stack.enter_context(place.stop_with_parent())
            share = ConnectionShare(place.table(), place.number)
            local_socket = place.local_socket()
        if is_first:
            remove_leftovers(Path(settings.data_dir))
        async with (
            open_runtime(settings, observer=metrics) as runtime,
            metrics.shared(place),
            manager.watchdog(),
        ):
            if is_demo:
                from sources.demo import fill  # noqa: PLC0415 - only here

                # Before the first call. Fifty small items take 0.3 s, and 0.1 s if they already exist.
                context = local_context(await single_user(runtime.registry, settings), runtime.data_root)
                async with runtime.libraries.library(context) as library:
                    await fill(library)
            if is_first:
                setup_link = await _create_setup_link(runtime)
            app = build_app(runtime, metrics)
            reload = SettingsReload(settings, load_again, reload_targets(runtime, metrics)).reload
            with _signal_handlers(manager, reload, local_url(settings)):
                await serve_app(app, settings, runtime.open_streams, announce, stop, sockets, share, local_socket)


def _publish(lock: DirectoryLock | None, root: Path, settings: Settings, local_socket: socket.socket | None) -> None:
    """Tells commands on this machine where the server is. `settings` have the port that it listens on."""
    if lock is not None:
        path = local_socket.getsockname() if local_socket is not None else ""
        name = path.removeprefix(f"{root.absolute()}/")
        lock.publish(local_url(settings), settings.base_url, name, settings.is_auth_configured)


async def _create_setup_link(runtime: Runtime) -> NewLink | None:
    """Returns a link for the first administrator of a server for several users, until there is an account."""
    settings = runtime.settings
    if not settings.is_auth_configured or not settings.password_sign_in:
        return None
    try:
        return await AccountLinks(runtime.registry.database).create_setup()
    except StorageError as error:
        # Callers with keys and tokens can be served without it, on a full disk for example.
        logger.warning("No setup link was created: {}", error.message)
        return None


def _log_sandbox(settings: Settings) -> None:
    """Runs on a thread once the server is ready, because trying the sandbox takes a process and a tenth of a second."""
    outcome, message = probe_sandbox().judge(settings.import_sandbox)
    logger.log("INFO" if outcome == "ok" else "WARNING", "Import sandbox: {}", message)


@contextmanager
def _signal_handlers(manager: ServiceManager, reload: Callable[[], None], url: str) -> Iterator[None]:
    """Reloads settings on SIGHUP. Ignores the stop signal that uvicorn raises again after it has shut down; the exit
    code stays 0."""

    # systemd waits for READY=1 after RELOADING=1 (sd_notify).
    def reload_settings() -> None:
        manager.reloading()
        reload()
        manager.ready(url)

    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload_settings)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for number, handler in before.items():
            signal.signal(number, handler)
