"""The same library with embeddings on both engines: the same hits with the same scores, in the same order."""

import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

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
from tests.sources.storage.library_fixture import (
    LibraryFixture,
    make_search,
    new_id_ending,
    open_postgres,
    open_sqlite,
)
from tests.sources.storage.test_vectors import SEMANTIC

_WORDS = (
    "car", "automobile", "tyre", "engine", "bread", "dough", "oven", "yeast", "rain", "storm", "mountain", "winter",
    "guitar", "concert", "tax", "invoice", "Straße", "東京都", "naïve", "garden",
)  # fmt: skip
_QUERIES = (
    "vehicle", "vehicle repair", "baking", "bad weather in the mountains", "music", "rain", "car tyre", "nosuchword",
    "automobil", "winter garden invoice", "strasse", "What did Ana say about bread?", '"car tyre"', "tax -rain",
)  # fmt: skip
_SOURCES = ("notes", "prompts", "characters", "observations", "media", "chats")


class _Engines:
    """Ada's library on both engines, with the same content."""

    def __init__(self, sqlite: LibraryFixture, postgres: LibraryFixture) -> None:
        self.fixtures = (sqlite, postgres)

    async def fill(self) -> None:
        for fixture in self.fixtures:
            async with fixture.library("ada") as ada:
                await _fill(ada, random.Random(1))
            await fixture.embed("ada")

    async def search(self, source: str, *, is_agent: bool, **search: Any) -> list[HitPage]:
        pages = []
        for fixture in self.fixtures:
            async with fixture.engine.library(fixture.context("ada", is_agent=is_agent)) as library:
                pages.append(await getattr(library, source).search(make_search(**search)))
        return pages


@pytest.fixture(scope="module")
async def engines(engine_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[_Engines]:
    folder = tmp_path_factory.mktemp("engines")
    async with (
        open_sqlite(folder / "sqlite", **SEMANTIC) as sqlite,
        open_postgres(engine_url, folder / "postgres", new_id_ending(), **SEMANTIC) as postgres,
    ):
        engines = _Engines(sqlite, postgres)
        await engines.fill()
        yield engines


def _text(choice: random.Random, words: int) -> str:
    return " ".join(choice.choice(_WORDS) for _ in range(choice.randint(1, words)))


async def _fill(library: Library, choice: random.Random) -> None:
    """At most 20 matches by words are ordered in the same way on both engines."""

    def uuid() -> str:
        return str(UUID(int=choice.getrandbits(128)))

    for _ in range(18):
        await library.notes.create(NoteDraft(uuid=uuid(), title=_text(choice, 2), content=_text(choice, 9)))
    for _ in range(9):
        await library.prompts.create(PromptDraft(uuid=uuid(), name=_text(choice, 2), user_prompt=_text(choice, 9)))
        description = _text(choice, 9)
        await library.characters.create(CharacterDraft(uuid=uuid(), name=_text(choice, 2), description=description))
        facts = [_text(choice, 4), _text(choice, 4)]
        await library.observations.create(ObservationDraft(uuid=uuid(), title=_text(choice, 2), facts=facts))
    for _ in range(4):
        content = ". ".join(_text(choice, 20) for _ in range(60))
        await library.media.create(MediaDraft(uuid=uuid(), title=_text(choice, 2), content=content))
        hidden = MessageDraft(uuid=uuid(), content="the automobile needs tyres", metadata={"human_only": True})
        said = [MessageDraft(uuid=uuid(), sender="Ana", content=_text(choice, 6)) for _ in range(3)]
        draft = ConversationDraft(uuid=uuid(), title=_text(choice, 2))
        await library.chats.create(draft, [*said[:2], hidden, said[2]])
    # Texts that change lose their vectors, and get new ones.
    for note in (await library.notes.list(3, 0)).rows:
        await library.notes.update(note.uuid, NoteDraft(content=_text(choice, 9)))
    await library.notes.delete((await library.notes.list(1, 5)).rows[0].uuid)


def _keys(page: HitPage, source: str) -> list[tuple[Any, ...]]:
    # Which chunk of a media item is the best by words depends on the engine.
    if source == "media":
        return sorted((hit.id, hit.cosine) for hit in page.hits)
    return [(hit.id, hit.message_id, hit.score, hit.lexical, hit.cosine, hit.text, hit.passage) for hit in page.hits]


@pytest.mark.slow("embeds a library twice")
@pytest.mark.parametrize("is_agent", [True, False], ids=["agent", "person"])
async def test_hits_by_words_and_meaning_are_the_same(engines: _Engines, is_agent: bool) -> None:
    found = 0
    for source in _SOURCES:
        for query in _QUERIES:
            for ranking in ("fused", "meaning"):
                expected, page = await engines.search(source, is_agent=is_agent, text=query, limit=100, ranking=ranking)
                assert _keys(page, source) == _keys(expected, source), (source, query, ranking)
                assert (page.total, page.has_more, page.semantic) == (
                    expected.total,
                    expected.has_more,
                    expected.semantic,
                ), (source, query, ranking)
                found += sum(hit.lexical == 0 for hit in page.hits)
                assert not is_agent or all("needs tyres" not in hit.text for hit in page.hits)
    assert found > 100


async def test_pages_by_meaning_and_filters_are_the_same(engines: _Engines) -> None:
    filters: tuple[dict[str, Any], ...] = (
        {"limit": 3, "offset": 2},
        {"limit": 5, "date_to": "2027-01-15T08:01:00.000Z"},
        {"limit": 4, "tags": ("none",)},
    )
    for source in _SOURCES:
        for search in filters:
            for ranking in ("fused", "meaning"):
                expected, page = await engines.search(
                    source, is_agent=True, text="vehicle repair", ranking=ranking, **search
                )
                assert _keys(page, source) == _keys(expected, source), (source, search, ranking)
                assert page.has_more == expected.has_more, (source, search, ranking)
