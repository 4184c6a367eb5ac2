"""Florilegium as it is deployed, each of its users with a copy of one library and a token to search it with.

The copies are made before it is up, so a search finds its files as if they had been written there. Sources have ten
times the usual time to answer: on a busy machine a search shall take longer, and not do less.
"""

import shutil
import sys
from pathlib import Path

from msgspec.structs import replace

from bench.library import OWNER
from bench.reading_desk import user_id_of
from bench.servers import Account, Announcement, announce
from bench.servers.ours import open_account, settings_for
from config.logging import configure
from config.paths import DatabasePaths, DataRoot
from config.settings import Settings
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.runtime import Runtime
from server.serving import run, serve

_PATIENCE = 10


class Opening(Announcement, frozen=True):
    """`home` is the directory in which the first user's files are."""

    home: str = ""


def name_of(number: int) -> str:
    return f"reader{number}"


async def welcome(runtime: Runtime, name: str, template: DatabasePaths) -> tuple[Account, Path]:
    """A new user with a copy of the template's files."""
    account = await open_account(runtime, name)
    user = await runtime.registry.user_by_name(name)
    assert user is not None
    home = runtime.data_root.prepare_user(user.id).chacha.parent
    for original in (template.media, template.chacha, template.prompts):
        shutil.copyfile(original, home / original.name)
    return account, home


def patient(settings: Settings) -> Settings:
    return replace(
        settings,
        search_deadline_ms=settings.search_deadline_ms * _PATIENCE,
        fanout_deadline_ms=settings.fanout_deadline_ms * _PATIENCE,
        library_deadline_ms=settings.library_deadline_ms * _PATIENCE,
    )


async def main(data_dir: str, template: str, users: int) -> None:
    settings = patient(settings_for(data_dir))
    configure(settings.log_level, settings.log_format)
    metrics = Metrics()
    originals = DataRoot(Path(template)).paths_of(user_id_of(OWNER))
    async with open_runtime(settings, observer=metrics) as runtime:
        welcomed = [await welcome(runtime, name_of(number), originals) for number in range(users)]
        accounts = tuple(account for account, _ in welcomed)
        home = str(welcomed[0][1])
        app = build_app(runtime, metrics)
        await serve(app, settings, runtime.open_streams, lambda url: announce(Opening(url, accounts, home)))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
