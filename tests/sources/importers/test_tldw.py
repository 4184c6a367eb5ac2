"""tldw databases: live rows of all five sources are imported with their ids, deleted ones are not."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import CharacterDraft, MediaDraft, NoteDraft, PromptDraft
from sources.importers.engine.events import ImportedCharacter, ImportedMedia, ImportedNote, ImportedPrompt
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from sources.importers.registry import load_importer
from sources.records import Segment
from tests.cases import each_case
from tests.sources.importers.chat_files import (
    LIMITS,
    confidence,
    damaged,
    failures,
    imported_conversations,
    imported_messages,
    message_contents,
    read,
    read_or_reject,
    skip_reasons,
)
from tests.sources.importers.single_files import import_here
from tests.sources.importers.tldw_files import CHACHA, MEDIA, NEWER_CHACHA, NEWER_MEDIA, PROMPTS, Content, database
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_library_fixture, total_items
from tests.tiers import examples

IMPORTER = load_importer("tldw")

N1, N2 = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
C1, C2 = "22222222-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"
M1, M2, M3, M4 = (f"33333333-0000-4000-8000-00000000000{number}" for number in (1, 2, 3, 4))
U1, U2, U3 = (f"44444444-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
K1, K2 = (f"55555555-0000-4000-8000-00000000000{number}" for number in (1, 2))

WORDS = [
    {"id": 1, "keyword": "work"},
    {"id": 2, "keyword": "gone", "deleted": 1},
    {"id": 3, "keyword": "Äpfel"},
]
CHACHA_ROWS: dict[str, list[dict[str, Any]]] = {
    "keywords": WORDS,
    "notes": [
        {
            "id": N1,
            "title": "Zebra",
            "content": "A zebra crossing, 東京",
            "created_at": "2026-11-15T00:21:53.123Z",
            "version": 2,
        },
        {"id": N2, "title": "Old", "content": "deletedword", "created_at": "2026-11-15 00:21:53", "deleted": 1},
    ],
    "note_keywords": [{"note_id": N1, "keyword_id": number} for number in (1, 2, 3)],
    "character_cards": [
        {
            "id": 7,
            "name": "Guide",
            "description": "Shows the way",
            "system_prompt": "Be a guide",
            "first_message": "Hello",
            "alternate_greetings": '["Hi", 7]',
            "tags": '["sci-fi", "guide"]',
            "extensions": '{"depth": 4}',
            "creator": "ada",
            "created_at": "2026-11-15 00:01:06",
            "image": b"\x89PNG" * 1000,
        },
        {"id": 8, "name": "Gone", "description": "deletedword", "deleted": 1},
    ],
    "conversations": [
        {
            "id": C1,
            "character_id": 7,
            "title": "Zebra talk",
            "rating": 4,
            "created_at": "2026-11-15T00:21:53.000Z",
            "last_modified": "2026-11-16T00:00:00.000Z",
        },
        {"id": C2, "character_id": 8, "title": "Gone", "deleted": 1},
    ],
    "conversation_keywords": [{"conversation_id": C1, "keyword_id": 1}],
    "messages": [
        {"id": M2, "conversation_id": C1, "sender": "Guide", "content": "Left", "timestamp": "2026-11-15T00:22:02Z"},
        {"id": M1, "conversation_id": C1, "sender": "user", "content": "Where?", "timestamp": "2026-11-15 00:22:01"},
        {"id": M3, "conversation_id": C1, "sender": "user", "content": "deletedword", "deleted": 1},
        {"id": M4, "conversation_id": C2, "sender": "user", "content": "deletedword"},
    ],
}


def drafts(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event.draft for event in events if isinstance(event, kind)]


def chacha(path: Path, content: Content = CHACHA_ROWS, *, newer: bool = False) -> Path:
    return database(path / "ChaChaNotes.db", (*CHACHA, *(NEWER_CHACHA if newer else ())), content)


def media(path: Path, item: dict[str, Any], newer: bool = False, **tables: list[dict[str, Any]]) -> Path:
    item = {"id": 1, "uuid": U1, "title": "Talk", "type": "video", "ingestion_date": "2026-11-15T00:01:06.846Z"} | item
    schema = (*MEDIA, *(NEWER_MEDIA if newer else ()))
    return database(path / "Media_DB_v2.db", schema, {"Media": [item], **tables})


def one_media(path: Path) -> MediaDraft:
    (draft,) = drafts(read(IMPORTER, path), ImportedMedia)
    assert isinstance(draft, MediaDraft)
    return draft


# -- notes, characters, conversations ----------------------------------------------------------------------------------


def test_notes_keep_ids_times_and_live_keywords(tmp_path: Path) -> None:
    assert drafts(read(IMPORTER, chacha(tmp_path)), ImportedNote) == [
        NoteDraft(
            uuid=N1,
            title="Zebra",
            content="A zebra crossing, 東京",
            tags=("work", "Äpfel"),
            metadata={"imported_from": "tldw"},
            created_at="2026-11-15T00:21:53.123Z",
        )
    ]


def test_characters_keep_all_fields_except_the_image(tmp_path: Path) -> None:
    (character,) = drafts(read(IMPORTER, chacha(tmp_path)), ImportedCharacter)
    assert isinstance(character.uuid, str)
    assert character == CharacterDraft(
        preferred_id=7,
        uuid=character.uuid,
        name="Guide",
        description="Shows the way",
        personality="",
        scenario="",
        system_prompt="Be a guide",
        post_history_instructions="",
        first_message="Hello",
        message_example="",
        creator_notes="",
        creator="ada",
        character_version="",
        alternate_greetings=("Hi",),
        tags=("sci-fi", "guide"),
        card={"extensions": {"depth": 4}},
        metadata={"imported_from": "tldw"},
        created_at="2026-11-15T00:01:06.000Z",
    )


def test_renamed_character_keeps_its_id_and_one_in_another_file_has_another(tmp_path: Path) -> None:
    def uuid(**changes: Any) -> str:
        row = CHACHA_ROWS["character_cards"][0] | changes
        (character,) = drafts(read(IMPORTER, chacha(tmp_path, {"character_cards": [row]})), ImportedCharacter)
        return str(character.uuid)

    assert uuid() == uuid(name="Leader")
    assert uuid() != uuid(created_at="2026-11-15 00:01:07")


def test_messages_are_ordered_by_time_in_any_format(tmp_path: Path) -> None:
    events = read(IMPORTER, chacha(tmp_path))
    (chat,) = imported_conversations(events)
    (guide,) = drafts(events, ImportedCharacter)
    assert chat.draft.character == guide.uuid
    assert (chat.draft.uuid, chat.draft.title, chat.draft.tags) == (C1, "Zebra talk", ("work",))
    assert chat.draft.metadata == {"imported_from": "tldw", "character": "Guide", "rating": 4}
    assert (chat.draft.created_at, chat.draft.last_modified) == ("2026-11-15T00:21:53.000Z", "2026-11-16T00:00:00.000Z")
    assert [
        (message.uuid, message.role, message.sender, message.content, message.created_at, message.parent_id)
        for message in chat.messages
    ] == [
        (M1, "user", "user", "Where?", "2026-11-15T00:22:01.000Z", None),
        (M2, "assistant", "Guide", "Left", "2026-11-15T00:22:02.000Z", M1),
    ]


def test_deleted_items_and_their_messages_are_skipped(tmp_path: Path) -> None:
    events = read(IMPORTER, chacha(tmp_path))
    assert sorted(skip_reasons(events)) == [
        "deleted character",
        "deleted conversation",
        "deleted message",
        "deleted note",
        "message of a deleted conversation",
    ]
    assert "deletedword" not in str(events)
    assert "gone" not in str(events).lower()


def test_newer_of_two_answers_is_canonical(tmp_path: Path) -> None:
    rows = [
        {"id": M1, "content": "ask", "timestamp": "2026-01-01T00:00:01Z"},
        {"id": M2, "content": "first", "timestamp": "2026-01-01T00:00:02Z", "parent_message_id": M1},
        {"id": M3, "content": "second", "timestamp": "2026-01-01T00:00:03Z", "parent_message_id": M1},
    ]
    messages = [{"conversation_id": C1, "sender": "user", **row} for row in rows]
    events = read(IMPORTER, chacha(tmp_path, {"conversations": [{"id": C1}], "messages": messages}))
    assert [(message.content, message.is_canonical, message.parent_id) for message in imported_messages(events)] == [
        ("ask", True, None),
        ("second", True, M1),
        ("first", False, M1),
    ]


def test_images_are_described_and_parents_skip_deleted_messages(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"id": M1, "content": "look", "image_data": b"x", "image_mime_type": "image/png", "ranking": 2},
        {"id": M2, "content": "deletedword", "deleted": 1, "parent_message_id": M1},
        {"id": M3, "content": None, "image_mime_type": "image/webp", "parent_message_id": M2},
        {"id": M4, "content": "  "},
    ]
    rows = [{"conversation_id": C1, "sender": "user", **message} for message in messages]
    events = read(IMPORTER, chacha(tmp_path, {"conversations": [{"id": C1}], "messages": rows}))
    first, second = imported_messages(events)
    assert (first.attachments, first.metadata) == (({"mime_type": "image/png"},), {"ranking": 2})
    assert (second.content, second.parent_id) == ("[image: image/webp]", M1)
    assert skip_reasons(events) == ["deleted message", "empty message"]


def test_columns_of_newer_versions_are_imported(tmp_path: Path) -> None:
    rows: Content = {
        "notes": [{"id": N1, "title": "t", "content": "c", "conversation_id": C1, "message_id": M1}],
        "conversations": [{"id": C1, "topic_label": "zebras", "source": "web", "parent_conversation_id": C2}],
        "messages": [{"id": M1, "conversation_id": C1, "sender": "assistant", "content": "hi"}],
        "message_images": [{"message_id": M1, "position": 0, "image_mime_type": "image/gif"}],
        "message_metadata": [{"message_id": M1, "tool_calls_json": '[{"name": "look"}]'}],
    }
    events = read(IMPORTER, chacha(tmp_path, rows, newer=True))
    (note,) = drafts(events, ImportedNote)
    (chat,) = imported_conversations(events)
    assert note.metadata == {"imported_from": "tldw", "conversation": C1, "message": M1}
    assert chat.draft.metadata == {
        "imported_from": "tldw",
        "topic": "zebras",
        "source": "web",
        "parent_conversation": C2,
    }
    assert chat.messages[0].metadata == {"tool_calls": [{"name": "look"}]}
    assert chat.messages[0].attachments == ({"mime_type": "image/gif"},)


def test_empty_conversations_and_orphaned_messages_are_reported(tmp_path: Path) -> None:
    orphan = {"id": M1, "conversation_id": C2, "sender": "user", "content": "lost"}
    events = read(IMPORTER, chacha(tmp_path, {"conversations": [{"id": C1}], "messages": [orphan]}))
    assert skip_reasons(events) == ["conversation without messages", "message without a conversation"]


# -- media -------------------------------------------------------------------------------------------------------------


def test_media_keep_text_chunks_and_analysis(tmp_path: Path) -> None:
    chunks = [
        {"media_id": 1, "uuid": K2, "chunk_text": "beta.", "chunk_index": 1, "chunk_type": "text", "start_char": 7},
        {"media_id": 1, "uuid": K1, "chunk_text": "Alpha.", "chunk_index": 0, "chunk_type": "text"},
        {"media_id": 1, "uuid": U2, "chunk_text": "old", "chunk_index": 2, "chunk_type": "text", "deleted": 1},
    ]
    versions = [
        {"media_id": 1, "version_number": 1, "analysis_content": "older"},
        {"media_id": 1, "version_number": 2, "analysis_content": "It is about letters", "prompt": "Sum up"},
        {"media_id": 1, "version_number": 3, "analysis_content": "deletedword", "deleted": 1},
    ]
    path = media(
        tmp_path,
        {"content": "Alpha. beta.", "url": "https://example.invalid/0", "author": "bob", "type": "pdf"},
        UnvectorizedMediaChunks=chunks,
        DocumentVersions=versions,
        Keywords=WORDS,
        MediaKeywords=[{"media_id": 1, "keyword_id": 1}, {"media_id": 1, "keyword_id": 2}],
    )
    draft = one_media(path)
    assert draft == MediaDraft(
        preferred_id=1,
        uuid=U1,
        title="Talk",
        media_type="pdf",
        url="https://example.invalid/0",
        author="bob",
        content="Alpha. beta.",
        chunks=draft.chunks,
        tags=("work",),
        metadata={"imported_from": "tldw", "analysis": "It is about letters", "analysis_prompt": "Sum up"},
        created_at="2026-11-15T00:01:06.846Z",
    )
    assert draft.chunks is not UNSET
    assert [(chunk.uuid, chunk.text, chunk.start, chunk.end) for chunk in draft.chunks] == [
        (K1, "Alpha.", 0, 6),
        (K2, "beta.", 7, 12),
    ]


@each_case("chunk_texts", [["Alpha."], ["Alpha.", "gamma"], ["beta.", "Alpha."]])
def test_chunks_that_do_not_cover_the_text_are_ignored(tmp_path: Path, chunk_texts: list[str]) -> None:
    rows = [
        {"media_id": 1, "chunk_text": text, "chunk_index": index, "chunk_type": "text"}
        for index, text in enumerate(chunk_texts)
    ]
    draft = one_media(media(tmp_path, {"content": "Alpha. beta."}, UnvectorizedMediaChunks=rows))
    assert (draft.content, draft.chunks) == ("Alpha. beta.", UNSET)


TIMED = [Segment(start_ms=0, end_ms=2500, text="hello world"), Segment(start_ms=2500, end_ms=5000, text="good bye")]


@each_case(
    "stored",
    [
        '{"segments": [{"start": 0, "end": 2.5, "text": "hello world"}, {"start": 2.5, "end": 5, "text": "good bye"}]}',
        (
            '{"text": "hello world good bye", "Segments": [{"start_seconds": 0, "end_seconds": 2.5, '
            '"Text": "hello world"}, {"start_seconds": 2.5, "end_seconds": 5, "Text": "good  bye"}]}'
        ),
        (
            '[{"start_ms": 0, "end_ms": 2500, "transcript": "hello world"},'
            ' {"start_ms": 2500, "end_ms": 5000, "transcription": "good bye"}, {"text": ""}, 7]'
        ),
        (
            '[{"start_time": "00:00:00", "end_time": "00:02.5", "text": "hello world"},'
            ' {"start_time": 2.5, "end_time": "5", "text": "good bye"}]'
        ),
    ],
)
def test_transcript_formats_are_parsed_with_times(tmp_path: Path, stored: str) -> None:
    path = media(tmp_path, {"content": "0.0s hello world\n2.5s good bye"}, Transcripts=[_transcript(stored)])
    draft = one_media(path)
    assert (draft.uuid, draft.media_type, draft.segments, draft.content) == (U1, "video", TIMED, UNSET)


def test_transcript_that_differs_from_the_text_is_a_separate_item(tmp_path: Path) -> None:
    path = media(tmp_path, {"content": "A summary in other terms"}, Transcripts=[_transcript("hello world good bye")])
    text, transcript = drafts(read(IMPORTER, path), ImportedMedia)
    assert (text.uuid, text.content) == (U1, "A summary in other terms")
    assert (transcript.title, transcript.media_type, transcript.content) == (
        "Talk",
        "transcript",
        "hello world good bye",
    )
    assert transcript.metadata == {"imported_from": "tldw", "transcript_of": U1}
    assert transcript.uuid != U1


def test_transcript_of_the_latest_run_or_the_newest_is_used(tmp_path: Path) -> None:
    first = _transcript("first", created_at="2026-01-01T00:00:00Z")
    second = _transcript("second", created_at="2026-01-02 00:00:00", uuid=U3)
    third = _transcript("deletedword", created_at="2026-01-03T00:00:00Z", uuid=K1, deleted=1)
    path = media(tmp_path, {"content": ""}, Transcripts=[first, second, third])
    assert one_media(path).content == "second"
    runs = [first | {"transcription_run_id": 2}, second | {"transcription_run_id": 1}]
    path = media(tmp_path, {"content": "", "latest_transcription_run_id": 2}, newer=True, Transcripts=runs)
    assert one_media(path).content == "first"


def test_deleted_media_and_the_trash_are_skipped(tmp_path: Path) -> None:
    path = media(tmp_path, {"is_trash": 1, "content": "x"})
    assert skip_reasons(read(IMPORTER, path)) == ["media item in the trash"]
    path = media(tmp_path, {"deleted": 1, "content": "x"})
    assert skip_reasons(read(IMPORTER, path)) == ["deleted media item"]


def _transcript(stored: str, **fields: Any) -> dict[str, Any]:
    return {"media_id": 1, "uuid": U2, "transcription": stored, "created_at": "2026-11-15T00:01:16.134Z", **fields}


# -- prompts -----------------------------------------------------------------------------------------------------------

PROMPT_ROWS: Content = {
    "Prompts": [
        {
            "id": 1,
            "uuid": U1,
            "name": "Sum up",
            "author": "alice",
            "details": "short",
            "system_prompt": "You sum up",
            "user_prompt": "Sum up {{text}}",
            "last_modified": "2026-11-15T00:01:06.584Z",
        },
        {"id": 2, "uuid": U2, "name": "Gone", "details": "deletedword", "deleted": 1},
    ],
    "PromptKeywordsTable": WORDS,
    "PromptKeywordLinks": [{"prompt_id": 1, "keyword_id": 1}, {"prompt_id": 1, "keyword_id": 2}],
}


def test_prompts_keep_their_keywords(tmp_path: Path) -> None:
    events = read(IMPORTER, database(tmp_path / "p.sqlite", PROMPTS, PROMPT_ROWS))
    assert drafts(events, ImportedPrompt) == [
        PromptDraft(
            preferred_id=1,
            uuid=U1,
            name="Sum up",
            author="alice",
            details="short",
            system_prompt="You sum up",
            user_prompt="Sum up {{text}}",
            tags=("work",),
            metadata={"imported_from": "tldw"},
            created_at="2026-11-15T00:01:06.584Z",
        )
    ]
    assert skip_reasons(events) == ["deleted prompt"]


# -- the whole way -----------------------------------------------------------------------------------------------------


async def import_paths(libraries: LibraryFixture, *paths: Path) -> ImportSummary:
    async with libraries.library("ada") as library:
        return await import_here(library, *paths, importers=[IMPORTER])


async def test_live_rows_are_searchable_and_a_second_import_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "user_databases" / "1"
    (folder / "prompts_user_dbs").mkdir(parents=True)
    chacha(folder)
    media(folder, {"content": "zebra in a film"})
    database(folder / "prompts_user_dbs" / "user_prompts_v2.sqlite", PROMPTS, PROMPT_ROWS)
    async with open_library_fixture(tmp_path / "data") as libraries:
        first = await import_paths(libraries, tmp_path / "user_databases")
        second = await import_paths(libraries, tmp_path / "user_databases")
        changed = CHACHA_ROWS["notes"][0] | {"content": "A giraffe crossing", "version": 3}
        chacha(folder, {**CHACHA_ROWS, "notes": [changed]})
        third = await import_paths(libraries, tmp_path / "user_databases")
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            sources = (ada.notes, ada.chats, ada.characters, ada.prompts, ada.media)
            deleted = [await source.search(make_search("deletedword")) for source in sources]
            note = await ada.notes.search(make_search("giraffe"))
            film = await ada.media.search(make_search("film"))
            talk = await ada.chats.get(C1)
            guide = await ada.characters.search(make_search("guide"))
            assert await total_items(ben) == 0

    kinds = ("notes", "chats", "messages", "characters", "media", "prompts")
    assert [first.kinds[kind].new for kind in kinds] == [1, 1, 2, 1, 1, 1]
    assert (first.failures, first.files) == (0, 3)
    assert [second.kinds[kind].unchanged for kind in kinds] == [1, 1, 2, 1, 1, 1]
    assert third.kinds["notes"] == OutcomeCounts(updated=1)
    assert [hit.id for hit in note.hits] == [N1]
    assert len(film.hits) == 1
    assert [hit.id for hit in guide.hits] == [talk.character_id]
    assert not any(page.hits for page in deleted)


def test_file_is_read_identically_and_not_modified(tmp_path: Path) -> None:
    path = chacha(tmp_path)
    before = path.read_bytes()
    positions: list[int] = []

    def progress(bytes_read: int) -> None:
        positions.append(bytes_read)

    assert list(IMPORTER.read(path, LIMITS, progress, None)) == read(IMPORTER, path)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ChaChaNotes.db"]
    assert positions == sorted(positions)
    assert positions[-1] == len(before)


def test_only_tldw_databases_are_recognized(tmp_path: Path) -> None:
    other = database(tmp_path / "other.db", ["CREATE TABLE notes (id, title, content)"], {})
    text = tmp_path / "text.db"
    text.write_text("notes")
    assert [confidence(IMPORTER, path) for path in (chacha(tmp_path), media(tmp_path, {}), other, text)] == [
        0.95,
        0.95,
        0.0,
        0.0,
    ]
    with pytest.raises(InvalidParams, match="not a tldw database"):
        read(IMPORTER, other)


@pytest.mark.sqlite  # a library on PostgreSQL has no file
async def test_own_library_file_is_not_recognized(tmp_path: Path) -> None:
    async with open_library_fixture(tmp_path) as libraries, libraries.library("ada") as library:
        await library.prompts.create(PromptDraft(name="mine"))
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
    assert [path.name for path in files] == ["prompts.db"]
    assert {confidence(IMPORTER, path) for path in files} == {0.0}


# -- hostile -----------------------------------------------------------------------------------------------------------


def test_oversized_row_fails_alone(tmp_path: Path) -> None:
    small = replace(LIMITS, line_max_bytes=100_000, item_max_chars=1_000)
    notes = [
        {"id": N1, "title": "large", "content": "x" * 200_000},
        {"id": N2, "title": "long", "content": "x" * 2_000},
        {"id": M1, "title": "nul", "content": "a\0b"},
        {"id": M2, "title": "fine", "content": "fine"},
    ]
    events = read(IMPORTER, chacha(tmp_path, {"notes": notes}), small)
    assert [location for location, _ in failures(events)] == ["notes, row 1", "notes, row 2", "notes, row 3"]
    assert "a value is larger than" in failures(events)[0][1]
    assert [draft.title for draft in drafts(events, ImportedNote)] == ["fine"]


def test_values_of_unexpected_types_are_tolerated(tmp_path: Path) -> None:
    rows: Content = {
        "notes": [{"id": 7, "title": 3.5, "content": b"\xff\xfe", "created_at": "never"}],
        "character_cards": [{"id": 1, "name": "A", "tags": "[" * 100_000, "extensions": '{"a": ', "created_at": 1e300}],
        "conversations": [{"id": C1, "rating": "five", "character_id": "x"}],
        "messages": [{"id": M1, "conversation_id": C1, "sender": None, "content": "hi", "parent_message_id": M1}],
    }
    events = read(IMPORTER, chacha(tmp_path, rows))
    assert failures(events) == []
    assert message_contents(events) == ["hi"]


def test_database_in_use_and_view_instead_of_table_are_rejected(tmp_path: Path) -> None:
    path = chacha(tmp_path)
    (tmp_path / "ChaChaNotes.db-wal").write_bytes(b"x")
    with pytest.raises(InvalidParams, match="database is in use"):
        read(IMPORTER, path)
    (tmp_path / "ChaChaNotes.db-wal").unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE notes RENAME TO old")
        connection.execute("CREATE VIEW notes AS SELECT * FROM old")
    with pytest.raises(InvalidParams, match="not a tldw database"):
        read(IMPORTER, path)


@cache
def sample_file() -> bytes:
    with TemporaryDirectory() as folder:
        return chacha(Path(folder)).read_bytes()


@settings(max_examples=examples(30))
@given(st.data())
def test_damaged_file_is_read_or_rejected(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "ChaChaNotes.db")
        path.write_bytes(data.draw(damaged(sample_file())))
        read_or_reject(IMPORTER, path)


@settings(max_examples=examples(20))
@given(stored=st.text(max_size=200) | st.binary(max_size=50) | st.integers() | st.none())
def test_unexpected_values_in_any_column_are_tolerated(stored: Any) -> None:
    if isinstance(stored, int) and abs(stored) >= 1 << 63:
        stored = str(stored)
    if isinstance(stored, str):
        stored = stored.encode("utf-8", "replace").decode()
    row: dict[str, Any] = dict.fromkeys(("title", "type", "content", "author", "ingestion_date", "url"), stored)
    with TemporaryDirectory() as folder:
        chunks = [{"media_id": 1, "chunk_text": stored, "chunk_index": stored, "start_char": stored}]
        transcripts = [{"media_id": 1, "transcription": stored, "created_at": stored}]
        path = media(Path(folder), row, UnvectorizedMediaChunks=chunks, Transcripts=transcripts)
        assert read(IMPORTER, path) == read(IMPORTER, path)


async def test_items_keep_their_numbers_if_these_are_free(tmp_path: Path) -> None:
    segments = '{"text": "something else entirely", "segments": []}'
    rows = [{"id": 1, "media_id": 41, "transcription": segments, "whisper_model": "base", "created_at": "2026-11-15"}]
    chacha(tmp_path)
    media(tmp_path, {"id": 41, "content": "zebra in a film"}, Transcripts=rows)
    database(tmp_path / "user_prompts_v2.sqlite", PROMPTS, PROMPT_ROWS)
    async with open_library_fixture(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada:
            await ada.prompts.create(PromptDraft(name="Mine", user_prompt="Write a log."))
        await import_paths(libraries, tmp_path)
        async with libraries.library("ada") as ada:
            film, guide = await ada.media.get(41), await ada.characters.get(7)
            talks = await ada.chats.search(replace(make_search("zebra"), character_id=7))
            mine = await ada.prompts.get(1)
            later = await ada.media.create(MediaDraft(title="Own", content="text"))

    assert (film.title, guide.name, mine.name) == ("Talk", "Guide", "Mine")
    assert [hit.id for hit in talks.hits] == [C1]
    assert later.id > 1_000_000_041, "a new item does not take the number of tldw's next one"
