"""Idempotency keys outlive a clock of the system that is set while the server runs or between two runs."""

from pathlib import Path

from config.paths import DataRoot
from sources.drafts import NoteDraft
from sources.storage.sqlite import SqliteLibraries
from tests.build_settings import build_settings
from tests.sources.storage.library_fixture import Clock, LibraryFixture, open_sqlite


async def test_a_key_is_kept_if_the_clock_is_set_forwards(tmp_path: Path) -> None:
    clock, data_root = Clock(), DataRoot(tmp_path)
    data_root.prepare()
    engine = SqliteLibraries(data_root, build_settings(idempotency_ttl_s=60), clock)
    try:
        async with LibraryFixture(data_root, engine, clock).library("ada") as ada:
            first = await ada.notes.create(NoteDraft(title="Tea"), idempotency_key="k")
            clock.now_s += 86_400
            again = await ada.notes.create(NoteDraft(title="Tea"), idempotency_key="k")
    finally:
        await engine.close()

    assert again.uuid == first.uuid


async def test_new_keys_are_kept_if_the_clock_was_set_back_between_two_runs(tmp_path: Path) -> None:
    clock = Clock()
    async with open_sqlite(tmp_path, clock, idempotency_max_keys=2) as libraries, libraries.library("ada") as ada:
        for key in ("a", "b"):
            await ada.notes.create(NoteDraft(title=key), idempotency_key=key)
    clock.now_s -= 3600
    async with open_sqlite(tmp_path, clock, idempotency_max_keys=2) as libraries, libraries.library("ada") as ada:
        created = {key: await ada.notes.create(NoteDraft(title=key), idempotency_key=key) for key in ("c", "d")}
        repeated = await ada.notes.create(NoteDraft(title="d"), idempotency_key="d")

    assert repeated.uuid == created["d"].uuid
