"""The counts that are kept for weighting terms are limited, whatever is searched."""

from functools import partial

from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database
from tests.sources.storage.sqlite.conftest import INDEX

JOBS = 60
COUNTS_PER_JOB = 50


async def test_counts_of_ever_new_words_take_limited_memory(database: Database) -> None:
    """A file that nobody writes to would otherwise keep a count of every word that was ever searched."""
    statistics = database.statistics

    def count(job: int, connection: JobConnection) -> None:
        statistics.refresh(connection)
        for number in range(COUNTS_PER_JOB):
            assert statistics.count_matches(connection, INDEX, f'"word{job}x{number}"') == 0

    for job in range(JOBS):
        await database.read("words", partial(count, job))

    assert len(statistics._own._counts) <= 1_000 + COUNTS_PER_JOB
