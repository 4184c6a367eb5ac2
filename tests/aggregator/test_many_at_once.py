"""Many searches of one user at the same time: each asks every source, and none is turned away."""

import asyncio
from pathlib import Path

from bench.local_runtime import open_local_runtime
from config.settings import Settings
from sources.drafts import NoteDraft

# On a busy machine a search may take its time; whether it is turned away does not depend on that.
PATIENT_MS = 60_000


async def test_as_many_searches_as_a_connection_may_have_in_flight_lose_no_source(tmp_path: Path) -> None:
    async with open_local_runtime(tmp_path, search_deadline_ms=PATIENT_MS, fanout_deadline_ms=PATIENT_MS) as runtime:
        one, other = runtime.context_for("one"), runtime.context_for("other")
        for reader in (one, other):
            async with runtime.libraries.library(reader) as library:
                await library.notes.create(NoteDraft(title=f"Of {reader.principal.user_name}", content="battery"))
        searches = [
            runtime.call(reader, "knowledge_search", query="battery charge")
            for reader in (one, other)
            for _ in range(Settings().connection_in_flight_max)
        ]
        answers = await asyncio.gather(*searches)

    assert {report["status"] for answer in answers for report in answer["sources"].values()} == {"ok"}
    titles = [[hit["title"] for hit in answer["results"]] for answer in answers]
    assert titles == [["Of one"]] * (len(titles) // 2) + [["Of other"]] * (len(titles) // 2)
