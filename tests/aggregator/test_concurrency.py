"""Concurrent searches of one user: each searches every source, and none is rejected."""

import asyncio
from pathlib import Path

from bench.local_runtime import open_local_runtime
from config.settings import Settings
from sources.drafts import NoteDraft

# Long enough for a busy machine; the result does not depend on it.
DEADLINE_MS = 60_000


async def test_maximum_number_of_concurrent_searches_loses_no_source(tmp_path: Path) -> None:
    async with open_local_runtime(tmp_path, search_deadline_ms=DEADLINE_MS, fanout_deadline_ms=DEADLINE_MS) as runtime:
        one, other = runtime.context_for("one"), runtime.context_for("other")
        for user in (one, other):
            async with runtime.libraries.library(user) as library:
                await library.notes.create(NoteDraft(title=f"Of {user.principal.user_name}", content="battery"))
        searches = [
            runtime.call(user, "knowledge_search", query="battery charge")
            for user in (one, other)
            for _ in range(Settings().fixed.connection_in_flight_max)
        ]
        responses = await asyncio.gather(*searches)

    assert all("sources" not in response for response in responses), "a source failed"
    titles = [[hit["title"] for hit in response["results"]] for response in responses]
    assert titles == [["Of one"]] * (len(titles) // 2) + [["Of other"]] * (len(titles) // 2)
