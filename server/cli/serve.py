"""`florilegium serve`: the HTTP and WebSocket server."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click
from loguru import logger
from msgspec.structs import replace

from auth.accounts.links import AccountLinks, NewLink
from config.errors import ConfigurationError, StorageError
from config.loading import LoadedConfig
from config.settings import Settings, check
from server.cli.admin import create_data_root
from server.cli.demo import welcome
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, lasting_objects, setting_options
from server.cli.local_library import demo_option, demo_settings, local_context, single_user
from server.cli.output import local_url
from server.directory_lock import DirectoryLock, locked_directory
from server.runtime import Runtime
from server.service_manager import ServiceManager, StopLimit, inherited_sockets, listening_socket
from server.worker_processes import WorkerPlace, WorkerProcesses, require_shared_state, worker_place

# A worker whose event loop has not run for this long is killed and replaced. No call blocks the loop for more than a
# fraction of a second, so 30 s is a hang even on a busy machine.
_WORKER_HANG_S = 30.0


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
    service = _Service(
        loaded, overrides.config_file, lambda: effective(overrides.read()).settings, sockets, demo, place
    )
    run(service.run(), loaded.settings.storage_url)


async def _serve_with_workers(settings: Settings, sockets: Sequence[socket.socket]) -> None:
    """Opens the sockets and holds the lock of the data directory for the workers, which do the rest."""
    from server.serving import listen  # noqa: PLC0415 - importing the web stack takes 0.5 s

    manager = ServiceManager(os.environ)
    with locked_directory(create_data_root(settings).root, "serve", "server") as lock:
        sockets = sockets or [listen(settings)]
        url = local_url(replace(settings, port=sockets[0].getsockname()[1]))
        if lock is not None:
            lock.publish_url(url)
        # A worker is a new process with the same arguments. It inherits the sockets, so that all serve one address.
        command = [sys.executable, "-m", "server.cli", *sys.argv[1:]]
        workers = WorkerProcesses(command, settings.workers, sockets, lambda: manager.ready(url), _WORKER_HANG_S)
        async with manager.watchdog():
            await workers.run()
        manager.stopping()


class _Service:
    """One run of the server. `reload` loads the settings again."""

    def __init__(
        self,
        loaded: LoadedConfig,
        config_file: Path | None,
        reload: Callable[[], Settings],
        sockets: Sequence[socket.socket],
        is_demo: bool,
        place: WorkerPlace | None = None,
    ) -> None:
        self._place = place
        # Of several workers, the first does what must happen once: cleaning up, the setup link, the welcome message.
        self._is_first = place is None or place.is_first
        self._loaded = loaded
        self._settings = settings = loaded.settings
        self._config_file = config_file
        self._reload = reload
        self._sockets = sockets
        self._is_demo = is_demo
        self._manager = ServiceManager(os.environ)
        self._stop_limit = StopLimit(settings.shutdown_delay_s + settings.shutdown_grace_s)
        self._lock: DirectoryLock | None = None
        self._setup_link: NewLink | None = None

    async def run(self) -> None:
        with lasting_objects():
            from server.app import build_app  # noqa: PLC0415 - importing the web stack takes 0.5 s
            from server.lifespan import open_runtime  # noqa: PLC0415 - as above
            from server.metrics import Metrics  # noqa: PLC0415 - as above
            from server.runtime import remove_leftovers  # noqa: PLC0415 - as above
            from server.serving import serve as serve_app  # noqa: PLC0415 - as above
            from server.settings_reload import SettingsReload, reload_targets  # noqa: PLC0415 - as above

        metrics, settings = Metrics(), self._settings
        root = create_data_root(settings).root
        with ExitStack() as stack:
            # The lock of the data directory of a worker is held by the process that started it.
            if self._place is None:
                self._lock = stack.enter_context(locked_directory(root, "serve", "server"))
            else:
                stack.enter_context(self._place.stop_with_parent())
            if self._is_first:
                remove_leftovers(Path(settings.data_dir))
            async with (
                open_runtime(settings, observer=metrics) as runtime,
                metrics.shared(self._place),
                self._manager.watchdog(),
            ):
                if self._is_demo:
                    # Adds the demo items before the first call. Fifty small items take 0.3 s, and 0.1 s if they already
                    # exist.
                    from sources.demo import fill  # noqa: PLC0415 - only here

                    context = local_context(await single_user(runtime.registry, runtime.settings), runtime.data_root)
                    async with runtime.libraries.library(context) as library:
                        await fill(library)
                if self._is_first:
                    self._setup_link = await _create_setup_link(runtime)
                app = build_app(runtime, metrics)
                reload = SettingsReload(settings, self._reload, reload_targets(runtime, metrics)).reload
                with _ignore_repeated_signals(), self._reload_on_hangup(reload):
                    await serve_app(app, settings, runtime.open_streams, self._announce, self._stop, self._sockets)

    def _announce(self, address: str) -> None:
        settings = self._settings
        # With port 0 the system chooses the port; the address contains the chosen one.
        url = local_url(replace(settings, port=urlsplit(address).port or settings.port))
        if self._lock is not None:
            self._lock.publish_url(url)
        if self._is_first:
            click.echo(
                welcome(self._loaded, url, self._config_file, is_demo=self._is_demo, setup_link=self._setup_link)
            )
        if self._place is not None:
            self._place.report_ready()
        self._manager.ready(url)
        asyncio.get_running_loop().run_in_executor(None, _log_sandbox, settings)

    def _stop(self) -> None:
        # SIGTERM ends the process within the grace period, even if something hangs.
        self._stop_limit.start()
        self._manager.stopping()

    @contextmanager
    def _reload_on_hangup(self, reload: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        # systemd waits for READY=1 after RELOADING=1 (sd_notify).
        def handle() -> None:
            self._manager.reloading()
            reload()
            self._manager.ready(local_url(self._settings))

        loop.add_signal_handler(signal.SIGHUP, handle)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)


async def _create_setup_link(runtime: Runtime) -> NewLink | None:
    """Returns a link for the first administrator of a server for several users, until there is an account."""
    settings = runtime.settings
    if not settings.is_auth_configured or not settings.password_sign_in:
        return None
    try:
        return await AccountLinks(runtime.registry.database, settings).create_setup()
    except StorageError as error:
        # Callers with keys and tokens can be served without it, on a full disk for example.
        logger.warning("No setup link was created: {}", error.message)
        return None


def _log_sandbox(settings: Settings) -> None:
    """Runs on a thread once the server is ready, because trying the sandbox takes a process and a tenth of a second."""
    from server.cli.checks import evaluate_sandbox  # noqa: PLC0415 - as above
    from sources.importers.sandbox.confinement import probe_sandbox  # noqa: PLC0415 - as above

    check = evaluate_sandbox(settings.import_sandbox, probe_sandbox())
    logger.log("INFO" if check.outcome == "ok" else "WARNING", "Import sandbox: {}", check.message)


@contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignores the stop signal that uvicorn raises again after it has shut down; the exit code stays 0."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
