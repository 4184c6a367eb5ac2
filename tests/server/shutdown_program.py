"""A server process for tests of shutdown. It prints its URL and a token, and serves until a signal stops it."""

import sys
from pathlib import Path

from config.logging import configure
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.serving import run, serve
from tests.live import LiveServer, make_settings


async def main(data_dir: Path) -> None:
    settings, metrics = make_settings(data_dir, access_recheck_s=0.05), Metrics()
    configure("warning", "text")
    async with open_runtime(settings, observer=metrics) as runtime:
        token = await LiveServer(runtime, "").token("ada")

        def announce(url: str) -> None:
            sys.stdout.write(f"{url} {token}\n")
            sys.stdout.flush()

        await serve(build_app(runtime, metrics), settings, runtime.open_streams, announce)


if __name__ == "__main__":
    run(main(Path(sys.argv[1])))
