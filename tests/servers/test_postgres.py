import asyncpg


async def test_each_test_gets_an_empty_database_with_the_extensions(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
        assert await connection.fetchval("SELECT '[3,4]'::vector <-> '[0,0]'::vector") == 5
        assert await connection.fetchval("SELECT word_similarity('word', 'two words')") > 0.5
    finally:
        await connection.close()
