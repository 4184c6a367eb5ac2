"""The same library on SQLite and on PostgreSQL: the same hits with the same scores, in the same order."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.records import HitPage
from sources.storage.contract import Library
from sources.storage.postgres.search.tsquery_engine import TARGETS
from sources.storage.search.engine import SearchTarget
from tests.sources.storage.library_fixture import make_search, open_sqlite
from tests.sources.storage.postgres.copied_library import CopiedLibrary

_WORDS = (
    "tea", "milk", "sugar", "honey", "lemon", "running", "organization", "naïve", "東京都", "Straße", "camelCaseWord",
    "v1.2.3", "lighthouse", "lighthouses", "Tokyo", "Steuer", "Steuererklärung", "हिन्दी", "don't",
)  # fmt: skip
_QUERIES = (
    "tea", "tea milk", "tea OR lemon", "tea AND milk", "milk NOT tea", '"tea milk"', '"milk sugar honey"', "run*",
    "organi*", "title:tea", "東京", "京都", "strasse", "lighthuse", "camel", "v1.2.3", '"v1.2.3" honey', "Steuer",
    "tea milk sugar honey lemon", "(tea OR milk) NOT honey", "title:tea AND milk", "nosuchword", "हिन्दी", "don't",
)  # fmt: skip
_TARGETS: dict[str, SearchTarget] = {
    name: TARGETS[name] for name in ("notes", "prompts", "characters", "media", "chats")
}


@pytest.fixture
def copy(engine_url: str) -> Iterator[CopiedLibrary]:
    library = CopiedLibrary(engine_url)
    yield library
    library.close()


def _text(choice: random.Random, words: int) -> str:
    return " ".join(choice.choice(_WORDS) for _ in range(choice.randint(1, words)))


async def _fill(library: Library, choice: random.Random) -> None:
    """Adds at most 20 entries of each kind: more are ordered in blocks, and which block depends on the engine."""
    await library.notes.create_many(
        [NoteDraft(title=_text(choice, 3), content=_text(choice, 12), tags=(choice.choice("xy"),)) for _ in range(18)]
    )
    for _ in range(15):
        fields: dict[str, Any] = {
            name: _text(choice, 6) for name in ("details", "system_prompt", "user_prompt", "author")
        }
        await library.prompts.create(PromptDraft(name=_text(choice, 2), tags=(_text(choice, 1),), **fields))
        await library.characters.create(CharacterDraft(name=_text(choice, 2), description=_text(choice, 9)))
    for _ in range(4):
        await library.media.create(
            MediaDraft(title=_text(choice, 2), content=". ".join(_text(choice, 20) for _ in range(60)))
        )
        hidden = MessageDraft(content="tea honey lemon tonight", metadata={"visibility": "human_only"})
        messages = [MessageDraft(sender=choice.choice(("Ana", "Straße")), content=_text(choice, 6)) for _ in range(3)]
        await library.chats.create(ConversationDraft(title=_text(choice, 2)), [*messages[:2], hidden, messages[2]])


def _filters(source: str, choice: random.Random) -> dict[str, Any]:
    target = _TARGETS[source]
    filters: list[dict[str, Any]] = [
        {}, {"order": "recent"}, {"tags": ("X",)}, {"fields": (choice.choice(target.index.columns),)},
        {"limit": 3, "offset": 2}, {"date_to": "2026-01-01"},
    ]  # fmt: skip
    if source == "chats":
        filters += [
            {"senders": ("ana", "STRASSE")},
            {"contains": "tea milk"},
            {"projects": ("default",)},
            {"by": "title"},
        ]
    if source == "media":
        filters += [{"media_types": ("TEXT",)}]
    return choice.choice(filters)


_MORE_SEEDS = pytest.mark.slow("repeats a comparison of the first tier with other libraries")


def _keys(page: HitPage, source: str) -> list[tuple[Any, ...]]:
    # Which chunk of a media item is the best depends on the engine, and with it the score.
    if source == "media":
        return sorted((hit.id,) for hit in page.hits)
    return [(hit.id, hit.message_id, hit.score, hit.text, hit.field, hit.via, hit.context) for hit in page.hits]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=_MORE_SEEDS) for seed in range(1, 4))])
async def test_random_libraries_have_the_same_hits_on_both_engines(
    seed: int, copy: CopiedLibrary, tmp_path: Path
) -> None:
    choice = random.Random(seed)
    async with open_sqlite(tmp_path) as libraries:
        async with libraries.library("ada") as ada:
            await _fill(ada, choice)
        async with libraries.engine.library(libraries.context("ada", is_agent=True)) as agent:
            copy.copy(tmp_path)
            for source, target in _TARGETS.items():
                for query in _QUERIES:
                    search = make_search(query, **{"limit": 100, **_filters(source, choice)})
                    expected, found = await getattr(agent, source).search(search), copy.search(target, search)
                    difference = (source, query, search)
                    if source != "media" or search.limit == 100:
                        assert _keys(found, source) == _keys(expected, source), difference
                    assert (found.total, found.has_more) == (expected.total, expected.has_more), difference
                    assert found.query == expected.query, difference
