"""Earlier queries of a session decide between equally good snippets of a hit, and `explain` reports it."""

from pathlib import Path

from aggregator.contract import KnowledgeResponse, KnowledgeSearch
from server.services import build_knowledge
from tests.sources.source_fixture import SourceFixture, open_source_fixture

FILLER = "Nothing of note was written down on the days that followed. " * 12
TEXT = f"The harbour was full of grain. {FILLER} The harbour was full of silver."


async def search_in_sequence(fixture: SourceFixture, *queries: str, user: str = "ada") -> KnowledgeResponse:
    """Runs the queries in one session and returns the response to the last one."""
    client = {"ada": fixture.ada, "ben": fixture.ben}[user]
    aggregator = build_knowledge(fixture.settings, fixture.libraries).aggregator
    responses: list[KnowledgeResponse] = []
    for query in queries:
        session = responses[-1].session if responses else None
        request = KnowledgeSearch(query=query, session=session, dedupe="off", snippet_length=60, explain=True)
        responses.append(await aggregator.search(client.context, request))
    return responses[-1]


async def test_snippet_prefers_the_passage_with_words_of_earlier_queries(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)

        first = await search_in_sequence(fixture, "harbour")
        after_silver = await search_in_sequence(fixture, "silver mines", "harbour")
        after_grain = await search_in_sequence(fixture, "grain", "harbour")

    assert first.explain
    assert first.explain.topic == ()
    assert after_silver.explain
    assert after_silver.explain.topic == ("silver", "mines")
    assert "silver" in (after_silver.results[0].snippet or "")
    assert "grain" in (after_grain.results[0].snippet or "")


async def test_topic_changes_neither_scores_nor_order(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)
        await fixture.ada.add_note("Silver", "Silver in the harbour.")

        without_topic = await search_in_sequence(fixture, "harbour")
        with_topic = await search_in_sequence(fixture, "silver mines", "harbour")

    without_scores, with_scores = (
        [(hit.uri, hit.score) for hit in response.results] for response in (without_topic, with_topic)
    )
    assert without_scores == with_scores


async def test_same_queries_return_the_same_results(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)

        responses = [await search_in_sequence(fixture, "silver mines", "harbour") for _ in range(2)]

    assert responses[0].results == responses[1].results


async def test_topic_comes_from_the_last_three_queries_of_the_same_user(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)
        await fixture.ben.add_note("Log", TEXT)
        await search_in_sequence(fixture, "silver", "harbour")

        late = await search_in_sequence(fixture, "silver", "one", "two", "three", "harbour")
        bens = await search_in_sequence(fixture, "harbour", user="ben")

    assert late.explain
    assert late.explain.topic == ("three", "two", "one")
    assert bens.explain
    assert bens.explain.topic == ()


async def test_explanation_contains_the_bm25_rank_of_the_engine(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_note("Log", TEXT)

        [hit] = (await search_in_sequence(fixture, "harbour")).results

    assert hit.explain
    assert hit.explain.bm25 is None or hit.explain.bm25 < 0
