"""The demo library: it has items of every source, and adding it again changes nothing."""

import pytest

from config.errors import NotFound
from sources.demo import DemoMedia, FillResult, demo_uuid, fill, fill_once, read_demo
from sources.storage.contract import Library
from tests.sources.source_fixture import SOURCES, LibraryUser

REPAIR = demo_uuid("notes", "dome-repair")


async def add_demo(user: LibraryUser) -> FillResult:
    async with user.libraries.library(user.context) as library:
        return await fill(library)


async def state(library: Library) -> dict[str, object]:
    """All items of a library."""
    return {
        "notes": await library.notes.list(100, 0),
        "media": await library.media.list(100, 0),
        "chats": await library.chats.list(100, 0),
        "characters": await library.characters.list(100, 0),
        "prompts": await library.prompts.list(100, 0),
    }


def test_every_source_has_enough_items() -> None:
    demo = read_demo()

    assert 15 <= len(demo.notes) <= 25
    assert 6 <= len(demo.media) <= 8
    assert sum(bool(media.transcript) for media in demo.media) >= 2
    assert all(6 <= len(list(chat.messages)) <= 20 for chat in demo.chats)
    assert len(demo.characters) >= 4
    assert all(prompt.fields["arguments"] for prompt in demo.prompts)
    assert any(not title.isascii() for title in (note.title for note in demo.notes))


def test_transcript_lines_are_contiguous_and_each_is_in_one_passage() -> None:
    for media in read_demo().media:
        for before, after in zip(media.segments, media.segments[1:], strict=False):
            assert before.start_ms < before.end_ms == after.start_ms
        assert tuple(line for passage in media.passages for line in passage) == media.segments


def test_transcript_line_without_a_time_fails_an_assertion() -> None:
    broken = read_demo().media[0]
    with pytest.raises(AssertionError, match="without time or speaker"):
        _ = DemoMedia(
            key=broken.key, on=broken.on, title="x", type="audio", author="x", transcript="Ilse: no time"
        ).segments


async def test_adding_the_demo_twice_changes_nothing(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        first = await fill(library)
        before = await state(library)
        second = await fill(library)

        assert (first.new, second.new) == (first.total, 0)
        assert set(first.items) == set(SOURCES)
        assert await state(library) == before


async def test_other_items_and_other_users_are_unaffected(ada: LibraryUser, ben: LibraryUser) -> None:
    own = await ada.add_note("My dome", "It turns.")
    await add_demo(ada)

    assert (await ada.call("notes_get", note_id=own))["meta"]["version"] == 1
    assert await ben.search("notes_search", "dome") == []
    assert "not found" in await ben.call_error("notes_get", note_id=REPAIR)


async def test_deleted_and_changed_items_are_not_restored(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await fill(library)
        await library.notes.delete(REPAIR)
        log = demo_uuid("notes", "dome-log")
        await library.notes.append(log, "It stuck once more.")
        await fill(library)

        with pytest.raises(NotFound):
            await library.notes.get(REPAIR)
        assert (await library.notes.get(log)).content.endswith("It stuck once more.")


async def test_missing_items_are_added(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await fill(library)
        await library.notes.purge(REPAIR)
        again = await fill(library)

        assert again.new == 1
        assert (await library.notes.get(REPAIR)).title.startswith("Dome repaired")


async def test_fill_once_only_fills_an_empty_library(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await fill_once(library)
        await library.notes.purge(REPAIR)
        await fill_once(library)

        assert (await library.notes.list(1, 0)).total == len(read_demo().notes) - 1


async def test_hit_in_a_recording_has_the_time_of_its_words(ada: LibraryUser) -> None:
    await add_demo(ada)

    hit, *_ = await ada.search("media_search", '"dark frames" median', media_types=["audio"])

    assert 240 <= hit["loc"]["seconds"] <= 280
    read = await ada.call("media_get", media_id=hit["id"], loc=hit["loc"], retrieval={"mode": "chunk"})
    assert "median" in read["content"]
