"""Media: texts, chunks, transcripts, and search by passage."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.errors import InvalidParams, NotFound
from sources.drafts import MediaDraft
from sources.records import MediaChunk, Segment
from sources.storage.contract import Library
from sources.text.transcripts import group_cues
from tests.cases import each_case
from tests.sources.storage.library_fixture import OpenLibraries, ids, make_search

pytestmark = pytest.mark.postgres(is_contract=True)

LONG = " ".join(f"Sentence number {n} speaks of tea." for n in range(300))


async def test_text_is_stored_and_can_be_read_in_parts(ada: Library, ben: Library) -> None:
    item = await ada.media.create(
        MediaDraft(title="Book", content="Grüße, 東京!", media_type="pdf", url="u", author="a")
    )
    assert (item.media_type, item.url, item.author, item.length_chars) == ("pdf", "u", "a", 10)
    assert await ada.media.content(item.id) == "Grüße, 東京!"
    assert await ada.media.content(item.id, 7, 2) == "東京"
    assert await ada.media.content(item.id, 99) == ""
    assert await ada.media.get_by_uuid(item.uuid) == item
    for call in (ben.media.content(item.id), ben.media.get_by_uuid(item.uuid), ben.media.chunks(item.id, 0, 1)):
        with pytest.raises(NotFound):
            await call


async def test_chunks_cover_the_text(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(content=LONG))
    chunks = await ada.media.chunks(item.id, 0, 1_000)
    assert len(chunks) == item.chunk_count > 3
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk.text == LONG[chunk.start : chunk.end] for chunk in chunks)
    assert chunks[0].start == 0
    assert all(after.start <= before.end < after.end for before, after in pairwise(chunks))
    assert chunks[-1].end == len(LONG)
    assert len({chunk.uuid for chunk in chunks}) == len(chunks)


async def test_chunk_can_be_read_by_index_uuid_and_offset(ada: Library, ben: Library) -> None:
    item = await ada.media.create(MediaDraft(content=LONG))
    other = await ada.media.create(MediaDraft(content=LONG))
    second = (await ada.media.chunks(item.id, 1, 1))[0]
    assert await ada.media.chunk_by_uuid(item.id, second.uuid) == second
    assert await ada.media.chunk_at(item.id, (second.start + second.end) // 2) == second
    assert (await ada.media.chunk_at(item.id, -5)).index == 0
    assert (await ada.media.chunk_at(item.id, 10**9)).index == item.chunk_count - 1
    for call in (
        ada.media.chunk_by_uuid(other.id, second.uuid),
        ben.media.chunk_by_uuid(item.id, second.uuid),
        ben.media.chunk_at(item.id, 0),
    ):
        with pytest.raises(NotFound):
            await call


async def test_item_without_text_has_one_empty_chunk_and_is_found_by_title(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(title="Silent film"))
    assert [chunk.text for chunk in await ada.media.chunks(item.id, 0, 10)] == [""]
    assert ids(await ada.media.search(make_search("silent"))) == [item.id]


async def test_item_is_one_hit_with_its_best_passage(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(title="Book", content=LONG + " The samovar makes tea."))
    page = await ada.media.search(make_search("samovar tea"))
    assert ids(page) == [item.id]
    [hit] = page.hits
    assert "samovar" in hit.text
    assert hit.chunk_index == item.chunk_count - 1
    assert hit.chunk_uuid == (await ada.media.chunks(item.id, item.chunk_count - 1, 1))[0].uuid
    assert (hit.more_in_item, page.total, hit.item_chars) == (item.chunk_count - 1, 1, item.length_chars)


async def test_search_within_an_item_returns_every_passage(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(title="Book", content=LONG))
    await ada.media.create(MediaDraft(title="Other", content=LONG))
    page = await ada.media.search(make_search("tea", limit=100, within=item.id))
    assert sorted(hit.chunk_index or 0 for hit in page.hits) == list(range(item.chunk_count))
    assert set(ids(page)) == {item.id}


async def test_chunks_of_the_draft_are_stored(ada: Library) -> None:
    chunks = [
        MediaChunk(index=5, uuid="c-1", text="First page", start=0, end=10, start_ms=0, end_ms=900, speaker="Ana"),
        MediaChunk(index=9, uuid="", text="Second page", start=11, end=22),
    ]
    item = await ada.media.create(MediaDraft(content="First page Second page", chunks=chunks))
    first, second = await ada.media.chunks(item.id, 0, 10)
    assert (first.index, first.uuid, first.text, first.speaker) == (0, "c-1", "First page", "Ana")
    assert (second.index, second.start, second.end) == (1, 11, 22)
    assert second.uuid


async def test_text_is_built_from_chunks(ada: Library) -> None:
    chunks = [MediaChunk(index=0, uuid="", text=text, start=0, end=0) for text in ("one", "two")]
    item = await ada.media.create(MediaDraft(chunks=chunks))
    assert await ada.media.content(item.id) == "one\ntwo"
    assert [(chunk.start, chunk.end) for chunk in await ada.media.chunks(item.id, 0, 10)] == [(0, 3), (4, 7)]


async def test_transcript_is_searched_as_text_and_read_by_time(ada: Library, ben: Library) -> None:
    lines = [
        Segment(start_ms=n * 1_000, end_ms=n * 1_000 + 900, text=f"Line {n} speaks of tea.", speaker="AB"[n // 100])
        for n in range(200)
    ]
    item = await ada.media.create(MediaDraft(title="Talk", segments=lines))
    assert item.has_transcript
    assert list(await ada.media.segments(item.id)) == lines
    assert [line.start_ms for line in await ada.media.segments(item.id, 1_950, 3_000)] == [2_000, 3_000]
    chunks = await ada.media.chunks(item.id, 0, 100)
    assert (chunks[0].start_ms, chunks[0].speaker) == (0, "A")
    assert (chunks[-1].end_ms, chunks[-1].speaker) == (199_900, "B")
    assert all(a.start_ms is not None and a.end_ms is not None and a.start_ms < a.end_ms for a in chunks)
    [hit] = (await ada.media.search(make_search('"line 199"'))).hits
    assert hit.start_ms == chunks[hit.chunk_index or 0].start_ms
    with pytest.raises(NotFound):
        await ben.media.segments(item.id)


def cue(start_s: int, end_s: int, text: str) -> Segment:
    return Segment(start_ms=start_s * 1_000, end_ms=end_s * 1_000, text=text)


async def test_transcript_chunk_has_whole_lines_and_lasts_at_most_30_seconds(ada: Library, ben: Library) -> None:
    lines = [cue(2, 5, "The tide."), cue(6, 20, "It comes in."), cue(600, 603, "Run!"), cue(604, 680, "A long song.")]
    item = await ada.media.create(MediaDraft(title="Film", segments=lines))
    bens_item = await ben.media.create(MediaDraft(title="Film", segments=lines[:2]))

    chunks = await ada.media.chunks(item.id, 0, 10)

    assert [(chunk.start_ms, chunk.end_ms, chunk.text) for chunk in chunks] == [
        (2_000, 20_000, "The tide.\nIt comes in."),
        (600_000, 603_000, "Run!"),
        (604_000, 680_000, "A long song."),
    ]
    content = await ada.media.content(item.id)
    assert [content[chunk.start : chunk.end] for chunk in chunks] == [chunk.text for chunk in chunks]
    [hit] = (await ada.media.search(make_search("run"))).hits
    assert hit.start_ms == 600_000
    assert [chunk.text for chunk in await ben.media.chunks(bens_item.id, 0, 10)] == ["The tide.\nIt comes in."]


async def test_line_longer_than_a_chunk_is_split_with_its_time(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(segments=[cue(1, 2, "Short."), cue(3, 900, LONG), cue(901, 902, "End.")]))

    first, *pieces, last = await ada.media.chunks(item.id, 0, 1_000)

    assert (first.text, last.text, last.start_ms) == ("Short.", "End.", 901_000)
    assert len(pieces) > 3
    assert {(chunk.start_ms, chunk.end_ms) for chunk in pieces} == {(3_000, 900_000)}
    content = await ada.media.content(item.id)
    assert all(content[chunk.start : chunk.end] == chunk.text for chunk in pieces)


segments = st.builds(
    lambda start_ms, lasts_ms, text: Segment(start_ms=start_ms, end_ms=start_ms + lasts_ms, text=text),
    st.integers(0, 200_000),
    st.integers(0, 50_000),
    st.text("ab .", max_size=60),
)


@given(st.lists(segments, max_size=30), st.integers(1, 200))
def test_grouped_cues_contain_all_lines_in_order_within_30_seconds(lines: list[Segment], size: int) -> None:
    groups = list(group_cues(lines, size))

    assert [line for group in groups for line in group.lines] == lines
    text = "\n".join(line.text for line in lines)
    for group in groups:
        assert text[group.start : group.start + len(group.text)] == group.text
        assert len(group.lines) == 1 or len(group.text) <= size
        assert all(line.end_ms - group.start_ms <= 30_000 for line in group.lines[1:])


async def test_new_text_replaces_chunks_and_transcript(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(segments=[Segment(start_ms=0, end_ms=1, text="tea")]))
    changed = await ada.media.update(item.id, MediaDraft(content="coffee"))
    assert (changed.has_transcript, changed.length_chars, changed.chunk_count) == (False, 6, 1)
    assert await ada.media.segments(item.id) == []
    assert (await ada.media.search(make_search("tea"))).hits == ()
    assert ids(await ada.media.search(make_search("coffee"))) == [item.id]


async def test_new_title_keeps_the_text_and_matches_every_passage(ada: Library) -> None:
    item = await ada.media.create(MediaDraft(title="Book", content=LONG))
    changed = await ada.media.update(item.id, MediaDraft(title="Almanac"))
    assert (changed.chunk_count, await ada.media.content(item.id)) == (item.chunk_count, LONG)
    assert (await ada.media.search(make_search("book"))).hits == ()
    [hit] = (await ada.media.search(make_search("almanac"))).hits
    assert hit.more_in_item == item.chunk_count - 1


async def test_media_types_are_counted_and_filtered_ignoring_case(ada: Library, ben: Library) -> None:
    for media_type in ("pdf", "pdf", "Video"):
        await ada.media.create(MediaDraft(title="Tea", media_type=media_type))
    deleted = await ada.media.create(MediaDraft(title="Tea", media_type="audio"))
    await ada.media.delete(deleted.id)
    assert dict(await ada.media.types()) == {"pdf": 2, "Video": 1}
    assert len((await ada.media.search(make_search("tea", media_types=("PDF",)))).hits) == 2
    assert len((await ada.media.search(make_search("tea", media_types=("video", "audio")))).hits) == 1
    assert dict(await ben.media.types()) == {}


@each_case(
    "draft",
    [
        MediaDraft(chunks=[MediaChunk(index=0, uuid="", text="x", start=5, end=1)]),
        MediaDraft(chunks=[MediaChunk(index=0, uuid="a b", text="x", start=0, end=1)]),
        MediaDraft(chunks=[MediaChunk(index=0, uuid="", text="\0", start=0, end=1)]),
        MediaDraft(segments=[Segment(start_ms=5, end_ms=1, text="x")]),
        MediaDraft(segments=[Segment(start_ms=-1, end_ms=1, text="x")]),
        MediaDraft(segments=[Segment(start_ms=0, end_ms=2**70, text="x")]),
    ],
)
async def test_invalid_chunks_and_segments_are_rejected(ada: Library, draft: MediaDraft) -> None:
    with pytest.raises(InvalidParams, match=r"(chunks|segments): expected .+, got .+"):
        await ada.media.create(draft)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=400))
async def test_any_text_is_stored_unchanged(ada: Library, text: str) -> None:
    item = await ada.media.create(MediaDraft(content=text))
    assert await ada.media.content(item.id) == text
    chunks = await ada.media.chunks(item.id, 0, 1_000)
    assert all(chunk.text == text[chunk.start : chunk.end] for chunk in chunks)


async def test_chunk_size_is_a_setting(open_libraries: OpenLibraries) -> None:
    async with (
        open_libraries(chunk_size_chars=200, chunk_overlap_chars=0) as libraries,
        libraries.library("ada") as ada,
    ):
        item = await ada.media.create(MediaDraft(content=LONG))
        assert all(len(chunk.text) <= 200 for chunk in await ada.media.chunks(item.id, 0, 1_000))
