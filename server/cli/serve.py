"""`florilegium serve`: the HTTP and WebSocket server."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import click
from loguru import logger
from msgspec.structs import replace

from config.errors import ConfigurationError
from config.loading import Loaded
from server.cli.addresses import local_url
from server.cli.local import demo_option, demo_settings, local_context, single_user
from server.cli.options import Given, SettingsCommand, setting_options
from server.cli.welcome import welcome
from server.runtime import Runtime


@click.command(cls=SettingsCommand)
@demo_option
@setting_options()
def serve(given: Given, demo: bool) -> None:
    """Serve MCP over HTTP and WebSocket until SIGTERM or SIGINT."""
    from server.serving import run  # noqa: PLC0415 - the web stack takes 0.5 s to import; no other command needs it

    loaded = given.load()
    for warning in loaded.warnings:
        logger.warning("{}", warning)
    if demo:
        _require_single_user(loaded)
        loaded = replace(loaded, settings=demo_settings(loaded))
    run(_serve(loaded, given.config_file, is_demo=demo))


def _require_single_user(loaded: Loaded) -> None:
    if loaded.settings.auth_configured:
        raise ConfigurationError(
            "--demo is for callers without a credential, and authentication is configured; leave --demo out, "
            "and `florilegium demo --user NAME` puts the demo library into a user's own"
        )


async def _serve(loaded: Loaded, config_file: Path | None, *, is_demo: bool) -> None:
    from server.app import build_app  # noqa: PLC0415 - as above
    from server.lifespan import open_runtime  # noqa: PLC0415 - as above
    from server.metrics import Metrics  # noqa: PLC0415 - as above
    from server.serving import serve as serve_app  # noqa: PLC0415 - as above

    def announce(address: str) -> None:
        # The settings may say port 0; the address says which port that became.
        bound = replace(loaded.settings, port=urlsplit(address).port or loaded.settings.port)
        click.echo(welcome(loaded, local_url(bound), config_file, is_demo=is_demo))

    metrics = Metrics()
    async with open_runtime(loaded.settings, observer=metrics) as runtime:
        if is_demo:
            await _fill(runtime)
        app = build_app(runtime, metrics)
        with _signals_that_end_well():
            await serve_app(app, loaded.settings, runtime.open_streams, announce)


async def _fill(runtime: Runtime) -> None:
    """Before the first caller comes: fifty small items take a third of a second, and a tenth if they are there."""
    from sources.demo import fill  # noqa: PLC0415 - only here

    context = local_context(await single_user(runtime.registry, runtime.settings), runtime.data_root)
    async with runtime.libraries.library(context) as library:
        await fill(library)


@contextmanager
def _signals_that_end_well() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when it is done; here that was the wish, not an error."""
    before = {number: signal.signal(number, _pass) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass(number: int, frame: FrameType | None) -> None:
    """The server has stopped already."""
