"""What a session asked before tips the balance between passages of a hit, and the answer says so."""

from pathlib import Path

from aggregator.responses import KnowledgeAnswer
from aggregator.search import KnowledgeSearch
from server.lifespan import build_knowledge
from tests.sources.source_fixture import SourceFixture, open_source_fixture

FILLER = "Nothing of note was written down on the days that followed. " * 12
TEXT = f"The harbour was full of grain. {FILLER} The harbour was full of silver."


async def ask(fixture: SourceFixture, *queries: str, user: str = "ada") -> KnowledgeAnswer:
    """The answer to the last query of a session that asked the others before."""
    reader = {"ada": fixture.ada, "ben": fixture.ben}[user]
    aggregator = build_knowledge(fixture.settings, fixture.libraries).aggregator
    answers: list[KnowledgeAnswer] = []
    for query in queries:
        session = answers[-1].session if answers else None
        asked = KnowledgeSearch(query=query, session=session, dedupe="off", snippet_length=60, explain=True)
        answers.append(await aggregator.search(reader.context, asked))
    return answers[-1]


async def test_a_snippet_leans_toward_what_the_session_asked_before(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)

        first = await ask(fixture, "harbour")
        about_silver = await ask(fixture, "silver mines", "harbour")
        about_grain = await ask(fixture, "grain", "harbour")

    assert first.explain
    assert first.explain.topic == ()
    assert about_silver.explain
    assert about_silver.explain.topic == ("silver", "mines")
    assert "silver" in (about_silver.results[0].snippet or "")
    assert "grain" in (about_grain.results[0].snippet or "")


async def test_the_topic_changes_no_score_and_no_order(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)
        await fixture.ada.add_note("Silver", "Silver in the harbour.")

        plain, leaning = await ask(fixture, "harbour"), await ask(fixture, "silver mines", "harbour")

    assert [(hit.uri, hit.score) for hit in plain.results] == [(hit.uri, hit.score) for hit in leaning.results]


async def test_the_same_session_answers_the_same_twice(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)

        answers = [await ask(fixture, "silver mines", "harbour") for _ in range(2)]

    assert answers[0].results == answers[1].results


async def test_the_topic_is_that_of_the_last_three_queries_and_of_no_other_user(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)
        await fixture.ben.add_note("Log", TEXT)
        await ask(fixture, "silver", "harbour")

        late = await ask(fixture, "silver", "one", "two", "three", "harbour")
        bens = await ask(fixture, "harbour", user="ben")

    assert late.explain
    assert late.explain.topic == ("three", "two", "one")
    assert bens.explain
    assert bens.explain.topic == ()


async def test_an_explained_hit_tells_the_engines_own_rank(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)

        [hit] = (await ask(fixture, "harbour")).results

    assert hit.explain
    assert hit.explain.bm25 is None or hit.explain.bm25 < 0
