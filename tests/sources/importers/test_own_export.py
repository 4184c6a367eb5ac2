"""Florilegium's own export: exported, imported and exported again without a difference; no deleted items, no items of
other users, and robust against damaged files."""

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
from sources.importers.engine.events import FailedItem, ImportedConversation
from sources.importers.engine.limits import import_limits
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from sources.importers.registry import load_importer
from sources.records import MediaChunk, SavedPromptArgument, Segment
from sources.storage.contract import Library
from tests.build_settings import build_settings
from tests.sources.importers.single_files import import_here
from tests.sources.importers.test_sillytavern import LINES, jsonl
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("own_export")

LIMITS = import_limits(Settings())
META = {"z": 10**40, "a": {"deep": ["x", None, 1.5]}}
CARD = {"spec": "chara_card_v2", "extensions": {"z": {"y": 1, "x": 2}}, "character_book": {"name": "b", "entries": []}}


async def fill(library: Library) -> None:
    """Fills every field, and adds a deleted item of each kind."""
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


async def import_path(libraries: LibraryFixture, path: Path, owner: str) -> ImportSummary:
    async with libraries.library(owner) as library:
        return await import_here(library, path, settings=build_settings(import_batch_items=2))


async def export(libraries: LibraryFixture, owner: str, folder: Path) -> dict[str, bytes]:
    """Returns every file of an export by its path."""
    async with libraries.library(owner) as library:
        await export_library(library, folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_export_imported_into_an_empty_library_is_exported_identically(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        first = await export(libraries, "ada", tmp_path / "first")
        summary = await import_path(libraries, tmp_path / "first", "ben")
        repeated = await import_path(libraries, tmp_path / "first", "ben")
        second = await export(libraries, "ben", tmp_path / "second")
        async with libraries.library("cyd") as cyd:
            assert await total_items(cyd) == 0

    assert second == first
    assert (summary.failures, summary.kinds["messages"]) == (0, OutcomeCounts(new=2))
    assert {kind: counts.unchanged for kind, counts in repeated.kinds.items()} == {
        "notes": 2,
        "media": 3,
        "chats": 2,
        "messages": 2,
        "characters": 1,
        "prompts": 1,
        "observations": 1,
    }
    assert not any(counts.new or counts.updated for counts in repeated.kinds.values())


async def test_export_imported_into_its_own_library_changes_nothing_and_keeps_edits(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / "tea.md").write_text("---\nz: 1\na: 2\n---\nSteep.")
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        await import_path(libraries, vault, "ada")
        await export(libraries, "ada", tmp_path / "first")
        async with libraries.library("ada") as ada:
            [hit] = (await ada.notes.search(make_search("steep"))).hits
            edited = await ada.notes.update(str(hit.id), NoteDraft(content="Edited here."))
        before = await export(libraries, "ada", tmp_path / "before")
        summary = await import_path(libraries, tmp_path / "first", "ada")
        repeated = await import_path(libraries, vault, "ada")
        after = await export(libraries, "ada", tmp_path / "after")
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert await ada.notes.get(str(hit.id)) == edited
            assert await total_items(ben) == 0

    assert after == before
    assert all(
        counts == OutcomeCounts(unchanged=counts.total)
        for counts in (*summary.kinds.values(), *repeated.kinds.values())
    )


async def test_imported_items_are_still_recognized_after_moving_to_another_library(tmp_path: Path) -> None:
    chat = jsonl(tmp_path / "chat.jsonl", *LINES)
    card = tmp_path / "card.json"
    card.write_bytes(msgspec.json.encode({"name": "Sera", "first_mes": "Hi", "extensions": {"z": 1, "a": 2}}))
    (tmp_path / "tea.md").write_text("Steep.")
    async with open_library_fixture(tmp_path / "data") as libraries:
        for path in (chat, card, tmp_path / "tea.md"):
            await import_path(libraries, path, "ada")
        first = await export(libraries, "ada", tmp_path / "first")
        await import_path(libraries, tmp_path / "first", "ben")
        second = await export(libraries, "ben", tmp_path / "second")
        async with libraries.library("ben") as ben:
            [character] = (await ben.characters.list(9, 0)).rows
            await ben.characters.update(character.id, CharacterDraft(description="edited here"))
        summaries = [await import_path(libraries, path, "ben") for path in (chat, card, tmp_path / "tea.md")]
        async with libraries.library("ben") as ben:
            assert (await ben.characters.get(character.id)).description == "edited here"

    assert second == first
    kinds = [counts for summary in summaries for counts in summary.kinds.values()]
    assert len(kinds) == 4
    assert all(counts == OutcomeCounts(unchanged=counts.total) for counts in kinds)


async def test_export_has_every_field_and_no_deleted_items(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
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


async def test_human_only_message_keeps_its_mark_in_an_export(tmp_path: Path) -> None:
    secret = MessageDraft(sender="Ana", content="the password is mango", metadata={"audience": "human"})
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await ada.chats.create(ConversationDraft(title="Talk"), [secret, MessageDraft(content="understood")])
        files = await export(libraries, "ada", tmp_path / "out")

    messages = [msgspec.json.decode(line) for line in files["chats.jsonl"].splitlines()][1:]
    assert [one["metadata"] for one in messages] == [{"audience": "human"}, {}]
    [page] = [data.decode() for name, data in files.items() if name.startswith("chats/")]
    assert [line.endswith(" (human-only)") for line in page.splitlines() if line.startswith("## ")] == [True, False]


@pytest.mark.slow("makes a large library")
async def test_long_conversation_with_deleted_messages_is_exported_completely(tmp_path: Path) -> None:
    drafts = [MessageDraft(content=f"said {n}", uuid=f"m{n}") for n in range(1_203)]
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await ada.chats.create(ConversationDraft(title="Long", uuid="long"), drafts)
            for number in (0, 50, 51, 52, 102, 1_202):
                await ada.chats.delete_message(f"m{number}")
        first = await export(libraries, "ada", tmp_path / "first")
        summary = await import_path(libraries, tmp_path / "first", "ben")

        assert summary.kinds["messages"] == OutcomeCounts(new=1_197)
        assert await export(libraries, "ben", tmp_path / "second") == first


async def test_zip_of_an_export_equals_the_folder(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        first = await export(libraries, "ada", tmp_path / "out")
        archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "out")
        await import_path(libraries, Path(archive), "ben")

        assert await export(libraries, "ben", tmp_path / "second") == first


async def test_export_into_a_folder_that_is_not_empty_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    async with open_library_fixture(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        with pytest.raises(Conflict, match="is not empty; choose another one"):
            await export_library(ada, tmp_path / "out")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


async def test_exported_files_are_private(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await fill(ada)
        await export(libraries, "ada", tmp_path / "out")

    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "out").rglob("*")} == {0}


# -- damaged exports ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns an export with a chat of three messages and a note."""
    folder = tmp_path_factory.mktemp("sample") / "out"

    async def export_sample() -> None:
        async with open_library_fixture(folder.parent / "data") as libraries, libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Kettle", content="tea", uuid="n1"))
            messages = [MessageDraft(content=f"said {n}", uuid=f"m{n}") for n in range(3)]
            await ada.chats.create(ConversationDraft(title="Talk", uuid="c1"), messages)
            await export_library(ada, folder)

    asyncio.run(export_sample())
    return folder


def read(folder: Path) -> list[object]:
    return list(IMPORTER.read(folder, LIMITS, lambda bytes_read: None, None))


def copy_with(sample: Path, target: Path, name: str, data: bytes) -> Path:
    """Copies an export and replaces one of its files."""
    shutil.copytree(sample, target)
    (target / name).write_bytes(data)
    return target


def test_messages_of_a_failed_conversation_are_not_added_to_another(sample: Path, tmp_path: Path) -> None:
    first, *messages = (sample / "chats.jsonl").read_bytes().splitlines()
    other = first.replace(b'"c1"', b'"c0"')
    damaged = copy_with(
        sample, tmp_path / "out", "chats.jsonl", b"\n".join([other, b'{"kind": "conversation"}', *messages])
    )

    events = read(damaged)

    [chat] = [event for event in events if isinstance(event, ImportedConversation)]
    failed_items = [event for event in events if isinstance(event, FailedItem)]
    assert (chat.draft.uuid, chat.messages) == ("c0", ())
    assert [event.location for event in failed_items] == [f"chats.jsonl, line {n}" for n in (2, 3, 4, 5)]
    assert "message does not follow its conversation" in failed_items[-1].problem


def test_empty_file_is_reported_and_the_others_are_read(sample: Path, tmp_path: Path) -> None:
    events = read(copy_with(sample, tmp_path / "out", "chats.jsonl", b""))

    assert [type(event).__name__ for event in events] == ["FailedItem", "ImportedNote"]


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
def test_malformed_line_is_reported_and_the_rest_is_read(sample: Path, tmp_path: Path, line: bytes) -> None:
    original = (sample / "notes.jsonl").read_bytes()

    events = read(copy_with(sample, tmp_path / "out", "notes.jsonl", original + line + b"\n"))

    assert any(isinstance(event, FailedItem) for event in events)
    assert sum(type(event).__name__ == "ImportedNote" for event in events) == 1


async def test_invalid_version_is_rejected(sample: Path, tmp_path: Path) -> None:
    data = (sample / "notes.jsonl").read_bytes().replace(b'"version":1', b'"version":0')
    async with open_library_fixture(tmp_path / "data") as libraries:
        summary = await import_path(libraries, copy_with(sample, tmp_path / "out", "notes.jsonl", data), "ben")

    assert summary.kinds["notes"] == OutcomeCounts(refused=1)
    assert "version: expected 1 to 9007199254740992, got 0" in summary.problems[0].problem


@given(offset=st.integers(0, 10_000), inserted=st.binary(max_size=8), removed=st.integers(0, 8))
@settings(max_examples=examples(75), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_file_is_read_or_rejected(
    sample: Path, tmp_path_factory: pytest.TempPathFactory, offset: int, inserted: bytes, removed: int
) -> None:
    original = (sample / "chats.jsonl").read_bytes()
    offset %= len(original) + 1
    folder = copy_with(
        sample,
        tmp_path_factory.mktemp("x") / "out",
        "chats.jsonl",
        original[:offset] + inserted + original[offset + removed :],
    )
    try:
        read(folder)
    except (InvalidParams, TooLarge):
        pass
    finally:
        shutil.rmtree(folder.parent)
