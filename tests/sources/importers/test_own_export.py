"""Our own export: everything out and in again, byte for byte; nothing deleted, nothing of anybody else, nothing broken
by what was done to the files in between."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.errors import Conflict, InvalidParams, TooLarge
from config.settings import Settings
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
)
from sources.exporters.export import export_library
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import ImportProgress, ImportSummary, OutcomeCounts, limits_of, run_import
from sources.importers.engine.imported_items import FailedItem, ImportedConversation
from sources.importers.formats.own_export import IMPORTER
from sources.importers.registry import importers
from sources.records import MediaChunk, SavedPromptArgument, Segment
from sources.storage.contract import Library
from tests.sources.importers.test_sillytavern import LINES, jsonl
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, total_items

LIMITS = limits_of(Settings())
META = {"z": 1, "a": {"deep": ["x", None, 1.5]}}
CARD = {"spec": "chara_card_v2", "extensions": {"z": {"y": 1, "x": 2}}, "character_book": {"name": "b", "entries": []}}


async def fill(library: Library) -> None:
    """Something in every field, and something deleted beside everything."""
    note = await library.notes.create(NoteDraft(title="Kettle", content="a\nb", tags=["Tea", "home"], metadata=META))
    await library.notes.append(note.id, "\nc")
    await library.notes.create(NoteDraft(title="", content="", uuid="bare"))
    character = await library.characters.create(
        CharacterDraft(name="Ana", description="sails", alternate_greetings=["Ahoy"], card=CARD, tags=["sea"])
    )
    draft = ConversationDraft(title="Lisbon / Porto", session_id="s1", namespace="trips", character_id=character.id)
    chat = await library.chats.create(
        draft,
        [
            MessageDraft(role="user", content="When?", uuid="m1", created_at="2020-01-02T03:04:05Z"),
            MessageDraft(role="assistant", content="forgotten", uuid="m2", parent_id="m1"),
            MessageDraft(
                role="assistant",
                sender="Guide",
                content="Friday 🛶",
                model="m-1",
                tool="clock",
                attachments=[{"name": "map.png"}],
                citations=[{"url": "https://example.org"}],
                parent_id="m1",
                is_canonical=False,
                metadata=META,
            ),
        ],
    )
    await library.chats.delete_message("m2")
    await library.chats.update(chat.id, ConversationDraft(title="Lisbon"))
    await library.chats.create(ConversationDraft(title="Nothing said"))
    await library.prompts.create(
        PromptDraft(name="Review", user_prompt="{{diff}}", arguments=[SavedPromptArgument(name="diff", required=True)])
    )
    await _fill_media(library)
    await library.observations.create(
        ObservationDraft(
            title="It leaks", facts=["a", "b"], concepts=["c"], files_read=["x.py"], line_start=1, line_end=2
        )
    )
    await _delete_one_of_each(library)


async def _fill_media(library: Library) -> None:
    chunk = MediaChunk(index=0, uuid="other-text", text="not in the text", start=0, end=3, speaker="Ana")
    await library.media.create(MediaDraft(title="Long", content="Clocks drift. " * 400, url="https://example.org/a"))
    await library.media.create(MediaDraft(title="Chunked", content="abc def", chunks=[chunk], author="Ana"))
    segments = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 900, text=f"line {n}", speaker="Ana") for n in range(3)]
    await library.media.create(MediaDraft(title="Talk", media_type="audio", segments=segments, metadata=META))


async def _delete_one_of_each(library: Library) -> None:
    await library.notes.delete((await library.notes.create(NoteDraft(content="forgotten"))).id)
    await library.media.delete((await library.media.create(MediaDraft(content="forgotten"))).id)
    await library.chats.delete((await library.chats.create(ConversationDraft(title="forgotten"))).id)
    await library.characters.delete((await library.characters.create(CharacterDraft(name="forgotten"))).id)
    await library.prompts.delete((await library.prompts.create(PromptDraft(name="forgotten"))).id)
    await library.observations.delete((await library.observations.create(ObservationDraft(title="forgotten"))).id)


async def take(libraries: LibraryFixture, path: Path, owner: str) -> ImportSummary:
    founds = list(find([path], LIMITS, importers()))
    async with libraries.library(owner) as library:
        return await run_import(library, founds, Settings(import_batch_items=2), ImportProgress())


async def export(libraries: LibraryFixture, owner: str, folder: Path) -> dict[str, bytes]:
    """Every file of an export, by its place in it."""
    async with libraries.library(owner) as library:
        await export_library(library, folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_an_export_comes_back_byte_for_byte_out_of_an_empty_library(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        first = await export(libraries, "ada", tmp_path / "first")
        summary = await take(libraries, tmp_path / "first", "ben")
        again = await take(libraries, tmp_path / "first", "ben")
        second = await export(libraries, "ben", tmp_path / "second")
        async with libraries.library("cyd") as cyd:
            assert await total_items(cyd) == 0

    assert second == first
    assert (summary.broken, summary.unread, summary.kinds["messages"]) == (0, 0, OutcomeCounts(new=2))
    assert {kind: counts.unchanged for kind, counts in again.kinds.items()} == {
        "notes": 2,
        "media": 3,
        "chats": 2,
        "messages": 2,
        "characters": 1,
        "prompts": 1,
        "observations": 1,
    }
    assert not any(counts.new or counts.updated for counts in again.kinds.values())


async def test_an_export_that_comes_back_where_it_was_made_changes_nothing_and_undoes_nothing(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / "tea.md").write_text("---\nz: 1\na: 2\n---\nSteep.")
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        await take(libraries, vault, "ada")
        await export(libraries, "ada", tmp_path / "first")
        async with libraries.library("ada") as ada:
            [hit] = (await ada.notes.search(make_search("steep"))).hits
            edited = await ada.notes.update(str(hit.id), NoteDraft(content="Edited here."))
        before = await export(libraries, "ada", tmp_path / "before")
        summary = await take(libraries, tmp_path / "first", "ada")
        again = await take(libraries, vault, "ada")
        after = await export(libraries, "ada", tmp_path / "after")
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert await ada.notes.get(str(hit.id)) == edited
            assert await total_items(ben) == 0

    assert after == before
    assert all(
        counts == OutcomeCounts(unchanged=counts.total) for counts in (*summary.kinds.values(), *again.kinds.values())
    )


async def test_what_came_from_elsewhere_is_known_as_that_in_the_next_library(tmp_path: Path) -> None:
    chat = jsonl(tmp_path / "chat.jsonl", *LINES)
    card = tmp_path / "card.json"
    card.write_bytes(msgspec.json.encode({"name": "Sera", "first_mes": "Hi", "extensions": {"z": 1, "a": 2}}))
    (tmp_path / "tea.md").write_text("Steep.")
    async with open_sqlite(tmp_path / "data") as libraries:
        for path in (chat, card, tmp_path / "tea.md"):
            await take(libraries, path, "ada")
        first = await export(libraries, "ada", tmp_path / "first")
        await take(libraries, tmp_path / "first", "ben")
        second = await export(libraries, "ben", tmp_path / "second")
        async with libraries.library("ben") as ben:
            [character] = (await ben.characters.list(9, 0)).rows
            await ben.characters.update(character.id, CharacterDraft(description="edited here"))
        summaries = [await take(libraries, path, "ben") for path in (chat, card, tmp_path / "tea.md")]
        async with libraries.library("ben") as ben:
            assert (await ben.characters.get(character.id)).description == "edited here"

    assert second == first
    kinds = [counts for summary in summaries for counts in summary.kinds.values()]
    assert len(kinds) == 4
    assert all(counts == OutcomeCounts(unchanged=counts.total) for counts in kinds)


async def test_what_was_deleted_is_in_no_file_and_every_field_is(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        files = await export(libraries, "ada", tmp_path / "out")

    assert not any(b"forgotten" in data for data in files.values())
    [_, kettle] = sorted(map(msgspec.json.decode, files["notes.jsonl"].splitlines()), key=lambda line: line["title"])
    assert (kettle["content"], kettle["version"], kettle["tags"], kettle["metadata"]) == (
        *("a\nb\nc", 2, ["Tea", "home"], META),
    )
    assert kettle["created_at"] < kettle["last_modified"]
    chats = list(map(msgspec.json.decode, files["chats.jsonl"].splitlines()))
    [character] = map(msgspec.json.decode, files["characters.jsonl"].splitlines())
    assert {line["character"] for line in chats if line["kind"] == "conversation"} == {character["uuid"], None}
    manifest = msgspec.json.decode(files["florilegium.json"])
    assert manifest["counts"]["messages"] == sum(line["kind"] == "message" for line in chats) == 2
    assert sum(name.startswith("notes/") for name in files) == manifest["counts"]["notes"] == 2


async def test_a_long_conversation_comes_whole_though_some_of_it_was_deleted(tmp_path: Path) -> None:
    drafts = [MessageDraft(content=f"said {n}", uuid=f"m{n}") for n in range(1_203)]
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await ada.chats.create(ConversationDraft(title="Long", uuid="long"), drafts)
            for number in (0, 50, 51, 52, 102, 1_202):
                await ada.chats.delete_message(f"m{number}")
        first = await export(libraries, "ada", tmp_path / "first")
        summary = await take(libraries, tmp_path / "first", "ben")

        assert summary.kinds["messages"] == OutcomeCounts(new=1_197)
        assert await export(libraries, "ben", tmp_path / "second") == first


async def test_a_zip_of_an_export_is_as_good_as_the_folder(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        first = await export(libraries, "ada", tmp_path / "out")
        packed = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "out")
        await take(libraries, Path(packed), "ben")

        assert await export(libraries, "ben", tmp_path / "second") == first


async def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    async with open_sqlite(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        with pytest.raises(Conflict, match="is not empty: nothing is ever overwritten"):
            await export_library(ada, tmp_path / "out")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


async def test_nobody_else_may_read_what_is_written(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        await export(libraries, "ada", tmp_path / "out")

    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "out").rglob("*")} == {0}


# -- what was done to it -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with a chat of three messages and a note."""
    folder = tmp_path_factory.mktemp("sample") / "out"

    async def make() -> None:
        async with open_sqlite(folder.parent / "data") as libraries, libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Kettle", content="tea", uuid="n1"))
            messages = [MessageDraft(content=f"said {n}", uuid=f"m{n}") for n in range(3)]
            await ada.chats.create(ConversationDraft(title="Talk", uuid="c1"), messages)
            await export_library(ada, folder)

    asyncio.run(make())
    return folder


def read(folder: Path) -> list[object]:
    return list(IMPORTER.read(folder, LIMITS, lambda bytes_read: None, None))


def copied(sample: Path, target: Path, name: str, data: bytes) -> Path:
    shutil.copytree(sample, target)
    (target / name).write_bytes(data)
    return target


def test_messages_of_a_conversation_that_cannot_be_read_come_into_no_other(sample: Path, tmp_path: Path) -> None:
    first, *messages = (sample / "chats.jsonl").read_bytes().splitlines()
    other = first.replace(b'"c1"', b'"c0"')
    damaged = copied(
        sample, tmp_path / "out", "chats.jsonl", b"\n".join([other, b'{"kind": "conversation"}', *messages])
    )

    arrivals = read(damaged)

    [chat] = [one for one in arrivals if isinstance(one, ImportedConversation)]
    broken = [one for one in arrivals if isinstance(one, FailedItem)]
    assert (chat.draft.uuid, chat.messages) == ("c0", ())
    assert [one.place for one in broken] == [f"chats.jsonl, line {n}" for n in (2, 3, 4, 5)]
    assert "without its conversation" in broken[-1].problem


def test_a_file_that_is_none_of_ours_keeps_no_other_from_being_read(sample: Path, tmp_path: Path) -> None:
    arrivals = read(copied(sample, tmp_path / "out", "chats.jsonl", b""))

    assert [type(one).__name__ for one in arrivals] == ["FailedItem", "ImportedNote"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind": "note"}',
        b'{"kind": "news", "uuid": "x"}',
        b"[" * 10_000,
        b'{"kind":"note","metadata":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b"\xff\xfe",
        b'{"kind": "note", "uuid": "\\ud800"}',
    ],
)
def test_a_hostile_line_is_told_and_the_rest_is_read(sample: Path, tmp_path: Path, line: bytes) -> None:
    whole = (sample / "notes.jsonl").read_bytes()

    arrivals = read(copied(sample, tmp_path / "out", "notes.jsonl", whole + line + b"\n"))

    assert any(isinstance(one, FailedItem) for one in arrivals)
    assert sum(type(one).__name__ == "ImportedNote" for one in arrivals) == 1


async def test_a_version_that_cannot_be_is_refused(sample: Path, tmp_path: Path) -> None:
    data = (sample / "notes.jsonl").read_bytes().replace(b'"version":1', b'"version":0')
    async with open_sqlite(tmp_path / "data") as libraries:
        summary = await take(libraries, copied(sample, tmp_path / "out", "notes.jsonl", data), "ben")

    assert summary.kinds["notes"] == OutcomeCounts(refused=1)
    assert "version: expected 1 to 9007199254740992, got 0" in summary.problems[0].problem


@given(place=st.integers(0, 10_000), written=st.binary(max_size=8), removed=st.integers(0, 8))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_change_to_a_file_breaks_its_reader(
    sample: Path, tmp_path_factory: pytest.TempPathFactory, place: int, written: bytes, removed: int
) -> None:
    whole = (sample / "chats.jsonl").read_bytes()
    place %= len(whole) + 1
    folder = copied(
        sample, tmp_path_factory.mktemp("x") / "out", "chats.jsonl", whole[:place] + written + whole[place + removed :]
    )
    try:
        read(folder)
    except (InvalidParams, TooLarge):
        pass
    finally:
        shutil.rmtree(folder.parent)
