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

from config.loading import Loaded
from server.cli.addresses import local_url
from server.cli.options import Given, SettingsCommand, setting_options
from server.cli.welcome import welcome


@click.command(cls=SettingsCommand)
@setting_options()
def serve(given: Given) -> None:
    """Serve MCP over HTTP and WebSocket until SIGTERM or SIGINT."""
    from server.serving import run  # noqa: PLC0415 - the web stack takes 0.5 s to import; no other command needs it

    loaded = given.load()
    for warning in loaded.warnings:
        logger.warning("{}", warning)
    run(_serve(loaded, given.config_file))


async def _serve(loaded: Loaded, config_file: Path | None) -> None:
    from server.app import build_app  # noqa: PLC0415 - as above
    from server.lifespan import open_runtime  # noqa: PLC0415 - as above
    from server.metrics import Metrics  # noqa: PLC0415 - as above
    from server.serving import serve as serve_app  # noqa: PLC0415 - as above

    def announce(address: str) -> None:
        # The settings may say port 0; the address says which port that became.
        bound = replace(loaded.settings, port=urlsplit(address).port or loaded.settings.port)
        click.echo(welcome(loaded, local_url(bound), config_file))

    metrics = Metrics()
    async with open_runtime(loaded.settings, observer=metrics) as runtime:
        app = build_app(runtime, metrics)
        with _signals_that_end_well():
            await serve_app(app, loaded.settings, runtime.presence, announce)


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
