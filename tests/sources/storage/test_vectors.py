"""The vectors of a user's text, made by the model `fast`: always consistent with the text, and never anyone else's."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.postgres.connection import PostgresConnection
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
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.index.entries import ENTRY_KINDS
from sources.storage.postgres.vectors.vector_tables import read_state
from sources.storage.vector_kinds import ALL_KINDS, MESSAGE_VECTORS, NOTE_VECTORS, TITLE_VECTORS, VectorKind
from tests.cases import each_case
from tests.sources.storage.library_fixture import LibraryFixture, OpenLibraries, ids, make_search, titles

pytestmark = pytest.mark.postgres

# Loading the model takes longer than a search may wait for it.
SEMANTIC: dict[str, Any] = {"semantic_model": "fast", "semantic_timeout_ms": 60_000}
CAR = "My automobile needs new tyres and an oil change before winter."
BREAD = "Knead the dough, let the yeast rise, and bake the loaf in a hot oven."
WEATHER = "Heavy rain and thunderstorms are expected over the mountains tomorrow."


@pytest.fixture(scope="module")
def library_settings() -> dict[str, Any]:
    return SEMANTIC


async def vectors_of(libraries: LibraryFixture, owner: str, kind: VectorKind) -> set[tuple[int, str, int]]:
    """Returns the rows that have vectors of a kind, with the model and the dimension of each."""
    user_id = libraries.context(owner).user_id
    if isinstance(libraries.engine, PostgresLibraries):
        database = await libraries.engine._database(user_id)
        return await database.read("test", lambda connection: _stored_vectors(connection, kind))
    sql = f"SELECT v.item, m.name, length(v.vector) FROM {kind.vectors} v JOIN vector_models m ON m.number = v.model"
    path = getattr(libraries.data_root.paths_of(user_id), kind.database)
    with closing(sqlite3.connect(path)) as connection:
        has_tables = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'vector_models'").fetchone()
        return set(connection.execute(sql)) if has_tables else set()


def _stored_vectors(connection: PostgresConnection, kind: VectorKind) -> set[tuple[int, str, int]]:
    state = read_state(connection)
    if state is None:
        return set()
    names = {number: name for name, number in state.numbers.items()}
    sign = -1 if kind is TITLE_VECTORS else 1
    rows = connection.execute(
        "SELECT id, model, CAST(vector AS TEXT) FROM vectors WHERE kind = ?", (ENTRY_KINDS[kind.index].number,)
    )
    return {(sign * rowid, names[model], text.count(",") + 1) for rowid, model, text in rows if sign * rowid > 0}


async def rows_with_vectors(libraries: LibraryFixture, owner: str, kind: VectorKind) -> set[int]:
    return {row for row, _, _ in await vectors_of(libraries, owner, kind)}


async def all_rows_with_vectors(libraries: LibraryFixture, owner: str) -> dict[str, int]:
    counts = {kind.name: len(await rows_with_vectors(libraries, owner, kind)) for kind in ALL_KINDS}
    return {name: count for name, count in counts.items() if count}


async def models_of_notes(libraries: LibraryFixture, owner: str) -> set[tuple[str, int]]:
    return {(model, dimension) for _, model, dimension in await vectors_of(libraries, owner, NOTE_VECTORS)}


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


async def test_misspelled_words_are_corrected_before_they_are_embedded(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        for text in (BREAD, WEATHER, CAR, "The vehicle registration is in the drawer."):
            await add_one_of_each(ada, text)
        await libraries.embed("ada")

        for collection in (ada.notes, ada.chats, ada.observations):
            right = await collection.search(make_search("vehicle maintenance"))
            wrong = await collection.search(make_search("vehcile maintenance"))
            cosines = [{hit.text: hit.cosine for hit in page.hits} for page in (right, wrong)]
            assert cosines[0] == cosines[1]
            assert wrong.query is not None
            assert wrong.query.prose == "vehicle maintenance"


@pytest.mark.slow("loads a large model")
async def test_a_library_in_another_language_gets_the_model_that_knows_it(open_libraries: OpenLibraries) -> None:
    german = "Die Bienen hinter dem Haus haben dieses Jahr zwölf Kilo Honig gegeben."
    async with (
        open_libraries(semantic_model="auto", semantic_timeout_ms=60_000) as libraries,
        libraries.library("ada") as ada,
        libraries.library("ben") as ben,
    ):
        for owner, library, text in (("ada", ada, german), ("ben", ben, CAR)):
            for content in (text, WEATHER if library is ben else "Der Zug nach Lissabon fährt um zwölf Uhr ab."):
                await library.notes.create(NoteDraft(title="", content=content))
            await libraries.embed(owner)
        models = [await models_of_notes(libraries, owner) for owner in ("ada", "ben")]
        page = await ada.notes.search(make_search("how much honey did the bees produce"))

        assert models == [
            {("universal-sentence-encoder-multilingual-3-int8-1", 512)},
            {("all-minilm-l6-v2-int8-2", 384)},
        ]
        assert page.hits[0].text == german
        assert page.semantic.status == "on"

        # Until the vectors of another model are complete, those of the previous one are searched.
        for number in range(20):
            await ada.notes.create(NoteDraft(title="", content=f"{number}: {CAR} {WEATHER}"))
        await libraries.embed("ada")
        assert await models_of_notes(libraries, "ada") == {("all-minilm-l6-v2-int8-2", 384)}
        assert (await ada.notes.search(make_search("vehicle"))).semantic.status == "on"


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


@each_case("action", ["delete", "purge", "update"])
async def test_vectors_disappear_with_their_text(libraries: LibraryFixture, action: str) -> None:
    async with libraries.library("ada") as ada:
        items = await add_one_of_each(ada, CAR)
        await libraries.embed("ada")
        assert await all_rows_with_vectors(libraries, "ada") == {kind.name: 1 for kind in ALL_KINDS}

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

    assert await all_rows_with_vectors(libraries, "ada") == {}


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

        assert await rows_with_vectors(libraries, "ada", MESSAGE_VECTORS) == {third}
        assert {first, second}.isdisjoint(await rows_with_vectors(libraries, "ada", MESSAGE_VECTORS))


async def test_library_without_vectors_ranks_by_words(open_libraries: OpenLibraries) -> None:
    async with open_libraries() as fixture, fixture.library("ada") as ada:
        for number in range(60):
            await ada.notes.create(NoteDraft(title=f"Note {number}", content=f"{CAR} {'tyres ' * (number % 7)}"))
        by_words = await ada.notes.search(make_search("winter tyres", limit=60))
        assert by_words.semantic.status == "off"
    async with open_libraries(**SEMANTIC) as fixture, fixture.library("ada") as ada:
        page = await ada.notes.search(make_search("winter tyres", limit=60))

    assert (page.semantic.status, page.semantic.coverage) == ("partial", 0.0)
    assert page.hits == by_words.hits


@each_case("query", ['"new tyres"', "tyres AND oil", "tyres -oil", "title:note", "tyr*"])
async def test_literal_query_compares_words_only(libraries: LibraryFixture, query: str) -> None:
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Note", content=CAR))
        await libraries.embed("ada")
        assert (await ada.notes.search(make_search(query))).semantic.status == "not_applicable"


WORDS = ("car", "automobile", "tyre", "bread", "dough", "oven", "rain", "storm", "mountain", "winter")


@pytest.mark.slow("is a long property run")
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_pages_of_any_size_have_the_same_order(open_libraries: OpenLibraries, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=120, max_size=160))
    query = " ".join(data.draw(st.lists(st.sampled_from((*WORDS, "vehicle", "baking")), min_size=1, max_size=4)))
    size = data.draw(st.integers(1, 60))
    owner = uuid4().hex.translate(str.maketrans("0123456789", "ghijklmnop"))[:12]
    async with open_libraries(**SEMANTIC) as libraries, libraries.library(owner) as ada:
        await ada.notes.create_many([NoteDraft(title=text[0], content=" ".join(text)) for text in texts])
        await ada.media.create_many([MediaDraft(title=text[0], content=" ".join(text) * 40) for text in texts[:60]])
        await libraries.embed(owner)
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


async def test_libraries_that_were_closed_are_embedded_too(open_libraries: OpenLibraries) -> None:
    async with open_libraries(library_open_max=1, **SEMANTIC) as libraries:
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


async def test_vectors_of_one_model_serve_until_those_of_another_are_made(open_libraries: OpenLibraries) -> None:
    texts = {"Car": CAR, "Loaf": BREAD, "Rain": WEATHER}
    async with open_libraries(**SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(title=title, content=text) for title, text in texts.items()])
        await libraries.embed("ada")
        assert await models_of_notes(libraries, "ada") == {("wordllama-256-2", 256)}

    async with open_libraries(**{**SEMANTIC, "semantic_model": "minilm"}) as libraries:
        async with libraries.library("ada") as ada:
            before = await ada.notes.search(make_search("vehicle"))
        await libraries.embed("ada")
        async with libraries.library("ada") as ada:
            after = await ada.notes.search(make_search("vehicle"))
        assert await models_of_notes(libraries, "ada") == {("all-minilm-l6-v2-int8-2", 384)}
    assert titles(before)[0] == titles(after)[0] == "Car"
    # By meaning alone, and not the same number: the query is embedded by the model whose vectors are searched.
    assert before.hits[0].lexical == after.hits[0].lexical == 0
    assert before.hits[0].cosine != after.hits[0].cosine
    assert after.semantic.status == "on"


async def test_nothing_is_embedded_beyond_the_quota(open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Car", content=CAR))
    async with open_libraries(user_max_bytes=1, **SEMANTIC) as libraries:
        await libraries.embed("ada")
        assert await rows_with_vectors(libraries, "ada", NOTE_VECTORS) == set()
        async with libraries.library("ada") as ada:
            page = await ada.notes.search(make_search("automobile"))
    assert (titles(page), page.semantic.status, page.semantic.coverage) == (["Car"], "partial", 0.0)
    async with open_libraries(**SEMANTIC) as libraries:
        await libraries.embed("ada")
        assert await rows_with_vectors(libraries, "ada", NOTE_VECTORS) == {1}


async def test_quota_of_passages_holds_for_all_files_and_after_a_change_of_the_model(
    open_libraries: OpenLibraries,
) -> None:
    async with open_libraries(user_max_passages=3, **SEMANTIC) as libraries:
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

    async with open_libraries(user_max_passages=2, **{**SEMANTIC, "semantic_model": "minilm"}) as libraries:
        await libraries.embed("ada")
        async with libraries.library("ada") as ada:
            page = await ada.notes.search(make_search("vehicle"))
            usage = await ada.usage()
        assert {model for model, _ in await models_of_notes(libraries, "ada")} <= {"all-minilm-l6-v2-int8-2"}
    assert usage.passages == 2
    assert (page.semantic.status, page.semantic.reason is not None) == ("partial", True)
