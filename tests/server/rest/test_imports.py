"""Imports over REST: a job of one's own, its progress, its end, and what it leaves behind."""

import asyncio
import io
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auth.principal import READ
from config.errors import NotFound, Unavailable
from config.settings import Settings
from server.import_jobs import ImportJob, ImportJobs, open_jobs, safe_name
from sources.drafts import NoteDraft
from sources.importers.engine.import_runner import OutcomeCounts
from sources.importers.engine.imported_items import ImportedNote, ImportEvent, ReadPosition
from sources.importers.engine.importer import Importer, ImportLimits, ProgressCallback
from tests.server.rest.rest_client import open_rest_client
from tests.sources.importers.lines import LINES, Line, write_lines
from tests.sources.storage.library_fixture import LibraryFixture as Shelves
from tests.sources.storage.library_fixture import open_sqlite

FILE = {"Content-Type": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}
UNKNOWN = b"\0nothing that anybody reads"


@asynccontextmanager
async def jobs_at(shelves: Shelves, importer: Importer = LINES, **settings: Any) -> AsyncIterator[ImportJobs]:
    chosen = Settings(import_batch_items=2, **settings)
    async with open_jobs(chosen, shelves.data_root, shelves.engine, lambda: [importer]) as jobs:
        yield jobs


def lines(folder: Path, *numbers: int) -> io.BytesIO:
    notes = [Line(note=NoteDraft(uuid=f"n{number}", title="Kettle")) for number in numbers]
    return io.BytesIO(write_lines(folder / "sent.lines", *notes).read_bytes())


async def ended(jobs: ImportJobs, shelves: Shelves, started: ImportJob, owner: str = "ada") -> ImportJob:
    return [job async for job in jobs.watch(shelves.context(owner), started.id, every_s=0.01)][-1]


class Held:
    """An importer that waits, after its first batches, until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.importer = Importer(name="held", title="", recognizes=lambda _: 1.0, read=self.read)

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        for number in range(6):
            yield ImportedNote(NoteDraft(uuid=f"n{number}"))
        assert self.go.wait(30)
        yield ImportedNote(NoteDraft(uuid="last"))


async def test_a_job_takes_the_file_in_and_says_what_became_of_it(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves) as jobs:
        for expected in (OutcomeCounts(new=5), OutcomeCounts(unchanged=5)):
            started = await jobs.start(
                shelves.context("ada"), lines(tmp_path, *range(5)), "a.lines", None, is_rehearsal=False
            )
            done = await ended(jobs, shelves, started)
            assert (started.state, done.state, done.items) == ("running", "done", 5)
            assert done.summary is not None
            assert done.summary.kinds == {"notes": expected}
        async with shelves.library("ada") as ada, shelves.library("ben") as ben:
            assert ((await ada.notes.list(0, 0)).total, (await ben.notes.list(0, 0)).total) == (5, 0)
        assert list((tmp_path / "data" / "uploads").iterdir()) == []


async def test_a_rehearsed_job_writes_nothing(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves) as jobs:
        started = await jobs.start(shelves.context("ada"), lines(tmp_path, 1), "a.lines", None, is_rehearsal=True)
        assert (await ended(jobs, shelves, started)).state == "done"
        async with shelves.library("ada") as ada:
            assert (await ada.notes.list(0, 0)).total == 0


async def test_a_job_is_its_owners_alone_and_one_at_a_time(tmp_path: Path) -> None:
    held = Held()
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves, held.importer, import_jobs_max=1) as jobs:
        ada, ben = shelves.context("ada"), shelves.context("ben")
        started = await jobs.start(ada, io.BytesIO(b"x"), "a", None, is_rehearsal=False)
        for who in (ada, ben):
            with pytest.raises(Unavailable):
                await jobs.start(who, io.BytesIO(b"x"), "a", None, is_rehearsal=False)
        with pytest.raises(NotFound):
            jobs.get(ben, started.id)
        with pytest.raises(NotFound):
            await jobs.cancel(ben, started.id)
        assert (len(jobs.list(ada)), jobs.list(ben)) == (1, [])
        held.go.set()
        assert (await ended(jobs, shelves, started)).items == 7


async def test_a_cancelled_job_keeps_what_was_written_and_leaves_no_file(tmp_path: Path) -> None:
    held = Held()
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves, held.importer) as jobs:
        ada = shelves.context("ada")
        started = await jobs.start(ada, io.BytesIO(b"x"), "a", None, is_rehearsal=False)
        async for job in jobs.watch(ada, started.id, every_s=0.01):
            if job.items == 6:
                break
        cancelling = asyncio.create_task(jobs.cancel(ada, started.id))
        await asyncio.sleep(0)
        held.go.set()
        stopped = await cancelling
        assert (stopped.state, stopped.items, stopped.summary) == ("cancelled", 6, None)
        assert await jobs.cancel(ada, started.id) == stopped
        async with shelves.library("ada") as library:
            assert (await library.notes.list(0, 0)).total == 6
        assert list((tmp_path / "data" / "uploads").iterdir()) == []


async def test_a_job_that_asks_for_a_format_that_is_none_fails_with_a_sentence(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves) as jobs:
        started = await jobs.start(shelves.context("ada"), lines(tmp_path, 1), "a", "odt", is_rehearsal=False)
        done = await ended(jobs, shelves, started)
        assert (done.state, done.problem) == ("failed", "format: got 'odt', expected one of lines")


@pytest.mark.parametrize("is_rehearsal", [False, True])
async def test_a_job_of_which_nothing_could_be_read_fails_with_a_sentence(tmp_path: Path, is_rehearsal: bool) -> None:
    broken = (tmp_path / "broken").with_suffix(".zip")
    broken.write_bytes(b"PK\3\4" + bytes(900))
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves) as jobs:
        ada = shelves.context("ada")
        started = await jobs.start(ada, io.BytesIO(broken.read_bytes()), "a.zip", None, is_rehearsal=is_rehearsal)
        done = await ended(jobs, shelves, started)
    assert (done.state, done.summary is not None and done.summary.unread) == ("failed", 1)
    assert done.problem == "the archive: got something that cannot be read, expected a zip"


async def test_a_job_of_which_something_came_is_done_and_tells_the_rest(tmp_path: Path) -> None:
    sent = io.BytesIO(lines(tmp_path, 1).read() + b"not a line\n")
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves) as jobs:
        started = await jobs.start(shelves.context("ada"), sent, "a.lines", None, is_rehearsal=False)
        done = await ended(jobs, shelves, started)
    assert done.summary is not None
    assert (done.state, done.problem, done.summary.missing) == ("done", "", 1)


async def test_results_of_old_jobs_are_forgotten(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as shelves, jobs_at(shelves, import_history_max=2) as jobs:
        ada = shelves.context("ada")
        started = []
        for _ in range(4):
            started.append(await jobs.start(ada, lines(tmp_path, 1), "a", None, is_rehearsal=True))
            await ended(jobs, shelves, started[-1])
        assert [job.id for job in jobs.list(ada)] == [job.id for job in reversed(started[1:])]
        with pytest.raises(NotFound):
            jobs.get(ada, started[0].id)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("export.zip", "export.zip"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\chats.json", "chats.json"),
        ("..", "upload"),
        ("", "upload"),
        ("a\0b\n.md", "a_b_.md"),
        ("x" * 300 + ".jsonl", "x" * 94 + ".jsonl"),
    ],
)
def test_a_name_is_kept_without_what_leads_elsewhere(given: str, kept: str) -> None:
    assert safe_name(given) == kept


# -- over the wire ------------------------------------------------------------------------------------------------


async def test_an_upload_becomes_a_job_that_can_be_looked_at_and_followed(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        started = await api.request("POST", "/api/v1/import?name=odd.bin", "ada", FILE, UNKNOWN)
        assert started.status == 202
        path = f"/api/v1/import/{started.json()['id']}"

        events = (await api.get(path + "/events")).body.decode().strip().split("\n\n")
        assert events[-1].startswith("event: end\ndata: ")
        job = msgspec.json.decode(events[-1].partition("data: ")[2])
        assert (job["state"], job["name"], job["summary"]["unread"]) == ("failed", "odd.bin", 1)
        assert job["problem"] == "got a format that nobody here reads, expected one of those in docs/import.md"
        assert (await api.get(path)).json() == job
        assert (await api.get("/api/v1/import")).json() == {"imports": [job]}
        assert (await api.request("DELETE", path, "ada")).json() == job


async def test_anothers_job_is_as_absent_as_none(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        started = await api.request("POST", "/api/v1/import", "ada", FILE, UNKNOWN)
        theirs = started.json()["id"]
        for method, suffix in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
            foreign = await api.request(method, f"/api/v1/import/{theirs}{suffix}", "ben")
            absent = await api.request(method, f"/api/v1/import/{'0' * 16}{suffix}", "ben")
            assert (foreign.status, absent.status) == (404, 404)
            assert foreign.body.replace(theirs.encode(), b"0" * 16) == absent.body
        assert (await api.get("/api/v1/import", "ben")).json() == {"imports": []}


async def test_uploads_are_limited_and_need_a_credential(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_max_bytes=1_024) as api:
        assert (await api.request("POST", "/api/v1/import", "ada", FILE, b"x" * 1_025)).status == 413
        assert (await api.request("POST", "/api/v1/import", None, FILE, b"x")).status == 401
        assert (await api.request("POST", "/api/v1/import", "ada", {"Content-Type": "text/plain"}, b"x")).status == 415


async def test_an_import_needs_the_scope_to_write(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        reading = await api.server.bearer("ada", (READ,))
        assert (await api.request("POST", "/api/v1/import", None, {**FILE, **reading}, UNKNOWN)).status == 403
        assert (await api.request("GET", "/api/v1/import", None, reading)).status == 403
        assert (await api.get("/api/v1/import")).json() == {"imports": []}


async def test_a_zipped_vault_can_be_uploaded_and_is_its_owners_alone(tmp_path: Path) -> None:
    sent = io.BytesIO()
    with zipfile.ZipFile(sent, "w") as archive:
        archive.writestr("vault/.obsidian/app.json", "{}")
        archive.writestr("vault/Tea.md", "# Tea\nSteep for three minutes.")
    async with open_rest_client(tmp_path) as api:
        for expected in ("new", "unchanged"):
            started = await api.request("POST", "/api/v1/import?name=vault.zip", "ada", FILE, sent.getvalue())
            events = (await api.get(f"/api/v1/import/{started.json()['id']}/events")).body.decode()
            job = msgspec.json.decode(events.strip().rpartition("data: ")[2])
            assert (job["state"], job["summary"]["kinds"]["notes"][expected]) == ("done", 1)
        totals = [
            len((await api.request("POST", "/api/v1/search", who, JSON, b'{"query": "steep"}')).json()["results"])
            for who in ("ada", "ben")
        ]
        assert totals == [1, 0]
