"""Imports over REST: starting, following and cancelling jobs."""

import asyncio
import errno
import io
import itertools
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from auth.authenticator import local_principal, operator_principal
from auth.context import READ, build_context
from auth.registry import UserRecord
from auth.sharing import Sharing
from config.errors import Conflict, DiskFull, NotFound, Unavailable
from config.paths import UserId
from server.import_board import ENDED_STATES, ImportJob
from server.import_jobs import IMPORT_JOB_LIMITS, ImportJobLimits, ImportJobs, safe_name
from server.operations.imports import StartImportRequest, import_file
from server.operations.operation import UploadRequest
from server.operations.sharing import managed_library
from server.operations.users import delete_group_library, remove_user
from server.runtime import Runtime
from sources.drafts import NoteDraft
from sources.importers.engine.events import ImportedNote, ImportEvent, ReadPosition
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ProgressCallback
from sources.importers.engine.summary import OutcomeCounts
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.importers.line_format import LINES, Line, write_lines
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture

FILE = {"Content-Type": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}
UNSUPPORTED = b"\0unsupported"
ONE_KEPT, TWO_KEPT = ImportJobLimits(history_max=1), ImportJobLimits(history_max=2)


@asynccontextmanager
async def open_jobs(
    libraries: LibraryFixture, importer: Importer = LINES, limits: ImportJobLimits = IMPORT_JOB_LIMITS, **overrides: Any
) -> AsyncIterator[ImportJobs]:
    settings, importers = build_settings(import_batch_items=2, **overrides), lambda: [importer]
    async with ImportJobs(settings, libraries.data_root, libraries.engine, importers, limits=limits).open() as jobs:
        yield jobs


def upload(folder: Path, *numbers: int) -> io.BytesIO:
    notes = [Line(note=NoteDraft(uuid=f"n{number}", title="Kettle")) for number in numbers]
    return io.BytesIO(write_lines(folder / "upload.lines", *notes).read_bytes())


async def wait_until_ended(jobs: ImportJobs, libraries: LibraryFixture, started: ImportJob) -> ImportJob:
    return [job async for job in jobs.watch(libraries.context("ada"), started.id, interval_s=0.01)][-1]


class BlockingImporter(Importer):
    """Waits after its first batches until `released` is set."""

    name = "blocking"
    title = "Blocking importer"

    def __init__(self) -> None:
        self.released = threading.Event()

    def recognizes(self, probe: FileProbe) -> float:
        return 1.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        for number in range(6):
            yield ImportedNote(NoteDraft(uuid=f"n{number}"))
        assert self.released.wait(30)
        yield ImportedNote(NoteDraft(uuid="last"))


async def test_job_imports_the_file_and_reports_the_result(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        for expected in (OutcomeCounts(new=5), OutcomeCounts(unchanged=5)):
            started = await jobs.start(
                libraries.context("ada"), upload(tmp_path, *range(5)), "a.lines", None, is_dry_run=False
            )
            done = await wait_until_ended(jobs, libraries, started)
            assert (started.state, done.state, done.items) == ("running", "done", 5)
            assert done.summary is not None
            assert done.summary.kinds == {"notes": expected}
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert ((await ada.notes.list(0, 0)).total, (await ben.notes.list(0, 0)).total) == (5, 0)
        assert list((tmp_path / "data" / "uploads").iterdir()) == []


async def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        started = await jobs.start(libraries.context("ada"), upload(tmp_path, 1), "a.lines", None, is_dry_run=True)
        assert (await wait_until_ended(jobs, libraries, started)).state == "done"
        async with libraries.library("ada") as ada:
            assert (await ada.notes.list(0, 0)).total == 0


async def test_job_is_visible_to_its_owner_only_and_jobs_are_limited(tmp_path: Path) -> None:
    importer = BlockingImporter()
    limits: dict[str, Any] = {"import_jobs_max": 1, "limits": ImportJobLimits(queue_max=0)}
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries, importer, **limits) as jobs:
        ada, ben = libraries.context("ada"), libraries.context("ben")
        started = await jobs.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        for user, problem in ((ada, "another import of this user is running"), (ben, "too many imports are running")):
            with pytest.raises(Unavailable, match=f"{problem}; try again in 5 s"):
                await jobs.start(user, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        with pytest.raises(NotFound):
            await jobs.get(ben, started.id)
        with pytest.raises(NotFound):
            await jobs.cancel(ben, started.id)
        assert (len(await jobs.list(ada)), await jobs.list(ben)) == (1, [])
        importer.released.set()
        assert (await wait_until_ended(jobs, libraries, started)).items == 7


class EndlessImporter(Importer):
    """Yields notes until `released` is set, except for a file that begins with a digit: that many."""

    name = "endless"
    title = "Endless importer"

    def __init__(self) -> None:
        self.released = threading.Event()

    def recognizes(self, probe: FileProbe) -> float:
        return 1.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        first = path.read_bytes()[:1]
        numbers = range(int(first)) if first.isdigit() else itertools.count()
        for number in numbers:
            if self.released.is_set() and not first.isdigit():
                return
            yield ImportedNote(NoteDraft(uuid=f"n{number % 10}"))


async def test_users_with_long_imports_cannot_keep_others_from_importing(tmp_path: Path) -> None:
    importer = EndlessImporter()
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_jobs(libraries, importer, ImportJobLimits(turn_s=0), import_jobs_max=2) as jobs,
    ):
        ada, ben, carl = (libraries.context(name) for name in ("ada", "ben", "carl"))
        long = [await jobs.start(user, io.BytesIO(b"x"), "a", None, is_dry_run=False) for user in (ada, ben)]
        short = await jobs.start(carl, io.BytesIO(b"7"), "a", None, is_dry_run=False)
        async with asyncio.timeout(30):
            ended = [job async for job in jobs.watch(carl, short.id, interval_s=0.01)][-1]
        states = [(await jobs.get(user, job.id)).state for user, job in zip((ada, ben), long, strict=True)]
        importer.released.set()
        async with asyncio.timeout(30):
            finished = [
                [job async for job in jobs.watch(user, job.id, interval_s=0.01)][-1]
                for user, job in zip((ada, ben), long, strict=True)
            ]

    assert ([job.state for job in long], short.state) == (["running", "running"], "waiting")
    assert (ended.state, ended.items) == ("done", 7)
    assert set(states) <= {"running", "waiting"}
    assert [job.state for job in finished] == ["done", "done"]


async def test_waiting_job_can_be_cancelled(tmp_path: Path) -> None:
    importer = BlockingImporter()
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_jobs(libraries, importer, import_jobs_max=1) as jobs,
    ):
        ada, ben = libraries.context("ada"), libraries.context("ben")
        started = await jobs.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        waiting = await jobs.start(ben, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        cancelled = await jobs.cancel(ben, waiting.id)
        importer.released.set()
        done = await wait_until_ended(jobs, libraries, started)

    assert (waiting.state, cancelled.state, cancelled.items, done.state) == ("waiting", "cancelled", 0, "done")


async def test_cancelled_job_keeps_written_items_and_removes_the_upload(tmp_path: Path) -> None:
    importer = BlockingImporter()
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries, importer) as jobs:
        ada = libraries.context("ada")
        started = await jobs.start(ada, io.BytesIO(b"x"), "a", None, is_dry_run=False)
        async for job in jobs.watch(ada, started.id, interval_s=0.01):
            if job.items == 6:
                break
        cancelling = asyncio.create_task(jobs.cancel(ada, started.id))
        await asyncio.sleep(0)
        importer.released.set()
        stopped = await cancelling
        assert (stopped.state, stopped.items, stopped.summary) == ("cancelled", 6, None)
        assert await jobs.cancel(ada, started.id) == stopped
        async with libraries.library("ada") as library:
            assert (await library.notes.list(0, 0)).total == 6
        assert list((tmp_path / "data" / "uploads").iterdir()) == []


async def test_import_for_a_group_ends_when_the_person_is_no_manager_any_more(api: RestClient) -> None:
    importer, runtime = BlockingImporter(), api.server.runtime
    sharing, settings = Sharing(runtime.registry.database), build_settings(import_batch_items=2)
    ada, _ = [await api.library_user(name) for name in ("ada", "ben")]
    await sharing.create_group(ada.context.user_id, "crew")
    await sharing.add_member("crew", "ben", "manager")
    principal = await runtime.authenticator.recheck(ada.context.principal)
    context = replace(ada.context, principal=principal)
    libraries, root = runtime.libraries, runtime.data_root
    async with ImportJobs(settings, root, libraries, lambda: [importer], registry=runtime.registry).open() as jobs:
        upload = UploadRequest(StartImportRequest(group="crew", name="a"), io.BytesIO(b"x"))
        started = await import_file.handler(context, replace(runtime, imports=jobs), upload)
        crew = await managed_library(context, runtime, "crew")
        async for job in jobs.watch(crew, started.id, interval_s=0.01):
            if job.items == 6:
                break
        await sharing.remove_member(None, "crew", "ada")
        importer.released.set()
        *_, ended = [job async for job in jobs.watch(crew, started.id, interval_s=0.01)]

    assert (ended.state, ended.problem) == ("failed", "only a manager of the group can do this")
    async with libraries.library(crew) as library:
        assert (await library.notes.list(0, 0)).total == 6


class LateUpload(io.BytesIO):
    """A file that runs `meanwhile` in the loop of the test before its first part is read."""

    def __init__(self, content: bytes, meanwhile: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(content)
        self.meanwhile, self.loop = meanwhile, asyncio.get_running_loop()

    def read(self, size: int | None = -1, /) -> bytes:
        if not self.tell():
            asyncio.run_coroutine_threadsafe(self.meanwhile(), self.loop).result(60)
        return super().read(size)


async def disable(runtime: Runtime, ada: UserRecord) -> None:
    await runtime.registry.disable_user(ada.id)


async def make_reader(runtime: Runtime, ada: UserRecord) -> None:
    await runtime.registry.set_role(ada.id, "reader")


async def delete(runtime: Runtime, ada: UserRecord) -> None:
    operator = build_context(operator_principal(), runtime.data_root, "test")
    await remove_user(operator, runtime, ada, purge=False, deletes_groups=False)


async def purge(runtime: Runtime, ada: UserRecord) -> None:
    operator = build_context(operator_principal(), runtime.data_root, "test")
    await remove_user(operator, runtime, ada, purge=True, deletes_groups=False)


GONE = "the user of this library was disabled or deleted"


@each_case(
    ("withdraw", "problem"), [(disable, GONE), (make_reader, "scope 'knowledge:write' required"), (delete, GONE)]
)
async def test_import_ends_when_its_user_loses_access(tmp_path: Path, withdraw: Any, problem: str) -> None:
    importer = BlockingImporter()
    async with open_rest_client(tmp_path, import_batch_items=2) as api:
        runtime = api.server.runtime
        user, settings = await api.server.user("ada"), runtime.settings
        await runtime.registry.add_user("cyd", role="admin")
        context, libraries = build_context(local_principal(user), runtime.data_root, "test"), runtime.libraries
        async with ImportJobs(
            settings, runtime.data_root, libraries, lambda: [importer], registry=runtime.registry
        ).open() as jobs:
            started = await jobs.start(context, io.BytesIO(b"x"), "a", None, is_dry_run=False)
            async for job in jobs.watch(context, started.id, interval_s=0.01):
                if job.items == 6:
                    break
            await withdraw(runtime, user)
            importer.released.set()
            *_, ended = [job async for job in jobs.watch(context, started.id, interval_s=0.01)]
        assert (ended.state, ended.problem) == ("failed", problem)
        async with libraries.library(context) as library:
            assert (await library.notes.list(0, 0)).total == 6


@each_case("is_stored_meanwhile", [False, True])
async def test_upload_of_a_user_who_is_deleted_meanwhile_brings_nothing_back(
    tmp_path: Path, is_stored_meanwhile: bool
) -> None:
    async with open_rest_client(tmp_path / "data") as api:
        runtime, ben = api.server.runtime, await api.server.user("ben")
        await runtime.registry.add_user("cyd", role="admin")
        context = build_context(local_principal(ben), runtime.data_root, "test")
        file: io.BytesIO = io.BytesIO(b"# Halley\n")
        if is_stored_meanwhile:
            file = LateUpload(b"# Halley\n", lambda: purge(runtime, ben))
        else:
            await purge(runtime, ben)
        with pytest.raises(Conflict, match="deleted"):
            await runtime.imports.start(context, file, "halley.md", None, is_dry_run=False)
        assert not list(runtime.data_root.root.rglob(f"*{ben.id}*"))
        assert not list((tmp_path / "data").glob("uploads/*"))
        # A note that was admitted before, and whose job comes after the deletion.
        with pytest.raises(Conflict, match=GONE):
            async with runtime.libraries.library(context) as library:
                await library.notes.create(NoteDraft(title="late"))
        assert not list(runtime.data_root.root.rglob(f"*{ben.id}*"))


class UploadToFullDisk(io.BytesIO):
    """A file of which only the first part can be stored."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().read(size)


async def test_part_of_an_upload_does_not_stay_on_a_full_disk(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        ada = libraries.context("ada")
        with pytest.raises(DiskFull):
            await jobs.start(ada, UploadToFullDisk(b"x"), "a", None, is_dry_run=False)
        assert list((tmp_path / "data" / "uploads").iterdir()) == []
        assert await jobs.list(ada) == []


async def test_upload_folder_that_disappears_does_not_stop_another_upload(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        uploads = tmp_path / "data" / "uploads"
        uploads.mkdir()
        # The entry is listed and cannot be examined, like the folder of a job that ends at this moment.
        (uploads / "ended").symlink_to(tmp_path / "missing")
        started = await jobs.start(libraries.context("ada"), upload(tmp_path, 1), "a.lines", None, is_dry_run=False)
        assert (await wait_until_ended(jobs, libraries, started)).state == "done"


async def test_job_with_an_unknown_format_fails(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        started = await jobs.start(libraries.context("ada"), upload(tmp_path, 1), "a", "odt", is_dry_run=False)
        done = await wait_until_ended(jobs, libraries, started)
        assert (done.state, done.problem) == ("failed", "format: expected one of lines, got 'odt'")


@pytest.mark.parametrize("is_dry_run", [False, True])
async def test_job_that_can_read_nothing_fails(tmp_path: Path, is_dry_run: bool) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        ada = libraries.context("ada")
        started = await jobs.start(ada, io.BytesIO(b"PK\3\4" + bytes(900)), "a.zip", None, is_dry_run=is_dry_run)
        done = await wait_until_ended(jobs, libraries, started)
    assert (done.state, done.summary is not None and done.summary.failed_files) == ("failed", 1)
    assert done.problem == "archive: not a valid zip file"


async def test_job_with_some_failures_is_done_and_reports_them(tmp_path: Path) -> None:
    file = io.BytesIO(upload(tmp_path, 1).read() + b"not a line\n")
    async with open_library_fixture(tmp_path / "data") as libraries, open_jobs(libraries) as jobs:
        started = await jobs.start(libraries.context("ada"), file, "a.lines", None, is_dry_run=False)
        done = await wait_until_ended(jobs, libraries, started)
    assert done.summary is not None
    assert (done.state, done.problem, done.summary.failures) == ("done", "", 1)


async def test_old_jobs_are_dropped(tmp_path: Path) -> None:
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_jobs(libraries, limits=TWO_KEPT) as jobs,
    ):
        ada = libraries.context("ada")
        started = []
        for _ in range(4):
            started.append(await jobs.start(ada, upload(tmp_path, 1), "a", None, is_dry_run=True))
            await wait_until_ended(jobs, libraries, started[-1])
        assert [job.id for job in await jobs.list(ada)] == [job.id for job in reversed(started[1:])]
        with pytest.raises(NotFound):
            await jobs.get(ada, started[0].id)


async def test_imports_are_remembered_over_a_restart_by_their_owner_only(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
        ada, ben = libraries.context("ada"), libraries.context("ben")
        async with open_jobs(libraries, limits=TWO_KEPT) as jobs:
            for name, is_dry_run in (("a", False), ("b", True), ("c", False), ("d", False)):
                started = await jobs.start(ada, upload(tmp_path, 1), name, None, is_dry_run=is_dry_run)
                last = await wait_until_ended(jobs, libraries, started)
        async with open_jobs(libraries, limits=TWO_KEPT) as jobs:
            assert [job.name for job in await jobs.list(ada)] == ["d", "c"]
            assert await jobs.get(ada, last.id) == last
            assert [job async for job in jobs.watch(ada, last.id, interval_s=0.01)] == [last]
            assert await jobs.cancel(ada, last.id) == last
            assert await jobs.list(ben) == []
            with pytest.raises(NotFound):
                await jobs.get(ben, last.id)


async def test_an_import_that_ends_when_the_server_stops_is_remembered(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
        ada = libraries.context("ada")
        async with open_jobs(libraries) as jobs:
            started = await jobs.start(ada, upload(tmp_path, 1), "a", None, is_dry_run=False)
            async with asyncio.timeout(60):
                while (await jobs.get(ada, started.id)).state not in ENDED_STATES:
                    await asyncio.sleep(0)
        async with open_jobs(libraries) as jobs:
            assert [(job.name, job.state) for job in await jobs.list(ada)] == [("a", "done")]


async def test_imports_of_one_user_do_not_drop_those_of_another(tmp_path: Path) -> None:
    async with (
        open_library_fixture(tmp_path / "data") as libraries,
        open_jobs(libraries, limits=ONE_KEPT) as jobs,
    ):
        ada, ben = libraries.context("ada"), libraries.context("ben")
        of_ada = await jobs.start(ada, upload(tmp_path, 1), "a", None, is_dry_run=True)
        await wait_until_ended(jobs, libraries, of_ada)
        for _ in range(3):
            of_ben = await jobs.start(ben, upload(tmp_path, 1), "b", None, is_dry_run=True)
            async for _state in jobs.watch(ben, of_ben.id, interval_s=0.01):
                pass
        assert [job.id for job in await jobs.list(ada)] == [of_ada.id]


@each_case(
    ("name", "expected"),
    [
        ("export.zip", "export.zip"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\chats.json", "chats.json"),
        ("..", "upload"),
        ("", "upload"),
        ("a\0b\n.md", "a_b_.md"),
        ("\u202etxt.md\ud83d", "_txt.md_"),
        ("Bob's notes (draft) & “more” 😀.md", "Bob's notes (draft) & “more” 😀.md"),
        ("x" * 300 + ".jsonl", "x" * 94 + ".jsonl"),
    ],
)
def test_upload_name_is_made_safe(name: str, expected: str) -> None:
    assert safe_name(name) == expected


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def test_upload_starts_a_job_that_can_be_followed(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        started = await api.request("POST", "/api/v1/import?name=odd.bin", "ada", FILE, UNSUPPORTED)
        assert started.status == 202
        path = f"/api/v1/import/{started.json()['id']}"

        events = (await api.get(path + "/events")).body.decode().strip().split("\n\n")
        assert events[-1].startswith("event: end\ndata: ")
        job = msgspec.json.decode(events[-1].partition("data: ")[2])
        assert (job["state"], job["name"], job["summary"]["failed_files"]) == ("failed", "odd.bin", 1)
        assert job["problem"].startswith("unsupported format; if it has one of these formats, name that format: ")
        assert (await api.get(path)).json() == job
        assert (await api.get("/api/v1/import")).json() == {"imports": [job]}
        assert (await api.request("DELETE", path, "ada")).json() == job


async def test_job_of_another_user_is_not_found(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        started = await api.request("POST", "/api/v1/import", "ada", FILE, UNSUPPORTED)
        job_id = started.json()["id"]
        for method, suffix in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
            foreign = await api.request(method, f"/api/v1/import/{job_id}{suffix}", "ben")
            absent = await api.request(method, f"/api/v1/import/{'0' * 16}{suffix}", "ben")
            assert (foreign.status, absent.status) == (404, 404)
            assert foreign.body.replace(job_id.encode(), b"0" * 16) == absent.body
        assert (await api.get("/api/v1/import", "ben")).json() == {"imports": []}


async def test_uploads_are_limited_in_size_and_need_a_credential(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_max_bytes=1_024) as api:
        assert (await api.request("POST", "/api/v1/import", "ada", FILE, b"x" * 1_025)).status == 413
        assert (await api.request("POST", "/api/v1/import", None, FILE, b"x")).status == 401
        assert (await api.request("POST", "/api/v1/import", "ada", {"Content-Type": "text/plain"}, b"x")).status == 415


async def test_import_needs_the_write_scope(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        read_only = await api.server.bearer("ada", (READ,))
        assert (await api.request("POST", "/api/v1/import", None, {**FILE, **read_only}, UNSUPPORTED)).status == 403
        assert (await api.request("GET", "/api/v1/import", None, read_only)).status == 403
        assert (await api.get("/api/v1/import")).json() == {"imports": []}


async def test_uploaded_vault_is_visible_to_its_owner_only(tmp_path: Path) -> None:
    vault = io.BytesIO()
    with zipfile.ZipFile(vault, "w") as archive:
        archive.writestr("vault/.obsidian/app.json", "{}")
        archive.writestr("vault/Tea.md", "# Tea\nSteep for three minutes.")
    async with open_rest_client(tmp_path) as api:
        for expected in ("new", "unchanged"):
            started = await api.request("POST", "/api/v1/import?name=vault.zip", "ada", FILE, vault.getvalue())
            events = (await api.get(f"/api/v1/import/{started.json()['id']}/events")).body.decode()
            job = msgspec.json.decode(events.strip().rpartition("data: ")[2])
            assert (job["state"], job["summary"]["kinds"]["notes"][expected]) == ("done", 1)
        totals = [
            len((await api.request("POST", "/api/v1/search", user, JSON, b'{"query": "steep"}')).json()["results"])
            for user in ("ada", "ben")
        ]
        assert totals == [1, 0]


@pytest.mark.parametrize("library", ["", "&library=team"])
async def test_import_that_waits_does_not_bring_a_deleted_library_back(tmp_path: Path, library: str) -> None:
    async with open_rest_client(tmp_path / "data", import_jobs_max=1) as api:
        runtime, ben = api.server.runtime, await api.server.user("ben")
        team = await Sharing(runtime.registry.database).create_group(ben.id, "team")
        slots, other = runtime.imports._slots, UserId("u_other")
        await slots.acquire(other)
        path = f"/api/v1/import?name=halley.md{library}"
        job = (await api.request("POST", path, "ben", FILE, b"# Halley\n\nA comet.\n")).json()
        assert job["state"] == "waiting"

        operator = build_context(operator_principal(), runtime.data_root, "test")
        if library:
            await delete_group_library(operator, runtime, ben.id, "team")
        else:
            await remove_user(operator, runtime, ben, purge=True, deletes_groups=True)
        slots.release(other)
        async with asyncio.timeout(30):
            while any(not job.task.done() for job in runtime.imports._jobs.values() if job.task is not None):
                await asyncio.sleep(0.01)

        deleted = team.id if library else ben.id
        assert not list(runtime.data_root.root.rglob(f"*{deleted}*"))
