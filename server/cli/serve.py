"""`florilegium serve`: the HTTP and WebSocket server."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import click
from loguru import logger
from msgspec.structs import replace

from auth.accounts.links import AccountLinks, NewLink
from config.errors import ConfigurationError
from config.loading import LoadedSettings
from config.settings import Settings
from server.cli.admin import create_data_root
from server.cli.lazy_group import lasting_objects
from server.cli.local_library import demo_option, demo_settings, local_context, single_user
from server.cli.options import SettingsCommand, SettingsOverrides, setting_options
from server.cli.urls import local_url
from server.cli.welcome import welcome
from server.directory_lock import locked_directory
from server.runtime import Runtime
from server.stop_limit import StopLimit


@click.command(cls=SettingsCommand)
@demo_option
@setting_options()
def serve(overrides: SettingsOverrides, demo: bool) -> None:
    """Serve MCP over HTTP and WebSocket until SIGTERM or SIGINT."""
    with lasting_objects():
        from server.serving import run  # noqa: PLC0415 - importing the web stack takes 0.5 s, and only `serve` needs it

    loaded = overrides.load()
    for warning in loaded.warnings:
        logger.warning("{}", warning)
    if demo:
        _require_single_user(loaded)
        loaded = replace(loaded, settings=demo_settings(loaded))
    run(_serve(loaded, overrides.config_file, is_demo=demo))


def _require_single_user(loaded: LoadedSettings) -> None:
    if loaded.settings.is_auth_configured:
        raise ConfigurationError(
            "--demo cannot be used because authentication is configured; start without --demo and run "
            "`florilegium demo --user NAME` to add the demo items to a user's library"
        )


async def _serve(loaded: LoadedSettings, config_file: Path | None, *, is_demo: bool) -> None:
    with lasting_objects():
        from server.app import build_app  # noqa: PLC0415 - as above
        from server.leftovers import remove_leftovers  # noqa: PLC0415 - as above
        from server.lifespan import open_runtime  # noqa: PLC0415 - as above
        from server.metrics import Metrics  # noqa: PLC0415 - as above
        from server.serving import serve as serve_app  # noqa: PLC0415 - as above

    def announce(address: str) -> None:
        # With port 0 the system chooses the port; the address contains the chosen one.
        bound = replace(loaded.settings, port=urlsplit(address).port or loaded.settings.port)
        if lock is not None:
            lock.publish_url(local_url(bound))
        click.echo(welcome(loaded, local_url(bound), config_file, is_demo=is_demo, setup_link=setup_link))
        asyncio.get_running_loop().run_in_executor(None, _log_sandbox, loaded.settings)

    metrics = Metrics()
    with locked_directory(create_data_root(loaded.settings).root, "serve", "server") as lock:
        remove_leftovers(Path(loaded.settings.data_dir))
        async with open_runtime(loaded.settings, observer=metrics) as runtime:
            if is_demo:
                await _fill(runtime)
            setup_link = await _create_setup_link(runtime)
            app = build_app(runtime, metrics)
            with _ignore_repeated_signals():
                stop_limit = StopLimit(loaded.settings.shutdown_grace_s)
                await serve_app(app, loaded.settings, runtime.open_streams, announce, stop_limit)


async def _create_setup_link(runtime: Runtime) -> NewLink | None:
    """Returns a link for the first administrator of a server for several users, until there is an account."""
    settings = runtime.settings
    if not settings.is_auth_configured or not settings.password_sign_in:
        return None
    return await AccountLinks(runtime.registry.database, settings).create_setup()


def _log_sandbox(settings: Settings) -> None:
    """Runs on a thread once the server is ready, because trying the sandbox takes a process and a tenth of a second."""
    from server.cli.checks import evaluate_sandbox  # noqa: PLC0415 - as above
    from sources.importers.sandbox.report import probe_sandbox  # noqa: PLC0415 - as above

    check = evaluate_sandbox(settings.import_sandbox, probe_sandbox())
    logger.log("INFO" if check.outcome == "ok" else "WARNING", "Import sandbox: {}", check.message)


async def _fill(runtime: Runtime) -> None:
    """Adds the demo items before the first call. Fifty small items take 0.3 s, and 0.1 s if they already exist."""
    from sources.demo import fill  # noqa: PLC0415 - only here

    context = local_context(await single_user(runtime.registry, runtime.settings), runtime.data_root)
    async with runtime.libraries.library(context) as library:
        await fill(library)


@contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignores the stop signal that uvicorn raises again after it has shut down; the exit code stays 0."""
    before = {number: signal.signal(number, _pass) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass(number: int, frame: FrameType | None) -> None:
    """Does nothing: the server has already stopped."""
