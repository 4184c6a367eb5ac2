"""Florilegium as deployed, with users who each have a copy of one library and a token to search it. The first user can
be in groups, which have copies, too.

The copies are made before the server starts. By default, deadlines are ten times those of the settings, so that on a
busy machine a search takes longer instead of returning less.
"""

import shutil
import sys
from pathlib import Path

from msgspec.structs import replace

from auth.context import READ, WRITE
from auth.sharing import Sharing
from bench.library import OWNER
from bench.local_runtime import user_id_for
from bench.servers import Account, Announcement, announce
from bench.servers.ours import create_account, settings_for
from config.logging import configure
from config.paths import DatabasePaths, DataRoot
from config.settings import Settings
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.runtime import Runtime
from server.serving import run, serve


class LibraryAnnouncement(Announcement, frozen=True):
    """`home` is the directory of the first user's files."""

    home: str = ""


def user_name(number: int) -> str:
    return f"reader{number}"


async def create_user(runtime: Runtime, name: str, template: DatabasePaths) -> tuple[Account, Path]:
    """Creates a user with a copy of the template's files."""
    account = await create_account(runtime, name, (READ, WRITE))
    user = await runtime.registry.user_by_name(name)
    assert user is not None
    home = runtime.data_root.prepare_user(user.id).chacha.parent
    for original in (template.media, template.chacha, template.prompts):
        shutil.copyfile(original, home / original.name)
    return account, home


def with_long_deadlines(settings: Settings, factor: int) -> Settings:
    return replace(
        settings,
        search_deadline_ms=settings.search_deadline_ms * factor,
        fanout_deadline_ms=settings.fanout_deadline_ms * factor,
        semantic_timeout_ms=settings.semantic_timeout_ms * factor,
        library_deadline_ms=settings.library_deadline_ms * factor,
        fixed=replace(settings.fixed, library_wait_max_ms=settings.fixed.library_wait_max_ms * factor),
    )


async def create_group(runtime: Runtime, name: str, member: str, template: DatabasePaths) -> None:
    """Creates a group with a copy of the template's files, and with one member."""
    user = await runtime.registry.user_by_name(member)
    assert user is not None
    group = await Sharing(runtime.registry.database).create_group(user.id, name)
    home = runtime.data_root.prepare_user(group.id).chacha.parent
    for original in (template.media, template.chacha, template.prompts):
        shutil.copyfile(original, home / original.name)


async def main(
    data_dir: str, template: str, user_count: int, deadline_factor: int, semantic_model: str, groups: int
) -> None:
    settings = with_long_deadlines(settings_for(data_dir), deadline_factor)
    settings = replace(settings, semantic_model=semantic_model)
    configure(settings.log_level, settings.log_format)
    metrics = Metrics()
    originals = DataRoot(Path(template)).paths_of(user_id_for(OWNER))
    async with open_runtime(settings, observer=metrics) as runtime:
        users = [await create_user(runtime, user_name(number), originals) for number in range(user_count)]
        for number in range(groups):
            await create_group(runtime, f"group{number}", user_name(0), originals)
        accounts = tuple(account for account, _ in users)
        home = str(users[0][1])
        app = build_app(runtime, metrics)
        await serve(app, settings, runtime.open_streams, lambda url: announce(LibraryAnnouncement(url, accounts, home)))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6])))
