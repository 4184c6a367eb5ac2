"""tldw's scores on PostgreSQL: `ts_rank` divided by the largest one of the query."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from sources.drafts import NoteDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import make_search, open_postgres


@pytest.fixture
async def ada(database_url: str, tmp_path: Path) -> AsyncIterator[Library]:
    open_libraries = partial(open_postgres, database_url, tmp_path, "z" * 26)
    async with open_libraries() as libraries, libraries.library("ada") as library:
        yield library


async def test_score_of_a_query_is_the_rank_divided_by_the_largest_one(ada: Library) -> None:
    texts = ["tea " * (n + 1) + "water " * 8 for n in range(4)]
    await ada.notes.create_many([NoteDraft(title=f"Note {n}", content=text) for n, text in enumerate(texts)])

    hits = (await ada.notes.search(make_search("tea", scoring="minmax"))).hits

    ranks = [hit.bm25 for hit in hits]
    assert None not in ranks
    assert [hit.score for hit in hits] == [round((rank or 0) / (ranks[0] or 1), 4) for rank in ranks]
    assert hits[0].score == 1.0 > hits[-1].score > 0
    assert [hit.title for hit in hits] == ["Note 3", "Note 2", "Note 1", "Note 0"]
