"""Imports of one process, seen, cancelled and continued by another."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from auth.redis import Argument, RedisConnection, open_redis
from config.errors import NotFound, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.import_board import ImportJob, NoImportBoard, PostedImport
from server.import_jobs import ImportJobs
from server.redis_stores import RedisImportBoard, open_peers
from server.stores import Peers
from sources.importers.engine.importer import Importer
from tests.build_settings import build_settings
from tests.server.rest.test_imports import BlockingImporter, upload, wait_until_ended
from tests.servers.aging import age_keys
from tests.sources.importers.line_format import LINES
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture

RedisSettings = Mapping[str, Any]
RUNNING = ImportJob(
    id="0123456789abcdef",
    state="running",
    name="a.lines",
    dry_run=False,
    started_at="2026-11-16T07:00:00Z",
    ended_at=None,
    bytes_read=0,
    bytes_total=0,
    items=0,
)


class ObservedBoard(RedisImportBoard):
    """Reports when a process was asked to cancel an import."""

    def __init__(self, connection: RedisConnection, peers: Peers) -> None:
        super().__init__(connection, peers)
        self.cancelled = asyncio.Event()

    def on_cancel(self, handler: Callable[[str], None]) -> None:
        def observe(job_id: str) -> None:
            handler(job_id)
            self.cancelled.set()

        super().on_cancel(observe)


class LateCancelBoard(RedisImportBoard):
    """Asks to cancel an import that has ended and has not left the board yet."""

    _cancel: Callable[[str], None]

    def on_cancel(self, handler: Callable[[str], None]) -> None:
        self._cancel = handler
        super().on_cancel(handler)

    async def remove(self, posted: PostedImport) -> None:
        self._cancel(posted.job.id)
        await asyncio.sleep(0)
        await super().remove(posted)


@asynccontextmanager
async def open_process(
    libraries: LibraryFixture,
    redis_settings: RedisSettings,
    importer: Importer,
    board_type: Callable[[RedisConnection, Peers], RedisImportBoard] = RedisImportBoard,
) -> AsyncIterator[ImportJobs]:
    settings = build_settings(import_batch_items=2, **redis_settings)
    async with open_redis(settings) as connection, open_peers(connection) as peers:
        board = board_type(connection, peers)
        async with ImportJobs(
            settings, libraries.data_root, libraries.engine, lambda: [importer], board
        ).open() as jobs:
            yield jobs


async def count_notes(libraries: LibraryFixture) -> int:
    async with libraries.library("ada") as library:
        return (await library.notes.list(0, 0)).total


async def test_an_import_is_visible_to_its_owner_at_every_process(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    importer = BlockingImporter()
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_process(libraries, redis_settings, importer) as one,
        open_process(libraries, redis_settings, importer) as other,
    ):
        ada, ben = libraries.context("ada"), libraries.context("ben")
        started = await one.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)

        assert (await other.get(ada, started.id)).state in ("waiting", "running")
        assert ([job.id for job in await other.list(ada)], await other.list(ben)) == ([started.id], [])
        for foreign in (other.get(ben, started.id), other.cancel(ben, started.id)):
            with pytest.raises(NotFound):
                await foreign
        with pytest.raises(Unavailable, match="another import of this user is running"):
            await other.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        importer.released.set()
        assert (await wait_until_ended(other, libraries, started)).state == "done"
        assert await count_notes(libraries) == 7


async def test_an_import_is_cancelled_through_another_process(tmp_path: Path, redis_settings: RedisSettings) -> None:
    importer, boards = BlockingImporter(), list[ObservedBoard]()

    def observed_board(connection: RedisConnection, peers: Peers) -> ObservedBoard:
        boards.append(ObservedBoard(connection, peers))
        return boards[-1]

    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_process(libraries, redis_settings, importer, observed_board) as one,
        open_process(libraries, redis_settings, importer) as other,
    ):
        ada = libraries.context("ada")
        started = await one.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        cancelling = asyncio.create_task(other.cancel(ada, started.id))
        await boards[0].cancelled.wait()
        importer.released.set()

        assert (await cancelling).state == "cancelled"
        assert (await one.get(ada, started.id)).state == "cancelled"


async def test_an_import_that_has_ended_is_not_cancelled(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_process(libraries, redis_settings, LINES, LateCancelBoard) as one,
        open_process(libraries, redis_settings, LINES) as other,
    ):
        ada = libraries.context("ada")
        started = await one.start(ada, upload(tmp_path, *range(5)), "a.lines", None, is_dry_run=False)

        assert (await wait_until_ended(one, libraries, started)).state == "done"
        assert (await wait_until_ended(other, libraries, started)).state == "done"
        await other.start(ada, upload(tmp_path, 5), "a.lines", None, is_dry_run=False)


async def test_a_process_that_stops_leaves_its_import_to_another(tmp_path: Path, redis_settings: RedisSettings) -> None:
    blocking = BlockingImporter()
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_process(libraries, redis_settings, LINES) as other,
    ):
        ada = libraries.context("ada")
        async with open_process(libraries, redis_settings, blocking) as one:
            started = await one.start(ada, upload(tmp_path, *range(5)), "a.lines", None, is_dry_run=False)
            asyncio.get_running_loop().call_later(0.1, blocking.released.set)

        ended = await wait_until_ended(other, libraries, started)
        assert (ended.id, ended.state, ended.items) == (started.id, "done", 5)
        assert list((tmp_path / "data" / "uploads").iterdir()) == []


async def test_an_import_belongs_to_one_process(tmp_path: Path, redis_settings: RedisSettings) -> None:
    """A process that could not post its import in time learns that another has claimed and ended it."""
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_redis(build_settings(**redis_settings)) as connection,
        open_peers(connection) as late,
        open_peers(connection) as other,
    ):
        boards = [RedisImportBoard(connection, peers) for peers in (late, other)]
        posted = PostedImport(RUNNING, libraries.context("ada").principal, str(tmp_path), None)
        assert await boards[0].post(posted)
        assert (await boards[1].post(posted), await boards[1].claim_abandoned()) == (False, [])
        await age_keys(connection, 60)
        assert await boards[1].claim_abandoned() == [posted]

        assert (await boards[0].post(posted), await boards[0].claim_abandoned()) == (False, [])
        await boards[0].release(posted)
        assert (await boards[1].post(posted), await boards[0].claim_abandoned()) == (True, [])
        await boards[1].remove(posted)
        assert (await boards[0].post(posted), await boards[0].claim_abandoned()) == (False, [])
        assert await boards[0].list(posted.owner) == []


class InterruptedConnection(RedisConnection):
    """The connection of a process that is interrupted after it has read an import."""

    def __init__(self, settings: Settings, interrupt: Callable[[], Awaitable[None]]) -> None:
        super().__init__(settings)
        self._interrupt = interrupt

    async def call(self, *command: Argument) -> Any:
        reply = await super().call(*command)
        if command[0] == "HGET":
            await self._interrupt()
        return reply


async def test_an_import_that_ends_while_another_process_claims_it_is_not_claimed(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    settings = build_settings(**redis_settings)
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_redis(settings) as connection,
        open_peers(connection) as one,
        open_peers(connection) as other,
    ):
        posted = PostedImport(RUNNING, libraries.context("ada").principal, str(tmp_path), None)
        board = RedisImportBoard(connection, one)
        await board.post(posted)
        await age_keys(connection, 60)

        async def claim_and_end() -> None:
            assert await board.claim_abandoned() == [posted]
            await board.remove(posted)

        interrupted = InterruptedConnection(settings, claim_and_end)
        try:
            assert await RedisImportBoard(interrupted, other).claim_abandoned() == []
        finally:
            await interrupted.close()


class LateBoard(RedisImportBoard):
    """A board that is read after something else has happened."""

    def __init__(self, connection: RedisConnection, peers: Peers, before: Callable[[], Awaitable[None]]) -> None:
        super().__init__(connection, peers)
        self._before = before

    async def list(self, owner: UserId) -> Sequence[PostedImport]:
        await self._before()
        return await super().list(owner)


async def test_an_import_that_ends_while_it_is_looked_up_is_found(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    importer, settings = BlockingImporter(), build_settings(**redis_settings)
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_process(libraries, redis_settings, importer) as one,
        open_redis(settings) as connection,
        open_peers(connection) as peers,
    ):
        ada = libraries.context("ada")
        started = await one.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)

        async def end_import() -> None:
            importer.released.set()
            async with asyncio.timeout(10):
                async for _ in one.watch(ada, started.id, 0.05):
                    pass
            await one.close()  # waits until the import has left the board

        board = LateBoard(connection, peers, end_import)
        other = ImportJobs(settings, libraries.data_root, libraries.engine, lambda: [importer], board)
        assert (await other.get(ada, started.id)).state == "done"


class ClaimedBoard(NoImportBoard):
    """A board on which another process has claimed the import after it was posted once."""

    is_shared = True

    def __init__(self) -> None:
        self._posts = 0
        self.has_refused = asyncio.Event()

    async def post(self, posted: PostedImport) -> bool:
        self._posts += 1
        if self._posts > 1:
            asyncio.get_running_loop().call_soon(self.has_refused.set)
        return self._posts == 1


async def test_a_process_stops_an_import_that_another_has_claimed(tmp_path: Path) -> None:
    importer, board = BlockingImporter(), ClaimedBoard()
    async with open_library_fixture(tmp_path / "data") as libraries:
        ada, settings = libraries.context("ada"), Settings()
        async with ImportJobs(
            settings, libraries.data_root, libraries.engine, lambda: [importer], board
        ).open() as jobs:
            await jobs.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
            async with asyncio.timeout(10):
                await board.has_refused.wait()
                importer.released.set()
                while jobs.running:
                    await asyncio.sleep(0.01)

            assert (await jobs.list(ada), jobs.outcomes, await count_notes(libraries)) == ([], {}, 0)
        # The file is left for the process that continues the import.
        assert len(list((tmp_path / "data" / "uploads").iterdir())) == 1


async def test_a_process_does_not_continue_its_own_import(tmp_path: Path, redis_settings: RedisSettings) -> None:
    """Its lease has ended because Redis did not answer for a while."""
    importer = BlockingImporter()
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_redis(build_settings(**redis_settings)) as connection,
        open_process(libraries, redis_settings, importer) as one,
    ):
        ada = libraries.context("ada")
        started = await one.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        await age_keys(connection, 60)
        await one.take_over()
        importer.released.set()

        assert (await wait_until_ended(one, libraries, started)).state == "done"
        await one.close()
        assert (one.outcomes, await count_notes(libraries)) == ({"done": 1}, 7)


@pytest.mark.slow("kills processes")
async def test_the_import_of_a_killed_process_is_continued_once(tmp_path: Path, redis_settings: RedisSettings) -> None:
    """What a killed process leaves behind: the file, and an import on the board whose lease ends."""
    settings = build_settings(**redis_settings)
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_redis(settings) as connection,
        open_peers(connection) as killed,
    ):
        ada = libraries.context("ada")
        folder = tmp_path / "data" / "uploads" / "left"
        folder.mkdir(parents=True)
        (folder / "a.lines").write_bytes(upload(tmp_path, *range(5)).read())
        await RedisImportBoard(connection, killed).post(PostedImport(RUNNING, ada.principal, str(folder), None))
        async with (
            open_process(libraries, redis_settings, LINES) as one,
            open_process(libraries, redis_settings, LINES) as other,
        ):
            assert await one.list(ada) == [RUNNING]
            await asyncio.gather(one.take_over(), other.take_over())
            assert one.running + other.running == 0
            await age_keys(connection, 60)
            ended = await wait_until_ended(one, libraries, RUNNING)

            assert (ended.id, ended.state, ended.items) == (RUNNING.id, "done", 5)
            assert (await other.get(ada, RUNNING.id)).state == "done"
            assert one.outcomes["done"] + other.outcomes["done"] == 1
            assert await count_notes(libraries) == 5
        assert not folder.exists()
