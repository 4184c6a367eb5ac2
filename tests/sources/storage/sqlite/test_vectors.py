"""The vectors in a user's files, made by the model `fast`: always consistent with the text, and never anyone else's."""

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
)
from sources.records import HitPage
from sources.storage.contract import Library
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.known_schema import find_foreign_object
from sources.storage.sqlite.maintenance.library_check import check_library
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, reindex
from sources.storage.sqlite.vectors.kinds import ALL_KINDS, MESSAGE_VECTORS, NOTE_VECTORS, VectorKind
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from tests.live import make_settings
from tests.sources.storage.library_fixture import LibraryFixture, ids, make_search, open_sqlite, titles
from tests.sources.storage.sqlite.crashing_writer import OWNERS

# Loading the model takes longer than a search may wait for it.
SEMANTIC: dict[str, Any] = {"semantic_model": "fast", "semantic_timeout_ms": 60_000}
CAR = "My automobile needs new tyres and an oil change before winter."
BREAD = "Knead the dough, let the yeast rise, and bake the loaf in a hot oven."
WEATHER = "Heavy rain and thunderstorms are expected over the mountains tomorrow."


@pytest.fixture
async def libraries(tmp_path: Path) -> AsyncIterator[LibraryFixture]:
    async with open_sqlite(tmp_path, **SEMANTIC) as fixture:
        yield fixture


def rows_with_vectors(libraries: LibraryFixture, owner: str, kind: VectorKind) -> set[int]:
    path: Path = getattr(libraries.data_root.paths_of(libraries.context(owner).user_id), kind.database)
    with closing(sqlite3.connect(path)) as connection:
        return {item for (item,) in connection.execute(f"SELECT item FROM {kind.vectors}")}


def all_rows_with_vectors(libraries: LibraryFixture, owner: str) -> dict[str, int]:
    counts = {kind.name: len(rows_with_vectors(libraries, owner, kind)) for kind in ALL_KINDS}
    return {name: count for name, count in counts.items() if count}


async def add_one_of_each(library: Library, text: str) -> dict[str, str | int]:
    note = await library.notes.create(NoteDraft(title="Note", content=text))
    media = await library.media.create(MediaDraft(title="Media", content=text))
    character = await library.characters.create(CharacterDraft(name="Character", description=text))
    prompt = await library.prompts.create(PromptDraft(name="Prompt", user_prompt=text))
    observation = await library.observations.create(ObservationDraft(title="Observation", narrative=text))
    messages = [
        MessageDraft(sender="Ana", content=text),
        MessageDraft(sender="Ana", content=f"Hidden. {text}", metadata={"human_only": True}),
    ]
    chat = await library.chats.create(ConversationDraft(title="Chat"), messages)
    return {
        "notes": note.id,
        "media": media.id,
        "characters": character.id,
        "prompts": prompt.id,
        "observations": observation.id,
        "chats": chat.id,
    }


async def test_meaning_is_found_without_a_common_word_in_every_collection(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada, libraries.library("ben") as ben:
        for text in (BREAD, WEATHER, CAR):
            await add_one_of_each(ada, text)
        await add_one_of_each(ben, BREAD)
        await libraries.embed("ada")
        await libraries.embed("ben")

        search = make_search("vehicle maintenance")
        for collection in (ada.notes, ada.media, ada.chats, ada.characters, ada.prompts, ada.observations):
            page = await collection.search(search)
            assert CAR in page.hits[0].text, collection
            assert page.hits[0].cosine
            assert page.hits[0].lexical == 0
            assert (page.semantic.status, page.semantic.coverage) == ("on", 1.0)
        assert all(CAR not in hit.text for hit in (await ben.notes.search(search)).hits)


async def test_search_by_meaning_alone_is_scored_by_the_cosine(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        for text in (BREAD, WEATHER, CAR):
            await ada.notes.create(NoteDraft(content=text))
        await libraries.embed("ada")

        page = await ada.notes.search(make_search("rain rain automobile", limit=1, ranking="meaning"))
        again = await ada.notes.search(make_search("rain rain automobile", limit=1, offset=1, ranking="meaning"))

    assert page.has_more
    assert page.hits[0].score >= again.hits[0].score > 0
    assert page.hits[0].score == round(page.hits[0].cosine or 0, 4)


@pytest.mark.parametrize("action", ["delete", "purge", "update"])
async def test_vectors_disappear_with_their_text(libraries: LibraryFixture, action: str) -> None:
    async with libraries.library("ada") as ada:
        items = await add_one_of_each(ada, CAR)
        await libraries.embed("ada")
        assert all_rows_with_vectors(libraries, "ada") == {kind.name: 1 for kind in ALL_KINDS}

        for name, item_id in items.items():
            collection = getattr(ada, name)
            if action == "update" and name == "chats":
                for message in (await ada.chats.messages(str(item_id), 10, 0)).rows:
                    await ada.chats.update_message(message.id, MessageDraft(content="changed"))
                await ada.chats.update(str(item_id), ConversationDraft(title="changed"))
            elif action == "update":
                await collection.update(item_id, _changed(name))
            else:
                await getattr(collection, action)(item_id)
            assert (await collection.search(make_search("vehicle"))).hits == ()

    assert all_rows_with_vectors(libraries, "ada") == {}


def _changed(collection: str) -> object:
    drafts: dict[str, object] = {
        "notes": NoteDraft(content="changed"),
        "media": MediaDraft(content="changed"),
        "characters": CharacterDraft(description="changed"),
        "prompts": PromptDraft(user_prompt="changed"),
        "observations": ObservationDraft(narrative="changed"),
    }
    return drafts[collection]


async def test_change_that_is_not_of_the_text_keeps_the_vectors(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        note = await ada.notes.create(NoteDraft(title="Car", content=CAR))
        await libraries.embed("ada")

        await ada.notes.update(note.id, NoteDraft(tags=["garage"]))
        page = await ada.notes.search(make_search("vehicle", tags=("garage",)))

        assert ids(page) == [note.id]
        assert page.semantic.status == "on"
        assert (await ada.notes.search(make_search("vehicle", tags=("kitchen",)))).hits == ()


async def test_following_message_loses_its_vector_with_its_context(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        chat = await ada.chats.create(ConversationDraft(), [MessageDraft(content=text) for text in (CAR, "Yes", "No")])
        await libraries.embed("ada")
        first, second, third = (message.number for message in (await ada.chats.messages(chat.id, 3, 0)).rows)
        [message] = (await ada.chats.messages(chat.id, 1, 0)).rows

        await ada.chats.update_message(message.id, MessageDraft(metadata={"human_only": True}))

        assert rows_with_vectors(libraries, "ada", MESSAGE_VECTORS) == {third}
        assert {first, second}.isdisjoint(rows_with_vectors(libraries, "ada", MESSAGE_VECTORS))


async def test_library_without_vectors_ranks_by_words(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as fixture, fixture.library("ada") as ada:
        for number in range(60):
            await ada.notes.create(NoteDraft(title=f"Note {number}", content=f"{CAR} {'tyres ' * (number % 7)}"))
        by_words = await ada.notes.search(make_search("winter tyres", limit=60))
        assert by_words.semantic.status == "off"
    async with open_sqlite(tmp_path, **SEMANTIC) as fixture, fixture.library("ada") as ada:
        page = await ada.notes.search(make_search("winter tyres", limit=60))

    assert (page.semantic.status, page.semantic.coverage) == ("partial", 0.0)
    assert page.hits == by_words.hits


@pytest.mark.parametrize("query", ['"new tyres"', "tyres AND oil", "tyres -oil", "title:note", "tyr*"])
async def test_literal_query_compares_words_only(libraries: LibraryFixture, query: str) -> None:
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Note", content=CAR))
        await libraries.embed("ada")
        assert (await ada.notes.search(make_search(query))).semantic.status == "not_applicable"


WORDS = ("car", "automobile", "tyre", "bread", "dough", "oven", "rain", "storm", "mountain", "winter")


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_pages_of_any_size_have_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    texts = data.draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=120, max_size=160))
    query = " ".join(data.draw(st.lists(st.sampled_from((*WORDS, "vehicle", "baking")), min_size=1, max_size=4)))
    size = data.draw(st.integers(1, 60))
    async with open_sqlite(tmp_path_factory.mktemp("pages"), **SEMANTIC) as libraries, libraries.library("ada") as ada:
        await ada.notes.create_many([NoteDraft(title=text[0], content=" ".join(text)) for text in texts])
        await ada.media.create_many([MediaDraft(title=text[0], content=" ".join(text) * 40) for text in texts[:60]])
        await libraries.embed("ada")
        for collection in (ada.notes, ada.media):
            whole = await collection.search(make_search(query, limit=500))
            pages = await read_pages(collection, query, size)
            assert [hit for page in pages for hit in page.hits] == [*whole.hits]
            assert len(set(ids(whole))) == len(whole.hits)
            assert whole.total == len(whole.hits)
            assert {page.total for page in pages} <= {None, whole.total}


async def read_pages(collection: object, query: str, size: int) -> Sequence[HitPage]:
    pages: list[HitPage] = []
    while not pages or pages[-1].has_more:
        offset = sum(len(page.hits) for page in pages)
        pages.append(await collection.search(make_search(query, limit=size, offset=offset)))  # type: ignore[attr-defined]
    return pages


async def test_vectors_of_the_previous_model_are_searched_until_there_are_new_ones(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(title="Car", content=CAR), NoteDraft(title="Loaf", content=BREAD)])
            await libraries.embed("ada")
        path = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
    # As after some time with another model, of which nothing is embedded yet.
    tables = vector_tables("chacha")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        fast = tables.state(connection)
        assert fast is not None
        tables.create(connection, "other")
        assert tables.previous_model(connection, "other") == fast.model
        assert tables.next_batch(connection, "other", has_context=False) is not None

    async with open_sqlite(tmp_path, **SEMANTIC) as libraries, libraries.library("ada") as ada:
        await libraries.embed("ada")
        page = await ada.notes.search(make_search("vehicle"))
    assert titles(page)[0] == "Car"
    assert page.semantic.status == "on"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM vector_models").fetchall() == [(fast.model,)]


async def test_check_finds_a_vector_without_its_row_and_reindex_removes_it(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Car", content=CAR))
        await libraries.embed("ada")
        root, user_id = libraries.data_root, libraries.context("ada").user_id
    path = root.paths_of(user_id).chacha
    assert {check.state for check in check_library(root, user_id)} == {"ok"}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE notes_vectors SET item = 99")
    [damaged] = [check for check in check_library(root, user_id) if check.state != "ok"]
    assert (damaged.kind, damaged.state) == ("chacha", "index damaged")

    reindex(root, user_id, "chacha", sqlite_options(make_settings(tmp_path)))

    assert {check.state for check in check_library(root, user_id)} == {"ok"}
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries, libraries.library("ada") as ada:
        await libraries.embed("ada")
        assert titles(await ada.notes.search(make_search("vehicle"))) == ["Car"]


async def test_triggers_of_vectors_are_known_and_others_are_foreign(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await add_one_of_each(ada, CAR)
        await libraries.embed("ada")
        paths = libraries.data_root.paths_of(libraries.context("ada").user_id)
    for kind, schema in SCHEMAS.items():
        with closing(sqlite3.connect(getattr(paths, kind), isolation_level=None)) as connection:
            assert find_foreign_object(connection, kind, len(schema.migrations)) is None
            table = vector_tables(kind).kinds[0].vectors
            connection.execute(f"CREATE TRIGGER {table}_spy AFTER INSERT ON {table} BEGIN SELECT 1; END")
            assert find_foreign_object(connection, kind, len(schema.migrations)) == f"trigger {table}_spy"


async def test_killed_process_continues_to_embed_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_embedder", str(tmp_path), "20"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    covered = [float(line) for line in process.stdout.splitlines()]
    assert len(covered) == 20, process.stderr
    assert covered[-1] > 0
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        for owner in OWNERS:
            await libraries.embed(owner)
            async with libraries.library(owner) as library:
                page = await library.chats.search(make_search("vehicle", limit=1))
                assert page.semantic.status == "on"
                assert CAR in page.hits[0].text
        for owner in OWNERS:
            checks = check_library(libraries.data_root, libraries.context(owner).user_id)
            assert {check.state for check in checks} == {"ok"}


async def test_libraries_that_were_closed_are_embedded_too(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=1, **SEMANTIC) as libraries:
        for owner in ("ada", "ben", "cem"):
            async with libraries.library(owner) as library:
                await library.notes.create(NoteDraft(title=f"Car of {owner}", content=CAR))
        await libraries.embed("ada")
        for owner in ("ada", "ben", "cem"):
            async with libraries.library(owner) as library:
                assert titles(await library.notes.search(make_search("vehicle"))) == [f"Car of {owner}"]


async def test_long_note_is_found_by_each_of_its_passages(libraries: LibraryFixture) -> None:
    filler = " ".join(f"Nothing of interest happened on day {number}." for number in range(200))
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Diary", content=f"{filler} {f'{CAR} ' * 20} {filler}"))
        await libraries.embed("ada")
        [hit] = (await ada.notes.search(make_search("vehicle repair"))).hits

    assert hit.passage is not None
    start, end = hit.passage
    assert CAR[:20] in hit.text[start:end]


async def test_vectors_of_one_model_serve_until_those_of_another_are_made(tmp_path: Path) -> None:
    texts = {"Car": CAR, "Loaf": BREAD, "Rain": WEATHER}
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(title=title, content=text) for title, text in texts.items()])
        await libraries.embed("ada")
        path = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
    assert vector_sizes(path) == {("wordllama-256", 256)}

    async with open_sqlite(tmp_path, **{**SEMANTIC, "semantic_model": "minilm"}) as libraries:
        async with libraries.library("ada") as ada:
            before = await ada.notes.search(make_search("vehicle"))
        await libraries.embed("ada")
        async with libraries.library("ada") as ada:
            after = await ada.notes.search(make_search("vehicle"))
    assert titles(before)[0] == titles(after)[0] == "Car"
    # By meaning alone, and not the same number: the query is embedded by the model whose vectors are searched.
    assert before.hits[0].lexical == after.hits[0].lexical == 0
    assert before.hits[0].cosine != after.hits[0].cosine
    assert after.semantic.status == "on"
    assert vector_sizes(path) == {("all-minilm-l6-v2-int8", 384)}


def vector_sizes(path: Path) -> set[tuple[str, int]]:
    """Returns the models of the vectors of notes, and the sizes of their vectors."""
    sql = "SELECT m.name, length(v.vector) FROM notes_vectors v JOIN vector_models m ON m.number = v.model"
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute(sql))


async def test_nothing_is_embedded_beyond_the_quota(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Car", content=CAR))
    async with open_sqlite(tmp_path, user_max_bytes=1, **SEMANTIC) as libraries:
        await libraries.embed("ada")
        assert rows_with_vectors(libraries, "ada", NOTE_VECTORS) == set()
        async with libraries.library("ada") as ada:
            page = await ada.notes.search(make_search("automobile"))
    assert (titles(page), page.semantic.status, page.semantic.coverage) == (["Car"], "partial", 0.0)
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        await libraries.embed("ada")
        assert rows_with_vectors(libraries, "ada", NOTE_VECTORS) == {1}


async def test_quota_of_passages_holds_for_all_files_and_after_a_change_of_the_model(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, user_max_passages=3, **SEMANTIC) as libraries:
        for user in ("ada", "ben"):
            async with libraries.library(user) as library:
                await library.prompts.create(PromptDraft(name="Car", user_prompt=CAR))
                for number in range(5 if user == "ada" else 1):
                    await library.notes.create(NoteDraft(title=f"Car {number}", content=CAR))
            await libraries.embed(user)
            async with libraries.library(user) as library:
                usage = await library.usage()
            assert (usage.passages, usage.max_passages) == (3 if user == "ada" else 2, 3)
        async with libraries.library("ada") as ada:
            await ada.notes.delete((await ada.notes.list(1, 0)).rows[0].uuid)
        await libraries.embed("ada")
        async with libraries.library("ada") as ada:
            assert (await ada.usage()).passages == 3
        path = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha

    async with open_sqlite(tmp_path, user_max_passages=2, **{**SEMANTIC, "semantic_model": "minilm"}) as libraries:
        await libraries.embed("ada")
        async with libraries.library("ada") as ada:
            page = await ada.notes.search(make_search("vehicle"))
            usage = await ada.usage()
    assert usage.passages == 2
    assert {model for model, _ in vector_sizes(path)} <= {"all-minilm-l6-v2-int8"}
    assert (page.semantic.status, page.semantic.reason is not None) == ("partial", True)
