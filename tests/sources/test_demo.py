"""The demo library: complete in every source, the same however often it is put in, and never in anybody's way."""

import pytest

from config.errors import NotFound
from sources.demo import demo_uuid, fill, fill_once
from sources.demo.collection import Media, read_collection
from sources.demo.shelving import Filled
from sources.storage.contract import Library
from tests.sources.source_fixture import SOURCES, LibraryUser

REPAIR = demo_uuid("notes", "dome-repair")


async def put(reader: LibraryUser) -> Filled:
    async with reader.libraries.library(reader.context) as library:
        return await fill(library)


async def state(library: Library) -> dict[str, object]:
    """All items, with their versions and times."""
    return {
        "notes": await library.notes.list(100, 0),
        "media": await library.media.list(100, 0),
        "chats": await library.chats.list(100, 0),
        "characters": await library.characters.list(100, 0),
        "prompts": await library.prompts.list(100, 0),
    }


def test_every_source_has_enough_to_look_at() -> None:
    demo = read_collection()

    assert 15 <= len(demo.notes) <= 25
    assert 6 <= len(demo.media) <= 8
    assert sum(bool(media.transcript) for media in demo.media) >= 2
    assert all(6 <= len(list(chat.messages)) <= 20 for chat in demo.chats)
    assert len(demo.characters) >= 4
    assert all(prompt.arguments for prompt in demo.prompts)
    assert any(not title.isascii() for title in (note.title for note in demo.notes))


def test_every_line_of_a_transcript_lasts_until_the_next_and_stands_in_one_passage() -> None:
    for media in read_collection().media:
        for before, after in zip(media.segments, media.segments[1:], strict=False):
            assert before.start_ms < before.end_ms == after.start_ms
        assert tuple(line for passage in media.passages for line in passage) == media.segments


def test_a_transcript_line_without_a_time_is_our_mistake() -> None:
    broken = read_collection().media[0]
    with pytest.raises(AssertionError, match="without time or speaker"):
        _ = Media(
            key=broken.key, on=broken.on, title="x", type="audio", author="x", transcript="Ilse: no time"
        ).segments


async def test_filling_twice_changes_nothing(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        first = await fill(library)
        before = await state(library)
        second = await fill(library)

        assert (first.new, second.new) == (first.total, 0)
        assert set(first.items) == set(SOURCES)
        assert await state(library) == before


async def test_other_items_and_other_users_are_left_alone(ada: LibraryUser, ben: LibraryUser) -> None:
    own = await ada.add_note("My dome", "It turns.")
    await put(ada)

    assert (await ada.call("notes_get", note_id=own))["meta"]["version"] == 1
    assert await ben.search("notes_search", "dome") == []
    assert "not found" in await ben.call_error("notes_get", note_id=REPAIR)


async def test_an_item_that_was_deleted_or_changed_stays_so(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await fill(library)
        await library.notes.delete(REPAIR)
        log = demo_uuid("notes", "dome-log")
        await library.notes.append(log, "It stuck once more.")
        await fill(library)

        with pytest.raises(NotFound):
            await library.notes.get(REPAIR)
        assert (await library.notes.get(log)).content.endswith("It stuck once more.")


async def test_what_an_interrupted_filling_left_out_is_added(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await fill(library)
        await library.notes.purge(REPAIR)
        again = await fill(library)

        assert again.new == 1
        assert (await library.notes.get(REPAIR)).title.startswith("Dome repaired")


async def test_a_reader_in_a_hurry_fills_an_empty_library_and_no_other(ada: LibraryUser) -> None:
    async with ada.libraries.library(ada.context) as library:
        await fill_once(library)
        await library.notes.purge(REPAIR)
        await fill_once(library)

        assert (await library.notes.list(1, 0)).total == len(read_collection().notes) - 1


async def test_a_recording_is_found_at_the_minute_in_which_it_is_said(ada: LibraryUser) -> None:
    await put(ada)

    [hit] = await ada.search("media_search", '"dark frames" median', media_types=["audio"])

    assert 240 <= hit["loc"]["seconds"] <= 280
    read = await ada.call("media_get", media_id=hit["id"], loc=hit["loc"], retrieval={"mode": "chunk"})
    assert "median" in read["content"]
